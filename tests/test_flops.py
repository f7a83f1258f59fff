"""FLOP of whole models against torch's FLOP counter, published counts, loops over calls, and real caches."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    AutoModelForCausalLM,
    Cohere2Config,
    DeepseekV2Config,
    Exaone4Config,
    FalconConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    Olmo3Config,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
    Starcoder2Config,
)

from calc.flops import (
    Flops,
    attention_overtakes_at,
    counter_attention_flops,
    counter_prefill_flops,
    decode_attention_flops,
    decode_cache_read_bytes,
    decode_flops,
    prefill_attention_flops,
    prefill_flops,
    run_prefill_flops,
)
from calc.kv_cache import sequence_bytes
from calc.layouts import as_latent, as_sliding
from calc.model_config import read_config
from calc.presets import model_ids, model_preset
from calc.weights import matrix_flops, parameters

REFERENCES = Path(__file__).parent / "references"
LLAMA_8B = model_preset("llama-3.1-8b")
WITH_FLOPS = [name for name in model_ids() if model_preset(name).weights]
"""Presets whose FLOP are known: the weights of the others are of another kind."""
SIZES = {"vocab_size": 160, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
         "num_attention_heads": 4, "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
FALCON_SIZES = {field: SIZES[field] for field in SIZES if field != "intermediate_size"}
TINY = {
    "llama MHA": LlamaConfig(**SIZES),
    "llama GQA": LlamaConfig(**SIZES, num_key_value_heads=2, head_dim=24),
    "llama with a tied head": LlamaConfig(**SIZES, num_key_value_heads=1, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**SIZES, num_key_value_heads=2, head_dim=24),
    "gpt2": GPT2Config(vocab_size=160, n_embd=64, n_layer=3, n_head=4, n_positions=128, bos_token_id=1, eos_token_id=2),
    "falcon multi_query": FalconConfig(**FALCON_SIZES, multi_query=True, new_decoder_architecture=False),
    "falcon new_decoder_architecture": FalconConfig(**FALCON_SIZES, num_kv_heads=2, new_decoder_architecture=True),
}
WINDOWED = {
    "mistral": MistralConfig(**SIZES, num_key_value_heads=2, head_dim=24, sliding_window=8),
    "qwen2 from one layer on": Qwen2Config(
        **SIZES, num_key_value_heads=2, use_sliding_window=True, sliding_window=5, max_window_layers=1
    ),
    "qwen3 from one layer on": Qwen3Config(
        **SIZES, num_key_value_heads=2, head_dim=24, use_sliding_window=True, sliding_window=5, max_window_layers=2
    ),
    "starcoder2": Starcoder2Config(**SIZES, num_key_value_heads=2, sliding_window=16),
    "phi3": Phi3Config(**SIZES, num_key_value_heads=2, sliding_window=6, pad_token_id=None),
    "smollm3": SmolLM3Config(
        **SIZES, num_key_value_heads=2, use_sliding_window=True, sliding_window=9, pad_token_id=None
    ),
    "gemma2": Gemma2Config(**SIZES, num_key_value_heads=2, head_dim=24, sliding_window=6),
    "gemma3": Gemma3TextConfig(**SIZES, num_key_value_heads=2, head_dim=24, sliding_window=6),
    "cohere2": Cohere2Config(**SIZES, num_key_value_heads=2, sliding_window=6, pad_token_id=None),
    "olmo3": Olmo3Config(**SIZES, num_key_value_heads=2, sliding_window=6, pad_token_id=None),
    "exaone4": Exaone4Config(**SIZES, num_key_value_heads=2, sliding_window=7, sliding_window_pattern=3),
}
"""Models with sliding layers, alone or among full ones."""
EVERY_TINY = TINY | WINDOWED
ROUNDING = 2.0**-48
"""Thirty-two roundings of float64: more than any sum here has steps."""


def on_meta(config):
    """A model of shapes without numbers: the counter needs no more."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config).eval()


