"""What SGLang reserves for one request: pages of a pool, a second pool for windows, slots for states."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

from calc.engines.layers import PAGE_TOKENS, LayerRule, Sizes, require_no_compression, scaled_index_row, with_scales
from calc.layer_formulas import pages
from calc.model_spec import LayerGroup, ModelSpec, State
from calc.numeric import Numeric, Range, count_up_to, require_scalar

FINEST = 10_000
"""Steps of a ratio in one."""
RATIO = Range(low=0.001, high=1, whole=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sglang(LayerRule):
    """Tokens in pages; windowed layers beside full ones hold a share of the full layers' tokens."""

    name: ClassVar[str] = "sglang"
    version: ClassVar[str] = "SGLang 0.5.23"
    flags: ClassVar[Mapping[str, str]] = {"page_size": "page_tokens"}
    model: ModelSpec
    sizes: Sizes
    page_tokens: int = 1
    """Tokens of a page (--page-size)."""
    swa_full_tokens_ratio: float = 0.8
    """Tokens of the windowed layers' pool for each token of the full layers' pool (--swa-full-tokens-ratio)."""
    state_slots: int = 3
    """Copies of a request's states: 3 with the radix cache, 5 with its extra buffer, 1 without it."""

    def __post_init__(self) -> None:
        require_no_compression(self.model, self.name)
        require_scalar(self.page_tokens, PAGE_TOKENS, "page_tokens")
        require_scalar(self.state_slots, count_up_to(64, low=1), "state_slots")
        require_scalar(self.swa_full_tokens_ratio, RATIO, "swa_full_tokens_ratio")
        if self._ratio.denominator > FINEST:
            raise ValueError(f"swa_full_tokens_ratio must have at most 4 decimals, got {self.swa_full_tokens_ratio}")

    def has_window(self, group: LayerGroup) -> bool:
        """No layer stops growing: the windowed layers' pool grows with the full one's."""
        return False

    def kept(self, group: LayerGroup, tokens: Numeric) -> Numeric:
        """Tokens of whole pages; a share of them in windowed layers that stand beside full ones."""
        on_rank = pages(tokens, self.sizes.split.decode_context_parallel)
        whole = self.page_tokens * pages(on_rank, self.page_tokens)
        if group.window is None or not self.has_full_layers:
            return whole
        share = whole * self._ratio.numerator // self._ratio.denominator
        return share // self.page_tokens * self.page_tokens

    def row(self, group: LayerGroup, heads: int) -> int:
        """What a layer keeps of one token on one rank; indexed latent layers turn fp8 into rows with scales."""
        return LayerRule.row(replace(self, sizes=with_scales(self.sizes, group)), group, heads)

    def index_row(self, group: LayerGroup) -> int:
        """The key of an indexer over latent rows, with its scale."""
        if not group.is_latent:
            raise ValueError(
                f"layers of kind {group.kind} are not known under the sglang rule, only indexed latent ones"
            )
        return scaled_index_row(group.index_width)

    def state(self, state: State) -> int:
        """All slots of a state."""
        return self.state_slots * self.sizes.state_bytes(state, state.columns, state.dtype)

    def own_remarks(self) -> tuple[str, ...]:
        """What windowed layers are given, and how many copies of states there are."""
        said = []
        if self.full_windows_at and self.has_full_layers:
            said.append(
                f"SGLang gives each windowed layer room for {self.swa_full_tokens_ratio:g} of the full layers' tokens "
                "(swa_full_tokens_ratio), whatever the window: the share of a pool, not what one request fills."
            )
        if any(group.states for group in self.model.layer_groups):
            said.append(
                f"SGLang keeps {self.state_slots} copies of a request's states; 5 where it chooses the extra buffer, 1 "
                "without the radix cache."
            )
        return tuple(said)

    @property
    def step(self) -> int:
        """Tokens after which growth repeats itself: whole pages and whole shares of them."""
        return self.page_tokens * self.sizes.split.decode_context_parallel * self._ratio.denominator

    @property
    def _ratio(self) -> Fraction:
        return Fraction(str(self.swa_full_tokens_ratio))
