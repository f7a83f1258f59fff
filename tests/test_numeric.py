"""What counts as a number, its one error message, and whole-number arithmetic that never wraps."""

import importlib
import math
import pkgutil
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calc
from calc.attention import attention_flops, causal_pairs, run_pairs_without_reuse
from calc.numeric import (
    COUNT,
    FRACTION,
    MAX_COUNT,
    NON_NEGATIVE,
    POSITIVE,
    POSITIVE_COUNT,
    Range,
    count_up_to,
    formula,
    larger,
    require,
    require_all,
    smaller,
)

counts = st.integers(0, MAX_COUNT)
WIDE = count_up_to(10**33)
UNBOUNDED = Range(low=0, high=math.inf, whole=False)


@pytest.mark.parametrize(
    ("allowed", "text"),
    [
        (COUNT, "a whole number from 0 to 1,000,000,000,000,000"),
        (POSITIVE_COUNT, "a whole number from 1 to 1,000,000,000,000,000"),
        (count_up_to(64), "a whole number from 0 to 64"),
        (count_up_to(64, low=2), "a whole number from 2 to 64"),
        (NON_NEGATIVE, "a number from 0 to 1,000,000,000,000"),
        (UNBOUNDED, "a number >= 0"),
        (POSITIVE, "a number from 1e-12 to 1,000,000,000,000"),
        (FRACTION, "a number from 0 to 1"),
        (Range(low=0.5, high=2.5, whole=False), "a number from 0.5 to 2.5"),
    ],
)
def test_a_range_says_what_it_allows(allowed, text):
    assert str(allowed) == text
    with pytest.raises(ValueError) as caught:
        require(-1, allowed, "calls")
    assert str(caught.value) == f"calls must be {text}, got -1"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-1, "-1"),
        (2.5, "2.5"),
        (10**15 + 1, "1,000,000,000,000,001"),
        (10**24, "a number of more than 24 digits"),
        (-(10**400), "a number of more than 24 digits"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (float("-inf"), "-inf"),
        (None, "nothing"),
        (True, "True"),
        ("7", "'7'"),
        (Fraction(1, 3), "Fraction(1, 3)"),
        ("x" * 1000, "'" + "x" * 56 + "..."),
    ],
)
def test_the_message_shows_what_was_given_and_stays_short(value, text):
    with pytest.raises(ValueError) as caught:
        require(value, COUNT, "calls")
    assert str(caught.value) == f"calls must be {COUNT}, got {text}"


@pytest.mark.parametrize(
    "value",
    [7, 7.0, np.int8(7), np.uint64(7), np.float32(7), np.float64(7), np.array(7), np.array(7.0), np.array(7, object)],
    ids=lambda value: f"{type(value).__name__}-{getattr(value, 'dtype', '')}",
)
def test_a_whole_scalar_of_any_type_becomes_a_python_int(value):
    for allowed in (COUNT, POSITIVE_COUNT):
        assert require(value, allowed, "calls") == 7
        assert type(require(value, allowed, "calls")) is int


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), np.float64(0.5), np.array(0.5)])
def test_a_real_scalar_becomes_a_python_float(value):
    assert require(value, FRACTION, "share") == 0.5
    assert type(require(value, FRACTION, "share")) is float
    with pytest.raises(ValueError, match="calls must be a whole number .* got 0.5"):
        require(value, COUNT, "calls")


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, np.True_, np.array(True), "7", "", b"7", np.str_("7"), 1j, Decimal(7), Fraction(7), {7},
        {7: 7}, object, iter([7]), np.datetime64("2026-11-30"), float("nan"), float("inf"), -float("inf"),
        np.float32("nan"), np.array(float("nan")), -1, -0.5, np.int8(-1), 10**15 + 1, 10**400, 1e16,
        np.array(10**30, dtype=object),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_is_not_a_count_is_refused_with_its_name(value):
    with pytest.raises(ValueError, match="^calls must be a whole number from 0 to "):
        require(value, COUNT, "calls")


@pytest.mark.parametrize("allowed", [COUNT, NON_NEGATIVE, FRACTION, POSITIVE_COUNT, POSITIVE])
def test_both_ends_of_a_range_are_in_it_and_nothing_beyond_is(allowed):
    assert require(allowed.low, allowed, "x") == allowed.low
    with pytest.raises(ValueError, match="^x must be "):
        require(math.nextafter(allowed.low, -math.inf), allowed, "x")
    if math.isinf(allowed.high):
        assert require(1.7e308, allowed, "x") == 1.7e308
    else:
        assert require(allowed.high, allowed, "x") == allowed.high
        with pytest.raises(ValueError, match="^x must be "):
            require(math.nextafter(allowed.high, math.inf), allowed, "x")


