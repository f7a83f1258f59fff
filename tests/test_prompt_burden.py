"""Index and schema tokens against every outcome of small runs, in exact arithmetic."""

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.prompt_burden import index_tokens_over_run, index_tokens_per_prompt, tool_schema_tokens

sizes = st.integers(0, 20_000)
probabilities = st.one_of(st.sampled_from([0.0, 1.0, 0.5, 1e-12, 1 - 1e-12]), st.floats(0, 1))
documents = st.lists(st.tuples(sizes, sizes, probabilities), max_size=4)


def columns(rows):
    return [list(column) for column in zip(*rows)] if rows else [[], [], []]


def expected_prompt(rows):
    """Mean prompt over every subset of documents that a prompt may load."""
    mean = Fraction(0)
    for loads in product((False, True), repeat=len(rows)):
        chance, tokens = Fraction(1), 0
        for loaded, (entry, document, rho) in zip(loads, rows):
            chance *= Fraction(rho) if loaded else 1 - Fraction(rho)
            tokens += entry + (document if loaded else 0)
        mean += chance * tokens
    return mean


def expected_run_of_one(calls, entry, document, rho):
    """Mean tokens over every sequence of coins, one per call, of which the first head loads the document for good."""
    mean = Fraction(0)
    for heads in product((False, True), repeat=calls):
        chance, tokens, loaded = Fraction(1), 0, False
        for head in heads:
            chance *= Fraction(rho) if head else 1 - Fraction(rho)
            loaded = loaded or head
            tokens += entry + (document if loaded else 0)
        mean += chance * tokens
    return mean


def expected_run(calls, rows):
    """Mean tokens call by call: a document is absent with the probability that no call so far has loaded it."""
    total = Fraction(0)
    for entry, document, rho in rows:
        absent = Fraction(1)
        for _ in range(calls):
            absent *= 1 - Fraction(rho)
            total += entry + (1 - absent) * document
    return total


@given(documents)
@settings(deadline=None)
def test_a_prompt_carries_the_mean_over_all_subsets_of_documents(rows):
    entries, loads, chances = columns(rows)
    exact = float(expected_prompt(rows))
    assert index_tokens_per_prompt(entries, loads, chances) == pytest.approx(exact, rel=1e-12, abs=0)


@given(st.integers(0, 6), sizes, sizes, probabilities)
@settings(deadline=None)
def test_the_call_by_call_sum_is_the_mean_over_all_sequences_of_loads(calls, entry, document, rho):
    assert expected_run(calls, [(entry, document, rho)]) == expected_run_of_one(calls, entry, document, rho)


@given(st.integers(0, 40), documents)
@settings(max_examples=200, deadline=None)
def test_a_run_carries_the_sum_over_its_calls(calls, rows):
    exact = float(expected_run(calls, rows))
    assert index_tokens_over_run(calls, *columns(rows)) == pytest.approx(exact, rel=1e-9, abs=0)


@pytest.mark.parametrize("rho", [1e-3, 1e-6, 1e-9, 1e-12, 1e-18, 5e-324])
@pytest.mark.parametrize("calls", [1, 10, 100])
def test_a_document_that_is_almost_never_loaded_still_counts_to_nine_digits(rho, calls):
    # 10**15 is the largest size accepted, so that no error hides behind a small document.
    exact = float(expected_run(calls, [(0, 10**15, rho)]))
    assert index_tokens_over_run(calls, [0], [10**15], [rho]) == pytest.approx(exact, rel=1e-9, abs=5e-324)


@pytest.mark.parametrize("rho", [0.0, 5e-324, 1e-300, 1e-17, 1e-9, 0.5, 1 - 2**-53, 1.0])
@pytest.mark.parametrize("calls", [0, 1, 3, 100, 10**6, 10**15])
def test_a_document_is_in_no_fewer_than_zero_and_no_more_than_all_prompts(rho, calls):
    tokens = index_tokens_over_run(calls, [0], [1], [rho])
    assert 0 <= tokens <= calls
    if rho == 0:
        assert tokens == 0
    if rho == 1:
        assert tokens == calls


