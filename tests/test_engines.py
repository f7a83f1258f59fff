"""Engines' allocation against public logs, the engines' own arithmetic by brute force, and identities."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.engines import ENGINES, engine_flags, engine_settings, engine_version
from calc.engines.vllm import vllm_window_pages
from calc.kv_cache import cache_rule, layer_bytes, sequence_bytes, sequence_memory
from calc.model_config import read_config
from calc.model_spec import LayerGroup, ModelSpec
from calc.presets import model_preset
from calc.units import GIB, MIB

LLAMA_8B, QWEN_27B, GEMMA_31B = (model_preset(name) for name in ("llama-3.1-8b", "qwen3.5-27b", "gemma-4-31b"))
SERVING = [engine for engine in ENGINES if engine not in ("ideal", "transformers")]


def vllm(model, **options):
    return cache_rule(model, engine="vllm", **options)


def blocks_of(rule):
    """Tokens of the attention layers' pages, and by how much states are padded, in percent."""
    (block,) = {group.page.block_tokens for group in rule.page_groups() if group.page.kind == "full"}
    (padding,) = {
        group.page.page_bytes / group.page.used_bytes - 1 for group in rule.page_groups() if group.page.kind == "state"
    }
    return block, round(100 * padding, 2)


@pytest.mark.parametrize(
    ("options", "block", "padding"),
    [
        ({}, 784, 0.13),  # LMCache #5079; vLLM 0.19.1 log of Qwen3.5-27B
        ({"kv_dtype": "fp8"}, 1568, 0.13),  # club-3090 #1047
        ({"draft_tokens": 15, "state_dtype": "bf16"}, 480, 1.27),  # qwen38-27b-rtx3090 #102, arm 1
        ({"draft_tokens": 7, "state_dtype": "bf16", "kv_dtype": "int8"}, 864, 1.09),  # the same, arm 2
    ],
)
def test_vllm_grows_attention_pages_to_the_states_as_its_log_says(options, block, padding):
    assert blocks_of(vllm(QWEN_27B, **options)) == (block, padding)


def test_qwen3_next_has_the_logged_blocks_of_544_on_two_ranks():
    # vLLM #54076 and others: states in bfloat16, since the config names no type
    assert blocks_of(vllm(model_preset("qwen3-next-80b-a3b"), tensor_parallel=2))[0] == 544


