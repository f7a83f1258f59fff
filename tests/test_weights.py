"""Parameters and FLOP against models that transformers builds, its FLOP counter, and published sizes."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from calc.attention import attention_flops, square_pairs
from calc.kv_cache import sequence_bytes
from calc.model_config import read_config
from calc.model_config.rules import EVERY_FAMILY, FAMILIES, YES_NO
from calc.presets import model_ids, model_preset
from calc.weights import attention_matrix_parameters, matrix_flops, mlp_matrix_parameters, parameters

REFERENCES = Path(__file__).parent / "references"
RECORDS = json.loads((REFERENCES / "transformers_dense.json").read_text())["records"]
WINDOWED = json.loads((REFERENCES / "transformers_windows.json").read_text())["records"]
TEXT_PART = [record for record in RECORDS if record["config"].get("text_config")]
WHOLE = [record for record in RECORDS if not record["config"].get("text_config")]
KV_DTYPE = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
TINY = {"hidden_width": 64, "intermediate_width": 96, "layers": 3, "query_heads": 4, "kv_heads": 2, "head_width": 24,
        "vocabulary": 160, "max_context": 128}  # fmt: skip


def of_records(records):
    return pytest.mark.parametrize("record", [pytest.param(record, id=record["id"]) for record in records])


def field_of(model_type, fact):
    """The config field that the class reads a fact from, or None where the class fixes it."""
    family = FAMILIES[model_type]
    if fact in family.get("fixed", {}):
        return None
    fields = family.get("fields", {}).get(fact, EVERY_FAMILY["fields"].get(fact, [None]))
    declared = CONFIG_MAPPING[model_type].__dataclass_fields__
    return next((field for field in fields if field in declared), None)


def tiny_config(model_type, **changes):
    fields = {field_of(model_type, fact): value for fact, value in TINY.items()} | {"sliding_window": 8}
    if model_type == "helium":  # its output projection is hidden x hidden: heads must fill the hidden width
        fields["head_dim"] = 16
    declared = CONFIG_MAPPING[model_type].__dataclass_fields__
    fields |= {"pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2}
    fields |= {"layer_types": ["full_attention"] * TINY["layers"]}
    fields = {field: value for field, value in fields.items() if field in declared}
    return CONFIG_MAPPING[model_type](**{**fields, **changes})


def yes_no_fields(model_type):
    """Every yes/no field that the family's table reads, alone and switched the other way."""
    family = FAMILIES[model_type]
    read = [field for fact, fields in family.get("fields", {}).items() if fact in YES_NO for field in fields]
    read += [field for rule in family.get("when", ()) for field in rule["if"]] + ["tie_word_embeddings"]
    declared = CONFIG_MAPPING[model_type].__dataclass_fields__
    switched = {field: not declared[field].default for field in read if field in declared}
    if model_type == "internlm3":  # its class refuses one bias without the other
        yield switched
    else:
        yield from ({field: value} for field, value in switched.items())


FALCON_CASES = [
    {"new_decoder_architecture": True, "num_ln_in_parallel_attn": 1},
    {"multi_query": False, "num_kv_heads": 4},
    {"parallel_attn": False, "num_ln_in_parallel_attn": 1},
    {"ffn_hidden_size": None},
]


def built_cases():
    for model_type in (name for name, family in FAMILIES.items() if "unknown_weights" not in family):
        yield model_type, {}
        for changes in yes_no_fields(model_type):
            yield model_type, changes
    for changes in FALCON_CASES:
        yield "falcon", changes
    yield "gpt2", {"n_inner": None}
    yield "llama", {"num_key_value_heads": None, "head_dim": None}


def built_parameters(config):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("model_type", "changes"), [pytest.param(*case, id="-".join([case[0], *case[1]])) for case in built_cases()]
)
def test_a_tiny_model_that_transformers_builds_has_as_many_parameters(model_type, changes):
    config = tiny_config(model_type, **changes)
    as_saved = json.loads(config.to_json_string(use_diff=False))
    assert parameters(read_config(as_saved)).total == built_parameters(config)


@of_records(WHOLE + [record for record in WINDOWED if not record["config"].get("text_config")])
def test_the_parameters_of_a_record_are_those_of_the_built_model(record):
    assert parameters(read_config(record["config"])).total == record["params"]


@of_records(TEXT_PART + [record for record in WINDOWED if record["config"].get("text_config")])
def test_the_text_part_of_a_larger_model_is_smaller_and_says_so(record):
    model = read_config(record["config"])
    assert parameters(model).total < record["params"]
    assert any("text_config" in warning for warning in model.warnings)


