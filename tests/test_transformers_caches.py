"""The cache of every kind of layer, byte for byte, against what transformers holds; and what ideal caches obey."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from calc.flops import counter_attention_flops, prefill_flops
from calc.kv_cache import layer_bytes, sequence_bytes, sequence_memory
from calc.layouts import layouts_to_compare
from calc.model_config import config_as_read, read_config
from calc.model_spec import LayerGroup, ModelSpec, State
from calc.weights import parameters

REFERENCES = Path(__file__).parent / "references"
RECORDS = json.loads((REFERENCES / "transformers_caches.json").read_text())["records"]
KV_DTYPE = {"bfloat16": "bf16", "float32": "fp32"}
REFUSED = {
    "reformer": "hidden states and hash buckets instead of keys and values: a memory of an older kind",
    "xlstm": "one counter for all layers beside matrix memories of rounded widths",
    "xlstm-f32": "one counter for all layers beside matrix memories of rounded widths",
}
"""Records that are refused by name, and why."""
READ = [pytest.param(record, id=record["id"]) for record in RECORDS if record["id"] not in REFUSED]
CONFIGS = [record["config"] for record in RECORDS if record["id"] not in REFUSED]


def bytes_by_layer(model, tokens, **options):
    return [layer.bytes for layer in layer_bytes(model, tokens, engine="transformers", **options)]


@pytest.mark.parametrize("record", READ)
def test_every_layer_holds_the_bytes_that_transformers_holds(record):
    model = read_config(record["config"])
    options = {"kv_dtype": KV_DTYPE[record["dtype"]], "encoder_tokens": record["encoder_tokens"]}
    for tokens, expected in record["bytes"].items():
        layers = bytes_by_layer(model, int(tokens), **options)
        whole = sum(layers)
        assert whole == sequence_bytes(model, int(tokens), engine="transformers", **options)
        if isinstance(expected, list) and expected:
            assert layers == expected
        else:  # one tensor for all layers, or a model without a cache
            assert whole == (expected or 0)


def test_few_records_are_refused_and_each_by_name():
    for record in RECORDS:
        if record["id"] in REFUSED:
            with pytest.raises(ValueError, match=f"unknown model_type '{record['config']['model_type']}'"):
                read_config(record["config"])
    assert REFUSED.keys() <= {record["id"] for record in RECORDS}
    print(f"{len(REFUSED)} of {len(RECORDS)} records refused: {len(REFUSED) / len(RECORDS):.1%}")
    assert len(REFUSED) / len(RECORDS) <= 0.03


@pytest.mark.parametrize("record", READ)
def test_the_config_as_read_gives_the_same_model(record):
    model = read_config(record["config"])
    assert read_config(config_as_read(model)) == replace(model, unread_fields=())


# Random small models of families and sizes that the records do not hold. A cache is walked tensor by tensor.
SIZES = {"hidden_size": 120, "num_hidden_layers": 7, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 20,
         "intermediate_size": 40, "vocab_size": 99, "max_position_embeddings": 256, "sliding_window": 9,
         "use_sliding_window": True, "max_window_layers": 4, "kv_lora_rank": 18, "q_lora_rank": 14,
         "qk_rope_head_dim": 6, "qk_nope_head_dim": 10, "v_head_dim": 12, "index_head_dim": 10, "index_n_heads": 2,
         "index_topk": 4, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
         "moe_intermediate_size": 24, "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "conv_L_cache": 5,
         "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 6, "linear_value_head_dim": 10,
         "linear_conv_kernel_dim": 3, "expand": 2, "state_size": 6, "conv_kernel": 3, "mamba_d_state": 6,
         "mamba_d_conv": 3, "mamba_expand": 2, "attention_chunk_size": 7, "num_kv_shared_layers": 2,
         "sliding_window_pattern": 3, "global_attn_every_n_layers": 3, "moe_num_experts": 4, "moe_k": 2,
         "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
OTHERS = ["afmoe", "arcee", "aria_text", "axk2", "beam", "bitnet", "cohere2", "cohere2_moe", "cwm", "deepseek_v3", "dots1",
          "ernie4_5", "exaone4", "exaone_moe", "falcon_mamba", "flex_olmo", "flint", "gemma2", "gemma3_text",
          "gemma3n_text", "glm4_moe", "gpt_oss", "granite_swa", "granitemoe", "granitemoe_swa", "granitemoeshared",
          "hunyuan_v1_moe", "hy_v3", "hy_v4", "hyperclovax", "jamba", "kolibri1", "laguna", "lara_mini", "lfm2", "lfm3",
          "llama4_text", "mamba", "mellum", "mimo_v2_flash", "minicpm3", "ministral", "mixtral", "olmo3", "olmo_hybrid",
          "olmoe", "phi4_multimodal", "qwen2", "qwen2_moe", "qwen3", "qwen3_5_text", "qwen3_moe", "qwen3_next",
          "sarvam_moe", "seed_oss", "smollm3", "solar_open", "starcoder2", "vaultgemma"]  # fmt: skip


def held(layer):
    """Bytes of the tensors of one layer of a cache, those in lists and dictionaries included."""
    seen = {}

    def walk(thing):
        if torch.is_tensor(thing) and thing.dim():
            seen[id(thing)] = thing.numel() * thing.element_size()
        for inner in thing.values() if isinstance(thing, dict) else thing if isinstance(thing, (list, tuple)) else ():
            walk(inner)

    for name, thing in vars(layer).items():
        if "cumulative" not in name and name != "_sliding_window_tensor":
            walk(thing)
    return sum(seen.values())


@pytest.mark.parametrize("model_type", OTHERS)
def test_a_small_model_of_other_sizes_holds_as_much(model_type):
    config_class = CONFIG_MAPPING[model_type]
    declared = config_class.__dataclass_fields__
    fields = {field: value for field, value in SIZES.items() if field in declared}
    if model_type in ("axk2", "deepseek_v3", "minicpm3"):  # each query head has its own key, rebuilt from the latent
        fields["num_key_value_heads"] = fields["num_attention_heads"]
    config = config_class(**fields)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="eager").eval()
    as_saved = read_config(json.loads(config.to_json_string(use_diff=False)))
    as_given = read_config({**fields, "model_type": model_type})
    for tokens in (1, 8, 21):
        with torch.no_grad():
            output = model(torch.full((1, tokens), 7), use_cache=True)
        cache = next(output[name] for name in ("cache", "past_key_values", "cache_params") if name in output)
        expected = [held(layer) for layer in cache.layers]
        assert bytes_by_layer(as_saved, tokens) == expected
        assert bytes_by_layer(as_given, tokens) == expected


ATTENDING = ["axk2", "deepseek_v32", "glm_moe_dsa", "hy_v4", "laguna"]


@pytest.mark.parametrize("model_type", ATTENDING)
def test_attention_of_a_small_model_of_other_sizes_is_what_torch_counts(model_type):
    config_class = CONFIG_MAPPING[model_type]
    fields = {field: value for field, value in SIZES.items() if field in config_class.__dataclass_fields__}
    if "kv_lora_rank" in fields:
        fields["num_key_value_heads"] = fields["num_attention_heads"]
    config = config_class(**fields)
    built = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    model = read_config(json.loads(config.to_json_string(use_diff=False)))
    cache, seen = None, 0
    for tokens in (8, 13, 1, 1):
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            cache = built(torch.full((1, tokens), 7), use_cache=True, **({"cache": cache} if seen else {})).cache
        # Scores and weighted values are batched products, those of the projections and of the experts here are not.
        batched = counter.get_flop_counts()["Global"][torch.ops.aten.bmm]
        assert counter_attention_flops(model, tokens, cached=seen) == batched
        seen += tokens


def ideal(model, tokens, **options):
    return sequence_bytes(model, tokens, **options)


@st.composite
def layer_groups(draw):
    """Any kind of layer that the rules know."""
    kind = draw(st.sampled_from(["full", "sliding", "chunked", "latent", "sliding latent", "indexed", "indexed latent",
                                 "full with state", "recurrent", "shared", "none", "cross"]))  # fmt: skip
    layers = draw(st.integers(1, 50))
    states = ()
    if kind in ("recurrent", "full with state"):
        kernel = draw(st.integers(1, 8))
        channels, heads = draw(st.integers(1, 4096)), draw(st.integers(1, 64))
        states = (
            State(kind="convolution", heads=channels, numbers=1, columns=kernel - 1, transformers_columns=kernel),
            State(kind="recurrent", heads=heads, numbers=draw(st.integers(1, 10**4)), dtype="fp32"),
        )
    if kind in ("recurrent", "shared", "none"):
        return LayerGroup(kind=kind, layers=layers, states=states)
    latent = kind.endswith("latent")
    kv_heads = 1 if latent else draw(st.integers(1, 16))
    window = draw(st.integers(1, 5000)) if kind in ("sliding", "chunked", "sliding latent") else None
    return LayerGroup(
        kind=kind,
        layers=layers,
        query_heads=kv_heads * draw(st.integers(1, 8)),
        kv_heads=kv_heads,
        key_width=draw(st.integers(1, 512)),
        value_width=draw(st.integers(0 if latent else 1, 512)),
        window=window,
        index_width=draw(st.integers(1, 128)) if "indexed" in kind else 0,
        states=states,
    )


@st.composite
def models(draw):
    groups = tuple(draw(st.lists(layer_groups(), min_size=1, max_size=4)))
    return ModelSpec(name="any", model_type="any", layer_groups=groups, weights=None, max_context=None)


@settings(deadline=None)
@given(models(), st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from(["ideal", "transformers"]))
def test_more_tokens_never_take_less(model, tokens, more, engine):
    assert sequence_bytes(model, tokens + more, engine=engine) >= sequence_bytes(model, tokens, engine=engine)


@settings(deadline=None)
@given(models(), st.integers(0, 10**6), st.data())
def test_more_heads_layers_widths_or_wider_numbers_never_take_less(model, tokens, data):
    index = data.draw(st.integers(0, len(model.layer_groups) - 1))
    group = model.layer_groups[index]
    fields = ["layers"]
    if group.kv_heads:
        fields += ["key_width", "value_width"]
        if not group.is_latent:
            fields.append("kv_heads")
        if group.window:
            fields.append("window")
    field = data.draw(st.sampled_from(fields))
    times = data.draw(st.integers(1, 4))
    larger = replace(group, **{field: getattr(group, field) * times}, **(
        {"query_heads": group.query_heads * times} if field == "kv_heads" else {}
    ))  # fmt: skip
    groups = (*model.layer_groups[:index], larger, *model.layer_groups[index + 1 :])
    assert ideal(replace(model, layer_groups=groups), tokens) >= ideal(model, tokens)
    fp8, bf16, fp32 = (ideal(model, tokens, kv_dtype=dtype) for dtype in ("fp8", "bf16", "fp32"))
    assert fp8 <= bf16 <= fp32


@settings(deadline=None)
@given(models(), st.integers(0, 10**6))
def test_a_window_beyond_the_context_is_full_attention(model, tokens):
    wide = tuple(replace(g, window=tokens + 1) if g.window else g for g in model.layer_groups)
    full = tuple(replace(g, window=None) if g.window else g for g in model.layer_groups)
    assert ideal(replace(model, layer_groups=wide), tokens) == ideal(replace(model, layer_groups=full), tokens)
    assert ideal(model, tokens) <= ideal(replace(model, layer_groups=full), tokens)


@settings(deadline=None)
@given(models(), st.integers(1, 10**6))
def test_a_window_larger_than_the_context_is_full_attention_in_transformers(model, tokens):
    wide = tuple(replace(g, window=tokens + 1) if g.window else g for g in model.layer_groups)
    full = tuple(replace(g, window=None) if g.window else g for g in model.layer_groups)
    options = {"engine": "transformers"}
    assert sequence_bytes(replace(model, layer_groups=wide), tokens, **options) == sequence_bytes(
        replace(model, layer_groups=full), tokens, **options
    )


@settings(deadline=None)
@given(models(), st.integers(0, 10**6), st.sampled_from(["ideal", "transformers"]), st.integers(0, 2000))
def test_floor_slope_and_plateau_are_the_curve_beyond_every_window(model, beyond, engine, encoder_tokens):
    tokens = 5000 + beyond
    options = {"engine": engine, "encoder_tokens": encoder_tokens}
    memory = sequence_memory(model, tokens, **options)
    assert memory.bytes == memory.floor_bytes + memory.plateau_bytes + memory.slope_bytes_per_token * tokens
    assert memory.floor_bytes == sequence_bytes(model, 0, **options)
    assert type(memory.bytes) is int
    assert memory.bytes == sum(layer.bytes for layer in layer_bytes(model, tokens, **options))


@settings(deadline=None)
@given(models(), st.lists(st.integers(0, 10**6), min_size=1, max_size=5), st.sampled_from(["ideal", "transformers"]))
def test_an_array_of_tokens_gives_what_each_gives(model, tokens, engine):
    together = sequence_bytes(model, np.array(tokens), engine=engine)
    assert np.broadcast_to(together, len(tokens)).tolist() == [sequence_bytes(model, n, engine=engine) for n in tokens]


@settings(deadline=None)
@given(models(), st.integers(0, 10**6))
def test_the_ideal_cache_of_a_window_holds_one_token_more_and_of_a_state_less(model, tokens):
    for group in model.layer_groups:
        alone = replace(model, layer_groups=(group,))
        ours, theirs = ideal(alone, tokens), sequence_bytes(alone, tokens, engine="transformers")
        if not group.states and not group.window:
            assert ours == theirs
        elif group.window and group.window > 1:
            assert 0 <= ours - theirs <= sequence_bytes(alone, 1)


def test_published_ideal_sizes():
    """facts/model_configs.md and facts/models.csv: by hand from the widths of the published configs."""
    deepseek = read_config({"model_type": "deepseek_v3"})
    assert sequence_memory(deepseek, 1).slope_bytes_per_token == 61 * (512 + 64) * 2 == 70_272
    falcon = {"model_type": "falcon", "new_decoder_architecture": True, "num_attention_heads": 128, "num_kv_heads": 8,
              "hidden_size": 8192, "num_hidden_layers": 60}  # fmt: skip
    falcon_40b = read_config(falcon)
    assert sequence_bytes(falcon_40b, 1) == 60 * 2 * 8 * 64 * 2 == 122_880
    assert sequence_bytes(falcon_40b, 1, engine="transformers") == 16 * 122_880
    next_80b = read_config({"model_type": "qwen3_next"})
    memory = sequence_memory(next_80b, 1000, kv_dtype="fp8")
    assert memory.slope_bytes_per_token == 12 * 2 * 2 * 256
    assert memory.floor_bytes == 36 * (8192 * 3 * 2 + 32 * 128 * 128 * 4)  # the KV format does not touch states


def test_a_window_counts_the_token_itself():
    model = read_config({"model_type": "mistral"})
    one = sequence_bytes(model, 1)
    assert [sequence_bytes(model, n) // one for n in (4095, 4096, 4097)] == [4095, 4096, 4096]
    assert [sequence_bytes(model, n, engine="transformers") // one for n in (4095, 4096, 4097)] == [4095] * 3
    single = read_config({"model_type": "mistral", "sliding_window": 1})
    assert sequence_bytes(single, 100) == one
    assert sequence_bytes(single, 100, engine="transformers") == 100 * one


def test_a_latent_plane_is_on_every_rank_and_states_are_shared_out():
    latent = read_config({"model_type": "deepseek_v3"})
    memory = sequence_memory(latent, 1000, tensor_parallel=8)
    assert memory.bytes_per_rank == sequence_bytes(latent, 1000)
    assert memory.bytes == 8 * memory.bytes_per_rank
    hybrid = read_config({"model_type": "qwen3_next", "num_key_value_heads": 2})
    assert sequence_memory(hybrid, 0, tensor_parallel=8).bytes == sequence_bytes(hybrid, 0)
    with pytest.raises(ValueError, match="tensor_parallel must divide the 32 heads of a recurrent state, got 64"):
        sequence_bytes(hybrid, 0, tensor_parallel=64)


@pytest.mark.parametrize(
    ("model_type", "message"),
    [
        ("mixtral", "parameters of a model with experts are not known here"),
        ("mamba2", "parameters of a model with recurrent layers are not known here"),
        ("minicpm3", "parameters of a model with latent attention are not known here"),
    ],
)
def test_unknown_parameters_are_refused_by_name_and_memory_is_not(model_type, message):
    model = read_config({"model_type": model_type})
    for formula in (parameters, lambda model: prefill_flops(model, 100)):
        with pytest.raises(ValueError, match=message):
            formula(model)
    assert sequence_bytes(model, 100) > 0


def test_a_model_of_several_kinds_is_compared_with_no_other_layout():
    assert list(layouts_to_compare(read_config({"model_type": "deepseek_v3"}))) == ["MLA"]
    assert list(layouts_to_compare(read_config({"model_type": "jamba"}))) == ["recurrent + GQA"]
    assert list(layouts_to_compare(read_config({"model_type": "gemma3_text"}))) == ["MHA", "GQA-4", "MQA"]


def test_blocks_of_compressed_tokens_step_with_the_context():
    """facts/model_configs.md, rule 6, by hand for one layer of each kind: D = 512, I = 128, m = 4 and 128, w = 128."""
    model = read_config({"model_type": "deepseek_v4", "num_hidden_layers": 3, "compress_ratios": [0, 4, 128, 0]})
    sliding, sparse, heavy = (layer.bytes for layer in layer_bytes(model, 1000))
    assert sliding == 128 * 512 * 2
    assert sparse == sliding + 250 * (512 + 128) * 2 + 4 * (512 + 128) * 2 * 2
    assert heavy == sliding + 7 * 512 * 2 + (1000 - 7 * 128) * 2 * 512 * 2
    memory = sequence_memory(model, 128 * 1000)
    assert memory.slope_bytes_per_token == (512 + 128) * 2 // 4 + 512 * 2 // 128
    assert memory.bytes == memory.floor_bytes + memory.plateau_bytes + memory.slope_bytes_per_token * 128 * 1000
    assert sequence_bytes(model, 127) > sequence_bytes(model, 128)  # a block closes, and its tokens go
    for engine in ("vllm", "sglang", "llama.cpp"):
        with pytest.raises(ValueError, match=f"layers of kind compressed latent are not known under the {engine} rule"):
            sequence_bytes(model, 1, engine=engine)


@pytest.mark.parametrize("ratios", [[0, 4], [0, 4, 5], [0, "x", 4], "0,4,128", [[4], 0, 4], {"0": 4}])
def test_ratios_that_stand_for_no_layer_kind_are_refused(ratios):
    with pytest.raises(ValueError, match=r"compress_ratios(\[\d\])? must be"):
        read_config({"model_type": "deepseek_v4", "num_hidden_layers": 3, "compress_ratios": ratios})


FIELDS = sorted({field for config in CONFIGS for field in config})
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 300), st.integers(), st.floats(), st.text(max_size=5),
    st.sampled_from(["full_attention", "sliding_attention", "mamba", "M*-", 2, 4, 8, 64, [0, 1], ["conv"], [[["x"], 2]]]),
    st.lists(st.integers(0, 3), max_size=3), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.dictionaries(st.sampled_from(["0", "1", 1]), st.dictionaries(st.just("head_dim"), st.integers(1, 9)), max_size=2),
)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(
    st.sampled_from(CONFIGS),
    st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4),
    st.lists(st.sampled_from(FIELDS), max_size=4),
)
def test_a_mutated_config_gives_a_model_or_a_value_error(config, changed, removed):
    mutated = {**config, **changed}
    for field in removed:
        mutated.pop(field, None)
    try:
        model = read_config(mutated)
    except ValueError as error:
        assert type(error) is ValueError and str(error)
        return
    assert read_config(config_as_read(model)) == replace(model, unread_fields=())
    for engine in ("ideal", "transformers"):
        assert type(sequence_bytes(model, 1000, engine=engine)) is int
