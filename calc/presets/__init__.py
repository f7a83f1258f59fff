"""Presets: models by short id, from models.toml."""

from dataclasses import replace

from calc.catalogue import Catalogue
from calc.model_config import read_config
from calc.model_spec import ModelSpec

_CATALOGUE = Catalogue("models", "model")


def model_ids() -> tuple[str, ...]:
    """Ids of the model presets, in the order they are shown.

    Returns
    -------
    tuple of str
        Short ids [names].

    Examples
    --------
    >>> model_ids()[0]
    'llama-3.1-8b'
    """
    return tuple(_CATALOGUE)


def model_label(name: str) -> str:
    """The label of a model preset.

    Parameters
    ----------
    name : str
        Exact id or listed alias [name].

    Returns
    -------
    str
        What a page calls the model [text].

    Raises
    ------
    LookupError
        If the name is neither an id nor a listed alias.

    Examples
    --------
    >>> model_label("meta-llama/Meta-Llama-3.1-8B")
    'Llama 3.1 8B'
    """
    return _CATALOGUE[name]["label"]


def model_preset(name: str) -> ModelSpec:
    """The facts of a model preset.

    Parameters
    ----------
    name : str
        Exact id or listed alias [name].

    Returns
    -------
    ModelSpec
        The model, named by its label [facts].

    Raises
    ------
    LookupError
        If the name is neither an id nor a listed alias.

    Examples
    --------
    >>> model_preset("llama-3.1-8b").layout
    'GQA'
    >>> model_preset("llama-3.1-9b")
    Traceback (most recent call last):
        ...
    calc.names.UnknownName: unknown model 'llama-3.1-9b'; did you mean llama-3.1-8b or llama-3.1-70b or llama-3.1-405b?
    """
    record = _CATALOGUE[name]
    nulls = dict.fromkeys(record.get("null_fields", ()))
    return replace(read_config({**record["config"], **nulls}), name=record["label"])
