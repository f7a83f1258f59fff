"""Item selection against trying every subset."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.selection import Item, greedy_by_value, greedy_by_value_per_token, select_items

pairs = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 30)), max_size=9)


def best_value_by_trying_all(items, budget):
    return max(
        sum(value for _, value in subset)
        for count in range(len(items) + 1)
        for subset in combinations(items, count)
        if sum(size for size, _ in subset) <= budget
    )


@given(items=pairs, budget=st.integers(0, 120))
@settings(max_examples=300, deadline=None)
def test_the_choice_is_as_good_as_the_best_of_all_subsets_and_fits(items, budget):
    choice = select_items(items, budget)
    assert choice.value == best_value_by_trying_all(items, budget)
    assert choice.size == sum(items[i][0] for i in choice.selected) <= budget
    assert choice.value == sum(items[i][1] for i in choice.selected)
    assert len(set(choice.selected)) == len(choice.selected)


@given(items=pairs, budget=st.integers(0, 120))
@settings(max_examples=200, deadline=None)
def test_greedy_choices_fit_and_never_beat_the_exact_one(items, budget):
    exact = select_items(items, budget).value
    for greedy in (greedy_by_value, greedy_by_value_per_token):
        choice = greedy(items, budget)
        assert choice.value <= exact
        assert choice.size <= budget


def test_two_smaller_items_beat_the_most_valuable_one():
    items = [(6, 8), (3, 5), (3, 5)]
    assert select_items(items, 6).selected == (1, 2)
    assert greedy_by_value(items, 6).value == 8


def test_of_two_equal_values_the_smaller_choice_is_taken():
    assert select_items([(5, 3), (2, 3)], 5).selected == (1,)


def test_pinned_items_come_first_and_count_no_value():
    items = [Item(size=4, value=0, pinned=True), Item(size=3, value=5), Item(size=2, value=4)]
    choice = select_items(items, 7)
    assert (choice.selected, choice.size, choice.value) == ((0, 1), 7, 5)


def test_pinned_items_that_do_not_fit_are_refused_with_both_numbers():
    with pytest.raises(ValueError, match="at least the 9 tokens of the pinned items, got 8"):
        select_items([Item(size=9, value=1, pinned=True)], 8)


@pytest.mark.parametrize(
    ("items", "budget", "message"),
    [
        ([(-1, 1)], 5, "size must be a whole number from 0"),
        ([(1, float("nan"))], 5, "value must be a number from 0 to 1,000,000,000,000, got nan"),
        ([(1.5, 1)], 5, "size must be a whole number"),
        ([(1, 1)], -5, "budget must be a whole number from 0"),
    ],
)
def test_bad_numbers_are_named(items, budget, message):
    with pytest.raises(ValueError, match=message):
        select_items(items, budget)


def test_a_large_budget_and_many_items_stay_exact():
    # Sizes that are powers of two: every total is reached in one way only, so the best is the budget itself.
    items = [(2**i, 2**i) for i in range(18)]
    budget = 123_456
    assert select_items(items, budget).value == budget
