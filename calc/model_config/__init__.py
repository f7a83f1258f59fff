"""A model's config.json, or .gguf file, into a ModelSpec, by the rules in presets/*.toml, with the source of every fact."""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from calc.model_config.file import config_fields, named_by_text, shown
from calc.model_config.gguf_header import is_gguf
from calc.model_config.layers import Layers
from calc.model_config.reading import Reading
from calc.model_config.rules import (
    FACTS,
    FAMILIES,
    OF_ATTENTION,
    OF_LAYERS,
    RANGES,
    TEXT_MODELS,
    checked,
    is_known_field,
    is_of_parameters,
    other_layer_kind,
    refuse_other_layer_kinds,
    signals_experts,
)
from calc.model_spec import ModelSpec, Provenance, WeightShape
from calc.names import UnknownName, known

TIED, DTYPE = "tie_word_embeddings", "dtype"
NESTED = (("text_config",), ("thinker_config", "text_config"), ("decoder",), ("llm_config",), ("language_config",))
"""Where a larger model keeps its text model, in order of precedence."""


def read_config(config: Mapping[str, Any] | str | os.PathLike) -> ModelSpec:
    """The facts of a model from its config.json, or from the metadata of its .gguf file.

    Parameters
    ----------
    config : mapping, str or os.PathLike
        The config's fields; or its JSON text, which is never taken for a path; or a path to the file, which may be a
        .gguf file [config].

    Returns
    -------
    ModelSpec
        The model, with the source of every fact, warnings, and the fields that no rule here reads [facts].

    Raises
    ------
    ValueError
        If the config cannot be read, a field is out of range, or the model or one of its layers is of a kind that is
        not supported.

    Notes
    -----
    An absent field takes the default of the model's config class, not a formula; a null field takes the class's
    derivation. Where a config nests its text model in text_config, that is what is read. Source: transformers' config
    classes, in presets/families.toml and cache_families.toml.

    Examples
    --------
    >>> model = read_config('{"model_type": "mistral", "sliding_window": null}')
    >>> model.layers, model.layout, model.layer_groups[0].kv_heads
    (32, 'GQA', 8)
    >>> [fact.source for fact in model.provenance if fact.fact == "kv_heads"]
    ['class default of num_key_value_heads']
    >>> [(group.kind, group.layers, group.window) for group in read_config({"model_type": "gemma3_text"}).layer_groups]
    [('sliding', 22, 4096), ('full', 4, None)]
    >>> read_config({"model_type": "llama", "sliding_window": 4096})
    Traceback (most recent call last):
        ...
    ValueError: layer kind 'sliding window' (sliding_window = 4096) is not supported yet
    """
    if isinstance(config, os.PathLike) and is_gguf(config):
        return _of_gguf(config)
    outer = config_fields(config)
    for path in NESTED:
        inner = _nested(outer, path)
        if inner is None:
            continue
        if "model_type" not in inner and (known_type := _text_model(outer)):
            inner["model_type"] = known_type
        if TIED in outer:  # the larger model ties its head, whatever the text model would do by itself
            inner[TIED] = checked(outer[TIED], "tied_head", TIED)
        for name in (DTYPE, "torch_dtype"):
            if name in outer and DTYPE not in inner:
                inner[DTYPE] = outer[name]
        around = {field: value for field, value in outer.items() if field != path[0]}
        model = _model(inner)
        if model.weights is not None:
            refuse_other_layer_kinds(around)
        return _around(model, around, path)
    if text_model := _text_model(outer):  # older files keep the text model's fields beside the others
        flat = _model({**outer, "model_type": text_model})
        read = {**json.loads(flat.config_text), "model_type": outer["model_type"]}
        return replace(flat, name=outer["model_type"], config_text=_compact(read))
    return _model(outer)


