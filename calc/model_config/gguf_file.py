"""A .gguf file into the fields of a config.json: its metadata, by the architectures of presets/gguf_architectures.toml."""

import fnmatch
import os
import re
from dataclasses import dataclass
from typing import Any

from calc.catalogue import preset_table
from calc.model_config.file import shown
from calc.model_config.gguf_header import Metadata, Passed, metadata_of
from calc.model_config.rules import EVERY_FAMILY, FAMILIES
from calc.model_spec import MAX_LAYERS
from calc.names import UnknownName, known

FULL = "full_attention"
OF_WEIGHTS = ("intermediate_width", "vocabulary")
"""Facts that parameters alone depend on."""

ARCHITECTURES = preset_table("gguf_architectures")
"""How the metadata of each architecture is read, by its name in general.architecture."""
_EVERY = ARCHITECTURES.pop("every_architecture")
_OPERATORS = {"*": lambda a, b: a * b, "-": lambda a, b: a - b, "/": lambda a, b: a // b}


@dataclass(frozen=True, slots=True, kw_only=True)
class FromMetadata:
    """A config as the metadata of a .gguf file say it."""

    name: str
    fields: dict[str, Any]
    """Fields of a config.json."""
    sources: dict[str, str]
    """Where each field's value came from."""
    warnings: tuple[str, ...]
    unread: tuple[str, ...]
    """Keys of the architecture that no rule here reads."""


def config_of_gguf(path: os.PathLike) -> FromMetadata:
    """The fields of a config.json that the metadata of a .gguf file say.

    Parameters
    ----------
    path : os.PathLike
        The file; of a model split over several files the first [path].

    Returns
    -------
    FromMetadata
        The fields, each with its key [config].

    Raises
    ------
    ValueError
        If the file is not GGUF, damaged or cut off within its metadata, or of an architecture or with a key that no
        rule here covers.

    Notes
    -----
    Key names: gguf/constants.py of gguf 0.19.0. What llama.cpp fixes in code and no key says, such as which layers of
    an architecture have a window, is in presets/gguf_architectures.toml. The numbers are the model's: that llama.cpp
    itself pads, or keeps more than a window, is for the rules of engines.
    """
    metadata = metadata_of(path)
    return _Translation(metadata).result()


class _Translation:
    """The metadata of one file on their way into the fields of a config."""

    def __init__(self, metadata: Metadata) -> None:
        self.metadata = metadata
        self.arch = self._architecture()
        self.row = ARCHITECTURES[self.arch]
        self.read: set[str] = set()
        self.fields: dict[str, Any] = {}
        self.sources: dict[str, str] = {}
        self.warnings: list[str] = []
        stated = self._number("attention.sliding_window")
        self.window = self.row.get("window") if stated is None else stated or None
        self.model_type = self._model_type()
        self.family = FAMILIES[self.model_type]
        facts = {**EVERY_FAMILY["fields"], **self.family.get("fields", {})}
        self.field_of = {fact: names[0] for fact, names in facts.items() if fact not in self.family.get("fixed", {})}
        self.layers = self._required("block_count") - (self._number("nextn_predict_layers") or 0)
        if not 1 <= self.layers <= MAX_LAYERS:
            raise self._refusal("block_count", f"must leave 1 to {MAX_LAYERS:,} layers, got {self.layers}")

    def result(self) -> FromMetadata:
        """The fields of a config, and what to know of them."""
        self._set("layers", self.layers, "block_count")
        heads = self._per_layer("attention.head_count", self._required_any("attention.head_count"))
        kv_heads = self._kv_heads(heads)
        if max(heads):
            self._set_heads(heads, kv_heads)
        left_out = {*self.row.get("arbitrary", ()), *(OF_WEIGHTS if "unknown_weights" in self.family else ())}
        for fact, expression in {**_EVERY["facts"], **self.row.get("facts", {})}.items():
            if fact not in left_out:
                self._set_expression(fact, expression)
        self._set_vocabulary()
        self._set_layer_kinds(kv_heads)
        self._set_switches()
        self._refuse_what_is_not_read()
        self._warn()
        name = self.metadata.keys.get("general.name")
        return FromMetadata(
            name=shown(name, quote=False) if isinstance(name, str) and name.strip() else self.arch,
            fields={"model_type": self.model_type, **self.fields},
            sources=self.sources,
            warnings=tuple(self.warnings),
            unread=tuple(key for key in self._keys_of_the_architecture() if not self._is_harmless(key)),
        )

    def _architecture(self) -> str:
        keys, name = self.metadata.keys, self.metadata.name
        if (number := keys.get("split.no")) not in (None, 0):
            raise ValueError(f"{name} is file {shown(number)} of a split model: give the first, whose number is 00001")
        value = keys.get("general.architecture")
        if not isinstance(value, str):
            raise ValueError(f"{name} must name its general.architecture, got {shown(value)}")
        if (kind := keys.get("general.type", "model")) != "model":
            raise ValueError(f"{name} must be a model; its general.type is {shown(kind)}")
        try:
            return known(value, ARCHITECTURES, "GGUF architecture")
        except UnknownName as error:
            raise ValueError(str(error)) from None

    def _model_type(self) -> str:
        if self._number("expert_count") and "experts" in self.row:
            return self.row["experts"]
        return self.row["windowed"] if self.window and "windowed" in self.row else self.row["model_type"]

    def _given(self, key: str) -> Any:
        """The value of a key of this architecture; None where the file has no such key."""
        self.read.add(key)
        return self.metadata.keys.get(f"{self.arch}.{key}")

    def _number(self, key: str) -> int | None:
        """A whole number, or None where there is none."""
        value = self._given(key)
        if value is None:
            return None
        if isinstance(value, Passed) or type(value) is not int or value < 0:
            raise self._refusal(key, f"must be a whole number, got {_shown(value)}")
        return value

    def _required(self, key: str) -> int:
        value = self._number(key)
        if value is None:
            raise ValueError(f"{self.metadata.name} must have the key {self.arch}.{key}")
        return value

    def _required_any(self, key: str) -> Any:
        value = self._given(key)
        if value is None:
            raise ValueError(f"{self.metadata.name} must have the key {self.arch}.{key}")
        return value

    def _refusal(self, key: str, why: str) -> ValueError:
        return ValueError(f"GGUF key {self.arch}.{key} {why}")

    def _per_layer(self, key: str, value: Any) -> list[int]:
        """One number per layer, from a number for all or a list; entries of layers that only predict ahead are cut."""
        entries = value if isinstance(value, list) else [value] * self.layers
        if isinstance(value, Passed) or any(type(entry) is not int or entry < 0 for entry in entries):
            raise self._refusal(key, f"must be a whole number or a list of them, got {_shown(value)}")
        if len(entries) < self.layers:
            raise self._refusal(key, f"must have an entry for each of {self.layers} layers, got {len(entries)}")
        return entries[: self.layers]

    def _kv_heads(self, heads: list[int]) -> list[int]:
        value = self._given("attention.head_count_kv")
        return heads if value is None else self._per_layer("attention.head_count_kv", value)

    def _only(self, key: str, values: list[int]) -> int:
        """The one number that all layers with any have in common."""
        if len(found := sorted(set(values) - {0})) != 1:
            raise self._refusal(key, f"must be one number for all layers that have any, got {found or [0]}")
        return found[0]

    def _set(self, fact: str, value: int | None, *keys: str, sign: str = "") -> None:
        """Sets the field that the family reads for a fact, where it reads one."""
        if (field := self.field_of.get(fact)) is not None:
            self.fields[field] = value
            self.sources[field] = f" {sign} ".join(f"{self.arch}.{key}" for key in keys) + " of the GGUF file"

    def _set_heads(self, heads: list[int], kv_heads: list[int]) -> None:
        """Heads and their widths; what llama.cpp derives from an absent key is said, not left to the class."""
        count = self._only("attention.head_count", heads)
        self._set("query_heads", count, "attention.head_count")
        hidden = self._required("embedding_length")
        width, value_width = self._number("attention.key_length"), self._number("attention.value_length")
        if self.family.get("attention") == "latent":
            return
        if "layers_differ" in self.row:
            self._set_heads_of_both_kinds(kv_heads)
        else:
            shared = self._only("attention.head_count_kv", kv_heads)
            self._set("kv_heads", shared, "attention.head_count_kv")
            if "kv_heads" not in self.field_of and shared != count:
                raise self._refusal("attention.head_count_kv", f"must be the {count} query heads, got {shared}")
            for label, holds in (("one_kv_head", shared == 1), ("all_kv_heads", shared == count), ("grouped", True)):
                if holds:
                    self.fields |= self.row.get(label, {})
                    break
            if width is None and hidden % count:
                raise self._refusal("attention.key_length", f"is absent, and {hidden} / {count} heads is not whole")
            derived = ("embedding_length", "attention.head_count")
            if width is None:
                width = hidden // count
                self._set("head_width", width, *derived, sign="/")
            else:
                self._set("head_width", width, "attention.key_length")
            if "head_width" not in self.field_of and width * count != hidden:
                raise self._refusal("attention.key_length", f"must be {hidden} / {count} in this type, got {width}")
        if "value_width" in self.field_of:
            self._set("value_width", value_width or width, "attention.value_length")
        elif value_width not in (None, width):
            raise self._refusal("attention.value_length", f"must be the keys' {width}, got {value_width}")

    def _set_heads_of_both_kinds(self, kv_heads: list[int]) -> None:
        """KV heads and widths of layers with a window, and of the others (Gemma 4)."""
        slides = self._slides()
        for fact, flag in (("kv_heads", True), ("global_kv_heads", False)):
            of_kind = [count for count, slide in zip(kv_heads, slides) if slide is flag]
            if of_kind:
                self._set(fact, self._only("attention.head_count_kv", of_kind), "attention.head_count_kv")
        self.fields |= self.row["layers_differ"]
        self._set("global_head_width", self._required("attention.key_length"), "attention.key_length")
        self._set("head_width", self._required("attention.key_length_swa"), "attention.key_length_swa")
        if self._number("attention.value_length_swa") not in (None, self._number("attention.key_length_swa")):
            raise self._refusal("attention.value_length_swa", "must be the keys' width")

    def _set_expression(self, fact: str, expression: str) -> None:
        """A fact from a key, or from two with * - / between them; nothing where a key is absent."""
        if fact not in self.field_of or self.field_of[fact] in self.fields:
            return
        left, *rest = expression.split()
        value = self._first_of(left)
        if value is None:
            return
        if not rest:
            self._set(fact, value, left)
            return
        sign, right = rest
        by = self._first_of(right)
        if by is None:
            return
        if sign == "/" and (not by or value % by):
            raise self._refusal(left, f"must be a multiple of {self.arch}.{right} = {by}, got {value}")
        self._set(fact, _OPERATORS[sign](value, by), left, right, sign=sign)

    def _first_of(self, key: str) -> int | None:
        """A number; of a list that all layers with any share, that number."""
        value = self._given(key)
        if isinstance(value, list) and not isinstance(value, Passed):
            return self._only(key, self._per_layer(key, value)) if any(value) else 0
        return self._number(key)

    def _set_vocabulary(self) -> None:
        """The tokens that the tokenizer lists, where no key gives their number."""
        field = self.field_of.get("vocabulary")
        tokens = self.metadata.keys.get("tokenizer.ggml.tokens")
        unknown = "unknown_weights" in self.family
        if field and field not in self.fields and isinstance(tokens, Passed) and not unknown:
            self.fields[field] = int(tokens)
            self.sources[field] = "length of tokenizer.ggml.tokens of the GGUF file"

    def _slides(self) -> list[bool]:
        """Which layers have the window: by the file's pattern, else by the period that llama.cpp fixes."""
        pattern = self._given("attention.sliding_window_pattern")
        if not self.window:
            return [False] * self.layers
        if isinstance(pattern, list):
            if len(pattern) < self.layers or any(type(flag) is not bool for flag in pattern):
                raise self._refusal(
                    "attention.sliding_window_pattern",
                    f"must be {self.layers} times true or false, got {_shown(pattern)}",
                )
            return pattern[: self.layers]
        period = self._number("attention.sliding_window_pattern")
        period = self.row.get("window_period", 0) if period is None else period
        return [period == 0 or (i + 1) % period != 0 for i in range(self.layers)]

    def _set_layer_kinds(self, kv_heads: list[int]) -> None:
        """The kind of each layer, in the words of layer_types."""
        row, words = self.row, [FULL] * self.layers
        if self._windows():
            windowed = row.get("window_word", "sliding_attention")
            words = [windowed if slides else FULL for slides in self._slides()]
        if "interval_key" in row:
            interval = self._number(row["interval_key"]) or row["interval"]
            words = [FULL if (i + 1) % interval == 0 else row["without_kv"] for i in range(self.layers)]
        elif "without_kv" in row:
            mlp = self._per_layer("feed_forward_length", self._given("feed_forward_length") or 0)
            without = [row["without_mixer"] if "without_mixer" in row and width else row["without_kv"] for width in mlp]
            words = [word if count else other for word, count, other in zip(words, kv_heads, without)]
        elif "every_layer" in row:
            words = [row["every_layer"]] * self.layers
        elif 0 in kv_heads and max(kv_heads):
            raise self._refusal("attention.head_count_kv", f"is 0 for some layers, which {self.arch} does not know")
        plain = not self.family.keys() & {"pattern", "word", "layer_lists"} or "window_switch" in self.family
        if set(words) != {FULL} or not plain:
            field = self.family.get("layer_lists", ["layer_types"])[0]
            self.fields[field], self.sources[field] = words, "layers of the GGUF file"

    def _windows(self) -> bool:
        """Sets the window, or that there is none; whether there is one."""
        bounded = "chunk" if "window_word" in self.row else "window"
        known_here = bounded in self.field_of and "window_switch" not in self.family
        if self.window and not known_here:
            raise self._refusal("attention.sliding_window", f"= {self.window} is not known for {self.arch}")
        if known_here:
            window = self.window or None
            self._set(
                bounded, self.row["window"] if window and bounded == "chunk" else window, "attention.sliding_window"
            )
        return bool(self.window)

    def _set_switches(self) -> None:
        """What the presence of a tensor says, in a file that has the tensors of its model."""
        shared = self.family.get("shared_layers")
        if shared:
            count = self._number("attention.shared_kv_layers")
            count = max(self.layers - self.row.get("layers_with_kv", self.layers), 0) if count is None else count
            self.fields[shared], self.sources[shared] = (
                count,
                f"{self.arch}.attention.shared_kv_layers of the GGUF file",
            )
        tensors = self.metadata.tensors
        if self.metadata.keys.get("split.count", 1) not in (0, 1) or "token_embd.weight" not in tensors:
            return
        read = {
            name for names in {**EVERY_FAMILY["fields"], **self.family.get("fields", {})}.values() for name in names
        }
        for field, tensor in _EVERY["tensors"].items():
            if field in read:
                present = any(name in tensors for name in tensor["any"])
                self.fields[field] = present is not tensor.get("absent", False)
                self.sources[field] = f"{'presence' if present else 'absence'} of the tensor {tensor['any'][0]}"

    def _keys_of_the_architecture(self) -> list[str]:
        return [
            key
            for key in self.metadata.keys
            if key.startswith(f"{self.arch}.") and key.removeprefix(f"{self.arch}.") not in self.read
        ]

    def _is_harmless(self, key: str) -> bool:
        return bool(_HARMLESS.match(key.removeprefix(f"{self.arch}.")))

    def _refuse_what_is_not_read(self) -> None:
        """A key that would change the cache and that no rule of this architecture reads."""
        for key in self._keys_of_the_architecture():
            value = self.metadata.keys[key]
            if value and _SIGNALS.match(key.removeprefix(f"{self.arch}.")) and not self._is_harmless(key):
                raise ValueError(f"GGUF key {key} = {_shown(value)} is not known for the architecture {self.arch}")

    def _warn(self) -> None:
        files_of_model = self.metadata.keys.get("split.count", 1)
        if files_of_model not in (0, 1):
            self.warnings.append(f"the model is split over {shown(files_of_model)} files: only this one was read")
        if ahead := self._number("nextn_predict_layers"):
            self.warnings.append(f"{ahead} of the file's blocks only predict ahead and are not counted")
        for key, text in self.row.get("warn_without", {}).items():
            if self._given(key) is None:
                self.warnings.append(f"{self.arch}.{key} is absent: {text}")


def _shown(value: Any) -> str:
    return f"a list of {value}" if isinstance(value, Passed) else shown(value)


def _matcher(names: list[str]) -> re.Pattern:
    return re.compile("|".join(map(fnmatch.translate, names)))


_HARMLESS, _SIGNALS = _matcher(_EVERY["harmless"]), _matcher(_EVERY["signals"])
