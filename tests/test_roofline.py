"""Ridge and break-even against published ridges, loops over batches, and identities."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.accelerators import accelerator
from calc.roofline import break_even_sequences, break_even_tokens, ridge_intensity

sizes = st.integers(1, 10**12)


@pytest.mark.parametrize(
    ("name", "number_format", "published"),
    [("a100-sxm-80", "bf16", 153), ("a100-sxm-40", "bf16", 201), ("h100-sxm", "bf16", 295), ("h100-sxm", "fp8", 591)],
)
def test_ridges_of_data_sheets(name, number_format, published):
    # 312 / 2.039, 312 / 1.555, 989 / 3.35 and 1,979 / 3.35, as roofline literature rounds them.
    part = accelerator(name)
    assert round(ridge_intensity(part.flops_per_second(number_format), part.bytes_per_second)) == published


def test_a_ridge_takes_peaks_of_any_size():
    assert ridge_intensity(10**18, np.array([10**12, 10**13])).tolist() == [10**6, 10**5]


@given(sizes, sizes, st.integers(1, 10**6))
@settings(deadline=None)
def test_at_the_break_even_batch_cache_and_weights_are_equal(weights, sequence, batch):
    batches = break_even_sequences(weights, sequence)
    assert batches == float(Fraction(weights, sequence))
    assert (batch * sequence > weights) == (batch > Fraction(weights, sequence))


@given(st.integers(0, 500), st.integers(1, 20), st.integers(0, 60), st.integers(1, 12))
@settings(deadline=None)
def test_the_break_even_is_where_a_loop_finds_it(weights, slope, fixed, sequences):
    tokens = 0
    while sequences * fixed + slope * tokens < weights:
        tokens += 1
    at = break_even_tokens(weights, slope, fixed, sequences)
    assert tokens - 1 < at <= tokens


@given(sizes, st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 10**5))
@settings(deadline=None)
def test_without_a_floor_both_break_evens_agree_and_the_split_does_not_matter(weights, slope, context, sequences):
    tokens = break_even_tokens(weights, slope)
    assert break_even_tokens(weights, slope, 0, sequences) == tokens
    assert break_even_sequences(weights, slope * context) * context == pytest.approx(tokens, rel=1e-12)


def test_a_floor_counts_once_for_each_sequence():
    # 100 bytes of weights; states of 10 bytes leave 90, 50 and nothing for tokens of 2 bytes.
    assert break_even_tokens(100, 2, 10, np.array([1, 5, 10, 20])).tolist() == [45, 25, 0, 0]


def test_llama_3_1_8b_reads_as_much_cache_as_weights_at_114_516_tokens():
    # 8,030,261,248 parameters less the embedding's 128,256 x 4,096, two bytes each, over 131,072 bytes a token.
    weights = 2 * (8_030_261_248 - 128_256 * 4096)
    assert int(break_even_tokens(weights, 131_072)) == 114_516


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: ridge_intensity(0, 1), "flops_per_second"),
        (lambda: ridge_intensity(1, 0), "bytes_per_second"),
        (lambda: break_even_sequences(-1, 1), "weights_bytes"),
        (lambda: break_even_sequences(1, 0), "sequence_bytes"),
        (lambda: break_even_tokens(1, 0), "slope_bytes_per_token"),
        (lambda: break_even_tokens(1, 1, -1), "fixed_bytes"),
        (lambda: break_even_tokens(1, 1, 0, 0), "sequences"),
    ],
)
def test_a_number_out_of_range_is_named(call, name):
    with pytest.raises(ValueError, match=f"^{name} must be a"):
        call()
