"""Sliding-window attention against torch under a band mask, transformers' mask, and the formulas in calc."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.masking_utils import sliding_window_overlay

from calc.attention import attention_flops, square_pairs, window_pairs
from kernels.sliding_window import window_attention, window_attention_blocks
from kernels.softmax import causal_attention
from tests.heads import ROUNDING, SHAPES, LargestMade, assert_equal, counted, dimensions, random_heads, torch_attention

BOTH = [window_attention, window_attention_blocks]
both = pytest.mark.parametrize("kernel", BOTH, ids=lambda kernel: kernel.__name__)


def band(new, tokens, window):
    """Each row's visible tokens, written pair by pair."""
    rows = range(tokens - new, tokens)
    seen = [[row - window < token <= row for token in range(tokens)] for row in rows]
    return torch.tensor(seen, dtype=torch.bool).reshape(new, tokens)


@both
@given(dimensions, st.data())
@settings(max_examples=20)
def test_a_window_is_torch_attention_under_a_band(kernel, shape, data):
    new = data.draw(st.integers(0, shape[3]))
    window = data.draw(st.integers(1, shape[3] + 3))
    heads = random_heads(*shape, new=new)
    scale = data.draw(st.sampled_from([None, -0.7]))
    expected = torch_attention(*heads, scale=scale, visible=band(new, shape[3], window))
    assert_equal(kernel(*heads, window=window, scale=scale), expected)


