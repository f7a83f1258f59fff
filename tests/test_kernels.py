"""Reference kernels against torch's own attention, its FLOP counter, and the formulas in calc."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.attention import attention_flops, causal_pairs, square_pairs
from kernels.decode import decode_attention
from kernels.softmax import causal_attention
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

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("shape", SHAPES)
def test_causal_attention_is_torch_attention_at_odd_shapes(shape):
    heads = random_heads(*shape)
    assert_equal(causal_attention(*heads), torch_attention(*heads))


@given(dimensions)
@settings(deadline=None, max_examples=50)
def test_causal_attention_is_torch_attention_at_any_shape(shape):
    heads = random_heads(*shape)
    assert_equal(causal_attention(*heads), torch_attention(*heads))


@given(dimensions, st.data())
@settings(deadline=None, max_examples=50)
def test_fewer_queries_than_keys_are_the_last_ones(shape, data):
    new = data.draw(st.integers(0, shape[3]))
    q, k, v = random_heads(*shape)
    last = q[:, :, shape[3] - new :]
    assert_equal(causal_attention(last, k, v), torch_attention(last, k, v))
    assert_equal(causal_attention(last, k, v), torch_attention(q, k, v)[:, :, shape[3] - new :])


@pytest.mark.parametrize("scale", [1, 0.0, -0.3, 2.5])
def test_a_given_scale_takes_the_place_of_the_usual_one(scale):
    heads = random_heads(2, 4, 2, 11, 5, 3)
    assert_equal(causal_attention(*heads, scale=scale), torch_attention(*heads, scale=scale))


def test_a_token_does_not_see_what_comes_after_it():
    q, k, v = random_heads(2, 4, 2, 23, 8, 8)
    before = causal_attention(q, k, v)
    k[:, :, 10:] += 100
    v[:, :, 10:] -= 100
    after = causal_attention(q, k, v)
    assert torch.equal(after[:, :, :10], before[:, :, :10])
    assert not torch.isclose(after[:, :, 10:], before[:, :, 10:]).any()


@given(dimensions)
@settings(deadline=None, max_examples=50)
def test_decode_is_torch_attention_and_the_last_row_of_causal_attention(shape):
    q, keys, values = random_heads(*shape)
    decoded = decode_attention(q[:, :, -1:], keys, values)
    assert_equal(decoded, torch_attention(q[:, :, -1:], keys, values))
    assert_equal(decoded, causal_attention(q, keys, values)[:, :, -1:])


def test_decoding_token_by_token_is_prefill():
    q, keys, values = random_heads(2, 6, 2, 19, 8, 5)
    rows = [decode_attention(q[:, :, t : t + 1], keys[:, :, : t + 1], values[:, :, : t + 1]) for t in range(19)]
    assert_equal(torch.cat(rows, dim=2), torch_attention(q, keys, values))


def test_transposed_and_expanded_tensors_give_the_same():
    q, k, v = random_heads(2, 4, 2, 9, 6, 6)
    q_transposed, k_transposed, v_transposed = (x.transpose(1, 3).contiguous().transpose(1, 3) for x in (q, k, v))
    expected = torch_attention(q, k, v)
    assert_equal(causal_attention(q_transposed, k_transposed, v_transposed), expected)
    assert_equal(decode_attention(q_transposed[:, :, -1:], k_transposed, v_transposed), expected[:, :, -1:])
    one = k[:, :1].expand(2, 4, 9, 6)
    assert_equal(causal_attention(q, one, one), torch_attention(q, one.contiguous(), one.contiguous()))


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
def test_narrow_types_are_computed_in_float32_and_rounded_once(dtype):
    q, k, v = random_heads(2, 8, 2, 61, 24, 16, dtype=dtype)
    exact = torch_attention(q.double(), k.double(), v.double())
    # Beside the one rounding, sums of at most 61 float32 products of a few units: well below 1e-6.
    for ours, rows in (
        (causal_attention(q, k, v), exact),
        (decode_attention(q[:, :, -1:], k, v), exact[:, :, -1:]),
    ):
        assert ours.dtype == dtype
        assert_equal(ours.double(), rows, rtol=ROUNDING[dtype], atol=1e-6)


def test_scores_beyond_the_range_of_float16_do_not_overflow():
    random = torch.Generator().manual_seed(1)
    q, k, v = (torch.randint(-200, 201, (1, 2, 16, 64), generator=random).half() for _ in range(3))
    scores = q.double() @ k.double().transpose(-2, -1)
    assert scores.abs().max() > torch.finfo(torch.float16).max
    # All scores are whole numbers below 2^24, times 1/8: exact in float32, so that only the weights are rounded.
    exact = torch_attention(q.double(), k.double(), v.double())
    assert_equal(causal_attention(q, k, v).double(), exact, rtol=2.0**-11, atol=200 * 1e-6)
    assert_equal(decode_attention(q[:, :, -1:], k, v).double(), exact[:, :, -1:], rtol=2.0**-11, atol=200 * 1e-6)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_definition_costs_the_square_of_pairs(shape, device):
    batch, query_heads, _, tokens, key_width, value_width = shape
    heads = [tensor.to(device) for tensor in random_heads(*shape)]
    predicted = batch * attention_flops(square_pairs(tokens), 1, query_heads, key_width, value_width)
    assert counted(causal_attention, *heads) == predicted


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape[3]])
def test_decode_costs_the_causal_pairs_of_one_token(shape, device):
    batch, query_heads, _, tokens, key_width, value_width = shape
    heads = [tensor.to(device) for tensor in random_heads(*shape, new=1)]
    predicted = batch * attention_flops(causal_pairs(tokens - 1, 1), 1, query_heads, key_width, value_width)
    assert counted(decode_attention, *heads) == predicted


def test_only_new_tokens_cost_flop_over_a_cache():
    heads = random_heads(1, 4, 2, 50, 8, 6, new=9)
    assert counted(causal_attention, *heads) == attention_flops(9 * 50, 1, 4, 8, 6)


def test_decode_repeats_no_keys_and_no_values():
    heads = random_heads(2, 8, 2, 512, 64, 64, new=1, dtype=torch.float32)
    with LargestMade(*heads) as largest:
        decode_attention(*heads)
    scores_bytes = 2 * 8 * 512 * 4
    assert largest.bytes == scores_bytes


Q, K, V = random_heads(2, 4, 2, 5, 8, 6, new=1)
BAD = {
    "q is a list": ([Q.tolist(), K, V], 0, "must be a tensor, got list"),
    "v is None": ([Q, K, None], 2, "must be a tensor, got NoneType"),
    "q has three dimensions": ([Q[0], K, V], 0, "must be .batch, heads, tokens, width., got shape .4, 1, 8."),
    "k has five dimensions": ([Q, K[None], V], 1, "must be .batch, heads, tokens, width."),
    "v has no dimension": ([Q, K, V.sum()], 2, "must be .batch, heads, tokens, width."),
    "q is whole numbers": ([Q.long(), K, V], 0, "must be of a floating-point type, got torch.int64"),
    "k is complex": ([Q, K.cfloat(), V], 1, "must be of a floating-point type"),
    "k has another type": ([Q, K.float(), V], 1, "must be torch.float64 on cpu"),
    "v has another type": ([Q, K, V.half()], 2, "must be torch.float64 on cpu"),
    "v is on another device": ([Q, K, V.to("meta")], 2, "must be torch.float64 on cpu.*on meta"),
    "q has another batch": ([Q[:1], K, V], 1, "must have the batch 1"),
    "k has another width": ([Q, K[..., :7], V], 1, "must have the batch 2 and the width 8"),
    "v has other heads": ([Q, K, V[:, :1]], 2, r"must have the batch, heads and tokens \(2, 2, 5\)"),
    "v has fewer tokens": ([Q, K, V[:, :, :4]], 2, r"must have the batch, heads and tokens \(2, 2, 5\)"),
    "v has another batch": ([Q, K, V[:1]], 2, r"must have the batch, heads and tokens \(2, 2, 5\)"),
    "query heads no multiple": ([Q[:, :3], K, V], 0, "must have a multiple of the 2 heads of .*, got 3"),
    "fewer query heads": ([Q[:, :1], K, V], 0, "must have a multiple of the 2 heads of .*, got 1"),
    "no KV heads": ([Q, K[:, :0], V[:, :0]], 1, "must have at least one head"),
    "no width": ([Q[..., :0], K[..., :0], V], 0, "must have at least one head and a width of at least 1"),
    "an empty cache": ([Q, K[:, :, :0], V[:, :, :0]], 0, "must have at most the 0 tokens"),
}


@pytest.mark.parametrize(("tensors", "at_fault", "message"), BAD.values(), ids=BAD.keys())
def test_a_tensor_that_does_not_fit_is_named(tensors, at_fault, message):
    for kernel, names in ((causal_attention, "q k v"), (decode_attention, "q keys values")):
        with pytest.raises(ValueError, match=f"^{names.split()[at_fault]} {message}"):
            kernel(*tensors)


def test_more_queries_than_keys_are_refused():
    with pytest.raises(ValueError, match="^q must have at most the 5 tokens of k, got 6"):
        causal_attention(*random_heads(1, 2, 1, 5, 4, 4, new=6))


@pytest.mark.parametrize("new", [0, 2])
def test_decode_takes_exactly_one_token(new):
    with pytest.raises(ValueError, match=f"^q must be one token, got {new}"):
        decode_attention(*random_heads(1, 2, 1, 5, 4, 4, new=new))


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), "1", [1.0]])
def test_a_scale_that_is_no_finite_number_is_refused(scale):
    with pytest.raises(ValueError, match="^scale must be a finite number or None, got"):
        causal_attention(Q, K, V, scale=scale)


def test_transformers_works_where_the_project_is_importable_first():
    # transformers looks for a top-level package of this name, which is another project's on PyPI.
    program = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import transformers, torch
config = transformers.LlamaConfig(
    hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=32
)
logits = transformers.LlamaForCausalLM(config)(torch.zeros(1, 3, dtype=torch.long)).logits
import kernels
from kernels.softmax import causal_attention
print(tuple(logits.shape), kernels.__file__)
"""
    ran = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, cwd=ROOT.anchor)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split("\n")[0] == f"(1, 3, 32) {ROOT / 'kernels' / '__init__.py'}"