def counted(model, tokens, **options):
    """FLOP that torch counts for one forward pass, and the cache it leaves."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        result = model(torch.zeros(1, tokens, dtype=torch.long, device="meta"), use_cache=True, **options)
    return counter.get_total_flops(), result.cache


@pytest.fixture(scope="module")
def llama_8b():
    config = json.loads(LLAMA_8B.config_text)
    config.pop("model_type")
    return on_meta(LlamaConfig(**config))


@pytest.mark.parametrize("tokens", [1, 2048, 8191, 131_072])
def test_llama_3_1_8b_costs_what_torch_counts(llama_8b, tokens):
    prefill, cache = counted(llama_8b, tokens)
    decode, _ = counted(llama_8b, 1, cache=cache)
    assert counter_prefill_flops(LLAMA_8B, tokens).total == prefill
    assert decode_flops(LLAMA_8B, tokens).total == decode


@pytest.mark.parametrize("config", EVERY_TINY.values(), ids=EVERY_TINY.keys())
def test_a_tiny_model_costs_what_torch_counts(config):
    built, model = on_meta(config), read_config(config.to_dict())
    for tokens in (1, 2, 19, 64):
        prefill, cache = counted(built, tokens)
        assert counter_prefill_flops(model, tokens).total == prefill
        for step in range(2):
            decode, cache = counted(built, 1, cache=cache)
            assert decode_flops(model, tokens + step).total == decode
        extension, _ = counted(built, 11, cache=cache)
        assert counter_prefill_flops(model, 11, cached=tokens + 2).total == extension


@pytest.mark.parametrize("config", EVERY_TINY.values(), ids=EVERY_TINY.keys())
def test_a_prefill_one_token_at_a_time_is_causal_to_the_pair(config):
    built, model = on_meta(config), read_config(config.to_dict())
    total, cache = counted(built, 1)
    for _ in range(8):
        step, cache = counted(built, 1, cache=cache)
        total += step
    # Each step computed logits, a prefill only those of the last token.
    assert prefill_flops(model, 9).total == total - 8 * matrix_flops(64 * 160, 1)
    assert decode_flops(model, 0, new=9).total == total


@pytest.mark.parametrize("config", EVERY_TINY.values(), ids=EVERY_TINY.keys())
def test_matrix_products_of_a_prefill_take_the_logits_of_the_last_token_only(config):
    built, model = on_meta(config), read_config(config.to_dict())
    count, _ = counted(built, 29, logits_to_keep=1)
    assert prefill_flops(model, 29).matrices + counter_prefill_flops(model, 29).attention == count


def test_published_counts_of_llama_3_1_8b():
    # As counted by torch: prefill with the full square of pairs and all logits; decode reads 8,192 keys.
    assert counter_prefill_flops(LLAMA_8B, 2048).total == 32_938_104_193_024
    assert counter_prefill_flops(LLAMA_8B, 131_072).total == 10_974_500_434_739_200
    assert decode_flops(LLAMA_8B, 8191).total == 19_304_284_160


@given(st.integers(1, 10**15))
@settings(deadline=None)
def test_counts_of_scalars_are_exact_whole_numbers(tokens):
    flops = prefill_flops(LLAMA_8B, tokens)
    # 32 layers, 32 query heads, 128 wide, from the published config; 2 (d_k + d_v) FLOP a pair.
    assert flops.attention == 2 * 32 * 32 * 256 * (tokens * (tokens + 1) // 2)
    layer = 4096 * (32 + 2 * 8) * 128 + 32 * 128 * 4096 + 3 * 4096 * 14336
    assert flops.matrices == 2 * (32 * layer * tokens + 4096 * 128_256)
    assert flops.total == flops.attention + flops.matrices
    assert all(type(number) is int for number in (flops.attention, flops.matrices, flops.total))


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(1, 10**6))
@settings(deadline=None)
def test_an_extension_costs_what_is_left_of_the_whole(cached, first, more):
    whole = prefill_flops(LLAMA_8B, first + more, cached=cached)
    begun = prefill_flops(LLAMA_8B, first, cached=cached)
    extended = prefill_flops(LLAMA_8B, more, cached=cached + first)
    logits = matrix_flops(4096 * 128_256, 1)
    assert begun.attention + extended.attention == whole.attention
    assert begun.matrices + extended.matrices == whole.matrices + logits


@given(st.integers(0, 10**9), st.integers(0, 40))
@settings(deadline=None)
def test_decoding_is_the_sum_over_its_tokens(cached, new):
    steps = [decode_flops(LLAMA_8B, cached + step) for step in range(new)]
    whole = decode_flops(LLAMA_8B, cached, new=new)
    assert whole == Flops(
        attention=sum(step.attention for step in steps), matrices=sum(step.matrices for step in steps)
    )


@given(st.integers(1, 10**6))
@settings(deadline=None)
def test_the_counter_reports_more_than_causality_asks_for(tokens):
    counter, causal = counter_prefill_flops(LLAMA_8B, tokens), prefill_flops(LLAMA_8B, tokens)
    per_diagonal = 2 * 32 * 32 * 256 * tokens
    assert 2 * causal.attention == counter.attention + per_diagonal
    assert counter.matrices - causal.matrices == matrix_flops(4096 * 128_256, tokens - 1)


def test_a_100k_prompt_costs_about_280_times_a_1k_prompt_for_an_8b_model():
    # By hand, with 6.98e9 numbers in the layers' matrices and 524,288 FLOP a pair (2 x 32 x 32 x 256):
    #   100k: 2 x 6.98e9 x 1e5 = 1.396e15, and 524,288 x 5.0e9 pairs = 2.621e15; together 4.017e15
    #     1k: 2 x 6.98e9 x 1e3 = 1.396e13, and 524,288 x 5.0e5 pairs = 0.026e13; together 1.422e13
    # 4.017e15 / 1.422e13 = 282.
    ratio = prefill_flops(LLAMA_8B, 100_000).total / prefill_flops(LLAMA_8B, 1_000).total
    assert 275 < ratio < 290


OVERTAKEN = ["llama-3.1-8b", "llama-3.1-405b", "llama-2-7b", "qwen2.5-0.5b", "qwen3-0.6b", "phi-4", "falcon-7b",
             "falcon-40b", "gpt2", "gpt2-xl", "gemma-2b"]  # fmt: skip


@pytest.mark.parametrize("name", OVERTAKEN)
def test_attention_overtakes_at_the_first_prompt_a_search_finds(name):
    model = model_preset(name)
    per_token = matrix_flops(parameters(model).layer_matrices, 1)
    tokens = np.arange(1, 300_000)
    overtaken = prefill_flops(model, tokens).attention > per_token * tokens
    first = int(tokens[overtaken][0])
    assert overtaken[first - 1 :].all()
    assert attention_overtakes_at(model) == first


@pytest.mark.parametrize("name", ["gemma-2-2b", "gemma-3-1b", "olmo-3.1-32b", "command-r7b"])
def test_attention_that_partly_slides_overtakes_at_the_first_prompt_too(name):
    model = model_preset(name)
    per_token = matrix_flops(parameters(model).layer_matrices, 1)
    at = attention_overtakes_at(model)
    tokens = np.arange(1, at + 1000)
    overtaken = prefill_flops(model, tokens).attention > per_token * tokens
    assert (overtaken == (tokens >= at)).all()


def test_attention_within_short_windows_never_overtakes():
    # 4,096 keys a token at 524,288 FLOP a pair are 2.1e9 FLOP, the matrices of Mistral 7B take 13.96e9.
    assert attention_overtakes_at(model_preset("mistral-7b-v0.1")) is None


def test_attention_of_tiny_models_overtakes_where_a_sum_token_by_token_says():
    for config in TINY.values():
        model = read_config(config.to_dict())
        (group,) = model.layer_groups
        built = AutoModelForCausalLM.from_config(config)
        outside = ("embed", "wte", "wpe", "lm_head")
        matrices = sum(
            weight.numel()
            for name, weight in built.named_parameters()
            if weight.ndim == 2 and not any(part in name for part in outside)
        )
        tokens, attention, products = 0, 0, 0
        while attention <= products:
            tokens += 1
            attention += 2 * group.layers * group.query_heads * 2 * group.key_width * tokens
            products += 2 * matrices
        assert attention_overtakes_at(model) == tokens


def added(parts):
    parts = list(parts)
    return Flops(attention=sum(part.attention for part in parts), matrices=sum(part.matrices for part in parts))


WINDOW_RECORDS = json.loads((REFERENCES / "transformers_windows.json").read_text())["records"]
IN_FULL = [
    pytest.param(record, id=record["id"])
    for record in WINDOW_RECORDS
    if "prefill_flops" in record and not read_config(record["config"]).unknown_attention
]


@pytest.mark.parametrize("record", IN_FULL)
def test_a_record_with_windows_costs_what_torch_counted(record):
    model = read_config(record["config"])
    for tokens, flops in record["prefill_flops"]:
        assert counter_prefill_flops(model, tokens).total == flops
    for cached, flops in record["decode_flops"]:
        assert decode_flops(model, cached).total == flops


ATTENTION_RECORDS = json.loads((REFERENCES / "transformers_attention.json").read_text())["records"]


@pytest.mark.parametrize("record", ATTENTION_RECORDS, ids=lambda record: record["id"])
def test_attention_alone_is_what_torch_counted_where_parameters_are_not_known(record):
    model = read_config(record["config"])
    for tokens, flops in record["prefill_attention_flops"]:
        assert counter_attention_flops(model, tokens) == flops
    for cached, flops in record["decode_attention_flops"]:
        assert counter_attention_flops(model, 1, cached=cached) == flops
        if all(not group.is_latent and group.transformers_trims for group in model.layer_groups):
            assert decode_attention_flops(model, cached) == flops


@pytest.mark.parametrize("cached", [0, 5, 21])
def test_a_latent_decode_is_the_expanded_one_that_torch_counts_or_the_absorbed_one(cached):
    sizes = {**SIZES, "num_key_value_heads": 4, "first_k_dense_replace": 3, "q_lora_rank": None, "kv_lora_rank": 40,
             "qk_rope_head_dim": 6, "qk_nope_head_dim": 10, "v_head_dim": 12, "n_group": 1, "topk_group": 1}  # fmt: skip
    config = DeepseekV2Config(**sizes, pad_token_id=None)
    model = as_latent(read_config({"model_type": "llama", **SIZES}))
    widths = {"key_width": 40, "value_width": 6, "nope_width": 10, "head_value_width": 12}
    model = replace(model, layer_groups=tuple(replace(group, **widths) for group in model.layer_groups))
    built = on_meta(config)
    cache = counted(built, cached)[1] if cached else None
    counts, _ = counted(built, 7, cache=cache)
    assert counter_prefill_flops(model, 7, cached=cached).total == counts
    # Absorbed: scores over the plane of 46 numbers, values over 40, and no expansion of what is cached.
    absorbed = decode_flops(model, cached)
    assert absorbed.attention == 3 * 4 * 2 * (46 + 40) * (cached + 1)
    assert absorbed.matrices == counter_prefill_flops(model, 1).matrices


@given(st.integers(0, 40), st.integers(1, 40), st.integers(1, 30))
@settings(deadline=None)
def test_a_latent_prefill_rebuilds_the_cached_tokens_in_reach(cached, tokens, window):
    model = as_latent(as_sliding(read_config({"model_type": "llama", **SIZES}), window, 3))
    whole = prefill_flops(model, tokens, cached=cached).matrices - prefill_flops(model, tokens).matrices
    # Latents of 4 x 16 numbers into keys and values of 16 in each of 4 heads, in two sliding layers and a full one.
    assert whole == 2 * 64 * 4 * 32 * (2 * min(cached, window - 1) + cached)


def test_a_run_rebuilds_what_is_cached_at_each_call():
    model = as_latent(read_config({"model_type": "llama", **SIZES}))
    run = run_prefill_flops(model, 3, 50, 10)
    steps = [prefill_flops(model, 50), prefill_flops(model, 10, cached=50), prefill_flops(model, 10, cached=60)]
    assert run.with_reuse == added(steps)
    with pytest.raises(ValueError, match="not known here for latent layers with a window"):
        run_prefill_flops(as_latent(as_sliding(model, 8, 3)), 3, 50, 10)


def test_prefill_of_latent_layers_needs_the_widths_of_their_heads():
    model = read_config({"model_type": "deepseek_v3"})
    unknown = replace(
        model, layer_groups=tuple(replace(group, nope_width=0, head_value_width=0) for group in model.layer_groups)
    )
    assert prefill_attention_flops(model, 1000) == 61 * 2 * 128 * (192 + 128) * 500_500
    assert decode_attention_flops(unknown, 999) == 61 * 2 * 128 * (576 + 512) * 1000
    with pytest.raises(ValueError, match="prefill FLOP of latent attention need the widths of a head's key and value"):
        prefill_attention_flops(unknown, 1000)


def test_an_indexer_scores_all_tokens_and_attention_reads_those_it_picks():
    model = read_config({"model_type": "deepseek_v32"})
    score, pair = 61 * 2 * 64 * 129, 61 * 2 * 128 * (576 + 512)
    assert decode_attention_flops(model, 1999) == (score + pair) * 2000
    assert decode_attention_flops(model, 99_999) == score * 100_000 + pair * 2048
    # bf16: a plane of 576 numbers for each picked token, an indexer's key of 128 for every token.
    assert decode_cache_read_bytes(model, 99_999) == 61 * 2 * (2048 * 576 + 100_000 * 128)


def test_layers_that_share_a_cache_compute_attention_and_their_reads_are_refused():
    model = read_config({"model_type": "gemma3n_text"})
    own = [group for group in model.layer_groups if group.kind != "shared"]
    assert decode_attention_flops(model, 999) == 2 * 8 * 512 * (28 * 512 + 7 * 1000)
    assert decode_attention_flops(replace(model, layer_groups=tuple(own), layer_order=()), 999) == (
        2 * 8 * 512 * (16 * 512 + 4 * 1000)
    )
    with pytest.raises(ValueError, match="what layers that share another's keys and values read is not known here"):
        decode_cache_read_bytes(model, 999)


def test_a_chunk_ends_where_the_next_begins():
    model = read_config({"model_type": "llama4_text", "attention_chunk_size": 100})
    pair = 2 * 40 * 256
    assert decode_attention_flops(model, 199) == pair * (36 * 100 + 12 * 200)
    assert decode_attention_flops(model, 200) == pair * (36 * 1 + 12 * 201)
    with pytest.raises(ValueError, match="parameters of a model with experts are not known here"):
        attention_overtakes_at(model)


@pytest.mark.parametrize(
    ("model_type", "message"),
    [
        ("qwen3_next", "attention FLOP of layers of kind 'recurrent' are not known here"),
        ("falcon_h1", "attention FLOP of layers of kind 'full with state' are not known here"),
        ("whisper", "attention FLOP of layers of kind 'full' are not known here"),
        ("cpmant", "attention FLOP of layers of kind 'full' are not known here"),
        ("diffllama", "FLOP of differential attention, as in diffllama, are not known here"),
        ("openai-gpt", "FLOP of attention without a cache, as in openai-gpt, are not known here"),
    ],
)
def test_attention_that_no_formula_covers_is_refused_by_name(model_type, message):
    for phase in (decode_attention_flops, prefill_attention_flops, counter_attention_flops):
        with pytest.raises(ValueError, match=message):
            phase(read_config({"model_type": model_type}), 100)


def test_attention_to_later_tokens_is_refused():
    model = read_config({"model_type": "gemma3_text", "use_bidirectional_attention": True})
    assert parameters(model).total > 0
    with pytest.raises(ValueError, match="FLOP of attention to later tokens, as in gemma3_text, are not known here"):
        prefill_flops(model, 100)


@pytest.mark.parametrize("name", [name for name in model_ids() if name not in WITH_FLOPS])
def test_a_preset_of_another_kind_is_refused(name):
    with pytest.raises(ValueError, match="are not known here"):
        prefill_flops(model_preset(name), 1000)


@given(st.sampled_from(WITH_FLOPS), st.integers(1, 40), st.integers(1, 10**6), st.integers(1, 10**5))
@settings(deadline=None)
def test_a_run_is_the_sum_over_its_calls(name, calls, prefix, growth):
    model = model_preset(name)
    run = run_prefill_flops(model, calls, prefix, growth)
    sizes = [prefix + growth * call for call in range(calls)]
    assert run.without_reuse == added(prefill_flops(model, size) for size in sizes)
    new = zip(sizes, [0, *sizes[:-1]])
    assert run.with_reuse == added(prefill_flops(model, size - before, cached=before) for size, before in new)


@given(st.integers(1, 40), st.integers(1, 10**6))
@settings(deadline=None)
def test_a_run_that_never_grows_computes_its_prompt_once_and_a_logit_per_call(calls, prefix):
    run = run_prefill_flops(LLAMA_8B, calls, prefix, 0)
    once = prefill_flops(LLAMA_8B, prefix)
    logits = matrix_flops(4096 * 128_256, 1)
    assert run.without_reuse == added([once] * calls)
    assert run.with_reuse == Flops(attention=once.attention, matrices=once.matrices + (calls - 1) * logits)


@given(st.integers(1, 10**4), st.integers(1, 10**6), st.integers(0, 10**5))
@settings(deadline=None)
def test_reuse_never_costs_more(calls, prefix, growth):
    run = run_prefill_flops(LLAMA_8B, calls, prefix, growth)
    assert run.with_reuse.attention <= run.without_reuse.attention
    assert run.with_reuse.matrices <= run.without_reuse.matrices


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["llama GQA", "llama with a tied head", "qwen3", "gpt2", "falcon multi_query"])
def test_decode_reads_what_the_cache_holds_with_the_new_token(name, dtype):
    config = TINY[name]
    built, model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval(), read_config(config.to_dict())
    with torch.no_grad():
        cache = built(torch.zeros(1, 21, dtype=torch.long), use_cache=True).cache
        cache = built(torch.zeros(1, 1, dtype=torch.long), cache=cache, use_cache=True).cache
    held = sum(kept.numel() * kept.element_size() for layer in cache.layers for kept in (layer.keys, layer.values))
    assert decode_cache_read_bytes(model, 21, kv_dtype=str(dtype).removeprefix("torch.")) == held


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=5))
@settings(deadline=None)
def test_decode_reads_the_cache_of_one_token_more(cached):
    read = decode_cache_read_bytes(LLAMA_8B, np.array(cached))
    assert read.tolist() == [sequence_bytes(LLAMA_8B, n + 1) for n in cached]
    assert read.tolist() == [decode_cache_read_bytes(LLAMA_8B, n) for n in cached]


def assert_each_as_alone(together, alone):
    for part in ("attention", "matrices", "total"):
        exact = [getattr(flops, part) for flops in alone]
        for ours, expected in zip(getattr(together, part).tolist(), exact, strict=True):
            assert abs(int(ours) - expected) <= expected * ROUNDING
        if max(exact) < 2**59:  # well below int64: whole numbers
            assert getattr(together, part).tolist() == exact


any_count = st.integers(0, 14).flatmap(lambda power: st.integers(1, 10**power))


@given(st.lists(st.tuples(any_count, any_count), min_size=1, max_size=4))
@example([(10**11, 1)])
@settings(deadline=None)
def test_an_array_of_prompts_costs_what_each_costs(rows):
    tokens, cached = map(np.array, zip(*rows))
    assert_each_as_alone(
        prefill_flops(LLAMA_8B, tokens, cached=cached), [prefill_flops(LLAMA_8B, n, cached=c) for n, c in rows]
    )
    assert_each_as_alone(
        decode_flops(LLAMA_8B, cached, new=tokens), [decode_flops(LLAMA_8B, c, new=n) for n, c in rows]
    )
    assert_each_as_alone(counter_prefill_flops(LLAMA_8B, tokens), [counter_prefill_flops(LLAMA_8B, n) for n, _ in rows])


@given(st.lists(st.tuples(st.integers(1, 10**5), st.integers(1, 10**6), st.integers(0, 10**5)), min_size=1, max_size=4))
@example([(100_000, 2000, 300)])
@settings(deadline=None)
def test_an_array_of_runs_costs_what_each_costs(rows):
    together = run_prefill_flops(LLAMA_8B, *map(np.array, zip(*rows)))
    alone = [run_prefill_flops(LLAMA_8B, *row) for row in rows]
    assert_each_as_alone(together.without_reuse, [run.without_reuse for run in alone])
    assert_each_as_alone(together.with_reuse, [run.with_reuse for run in alone])


@pytest.mark.parametrize("bad", [-1, 2.5, float("nan"), "7", None, True, 10**15 + 1, [1, -1]])
def test_a_count_that_is_none_is_named(bad):
    for name, call in {
        "tokens": lambda: prefill_flops(LLAMA_8B, bad),
        "cached": lambda: prefill_flops(LLAMA_8B, 1, cached=bad),
        "new": lambda: decode_flops(LLAMA_8B, 1, new=bad),
        "calls": lambda: run_prefill_flops(LLAMA_8B, bad, 1, 1),
        "prefix": lambda: run_prefill_flops(LLAMA_8B, 1, bad, 1),
        "growth": lambda: run_prefill_flops(LLAMA_8B, 1, 1, bad),
    }.items():
        with pytest.raises(ValueError, match=f"^{name} must be a whole number from"):
            call()
    with pytest.raises(ValueError, match="^cached must be a whole number from"):
        decode_cache_read_bytes(LLAMA_8B, bad)


def test_a_prefill_of_no_token_has_no_logits_and_is_refused():
    with pytest.raises(ValueError, match="^tokens must be a whole number from 1"):
        prefill_flops(LLAMA_8B, 0)


def test_a_format_that_is_not_known_is_refused_with_near_names():
    with pytest.raises(LookupError, match="unknown KV format 'bfloat61'; did you mean .*bfloat16"):
        decode_cache_read_bytes(LLAMA_8B, 1, kv_dtype="bfloat61")
