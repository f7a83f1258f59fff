"""Layouts against models that transformers builds with those shapes, published head counts, and identities."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, Cohere2Config, DeepseekV2Config, Gemma2Config

from calc.kv_cache import layer_bytes, sequence_bytes, sequence_memory
from calc.layouts import LAYOUTS, as_latent, as_sliding, head_layouts, layout, with_kv_heads
from calc.model_config import read_config
from calc.model_spec import LayerGroup
from calc.names import UnknownName
from calc.presets import model_ids, model_preset
from calc.units import GIB
from calc.weights import parameters
from tests.llamas import llama, shared_heads

LLAMA = model_preset("llama-3.1-8b")
SIZES = {"vocab_size": 160, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
         "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}  # fmt: skip
WITH_KV_HEADS = [
    name
    for name in model_ids()
    if all(group.kind in ("full", "sliding", "chunked") for group in model_preset(name).layer_groups)
]


def built(config):
    """A model of shapes without numbers."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config).eval()


def held_bytes(model, tokens):
    """Bytes of the keys and values that a transformers model holds after a prefill, layer by layer."""
    with torch.no_grad():
        cache = model(torch.zeros(1, tokens, dtype=torch.long, device="meta"), use_cache=True).cache
    return [sum(kept.numel() * kept.element_size() for kept in (layer.keys, layer.values)) for layer in cache.layers]


def kv_heads_of(layouts):
    return {label: {group.kv_heads for group in model.layer_groups} for label, model in layouts.items()}


def test_the_layouts_of_llama_are_its_own_and_two_other_models():
    model = model_preset("llama-3.1-8b")
    layouts = head_layouts(model)
    assert kv_heads_of(layouts) == {"MHA": {32}, "GQA-8": {8}, "MQA": {1}}
    assert list(layouts) == ["MHA", "GQA-8", "MQA"]
    assert layouts["GQA-8"] is model
    assert [sequence_bytes(same, 128_000) / GIB for same in layouts.values()] == [62.5, 15.625, 15.625 / 8]


def test_71_query_heads_are_prime_so_falcon_has_no_grouped_layout():
    model = model_preset("falcon-7b")
    layouts = head_layouts(model)
    assert kv_heads_of(layouts) == {"MHA": {71}, "MQA": {1}}
    assert layouts["MQA"] is model
    assert sequence_bytes(layouts["MHA"], 1000) == 71 * sequence_bytes(model, 1000)


def test_the_grouped_layout_of_gpt2_is_another_model():
    model = model_preset("gpt2")
    layouts = head_layouts(model)
    assert kv_heads_of(layouts) == {"MHA": {12}, "GQA-3": {3}, "MQA": {1}}
    assert layouts["MHA"] is model
    for label in ("GQA-3", "MQA"):
        assert layouts[label].name != model.name
        assert not layouts[label].config_text  # no config gives this model


@given(shared_heads().filter(lambda heads: heads[0] > 1))
@settings(deadline=None)
def test_layouts_run_from_most_to_fewest_heads_and_hold_the_model_itself(heads):
    query_heads, kv_heads = heads
    model = llama(query_heads, kv_heads)
    layouts = head_layouts(model)
    shown = [group.kv_heads for same in layouts.values() for group in same.layer_groups]
    assert shown == sorted(shown, reverse=True)
    assert (shown[0], shown[-1]) == (query_heads, 1)
    assert model in layouts.values()
    for label, same in layouts.items():
        assert label.split("-")[0] == same.layout
    between = [n for n in range(2, query_heads) if query_heads % n == 0]
    assert len(layouts) == (3 if between else 2)
    if kv_heads in (1, query_heads) and between:
        assert abs(shown[1] - query_heads / 4) == min(abs(n - query_heads / 4) for n in between)


def test_layouts_need_the_same_heads_in_all_layers():
    model = model_preset("llama-3.1-8b")
    (group,) = model.layer_groups
    mixed = replace(model, layer_groups=(group, replace(group, kv_heads=4)))
    with pytest.raises(ValueError, match=r"must be the same in all layers.*\(32, 4\), \(32, 8\)"):
        head_layouts(mixed)
    assert sequence_bytes(mixed, 10) == sequence_bytes(model, 10) + sequence_bytes(with_kv_heads(model, 4), 10)


