"""The fields of a config.json from a mapping, a JSON text or a file, or one ValueError that says what is wrong."""

import json
import os
import stat
from collections.abc import Mapping
from typing import Any

from calc.units import MB

MAX_CONFIG_BYTES = MB
"""Largest text or file that is read, in bytes."""
MAX_NAME = 100
MAX_DIGITS = 24
"""Digits of the longest whole number that is read."""


def config_fields(config: Mapping[str, Any] | str | os.PathLike) -> dict[str, Any]:
    """The fields of a config in any of the forms it comes in.

    Parameters
    ----------
    config : mapping, str or os.PathLike
        The fields; or their JSON text, which is never taken for a path; or a path to the file [config].

    Returns
    -------
    dict
        Fields by name [config].

    Raises
    ------
    ValueError
        If it is none of these, too large, not UTF-8, not one JSON object, has a field twice, or a number that is not
        finite or of more than 24 digits.

    Examples
    --------
    >>> config_fields('{"num_hidden_layers": 32}')
    {'num_hidden_layers': 32}
    >>> config_fields('{"num_hidden_layers": 32')
    Traceback (most recent call last):
        ...
    ValueError: config text is not valid JSON: Expecting ',' delimiter, line 1 column 25
    """
    if isinstance(config, Mapping):
        return named_by_text(config)
    if isinstance(config, str):
        size = len(config.encode("utf-8", "surrogatepass"))
        if size > MAX_CONFIG_BYTES:
            raise ValueError(f"config text must be at most {MAX_CONFIG_BYTES:,} bytes (1 MB), got {size:,}")
        return _parsed(config, "config text")
    if isinstance(config, os.PathLike):
        name = f"config file {shown(os.fspath(config))}"
        return _parsed(_file_text(config, name), name)
    raise ValueError(f"config must be a mapping, a JSON text or a path, got {type(config).__name__}")


def named_by_text(fields: Mapping) -> dict[str, Any]:
    """The mapping as a dictionary, or a ValueError where a field's name is not a text."""
    for field in fields:
        if not isinstance(field, str):
            raise ValueError(f"config fields must be named by text, got {shown(field)}")
        if not field.isprintable() or len(field) > MAX_NAME:
            raise ValueError(
                f"config fields must have printable names of at most {MAX_NAME} letters, got {shown(field)}"
            )
    return dict(fields)


def shown(value: Any, *, quote: bool = True) -> str:
    """A value as a short text in JSON's words; long texts are cut, lists and objects counted."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if abs(value) < 10**MAX_DIGITS else f"a number of more than {MAX_DIGITS} digits"
    if isinstance(value, float):
        return repr(float(value))
    if isinstance(value, str):
        text = value if len(value) <= 60 else value[:57] + "..."
        return repr(text) if quote or not text.isprintable() else text
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    return f"an object of {len(value)} fields" if isinstance(value, Mapping) else f"a {type(value).__name__}"


def _file_text(path: os.PathLike, name: str) -> str:
    try:
        is_file = stat.S_ISREG(os.stat(path).st_mode)
        content = _start_of(path) if is_file else b""  # opening a pipe would wait for its writer
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise ValueError(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not is_file:
        raise ValueError(f"{name} must be a file; it is a folder or a device")
    if len(content) > MAX_CONFIG_BYTES:
        raise ValueError(f"{name} must be at most {MAX_CONFIG_BYTES:,} bytes (1 MB)")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} must be UTF-8 text; byte {error.start} is not") from None


def _start_of(path: os.PathLike) -> bytes:
    with open(path, "rb") as file:
        return file.read(MAX_CONFIG_BYTES + 1)


def _parsed(text: str, name: str) -> dict[str, Any]:
    text = text.removeprefix("\ufeff")  # editors on Windows put a byte order mark before the first brace
    if not text.strip():
        raise ValueError(f"{name} must be a JSON object, got nothing")
    try:
        fields = json.loads(
            text, object_pairs_hook=_object, parse_constant=_constant, parse_int=_whole, parse_float=_decimal
        )
    except json.JSONDecodeError as error:
        raise ValueError(f"{name} is not valid JSON: {error.msg}, line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply") from None
    if not isinstance(fields, dict):
        raise ValueError(f"{name} must be a JSON object, got {shown(fields)}")
    return fields


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for field, value in pairs:
        if field in fields:
            raise ValueError(f"config field {shown(field)} is given twice")
        fields[field] = value
    return fields


def _constant(name: str) -> None:
    raise ValueError(f"config numbers must be finite, got {name}")


def _whole(digits: str) -> int:
    if len(digits) > MAX_DIGITS + 1:
        raise ValueError(f"config numbers must have at most {MAX_DIGITS} digits, got {len(digits):,}")
    return int(digits)


def _decimal(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"config numbers must be finite, got {shown(digits, quote=False)}")
    return number
