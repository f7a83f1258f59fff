"""A model's config.json into a ModelSpec, by the rules in presets/*.toml, with the source of every fact."""

import json
import operator
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from calc.config_file import config_fields, named_by_text, shown
from calc.config_rules import (
    EVERY_FAMILY,
    FACTS,
    FAMILIES,
    OF_LAYERS,
    WHOLE_NUMBERS,
    YES_NO,
    allowed_values,
    checked,
    is_known_field,
    other_layer_kind,
    refuse_other_layer_kinds,
    unsupported_layer_kind,
)  # fmt: skip
from calc.model_spec import LayerGroup, ModelSpec, Provenance, WeightShape
from calc.names import UnknownName, known
from calc.numeric import require

_OPERATORS = {"+": operator.add, "*": operator.mul, "/": operator.floordiv}

FULL_ATTENTION = "full_attention"
WINDOW, LAYER_TYPES, TEXT, TIED = "sliding_window", "layer_types", "text_config", "tie_word_embeddings"
"""Config fields that have a rule of their own here."""


def read_config(config: Mapping[str, Any] | str | os.PathLike) -> ModelSpec:
    """The facts of a model from its config.json.

    Parameters
    ----------
    config : mapping, str or os.PathLike
        The config's fields; or its JSON text, which is never taken for a path; or a path to the file [config].

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
    classes, in presets/families.toml.

    Examples
    --------
    >>> model = read_config('{"model_type": "mistral", "sliding_window": null}')
    >>> model.layers, model.layout, model.layer_groups[0].kv_heads
    (32, 'GQA', 8)
    >>> [fact.source for fact in model.provenance if fact.fact == "kv_heads"]
    ['class default of num_key_value_heads']
    >>> read_config({"model_type": "mistral"})
    Traceback (most recent call last):
        ...
    ValueError: layer kind 'sliding window' (sliding_window = 4096, the class default) is not supported yet
    """
    outer = config_fields(config)
    if outer.get(TEXT) is None:
        return _Reading(outer).model()
    inner = outer.pop(TEXT)
    if not isinstance(inner, Mapping):
        raise ValueError(f"{TEXT} must be an object, got {shown(inner)}")
    inner = named_by_text(inner)
    if TIED in outer:  # the larger model ties its head, whatever the text model would do by itself
        inner[TIED] = outer[TIED]
    refuse_other_layer_kinds(outer)
    return _around(_Reading(inner).model(), outer)


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