def dense_deepseek(layers, query_heads, head_width):
    """DeepSeek-V2 without experts and without a rank for queries, in the proportions of its paper."""
    return DeepseekV2Config(
        **{**SIZES, "num_attention_heads": query_heads, "num_key_value_heads": query_heads},
        num_hidden_layers=layers,
        first_k_dense_replace=layers,
        q_lora_rank=None,
        kv_lora_rank=4 * head_width,
        qk_rope_head_dim=head_width // 2,
        qk_nope_head_dim=head_width,
        v_head_dim=head_width,
        n_routed_experts=2,
        num_experts_per_tok=1,
        n_group=1,
        topk_group=1,
    )


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("layers", "heads", "head_width"), [(1, 4, 16), (3, 4, 32), (2, 8, 24)])
def test_a_llama_as_mla_has_the_parameters_and_the_cache_of_a_dense_deepseek(layers, heads, head_width, bias):
    theirs = built(dense_deepseek(layers, heads, head_width))
    fields = {
        "num_attention_heads": heads,
        "num_key_value_heads": 2,
        "head_dim": head_width,
        "num_hidden_layers": layers,
    }
    own = read_config({"model_type": "llama", **SIZES, **fields, "attention_bias": bias})
    ours = as_latent(own)
    # DeepSeek's biases stand on plane and output only; ours on the query too, as the model's own do.
    biases = bias * layers * (heads * head_width * 3 // 2 + head_width * 9 // 2 + 64)
    assert parameters(ours).total == sum(weight.numel() for weight in theirs.parameters()) + biases
    cached = [layer.bytes for layer in layer_bytes(ours, 21, kv_dtype="fp32")]
    assert cached == held_bytes(theirs, 21)
    assert ours.layout == "MLA"


def test_llama_3_1_8b_as_mla_keeps_deepseek_v2s_576_numbers_a_layer():
    assert sequence_memory(as_latent(LLAMA), 1).slope_bytes_per_token == 32 * 576 * 2


def test_a_latent_plane_is_on_every_rank_and_windows_stay():
    ours = as_latent(read_config({"model_type": "gemma2", "head_dim": 64}))
    assert {(group.kind, group.window) for group in ours.layer_groups} == {("sliding latent", 4096), ("latent", None)}
    alone, spread = (sequence_memory(ours, 10_000, tensor_parallel=ranks) for ranks in (1, 8))
    assert spread.bytes_per_rank == alone.bytes_per_rank


@pytest.mark.parametrize("config_class", [Cohere2Config, Gemma2Config])
@pytest.mark.parametrize("layers", [1, 4, 7, 8])
def test_a_llama_that_slides_keeps_what_a_model_of_such_a_pattern_keeps(config_class, layers):
    every = {Cohere2Config: 4, Gemma2Config: 2}[config_class]
    fields = {**SIZES, "num_key_value_heads": 2, "head_dim": 16, "num_hidden_layers": layers}
    theirs = built(config_class(**fields, sliding_window=9))
    ours = as_sliding(read_config({"model_type": "llama", **fields}), 9, every)
    for tokens in (5, 9, 30):
        held = layer_bytes(ours, tokens, kv_dtype="fp32", engine="transformers")
        assert [layer.bytes for layer in held] == held_bytes(theirs, tokens)


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 10**6))
@settings(deadline=None)
def test_one_layer_in_so_many_stays_full(layers, every, window):
    model = as_sliding(llama(8, 2, num_hidden_layers=layers), window, every)
    kinds = [model.layer_groups[index].kind for index in model.groups_in_order]
    assert kinds == ["sliding" if (i + 1) % every else "full" for i in range(layers)]
    assert {group.window for group in model.layer_groups if group.kind == "sliding"} <= {window}
    assert model.layers == layers


def test_layers_without_keys_and_values_do_not_count_towards_the_full_one():
    hybrid = read_config({"model_type": "qwen3_next", "num_hidden_layers": 16})
    model = as_sliding(hybrid, 100, 2)
    kinds = [model.layer_groups[index].kind for index in model.groups_in_order]
    assert kinds == (["recurrent"] * 3 + ["sliding"] + ["recurrent"] * 3 + ["full"]) * 2


