"""Presets of models: exact names only, and records that say where they come from."""

import csv
import datetime
import json
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from calc.kv_cache import layer_bytes, sequence_memory
from calc.model_config import config_as_read, read_config
from calc.names import UnknownName
from calc.presets import model_ids, model_label, model_preset

REFERENCES = Path(__file__).parent / "references"
PRESETS = files("calc").joinpath("presets")
RECORDS = tomllib.loads(PRESETS.joinpath("models.toml").read_text("utf-8"))
FAMILIES = tomllib.loads(PRESETS.joinpath("families.toml").read_text("utf-8"))
EXPECTED_HEADS = {
    "llama-3.1-8b": ("GQA", 32, 8, 128),
    "llama-3.1-405b": ("GQA", 126, 8, 128),
    "llama-2-7b": ("MHA", 32, 32, 128),
    "mistral-7b-v0.3": ("GQA", 32, 8, 128),
    "qwen3-0.6b": ("GQA", 28, 8, 128),
    "phi-4": ("GQA", 40, 10, 128),
    "falcon-7b": ("MQA", 32, 1, 64),
    "falcon-40b": ("GQA", 60, 8, 64),
    "gpt2": ("MHA", 12, 12, 64),
    "gpt2-xl": ("MHA", 48, 25, 64),
    "gemma-2b": ("MQA", 18, 1, 256),
    "gemma-7b": ("MHA", 28, 16, 256),
}
"""Layout, layers, KV heads and head width as the published config files say them."""
WITHOUT_A_LIMIT = {"falcon-mamba-7b", "mamba-codestral-7b"}
"""State-space models: nothing grows, and their files name no number of positions."""
ALIASES = {alias: name for name, record in RECORDS.items() for alias in record["aliases"]}
RECORDED = [
    pytest.param(ALIASES[record["id"]], record, id=record["id"])
    for record in json.loads((REFERENCES / "transformers_caches.json").read_text())["records"]
    if record["id"] in ALIASES
]
with open(REFERENCES / "published_kv_slopes.csv", newline="") as file:
    SLOPES = {row["model"]: row for row in csv.DictReader(file)}


@pytest.mark.parametrize("name", model_ids())
def test_a_preset_reads_without_loose_ends(name):
    model = model_preset(name)
    assert model.name == model_label(name) == RECORDS[name]["label"]
    assert model.unread_fields == ()
    assert model.max_context or name in WITHOUT_A_LIMIT
    assert read_config(config_as_read(model)).layer_groups == model.layer_groups


@pytest.mark.parametrize("name", model_ids())
def test_every_alias_names_the_same_model(name):
    assert name == name.lower() and "/" not in name
    for alias in RECORDS[name]["aliases"]:
        assert model_preset(alias) == model_preset(name)


@pytest.mark.parametrize(("name", "expected"), EXPECTED_HEADS.items())
def test_a_preset_has_its_published_heads(name, expected):
    model = model_preset(name)
    (group,) = model.layer_groups
    assert (model.layout, model.layers, group.kv_heads, group.key_width) == expected


def test_names_are_unique():
    names = [name for key, record in RECORDS.items() for name in (key, *record["aliases"])]
    assert len(names) == len(set(names))
    assert len({record["label"] for record in RECORDS.values()}) == len(RECORDS)


@pytest.mark.parametrize("name", ["llama-3.1-9b", "llama", "", "LLAMA-3.1-8B", "llama-3.1-8b ", "llama-3.1-8b-foo"])
def test_a_name_that_is_not_listed_is_refused_with_near_names(name):
    for function in (model_preset, model_label):
        with pytest.raises(LookupError) as caught:
            function(name)
        assert isinstance(caught.value, UnknownName)
        assert str(caught.value).startswith("unknown model")


def test_the_warning_of_falcon_7b_survives_in_its_preset():
    assert any("num_kv_heads = 71" in warning for warning in model_preset("falcon-7b").warnings)


@pytest.mark.parametrize("records", [RECORDS, FAMILIES], ids=["models", "families"])
def test_every_record_has_a_source_and_a_date(records):
    for record in records.values():
        assert record["source"]
        assert isinstance(record["checked"], datetime.date)


def test_published_sizes_name_presets():
    with open(REFERENCES / "published_parameters.csv", newline="") as file:
        assert {row["model"] for row in csv.DictReader(file)} <= set(model_ids())


@pytest.mark.parametrize("name", SLOPES)
def test_a_preset_grows_by_its_published_bytes_per_token(name):
    # The published column leaves out the keys of an indexer: layers x index_head_dim x 2 bytes.
    expected = int(SLOPES[name]["bytes_per_token"]) + int(SLOPES[name]["indexer_keys"])
    assert sequence_memory(model_preset(name), 1, kv_dtype="bf16").slope_bytes_per_token == expected


@pytest.mark.parametrize(("name", "record"), RECORDED)
def test_a_preset_holds_what_transformers_held_layer_by_layer(name, record):
    model, recorded = model_preset(name), read_config(record["config"])
    assert record["dtype"] == "bfloat16"
    assert model.groups_in_order == recorded.groups_in_order
    for tokens, expected in record["bytes"].items():
        for read in (model, recorded):
            layers = [layer.bytes for layer in layer_bytes(read, int(tokens), engine="transformers")]
            assert (layers if isinstance(expected, list) else sum(layers)) == expected


def test_every_preset_but_two_has_a_published_growth_or_a_recorded_cache():
    checked = SLOPES.keys() | {param.values[0] for param in RECORDED}
    assert set(RECORDS) - checked == {"mistral-7b-v0.3", "kimi-linear-48b-a3b"}
