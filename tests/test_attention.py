"""Attention pairs and FLOP against loops over tokens, and what follows from them: intensity and growth."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode
from transformers.masking_utils import chunked_overlay, sliding_window_overlay

from calc.attention import (
    attention_flops,
    causal_pairs,
    chunk_pairs,
    decode_attention_intensity,
    indexer_flops,
    latent_attention_flops,
    run_pairs_without_reuse,
    run_window_pairs_without_reuse,
    square_pairs,
    window_pairs,
)
from calc.kv_cache import kv_cache_bytes
from calc.tokens import last_call_tokens

few = st.integers(0, 30)
counts = st.integers(0, 10**15)
half_counts = st.integers(0, 10**15 // 2)
heads = st.integers(1, 128)
ROUNDING = 2.0**-49
"""Sixteen roundings of float64: more than any formula here has steps."""


def attended(cached, new):
    """Every pair of a new token and a token at or before it."""
    return [(token, key) for token in range(cached, cached + new) for key in range(cached + new) if key <= token]


def prompt_sizes(calls, prefix, growth):
    size = prefix
    for _ in range(calls):
        yield size
        size += growth


@given(few, few)
@settings(deadline=None)
def test_causal_pairs_are_those_a_loop_counts(cached, new):
    assert causal_pairs(cached, new) == len(attended(cached, new))


@given(few)
@settings(deadline=None)
def test_square_pairs_are_all_pairs(tokens):
    assert square_pairs(tokens) == len([(i, j) for i in range(tokens) for j in range(tokens)])


@given(few)
@settings(deadline=None)
def test_causality_leaves_the_lower_triangle_of_the_square(tokens):
    assert causal_pairs(0, tokens) == np.tril(np.ones((tokens, tokens), dtype=int)).sum()
    assert 2 * causal_pairs(0, tokens) - tokens == square_pairs(tokens)


@given(st.integers(0, 5), st.integers(0, 8), st.integers(0, 6))
@settings(deadline=None)
def test_a_run_without_reuse_attends_over_every_prompt_anew(calls, prefix, growth):
    expected = sum(len(attended(0, size)) for size in prompt_sizes(calls, prefix, growth))
    assert run_pairs_without_reuse(calls, prefix, growth) == expected


@given(st.integers(0, 200), counts, counts)
@settings(deadline=None)
def test_a_run_of_large_prompts_is_the_sum_over_its_calls(calls, prefix, growth):
    expected = sum(size * (size + 1) // 2 for size in prompt_sizes(calls, prefix, growth))
    assert run_pairs_without_reuse(calls, prefix, growth) == expected


def extrapolated_run_pairs(calls, prefix, growth):
    """The cubic through the first four runs, by Newton's forward differences: exact at any number of calls."""
    values = [sum(size * (size + 1) // 2 for size in prompt_sizes(t, prefix, growth)) for t in range(4)]
    return sum(int(np.diff(np.array(values, dtype=object), k)[0]) * math.comb(calls, k) for k in range(4))


@given(counts, counts, counts)
@settings(deadline=None)
def test_a_run_of_any_length_is_exact(calls, prefix, growth):
    result = run_pairs_without_reuse(calls, prefix, growth)
    assert type(result) is int
    assert result == extrapolated_run_pairs(calls, prefix, growth)


@given(half_counts, st.integers(0, 100))
@settings(deadline=None)
def test_decoding_one_after_the_other_is_one_call_for_all(cached, new):
    assert sum(causal_pairs(cached + step, 1) for step in range(new)) == causal_pairs(cached, new)


@given(half_counts, half_counts)
@settings(deadline=None)
def test_a_prefill_and_its_extension_are_the_prefill_of_all(first, more):
    assert causal_pairs(0, first) + causal_pairs(first, more) == causal_pairs(0, first + more)


@given(st.integers(0, 6), st.integers(0, 6), *[st.integers(0, 3)] * 2, st.integers(0, 5), st.integers(0, 5))
@settings(deadline=None)
def test_flops_are_two_for_each_multiply_add_of_a_loop(cached, new, layers, query_heads, key_width, value_width):
    multiply_adds = 0
    for _ in range(layers):
        for _ in range(query_heads):
            for _ in attended(cached, new):
                multiply_adds += len([None for _ in range(key_width)])  # the score
                multiply_adds += len([None for _ in range(value_width)])  # the weighted value
    assert attention_flops(causal_pairs(cached, new), layers, query_heads, key_width, value_width) == 2 * multiply_adds


@given(half_counts, st.integers(1, 200), heads, heads, st.integers(1, 512), st.sampled_from([1, 2, 4]))
@settings(deadline=None)
def test_intensity_is_flop_over_bytes_whatever_the_context(cached, layers, shared_by, kv_heads, width, size):
    flops = attention_flops(causal_pairs(cached, 1), layers, shared_by * kv_heads, width, width)
    read = kv_cache_bytes(layers, cached + 1, kv_heads, width, size)
    assert decode_attention_intensity(shared_by * kv_heads, kv_heads, size) == float(Fraction(flops, read))


def test_sharing_kv_heads_raises_intensity_and_not_flop():
    # Two FLOP per number of 2 bytes are 1 FLOP per byte for each query head that uses it.
    assert decode_attention_intensity(64, np.array([64, 8, 1]), 2).tolist() == [1, 8, 64]


def test_without_reuse_attention_grows_as_the_cube_of_the_calls_and_with_reuse_as_the_square():
    def doubled(pairs, calls):
        return Fraction(pairs(2 * calls), pairs(calls))

    def without_reuse(calls):
        return run_pairs_without_reuse(calls, 2000, 300)

    def with_reuse(calls):
        return causal_pairs(0, last_call_tokens(calls, 2000, 300))

    for pairs, limit in ((without_reuse, 8), (with_reuse, 4)):
        gaps = [limit - doubled(pairs, 10**power) for power in range(2, 9)]
        # The next term is one order lower, so that each tenfold run is about ten times nearer to the limit.
        assert all(0 < later < earlier / 5 for earlier, later in pairwise(gaps))
        assert gaps[-1] < Fraction(1, 10**6)


def assert_each_as_alone(together, alone):
    """Exact where the result is whole; as near as float64 rounds where int64 could overflow."""
    if together.dtype == np.int64:
        assert together.tolist() == alone
    else:
        assert max(alone) >= 2**59  # what fits well below int64 has to be exact
        for ours, exact in zip(together.tolist(), alone):
            assert abs(int(ours) - exact) <= exact * ROUNDING


@given(st.lists(counts, min_size=1, max_size=4))
@settings(deadline=None)
def test_an_array_of_squares_is_each_square(tokens):
    assert_each_as_alone(square_pairs(np.array(tokens)), [square_pairs(n) for n in tokens])


@given(st.lists(st.tuples(counts, counts), min_size=1, max_size=4))
@settings(deadline=None)
def test_an_array_of_causal_pairs_is_each(rows):
    assert_each_as_alone(causal_pairs(*map(np.array, zip(*rows))), [causal_pairs(*row) for row in rows])


any_size = st.integers(0, 15).flatmap(lambda power: st.integers(0, 10**power))


@given(st.lists(st.tuples(any_size, any_size, any_size), min_size=1, max_size=4))
@example([(1_700_000, 0, 1)])
@example([(1_800_000, 0, 1), (10, 10, 10)])
@settings(deadline=None)
def test_an_array_of_runs_is_each_run(rows):
    together = run_pairs_without_reuse(*map(np.array, zip(*rows)))
    assert_each_as_alone(together, [run_pairs_without_reuse(*row) for row in rows])


@given(st.lists(st.tuples(counts, few, heads, heads, heads), min_size=1, max_size=4))
@settings(deadline=None)
def test_an_array_of_flops_is_each(rows):
    assert_each_as_alone(attention_flops(*map(np.array, zip(*rows))), [attention_flops(*row) for row in rows])


@pytest.mark.parametrize("tokens", [10**9, 10**10, 10**12, 10**15])
def test_flops_of_an_array_of_pairs_never_wrap_around(tokens):
    exact = 2 * 32 * 32 * (128 + 128) * tokens * tokens
    assert attention_flops(square_pairs(tokens), 32, 32, 128, 128) == exact
    (result,) = attention_flops(square_pairs(np.array([tokens])), 32, 32, 128, 128)
    assert abs(int(result) - exact) <= exact * ROUNDING


@pytest.mark.parametrize("bad", [-1, 2.5, float("nan"), float("inf"), "7", None, True, 10**15 + 1])
def test_a_count_that_is_none_is_named(bad):
    for name, call in {
        "tokens": lambda: square_pairs(bad),
        "cached": lambda: causal_pairs(bad, 1),
        "new": lambda: causal_pairs(1, bad),
        "calls": lambda: run_pairs_without_reuse(bad, 1, 1),
        "layers": lambda: attention_flops(1, bad, 1, 1, 1),
    }.items():
        with pytest.raises(ValueError, match=f"^{name} must be a whole number from 0 to 1,000,000,000,000,000, got"):
            call()


def test_intensity_of_no_heads_is_refused():
    with pytest.raises(ValueError, match="^kv_heads must be a whole number from 1"):
        decode_attention_intensity(8, 0, 2)


def mask_of_window(cached, new, window):
    return [(token, key) for token, key in attended(cached, new) if token - key < window]


def mask_of_chunks(cached, new, chunk):
    return [(token, key) for token, key in attended(cached, new) if token // chunk == key // chunk]


@given(few, few, st.integers(1, 70))
@settings(deadline=None)
def test_window_pairs_are_those_a_loop_counts(cached, new, window):
    assert window_pairs(cached, new, window) == len(mask_of_window(cached, new, window))


@given(few, few, st.integers(1, 70))
@settings(deadline=None)
def test_chunk_pairs_are_those_a_loop_counts(cached, new, chunk):
    assert chunk_pairs(cached, new, chunk) == len(mask_of_chunks(cached, new, chunk))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 30])
def test_pairs_are_those_that_transformers_masks_leave(size):
    no_padding = torch.zeros(1, dtype=int)
    for pairs, overlay in (
        (window_pairs, sliding_window_overlay(size)),
        (chunk_pairs, chunked_overlay(size, no_padding)),
    ):
        for cached, new in ((0, 1), (0, 20), (7, 1), (7, 13), (40, 3)):
            query = torch.arange(cached, cached + new)[:, None]
            key = torch.arange(cached + new)[None, :]
            kept = (key <= query) & overlay(0, 0, query, key)
            assert pairs(cached, new, size) == int(kept.sum())


@given(half_counts, half_counts)
@settings(deadline=None)
def test_a_window_as_long_as_the_context_is_full_attention(cached, new):
    for pairs in (window_pairs, chunk_pairs):
        assert pairs(cached, new, max(1, cached + new)) == causal_pairs(cached, new)


@given(half_counts, st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 10**15))
@settings(deadline=None)
def test_new_tokens_may_come_in_parts_under_any_mask(cached, first, more, size):
    for pairs in (window_pairs, chunk_pairs):
        parts = pairs(cached, first, size) + pairs(cached + first, more, size)
        assert pairs(cached, first + more, size) == parts


