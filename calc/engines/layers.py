"""What one layer keeps on one rank, part by part: the ground on which every way of counting stands."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from calc.kv_formats import KVFormat, kv_format
from calc.layer_formulas import (
    attention_layer_bytes,
    convolution_state_bytes,
    open_block_tokens,
    pages,
    plane_layer_bytes,
    recurrent_state_bytes,
    times,
    whole_blocks,
    window_tokens,
)
from calc.model_spec import MODEL_DTYPE, Compression, LayerGroup, ModelSpec, State
from calc.numeric import Numeric, count_up_to, smaller, total
from calc.parallel import Split, heads_per_rank, shared_heads

STATE_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "int64": 8}
"""Types of their own that states have, in bytes."""
MAX_DRAFT_TOKENS = 1000
PAGE_TOKENS = count_up_to(10**6, low=1)
"""Tokens of a page."""
AT_ONCE = count_up_to(10**9, low=1)
"""Tokens computed at once."""
INDEX_BLOCK = 128
"""Numbers of an indexer's key that share a float32 scale."""
INDEX_SCALE_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerParts:
    """What layers keep on one rank, by how it grows."""

    growing: Numeric = 0
    """For every token of the sequence."""
    windowed: Numeric = 0
    """For the newest tokens, up to a window."""
    fixed: Numeric = 0
    """Whatever the length: states, and the keys and values of an encoder's tokens."""

    @property
    def total(self) -> Numeric:
        """All three."""
        return total([self.growing, self.windowed, self.fixed])

    def of(self, number: int) -> Self:
        """The same of a number of layers or ranks."""
        return LayerParts(
            growing=times(self.growing, number),
            windowed=times(self.windowed, number),
            fixed=times(self.fixed, number),
        )

    @classmethod
    def sum(cls, parts: Iterable[Self]) -> Self:
        """Of several layers together."""
        parts = list(parts)
        return cls(
            growing=total(part.growing for part in parts),
            windowed=total(part.windowed for part in parts),
            fixed=total(part.fixed for part in parts),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The formats, the split and the sizes that a way of counting counts with."""

    keys: KVFormat
    values: KVFormat
    model_bytes: int
    """Of a number that follows the model's own type."""
    split: Split
    encoder_tokens: int = 0

    def state_bytes(self, state: State, columns: int, dtype: str) -> int:
        """What a layer keeps of a state on one rank."""
        size = self.model_bytes if dtype == MODEL_DTYPE else STATE_BYTES[dtype]
        heads = shared_heads(state, self.split.attention_ranks)
        if state.kind == "convolution":
            return convolution_state_bytes(heads * state.numbers, columns, size)
        return recurrent_state_bytes(heads, state.numbers * columns, size)

    def require_shared_tokens(self, group: LayerGroup) -> None:
        """Refuses to share out tokens where only some of them, or none, are kept."""
        if self.split.decode_context_parallel > 1 and (group.window or group.states or group.cross_kv_heads):
            raise ValueError(
                f"decode_context_parallel must be 1 for layers of kind {group.kind}: only full and latent layers share "
                f"out tokens, got {self.split.decode_context_parallel}"
            )


def scaled_index_row(index_width: int) -> int:
    """An indexer's key of one token as the serving engines store it: a byte per number and a scale per 128 [bytes]."""
    return index_width + INDEX_SCALE_BYTES * pages(index_width, INDEX_BLOCK)


def require_no_compression(model: ModelSpec, engine: str) -> None:
    """Refuses models whose layers compress blocks of tokens, where an engine's rule for them is not known."""
    if any(group.compression for group in model.layer_groups):
        raise ValueError(f"layers of kind compressed latent are not known under the {engine} rule")


def require_switches(**values: bool) -> None:
    """Settings that are on or off, or one message that names the setting and the value."""
    for name, value in values.items():
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be true or false, got {str(value)[:60]!r}")


def with_scales(sizes: Sizes, group: LayerGroup) -> Sizes:
    """The formats of a layer as the serving engines store it: 8-bit latent rows beside an indexer come with scales."""
    if group.kind == "indexed latent" and sizes.keys.name == "fp8":
        return replace(sizes, keys=kv_format("fp8_ds_mla"))
    return sizes


class LayerRule:
    """A way of counting in which each layer stands for itself. What a rule does not override is what must be kept."""

    __slots__ = ()
    name: ClassVar[str]
    version: ClassVar[str]
    """What the rule was read from, with its version."""
    flags: ClassVar[Mapping[str, str]] = {}
    """The engine's own names of its settings, and the names here."""
    model: ModelSpec
    sizes: Sizes

    def parts(self, group: LayerGroup, tokens: Numeric) -> LayerParts:
        """What one layer of a group keeps on one rank."""
        self.sizes.require_shared_tokens(group)
        fixed = [self.state(state) for state in group.states]
        encoder_tokens = self.sizes.encoder_tokens
        if group.cross_kv_heads:
            fixed.append(plane_layer_bytes(encoder_tokens, self.row(group, group.cross_kv_heads)))
        if not group.kv_heads:
            return LayerParts(fixed=total(fixed))
        row = self.row(group, self.heads(group))
        if group.kind == "cross":
            return LayerParts(fixed=total([*fixed, plane_layer_bytes(encoder_tokens, row)]))
        fixed.append(plane_layer_bytes(group.extra_tokens, row))
        kept = plane_layer_bytes(self.kept(group, tokens), row)
        if group.compression:
            return self.compressed(group.compression, tokens, kept, total(fixed))
        if self.has_window(group):
            return LayerParts(windowed=kept, fixed=total(fixed))
        return LayerParts(growing=kept, fixed=total(fixed))

    def compressed(self, compression: Compression, tokens: Numeric, in_window: Numeric, fixed: int) -> LayerParts:
        """A window, an entry for each full block of all tokens, and the tokens of the block that is not full yet."""
        entries = whole_blocks(tokens, compression.block_tokens)
        pending = plane_layer_bytes(
            open_block_tokens(tokens, compression.block_tokens), compression.pending_numbers * self.sizes.model_bytes
        )
        overlap = plane_layer_bytes(smaller(entries, 1), self.overlap_bytes(compression) if compression.overlaps else 0)
        keys = self.sizes.keys
        entry = keys.latent_row(compression.entry_width, 0) + keys.latent_row(compression.index_width, 0)
        return LayerParts(
            growing=plane_layer_bytes(entries, entry), windowed=total([in_window, pending, overlap]), fixed=fixed
        )

    def overlap_bytes(self, compression: Compression) -> int:
        """The last full block's contents and gates, in the model's type."""
        return (
            compression.block_tokens * (compression.entry_width + compression.index_width) * 2 * self.sizes.model_bytes
        )

    def has_window(self, group: LayerGroup) -> bool:
        """Whether the tokens that a layer keeps stop growing."""
        return group.window is not None

    def heads(self, group: LayerGroup) -> int:
        """Heads that are cached."""
        return group.kv_heads

    def kept(self, group: LayerGroup, tokens: Numeric) -> Numeric:
        """Tokens of the sequence that a layer keeps on the fullest rank."""
        if self.has_window(group):
            return window_tokens(tokens, group.window)
        return pages(tokens, self.sizes.split.decode_context_parallel)

    def row(self, group: LayerGroup, heads: int) -> int:
        """What a layer keeps of one token on one rank: keys and values or a latent row, and an indexer's key."""
        keys, values = self.sizes.keys, self.sizes.values
        if group.is_latent:
            row = keys.latent_row(group.key_width, group.value_width)
        else:
            on_rank = heads_per_rank(heads, self.sizes.split.head_ranks)
            row = attention_layer_bytes(1, on_rank, keys.row(group.key_width), values.row(group.value_width))
        return row + (self.index_row(group) if group.index_width else 0)

    def index_row(self, group: LayerGroup) -> int:
        """An indexer's key of one token: in the keys' format, or always in a type of its own."""
        if group.index_dtype != MODEL_DTYPE:
            return group.index_width * STATE_BYTES[group.index_dtype]
        keys = self.sizes.keys
        return keys.latent_row(group.index_width, 0) if keys.is_for_latent_rows else keys.row(group.index_width)

    def state(self, state: State) -> int:
        """What a layer keeps of a state on one rank."""
        return self.sizes.state_bytes(state, state.columns, state.dtype)

    def remarks(self) -> tuple[str, ...]:
        """What to know of the rule for this model, a sentence each."""
        said = []
        groups = self.model.layer_groups
        if not self.sizes.encoder_tokens and any(group.kind == "cross" or group.cross_kv_heads for group in groups):
            said.append("Cross-attention is counted for no encoder tokens: give encoder_tokens.")
        if any(group.compression for group in groups):
            said.append("A block that fills frees its tokens, so that one token more can take less.")
        return (*said, *self.own_remarks())

    def own_remarks(self) -> tuple[str, ...]:
        """What to know of this engine's rule."""
        return ()

    @property
    def has_full_layers(self) -> bool:
        """Whether any layer keeps every token: some engines give windows a cache of their own only beside such layers."""
        return any(group.kv_heads and group.window is None for group in self.model.layer_groups)

    @property
    def step(self) -> int:
        """Tokens after which growth repeats itself: whole blocks, where blocks of tokens are compressed."""
        return math.lcm(*(group.compression.block_tokens for group in self.model.layer_groups if group.compression))

    @property
    def full_windows_at(self) -> int:
        """Tokens from which on no window grows, with no block open."""
        return self.step * pages(max((group.window or 0 for group in self.model.layer_groups), default=0), self.step)

    def stages(self, bounds: Sequence[range], tokens: Numeric) -> list[LayerParts]:
        """What the layers of each pipeline stage keep on each of its ranks."""
        order, groups = self.model.groups_in_order, self.model.layer_groups
        parts = [self.parts(group, tokens) for group in groups]
        counts = [tuple(sorted(Counter(order[layers.start : layers.stop]).items())) for layers in bounds]
        alike = {count: LayerParts.sum([parts[i].of(number) for i, number in count]) for count in set(counts)}
        return [alike[count] for count in counts]

    def stage(self, layers: range, tokens: Numeric) -> LayerParts:
        """What the layers of one stage keep on each of its ranks."""
        return self.stages([layers], tokens)[0]

    def all_ranks(self, bounds: Sequence[range], tokens: Numeric) -> LayerParts:
        """What all ranks of all stages keep of one sequence."""
        return LayerParts.sum(self.stages(bounds, tokens)).of(self.sizes.split.attention_ranks)

    def one_layer(self, index: int, tokens: Numeric) -> Numeric:
        """What one layer keeps over all ranks of its stage."""
        return self.all_ranks([range(index, index + 1)], tokens).total