class _Reading:
    """One config being read: its family's rules, the facts so far, and what each was taken from."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.model_type = _model_type(config)
        family = FAMILIES[self.model_type]
        self.rules = {part: {**EVERY_FAMILY[part], **family.get(part, {})} for part in ("fields", "fixed", "null")}
        for fact in family.get("fixed", {}):
            self.rules["fields"].pop(fact, None)
        self.family = family
        self.defaults = family.get("class_defaults", {})
        self.read = {"model_type": self.model_type}
        self.facts: dict[str, Any] = {}
        self.sources: dict[str, str] = {}
        self.warnings: list[str] = []

    def model(self) -> ModelSpec:
        refuse_other_layer_kinds(self.config)
        facts = {fact: self.fact(fact) for fact in FACTS}
        self._require_full_attention()
        self._require_what_the_table_assumes()
        if facts["query_heads"] % facts["kv_heads"]:
            raise ValueError(
                f"{self._label('kv_heads')} must divide the {facts['query_heads']} query heads, got {facts['kv_heads']}"
            )
        return ModelSpec(
            name=self.model_type,
            model_type=self.model_type,
            layer_groups=(
                LayerGroup(
                    kind="full",
                    layers=facts["layers"],
                    query_heads=facts["query_heads"],
                    kv_heads=facts["kv_heads"],
                    key_width=facts["head_width"],
                    value_width=facts["head_width"],
                ),
            ),
            weights=WeightShape(**{fact: value for fact, value in facts.items() if fact not in OF_LAYERS}),
            max_context=facts["max_context"],
            provenance=tuple(
                Provenance(fact=fact, value=shown(value), source=self.sources[fact]) for fact, value in facts.items()
            ),
            warnings=tuple(dict.fromkeys(self.warnings)),
            unread_fields=tuple(field for field in self.config if field not in self.read and not is_known_field(field)),
            config_text=_compact(self.read),
        )

    def fact(self, name: str) -> Any:
        if name not in self.facts:
            self.facts[name], self.sources[name] = self._resolved(name)
        return self.facts[name]

    def _resolved(self, name: str) -> tuple[Any, str]:
        forced = self._when(name, "set")
        given = self._given(name)
        if forced:
            rule, condition = forced
            value = self._value_of(name, rule)
            self._warn_of_unused(given, value, f"{condition} means {name} = {value}")
            return value, condition
        for field, value in given.items():
            if value is not None:
                self._warn_of_unused(given, value, f"{field} = {shown(value)} comes first")
                return value, field
        fields = self.rules["fields"].get(name)
        if not fields:
            return self._value_of(name, self.rules["fixed"][name]), f"fixed by the {self.model_type} class"
        default = next((field for field in fields if field in self.defaults), None)
        if default and not given:
            return self.defaults[default], f"class default of {default}"
        if not default and name in YES_NO and not given:
            return False, f"class default of {fields[0]}"
        because = f"{next(iter(given))} is null" if given else f"{fields[0]} is absent"
        when_null = self._when(name, "null")
        rule = when_null[0] if when_null else self.rules["null"].get(name)
        if rule is not None:
            return self._value_of(name, rule), f"{because}: {rule}"
        if name == "max_context" and not default:
            return None, because
        field = next(iter(given), fields[0])
        raise ValueError(f"{field} must be {allowed_values(name)}, got {'null' if given else 'nothing'}")

    def _given(self, name: str) -> dict[str, Any]:
        """The fact's fields that the config has, checked, in order of precedence; noted as read."""
        given = {}
        for field in self.rules["fields"].get(name, ()):
            if field in self.config:
                value = self.config[field]
                given[field] = self.read[field] = None if value is None else checked(value, name, field)
        return given

    def _warn_of_unused(self, given: dict[str, Any], value: Any, why: str) -> None:
        for field, other in given.items():
            if other is not None and other != value:
                self.warnings.append(f"{field} = {shown(other)} is not used: {why}")

    def _when(self, name: str, part: str) -> tuple[Any, str] | None:
        """What a condition on other fields says of a fact, and the condition in words."""
        for rule in self.family.get("when", ()):
            if name in rule.get(part, {}) and all(self._switch(field) is v for field, v in rule["if"].items()):
                return rule[part][name], " and ".join(f"{field} = {shown(v)}" for field, v in rule["if"].items())
        return None

    def _switch(self, field: str) -> bool:
        if field not in self.config:
            return self.defaults.get(field, False)
        self.read[field] = self.config[field]
        return checked(self.config[field], "switch", field)

    def _value_of(self, name: str, rule: Any) -> Any:
        """A constant, another fact, or "fact * number", "fact + number", "fact / fact"."""
        if not isinstance(rule, str):
            return rule
        left, sign, right = f"{rule} + 0".split()[:3]
        a = self.fact(left)
        b = int(right) if right.isdigit() else self.fact(right)
        if sign == "/" and a % b:
            raise ValueError(f"{self._label(left)} must be a multiple of {self._label(right)} = {b}, got {a}")
        return require(_OPERATORS[sign](a, b), WHOLE_NUMBERS[name], name)

    def _label(self, fact: str) -> str:
        source = self.sources[fact]
        return source if source in self.config else f"{fact} ({source})"

    def _require_full_attention(self) -> None:
        types = self.config.get(LAYER_TYPES)
        if types is not None:
            self._require_full_layer_types(types)
        window = self.config.get(WINDOW, self.defaults.get(WINDOW))
        if window is None:
            if WINDOW in self.defaults:
                self.read[WINDOW] = None
            return
        switch = self.family.get("window_switch")
        if switch and not self._switch(switch):
            if not self.defaults.get(switch):  # off by default too, so that no window is in force without the field
                self.read.pop(switch, None)
            return
        if types is not None and self.family.get(LAYER_TYPES):
            self.read[LAYER_TYPES] = list(types)
            return
        where = "" if WINDOW in self.config else ", the class default"
        raise unsupported_layer_kind("sliding window", f"{WINDOW} = {shown(window)}{where}")

    def _require_full_layer_types(self, types: Any) -> None:
        layers = self.facts["layers"]
        if not isinstance(types, (list, tuple)) or len(types) != layers:
            raise ValueError(f"{LAYER_TYPES} must be a list of {layers} layer kinds, got {shown(types)}")
        for index, kind in enumerate(types):
            if not (isinstance(kind, str) and kind == FULL_ATTENTION):
                raise unsupported_layer_kind(shown(kind, quote=False), f"{LAYER_TYPES}[{index}]")

    def _require_what_the_table_assumes(self) -> None:
        for field, wanted in self.family.get("only", {}).items():
            value = self.config.get(field, self.defaults.get(field))
            if field in self.config:
                self.read[field] = value
            expected = self.facts[wanted] if isinstance(wanted, str) else wanted
            if value is None and field not in self.defaults:
                continue
            if type(value) is not type(expected) or value != expected:
                raise ValueError(
                    f"{field} must be {shown(expected)} (model_type {self.model_type}; other values are not "
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


def _around(model: ModelSpec, outer: dict[str, Any]) -> ModelSpec:
    """A text model as the part of a larger model that it is."""
    unread = tuple(field for field in outer if field not in ("model_type", TIED) and not is_known_field(field))
    outer_type = outer.get("model_type")
    named = {"model_type": outer_type} if isinstance(outer_type, str) else {}
    return replace(
        model,
        name=shown(outer_type, quote=False) if named else model.name,
        warnings=(*model.warnings, f"only the text model ({TEXT}) is counted, no other part of the model"),
        unread_fields=(*model.unread_fields, *unread),
        config_text=_compact({**named, TEXT: json.loads(model.config_text)}),
    )


def _compact(fields: dict[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"))
