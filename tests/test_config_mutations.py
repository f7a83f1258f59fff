"""Mutated configs: each gives a self-consistent model or one clear ValueError, and none takes long."""

import copy
import json
import math
import os
import random
import reprlib
import time
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from calc.kv_cache import sequence_memory
from calc.model_config import config_as_read, read_config
from calc.model_config.rules import FAMILIES, TEXT_MODELS
from calc.model_spec import ModelSpec

MUTATIONS = int(os.environ.get("CONFIG_MUTATIONS", "3000"))
"""How many configs are tried; `make fuzz` tries 100,000."""
SEED = int(os.environ.get("CONFIG_MUTATIONS_SEED", "20261130"))
SLOWEST_SECONDS = 20
"""Far above what any config takes of the processor: a guard against a reader that does not end, not a measurement."""
REFERENCES = Path(__file__).parent / "references"


def reference_configs():
    """Every config of the reference files and of the presets."""
    for path in sorted(REFERENCES.glob("*.json")):
        yield from (record["config"] for record in json.loads(path.read_text()).get("records", ()))
    presets = tomllib.loads(files("calc").joinpath("presets", "models.toml").read_text("utf-8"))
    yield from (record["config"] for record in presets.values())


CONFIGS = list(reference_configs())
FIELDS = sorted({field for config in CONFIGS for field in config} | {"text_config", "llm_config", "decoder"})
WORDS = [
    "full_attention",
    "sliding_attention",
    "linear_attention",
    "chunked_attention",
    "mamba",
    "conv",
    "none",
    "x",
    "",
]
TYPES = [*FAMILIES, *TEXT_MODELS, "deepseek_v4", "xlstm", "nothing", "", None, 7]


def deep(levels):
    value = {}
    for _ in range(levels):
        value = {"text_config": value} if levels % 2 else [value]
    return value


def value_of(draw, old):
    """A value to put in the place of another: of a wrong type, out of range, near the old one, or a strange list."""
    kind = draw.randrange(16)
    if kind == 0:
        return draw.choice([-1, 0, 1, 2, 3, 7, 64, 128, 4096, 10**5, 10**6, 10**9, 10**15, 10**16, 10**30, -(10**30)])
    if kind == 1:
        return draw.choice([0.0, 1.0, 1.5, -2.5, 1e300, math.nan, math.inf, -math.inf, 8.0])
    if kind == 2:
        return draw.choice(["8", "32", "1e3", "", "auto", "null", "true", "layers", "\u0660", "x" * 10_000, WORDS[0]])
    if kind == 3:
        return draw.choice([True, False])
    if kind == 4:
        return None
    if kind == 5:
        return [draw.choice(WORDS) for _ in range(draw.choice([0, 1, 2, 5, 32, 48]))]
    if kind == 6:
        return [draw.choice([0, 1, -1, 7, 10**9, True, None, "1", 1.5]) for _ in range(draw.choice([0, 1, 3, 32]))]
    if kind == 7:
        return draw.choice([{}, {"a": 1}, {"0": {"head_dim": 8}}, {"99": {}}, {"0": 3}, {"model_type": "llama"}])
    if kind == 8:
        return deep(draw.choice([3, 50, 999, 5_000]))
    if kind == 9:
        return draw.choice([(), (1, 2), {1, 2}, b"8", object(), range(3), complex(1, 2)])
    if kind == 10 and isinstance(old, list):
        return old[: draw.randrange(len(old) + 1)] + old[: draw.randrange(3)]
    if kind == 11 and isinstance(old, list) and old:
        changed = list(old)
        changed[draw.randrange(len(old))] = draw.choice([*WORDS, 3, None, [], {}])
        return changed
    if kind == 12 and isinstance(old, dict):
        return mutated(draw, old)
    if kind == 13 and type(old) is int:
        return str(old)
    if kind == 14 and type(old) is int:
        return float(old)
    return old * draw.choice([2, 3, 1000]) + draw.choice([-1, 0, 1]) if type(old) is int else [old]


def mutated(draw, config):
    """The config with one to six of its fields, or of fields of other configs, changed, added or taken away."""
    config = dict(config)
    for _ in range(draw.randint(1, 6)):
        field = draw.choice(sorted(config) if config and draw.random() < 0.7 else FIELDS)
        action = draw.random()
        if action < 0.2:
            config.pop(field, None)
        elif action < 0.27:
            config["model_type"] = draw.choice(TYPES)
        elif action < 0.33:
            other = draw.choice(CONFIGS)
            config |= {name: other[name] for name in draw.sample(sorted(other), min(3, len(other)))}
        else:
            config[field] = value_of(draw, config.get(field))
    return config


def as_text(draw, config):
    """The config as JSON text, at times with a field twice, cut, or with brackets without end."""
    text = json.dumps(config)
    kind = draw.randrange(6)
    if kind == 0 and len(text) > 2:
        return '{"model_type": "llama", ' + text[1:]
    if kind == 1:
        return text[: draw.randrange(len(text) + 1)]
    if kind == 2:
        where = draw.randrange(len(text))
        return text[:where] + draw.choice(["{", "[", '"', ",", "9" * 400, "\x00", "\ud800"]) + text[where:]
    if kind == 3:
        return "[" * draw.choice([10, 2_000, 90_000]) + text
    return text


def problem_with(config):
    """What is wrong with what a config gives; None for a self-consistent model or a clear ValueError."""
    start = time.process_time()
    try:
        model = read_config(config)
    except ValueError as error:
        message = str(error)
        if type(error) is not ValueError or not message or "\n" in message or len(message) > 600:
            return f"{type(error).__name__}: {message!r}"
        model = None
    except Exception as error:
        return f"{type(error).__name__}: {error!r}"
    if time.process_time() - start > SLOWEST_SECONDS:
        return f"{time.process_time() - start:.1f} s"
    return None if model is None else inconsistency(model)


def inconsistency(model):
    """What contradicts itself in a model; None where nothing does."""
    try:
        if not isinstance(model, ModelSpec) or model.layers != len(model.groups_in_order):
            return "layers and their order differ"
        small, large = (sequence_memory(model, tokens, engine="ideal").bytes for tokens in (100, 200))
        compresses = any(group.compression for group in model.layer_groups)  # a block that closes frees its tokens
        if not 0 <= small <= large and not compresses:
            return f"{large} bytes of 200 tokens, {small} of 100"
        again = read_config(config_as_read(model))
    except Exception as error:
        return f"{type(error).__name__} after reading: {error!r}"
    same = (again.layer_groups, again.layer_order, again.warnings, again.provenance)
    if same != (model.layer_groups, model.layer_order, model.warnings, model.provenance):
        return "what was read gives another model"
    return None


@pytest.mark.parametrize("part", range(4))
def test_a_mutated_config_gives_a_model_or_one_clear_error(part):
    draw = random.Random(SEED + part)
    for i in range(MUTATIONS // 4):
        config = mutated(draw, draw.choice(CONFIGS))
        if draw.random() < 0.25:
            try:
                config = as_text(draw, config)
            except (TypeError, ValueError, RecursionError):
                pass
        if problem := problem_with(config):
            pytest.fail(f"mutation {i} of part {part}, seed {SEED}: {problem}\n{reprlib.repr(config)}")


def test_the_unmutated_configs_are_read_or_refused_as_before_a_copy():
    for config in CONFIGS:
        before = copy.deepcopy(config)
        assert problem_with(config) is None
        assert config == before
