"""Reading config.json: facts against transformers' classes, refusals by name, the round trip, and hostile input."""

import dataclasses
import json
import math
import os
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import CONFIG_MAPPING
from transformers.models.dbrx.configuration_dbrx import DbrxAttentionConfig
from transformers.models.t5gemma.configuration_t5gemma import T5GemmaModuleConfig

from calc.model_config import config_as_read, read_config
from calc.model_config.rules import EVERY_FAMILY, FACTS, FAMILIES, TEXT_MODELS
from calc.model_spec import ModelSpec, with_kv_heads

REFERENCES = Path(__file__).parent / "references"
RECORDS = json.loads((REFERENCES / "transformers_dense.json").read_text())["records"]
OTHER_KINDS = json.loads((REFERENCES / "transformers_other_kinds.json").read_text())["records"]
CACHES = json.loads((REFERENCES / "transformers_caches.json").read_text())["records"]
POPPED = {"swa_kv_lora_rank", "swa_head_dim", "swa_qk_nope_head_dim", "first_k_dense_replace", "global_head_dim",
          "is_encoder_decoder", "is_decoder"}  # fmt: skip
"""Defaults that a class takes from the fields it pops, or from the class of all configs."""
CONFIGS = [record["config"] for record in RECORDS]
LLAMA = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 160}  # fmt: skip


def source(model, fact):
    (found,) = [entry.source for entry in model.provenance if entry.fact == fact]
    return found


def heads(config):
    (group,) = read_config(config).layer_groups
    return group.query_heads, group.kv_heads, group.key_width


def refusal(config):
    with pytest.raises(ValueError) as caught:
        read_config(config)
    assert type(caught.value) is ValueError
    message = str(caught.value)
    assert message and "\n" not in message and len(message) < 400
    return message


def config_class(model_type):
    """The class of a model_type; a few text models have one that is only reached through the larger model's."""
    if model_type in CONFIG_MAPPING:
        return CONFIG_MAPPING[model_type]
    return {"t5_gemma_module": T5GemmaModuleConfig}[model_type]


def defaults_of(model_type):
    return {
        field.name: None if field.default is dataclasses.MISSING else field.default
        for field in dataclasses.fields(config_class(model_type))
    }


@pytest.mark.parametrize("model_type", [name for name, family in FAMILIES.items() if "own_code" not in family])
def test_class_defaults_are_those_of_the_transformers_class(model_type):
    family = FAMILIES[model_type]
    declared = defaults_of(model_type)
    if model_type == "dbrx":
        declared["attn_config.kv_n_heads"] = DbrxAttentionConfig().kv_n_heads
    only_cached = {fact: EVERY_FAMILY["fields"][fact] for fact in ("layers", "query_heads", "kv_heads", "head_width")}
    every = only_cached if "unknown_weights" in family else EVERY_FAMILY["fields"]
    facts = {**every, **dict.fromkeys(family.get("fixed", {}), []), **family.get("fields", {})}
    read = {field for fields in facts.values() for field in fields} | {"sliding_window", "use_sliding_window"}
    read |= {field for rule in family.get("when", ()) for field in rule["if"]} | set(family.get("only", {}))
    if "unknown_weights" in family and "window" not in facts:
        read -= {"sliding_window", "use_sliding_window"}
    defaults = family.get("class_defaults", {})
    assert defaults.keys() - POPPED <= declared.keys()
    for field in read & declared.keys():
        ours, theirs = defaults.get(field), declared[field]
        assert ours == theirs or (ours is None and theirs in (False, "auto")), field


@pytest.mark.parametrize("model_type", TEXT_MODELS)
def test_a_larger_model_has_the_text_model_that_its_class_takes_by_default(model_type):
    parts = CONFIG_MAPPING[model_type].sub_configs_defaults
    assert parts.get("text_config", parts.get("decoder")).model_type == TEXT_MODELS[model_type]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "mistral", "sliding_window": None}, (32, 8, 128)),
        ({"model_type": "qwen2", "num_attention_heads": 64}, (64, 32, 64)),
        ({"model_type": "qwen3", "num_attention_heads": 16, "num_key_value_heads": 1}, (16, 1, 128)),
        ({"model_type": "llama", "num_attention_heads": 16}, (16, 16, 256)),
        ({"model_type": "llama", "num_key_value_heads": None, "head_dim": None}, (32, 32, 128)),
        ({"model_type": "gemma", "num_attention_heads": 32}, (32, 16, 256)),
        ({"model_type": "gemma", "head_dim": None}, (16, 16, 192)),
        ({"model_type": "gpt_bigcode", "multi_query": False}, (12, 12, 64)),
        ({"model_type": "gpt_bigcode"}, (12, 1, 64)),
        ({"model_type": "falcon"}, (71, 1, 64)),
        ({"model_type": "falcon", "new_decoder_architecture": True, "num_kv_heads": 1}, (71, 1, 64)),
        ({"model_type": "falcon", "multi_query": False}, (71, 71, 64)),
        ({"model_type": "falcon", "n_head": 142, "n_layer": 3}, (142, 1, 32)),
    ],
)
def test_an_absent_field_takes_the_class_default_and_null_the_classes_derivation(config, expected):
    assert heads(config) == expected