def test_a_document_never_loaded_costs_its_entry_and_one_always_loaded_its_whole_size():
    assert index_tokens_per_prompt([20, 30], [1000, 2000], [0, 1]) == 20 + 30 + 2000
    assert index_tokens_over_run(7, [20, 30], [1000, 2000], [0, 1]) == 7 * (20 + 30 + 2000)


def test_a_run_of_one_call_is_one_prompt():
    rows = [20, 30], [1000, 2000], [0.25, 0.75]
    assert index_tokens_over_run(1, *rows) == pytest.approx(index_tokens_per_prompt(*rows), rel=1e-12)


def test_a_run_of_no_calls_and_an_index_of_no_documents_cost_nothing():
    assert index_tokens_over_run(0, [20], [1000], [0.5]) == 0
    assert index_tokens_over_run(0, [20], [1000], [1.0]) == 0
    assert index_tokens_over_run(9, [], [], []) == 0
    assert index_tokens_per_prompt([], [], []) == 0
    assert tool_schema_tokens(9, []) == 0
    assert tool_schema_tokens(0, [500], first_calls=[1]) == 0


@given(st.integers(0, 30), st.lists(st.tuples(sizes, st.integers(1, 40)), max_size=5))
def test_staged_schemas_are_counted_call_by_call(calls, tools):
    sent = sum(size for call in range(1, calls + 1) for size, first in tools if call >= first)
    schemas, first_calls = [size for size, _ in tools], [first for _, first in tools]
    staged = tool_schema_tokens(calls, schemas, first_calls=first_calls)
    assert staged == sent
    assert isinstance(staged, int)
    assert tool_schema_tokens(calls, schemas) == tool_schema_tokens(calls, schemas, [1] * len(tools))


def test_schemas_from_the_first_call_on_are_sent_with_every_call():
    assert tool_schema_tokens(100, [500, 1500]) == 100 * 500 + 100 * 1500
    assert tool_schema_tokens(100, [500, 1500], first_calls=[100, 101]) == 500
    assert tool_schema_tokens(10**15, [10**15, 10**15]) == 2 * 10**30


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (index_tokens_per_prompt, ([1, 2], [1], [0.5]), "one entry per item each, got lengths"),
        (index_tokens_per_prompt, ([1], [1], [0.5, 0.5]), "one entry per item each, got lengths"),
        (index_tokens_over_run, (1, [1], [], []), "one entry per item each, got lengths"),
        (tool_schema_tokens, (1, [1, 2], [1]), "one entry per item each, got lengths"),
        (tool_schema_tokens, (1, [], [1]), "one entry per item each, got lengths"),
        (index_tokens_per_prompt, ([-1], [1], [0.5]), "entry_tokens must be a whole number .* got -1"),
        (index_tokens_per_prompt, ([1], [1.5], [0.5]), "document_tokens must be a whole number .* got 1.5"),
        (index_tokens_per_prompt, ([1], [1], [1.5]), "load_probabilities must be a number from 0 to 1, got 1.5"),
        (index_tokens_per_prompt, ([1], [1], [float("nan")]), "load_probabilities must be .* got nan"),
        (index_tokens_over_run, (-1, [1], [1], [0.5]), "calls must be a whole number .* got -1"),
        (index_tokens_over_run, (1, [1], [1], [-0.5]), "load_probabilities must be .* got -0.5"),
        (tool_schema_tokens, (1.5, [1]), "calls must be a whole number .* got 1.5"),
        (tool_schema_tokens, (1, [-1]), "schema_tokens must be a whole number .* got -1"),
        (tool_schema_tokens, (1, [1], [0]), "first_calls must be a whole number from 1 .* got 0"),
    ],
)
def test_bad_input_is_named(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)
