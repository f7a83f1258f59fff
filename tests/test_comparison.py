"""Comparisons against published slopes and hand sums, the functions they are made of, and identities."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.comparison import MAX_COMPARED, comparison
from calc.flops import decode_attention_flops, decode_flops
from calc.kv_cache import sequence_bytes
from calc.layouts import LAYOUTS
from calc.names import UnknownName
from calc.presets import model_preset
from calc.weights import parameters

LLAMA = model_preset("llama-3.1-8b")
DEEPSEEK = model_preset("deepseek-v3")


def test_a_llama_as_mha_gqa_mqa_and_mla_side_by_side():
    rows = comparison([(LLAMA, name) for name in ("own", "MHA", "MQA", "MLA")], 128_000)
    # 32 layers x 128,000 tokens x 2 bytes x 2,048, 8,192, 256 and 576 numbers.
    assert [row.bytes for row in rows] == [8_192_000 * numbers for numbers in (2048, 8192, 256, 576)]
    assert [row.is_another_model for row in rows] == [False, True, True, True]
    # Sharing heads changes bytes and not FLOP; a pair over the plane costs 2 x 512 + 64 where it cost 2 x 128.
    pair = 32 * 2 * 32 * 128_001
    assert [row.decode_attention_flops for row in rows] == [pair * width for width in (256, 256, 256, 1088)]
    # 2 FLOP a number of 2 bytes for each query head that shares it; 32 heads x 2 x 1,088 FLOP over 1,152 bytes.
    assert [row.attention_intensity for row in rows] == [4, 1, 32, pytest.approx(32 * 2 * 1088 / 1152)]
    # Each KV head of each layer is two projections of 4,096 x 128.
    assert [row.parameters_change for row in rows][:3] == [0, 24 * 32 * 2**20, -7 * 32 * 2**20]
    assert all(row.unknown == () for row in rows)


def test_the_published_slopes_of_models_with_windows_and_planes():
    # facts/kv_cache.md, section 4: 16-bit bytes per token.
    names = {"deepseek-v3": 70_272, "llama-3.1-70b": 327_680, "qwen3-32b": 262_144}
    rows = comparison([(model_preset(name), "own") for name in names], np.array([1, 1000]))
    for row, slope in zip(rows, names.values(), strict=True):
        assert row.bytes.tolist() == [slope, 1000 * slope]


def test_a_rank_holds_what_the_published_table_says():
    # facts/kv_cache.md, section 4: bytes per token on each of 8 and 16 ranks.
    choices = [(LLAMA, "own"), (model_preset("llama-3.1-70b"), "own"), (DEEPSEEK, "own")]
    for ranks, published in {8: [16_384, 40_960, 70_272], 16: [16_384, 40_960, 70_272]}.items():
        assert [row.bytes_per_rank for row in comparison(choices, 1, tensor_parallel=ranks)] == published


def test_heads_that_cannot_be_split_leave_the_number_open_and_say_why():
    (row,) = comparison([(model_preset("phi-4"), "own")], 1, tensor_parallel=4)
    assert row.bytes == 204_800
    assert row.bytes_per_rank is None and row.break_even_sequences is None
    assert row.unknown == ("tensor_parallel must divide the 10 KV heads or be a multiple of them, got 4",)


def test_unknown_weights_leave_attention_known():
    first, second = comparison([(LLAMA, "own"), (DEEPSEEK, "own")], 1000)
    assert second.decode_attention_flops == decode_attention_flops(DEEPSEEK, 1000)
    assert second.attention_intensity == pytest.approx(128 * 2 * 1088 / 1152)
    assert second.decode_flops is second.parameters is second.parameters_change is second.break_even_tokens is None
    assert second.unknown == ("parameters of a model with experts are not known here",)
    assert first.unknown == ()


def test_a_hybrid_has_bytes_and_says_that_its_flop_are_not_known():
    (row,) = comparison([(model_preset("qwen3-next-80b-a3b"), "own")], 1000)
    assert row.bytes > 0
    assert row.decode_attention_flops is None
    assert "attention FLOP of layers of kind 'recurrent' are not known here" in row.unknown


@given(st.integers(1, 10**6), st.integers(1, 10**4), st.sampled_from(["own", "MQA", "sliding-1-in-4"]))
@settings(deadline=None)
def test_a_batch_reads_more_cache_than_weights_from_the_break_even_on(tokens, batch, name):
    (row,) = comparison([(LLAMA, name)], tokens)
    size = parameters(row.model)
    weights = 2 * (size.total - size.embedding)  # in bf16; of the embedding a step reads single rows
    assert (batch * sequence_bytes(row.model, tokens + 1) > weights) == (batch > row.break_even_sequences)
    assert row.break_even_tokens == row.break_even_sequences * tokens


def test_ranks_matter_to_the_break_even_only_where_they_replicate():
    (alone,), (split,), (replicated,) = (comparison([(LLAMA, "own")], 1000, tensor_parallel=n) for n in (1, 8, 16))
    assert split.break_even_sequences == alone.break_even_sequences == 2 * replicated.break_even_sequences


def test_a_row_over_several_contexts_is_each_of_them():
    contexts = np.array([1, 5000, 10**6])
    together = comparison([(LLAMA, name) for name in LAYOUTS[:MAX_COMPARED]], contexts)
    for i, tokens in enumerate(contexts.tolist()):
        alone = comparison([(LLAMA, name) for name in LAYOUTS[:MAX_COMPARED]], tokens)
        for many, one in zip(together, alone, strict=True):
            for field in ("bytes", "bytes_per_rank", "decode_attention_flops", "decode_flops", "attention_intensity",
                          "break_even_sequences", "break_even_tokens"):  # fmt: skip
                assert getattr(many, field)[i] == getattr(one, field)
    assert together[0].decode_flops.tolist() == [decode_flops(LLAMA, n).total for n in contexts.tolist()]


def test_the_parameters_are_compared_with_the_first_row():
    small, large = comparison([(model_preset("llama-3.2-1b"), "own"), (LLAMA, "own")], 10)
    assert (small.parameters_change, large.parameters_change) == (0, 8_030_261_248 - 1_235_814_400)


@pytest.mark.parametrize("number", [0, 7])
def test_no_choice_and_more_than_six_are_refused(number):
    with pytest.raises(ValueError, match=f"^choices must be 1 to 6 models or layouts, got {number}$"):
        comparison([(LLAMA, "own")] * number, 10)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"tokens": 0}, ValueError, "^tokens must be a whole number from 1"),
        ({"tensor_parallel": 0}, ValueError, "^tensor_parallel must be a whole number from 1"),
        ({"window": 0, "name": "sliding-1-in-4"}, ValueError, "^window must be a whole number from 1"),
        ({"name": "MQB"}, UnknownName, "^unknown layout 'MQB'"),
        ({"kv_dtype": "fp7"}, UnknownName, "^unknown KV format 'fp7'"),
        ({"weights_dtype": "fp7"}, UnknownName, "fp7"),
    ],
)
def test_what_cannot_be_is_refused_by_name(options, error, message):
    arguments = {"tokens": 10, **options}
    with pytest.raises(error, match=message):
        comparison([(LLAMA, arguments.pop("name", "own"))], arguments.pop("tokens"), **arguments)