@pytest.mark.parametrize(
    ("available_gib", "max_len", "blocks", "tokens"),
    [(4.99, 131_072, 208, 302_921), (9.84, 262_144, 411, 619_202)],  # talos-argocd-proxmox #1995, club-3090 #104
)
def test_vllm_serves_the_logged_tokens_of_a_hybrid(available_gib, max_len, blocks, tokens):
    rule = vllm(QWEN_27B, kv_dtype="fp8", tensor_parallel=2)
    every_layer = range(QWEN_27B.layers)
    assert rule.bytes_per_block(every_layer) == 25_690_112
    assert int(available_gib * GIB // rule.bytes_per_block(every_layer)) == blocks
    assert int(blocks / rule.request_blocks(max_len) * max_len) == tokens


def test_pages_of_two_head_shapes_are_made_equal_as_hf_mem_61_states():
    groups = vllm(GEMMA_31B).page_groups()
    assert [(g.page.kind, g.page.block_tokens, g.page.page_bytes, len(g.layers)) for g in groups] == [
        *[("sliding", 16, 262_144, 10)] * 5,
        ("full", 32, 262_144, 10),
    ]
    assert int(24.54 * GIB // vllm(GEMMA_31B).bytes_per_block(range(60))) // 6 * 16 == 26_800


@pytest.mark.parametrize(("kind", "layers"), [("full", 13), ("sliding", 12)])
def test_nearly_equal_numbers_of_layers_make_groups_of_the_larger(kind, layers):
    # vLLM's own example: 12 sliding and 13 full layers are padded to 13 and 13, not to 12 and 24.
    config = {"model_type": "gemma3_text", "num_hidden_layers": 25,
              "layer_types": ["full_attention"] * 13 + ["sliding_attention"] * 12}  # fmt: skip
    groups = {group.page.kind: group for group in vllm(read_config(config)).page_groups()}
    assert len(groups) == 2
    assert (len(groups[kind].layers), groups[kind].padding_layers) == (layers, 13 - layers)


def test_layers_of_a_group_are_dealt_out_over_the_depth_of_the_model():
    # vLLM's own example: full, sliding, sliding, full, sliding, sliding over two stages.
    config = {"model_type": "gemma3_text", "num_hidden_layers": 6,
              "layer_types": ["full_attention", "sliding_attention", "sliding_attention"] * 2}  # fmt: skip
    groups = vllm(read_config(config)).page_groups()
    assert {group.layers for group in groups} == {(0, 3), (1, 4), (2, 5)}
    one, two = (sequence_memory(read_config(config), 5000, engine="vllm", pipeline_parallel=n) for n in (1, 2))
    assert one.bytes == two.bytes == 2 * two.bytes_per_rank


@given(st.integers(1, 10**6), st.sampled_from([1, 16, 32, 64, 128]), st.sampled_from([1, 2, 4, 8, 16]))
@settings(deadline=None)
def test_full_attention_takes_whole_pages_and_less_than_one_too_many(tokens, block, ranks):
    ideal = sequence_bytes(LLAMA_8B, tokens, tensor_parallel=ranks)
    paged = sequence_bytes(LLAMA_8B, tokens, engine="vllm", tensor_parallel=ranks, block_tokens=block)
    page = block * sequence_bytes(LLAMA_8B, 1, tensor_parallel=ranks)
    assert paged % page == 0
    assert 0 <= paged - ideal < page
    assert sequence_bytes(LLAMA_8B, tokens, engine="sglang", tensor_parallel=ranks, page_tokens=block) == paged


def pages_in_use(window, tokens, in_flight, block):
    """Most pages that hold a token still wanted, wherever a chunk of the prompt begins: by brute force."""
    most = 0
    for computed in range(tokens + 1):
        scheduled = min(in_flight, tokens - computed)
        first, last = max(0, computed - (window - 1)), computed + scheduled - 1
        if last >= first:
            most = max(most, last // block - first // block + 1)
    return most


@given(st.integers(1, 60), st.integers(1, 200), st.integers(1, 50), st.sampled_from([1, 2, 4, 16]))
@settings(deadline=None)
def test_vllm_keeps_enough_pages_for_a_window_and_at_most_one_more(window, tokens, in_flight, block):
    reserved = int(vllm_window_pages(tokens, window, in_flight, block))
    needed = pages_in_use(window, tokens, in_flight, block)
    assert needed <= reserved
    whole = math.ceil(tokens / block)
    assert reserved <= math.ceil(min(window - 1 + in_flight, tokens) / block) + 1 <= whole + 1


def test_a_windowed_layer_beyond_its_window_stops_growing_under_vllm():
    memory = sequence_memory(GEMMA_31B, 1_000_000, engine="vllm")
    assert memory.slope_bytes_per_token == 81_920  # facts/kv_cache.md, section 4: the slope after the window
    pages = math.ceil((1024 - 1 + 2 * 8192) / 16) + 1
    assert memory.plateau_bytes == 5 * pages * 10 * 262_144
    assert memory.bytes == memory.plateau_bytes + math.ceil(1_000_000 / 32) * 10 * 262_144
    off = sequence_memory(GEMMA_31B, 1024, engine="vllm", hybrid_manager=False)
    assert off.slope_bytes_per_token == 901_120  # the same table: all layers full


def test_each_stage_of_a_pipeline_has_a_batch_in_flight_and_the_scheduler_one_more():
    # vLLM's max_concurrent_batches with asynchronous scheduling: the stages and one.
    gemma = model_preset("gemma-3-27b")
    for stages in (1, 2, 4):
        ours = sequence_memory(gemma, 131_072, engine="vllm", pipeline_parallel=stages)
        said = sequence_memory(gemma, 131_072, engine="vllm", pipeline_parallel=stages, batches_in_flight=stages + 1)
        assert ours == said
        assert ours.plateau_bytes % (math.ceil((1023 + (stages + 1) * 8192) / 16) + 1) == 0


def test_the_window_pool_of_sglang_holds_whole_pages():
    gpt_oss = model_preset("gpt-oss-120b")
    full = math.ceil(10_001 / 64) * 64
    window = full * 4 // 5 // 64 * 64
    assert sequence_bytes(gpt_oss, 10_001, engine="sglang", page_tokens=64) == (full + window) * 18 * 2 * 8 * 64 * 2


def test_chunked_layers_keep_a_chunk_and_what_is_in_flight():
    scout = model_preset("llama-4-scout")
    memory = sequence_memory(scout, 1_000_000, engine="vllm", batched_tokens=2048, batches_in_flight=1)
    assert memory.slope_bytes_per_token == 49_152  # facts/kv_cache.md, section 4
    assert memory.plateau_bytes == 36 * math.ceil((8192 + 2048) / 16) * 16 * 4096


def test_prefix_caching_keeps_a_state_twice_and_drafts_keep_one_each():
    rule = vllm(QWEN_27B)
    floors = [
        sequence_memory(QWEN_27B, 1, engine="vllm", **options).floor_bytes / rule.bytes_per_block(range(64))
        for options in ({}, {"prefix_caching": False})
    ]
    assert floors == [3 * 2, 3 * 1]
    state_only = read_config({"model_type": "mamba2"})
    with_drafts = [sequence_memory(state_only, 1, engine="vllm", draft_tokens=n) for n in (0, 3)]
    assert with_drafts[1].floor_bytes > 4 * with_drafts[0].floor_bytes  # four copies, each with a longer convolution


@pytest.mark.parametrize(
    ("tokens", "slots", "mib"),
    [(8192, 1, 39), (8192, 2, 54), (8192, 4, 84), (1024, 3, 27), (1024, 4, 18)],  # unslothai/unsloth #7530
)
def test_llama_cpp_takes_the_measured_memory_of_a_small_gemma(tokens, slots, mib):
    config = {"model_type": "gemma3_text", "num_hidden_layers": 18, "sliding_window": 512, "head_dim": 256,
              "num_attention_heads": 4, "num_key_value_heads": 1, "sliding_window_pattern": 6}  # fmt: skip
    assert sequence_bytes(read_config(config), tokens, engine="llama.cpp", slots=slots) == mib * MIB


def test_llama_cpp_allocates_two_caches_for_gemma_3_4b():
    memory = sequence_memory(model_preset("gemma-3-4b"), 131_072, engine="llama.cpp")  # ollama #17037
    assert (memory.bytes - memory.plateau_bytes, memory.plateau_bytes) == (2560 * MIB, 174 * MIB)
    full = sequence_bytes(model_preset("gemma-3-4b"), 131_072, engine="llama.cpp", full_windows=True)
    assert full == 17_408 * MIB


@pytest.mark.parametrize("engine", ["llama.cpp", "sglang"])
def test_a_model_of_windows_alone_is_kept_in_full(engine):
    # llama.cpp reads the first Mistral as a Llama, which has no windows; SGLang splits the pool of hybrid models only.
    assert sequence_bytes(model_preset("mistral-7b-v0.1"), 32_768, engine=engine) == 32_768 * 131_072


def test_windows_that_llama_cpp_does_not_load_are_kept_in_full():
    config = {"model_type": "qwen2", "num_hidden_layers": 24, "use_sliding_window": True, "max_window_layers": 12,
              "sliding_window": 4096, "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 128}  # fmt: skip
    model = read_config(config)
    assert sequence_bytes(model, 8192, engine="llama.cpp") == 8192 * 24 * 2 * 32 * 128 * 2


@pytest.mark.parametrize(
    ("tokens", "kv_dtype", "mib"),
    [(32_768, "fp16", 2196), (32_768, "q8_0", 1166.62), (80_000, "fp16", 5369.91)],  # ik_llama.cpp #259, #473
)
def test_llama_cpp_keeps_one_latent_row_in_padded_cells(tokens, kv_dtype, mib):
    ours = sequence_bytes(model_preset("deepseek-r1"), tokens, engine="llama.cpp", kv_dtype=kv_dtype)
    assert round(ours / MIB, 2) == pytest.approx(mib, abs=0.006)


@pytest.mark.parametrize(
    ("layers", "cells", "formats", "mib"),
    [  # llama.cpp #21551
        (40, 6656, ("fp16", None), 1040),
        (40, 6656, ("q8_0", None), 552.5),
        (40, 6656, ("q4_0", None), 292.5),
        (40, 6656, ("q4_0", "q1_0"), 182.81),
        (36, 2560, ("fp16", None), 360),
        (36, 2560, ("q4_0", "q1_0"), 63.28),
    ],
)
def test_keys_and_values_come_in_formats_of_their_own(layers, cells, formats, mib):
    config = {"model_type": "llama", "num_hidden_layers": layers, "num_attention_heads": 32, "num_key_value_heads": 8}
    keys, values = formats
    ours = sequence_bytes(read_config(config), cells, engine="llama.cpp", kv_dtype=keys, value_dtype=values)
    assert round(ours / MIB, 2) == mib


def test_without_flash_attention_values_are_as_wide_as_the_widest():
    full = sequence_bytes(GEMMA_31B, 1024, engine="llama.cpp", full_windows=True)
    padded = sequence_bytes(GEMMA_31B, 1024, engine="llama.cpp", full_windows=True, flash_attention=False)
    assert padded - full == 1024 * 10 * (16 * 256 - 4 * 512) * 2  # ten full layers with half as many numbers


def test_sglang_keeps_the_key_of_an_indexer_with_its_scale():
    memory = sequence_memory(model_preset("deepseek-v3.2"), 1, engine="sglang")
    assert memory.bytes == 61 * (576 * 2 + 128 + 4)  # facts/kv_cache.md, 3.2
    # sglang #11309: 975,424 tokens and a page of 64 in 43.67 GiB
    fp8 = sequence_memory(model_preset("deepseek-v3.2"), 975_424 + 64, engine="sglang", kv_dtype="fp8")
    assert round(fp8.bytes / GIB, 2) == 43.67
    fp8 = sequence_memory(model_preset("deepseek-v3.2"), 64, engine="vllm", kv_dtype="fp8")
    assert fp8.bytes == 64 * 61 * (656 + 132)


def test_sglang_gives_windowed_layers_four_fifths_of_the_tokens():
    memory = sequence_memory(GEMMA_31B, 10_000, engine="sglang")
    assert memory.bytes == 10_000 * 81_920 + 8_000 * (901_120 - 81_920)
    assert memory.slope_bytes_per_token == 81_920 + 4 * (901_120 - 81_920) // 5


def test_sglang_keeps_three_slots_of_a_state():
    one, three = (sequence_memory(QWEN_27B, 0, engine="sglang", state_slots=n).bytes for n in (1, 3))
    assert three == 3 * one == 3 * sequence_bytes(QWEN_27B, 0) == 3 * 48 * 3_207_168


@st.composite
def attention_models(draw):
    """Models of full and windowed layers in any order."""
    groups = []
    for window in draw(st.lists(st.sampled_from([None, 1, 100, 4096]), min_size=1, max_size=3)):
        heads = draw(st.sampled_from([1, 2, 8]))
        groups.append(
            LayerGroup(
                kind="sliding" if window else "full",
                layers=draw(st.integers(1, 12)),
                query_heads=heads,
                kv_heads=heads,
                key_width=64,
                value_width=64,
                window=window,
            )  # fmt: skip
        )
    return ModelSpec(name="any", model_type="any", layer_groups=tuple(groups), weights=None, max_context=None)


@settings(deadline=None)
@given(attention_models(), st.integers(0, 10**5), st.integers(0, 10**5), st.sampled_from(SERVING))
def test_more_tokens_never_take_less_under_any_engine(model, tokens, more, engine):
    assert sequence_bytes(model, tokens + more, engine=engine) >= sequence_bytes(model, tokens, engine=engine)


@settings(deadline=None)
@given(attention_models(), st.integers(0, 10**5), st.sampled_from(["vllm", "llama.cpp"]))
def test_an_engine_never_holds_less_than_must_be_kept(model, tokens, engine):
    assert sequence_bytes(model, tokens, engine=engine) >= sequence_bytes(model, tokens)


@settings(deadline=None)
@given(attention_models(), st.integers(0, 10**5))
def test_pages_of_all_groups_add_up_to_what_a_request_takes(model, tokens):
    rule = vllm(model)
    groups = rule.page_groups()
    assert sorted(index for group in groups for index in group.layers) == list(range(model.layers))
    assert sequence_bytes(model, tokens, engine="vllm") == rule.request_blocks(tokens) * rule.bytes_per_block(
        range(model.layers)
    )
    padding = sum(
        group.padding_layers * group.page.page_bytes * rule.request_pages(group.page, tokens) for group in groups
    )
    of_layers = sum(layer.bytes for layer in layer_bytes(model, tokens, engine="vllm"))
    assert of_layers + padding == sequence_bytes(model, tokens, engine="vllm")


@settings(deadline=None)
@given(attention_models(), st.sampled_from(SERVING), st.integers(0, 50))
def test_floor_slope_and_plateau_are_the_curve_beyond_every_window(model, engine, steps):
    rule = cache_rule(model, engine=engine)
    tokens = rule.step * (steps + -(-rule.full_windows_at // rule.step))
    memory = sequence_memory(model, tokens, engine=engine)
    expected = memory.floor_bytes + memory.plateau_bytes + memory.slope_bytes_per_token * tokens
    assert memory.bytes == pytest.approx(expected, rel=1e-12, abs=0)


@settings(deadline=None)
@given(attention_models(), st.lists(st.integers(0, 10**6), min_size=1, max_size=5), st.sampled_from(SERVING))
def test_an_array_of_tokens_gives_what_each_gives(model, tokens, engine):
    together = sequence_bytes(model, np.array(tokens), engine=engine)
    assert np.broadcast_to(together, len(tokens)).tolist() == [sequence_bytes(model, n, engine=engine) for n in tokens]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"engine": "vllm", "page_tokens": 2},
            "settings of the vllm rule must be among block_tokens, .* got page_tokens",
        ),
        ({"engine": "ideal", "block_tokens": 2}, "settings of the ideal rule must be among none, got block_tokens"),
        ({"engine": "vllm", "kv_dtype": "q8_0"}, "kv_dtype of the vllm rule must be one of bf16, .* got q8_0"),
        ({"engine": "transformers", "kv_dtype": "fp8"}, "kv_dtype of the transformers rule must be one of bf16, fp16"),
        ({"engine": "vllm", "value_dtype": "fp8"}, "value_dtype must be bf16 under the vllm rule, .* got fp8"),
        ({"engine": "vllm", "block_tokens": 0}, "block_tokens must be a whole number from 1 .* got 0"),
        ({"engine": "vllm", "batched_tokens": -1}, "batched_tokens must be a whole number from 1 .* got -1"),
        (
            {"engine": "sglang", "swa_full_tokens_ratio": 0},
            "swa_full_tokens_ratio must be a number from 0.001 to 1, got 0",
        ),
        ({"engine": "sglang", "page_tokens": 1.5}, "page_tokens must be a whole number from 1 .* got 1.5"),
        ({"engine": "vllm", "prefix_caching": 3}, "prefix_caching must be true or false, got '3'"),
        (
            {"engine": "llama.cpp", "value_dtype": "q4_0", "flash_attention": False},
            "value_dtype must be a plain type without flash attention .* got q4_0",
        ),
        ({"engine": "llama.cpp", "unified": None}, "unified must be true or false, got 'None'"),
        ({"engine": "llama.cpp", "slots": 0}, "slots must be a whole number from 1 to 65,536, got 0"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        sequence_bytes(LLAMA_8B, 1, **options)


def test_layers_that_an_engine_has_no_rule_for_are_refused_by_name():
    indexed = LayerGroup(
        kind="indexed", layers=1, query_heads=1, kv_heads=1, key_width=64, value_width=64, index_width=64
    )
    model = replace(LLAMA_8B, layer_groups=(indexed,), layer_order=())
    for engine in ("vllm", "sglang"):
        with pytest.raises(ValueError, match=f"layers of kind indexed are not known under the {engine} rule"):
            sequence_bytes(model, 1, engine=engine)
    t5 = LayerGroup(kind="full", layers=1, query_heads=1, kv_heads=1, key_width=64, value_width=64, cross_kv_heads=1)
    with pytest.raises(ValueError, match="layers of kind cross are not known under the llama.cpp rule"):
        sequence_bytes(replace(LLAMA_8B, layer_groups=(t5,)), 1, engine="llama.cpp")
    mixed = (
        LayerGroup(kind="latent", layers=1, query_heads=1, kv_heads=1, key_width=512, value_width=64),
        LayerGroup(kind="sliding", layers=1, query_heads=1, kv_heads=1, key_width=64, value_width=64, window=8),
        LayerGroup(kind="full", layers=1, query_heads=8, kv_heads=8, key_width=80, value_width=80),
    )
    with pytest.raises(ValueError, match="pages of 73,728 bytes of latent rows do not divide the largest page"):
        sequence_bytes(replace(LLAMA_8B, layer_groups=mixed), 1, engine="vllm")


@pytest.mark.parametrize(
    ("engine", "flag", "value"),
    [
        ("vllm", "block_size", 128),
        ("vllm", "max_num_batched_tokens", 2048),
        ("vllm", "enable_prefix_caching", False),
        ("vllm", "num_speculative_tokens", 3),
        ("vllm", "mamba_ssm_cache_dtype", "bf16"),
        ("sglang", "page_size", 64),
        ("llama.cpp", "parallel", 3),
        ("llama.cpp", "kv_unified", True),
        ("llama.cpp", "ubatch_size", 2048),
        ("llama.cpp", "swa_full", True),
    ],
)
def test_a_setting_may_have_the_engine_s_own_name(engine, flag, value):
    assert engine_flags(engine)[flag] in engine_settings(engine)
    for model in (GEMMA_31B, QWEN_27B):
        ours = sequence_bytes(model, 10_001, engine=engine, **{engine_flags(engine)[flag]: value})
        assert sequence_bytes(model, 10_001, engine=engine, **{flag: value}) == ours


def test_engines_say_their_versions_and_settings():
    assert ENGINES == ("ideal", "transformers", "vllm", "sglang", "llama.cpp")
    assert "0.32.0" in engine_version("vllm")
    assert engine_settings("vllm")["block_tokens"] is None
    assert engine_settings("ideal") == {}