@pytest.mark.parametrize("name", WITH_KV_HEADS)
def test_windows_change_no_parameters_and_a_window_beyond_the_context_no_bytes(name):
    model = model_preset(name)
    slid = as_sliding(model, 10**6, 4)
    assert sequence_bytes(slid, 10**6) == sequence_bytes(as_sliding(model, 10**6, 1), 10**6)
    assert sequence_bytes(as_sliding(model, 100, 4), 10**5) < sequence_bytes(slid, 10**5)
    if model.weights:
        assert parameters(slid) == parameters(model)


def test_a_layout_has_the_name_of_its_heads():
    kv_heads = {name: {group.kv_heads for group in layout(LLAMA, name).layer_groups} for name in LAYOUTS}
    assert kv_heads == {
        "own": {8},
        "MHA": {32},
        "GQA-8": {8},
        "GQA-4": {4},
        "MQA": {1},
        "MLA": {1},
        "sliding-1-in-4": {8},
    }
    assert [layout(LLAMA, name) is LLAMA for name in LAYOUTS] == [name in ("own", "GQA-8") for name in LAYOUTS]
    assert len({layout(LLAMA, name).name for name in LAYOUTS}) == 6
    assert all(layout(LLAMA, name).config_text == "" for name in LAYOUTS if name not in ("own", "GQA-8"))
    assert layout(LLAMA, "sliding-1-in-4") == as_sliding(LLAMA, 4096, 4)
    assert layout(LLAMA, "sliding-1-in-4", window=512) == as_sliding(LLAMA, 512, 4)


def test_mha_gives_each_group_as_many_kv_heads_as_it_has_query_heads():
    (group,) = LLAMA.layer_groups
    mixed = replace(LLAMA, layer_groups=(group, replace(group, query_heads=64)))
    assert [group.kv_heads for group in layout(mixed, "MHA").layer_groups] == [32, 64]


def test_a_model_with_latent_attention_is_its_own_mla():
    model = model_preset("deepseek-v3")
    assert layout(model, "MLA") is model


def test_fewer_kv_heads_take_fewer_parameters_by_their_projections():
    # Each KV head is a key and a value projection of 4,096 x 128 in each of 32 layers.
    own = parameters(LLAMA).total
    for name, heads in {"MHA": 32, "GQA-4": 4, "MQA": 1}.items():
        assert parameters(layout(LLAMA, name)).total - own == 32 * (heads - 8) * 2 * 4096 * 128


@pytest.mark.parametrize(
    ("name", "model_type", "message"),
    [
        ("MQA", "deepseek_v3", "layers of kind 'latent' have no KV heads to change"),
        ("MHA", "qwen3_next", "layers of kind 'recurrent' have no KV heads to change"),
        ("MLA", "falcon_h1", "layers of kind 'full with state' have no latent form here"),
        ("MLA", "deepseek_v32", "layers of kind 'indexed latent' have no latent form here"),
        ("MLA", "whisper", "layers of kind 'full' have no latent form here"),
        ("sliding-1-in-4", "deepseek_v32", "layers of kind 'indexed latent' have no window to set here"),
        ("GQA-8", "gpt2", "query_heads must be a multiple of kv_heads = 8, got 12"),
    ],
)
def test_a_model_that_cannot_have_a_layout_is_refused(name, model_type, message):
    with pytest.raises(ValueError, match=message):
        layout(read_config({"model_type": model_type}), name)


def test_a_layout_that_is_not_known_is_refused_with_near_names():
    with pytest.raises(UnknownName, match="unknown layout 'GQA-7'; did you mean GQA-8 or GQA-4"):
        layout(LLAMA, "GQA-7")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: as_sliding(LLAMA, 0), "^window must be a whole number from 1"),
        (lambda: as_sliding(LLAMA, [1, 2]), "^window must be .* one number"),
        (lambda: as_sliding(LLAMA, 8, 0), "^every must be a whole number from 1"),
        (lambda: with_kv_heads(LLAMA, 0), "^kv_heads must be a whole number from 1"),
        (lambda: with_kv_heads(LLAMA, [8]), "^kv_heads must be .* one number"),
    ],
)
def test_a_number_out_of_range_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_width_of_a_latent_layer_is_checked():
    with pytest.raises(ValueError, match="^nope_width must be a whole number from 0"):
        LayerGroup(kind="latent", layers=1, query_heads=1, kv_heads=1, key_width=4, nope_width=-1)