def test_every_fact_says_where_it_came_from():
    model = read_config({**LLAMA, "head_dim": None})
    assert {entry.fact for entry in model.provenance} == set(FACTS)
    assert source(model, "layers") == "num_hidden_layers"
    assert source(model, "max_context") == "class default of max_position_embeddings"
    assert source(model, "head_width") == "head_dim is null: hidden_width / query_heads"
    assert source(model, "gated_mlp") == "fixed by the llama class"


def test_falcon_7b_has_one_kv_head_although_its_file_prints_71():
    model = read_config({"model_type": "falcon", "num_kv_heads": 71})
    assert model.layout == "MQA"
    (warning,) = model.warnings
    assert "num_kv_heads = 71" in warning and "multi_query = true" in warning
    assert source(model, "kv_heads") == "multi_query = true and new_decoder_architecture = false"


def test_the_first_of_several_names_counts_and_the_other_is_reported():
    model = read_config({"model_type": "bloom", "n_embed": 128, "hidden_size": 64, "n_head": 8, "n_layer": 2})
    assert model.weights.hidden_width == 128
    (warning,) = model.warnings
    assert "hidden_size = 64 is not used" in warning


def test_a_field_that_no_rule_reads_is_reported_and_a_harmless_one_is_not():
    config = {**LLAMA, "hidden_act": "silu", "quantization_config": {"bits": 4}, "num_experts": 0, "brand_new": 7}
    assert read_config(config).unread_fields == ("quantization_config", "brand_new")


def test_gpt2_context_is_its_position_table():
    model = read_config({"model_type": "gpt2", "n_positions": 77})
    assert model.max_context == model.weights.position_embeddings == 77


def test_a_nested_text_model_is_read_and_its_head_is_tied_as_the_whole_model_says():
    model = read_config({"model_type": "llava", "tie_word_embeddings": True, "vision_config": {}, "text_config": LLAMA})
    assert (model.name, model.model_type, model.weights.tied_head) == ("llava", "llama", True)
    assert model.unread_fields == ("vision_config",)
    assert config_as_read(model)["model_type"] == "llava"


@pytest.mark.parametrize("record", [pytest.param(record, id=record["id"]) for record in OTHER_KINDS])
def test_no_other_layer_kind_is_taken_for_full_attention_with_known_parameters(record):
    try:
        model = read_config(record["config"])
    except ValueError:
        return
    assert model.weights is None or {group.kind for group in model.layer_groups} != {"full"}


@pytest.mark.parametrize(
    ("field", "value", "kind"),
    [
        ("sliding_window", 4096, "sliding window"),
        ("sliding_window", 10**6, "sliding window"),
        ("layer_types", ["full_attention", "sliding_attention"], "sliding_attention"),
        ("kv_lora_rank", 512, "latent attention"),
        ("attention_chunk_size", 8192, "chunked attention"),
        ("num_kv_shared_layers", 2, "KV shared between layers"),
        ("num_experts", 8, "mixture of experts"),
        ("num_local_experts", 8, "mixture of experts"),
        ("add_cross_attention", True, "cross-attention"),
        ("is_encoder_decoder", True, "encoder-decoder"),
        ("mamba_d_state", 16, "recurrent state"),
        ("linear_num_key_heads", 4, "recurrent state"),
        ("index_head_dim", 128, "indexed attention"),
        ("per_layer_config", [{}], "layers of different shapes"),
        ("use_bidirectional_attention", True, "bidirectional attention"),
    ],
)
def test_a_field_of_another_layer_kind_is_refused_by_name(field, value, kind):
    message = refusal({**LLAMA, field: value})
    assert kind in message and field in message and "not supported yet" in message