def _of_gguf(path: os.PathLike) -> ModelSpec:
    """The model of a .gguf file; where a fact's value came from is a key of the file."""
    from calc.model_config.gguf_file import config_of_gguf  # its table is read for .gguf files alone

    found = config_of_gguf(path)
    try:
        model = _model(found.fields)
    except ValueError as error:
        raise ValueError(f"GGUF file, read as {found.fields['model_type']}: {error}") from None
    unsaid = [e.fact for e in model.provenance if e.fact in RANGES and e.source.startswith("class default")]
    if of_cache := [fact for fact in unsaid if fact not in OF_ATTENTION]:
        raise ValueError(f"GGUF file of a {found.fields['model_type']} model must have a key for {of_cache[0]}")
    unknown = dict.fromkeys(OF_ATTENTION, 0) if unsaid else {}
    return replace(
        model,
        name=found.name,
        layer_groups=tuple(replace(group, **unknown) for group in model.layer_groups),
        provenance=tuple(
            replace(e, source=found.sources.get(e.source, e.source)) for e in model.provenance if e.fact not in unsaid
        ),
        warnings=(*found.warnings, *model.warnings),
        unread_fields=(*found.unread, *model.unread_fields),
    )


def _text_model(outer: dict[str, Any]) -> str | None:
    outer_type = outer.get("model_type")
    return TEXT_MODELS.get(outer_type) if isinstance(outer_type, str) else None


def _nested(outer: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any] | None:
    """The text model's fields under a path, or None where there is nothing."""
    inner: Any = outer
    for name in path:
        inner = inner.get(name)
        if inner is None:
            return None
        if not isinstance(inner, Mapping):
            raise ValueError(f"{name} must be an object, got {shown(inner)}")
        inner = named_by_text(inner)
    return inner


def config_as_read(model: ModelSpec) -> dict[str, Any]:
    """The smallest config that `read_config` reads the same facts from.

    Parameters
    ----------
    model : ModelSpec
        A model that came from a config [facts].

    Returns
    -------
    dict
        The fields that were read [config].

    Raises
    ------
    ValueError
        If the model did not come from a config.

    Examples
    --------
    >>> config_as_read(read_config({"model_type": "phi3", "hidden_act": "silu", "num_hidden_layers": 40}))
    {'model_type': 'phi3', 'num_hidden_layers': 40}
    """
    if not model.config_text:
        raise ValueError(f"the model must come from a config, got {model.name}")
    return json.loads(model.config_text)


def _model(config: dict[str, Any]) -> ModelSpec:
    """A model from the fields of its own config, without anything around it."""
    reading = Reading(config, _model_type(config))
    unknown = reading.family.get("unknown_weights", "")
    if not unknown and not reading.has("window"):
        handled = _handled(reading)
        refuse_other_layer_kinds({field: value for field, value in reading.config.items() if field not in handled})
    _require_what_the_table_assumes(reading, of_facts=False)
    names = FACTS if not unknown else ("max_context",)
    for name in names:
        reading.fact(name)
    groups, order = Layers(reading).groups()
    reading.fact("layers")
    _require_what_the_table_assumes(reading, of_facts=True)
    has_states = any(group.states or group.compression for group in groups)
    dtype = reading.model_dtype() if has_states else "bf16"
    handled = _handled(reading)
    unread = {field: value for field, value in reading.config.items() if field not in reading.read}
    if not unknown:
        refuse_other_layer_kinds({field: value for field, value in unread.items() if field not in handled})
    else:
        unread = {field: value for field, value in unread.items() if field not in handled}
    looks_ahead = not unknown and reading.is_on("use_bidirectional_attention")
    facts = reading.facts
    weights = None if unknown else WeightShape(**{name: facts[name] for name in FACTS if name not in OF_LAYERS})
    return ModelSpec(
        name=reading.model_type,
        model_type=reading.model_type,
        layer_groups=groups,
        layer_order=order,
        weights=weights,
        unknown_weights=unknown,
        max_context=facts["max_context"],
        unknown_attention="attention to later tokens" if looks_ahead else reading.family.get("unknown_attention", ""),
        dtype=dtype,
        provenance=tuple(
            Provenance(fact=fact, value=shown(value), source=reading.sources[fact]) for fact, value in facts.items()
        ),
        warnings=tuple(dict.fromkeys([*_warnings_of_own_code(reading), *reading.warnings])),
        unread_fields=tuple(field for field, value in unread.items() if not _is_harmless(field, value, unknown)),
        config_text=_compact(reading.read),
    )


