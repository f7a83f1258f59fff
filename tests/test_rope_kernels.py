"""Rotary position embeddings against complex numbers, transformers, and what they promise: only differences count."""

import cmath
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from kernels.rope import rotated
from kernels.softmax import causal_attention, masked_attention
from tests.heads import random_heads


def assert_near(actual, expected, tolerance=1e-12):
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("width", [2, 6, 64])
@pytest.mark.parametrize("base", [10_000.0, 500_000, 1.0])
def test_a_pair_is_a_complex_number_times_a_turn(width, base):
    x, _, _ = random_heads(1, 1, 1, 4, width, 1)
    positions = [0, 1, 17, 131_071]
    turned = rotated(x, torch.tensor(positions), base=base)[0, 0]
    half = width // 2
    for row, position in enumerate(positions):
        for i in range(half):
            number = complex(x[0, 0, row, i], x[0, 0, row, i + half])
            number *= cmath.exp(1j * position / base ** (2 * i / width))
            assert abs(complex(turned[row, i], turned[row, i + half]) - number) < 1e-9


@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_llamas_embedding_in_transformers_turns_the_same_way(factor):
    rope = {"rope_type": "default", "rope_theta": 500_000.0}
    if factor != 1:
        rope |= {"rope_type": "linear", "factor": factor}
    config = LlamaConfig(hidden_size=96, num_attention_heads=6, num_key_value_heads=2, rope_parameters=rope)
    q, k, _ = random_heads(2, 6, 2, 40, 16, 16, dtype=torch.float32)
    positions = torch.arange(40)
    expected = apply_rotary_pos_emb(q, k, *LlamaRotaryEmbedding(config)(q, positions.expand(2, -1)))
    for ours, theirs in zip((q, k), expected, strict=True):
        assert_near(rotated(ours, positions, base=500_000.0, interpolation=factor), theirs, 2e-5)


@given(st.integers(-100_000, 100_000), st.integers(0, 2000), st.integers(0, 2000))
@settings(max_examples=50)
def test_a_score_depends_on_the_difference_of_positions_only(shift, i, j):
    q, k, _ = random_heads(1, 1, 1, 1, 32, 1)

    def score(query_position, key_position):
        turned_q, turned_k = rotated(q, torch.tensor([query_position])), rotated(k, torch.tensor([key_position]))
        return (turned_q * turned_k).sum()

    assert_near(score(i + shift, j + shift), score(i, j), 1e-9)


def test_a_turn_keeps_lengths_and_position_zero_turns_nothing():
    x, _, _ = random_heads(2, 4, 2, 50, 10, 10)
    assert_near(rotated(x, torch.arange(50) * 1000).norm(dim=3), x.norm(dim=3))
    assert torch.equal(rotated(x, torch.zeros(50)), x)


@pytest.mark.parametrize("interpolation", [4, 4.0, 0.5])
def test_divided_positions_are_positions_between(interpolation):
    x, _, _ = random_heads(2, 4, 2, 50, 10, 10)
    positions = torch.arange(50)
    expected = rotated(x, positions.to(torch.float64) / interpolation)
    assert torch.equal(rotated(x, positions, interpolation=interpolation), expected)


def test_every_sequence_may_have_positions_of_its_own():
    x, _, _ = random_heads(3, 4, 2, 7, 10, 10)
    positions = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [5, 5, 5, 5, 5, 5, 5], [9, 0, 100, 3, 2, 1, 0]])
    turned = rotated(x, positions)
    for sequence in range(3):
        assert torch.equal(turned[sequence : sequence + 1], rotated(x[sequence : sequence + 1], positions[sequence]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_angles_are_exact_whatever_the_type(dtype):
    # 1,000,003 is no number of bfloat16 or float16, and an angle of float32 would be wrong by up to 0.03.
    x = torch.ones(1, 1, 1, 2, dtype=dtype)
    angle = 1_000_003
    expected = torch.tensor([math.cos(angle) - math.sin(angle), math.cos(angle) + math.sin(angle)])
    turned = rotated(x, torch.tensor([angle]))
    assert turned.dtype == dtype
    assert_near(turned.flatten().to(torch.float32), expected, 2 * torch.finfo(dtype).eps)


def test_gradients_and_strided_and_empty_inputs():
    x, _, _ = random_heads(1, 2, 2, 3, 4, 4)
    assert torch.autograd.gradcheck(lambda x: rotated(x, torch.tensor([0, 5, 7])), x.requires_grad_())
    strided = random_heads(2, 3, 3, 8, 4, 4)[0].transpose(1, 2)
    positions = torch.arange(3) + 2
    assert torch.equal(rotated(strided, positions), rotated(strided.contiguous(), positions))
    assert rotated(torch.ones(2, 3, 0, 4), torch.arange(0)).shape == (2, 3, 0, 4)


def test_without_positions_only_a_causal_mask_knows_the_order():
    heads = random_heads(1, 2, 2, 9, 8, 8)
    order = torch.tensor([3, 1, 4, 0, 5, 8, 2, 6, 7])
    shuffled = [tensor[:, :, order] for tensor in heads]
    every = torch.ones(9, 9, dtype=torch.bool)
    assert_near(masked_attention(*shuffled, every), masked_attention(*heads, every)[:, :, order])
    assert (causal_attention(*shuffled) - causal_attention(*heads)[:, :, order]).abs().max() > 0.1
    q, k, v = heads
    positions = torch.arange(9)
    turned = masked_attention(rotated(q, positions), rotated(k, positions), v, every)
    q, k, v = shuffled
    turned_shuffled = masked_attention(rotated(q, positions), rotated(k, positions), v, every)
    assert (turned_shuffled - turned[:, :, order]).abs().max() > 0.01


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x": torch.ones(2, 3, 4)}, "x must be floating-point"),
        ({"x": torch.ones(1, 1, 5, 4, dtype=torch.int64)}, "x must be floating-point"),
        ({"x": torch.ones(1, 1, 5, 3)}, "x must have an even width of at least 2, got 3"),
        ({"x": torch.ones(1, 1, 5, 0)}, "x must have an even width of at least 2, got 0"),
        ({"x": [[1.0]]}, "x must be a tensor, got list"),
        ({"positions": torch.arange(4)}, r"positions must have the shape \(5,\) or \(1, 5\), got \(4,\)"),
        ({"positions": torch.ones(5, dtype=torch.bool)}, "positions must be of a whole or floating-point type"),
        ({"positions": torch.ones(5, dtype=torch.complex64)}, "positions must be of a whole or floating-point type"),
        ({"positions": 3}, "positions must be a tensor, got int"),
        ({"positions": torch.ones(5, device="meta")}, "positions must be on cpu like x, got meta"),
        ({"base": 0}, "base must be a finite number > 0, got 0"),
        ({"base": math.inf}, "base must be a finite number > 0, got inf"),
        ({"base": True}, "base must be a finite number > 0, got True"),
        ({"interpolation": -1}, "interpolation must be a finite number > 0, got -1"),
        ({"interpolation": math.nan}, "interpolation must be a finite number > 0, got nan"),
        ({"interpolation": "4"}, "interpolation must be a finite number > 0, got '4'"),
    ],
)
def test_what_does_not_fit_is_named(changed, message):
    arguments = {"x": torch.ones(1, 1, 5, 4), "positions": torch.arange(5)} | changed
    with pytest.raises(ValueError, match=message):
        rotated(arguments.pop("x"), arguments.pop("positions"), **arguments)