def test_a_window_that_is_off_is_no_window():
    for config in (
        {"model_type": "mistral", "sliding_window": None},
        {"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": False},
        {"model_type": "qwen3", "sliding_window": 4096},
        {"model_type": "qwen2", "use_sliding_window": True, "layer_types": ["full_attention"] * 32},
    ):
        assert read_config(config).layer_groups[0].kind == "full"
    for config, kinds in (
        ({"model_type": "mistral"}, {"sliding": 32}),
        ({"model_type": "mistral", "use_sliding_window": False}, {"sliding": 32}),
        ({"model_type": "qwen2", "use_sliding_window": True}, {"full": 28, "sliding": 4}),
    ):
        groups = read_config(config).layer_groups
        assert {group.kind: group.layers for group in groups} == kinds
        assert {group.window for group in groups if group.kind == "sliding"} == {4096}


@pytest.mark.parametrize("kind", ["indexed_attention", "cross_attention", "linear_attention", "chunked_attention", "x"])
def test_a_listed_layer_that_the_family_does_not_have_is_refused_by_name(kind):
    message = refusal({"model_type": "gemma3_text", "num_hidden_layers": 2, "layer_types": ["full_attention", kind]})
    assert kind in message


def test_an_unknown_model_type_is_refused_with_near_names():
    assert "did you mean mistral" in refusal({"model_type": "mistrall"})
    assert "mixture of experts" in refusal({"model_type": "mixtrall", "num_local_experts": 8})
    for value in (None, 3, [], "LLAMA", "llama "):
        assert "model_type" in refusal({"model_type": value})


@pytest.mark.parametrize(
    "value",
    [0, -1, 1.5, 32.0, "32", "", True, None, [32], {}, 10**9, 10**5000, math.nan, math.inf, np.arange(3), object()],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("field", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"])
def test_a_number_that_cannot_be_one_is_refused_by_field(field, value):
    assert field in refusal({**LLAMA, field: value})


@pytest.mark.parametrize("value", [0, 1, "true", None, [], 1.0])
def test_a_yes_no_field_is_true_or_false(value):
    assert "tie_word_embeddings must be true or false" in refusal({**LLAMA, "tie_word_embeddings": value})


def test_widths_and_heads_must_divide():
    assert refusal({**LLAMA, "num_key_value_heads": 3}).startswith("num_key_value_heads must divide the 4 query heads")
    message = refusal({"model_type": "llama", "hidden_size": 100, "num_attention_heads": 3})
    assert message == "hidden_size must be a multiple of num_attention_heads = 3, got 100"
    assert "layer_types" in refusal({**LLAMA, "layer_types": ["full_attention"]})
    assert "layer_types" in refusal({**LLAMA, "layer_types": "full_attention"})
    assert "word_embed_proj_dim" in refusal({"model_type": "opt", "word_embed_proj_dim": 512})
    assert "do_layer_norm_before" in refusal({"model_type": "opt", "do_layer_norm_before": False})


def test_whole_numbers_of_numpy_are_whole_numbers():
    model = read_config({**LLAMA, "num_hidden_layers": np.int64(7)})
    assert model.layers == 7 and config_as_read(model)["num_hidden_layers"] == 7


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "nothing"),
        ("  \n", "nothing"),
        ("config.json", "not valid JSON"),
        ("/etc/hostname", "not valid JSON"),
        ('{"model_type": "llama"', "not valid JSON"),
        ('{"model_type": "llama",}', "not valid JSON"),
        ("[]", "must be a JSON object, got a list of 0"),
        ("3", "must be a JSON object, got 3"),
        ("null", "must be a JSON object, got null"),
        ('{"a": NaN}', "finite"),
        ('{"a": -Infinity}', "finite"),
        ('{"a": 1e999}', "finite"),
        ('{"a": 1, "a": 1}', "given twice"),
        ('{"x": {"a": 1, "a": 2}}', "given twice"),
        ('{"num_hidden_layers": ' + "9" * 5000 + "}", "5,000"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 50_000, "nested too deeply"),
        (" " * 1_000_001, "1 MB"),
        ('{"model_type": "\ud800"}', "model_type"),
        ('{"model_type": "llama", "text_config": []}', "text_config must be an object"),
        ("{}", "model_type"),
    ],
    ids=range(21),
)
def test_a_text_that_is_no_config_is_one_clear_error(text, part):
    assert part in refusal(text)