def _warnings_of_own_code(reading: Reading) -> list[str]:
    if not reading.family.get("own_code"):
        return []
    return [
        f"model_type {reading.model_type} is not in transformers: its files bring code of their own, and the rule "
        "'transformers' counts what that library's own cache would hold of such layers"
    ]


def _handled(reading: Reading) -> set[str]:
    """Fields that the family reads, whatever layer kind they signal."""
    rules = reading.family
    named = {field for fields in reading.rules["fields"].values() for field in fields}
    listed = {rule[key] for rule in rules.get("pattern", []) for key in rule if key.endswith("field")}
    return named | listed | set(rules.get("cross_if", ())) | set(rules.get("unused", ()))


def _is_harmless(field: str, value: Any, unknown: str) -> bool:
    """Whether a field that was not read changes nothing; a signal of a layer kind only where it is off."""
    field = field.rpartition(".")[2]
    if unknown and is_of_parameters(field):
        return True
    if not is_known_field(field):
        return False
    return not unknown or signals_experts(field) or other_layer_kind({field: value}) is None


def _require_what_the_table_assumes(reading: Reading, *, of_facts: bool) -> None:
    """The one value that a field may have: a constant, or a fact once the facts are known."""
    for field, wanted in reading.family.get("only", {}).items():
        if (isinstance(wanted, str) and wanted in RANGES) is not of_facts:
            continue
        value = reading.config.get(field, reading.defaults.get(field))
        if field in reading.config:
            reading.read[field] = value
        expected = reading.facts.get(wanted, wanted) if isinstance(wanted, str) else wanted
        if value is None and field not in reading.defaults:
            continue
        if type(value) is not type(expected) or value != expected:
            raise ValueError(
                f"{field} must be {shown(expected)} (model_type {reading.model_type}; other values are not "
                f"supported yet), got {shown(value)}"
            )


def _model_type(config: dict[str, Any]) -> str:
    value = config.get("model_type")
    if not isinstance(value, str):
        raise ValueError(f"model_type must be a text such as 'llama', got {shown(value)}")
    try:
        return known(value, FAMILIES, "model_type")
    except UnknownName as error:
        kind = other_layer_kind(config)
        raise ValueError(f"{error}{f'; its layer kind is {kind[0]!r} ({kind[1]})' if kind else ''}") from None


def _around(model: ModelSpec, outer: dict[str, Any], path: tuple[str, ...]) -> ModelSpec:
    """A text model as the part of a larger model that it is."""
    unread = tuple(
        field
        for field, value in outer.items()
        if field not in ("model_type", TIED) and not _is_harmless(field, value, model.unknown_weights)
    )
    outer_type = outer.get("model_type")
    inner: dict[str, Any] = json.loads(model.config_text)
    for name in reversed(path):
        inner = {name: inner}
    named = {"model_type": outer_type} if isinstance(outer_type, str) else {}
    if TIED in outer:
        named[TIED] = outer[TIED]
    return replace(
        model,
        name=shown(outer_type, quote=False) if isinstance(outer_type, str) else model.name,
        warnings=(*model.warnings, *_warnings_of_a_part(model, outer, path)),
        unread_fields=(*model.unread_fields, *unread),
        config_text=_compact({**named, **inner}),
    )


def _warnings_of_a_part(model: ModelSpec, outer: dict[str, Any], path: tuple[str, ...]) -> tuple[str, ...]:
    """What is not known of a text model that is part of a larger one."""
    part = f"only the language model ({'.'.join(path)}) is counted, no other part such as one for images"
    if TIED in outer or model.weights is None:
        return (part,)
    tied = "shares the embedding's weights" if model.weights.tied_head else "has weights of its own"
    return (part, f"for parameters and FLOP: {TIED} is absent outside the language model; its output head {tied} here")


def _compact(fields: dict[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"))
