"""The tables by which a config.json is read: facts and their ranges, families, and fields that signal a layer kind."""

import fnmatch
import functools
import re
from numbers import Integral
from typing import Any

from calc.catalogue import preset_table
from calc.model_config.file import shown
from calc.model_spec import MAX_HEADS, MAX_LAYERS, MAX_WIDTH
from calc.numeric import MAX_COUNT, Range, count_up_to, require

_WIDTH = count_up_to(MAX_WIDTH, low=1)
_HEADS = count_up_to(MAX_HEADS, low=1)
_FEW = count_up_to(8)
WHOLE_NUMBERS: dict[str, Range] = {
    "layers": count_up_to(MAX_LAYERS, low=1),
    "query_heads": _HEADS,
    "kv_heads": _HEADS,
    "head_width": _WIDTH,
    "max_context": count_up_to(MAX_COUNT, low=1),
    "hidden_width": _WIDTH,
    "intermediate_width": _WIDTH,
    "vocabulary": _WIDTH,
    "position_embeddings": count_up_to(MAX_WIDTH),
    "norm_vectors": _FEW,
    "norms_per_layer": _FEW,
    "outer_norms": _FEW,
    "query_key_norm_vectors": _FEW,
}
OF_CACHES: dict[str, Range] = {
    "window": count_up_to(MAX_COUNT, low=1),
    "stated_window": count_up_to(MAX_COUNT, low=1),
    "chunk": count_up_to(MAX_COUNT, low=1),
    "previous_tokens": count_up_to(MAX_COUNT - 1),
    "local_attention": count_up_to(MAX_COUNT, low=2),
    **dict.fromkeys(("sparse_rate", "heavy_rate"), count_up_to(MAX_COUNT, low=1)),
    "extra_tokens": count_up_to(MAX_COUNT),
    **dict.fromkeys(("query_groups", "sliding_kv_heads", "sliding_query_heads", "global_kv_heads", "full_kv_heads",
                     "state_heads", "state_groups", "linear_heads", "linear_key_heads", "linear_value_heads",
                     "ngram_streams"), _HEADS),
    "index_tokens": count_up_to(MAX_COUNT, low=1),
    "index_heads": _HEADS,
    **dict.fromkeys(("value_width", "latent_width", "rope_width", "nope_width", "head_value_width", "index_width",
                     "global_head_width",
                     "sliding_head_width", "sliding_latent_width", "sliding_rope_width", "sliding_nope_width",
                     "conv_kernel", "state_inner_width", "state_width", "state_head_width", "linear_head_width",
                     "linear_key_width", "linear_value_width", "recurrence_width", "expansion", "ngram_size",
                     "ngram_kernel", "experts_per_token"), _WIDTH),
}  # fmt: skip
"""Facts that some kinds of layers need, each read only where a layer needs it."""
YES_NO = (
    "gated_mlp", "tied_head", "query_key_value_bias", "attention_output_bias", "mlp_bias", "head_bias",
    "query_key_norm", "query_key_norm_per_head",
)  # fmt: skip
OF_ATTENTION = ("nope_width", "head_value_width")
"""Facts that attention's FLOP depend on and no cache does: 0 in a layer where a file does not say them."""
OF_LAYERS = ("layers", "query_heads", "kv_heads", "head_width", "max_context")
FACTS = (*WHOLE_NUMBERS, *YES_NO)
"""Every fact that the config of a model with known parameters is read for."""
RANGES = {**WHOLE_NUMBERS, **OF_CACHES}
DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
"""Types that a config names, in the words used here."""


def _pattern(names: list[str]) -> re.Pattern:
    return re.compile("|".join(map(fnmatch.translate, names)))


def _with_those_like_others(families: dict[str, Any], remote: dict[str, Any]) -> dict[str, Any]:
    """All families, the remote ones with the rules of those they are like."""
    families = dict(families)
    for name, row in remote.items():
        base = {rule: value for rule, value in families.get(row.get("like"), {}).items() if rule != "class_defaults"}
        families[name] = base | row | {"own_code": True}
    return families


FAMILIES = _with_those_like_others(
    preset_table("families") | preset_table("cache_families"), preset_table("remote_families")
)
"""The rules of each model_type that is read; those of families.toml alone say something of parameters."""
EVERY_FAMILY = FAMILIES.pop("every_family")
TEXT_MODELS = {name: row["text_model"] for name, row in FAMILIES.items() if "text_model" in row}
"""The model_type of a larger model's text model, by that of the larger model."""
FAMILIES = {name: row for name, row in FAMILIES.items() if name not in TEXT_MODELS}
_NAMES_REMEMBERED = 4_096
"""Field names whose patterns were tried; enough for every name that files have."""
_FIELDS = preset_table("layer_kinds")
_KINDS = {kind: _pattern(names) for kind, names in _FIELDS["layer_kinds"].items()}
_HARMLESS = _pattern(_FIELDS["harmless"]["fields"])
_OF_PARAMETERS = _pattern(_FIELDS["of_parameters"]["fields"])


def checked(value: Any, fact: str, field: str) -> int | bool:
    """A config field's value as the fact it is read for, or a ValueError that names the field and what is allowed."""
    allowed = RANGES.get(fact)
    if allowed is None and isinstance(value, bool):
        return value
    if allowed is None or isinstance(value, bool) or not isinstance(value, Integral):
        raise ValueError(f"{field} must be {allowed_values(fact)}, got {shown(value)}")
    return require(value, allowed, field)


def allowed_values(fact: str) -> str:
    """What a fact may be, in words."""
    return str(RANGES.get(fact, "true or false"))


def other_layer_kind(config: dict[str, Any]) -> tuple[str, str] | None:
    """The first field, in an object too, that signals another layer kind than plain full attention with one dense MLP."""
    for field, value in config.items():
        kind = _kind_signalled_by(field)
        if kind is None or (isinstance(value, (type(None), bool, int, float, str, list, tuple, dict)) and not value):
            continue
        return kind, f"{field} = {shown(value)}"
    return None


@functools.lru_cache(_NAMES_REMEMBERED)
def _kind_signalled_by(field: str) -> str | None:
    name = field.rpartition(".")[2]
    return next((kind for kind, pattern in _KINDS.items() if pattern.match(name)), None)


def refuse_other_layer_kinds(config: dict[str, Any]) -> None:
    """Raise a ValueError that names the layer kind, where a field signals one that is not supported."""
    if kind := other_layer_kind(config):
        raise unsupported_layer_kind(*kind)


def signals_experts(field: str) -> bool:
    """Whether a field is about experts, which no cache depends on."""
    return _kind_signalled_by(field) == "mixture of experts"


def unsupported_layer_kind(kind: str, where: str) -> ValueError:
    """The one message for a layer kind that no formula here covers."""
    return ValueError(f"layer kind {kind!r} ({where}) is not supported yet")


@functools.lru_cache(_NAMES_REMEMBERED)
def is_of_parameters(field: str) -> bool:
    """Whether a field is one that only parameters depend on."""
    return bool(_OF_PARAMETERS.match(field))


@functools.lru_cache(_NAMES_REMEMBERED)
def is_known_field(field: str) -> bool:
    """Whether a field is known to change nothing here, or was checked to be off."""
    return bool(_HARMLESS.match(field)) or _kind_signalled_by(field) is not None