def test_a_file_is_read_by_path_only(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA), "utf-8-sig")
    assert read_config(path) == read_config(LLAMA) == read_config(json.dumps(LLAMA))
    assert "not valid JSON" in refusal(str(path))


def test_a_file_that_cannot_be_read_is_one_clear_error(tmp_path):
    assert "cannot be read" in refusal(tmp_path / "missing.json")
    assert "must be a file" in refusal(tmp_path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "must be a file" in refusal(pipe)
    for content, part in (
        (json.dumps(LLAMA).encode("utf-16"), "UTF-8"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b"", "nothing"),
        (b" " * 1_000_001, "1 MB"),
        (b'{"model_type": "llama", "x": "\xe9"}', "UTF-8"),
    ):
        path = tmp_path / "config.json"
        path.write_bytes(content)
        assert part in refusal(path)
    assert "cannot be read" in refusal(Path("a\0b"))


@pytest.mark.parametrize("config", [None, 3, b"{}", ["model_type"], {1: 2}, {"text_config": {1: 2}}])
def test_what_is_neither_mapping_text_nor_path_is_refused(config):
    assert "config" in refusal(config)


@pytest.mark.parametrize("record", [pytest.param(record, id=record["id"]) for record in RECORDS])
def test_the_config_as_read_gives_the_same_model(record):
    assert_round_trip(read_config(record["config"]))


def assert_round_trip(model):
    again = read_config(config_as_read(model))
    assert again.unread_fields == ()
    assert again == replace(model, unread_fields=())


def test_a_model_that_was_changed_by_hand_has_no_config():
    with pytest.raises(ValueError, match="must come from a config"):
        config_as_read(with_kv_heads(read_config(LLAMA), 1))


FIELDS = sorted({field for config in CONFIGS for field in config} | {"layer_types", "kv_lora_rank", "num_experts"})
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 300), st.integers(), st.floats(), st.text(max_size=5),
    st.sampled_from(["full_attention", "sliding_attention", 2, 4, 8, 64]), st.lists(st.integers(0, 3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(CONFIGS),
    st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4),
    st.lists(st.sampled_from(FIELDS), max_size=4),
    st.sampled_from([*FAMILIES, None]),
)
def test_a_mutated_config_gives_a_model_or_a_value_error(config, changed, removed, model_type):
    mutated = {**config, **changed}
    for field in removed:
        mutated.pop(field, None)
    if model_type:
        mutated["model_type"] = model_type
    try:
        model = read_config(mutated)
    except ValueError as error:
        assert type(error) is ValueError and str(error)
    else:
        assert isinstance(model, ModelSpec)
        assert_round_trip(model)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(CONFIGS), st.integers(0, 10**9), st.text(max_size=3))
def test_a_damaged_text_gives_a_model_or_a_value_error(config, seed, inserted):
    text = json.dumps(config)
    where = random.Random(seed).randrange(len(text))
    for damaged in (text[:where], text[:where] + inserted + text[where + 1 :]):
        try:
            assert isinstance(read_config(damaged), ModelSpec)
        except ValueError as error:
            assert type(error) is ValueError and str(error)


@settings(max_examples=200, deadline=None)
@given(st.recursive(VALUES, lambda inner: st.dictionaries(st.text(max_size=4), inner, max_size=3), max_leaves=8))
def test_anything_at_all_gives_a_model_or_a_value_error(thing):
    try:
        read_config(thing)
    except ValueError as error:
        assert type(error) is ValueError


@pytest.mark.parametrize(
    ("changes", "message"),
    [  # files with code of their own attend otherwise than transformers' class of that type
        ({"attn_config": {"attn_type": "grouped_query_attention", "kv_n_heads": 8}}, "attn_config.attn_type"),
        ({"attn_config": {"attn_type": "multiquery_attention"}}, "attn_config.attn_type"),
        ({"attn_config": {"kv_n_heads": 8}}, "attn_config.kv_n_heads"),
        ({"no_bias": False}, "no_bias"),
    ],
)
def test_an_mpt_file_that_its_class_would_misread_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        read_config({"model_type": "mpt", "d_model": 3072, "n_heads": 24, "n_layers": 32} | changes)


