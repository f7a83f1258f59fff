"""Linear attention: recurrence, chunks and pairs against each other and against sums written term by term."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.attention import attention_flops, square_pairs
from kernels.linear import linear_attention, linear_attention_chunked, linear_attention_parallel, linear_state
from tests.heads import ROUNDING, SHAPES, LargestMade, assert_equal, counted, dimensions, random_heads

FORMS = [linear_attention, linear_attention_chunked, linear_attention_parallel]
each = pytest.mark.parametrize("kernel", FORMS, ids=lambda kernel: kernel.__name__)


def by_terms(q, k, v):
    """The quotient of two sums, with elu(x) + 1 of float64, whose cancellation does not show at these sizes."""
    q, k = (torch.nn.functional.elu(tensor.double()) + 1 for tensor in (q, k))
    k, v = (tensor.double().repeat_interleave(q.shape[1] // tensor.shape[1], dim=1) for tensor in (k, v))
    rows = []
    for row in range(q.shape[2]):
        seen = k.shape[2] - q.shape[2] + row + 1
        weights = torch.einsum("bhd,bhtd->bht", q[:, :, row], k[:, :, :seen])
        rows.append(torch.einsum("bht,bhte->bhe", weights, v[:, :, :seen]) / weights.sum(dim=-1, keepdim=True))
    return torch.stack(rows, dim=2) if rows else q.new_zeros(*q.shape[:3], v.shape[3])


@each
@given(dimensions, st.data())
@settings(max_examples=20)
def test_every_form_is_the_quotient_of_two_sums(kernel, shape, data):
    heads = random_heads(*shape, new=data.draw(st.integers(0, shape[3])))
    assert_equal(kernel(*heads), by_terms(*heads), rtol=1e-11)


@pytest.mark.parametrize("chunk", [1, 2, 7, 31, 1000])
@pytest.mark.parametrize("shape", SHAPES)
def test_chunks_and_pairs_give_the_recurrence(shape, chunk):
    for new in {shape[3], shape[3] // 2}:
        heads = random_heads(*shape, new=new)
        expected = linear_attention(*heads)
        assert_equal(linear_attention_chunked(*heads, chunk=chunk), expected, rtol=1e-11)
        assert_equal(linear_attention_parallel(*heads), expected, rtol=1e-11)


def test_the_state_is_the_sum_over_tokens_and_all_that_later_tokens_need():
    q, k, v = random_heads(2, 4, 2, 12, 5, 3)
    state, key_sum = linear_state(k, v)
    features = torch.nn.functional.elu(k) + 1
    assert_equal(state, sum(features[:, :, t, :, None] * v[:, :, t, None, :] for t in range(12)))
    assert_equal(key_sum, features.sum(dim=2))
    query = (torch.nn.functional.elu(q[:, :, -1]) + 1).unflatten(1, (2, 2))
    last = (query @ state) / (query @ key_sum[..., None])
    assert_equal(linear_attention(q, k, v)[:, :, -1], last.flatten(1, 2), rtol=1e-11)
    empty = linear_state(k[:, :, :0], v[:, :, :0])
    assert [tuple(part.shape) for part in empty] == [(2, 2, 5, 3), (2, 2, 5)] and not any(part.any() for part in empty)


def test_the_size_of_the_state_does_not_depend_on_the_tokens():
    sizes = [sum(part.numel() for part in linear_state(*random_heads(2, 4, 2, n, 5, 3)[1:])) for n in (1, 10, 100)]
    assert sizes == [2 * 2 * 5 * (3 + 1)] * 3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_state_of_narrow_tensors_is_float32_and_keeps_growing(dtype):
    # Summed in bfloat16, 1.5 stops at 512; in float16 a thousand of them give 1658.
    state, key_sum = linear_state(torch.full((1, 1, 1000, 1), 0.5, dtype=dtype), torch.ones(1, 1, 1000, 1, dtype=dtype))
    assert state.dtype == key_sum.dtype == torch.float32
    assert state.item() == key_sum.item() == 1500


@each
@pytest.mark.parametrize("x", [-17.0, -30.0, -80.0])
def test_features_of_very_negative_numbers_do_not_vanish(kernel, x):
    # float32's elu(x) + 1 is 0 from -18 on, which leaves 0 / 0; an epsilon of 1e-6 would give far less than 1.
    q = torch.full((1, 1, 5, 2), x if x > -50 else 0.0)
    k = torch.full((1, 1, 5, 2), x)
    torch.testing.assert_close(kernel(q, k, torch.ones(1, 1, 5, 1)), torch.ones(1, 1, 5, 1))


@each
def test_features_that_underflow_give_nan_and_no_guess(kernel):
    k = torch.full((1, 1, 2, 2), -200.0)
    assert kernel(torch.zeros_like(k), k, torch.ones_like(k)).isnan().all()


@each
def test_gradients_are_right_and_finite_for_large_numbers(kernel):
    heads = [tensor.requires_grad_() for tensor in random_heads(1, 2, 1, 4, 2, 1, new=3)]
    assert torch.autograd.gradcheck(kernel, heads)
    q, k, v = random_heads(1, 1, 1, 4, 2, 1, dtype=torch.float32)
    q = (q * 100).requires_grad_()
    kernel(q, k, v).sum().backward()
    assert q.grad.isfinite().all()


def test_gradients_are_right_across_chunks():
    heads = [tensor.requires_grad_() for tensor in random_heads(1, 2, 1, 4, 2, 1, new=3)]
    assert torch.autograd.gradcheck(lambda q, k, v: linear_attention_chunked(q, k, v, chunk=2), heads)


@each
def test_a_token_does_not_see_what_comes_after_it(kernel):
    q, k, v = random_heads(2, 4, 2, 80, 8, 8)
    before = kernel(q, k, v)
    k[:, :, 70:] += 100
    v[:, :, 70:] -= 100
    after = kernel(q, k, v)
    assert torch.equal(after[:, :, :70], before[:, :, :70])
    assert not torch.isclose(after[:, :, 70:], before[:, :, 70:]).any()


@pytest.mark.parametrize(("kernel", "first"), [*zip(FORMS, (70, 64, 0))], ids=lambda given: str(given))
def test_a_nan_value_reaches_as_far_back_as_is_said(kernel, first):
    q, k, v = random_heads(1, 2, 1, 80, 3, 2)
    v[:, :, 70] = math.nan
    rows = kernel(q, k, v).isnan().any(dim=-1)[0, 0]
    assert rows.nonzero().flatten().tolist() == list(range(first, 80))


@each
@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
def test_narrow_types_are_computed_in_float32_and_rounded_once(kernel, dtype):
    q, k, v = random_heads(2, 8, 2, 61, 24, 16, dtype=dtype)
    ours = kernel(q, k, v)
    assert ours.dtype == dtype
    # Beside the one rounding, sums of at most 61 x 24 positive float32 products: a few units of 1e-6.
    assert_equal(ours.double(), by_terms(q, k, v), rtol=ROUNDING[dtype], atol=5e-6)


@each
def test_transposed_tensors_give_the_same(kernel):
    heads = random_heads(2, 4, 2, 9, 6, 5)
    strided = [tensor.transpose(1, 3).contiguous().transpose(1, 3) for tensor in heads]
    assert_equal(kernel(*strided), by_terms(*heads))


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_pairs_cost_the_square_and_chunks_a_line(device):
    flops = []
    for tokens in (64, 128, 256):
        heads = [tensor.to(device) for tensor in random_heads(2, 6, 3, tokens, 5, 4)]
        square = 2 * attention_flops(square_pairs(tokens), 1, 6, 5, 4)
        assert counted(linear_attention_parallel, *heads) == square
        flops.append(counted(linear_attention_chunked, *heads, chunk=16))
        chunks, pairs = tokens // 16, attention_flops(16 * 16, 1, 6, 5, 4)
        assert flops[-1] == 2 * chunks * (pairs + 2 * 6 * 16 * 5 * (4 + 1) + 2 * 3 * 16 * 5 * 4)
    assert flops == [flops[0], 2 * flops[0], 4 * flops[0]]


def test_memory_of_chunks_beside_the_result_does_not_grow():
    made = []
    for tokens in (256, 512):
        heads = random_heads(1, 2, 1, tokens, 4, 1, dtype=torch.float32)
        with LargestMade(*heads) as largest:
            linear_attention_chunked(*heads, chunk=64)
        made.append(largest.bytes)
    assert made == [2 * 64 * 64 * 4] * 2


@each
def test_bad_input_is_named(kernel):
    q, k, v = random_heads(2, 4, 2, 5, 8, 6, new=2)
    with pytest.raises(ValueError, match="^q must have at most the 5 tokens of k, got 6"):
        kernel(*random_heads(1, 2, 1, 5, 4, 4, new=6))
    with pytest.raises(ValueError, match="^v must be torch.float64 on cpu"):
        kernel(q, k, v.float())
    with pytest.raises(ValueError, match="^v must have the batch, heads and tokens"):
        linear_state(k, v[:, :1])
    for chunk in (0, -1, 1.5, True, None):
        with pytest.raises(ValueError, match="^chunk must be a whole number >= 1, got"):
            linear_attention_chunked(q, k, v, chunk=chunk)
