"""Families whose code is not in transformers: published files, and the bytes that they publish or their sizes give."""

import json
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from calc.kv_cache import sequence_memory
from calc.model_config import config_as_read, read_config

RECORDS = json.loads((Path(__file__).parent / "references" / "remote_configs.json").read_text())["records"]
ROWS = tomllib.loads(files("calc").joinpath("presets", "remote_families.toml").read_text("utf-8"))
BY_ID = {record["id"]: record["config"] for record in RECORDS}
KIMI_LINEAR = BY_ID["moonshotai/Kimi-Linear-48B-A3B-Instruct"]
NAS = BY_ID["TensorRT-LLM NEMOTRON_NAS_MINI_CONFIG"]


def types(config):
    """The model_type of a config and of every config inside it."""
    found = {config["model_type"]} if "model_type" in config else set()
    return found.union(*(types(inner) for inner in config.values() if isinstance(inner, dict)))


def refusal(config):
    with pytest.raises(ValueError) as caught:
        read_config(config)
    return str(caught.value)


@pytest.mark.parametrize("record", [pytest.param(record, id=record["id"]) for record in RECORDS])
def test_a_published_file_grows_by_its_bytes_per_token(record):
    model = read_config(record["config"])
    assert sequence_memory(model, 1, kv_dtype="bf16").slope_bytes_per_token == record["bytes_per_token"]
    again = read_config(config_as_read(model))
    assert (again.layer_groups, again.warnings) == (model.layer_groups, model.warnings)


def test_every_family_is_read_from_a_published_file():
    assert set(ROWS) <= set().union(*(types(record["config"]) for record in RECORDS)) | {"minimax_text_01"}


@pytest.mark.parametrize("model_type", ROWS)
def test_a_family_with_code_of_its_own_says_so(model_type):
    config = next((c for c in BY_ID.values() if c["model_type"] == model_type), None)
    if config is not None:
        assert any(f"model_type {model_type} is not in transformers" in text for text in read_config(config).warnings)


@pytest.mark.parametrize("record", [pytest.param(record, id=record["id"]) for record in RECORDS])
def test_a_field_that_decides_the_cache_has_no_default(record):
    if record["config"]["model_type"] not in ROWS:
        return
    for field in ("num_attention_heads", "num_hidden_layers", "num_layers", "kv_lora_rank"):
        if field in record["config"]:
            assert field in refusal({k: v for k, v in record["config"].items() if k != field})


def test_kimi_linear_has_seven_latent_layers_of_27_and_the_last_is_one():
    # Its config.json lists 4, 8, ..., 24 and 27; the class's own pattern, without a list, would make six.
    model = read_config(KIMI_LINEAR)
    kinds = [model.layer_groups[group].kind for group in model.groups_in_order]
    assert [i + 1 for i, kind in enumerate(kinds) if kind == "latent"] == [4, 8, 12, 16, 20, 24, 27]
    assert {"linear_attn_config", "linear_attn_config.kda_layers"} & set(model.unread_fields) == set()
    listed = KIMI_LINEAR["linear_attn_config"]
    twice = {**KIMI_LINEAR, "linear_attn_config": {**listed, "kda_layers": [*listed["kda_layers"], 4]}}
    assert "each of the 27 layers once" in refusal(twice)


def test_a_minimax_file_says_which_layers_are_full():
    model = read_config({**BY_ID["MiniMaxAI/MiniMax-M1-80k"], "model_type": "minimax_text_01"})
    kinds = [model.layer_groups[group].kind for group in model.groups_in_order]
    assert [i for i, kind in enumerate(kinds) if kind == "full"] == list(range(7, 80, 8))
    # 70 states of 64 heads x 128 x 128 numbers
    assert sequence_memory(model, 0).floor_bytes == 70 * 64 * 128 * 128 * 4


@pytest.mark.parametrize(
    ("blocks", "part"),
    [
        (None, "block_configs must be a list"),
        ([], "block_configs must be a list"),
        (NAS["block_configs"][:3], "block_configs must be a list of 14 objects, got 3"),
        ([*NAS["block_configs"][1:], {}], "block_configs[13] must be an object with attention"),
        ([*NAS["block_configs"][1:], {"attention": {}}], "block_configs[13].attention.n_heads_in_group"),
        ([*NAS["block_configs"][1:], {"attention": {"n_heads_in_group": 5}}], "must divide 32 query heads, got 5"),
        ([*NAS["block_configs"][1:], {"attention": {"no_op": "yes"}}], "must be true or false"),
        (
            [*NAS["block_configs"][1:], {"attention": {"n_heads_in_group": 8, "window_length": 512}}],
            "block_configs[13].attention.window_length is not supported yet",
        ),
    ],
    ids=range(8),
)
def test_a_block_that_says_no_number_of_heads_is_refused(blocks, part):
    assert part in refusal({**NAS, "block_configs": blocks})


def test_a_fact_of_single_layers_says_which_list_it_is_from():
    model = read_config(NAS)
    (source,) = [entry.source for entry in model.provenance if entry.fact == "kv_heads"]
    assert source == "num_key_value_heads of block_configs"


@pytest.mark.parametrize(
    "model_type",
    [
        "phi3small",
        "openelm",
        "xverse",
        "orion",
        "telechat",
        "step3",
        "hunyuan",
        "minicpm",
        "solar",
        "grok-1",
        "kimi_k3",
    ],
)
def test_a_type_that_was_not_verified_is_refused_by_name(model_type):
    assert f"unknown model_type {model_type!r}" in refusal({"model_type": model_type, "num_hidden_layers": 2})