def test_an_olmo_file_may_name_its_head_width():
    # OlmoAttention takes head_dim where the config has one: 2 layers x 4 heads x 32 numbers, not 2 x 4 x 16.
    model = read_config({"model_type": "olmo", "hidden_size": 64, "num_attention_heads": 4, "head_dim": 32})
    assert model.layer_groups[0].key_width == 32


@pytest.mark.parametrize("model_type", ["deepseek_v2", "deepseek_v3", "kimi_k2"])
def test_a_latent_model_says_that_the_kv_heads_its_file_prints_are_not_used(model_type):
    shape = {"model_type": model_type, "num_attention_heads": 64, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    model = read_config({**shape, "num_hidden_layers": 2, "num_key_value_heads": 64})
    assert [text for text in model.warnings if "num_key_value_heads = 64 is not used" in text]
    assert model.layer_groups[0].key_width + model.layer_groups[0].value_width == 576
    assert_round_trip(model)
    for quiet in ({}, {"num_key_value_heads": None}, {"num_key_value_heads": 1}):
        model = read_config({**shape, "num_hidden_layers": 2, **quiet})
        assert not [text for text in model.warnings if "num_key_value_heads" in text]


@pytest.mark.parametrize(
    ("config", "part"),
    [  # the classes of transformers 5.24.0 have head_dim 256 and 128, num_key_value_heads 8 and 32
        ({"model_type": "gemma", "hidden_size": 2048, "num_attention_heads": 16}, "head_dim is absent: 256"),
        ({"model_type": "qwen3", "hidden_size": 4096, "num_attention_heads": 64}, "head_dim is absent: 128"),
        ({"model_type": "mistral", "num_attention_heads": 64}, "num_key_value_heads is absent: 8"),
        ({"model_type": "qwen2", "num_attention_heads": 64}, "num_key_value_heads is absent: 32"),
        ({"model_type": "gemma", "num_attention_heads": 16, "head_dim": None}, "head_dim is null: hidden_width"),
    ],
)
def test_an_absent_width_or_number_of_heads_is_reported_where_it_is_not_what_one_would_think(config, part):
    model = read_config(config)
    assert [text for text in model.warnings if text.startswith(part)]
    assert_round_trip(model)


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8},
        {"model_type": "qwen3", "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 8},
        {"model_type": "gemma"},
        {"model_type": "gemma", "num_attention_heads": 16, "num_key_value_heads": 1, "head_dim": 256},
    ],
)
def test_a_file_without_a_trap_is_read_without_a_warning(config):
    assert read_config(config).warnings == ()


def test_a_width_that_is_not_whole_is_refused():
    # GLM-4.5-Air without its head_dim: 4096 / 96 = 42.67
    message = refusal({"model_type": "glm4_moe", "hidden_size": 4096, "num_attention_heads": 96})
    assert message == "hidden_size must be a multiple of num_attention_heads = 96, got 4096"


@pytest.mark.parametrize("record", [pytest.param(record, id=record["id"]) for record in OTHER_KINDS + CACHES])
def test_an_object_of_which_a_field_is_read_is_not_reported_as_unread(record):
    try:
        model = read_config(record["config"])
    except ValueError:
        return
    read = config_as_read(model)
    assert [field for field in model.unread_fields if any(name.startswith(f"{field}.") for name in read)] == []


def test_a_deepseek_file_without_latent_attention_is_refused():
    # The smallest DeepSeek-VL2 sets use_mla to false: heads of their own, which the rules of the type do not count.
    assert "use_mla must be true" in refusal({"model_type": "deepseek_v2", "use_mla": False, "kv_lora_rank": None})


@pytest.mark.parametrize(
    ("config", "field"),
    [  # a null width that would follow from a number that follows from it
        ({"model_type": "nemotron_h", "mamba_head_dim": None}, "mamba_head_dim"),
        ({"model_type": "jetmoe", "num_key_value_heads": "auto"}, "num_key_value_heads"),
    ],
)
def test_null_fields_that_follow_from_each_other_are_refused(config, field):
    assert refusal(config).startswith(f"{field} must be a whole number")


def test_null_for_a_yes_no_field_that_is_true_by_default_is_read_back_as_null():
    assert_round_trip(read_config({"model_type": "pegasus", "is_encoder_decoder": None}))


def test_a_larger_models_yes_no_field_is_true_or_false():
    config = {"model_type": "gemma4", "tie_word_embeddings": 1j, "text_config": {"model_type": "gemma4_text"}}
    assert "tie_word_embeddings must be true or false" in refusal(config)