@pytest.mark.parametrize("block", [3, 7, 1000])
@pytest.mark.parametrize("window", [1, 2, 13, 10**30])
@pytest.mark.parametrize("shape", SHAPES[:6])
def test_blocks_give_the_definition(shape, window, block):
    for new in {shape[3], shape[3] // 2}:
        heads = random_heads(*shape, new=new)
        assert_equal(
            window_attention_blocks(*heads, window=window, block=block), window_attention(*heads, window=window)
        )


@both
def test_a_window_of_1_returns_the_own_value_and_a_wide_one_is_causal_attention(kernel):
    q, k, v = random_heads(2, 4, 2, 11, 5, 3)
    assert_equal(kernel(q, k, v, window=1), v.repeat_interleave(2, dim=1))
    for window in (11, 12, 10**30):
        assert_equal(kernel(q, k, v, window=window), causal_attention(q, k, v))
    assert not torch.isclose(kernel(q, k, v, window=10)[:, :, -1], causal_attention(q, k, v)[:, :, -1]).all()


@both
def test_the_window_counts_the_token_itself_as_in_transformers(kernel):
    inside = sliding_window_overlay(4)
    q, k, v = random_heads(1, 2, 1, 11, 5, 3)
    visible = torch.tensor(
        [[bool(inside(0, 0, row, token)) and token <= row for token in range(11)] for row in range(11)]
    )
    assert visible.sum(dim=1).max() == 4
    assert_equal(kernel(q, k, v, window=4), torch_attention(q, k, v, visible=visible))


@both
def test_what_leaves_the_window_no_longer_counts(kernel):
    q, k, v = random_heads(1, 2, 1, 20, 4, 4)
    before = kernel(q, k, v, window=5)
    k[:, :, 7] += 100
    v[:, :, 7] -= 100
    changed = (kernel(q, k, v, window=5) != before).any(dim=-1)[0]
    assert changed[:, [*range(7), *range(12, 20)]].any() == torch.tensor(False)
    assert changed[:, 7].all()


def test_a_nan_value_reaches_only_blocks_that_score_its_key():
    q, k, v = random_heads(1, 2, 1, 20, 4, 4)
    v[:, :, 7] = math.nan
    rows = window_attention_blocks(q, k, v, window=3, block=5).isnan().any(dim=-1)[0, 0]
    assert rows.nonzero().flatten().tolist() == list(range(5, 10))


@both
def test_gradients_are_right(kernel):
    heads = [tensor.requires_grad_() for tensor in random_heads(1, 2, 1, 5, 2, 1, new=4)]
    assert torch.autograd.gradcheck(lambda q, k, v: kernel(q, k, v, window=3), heads)


def test_gradients_are_right_across_blocks():
    heads = [tensor.requires_grad_() for tensor in random_heads(1, 2, 1, 5, 2, 1, new=4)]
    assert torch.autograd.gradcheck(lambda q, k, v: window_attention_blocks(q, k, v, window=3, block=2), heads)


@both
@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
def test_narrow_types_are_computed_in_float32_and_rounded_once(kernel, dtype):
    q, k, v = random_heads(2, 8, 2, 61, 24, 16, dtype=dtype)
    ours = kernel(q, k, v, window=9)
    assert ours.dtype == dtype
    exact = torch_attention(q.double(), k.double(), v.double(), visible=band(61, 61, 9))
    # Beside the one rounding, sums of a few float32 products of a few units: well below 1e-6.
    assert_equal(ours.double(), exact, rtol=ROUNDING[dtype], atol=1e-6)


@both
def test_transposed_tensors_give_the_same(kernel):
    q, k, v = random_heads(2, 4, 2, 9, 6, 5)
    strided = [tensor.transpose(1, 3).contiguous().transpose(1, 3) for tensor in (q, k, v)]
    assert_equal(kernel(*strided, window=4), torch_attention(q, k, v, visible=band(9, 9, 4)))


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("window", [1, 4, 30, 100])
def test_blocks_of_one_row_cost_the_pairs_within_the_window(window, device):
    for new in (0, 1, 20, 37):
        heads = [tensor.to(device) for tensor in random_heads(2, 6, 3, 37, 5, 8, new=new)]
        predicted = 2 * attention_flops(window_pairs(37 - new, new, window), 1, 6, 5, 8)
        assert counted(window_attention_blocks, *heads, window=window, block=1) == predicted


def test_the_definition_costs_the_square():
    heads = random_heads(2, 6, 3, 37, 5, 8)
    assert counted(window_attention, *heads, window=4) == 2 * attention_flops(square_pairs(37), 1, 6, 5, 8)


def test_flop_grow_with_the_tokens_and_memory_not_at_all():
    flops, made = [], []
    for tokens in (512, 1024, 2048):
        heads = random_heads(1, 2, 1, tokens, 8, 4, new=tokens - 256, dtype=torch.float32)
        flops.append(counted(window_attention_blocks, *heads, window=100, block=64))
        heads = random_heads(1, 2, 1, tokens, 8, 4, new=128, dtype=torch.float32)
        with LargestMade(*heads) as largest:
            window_attention_blocks(*heads, window=100, block=64)
        made.append(largest.bytes)
    pairs = [64 * (tokens - 256) // 64 * (100 + 64 - 1) for tokens in (512, 1024, 2048)]
    assert flops == [attention_flops(pair, 1, 2, 8, 4) for pair in pairs]
    assert made == [2 * 64 * (100 + 64 - 1) * 4] * 3


@both
def test_bad_input_is_named(kernel):
    q, k, v = random_heads(2, 4, 2, 5, 8, 6, new=2)
    for window in (0, -1, 1.5, True, None, math.inf):
        with pytest.raises(ValueError, match="^window must be a whole number >= 1, got"):
            kernel(q, k, v, window=window)
    with pytest.raises(ValueError, match="^scale must be a finite number or None, got"):
        kernel(q, k, v, window=2, scale=math.nan)
    with pytest.raises(ValueError, match="^q must have at most the 5 tokens of k, got 6"):
        kernel(*random_heads(1, 2, 1, 5, 4, 4, new=6), window=2)
    with pytest.raises(ValueError, match="^v must be torch.float64 on cpu"):
        kernel(q, k, v.float(), window=2)
    with pytest.raises(ValueError, match="^block must be a whole number >= 1, got 0"):
        window_attention_blocks(q, k, v, window=2, block=0)
