"""Bytes of the KV cache against caches that transformers fills, published numbers, and identities."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    AutoModelForCausalLM,
    FalconConfig,
    GPT2Config,
    GPTBigCodeConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

from calc.kv_cache import (
    kv_cache_bytes,
    sequence_bytes,
    sequence_memory,
)
from calc.kv_formats import bytes_per_number
from calc.model_config import read_config
from calc.parallel import heads_per_rank
from calc.presets import model_preset
from calc.units import GIB
from tests.llamas import llama, shared_heads

SIZES = {"vocab_size": 160, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
         "num_attention_heads": 4, "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
GPT_SIZES = {"vocab_size": 160, "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 128, "bos_token_id": 1,
             "eos_token_id": 2}  # fmt: skip
FALCON_SIZES = {field: SIZES[field] for field in SIZES if field != "intermediate_size"}
TINY = {
    "llama MHA": LlamaConfig(**SIZES, head_dim=24),
    "llama GQA": LlamaConfig(**SIZES, num_key_value_heads=2, head_dim=24),
    "llama MQA": LlamaConfig(**SIZES, num_key_value_heads=1, head_dim=24),
    "qwen2": Qwen2Config(**SIZES, num_key_value_heads=2),
    "qwen3": Qwen3Config(**SIZES, num_key_value_heads=2, head_dim=24),
    "mistral without a window": MistralConfig(**SIZES, num_key_value_heads=2, head_dim=24, sliding_window=None),
    "gpt2": GPT2Config(**GPT_SIZES),
    "falcon multi_query": FalconConfig(**FALCON_SIZES, multi_query=True, new_decoder_architecture=False),
    "falcon without multi_query": FalconConfig(**FALCON_SIZES, multi_query=False, new_decoder_architecture=False),
    "gpt_bigcode multi_query": GPTBigCodeConfig(**GPT_SIZES, multi_query=True),
    "gpt_bigcode without multi_query": GPTBigCodeConfig(**GPT_SIZES, multi_query=False),
}
TORCH_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "fp8": torch.float8_e4m3fn,
               "int8_per_tensor": torch.int8, "bfloat16": torch.bfloat16, "float16": torch.float16, "half": torch.half,
               "float32": torch.float32, "float": torch.float, "fp8_e4m3": torch.float8_e4m3fn,
               "fp8_e5m2": torch.float8_e5m2}  # fmt: skip
counts = st.integers(0, 10**15)


def cache_bytes(model, tokens, device):
    """Bytes of the keys and values that a transformers model holds after a prefill."""
    with torch.no_grad():
        cache = model(torch.zeros(1, tokens, dtype=torch.long, device=device), use_cache=True).cache
    return sum(kept.numel() * kept.element_size() for layer in cache.layers for kept in (layer.keys, layer.values))


def test_the_published_size_of_an_8b_model_at_128k():
    grouped = kv_cache_bytes(32, 128_000, 8, 128, 2)
    assert grouped == 16_777_216_000 == 15.625 * GIB
    assert type(grouped) is int
    assert kv_cache_bytes(32, 128_000, 32, 128, 2) == 62.5 * GIB


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("config", TINY.values(), ids=TINY.keys())
def test_a_cache_that_transformers_fills_has_as_many_bytes(config, dtype):
    built = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    model = read_config(config.to_dict())
    kv_dtype = str(dtype).removeprefix("torch.")
    for tokens in (1, 7, 33):
        assert sequence_bytes(model, tokens, kv_dtype=kv_dtype, engine="ideal") == cache_bytes(built, tokens, "cpu")


def test_llama_3_1_8b_keeps_its_published_bytes_at_131072_tokens():
    model = model_preset("llama-3.1-8b")
    config = json.loads(model.config_text)
    config.pop("model_type")
    with torch.device("meta"):
        built = AutoModelForCausalLM.from_config(LlamaConfig(**config), dtype=torch.bfloat16).eval()
    assert sequence_bytes(model, 131_072) == cache_bytes(built, 131_072, "meta") == 17_179_869_184


# Bytes per token at 16 bit: facts collected from engine sources and config files, not from this code.
BYTES_PER_TOKEN = {
    "llama-3.1-8b": 131_072,
    "llama-3.1-70b": 327_680,
    "llama-3.1-405b": 516_096,
    "llama-2-7b": 524_288,
    "mistral-large-2": 360_448,
    "qwen2.5-7b": 57_344,  # vllm #22291
    "qwen3-32b": 262_144,
    "phi-4": 204_800,
    "falcon-7b": 8_192,
    "falcon-40b": 122_880,
}


@pytest.mark.parametrize(("name", "expected"), BYTES_PER_TOKEN.items())
def test_a_preset_takes_its_published_bytes_per_token(name, expected):
    memory = sequence_memory(model_preset(name), 1000)
    assert (memory.floor_bytes, memory.slope_bytes_per_token, memory.bytes) == (0, expected, 1000 * expected)


# Bytes per token on one rank, and bytes over all ranks as a multiple of those of one rank. The rule is that of vLLM
# and SGLang: a rank holds max(1, h_kv / ranks) heads, and one number must divide the other.
PER_RANK = {
    "llama-3.1-8b": {1: 131_072, 2: 65_536, 4: 32_768, 8: 16_384, 16: 16_384},
    "llama-3.1-70b": {1: 327_680, 2: 163_840, 4: 81_920, 8: 40_960, 16: 40_960},
    "falcon-7b": {1: 8_192, 2: 8_192, 4: 8_192, 8: 8_192, 16: 8_192},
    "phi-4": {1: 204_800, 2: 102_400, 5: 40_960, 10: 20_480},
}
REPLICATION = {"llama-3.1-8b": {8: 1, 16: 2}, "llama-3.1-70b": {8: 1, 16: 2}, "falcon-7b": {8: 8, 16: 16},
               "phi-4": {2: 1, 10: 1}}  # fmt: skip


@pytest.mark.parametrize("name", PER_RANK)
def test_ranks_share_the_heads_or_replicate_them(name):
    model = model_preset(name)
    for ranks, expected in PER_RANK[name].items():
        assert sequence_memory(model, 1, tensor_parallel=ranks).bytes_per_rank == expected
    for ranks, times in REPLICATION[name].items():
        assert sequence_bytes(model, 1, tensor_parallel=ranks) == times * sequence_bytes(model, 1)


@pytest.mark.parametrize("ranks", [4, 8, 16])
def test_ten_kv_heads_do_not_split_over_a_power_of_two_ranks(ranks):
    with pytest.raises(ValueError, match=f"tensor_parallel must divide the 10 KV heads .*, got {ranks}"):
        sequence_bytes(model_preset("phi-4"), 1, tensor_parallel=ranks)


@given(st.integers(1, 64), st.integers(1, 64), st.integers(0, 10**6))
@settings(deadline=None)
def test_ranks_together_hold_every_head_and_as_many_bytes_as_their_sum(kv_heads, ranks, tokens):
    model = llama(kv_heads, kv_heads)
    if kv_heads % ranks and ranks % kv_heads:
        with pytest.raises(ValueError, match="tensor_parallel must divide"):
            sequence_memory(model, tokens, tensor_parallel=ranks)
        return
    assert heads_per_rank(kv_heads, ranks) * ranks == max(kv_heads, ranks)
    memory = sequence_memory(model, tokens, tensor_parallel=ranks)
    assert memory.bytes == ranks * memory.bytes_per_rank
    assert memory.bytes >= sequence_bytes(model, tokens)  # replication is at least 1
    assert memory.bytes == memory.floor_bytes + memory.slope_bytes_per_token * tokens


@pytest.mark.parametrize("ranks", [0, -1, 1.5, True, None, 10**9])
def test_ranks_that_cannot_be_are_refused(ranks):
    with pytest.raises(ValueError, match="^tensor_parallel must be a whole number from 1 to"):
        sequence_bytes(model_preset("llama-3.1-8b"), 1, tensor_parallel=ranks)


@given(shared_heads(), st.integers(0, 10**15))
@settings(deadline=None)
def test_fewer_kv_heads_never_take_more(heads, tokens):
    query_heads, kv_heads = heads
    mha, gqa, mqa = (sequence_bytes(llama(query_heads, h), tokens) for h in (query_heads, kv_heads, 1))
    assert mqa <= gqa <= mha
    assert (mha, gqa) == (query_heads * mqa, kv_heads * mqa)


@given(st.tuples(*[st.integers(0, 10**6)] * 5), st.integers(0, 4), st.integers(1, 1000))
@settings(deadline=None)
def test_more_of_anything_never_takes_less(factors, index, more):
    raised = list(factors)
    raised[index] += more
    # A format of no bytes is refused, so that sizes start at 1.
    assert kv_cache_bytes(*raised[:4], raised[4] + 1) >= kv_cache_bytes(*factors[:4], factors[4] + 1)


@given(counts, st.sampled_from(sorted(TORCH_TYPES)))
@settings(deadline=None)
def test_bytes_follow_the_size_of_the_numbers(tokens, kv_dtype):
    model = model_preset("llama-3.1-8b")
    size = TORCH_TYPES[kv_dtype].itemsize
    assert bytes_per_number(kv_dtype, 128) == size
    assert sequence_bytes(model, tokens, kv_dtype=kv_dtype) == size * sequence_bytes(model, tokens, kv_dtype="fp8")


def test_float32_takes_twice_bfloat16_and_four_times_fp8():
    model = model_preset("qwen3-8b")
    fp32, bf16, fp8 = (sequence_bytes(model, 12_345, kv_dtype=dtype) for dtype in ("fp32", "bf16", "fp8"))
    assert fp32 == 2 * bf16 == 4 * fp8
    assert sequence_bytes(model, 12_345) == bf16


@pytest.mark.parametrize(
    ("option", "near"),
    [
        ({"kv_dtype": "bfloat61"}, "unknown KV format 'bfloat61'; did you mean .*bfloat16"),
        ({"kv_dtype": "fp23"}, "unknown KV format 'fp23'; did you mean fp32"),
        ({"kv_dtype": "fp8_e4m3fnuz"}, "unknown KV format 'fp8_e4m3fnuz'; did you mean .*fp8_e4m3"),
        ({"kv_dtype": "BF16"}, "unknown KV format 'BF16'; .*bf16"),
        ({"kv_dtype": ""}, "unknown KV format ''; known: .*bf16"),
        ({"kv_dtype": None}, "unknown KV format 'None'; .*bf16"),
        ({"engine": "ideall"}, "unknown engine 'ideall'; did you mean ideal"),
        ({"engine": "an engine of next year"}, "unknown engine 'an engine of next year'; known: .*ideal"),
    ],
)
def test_an_unknown_name_is_refused_with_near_names(option, near):
    with pytest.raises(LookupError, match=near):
        sequence_bytes(model_preset("llama-3.1-8b"), 1, **option)


@given(st.lists(counts, min_size=1, max_size=5))
@settings(deadline=None)
def test_an_array_of_tokens_gives_what_each_gives(tokens):
    model = llama(8, 2, num_hidden_layers=2)  # 4,096 bytes a token on four ranks
    together = sequence_memory(model, np.array(tokens), tensor_parallel=4)
    alone = [sequence_memory(model, n, tensor_parallel=4) for n in tokens]
    np.testing.assert_allclose(together.bytes, [memory.bytes for memory in alone], rtol=2**-52, atol=0)
    if max(tokens) < 10**11:
        assert together.bytes.dtype == np.int64
        assert together.bytes.tolist() == [memory.bytes for memory in alone]
        assert together.bytes_per_rank.tolist() == [memory.bytes_per_rank for memory in alone]


@given(st.lists(st.tuples(*[st.integers(0, 200)] * 4, st.sampled_from([1, 2, 4])), min_size=1, max_size=5))
@settings(deadline=None)
def test_arrays_of_all_arguments_give_what_each_row_gives(rows):
    together = kv_cache_bytes(*(np.array(column) for column in zip(*rows)))
    assert together.tolist() == [kv_cache_bytes(*row) for row in rows]


def test_formats_of_broken_bytes_broadcast():
    # q8_0 of llama.cpp keeps 32 numbers in 34 bytes, q4_0 in 18.
    sizes = kv_cache_bytes(32, 128_000, 8, 128, np.array([2, 34 / 32, 18 / 32]))
    assert sizes.tolist() == [16_777_216_000, 8_912_896_000, 4_718_592_000]


@pytest.mark.parametrize("tokens", [10**11, 10**13, 10**14, 10**15])
def test_bytes_never_wrap_around(tokens):
    exact = 516_096 * tokens
    model = model_preset("llama-3.1-405b")
    scalar = sequence_bytes(model, tokens)
    assert (type(scalar), scalar) == (int, exact)
    for array in (sequence_bytes(model, np.array([tokens])), kv_cache_bytes(126, np.array([tokens]), 8, 128, 2)):
        assert abs(int(array[0]) - exact) <= exact * 2**-50
    most = 2 * 10**15 * 10**15 * 10**15 * 10**15
    assert kv_cache_bytes(10**15, 10**15, 10**15, 10**15, 1) == most
    assert kv_cache_bytes(10**15, np.array([10**15]), 10**15, 10**15, 1)[0] == pytest.approx(most, rel=2**-50)


@pytest.mark.parametrize("tokens", [-1, 2.5, float("nan"), "7", None, 10**15 + 1, [1, -1]])
def test_tokens_that_are_no_count_are_refused(tokens):
    with pytest.raises(ValueError, match="^tokens must be a whole number from 0 to 1,000,000,000,000,000.*got"):
        sequence_bytes(model_preset("llama-3.1-8b"), tokens)
    with pytest.raises(ValueError, match="^tokens must be a whole number"):
        kv_cache_bytes(32, tokens, 8, 128, 2)


@pytest.mark.parametrize("size", [0, -2, float("inf"), float("nan"), "2"])
def test_numbers_of_no_size_are_refused(size):
    with pytest.raises(ValueError, match="^bytes_per_number must be"):
        kv_cache_bytes(32, 1, 8, 128, size)