@pytest.mark.parametrize(
    "value",
    [10**400, [10**400], [1, 10**400], np.array(10**400, dtype=object)],
    ids=["scalar", "list", "mixed", "0-d"],
)
def test_a_whole_number_that_no_float_holds_is_refused_where_a_real_one_is_asked_for(value):
    with pytest.raises(ValueError, match="^price must be a number >= 0, got a number of more than 24 digits$"):
        require(value, UNBOUNDED, "price")


@pytest.mark.parametrize(
    "values",
    [
        [1, 2, 3], (1, 2, 3), range(1, 4), [1.0, 2.0, 3.0], np.array([1, 2, 3], dtype=np.uint8),
        np.array([1, 2, 3], dtype=np.uint64), np.array([1, 2, 3], dtype=np.float16), np.array([1, 2, 3], dtype=object),
        np.array([1, 2.0, 3], dtype=object),
    ],
    ids=lambda values: f"{type(values).__name__}-{getattr(values, 'dtype', type(values[0]).__name__)}",
)  # fmt: skip
def test_an_array_of_counts_becomes_int64(values):
    found = require(values, COUNT, "calls")
    assert found.dtype == np.int64
    assert found.tolist() == [1, 2, 3]


def test_an_array_of_reals_becomes_float64_and_whole_ones_stay_whole():
    assert require([0.25, 1], FRACTION, "share").dtype == np.float64
    assert require(np.array([0.5], dtype=np.float32), FRACTION, "share").dtype == np.float64
    assert require([0, 1], FRACTION, "share").dtype == np.int64
    assert require([[1], [2]], COUNT, "calls").shape == (2, 1)


