"""One config being read: its family's rules, the facts so far, and what each was taken from."""

import json
import operator
from collections.abc import Mapping
from typing import Any

from calc.model_config.file import shown
from calc.model_config.rules import (
    DTYPES,
    EVERY_FAMILY,
    FAMILIES,
    RANGES,
    YES_NO,
    allowed_values,
    checked,
)
from calc.model_spec import MAX_LAYERS
from calc.numeric import count_up_to, require

_OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv, "//": operator.floordiv}
_LAYER_INDEX = count_up_to(MAX_LAYERS)
MISTAKABLE = ("kv_heads", "head_width")
"""Facts of which people take an absent field for something else than the class's default."""
AUTO = "auto"
"""What some configs write for a width that follows from others, as null does."""


def _is_json(value: Any) -> bool:
    if isinstance(value, (type(None), bool, int, float, str)):
        return True
    try:
        return isinstance(value, (list, tuple, dict)) and bool(json.dumps(value))
    except (TypeError, ValueError, RecursionError):
        return False


def _says_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value == AUTO)


def _in_words(field: str, wanted: bool | str) -> str:
    return f"{field} is given" if wanted == "given" else f"{field} = {shown(wanted)}"


class Reading:
    """One config being read: its family's rules, the facts so far, and what each was taken from."""

    def __init__(self, config: dict[str, Any], model_type: str, known: dict[str, Any] | None = None) -> None:
        family = FAMILIES[model_type]
        for name in family.get("inside", ()):
            if isinstance(inner := config.get(name), Mapping):
                outer = {field: value for field, value in config.items() if field != name}
                config = {**outer, **{f"{name}.{field}": value for field, value in inner.items()}}
        self.config = config
        self.model_type = model_type
        self.rules = {part: {**EVERY_FAMILY[part], **family.get(part, {})} for part in ("fields", "fixed", "null")}
        for fact in family.get("fixed", {}):
            self.rules["fields"].pop(fact, None)
        self.family = family
        self.defaults = family.get("class_defaults", {})
        self.read = {"model_type": model_type}
        self.facts: dict[str, Any] = dict(known or {})
        self.sources: dict[str, str] = {}
        self.warnings: list[str] = []
        self.under_way: dict[str, None] = {}

    def fact(self, name: str) -> Any:
        """A fact of the model, by the family's rules."""
        if name not in self.facts:
            if name in self.under_way:  # two null fields, each of which would follow from the other
                raise ValueError(f"{self._null_field()} must be {allowed_values(name)}, got null; nothing else says it")
            self.under_way[name] = None
            resolved = self._state_dtype() if name == "state_dtype" else self._resolved(name)
            del self.under_way[name]
            self.facts[name], self.sources[name] = resolved
        return self.facts[name]

    def _null_field(self) -> str:
        """The field, null or auto, of the facts under way."""
        fields = [field for fact in self.under_way for field in self.rules["fields"].get(fact, ())]
        null = [field for field in fields if field in self.config and _says_nothing(self.config[field])]
        return (null or fields or list(self.under_way))[0]

    def has(self, name: str) -> bool:
        """Whether the family says where a fact is from."""
        return name in self.rules["fields"] or name in self.rules["fixed"]

    def optional(self, name: str) -> Any:
        """A fact that may be null; None where it is, or where the family has no such fact."""
        if not self.has(name):
            return None
        if name not in self.facts and name in self.rules["fields"]:
            given = self._given(name)
            fields = self.rules["fields"][name]
            values = [value for value in given.values() if value is not None]
            default = next((self.defaults[field] for field in fields if field in self.defaults), None)
            if not values and (given or default is None) and name not in self.rules["null"]:
                return None
        return self.fact(name)

    def field(self, name: str) -> Any:
        """The value of a field; that of the class where it is absent."""
        if name in self.config:
            value = self.config[name]
            if name in self.read and self.read[name] is value:
                return value
            if not _is_json(value):
                raise ValueError(f"{name} must be a value of JSON, got {shown(value)}")
            self.read[name] = value
            return value
        return self.defaults.get(name)

    def whole(self, name: str) -> int | None:
        """The value of a field as a layer count or index."""
        value = self.field(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{name} must be {_LAYER_INDEX}, got {shown(value)}")
        return require(value, _LAYER_INDEX, name)

    def is_on(self, name: str) -> bool:
        """The value of a yes/no field; null counts as no."""
        if name in self.config and self.config[name] is None:
            self.read[name] = None
            return False
        return self.switch(name)

    def model_dtype(self) -> str:
        """The model's own type; bf16 where the config names none."""
        for field in ("dtype", "torch_dtype"):
            if isinstance(name := self.config.get(field), str) and name.removeprefix("torch.") in DTYPES:
                self.read[field] = name
                return DTYPES[name.removeprefix("torch.")]
        return "bf16"

    def _state_dtype(self) -> tuple[str, str]:
        for field in ("mamba_ssm_cache_dtype", "mamba_ssm_dtype"):
            value = self.field(field)
            if isinstance(value, str) and value in DTYPES:
                return DTYPES[value], field
            if value is not None and value != AUTO:
                raise ValueError(f"{field} must be one of {', '.join(DTYPES)}, got {shown(value)}")
        return "fp32", "float32 where the config says nothing"

    def _resolved(self, name: str) -> tuple[Any, str]:
        forced = self._when(name, "set")
        given = self._given(name)
        if forced:
            rule, condition = forced
            value = self.value_of(name, rule)
            self._warn_of_unused(given, value, f"{condition} means {name} = {value}")
            return value, condition
        for field, value in given.items():
            if value is not None:
                self._warn_of_unused(given, value, f"{field} = {shown(value)} comes first")
                return value, field
        fields = self.rules["fields"].get(name)
        if not fields:
            return self.value_of(name, self.rules["fixed"][name]), f"fixed by the {self.model_type} class"
        default = next((field for field in fields if field in self.defaults), None)
        if default and not given:
            self._warn_of_default(name, default)
            return self.defaults[default], f"class default of {default}"
        if not default and name in YES_NO and not given:
            return False, f"class default of {fields[0]}"
        because = f"{next(iter(given))} is null" if given else f"{fields[0]} is absent"
        when_null = self._when(name, "null")
        rule = when_null[0] if when_null else self.rules["null"].get(name)
        if rule is not None:
            value = self.value_of(name, rule)
            if default and name == "head_width" and value != self.defaults[default]:
                self.warnings.append(f"{because}: {rule} = {value} is taken, not the class's {self.defaults[default]}")
            return value, f"{because}: {rule}"
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
                value = None if _says_nothing(value) else value
                given[field] = None if value is None else checked(value, name, field)
                self.read[field] = self.config[field] if value is None else given[field]
        return given

    def _warn_of_default(self, name: str, field: str) -> None:
        """A width or a number of heads that a file leaves out is the class's, whatever its other numbers suggest."""
        if name not in MISTAKABLE:
            return
        heads = self._stated("query_heads")
        if heads is None:  # a file that names no heads at all is the class's model as a whole
            return
        likely, instead = heads, "the number of query heads"
        if name == "head_width":
            hidden = self._stated("hidden_width") or 0
            likely, instead = hidden / heads, f"hidden width / query heads = {hidden} / {heads}"
        if self.defaults[field] != likely:
            self.warnings.append(
                f"{field} is absent: {self.defaults[field]}, the default of the {self.model_type} class, is taken, "
                f"not {instead}"
            )

    def _stated(self, name: str) -> int | None:
        """What the config itself says of a fact, where it is a whole number; noted as read."""
        for field in self.rules["fields"].get(name, ()):
            value = self.config.get(field)
            if type(value) is int and value > 0:
                self.read[field] = value
                return value
        return None

    def warn_of_printed_heads(self) -> None:
        """A latent layer keeps one plane, however many KV heads the file prints."""
        for field in self.rules["fields"]["kv_heads"]:
            value = self.config.get(field)
            if type(value) is int and value > 1:
                self.read[field] = value
                self.warnings.append(
                    f"{field} = {shown(value)} is not used: a latent layer keeps one plane for all heads"
                )

    def _warn_of_unused(self, given: dict[str, Any], value: Any, why: str) -> None:
        for field, other in given.items():
            if other is not None and other != value:
                self.warnings.append(f"{field} = {shown(other)} is not used: {why}")

    def _when(self, name: str, part: str) -> tuple[Any, str] | None:
        """What a condition on other fields says of a fact, and the condition in words."""
        for rule in self.family.get("when", ()):
            if name in rule.get(part, {}) and all(self._holds(field, v) for field, v in rule["if"].items()):
                return rule[part][name], " and ".join(_in_words(field, v) for field, v in rule["if"].items())
        return None

    def _holds(self, field: str, wanted: bool | str) -> bool:
        if isinstance(wanted, str):
            value = self.field(field)
            return value is not None if wanted == "given" else isinstance(value, str) and value == wanted
        return self.switch(field) is wanted

    def switch(self, field: str) -> bool:
        """The value of a yes/no field."""
        if field not in self.config:
            return self.defaults.get(field, False)
        self.read[field] = self.config[field]
        return checked(self.config[field], "switch", field)

    def value_of(self, name: str, rule: Any) -> Any:
        """A constant, another fact, or facts and numbers with + - * / // between them, from left to right."""
        if not isinstance(rule, str):
            return rule
        left, *steps = rule.split()
        value = self.fact(left)
        for sign, right in zip(steps[::2], steps[1::2]):
            b = int(right) if right.isdigit() else self.fact(right)
            if sign == "/" and value % b:
                raise ValueError(f"{self.label(left)} must be a multiple of {self.label(right)} = {b}, got {value}")
            value = _OPERATORS[sign](value, b)
        return require(value, RANGES[name], name)

    def label(self, fact: str) -> str:
        """What a message calls a fact: the field it came from, or its name and its source."""
        source = self.sources.get(fact, fact)
        return source if source in self.config else f"{fact} ({source})"
