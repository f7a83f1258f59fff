"""The tables in presets/, and catalogues: tables whose records are known by an exact id or a listed alias."""

import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from calc.names import known


def preset_table(name: str) -> dict[str, Any]:
    """What a file in presets/ holds.

    Parameters
    ----------
    name : str
        Name of the file, without .toml [name].

    Returns
    -------
    dict
        The table, a new one for each call [as the file says].

    Examples
    --------
    >>> preset_table("kv_formats")["q8_0"]["block_bytes"]
    34
    """
    return tomllib.loads(files("calc").joinpath("presets", f"{name}.toml").read_text("utf-8"))


class Catalogue:
    """Records of a file in presets/ by id, in the file's order; each record lists its aliases."""

    def __init__(self, table: str, what: str) -> None:
        """A file's name without .toml, and what messages call one of its records."""
        self._what = what
        self._records = preset_table(table)
        self._aliases = {alias: name for name, record in self._records.items() for alias in record["aliases"]}

    def __iter__(self) -> Iterator[str]:
        """The ids."""
        return iter(self._records)

    def id(self, name: str) -> str:
        """The id that an exact id or an alias stands for; LookupError, with near names, where it is neither."""
        return known(name, self._records, self._what, aliases=self._aliases)

    def __getitem__(self, name: str) -> dict[str, Any]:
        """The record of an id or alias; LookupError where it is neither."""
        return self._records[self.id(name)]
