"""Numbers as people read them: published sizes, units, and the size that the text stands for."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.formats import bytes_text, count_text, flops_text, usd_text

BYTES = {"byte": 1, "bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}
FLOP = {"FLOP": 1, "MFLOP": 10**6, "GFLOP": 10**9, "TFLOP": 10**12, "PFLOP": 10**15, "EFLOP": 10**18}


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (16_777_216_000, "15.625 GiB"),  # Llama 3.1 8B at 128,000 tokens
        (67_108_864_000, "62.5 GiB"),  # the same with 32 KV heads
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1,023 bytes"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (2**20, "1 MiB"),
        (2**30, "1 GiB"),
        (2**40, "1 TiB"),
        (5000 * 2**50, "5,000 PiB"),
    ],
)
def test_bytes_are_shown_in_binary_units(count, text):
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 FLOP"),
        (999, "999 FLOP"),
        (5_000_000, "5 MFLOP"),
        (10**9, "1 GFLOP"),
        (1.4e15, "1.4 PFLOP"),
        (15_009_849_344, "15.01 GFLOP"),
        (10**22, "10,000 EFLOP"),
    ],
)
def test_flop_are_shown_in_decimal_units(count, text):
    assert flops_text(count) == text


@pytest.mark.parametrize(
    ("dollars", "text"),
    [
        (0, "$0.00"),
        (8.43, "$8.43"),
        (4.0625, "$4.06"),
        (1234.5, "$1,234.50"),
        (1, "$1.00"),
        (0.5, "$0.50"),
        (0.073, "$0.073"),
        (0.0365, "$0.0365"),
        (0.0036, "$0.0036"),
        (0.99999, "$1.00"),
        (0.0000005, "$5.00e-07"),
    ],
)
def test_dollars_are_shown_to_the_cent_or_finer(dollars, text):
    assert usd_text(dollars) == text


def test_counts_have_separators_and_a_unit():
    assert count_text(1_685_000, "tokens") == "1,685,000 tokens"
    assert count_text(1_685_000) == "1,685,000"
    assert count_text(0, "calls") == "0 calls"
    assert count_text(10**15) == "1,000,000,000,000,000"


def shown_value(text, units):
    number, unit = text.rsplit(" ", 1)
    return float(number.replace(",", "")) * units[unit]


@given(st.integers(0, 2**70))
def test_the_bytes_shown_are_within_the_digits_shown(count):
    assert shown_value(bytes_text(count), BYTES) == pytest.approx(count, rel=6e-4)


@given(st.integers(0, 10**24))
def test_the_flop_shown_are_within_the_digits_shown(count):
    assert shown_value(flops_text(count), FLOP) == pytest.approx(count, rel=6e-4)


@given(st.integers(2**10, 2**50))
def test_bytes_are_in_the_largest_unit_that_leaves_at_least_one(count):
    unit = bytes_text(count).rsplit(" ", 1)[1]
    assert BYTES[unit] <= count < 1024 * BYTES[unit]


@pytest.mark.parametrize(
    ("dollars", "text"),
    [
        (9_999_999, "$9,999,999.00"),
        (12_345_678, "$12.35 million"),
        (4.0022e12, "$4,002 billion"),
        (4.0022e13, "$40.02 trillion"),
        (-5, "-$5.00"),
    ],
)
def test_large_sums_are_shown_in_words(dollars, text):
    assert usd_text(dollars) == text


@given(st.floats(1e-12, 9e6))
def test_the_dollars_shown_are_right_to_half_a_cent_or_half_a_percent(dollars):
    shown = float(usd_text(dollars).removeprefix("$").replace(",", ""))
    assert shown == pytest.approx(dollars, rel=0.0051, abs=0)
    assert re.match(r"\$\d", usd_text(dollars))
    if dollars >= 1:
        assert re.fullmatch(r"\$[\d,]+\.\d\d", usd_text(dollars))


@given(st.integers(0, 10**15))
def test_a_count_shown_reads_back_as_itself(count):
    assert int(count_text(count).replace(",", "")) == count
