"""The header of a .gguf file: its keys and the names of its tensors, read within bounds and without the data."""

import functools
import os
import stat
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from calc.model_config.file import shown
from calc.units import MB

MAGIC, SUFFIX = b"GGUF", ".gguf"
MAX_METADATA_BYTES = 128 * MB
MAX_KEYS = 10_000
MAX_TENSORS = 100_000
MAX_LIST = 4_096
"""Longest list whose entries are read; longer ones, a tokenizer's, are passed over and counted."""
MAX_ENTRIES, MAX_STRINGS = 16 * MAX_LIST, 4_000_000
"""Entries read, and texts passed over, in all lists of a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What is needed of a .gguf file: its keys, and the names of its tensors."""

    name: str
    keys: Mapping[str, Any]
    """Values by key; a list that was passed over is its length, as a `Passed`."""
    tensors: frozenset[str]


class Passed(int):
    """The length of a list whose entries were not read."""


def is_gguf(path: os.PathLike) -> bool:
    """Whether a file is to be read as GGUF: by its first four bytes, or by its name.

    Parameters
    ----------
    path : os.PathLike
        A path [path].

    Returns
    -------
    bool
        True for a file that starts with the magic or is named .gguf [yes or no].
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait for its writer
            return False
        if os.fspath(path).lower().endswith(SUFFIX):
            return True
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


def metadata_of(path: os.PathLike) -> Metadata:
    """The keys and tensor names of a .gguf file, without its data."""
    name = f"GGUF file {shown(os.fspath(path))}"
    try:
        header = _header_class()(path)
        keys = {field.name: _value(field) for field in header.fields.values()}
    except OSError as error:
        raise ValueError(f"{name} cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, IndexError, OverflowError, RecursionError, struct.error) as error:
        reason = " ".join(str(error).strip("'\"").split())[:120]
        raise ValueError(f"{name} is no GGUF file, damaged or cut off: {reason or type(error).__name__}") from None
    return Metadata(name=name, keys=keys, tensors=header.names)


@functools.cache
def _header_class() -> type:
    """The gguf package's reader, kept to the header and within bounds.

    As it stands, the reader takes 40 seconds for a tokenizer of 256,000 tokens, makes a view of every tensor's data,
    and does not end where a damaged file announces a list of 10**18 entries. The methods below are not part of the
    package's promise: requirements.txt pins its version.
    """
    from gguf import GGUFReader, GGUFValueType

    class Header(GGUFReader):
        """Keys and tensor names only."""

        entries = strings = 0

        def _get(self, offset: int, dtype: Any, count: int = 1, override_order: str | None = None) -> np.ndarray:
            end = offset + int(count) * np.dtype(dtype).itemsize
            if end > self.data.size:
                raise ValueError("it ends within its metadata")
            if end > MAX_METADATA_BYTES:
                raise ValueError(f"its metadata are larger than {MAX_METADATA_BYTES:,} bytes")
            return super()._get(offset, dtype, count, override_order)

        def _build_fields(self, offs: int, count: int) -> int:
            if count > MAX_KEYS:
                raise ValueError(f"it announces {count:,} keys")
            return super()._build_fields(offs, int(count))

        def _get_field_parts(self, orig_offs: int, raw_type: int) -> tuple[int, list, list, list]:
            if raw_type != GGUFValueType.ARRAY:
                return super()._get_field_parts(orig_offs, raw_type)
            kind, count = self._get(orig_offs, np.uint32), self._get(orig_offs + 4, np.uint64)
            item, length = GGUFValueType(kind[0]), int(count[0])
            if item == GGUFValueType.STRING:
                size = self._size_of_strings(orig_offs + 12, length)
            elif length > MAX_LIST and item in self.gguf_scalar_to_np:
                size = length * np.dtype(self.gguf_scalar_to_np[item]).itemsize
                self._get(orig_offs + 12, np.uint8, size)
            else:
                self.entries += length
                if self.entries > MAX_ENTRIES:
                    raise ValueError(f"its lists have more than {MAX_ENTRIES:,} entries")
                return super()._get_field_parts(orig_offs, raw_type)
            return 12 + size, [kind, count], [], [GGUFValueType.ARRAY, item]

        def _size_of_strings(self, start: int, length: int) -> int:
            self.strings += length
            if self.strings > MAX_STRINGS:
                raise ValueError(f"its lists have more than {MAX_STRINGS:,} texts")
            swapped = self.byte_order == "S"
            size_of = struct.Struct((">" if swapped == (sys.byteorder == "little") else "<") + "Q").unpack_from
            data, end, at = memoryview(self.data), min(self.data.size, MAX_METADATA_BYTES), start
            for _ in range(length):
                if at + 8 > end:
                    raise ValueError("it ends within its metadata")
                at += 8 + size_of(data, at)[0]
            if at > end:
                raise ValueError("it ends within its metadata")
            return at - start

        def _build_tensor_info(self, offs: int, count: int) -> tuple[int, list]:
            if count > MAX_TENSORS:
                raise ValueError(f"it announces {count:,} tensors")
            offs, fields = super()._build_tensor_info(offs, int(count))
            self.names = frozenset(field.name for field in fields)
            return offs, fields

        def _build_tensors(self, start_offs: int, fields: list) -> None:
            """No views of the data, which may lie in other files."""

    return Header


def _value(field: Any) -> Any:
    """A key's value in plain Python; of a list that was passed over its length."""
    if field.types and field.types[0].name == "ARRAY" and not field.data:
        length = int(field.parts[4][0])
        return Passed(length) if length else []
    return field.contents()