@given(counts, counts, st.integers(1, 10**15))
@settings(deadline=None)
def test_a_chunk_never_sees_more_than_a_window_of_its_length_nor_that_more_than_all(cached, new, size):
    assert chunk_pairs(cached, new, size) <= window_pairs(cached, new, size) <= causal_pairs(cached, new)


any_pair_row = st.tuples(counts, counts, st.integers(1, 10**15))


@given(st.lists(any_pair_row | st.tuples(few, few, st.integers(1, 40)), min_size=1, max_size=4))
@example([(10**15, 1, 10**15)])
@example([(10**15, 10**7, 10**6), (0, 0, 1)])
@settings(deadline=None)
def test_an_array_of_masked_pairs_is_each(rows):
    for pairs in (window_pairs, chunk_pairs):
        assert_each_as_alone(pairs(*map(np.array, zip(*rows))), [pairs(*row) for row in rows])


@given(st.integers(0, 6), st.integers(0, 9), st.integers(0, 6), st.integers(1, 40))
@settings(deadline=None)
def test_a_run_within_a_window_is_the_sum_over_its_calls(calls, prefix, growth, window):
    expected = sum(len(mask_of_window(0, size, window)) for size in prompt_sizes(calls, prefix, growth))
    assert run_window_pairs_without_reuse(calls, prefix, growth, window) == expected