def counted_flops(model, tokens, keys):
    """Matrix products and attention of every token with every key, logits of all tokens: what the counter counts."""
    size = parameters(model)
    attention = sum(
        attention_flops(tokens * keys, group.layers, group.query_heads, group.key_width, group.value_width)
        for group in model.layer_groups
    )
    return matrix_flops(size.layer_matrices, tokens) + matrix_flops(size.head_matrix, tokens) + attention


@of_records([record for record in WHOLE if "prefill_flops" in record])
def test_matrix_products_and_square_attention_are_what_the_flop_counter_counts(record):
    model = read_config(record["config"])
    assert [counted_flops(model, n, n) for n, _ in record["prefill_flops"]] == [f for _, f in record["prefill_flops"]]
    assert [counted_flops(model, 1, n + 1) for n, _ in record["decode_flops"]] == [f for _, f in record["decode_flops"]]
    assert square_pairs(7) == 7 * 7


def caches_all_query_heads(record):
    """Falcon's new architecture: transformers repeats the KV heads before it caches them; we keep the model's own."""
    return record["config"].get("new_decoder_architecture", False)


@of_records([record for record in RECORDS if not caches_all_query_heads(record)])
def test_the_cache_of_a_record_is_exact_to_the_byte(record):
    model = read_config(record["config"])
    ours = [record["batch"] * sequence_bytes(model, n, kv_dtype=KV_DTYPE[record["dtype"]])
            for n, _ in record["kv_bytes"]]  # fmt: skip
    assert ours == [cached for _, cached in record["kv_bytes"]]


@of_records([record for record in RECORDS if caches_all_query_heads(record)])
def test_repeated_heads_are_the_only_difference_for_falcons_new_architecture(record):
    model = read_config(record["config"])
    (group,) = model.layer_groups
    assert group.kv_heads == record["config"]["num_kv_heads"]
    repeated = group.query_heads // group.kv_heads
    ours = [repeated * sequence_bytes(model, n) for n, _ in record["kv_bytes"]]
    assert ours == [cached for _, cached in record["kv_bytes"]]


def published():
    with open(REFERENCES / "published_parameters.csv", newline="") as file:
        return [pytest.param(row, id=row["model"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize("row", published())
def test_a_preset_has_its_published_number_of_parameters(row):
    total = parameters(model_preset(row["model"])).total
    assert abs(total - int(row["parameters"])) <= int(row["tolerance"])


@pytest.mark.parametrize("name", [name for name in model_ids() if model_preset(name).weights is not None])
def test_a_preset_has_the_parameters_that_transformers_builds(name):
    model = model_preset(name)
    config = json.loads(model.config_text)
    config = config.get("text_config", config)  # of a larger model, the text model alone
    assert parameters(model).total == built_parameters(CONFIG_MAPPING[config.pop("model_type")](**config))


@pytest.mark.parametrize("name", [name for name in model_ids() if model_preset(name).weights is not None])
def test_no_width_that_parameters_depend_on_is_left_to_a_class_default(name):
    guessed = {fact.fact for fact in model_preset(name).provenance if fact.source.startswith("class default")}
    assert guessed & {"layers", "hidden_width", "intermediate_width", "vocabulary", "query_heads", "kv_heads"} == set()


def test_a_preset_without_known_weights_says_so():
    unknown = [model for model in map(model_preset, model_ids()) if model.weights is None]
    assert unknown
    for model in unknown:
        with pytest.raises(ValueError, match="are not known here"):
            parameters(model)


def test_parts_add_up_and_a_tied_head_is_stored_once():
    tied, apart = (
        parameters(read_config({"model_type": "llama", "tie_word_embeddings": tied})) for tied in (True, False)
    )
    assert apart.total - tied.total == apart.head_matrix == 32000 * 4096
    assert apart.total == apart.layer_matrices + apart.embedding + apart.vectors + apart.head_matrix


def test_fewer_kv_heads_never_take_more_parameters():
    sizes = attention_matrix_parameters(4096, 32, np.array([1, 2, 4, 8, 16, 32]), 128, 128)
    assert (np.diff(sizes) > 0).all()


def test_matrix_formulas_are_shapes_multiplied_out():
    q, k, v, o = (np.zeros(shape) for shape in ((6, 4 * 5), (6, 2 * 5), (6, 2 * 3), (4 * 3, 6)))
    assert attention_matrix_parameters(6, 4, 2, 5, 3) == q.size + k.size + v.size + o.size
    assert mlp_matrix_parameters(6, 7, 3) == 3 * np.zeros((6, 7)).size


def test_flop_stay_exact_at_any_size_and_do_not_wrap_in_arrays():
    assert matrix_flops(4 * 10**11, 10**15) == 8 * 10**26
    assert matrix_flops(4 * 10**11, np.array([10**15]))[0] == pytest.approx(8e26)
