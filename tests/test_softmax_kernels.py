"""Softmax attention by blocks and online against its definition, torch, transformers and the formulas in calc."""

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.llama.modeling_llama import eager_attention_forward

from calc.attention import attention_flops, causal_pairs
from kernels.softmax import causal_attention, causal_attention_blocks, causal_attention_online, masked_attention
from tests.heads import (
    ROUNDING,
    SHAPES,
    LargestMade,
    assert_equal,
    counted,
    dimensions,
    random_heads,
    torch_attention,
)

FAST = [causal_attention_blocks, causal_attention_online]
both = pytest.mark.parametrize("kernel", FAST, ids=lambda kernel: kernel.__name__)


@both
@pytest.mark.parametrize(("shape", "block"), [(shape, block) for shape in SHAPES for block in (8, 31, 1000)])
def test_blocks_give_the_definition_at_odd_shapes(kernel, shape, block):
    heads = random_heads(*shape)
    assert_equal(kernel(*heads, block=block), causal_attention(*heads))


@both
@given(dimensions, st.data())
@settings(max_examples=20)
def test_blocks_of_the_last_tokens_are_torch_attention(kernel, shape, data):
    heads = random_heads(*shape, new=data.draw(st.integers(0, shape[3])))
    block = data.draw(st.integers(-(-shape[3] // 6), shape[3] + 2))
    scale = data.draw(st.sampled_from([None, 0.0, -0.7, 3]))
    assert_equal(kernel(*heads, block=block, scale=scale), torch_attention(*heads, scale=scale))


@both
def test_the_usual_block_serves_more_tokens_than_it_holds(kernel):
    heads = random_heads(1, 2, 1, 601, 5, 3)
    assert_equal(kernel(*heads), torch_attention(*heads))


def test_all_forms_are_the_eager_attention_of_transformers():
    q, k, v = random_heads(2, 6, 2, 23, 8, 8, dtype=torch.float32)
    module = SimpleNamespace(num_key_value_groups=3, training=False)
    mask = torch.full((23, 23), -math.inf).triu(1)[None, None]
    eager = eager_attention_forward(module, q, k, v, mask, scaling=0.3)[0].transpose(1, 2)
    # Sums of at most 23 float32 products of a few units on both sides.
    for kernel in (causal_attention, *FAST):
        torch.testing.assert_close(kernel(q, k, v, scale=0.3), eager, rtol=0, atol=2e-6)


@given(dimensions, st.data())
@settings(max_examples=20)
def test_any_mask_gives_torch_attention_and_0_where_nothing_is_seen(shape, data):
    q, k, v = random_heads(*shape, new=data.draw(st.integers(0, shape[3])))
    random = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    visible = torch.rand(q.shape[2], k.shape[2], generator=random) < data.draw(st.sampled_from([0.0, 0.1, 0.5]))
    ours = masked_attention(q, k, v, visible)
    assert_equal(ours, torch_attention(q, k, v, visible=visible))
    assert not ours[:, :, ~visible.any(dim=1)].any()


def test_a_row_that_sees_nothing_has_no_gradient_and_spoils_none():
    heads = [tensor.requires_grad_() for tensor in random_heads(1, 2, 1, 4, 3, 2)]
    visible = torch.ones(4, 4, dtype=torch.bool).tril(-1)
    assert torch.autograd.gradcheck(lambda q, k, v: masked_attention(q, k, v, visible), heads)


@both
def test_gradients_are_right(kernel):
    heads = [tensor.requires_grad_() for tensor in random_heads(1, 2, 1, 4, 2, 1, new=3)]
    assert torch.autograd.gradcheck(lambda q, k, v: kernel(q, k, v, block=2), heads)


@both
def test_a_token_does_not_see_what_comes_after_it(kernel):
    q, k, v = random_heads(2, 4, 2, 23, 8, 8)
    before = kernel(q, k, v, block=4)
    k[:, :, 10:] += 100
    v[:, :, 10:] -= 100
    after = kernel(q, k, v, block=4)
    assert torch.equal(after[:, :, :10], before[:, :, :10])
    assert not torch.isclose(after[:, :, 10:], before[:, :, 10:]).any()


@both
def test_nothing_after_a_block_reaches_it_not_even_nan(kernel):
    q, k, v = random_heads(1, 2, 1, 12, 4, 4)
    expected = causal_attention(q, k, v)
    v[:, :, 9] = math.nan
    ours = kernel(q, k, v, block=4)
    assert_equal(ours[:, :, :8], expected[:, :, :8])
    assert ours[:, :, 9:].isnan().all()


@pytest.mark.parametrize("kernel", [causal_attention, *FAST], ids=lambda kernel: kernel.__name__)
def test_a_nan_query_gives_nan_in_its_own_row_only(kernel):
    # Torch's fused attention gives 0 here on a CPU, which hides the fault.
    q, k, v = random_heads(1, 2, 1, 9, 4, 4)
    q[:, :, 3] = math.nan
    rows = kernel(q, k, v).isnan().all(dim=-1)
    assert rows.equal(kernel(q, k, v).isnan().any(dim=-1))
    assert rows[0, 0].tolist() == [row == 3 for row in range(9)]


def test_a_first_block_of_keys_with_scores_of_minus_infinity_weighs_nothing():
    # Unguarded, an online softmax computes -inf - -inf here.
    q, k, v = torch.ones(1, 1, 8, 1), torch.zeros(1, 1, 8, 1), random_heads(1, 1, 1, 8, 1, 2, dtype=torch.float32)[2]
    k[:, :, :4] = -math.inf
    expected = causal_attention(q, k, v)
    assert expected[:, :, :4].isnan().all() and expected[:, :, 4:].isfinite().all()
    ours = causal_attention_online(q, k, v, block=2)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-6, equal_nan=True)


@both
@pytest.mark.parametrize("size", [1e4, 1e8])
def test_large_scores_neither_overflow_nor_lose_the_largest(kernel, size):
    q, k, v = random_heads(1, 2, 2, 17, 8, 8)
    assert_equal(kernel(q * size, k, v, block=4), torch_attention(q * size, k, v))


@both
@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
def test_narrow_types_are_computed_in_float32_and_rounded_once(kernel, dtype):
    q, k, v = random_heads(2, 8, 2, 61, 24, 16, dtype=dtype)
    ours = kernel(q, k, v, block=16)
    assert ours.dtype == dtype
    exact = torch_attention(q.double(), k.double(), v.double())
    # Beside the one rounding, sums of at most 61 float32 products of a few units: well below 1e-6.
    assert_equal(ours.double(), exact, rtol=ROUNDING[dtype], atol=1e-6)


@both
def test_scores_beyond_the_range_of_float16_do_not_overflow(kernel):
    q, k, v = (200 * tensor for tensor in random_heads(1, 2, 2, 16, 64, 8, dtype=torch.float16))
    assert (q.double() @ k.double().transpose(-2, -1)).abs().max() > torch.finfo(torch.float16).max
    assert kernel(q, k, v, block=4).isfinite().all()


@both
def test_transposed_and_expanded_tensors_give_the_same(kernel):
    q, k, v = random_heads(2, 4, 2, 9, 6, 6)
    strided = [tensor.transpose(1, 3).contiguous().transpose(1, 3) for tensor in (q, k, v)]
    assert not strided[0].is_contiguous()
    assert_equal(kernel(*strided, block=4), torch_attention(q, k, v))
    one = k[:, :1].expand(2, 4, 9, 6)
    assert_equal(kernel(q, one, one, block=4), torch_attention(q, one.contiguous(), one.contiguous()))


def block_pairs(new, tokens, block):
    """Pairs of each row with the keys up to the last row of its block."""
    ends = [(start, min(start + block, new)) for start in range(0, new, block)]
    return sum((end - start) * (tokens - new + end) for start, end in ends)


@both
@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("shape", SHAPES[:4])
def test_blocks_of_one_row_cost_the_causal_pairs(kernel, shape, device):
    batch, query_heads, _, tokens, key_width, value_width = shape
    for new in {tokens, tokens // 3}:
        heads = [tensor.to(device) for tensor in random_heads(*shape, new=new)]
        pairs = causal_pairs(tokens - new, new)
        flops = batch * attention_flops(pairs, 1, query_heads, key_width, value_width)
        assert counted(kernel, *heads, block=1) == flops


@both
@pytest.mark.parametrize("block", [3, 8, 200])
def test_wider_blocks_cost_their_masked_pairs_besides(kernel, block):
    heads = random_heads(2, 6, 2, 61, 5, 4, new=50)
    assert counted(kernel, *heads, block=block) == 2 * attention_flops(block_pairs(50, 61, block), 1, 6, 5, 4)


def test_memory_is_linear_in_tokens_by_rows_and_constant_online():
    by_rows, online = [], []
    for tokens in (512, 1024, 2048):
        heads = random_heads(1, 2, 1, tokens, 2, 1, new=128, dtype=torch.float32)
        for kernel, made in ((causal_attention_blocks, by_rows), (causal_attention_online, online)):
            with LargestMade(*heads) as largest:
                kernel(*heads, block=64)
            made.append(largest.bytes)
    assert by_rows == [2 * 64 * tokens * 4 for tokens in (512, 1024, 2048)]
    assert online == [2 * 64 * 64 * 4] * 3


Q, K, V = random_heads(2, 4, 2, 5, 8, 6, new=2)


@both
def test_bad_input_is_named(kernel):
    for block in (0, -1, 1.5, True, "8", None):
        with pytest.raises(ValueError, match="^block must be a whole number >= 1, got"):
            kernel(Q, K, V, block=block)
    for scale in (math.nan, math.inf, "1"):
        with pytest.raises(ValueError, match="^scale must be a finite number or None, got"):
            kernel(Q, K, V, scale=scale)
    with pytest.raises(ValueError, match="^q must have at most the 5 tokens of k, got 6"):
        kernel(*random_heads(1, 2, 1, 5, 4, 4, new=6))
    with pytest.raises(ValueError, match="^v must be torch.float64 on cpu"):
        kernel(Q, K, V.float())
    with pytest.raises(ValueError, match="^q must have a multiple of the 2 heads of k, got 3"):
        kernel(Q[:, :3], K, V)


@pytest.mark.parametrize("mask", [None, torch.ones(2, 5), torch.ones(2, 5, dtype=torch.bool, device="meta")])
def test_a_mask_of_another_type_or_device_is_refused(mask):
    with pytest.raises(ValueError, match="^visible must be a tensor of bool on cpu"):
        masked_attention(Q, K, V, mask)


@pytest.mark.parametrize("shape", [(5, 5), (1, 5), (2,), (1, 1, 2, 5)])
def test_a_mask_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"^visible must have the shape \(2, 5\), got"):
        masked_attention(Q, K, V, torch.ones(shape, dtype=torch.bool))
