"""How serving engines and libraries allocate a cache: one rule each, over the same facts of a model."""

from dataclasses import fields
from typing import Any

import numpy as np

from calc.engines.ideal import Ideal
from calc.engines.layers import LayerRule, Sizes
from calc.engines.llama_cpp import LlamaCpp
from calc.engines.sglang import Sglang
from calc.engines.transformers import Transformers
from calc.engines.vllm import Vllm
from calc.kv_formats import kv_format_names
from calc.model_spec import ModelSpec
from calc.names import known

_RULES = {rule.name: rule for rule in (Ideal, Transformers, Vllm, Sglang, LlamaCpp)}
_ALIASES = {"llama_cpp": "llama.cpp", "llamacpp": "llama.cpp"}
ENGINES = tuple(_RULES)
"""Names of the rules: "ideal" is what any implementation must keep, the others what each allocates."""


def engine_rule(engine: str, model: ModelSpec, sizes: Sizes, settings: dict[str, Any]) -> LayerRule:
    """The rule of an engine for a model.

    Parameters
    ----------
    engine : str
        ideal, transformers, vllm, sglang or llama.cpp [name].
    model : ModelSpec
        The model [facts].
    sizes : Sizes
        Formats and split [facts].
    settings : dict
        The engine's settings by name, or by the engine's own; those left out have its defaults [each as its rule says].

    Returns
    -------
    LayerRule
        What counts stages and layers [rule].

    Raises
    ------
    LookupError
        If the engine is not known.
    ValueError
        If the engine has no such setting or format, or cannot split the model so.
    """
    rule = _RULES[engine_name(engine)]
    own = engine_settings(rule.name)
    settings = {rule.flags.get(name, name): value for name, value in settings.items()}
    settings = {name: _plain(value, own.get(name)) for name, value in settings.items()}
    if unknown := settings.keys() - set(own):
        raise ValueError(
            f"settings of the {rule.name} rule must be among {', '.join(own) or 'none'}, got {', '.join(sorted(unknown))}"
        )
    formats = kv_format_names(rule.name)
    for field, packed in (("kv_dtype", sizes.keys), ("value_dtype", sizes.values)):
        if packed.name not in formats:
            raise ValueError(f"{field} of the {rule.name} rule must be one of {', '.join(formats)}, got {packed.name}")
    if sizes.keys != sizes.values and rule.name not in ("ideal", "llama.cpp"):
        raise ValueError(
            f"value_dtype must be {sizes.keys.name} under the {rule.name} rule, which keeps keys and values alike, "
            f"got {sizes.values.name}"
        )
    return rule(model=model, sizes=sizes, **settings)


def _plain(value: Any, default: Any) -> Any:
    """A setting as a plain Python value; a number without a fraction is whole."""
    value = value.item() if isinstance(value, np.generic) else value
    is_whole = isinstance(value, float) and value.is_integer() and not isinstance(default, float)
    return int(value) if is_whole else value


def engine_name(engine: str) -> str:
    """The exact name of an engine.

    Parameters
    ----------
    engine : str
        Name or alias, such as llamacpp [name].

    Returns
    -------
    str
        ideal, transformers, vllm, sglang or llama.cpp [name].

    Raises
    ------
    LookupError
        If the engine is not known.

    Examples
    --------
    >>> engine_name("llamacpp")
    'llama.cpp'
    """
    return known(engine, _RULES, "engine", aliases=_ALIASES)


def engine_settings(engine: str) -> dict[str, Any]:
    """The settings of an engine's rule.

    Parameters
    ----------
    engine : str
        Engine [name].

    Returns
    -------
    dict of str to value
        Default of each setting by its name [each as its rule says].

    Examples
    --------
    >>> engine_settings("vllm")["batched_tokens"]
    8192
    """
    rule = _RULES[engine_name(engine)]
    return {field.name: field.default for field in fields(rule) if field.name not in ("model", "sizes")}


def engine_flags(engine: str) -> dict[str, str]:
    """The engine's own names of its settings.

    Parameters
    ----------
    engine : str
        Engine [name].

    Returns
    -------
    dict of str to str
        The engine's name of a setting, and the name of `engine_settings` that it stands for [names].

    Examples
    --------
    >>> engine_flags("sglang")
    {'page_size': 'page_tokens'}
    """
    return dict(_RULES[engine_name(engine)].flags)


def engine_version(engine: str) -> str:
    """What an engine's rule was read from.

    Parameters
    ----------
    engine : str
        Engine [name].

    Returns
    -------
    str
        The engine and its version [text].

    Examples
    --------
    >>> engine_version("vllm")
    'vLLM 0.32.0'
    """
    return _RULES[engine_name(engine)].version