@given(st.integers(0, 100), counts, st.integers(0, 10**14), st.integers(1, 10**15))
@settings(deadline=None)
def test_a_run_of_large_prompts_within_a_window_is_the_sum_over_its_calls(calls, prefix, growth, window):
    sizes = list(prompt_sizes(calls, prefix, growth))
    expected = sum(
        size * (size + 1) // 2 - (beyond * (beyond + 1) // 2) for size in sizes for beyond in [max(0, size - window)]
    )
    assert run_window_pairs_without_reuse(calls, prefix, growth, window) == expected


@given(st.lists(st.tuples(any_size, any_size, any_size, st.integers(1, 10**15)), min_size=1, max_size=4))
@example([(10**6, 2000, 300, 4096)])
@example([(3, 0, 0, 1), (3, 2, 0, 1), (3, 2, 0, 2)])
@settings(deadline=None)
def test_an_array_of_runs_within_a_window_is_each_run(rows):
    together = run_window_pairs_without_reuse(*map(np.array, zip(*rows)))
    assert_each_as_alone(together, [run_window_pairs_without_reuse(*row) for row in rows])


def test_a_run_within_a_window_that_holds_every_prompt_is_a_run_without_one():
    for calls, prefix, growth in ((100, 2000, 300), (1, 5, 0), (0, 5, 5), (7, 0, 3)):
        assert run_window_pairs_without_reuse(calls, prefix, growth, 10**9) == run_pairs_without_reuse(
            calls, prefix, growth
        )


def test_absorbed_attention_is_attention_over_the_plane():
    # One head's key is the plane itself, its value the plane without the rotated part.
    assert latent_attention_flops(7, 3, 128, 512, 64) == attention_flops(7, 3, 128, 576, 512)
    query, plane = torch.zeros(4, 1, 576), torch.zeros(4, 9, 576)
    with FlopCounterMode(display=False) as counter:
        scores = query @ plane.transpose(1, 2)
        scores @ plane[:, :, :512]
    assert latent_attention_flops(9, 1, 4, 512, 64) == counter.get_total_flops()


def test_an_indexer_scores_with_every_head_and_weights_the_scores():
    query, keys, weights = torch.zeros(5, 8, 6), torch.zeros(5, 6, 9), torch.zeros(5, 1, 8)
    with FlopCounterMode(display=False) as counter:
        weights @ (query @ keys)
    assert indexer_flops(5 * 9, 1, 8, 6) == counter.get_total_flops()


@pytest.mark.parametrize("pairs", [window_pairs, chunk_pairs])
def test_a_window_or_chunk_of_nothing_is_refused(pairs):
    with pytest.raises(ValueError, match="^(window|chunk) must be a whole number from 1"):
        pairs(1, 1, 0)
