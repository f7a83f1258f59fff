"""What one request needs of vLLM's pool: layers in groups that share pages of one size, page by page."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from calc.engines.layers import (
    AT_ONCE,
    MAX_DRAFT_TOKENS,
    PAGE_TOKENS,
    STATE_BYTES,
    LayerParts,
    LayerRule,
    Sizes,
    require_no_compression,
    require_switches,
    scaled_index_row,
    with_scales,
)
from calc.layer_formulas import pages, plane_layer_bytes, times
from calc.model_spec import LayerGroup, ModelSpec, State
from calc.names import known
from calc.numeric import COUNT, MAX_COUNT, POSITIVE_COUNT, Numeric, count_up_to, formula, require_scalar, smaller, total

KERNEL_TOKENS, LATENT_KERNEL_TOKENS = 16, 128
"""Steps in which the attention block grows beside states, for keys and values and for latent rows."""
BLOCK_TOKENS, LATENT_BLOCK_TOKENS = 16, 64
MAX_BATCHES = 1000
FEW_MORE = 1.5
"""Up to this many times the fewest layers, groups are as large as the most layers."""
ATTENTION, WINDOW, CHUNK, STATE, CROSS = "full", "sliding", "chunked", "state", "cross"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """How the layers of one kind are paged."""

    kind: str
    """What a page holds: full, sliding or chunked attention, a state, or cross-attention."""
    block_tokens: int
    """Tokens of a page; 0 for a state."""
    page_bytes: int
    """Bytes of a page, padding included."""
    used_bytes: int
    """Bytes of a page without padding."""
    is_latent: bool = False
    window: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PageGroup:
    """Layers that share one table of pages."""

    page: Page
    layers: tuple[int, ...]
    """Indices of the layers."""
    padding_layers: int
    """Layers that the group is short of, whose bytes are taken all the same."""


@formula(
    r"p = \left\lceil \frac{\min(w - 1 + f,\; n)}{B} \right\rceil + 1",
    tokens=COUNT,
    window=POSITIVE_COUNT,
    in_flight_tokens=COUNT,
    block_tokens=POSITIVE_COUNT,
)
def vllm_window_pages(tokens: Numeric, window: Numeric, in_flight_tokens: Numeric, block_tokens: Numeric) -> Numeric:
    """Pages that vLLM keeps free for one request in a layer with a sliding window.

    Parameters
    ----------
    tokens : int or array
        Longest sequence that the server takes, n [tokens].
    window : int or array
        Window, which counts the token itself, w [tokens].
    in_flight_tokens : int or array
        Tokens scheduled and not yet settled, f [tokens].
    block_tokens : int or array
        Tokens of a page, B [tokens].

    Returns
    -------
    int or array
        ceil(min(w - 1 + f, n) / B) + 1, and none for a sequence of none [pages].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    One more since a window may begin inside a page. Source: vLLM 0.32.0, SlidingWindowSpec.

    Examples
    --------
    >>> vllm_window_pages([0, 4096, 131072], 1024, 16384, 16)
    array([   0,  257, 1089])
    """
    kept = smaller(window - 1 + in_flight_tokens, tokens)
    return (kept + block_tokens - 1) // block_tokens + smaller(tokens, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vllm(LayerRule):
    """Pages of one pool; settings have vLLM's defaults for accelerators of 70 GiB and more."""

    name: ClassVar[str] = "vllm"
    version: ClassVar[str] = "vLLM 0.32.0"
    flags: ClassVar[Mapping[str, str]] = {
        "block_size": "block_tokens",
        "max_num_batched_tokens": "batched_tokens",
        "enable_prefix_caching": "prefix_caching",
        "num_speculative_tokens": "draft_tokens",
        "mamba_ssm_cache_dtype": "state_dtype",
    }
    model: ModelSpec
    sizes: Sizes
    block_tokens: int | None = None
    """Tokens of a page before pages are made equal (--block-size); None: 16, and 64 for latent rows."""
    batched_tokens: int = 8192
    """Tokens scheduled at once (--max-num-batched-tokens)."""
    batches_in_flight: int | None = None
    """Batches scheduled ahead; None: one more than there are stages, as asynchronous scheduling has it; 1 without it."""
    prefix_caching: bool = True
    """A request's states are kept twice, so that a prefix can be taken up again."""
    draft_tokens: int = 0
    """Tokens drafted ahead by speculative decoding."""
    state_dtype: str | None = None
    """Type of recurrent states (--mamba-ssm-cache-dtype); None: what the config names, else the model's own."""
    hybrid_manager: bool = True
    """Without it windowed layers are kept like full ones."""

    def __post_init__(self) -> None:
        require_no_compression(self.model, self.name)
        if self.block_tokens is not None:
            require_scalar(self.block_tokens, PAGE_TOKENS, "block_tokens")
        require_scalar(self.batched_tokens, AT_ONCE, "batched_tokens")
        if self.batches_in_flight is not None:
            require_scalar(self.batches_in_flight, count_up_to(MAX_BATCHES, low=1), "batches_in_flight")
        require_scalar(self.draft_tokens, count_up_to(MAX_DRAFT_TOKENS), "draft_tokens")
        require_switches(prefix_caching=self.prefix_caching, hybrid_manager=self.hybrid_manager)
        if self.state_dtype is not None:
            known(self.state_dtype, STATE_BYTES, "state_dtype")
        split = self.sizes.split
        for group in self.model.layer_groups:
            self.sizes.require_shared_tokens(group)
            if (
                split.decode_context_parallel * group.kv_heads > split.attention_ranks
                and split.decode_context_parallel > 1
            ):
                raise ValueError(
                    f"decode_context_parallel must be at most the {split.attention_ranks} ranks / the {group.kv_heads} KV "
                    f"heads under the vllm rule, got {split.decode_context_parallel}"
                )

    def row(self, group: LayerGroup, heads: int) -> int:
        """What a layer keeps of one token on one rank; indexed latent layers turn fp8 into rows with scales."""
        return LayerRule.row(replace(self, sizes=with_scales(self.sizes, group)), group, heads)

    def index_row(self, group: LayerGroup) -> int:
        """The key of an indexer over latent rows, with its scale."""
        if not group.is_latent:
            raise ValueError(f"layers of kind {group.kind} are not known under the vllm rule, only indexed latent ones")
        return scaled_index_row(group.index_width)

    def state(self, state: State) -> int:
        """One copy of a state; a convolution keeps the drafted tokens' inputs besides."""
        if state.kind == "convolution":
            return self.sizes.state_bytes(state, state.columns + self.draft_tokens, state.vllm_dtype)
        return self.sizes.state_bytes(state, state.columns, self.state_dtype or state.vllm_dtype)

    def page_groups(self) -> tuple[PageGroup, ...]:
        """The layers of the model, group by group as they share tables of pages."""
        order = self.model.groups_in_order
        of_group = self._pages()
        layers: dict[Page, list[int]] = {}
        for index, group in enumerate(order):
            for page in of_group[group]:
                layers.setdefault(page, []).append(index)
        if not layers:
            return ()
        kinds = {(page.kind, page.window) for page in layers}
        if len(kinds) == 1 and STATE not in kinds.pop():  # tokens are paged alike, whatever their rows take
            return tuple(PageGroup(page=page, layers=tuple(own), padding_layers=0) for page, own in layers.items())
        layers = _of_one_size(layers)
        fewest, most = min(map(len, layers.values())), max(map(len, layers.values()))
        size = most if most < FEW_MORE * fewest else fewest
        groups = []
        for page, own in layers.items():
            number = pages(len(own), size)
            for part in range(number):
                shared = tuple(own[part::number])
                groups.append(PageGroup(page=page, layers=shared, padding_layers=size - len(shared)))
        return tuple(groups)

    def tables(self) -> tuple[PageGroup, ...]:
        """The groups that have a table of pages each; layers that are paged alike share one."""
        groups = self.page_groups()
        return groups[:1] if self._has_one_table(groups) else groups

    def request_pages(self, page: Page, tokens: Numeric) -> Numeric:
        """Pages of one kind that one request of a length needs."""
        if page.kind == STATE:
            return 1 + self.draft_tokens + int(self.prefix_caching and self._has_tokens)
        if page.kind == CROSS:
            return pages(self.sizes.encoder_tokens, page.block_tokens)
        if page.kind == WINDOW:
            return vllm_window_pages(tokens, page.window, self._in_flight_tokens, page.block_tokens)
        if page.kind == CHUNK:
            return pages(smaller(page.window + self._in_flight_tokens, tokens), page.block_tokens)
        return pages(pages(tokens, self.sizes.split.decode_context_parallel), page.block_tokens)

    def bytes_per_block(self, layers: range) -> int:
        """Bytes that one block of the pool takes on a rank of a stage: the pages of its largest group.

        Layers that are paged alike make one group of pages of several sizes.
        """
        return self._blocks([layers])[0]

    def _blocks(self, bounds: Sequence[range]) -> list[int]:
        groups = self.page_groups()
        has_one_table = self._has_one_table(groups)
        blocks = []
        for layers in bounds:
            in_stage = [
                (bisect_left(group.layers, layers.stop) - bisect_left(group.layers, layers.start))
                * group.page.page_bytes
                for group in groups
            ]
            blocks.append(sum(in_stage) if has_one_table else max(in_stage, default=0))
        return blocks

    def request_blocks(self, tokens: Numeric) -> Numeric:
        """Blocks of the pool that one request of a length needs."""
        return total([self.request_pages(group.page, tokens) for group in self.tables()])

    def stages(self, bounds: Sequence[range], tokens: Numeric) -> list[LayerParts]:
        """What one request takes on each rank of each stage: its blocks, whose bytes are those of the largest group."""
        taken = [(group.page.kind, self.request_pages(group.page, tokens)) for group in self.tables()]
        growing = total(number for kind, number in taken if kind == ATTENTION)
        fixed = total(number for kind, number in taken if kind in (STATE, CROSS))
        windowed = total(number for kind, number in taken if kind in (WINDOW, CHUNK))
        blocks = self._blocks(bounds)
        alike = {
            block: LayerParts(
                growing=plane_layer_bytes(growing, block),
                windowed=plane_layer_bytes(windowed, block),
                fixed=plane_layer_bytes(fixed, block),
            )
            for block in set(blocks)
        }
        return [alike[block] for block in blocks]

    def one_layer(self, index: int, tokens: Numeric) -> Numeric:
        """The pages of one layer over all ranks, without what its group is padded to."""
        own = [group for group in self.page_groups() if index in group.layers]
        sizes = [times(self.request_pages(group.page, tokens), group.page.page_bytes) for group in own]
        return times(total(sizes), self.sizes.split.attention_ranks)

    def own_remarks(self) -> tuple[str, ...]:
        """What a window is given besides, and what takes less than must be kept by definition."""
        said = []
        if windows := {group.page.window for group in self.page_groups() if group.page.window}:
            said.append(
                f"vLLM plans this much for one request; beside a window of {' or '.join(f'{w:,}' for w in sorted(windows))} "
                f"it keeps room for the {self._in_flight_tokens:,} tokens in flight (batched tokens x batches), which "
                "requests that run together share."
            )
        if any(group.index_width for group in self.model.layer_groups):
            said.append("vLLM keeps an indexer's keys in 8 bits with scales, whatever the KV format.")
        if any(group.states for group in self.model.layer_groups):
            said.append("vLLM keeps states in the model's type where the config names none; ideal says float32.")
        return tuple(said)

    @property
    def step(self) -> int:
        """Tokens after which growth repeats itself."""
        blocks = [group.page.block_tokens for group in self.page_groups() if group.page.kind == ATTENTION]
        return self.sizes.split.decode_context_parallel * math.lcm(*blocks)

    @property
    def full_windows_at(self) -> int:
        """Tokens from which on no window grows."""
        widest = max((group.window or 0 for group in self.model.layer_groups), default=0)
        return min(MAX_COUNT, widest + self._in_flight_tokens)

    @property
    def _in_flight_tokens(self) -> int:
        stages = self.sizes.split.pipeline_parallel
        return self.batched_tokens * (stages + 1 if self.batches_in_flight is None else self.batches_in_flight)

    @property
    def _has_tokens(self) -> bool:
        """Whether any layer keeps tokens besides states: prefix caching needs one."""
        return any(group.kv_heads for group in self.model.layer_groups)

    def _has_one_table(self, groups: tuple[PageGroup, ...]) -> bool:
        """Whether all layers are paged alike, whatever their rows take."""
        kinds = Counter((group.page.kind, group.page.window, group.page.block_tokens) for group in groups)
        return len(kinds) == 1 and groups[0].page.kind != STATE

    def _pages(self) -> dict[int, tuple[Page, ...]]:
        """How the layers of each group of the model are paged, before pages are made equal."""
        groups = self.model.layer_groups
        latent = any(group.is_latent for group in groups)
        block = self.block_tokens or (LATENT_BLOCK_TOKENS if latent else BLOCK_TOKENS)
        rows = {i: self.row(group, group.kv_heads) for i, group in enumerate(groups) if group.kv_heads}
        states = {i: sum(map(self.state, group.states)) for i, group in enumerate(groups) if group.states}
        largest_state = max(states.values(), default=0)
        padded_state = largest_state
        if largest_state and rows:
            step = max(LATENT_KERNEL_TOKENS if latent else KERNEL_TOKENS, block if self.block_tokens else 0)
            row = max(rows.values())
            block = max(block, step * pages(largest_state, step * row))
            padded_state = block * row
        of_group = {}
        for i, group in enumerate(groups):
            own = []
            if i in rows:
                own.append(self._attention_page(group, rows[i], block))
            if group.cross_kv_heads:
                row = self.row(group, group.cross_kv_heads)
                own.append(_token_page(CROSS, row, block, group))
            if i in states:
                own.append(Page(kind=STATE, block_tokens=0, page_bytes=padded_state, used_bytes=states[i]))
            of_group[i] = tuple(own)
        return of_group

    def _attention_page(self, group: LayerGroup, row: int, block: int) -> Page:
        if group.kind == "cross":
            return _token_page(CROSS, row, block, group)
        if group.window is None or not self.hybrid_manager:
            return _token_page(ATTENTION, row, block, group)
        kind = CHUNK if group.kind == "chunked" else WINDOW
        return replace(_token_page(kind, row, block, group), window=group.window)


def _token_page(kind: str, row: int, block: int, group: LayerGroup) -> Page:
    return Page(
        kind=kind, block_tokens=block, page_bytes=block * row, used_bytes=block * row, is_latent=group.is_latent
    )


def _of_one_size(layers: dict[Page, list[int]]) -> dict[Page, list[int]]:
    """Pages made as large as the largest: by more tokens where they divide it, else by padding."""
    largest = max(page.page_bytes for page in layers)
    equal: dict[Page, list[int]] = {}
    for page, own in layers.items():
        if page.block_tokens and largest % page.page_bytes == 0:
            more = largest // page.page_bytes
            page = replace(
                page, block_tokens=page.block_tokens * more, page_bytes=largest, used_bytes=page.used_bytes * more
            )
        elif page.is_latent:
            raise ValueError(
                f"pages of {page.page_bytes:,} bytes of latent rows do not divide the largest page, {largest:,} bytes: "
                "how vLLM pages such a model is not known here"
            )
        else:
            page = replace(page, page_bytes=largest)
        equal.setdefault(page, []).extend(own)
    return {page: sorted(own) for page, own in equal.items()}