@pytest.mark.parametrize("values", [[], (), range(0), np.array([], dtype=np.int32), np.empty((0, 3)), [[]]])
def test_an_empty_array_is_allowed_in_any_range(values):
    assert require(values, COUNT, "calls").dtype == np.int64
    assert require(values, FRACTION, "share").size == 0
    assert require(values, COUNT, "calls").shape == np.shape(values)


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([1, -1, -2], "got -1"),
        ([1, 2.5], "got 2.5"),
        ([1, float("nan")], "got nan"),
        ([float("inf"), 1], "got inf"),
        ([1, 10**15 + 1], "got 1,000,000,000,000,001"),
        ([1, 10**30], "got a number of more than 24 digits"),
        ([[1, 2], [3, -4]], "got -4"),
        (np.array([1, 2**63], dtype=np.uint64), "got 9,223,372,036,854,775,808"),
        ([1, None], "got nothing"),
        ([Fraction(1, 2)], r"got Fraction\(1, 2\)"),
        ([Decimal(1)], r"got Decimal\('1'\)"),
        (np.array([1, True], dtype=object), "got True"),
        (np.array(["7"], dtype=object), "got '7'"),
        ([True, False], "got an array of bool"),
        (["1", "2"], "got an array of <U1"),
        ([1j], "got an array of complex128"),
        (np.array(["2026-11-30"], dtype="datetime64[D]"), "got an array of datetime64"),
        ([[1], [1, 2]], "got rows of different lengths"),
        ([1, [2]], "got rows of different lengths"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_bad_entry_of_an_array_is_named(values, shown):
    with pytest.raises(ValueError, match=f"^calls must be a whole number from 0 .*{shown}"):
        require(values, COUNT, "calls")


@pytest.mark.parametrize(
    "values",
    [
        [10**20], [1, 10**33], np.array([1e20]), np.array([1e20], dtype=np.float32), np.array([2**63], dtype=np.uint64),
        np.array([2**64 - 1], dtype=np.uint64), np.array([2.0**63]), np.array([10**20], dtype=object),
    ],
    ids=lambda values: f"{np.asarray(values).dtype}-{float(np.max(values)):.4g}",
)  # fmt: skip
@pytest.mark.parametrize("allowed", [WIDE, UNBOUNDED], ids=["whole", "real"])
def test_an_allowed_value_beyond_int64_is_not_wrapped(values, allowed):
    found = require(values, allowed, "pairs")
    assert found.tolist() == pytest.approx([float(value) for value in values], rel=1e-12)


@given(st.lists(st.integers(0, 10**33), min_size=1, max_size=5))
def test_an_array_holds_the_values_that_were_given(values):
    found = require(values, WIDE, "pairs")
    assert found.tolist() == pytest.approx(values, rel=1e-15)
    if max(values) < 2**53:
        assert found.tolist() == values


def test_several_values_are_checked_in_the_order_given():
    assert require_all(COUNT, calls=1.0, prefix=np.int8(2)) == (1, 2)
    with pytest.raises(ValueError, match="^prefix must be"):
        require_all(COUNT, calls=1, prefix=-2, growth=-3)


@given(st.integers(-(10**30), 10**30), st.integers(-(10**30), 10**30))
def test_the_larger_of_two_scalars_is_exact(first, second):
    assert larger(first, second) == max(first, second)


@given(st.integers(), st.integers())
def test_the_smaller_of_two_scalars_is_exact(first, second):
    assert smaller(first, second) == min(first, second)


def test_the_smaller_of_arrays_is_taken_entry_by_entry():
    assert smaller(np.array([1, 5]), 3).tolist() == [1, 3]
    assert smaller(3, np.array([[1], [5]])).tolist() == [[1], [3]]


def test_the_larger_of_arrays_is_taken_entry_by_entry():
    assert larger(np.array([1, 5]), 3).tolist() == [3, 5]
    assert larger(3, np.array([[1], [5]])).tolist() == [[3], [5]]


@formula("a b", first=COUNT, second=COUNT)
def _product(first, second):
    return first * second


@formula("a b + c(c-1)/2", first=COUNT, second=COUNT, third=COUNT)
def _polynomial(first, second, third):
    return first * second + third * (third - 1) // 2


@formula("a / b", first=COUNT, second=POSITIVE_COUNT, quotient=True)
def _ratio(first, second):
    return first / second


@formula("a p", count=COUNT, price=NON_NEGATIVE)
def _priced(count, price, label="none"):
    return count * price


def exact_product(first, second):
    return first * second


def exact_polynomial(first, second, third):
    return first * second + third * (third - 1) // 2


def assert_as_exact(found, exact):
    """int64 and equal where int64 is safe; else float64, never negative, to 12 digits."""
    assert isinstance(found, np.ndarray)
    if max(exact, default=0) < 2**59:
        assert found.dtype == np.int64
    if found.dtype == np.int64:
        assert found.tolist() == exact
    else:
        assert found.dtype == np.float64
        assert (found >= 0).all()
        assert found.tolist() == pytest.approx(exact, rel=1e-12, abs=0)


@given(counts, counts, counts)
def test_scalars_give_exact_python_ints(first, second, third):
    found = _polynomial(first, second, third)
    assert type(found) is int
    assert found == exact_polynomial(first, second, third)
    assert type(_product(np.int64(first), float(second))) is int
    assert _product(np.int64(first), float(second)) == first * second


sized_counts = st.integers(0, 50).flatmap(lambda bits: st.integers(0, min(2**bits, MAX_COUNT)))


@given(st.lists(st.tuples(sized_counts, sized_counts, sized_counts), min_size=1, max_size=6))
@settings(max_examples=300)
def test_arrays_give_the_integers_of_their_entries(rows):
    columns = [list(column) for column in zip(*rows)]
    assert_as_exact(_polynomial(*columns), [exact_polynomial(*row) for row in rows])
    assert_as_exact(_product(*columns[:2]), [exact_product(*row[:2]) for row in rows])


@given(st.lists(sized_counts, min_size=1, max_size=6), sized_counts, sized_counts)
@settings(max_examples=300)
def test_scalars_mix_with_arrays(firsts, second, third):
    assert_as_exact(_polynomial(firsts, second, third), [exact_polynomial(first, second, third) for first in firsts])
    assert_as_exact(_polynomial(second, third, np.array(firsts)), [exact_polynomial(second, third, f) for f in firsts])


@given(st.lists(sized_counts, min_size=1, max_size=4), st.lists(sized_counts, min_size=1, max_size=4))
def test_a_column_and_a_row_give_a_table(column, row):
    table = _product(np.array(column).reshape(-1, 1), row)
    assert table.shape == (len(column), len(row))
    assert_as_exact(table.reshape(-1), [first * second for first in column for second in row])


@pytest.mark.parametrize("power", [30, 31, 50, 53, 59, 60, 62, 63, 64])
@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_no_result_wraps_around_at_a_power_of_two(power, shift):
    first = 2 ** (power // 2)
    second = 2 ** (power - power // 2) + shift
    assert_as_exact(_product([first, 0], [second, 1]), [first * second, 0])


def test_the_largest_counts_give_floats_and_not_negative_numbers():
    found = _product([MAX_COUNT], [MAX_COUNT])
    assert found.dtype == np.float64
    assert found.tolist() == [1e30]


@pytest.mark.parametrize(
    "empty", [[], np.empty((0, 3)), np.array([], dtype=np.float64)], ids=["list", "table", "floats"]
)
def test_an_empty_array_gives_an_empty_array(empty):
    found = _product(empty, 3)
    assert found.shape == np.shape(empty)
    assert found.dtype == np.int64
    assert _ratio(empty, 3).dtype == np.float64


@given(st.lists(st.tuples(sized_counts, st.integers(1, MAX_COUNT)), min_size=1, max_size=5))
def test_a_quotient_is_always_a_float(rows):
    firsts, seconds = zip(*rows)
    found = _ratio(list(firsts), list(seconds))
    assert found.dtype == np.float64
    assert found.tolist() == pytest.approx([float(Fraction(a, b)) for a, b in rows], rel=1e-15, abs=0)
    assert type(_ratio(firsts[0], seconds[0])) is float
    assert _ratio([4], 2).tolist() == [2.0]
    assert _ratio([4], 2).dtype == np.float64


def test_a_real_argument_makes_a_float_and_a_whole_one_in_its_place_does_not():
    assert _priced([2, 3], 0.5).tolist() == [1.0, 1.5]
    assert _priced([2, 3], [0.5, 2.0]).dtype == np.float64
    assert _priced([2, 3], 2).dtype == np.int64
    assert type(_priced(3, 2)) is int
    assert type(_priced(3, 2.0)) is float


def test_arguments_are_checked_by_name_however_they_are_given():
    for call in (
        lambda: _product(-1, 2),
        lambda: _product(first=-1, second=2),
        lambda: _product(second=2, first=-1),
        lambda: _product([-1], 2),
    ):
        with pytest.raises(ValueError, match="^first must be a whole number .* got -1$"):
            call()
    with pytest.raises(TypeError, match="missing a required argument"):
        _product(1)
    with pytest.raises(
        ValueError, match=r"^arrays must have shapes that fit together, got first \(2,\), second \(3,\)$"
    ):
        _product([1, 2], [1, 2, 3])
    assert _priced(1, 2, label="untouched") == 2


def test_a_formula_keeps_its_equation_its_ranges_and_its_name():
    assert _ratio.equation == "a / b"
    assert _ratio.ranges == {"first": COUNT, "second": POSITIVE_COUNT}
    assert _ratio.__name__ == "_ratio"
    with pytest.raises(TypeError, match="_of_one has no arguments"):

        @formula("a", first=COUNT)
        def _of_one(other):
            return other


def whole_formulas():
    for found in pkgutil.walk_packages(calc.__path__, "calc."):
        if found.name.startswith("calc.cli") or found.name.endswith("__main__"):
            continue
        module = importlib.import_module(found.name)
        for name, function in vars(module).items():
            ranges = getattr(function, "ranges", {})
            if ranges and function.__module__ == module.__name__ and all(r.whole for r in ranges.values()):
                yield pytest.param(function, id=f"{module.__name__}.{name}")


def scaled_arguments(ranges, weights, zeros, scale):
    """Counts that all grow with `scale`, each at its own pace."""
    return {
        name: 0 if zero and allowed.low == 0 else int(min(max(allowed.low, 10 ** (15 * weight * scale)), allowed.high))
        for (name, allowed), weight, zero in zip(ranges.items(), weights, zeros)
    }


@pytest.mark.parametrize("function", list(whole_formulas()))
@given(st.lists(st.floats(0, 1), min_size=8, max_size=8), st.lists(st.integers(0, 9), min_size=8, max_size=8))
@settings(max_examples=60, deadline=None)
def test_a_formula_of_counts_is_exact_in_arrays_on_both_sides_of_every_limit(function, weights, dice):
    plain, zeros = function.__wrapped__, [die == 0 for die in dice]
    for limit in (2**50, 2**53, 2**60, 2**63):
        below, above = 0.0, 1.0
        for _ in range(45):  # the largest arguments whose result is below the limit, and the smallest above
            middle = (below + above) / 2
            small = plain(**scaled_arguments(function.ranges, weights, zeros, middle)) < limit
            below, above = (middle, above) if small else (below, middle)
        for scale in (below, above):
            arguments = scaled_arguments(function.ranges, weights, zeros, scale)
            assert_as_exact(function(**{name: [value] for name, value in arguments.items()}), [plain(**arguments)])


@pytest.mark.parametrize("calls", [10**5, 10**6, 1_700_000, 1_817_000, 1_904_000, 10**7])
def test_causal_pairs_of_a_run_do_not_wrap_around(calls):
    # Prompts of 0, 1, ..., T - 1 tokens: the sum of p (p + 1) / 2 is a binomial coefficient.
    assert_as_exact(run_pairs_without_reuse([calls], 0, 1), [math.comb(calls + 1, 3)])


def test_one_formula_takes_what_another_gives_beyond_int64():
    tokens = 10**10
    exact = 2 * 32 * 32 * 256 * (tokens * (tokens + 1) // 2)
    assert attention_flops(causal_pairs(0, tokens), 32, 32, 128, 128) == exact
    assert_as_exact(attention_flops(causal_pairs(0, [tokens]), 32, 32, 128, 128), [exact])
