"""What llama.cpp allocates for a context: padded cells, a smaller cache for windows, states in float32."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from calc.engines.layers import AT_ONCE, MAX_DRAFT_TOKENS, LayerRule, Sizes, require_no_compression, require_switches
from calc.layer_formulas import pages
from calc.model_spec import LayerGroup, ModelSpec, State
from calc.numeric import MAX_COUNT, Numeric, count_up_to, require_scalar, smaller
from calc.parallel import heads_per_rank

CELL_PADDING = 256
STATE_DTYPE = "fp32"
WITHOUT_WINDOWS = frozenset({"qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "smollm3"})
"""Model types whose windows llama.cpp does not load, although they may stand beside full layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaCpp(LayerRule):
    """Cells in multiples of 256, for all slots together; a slot is a sequence served at the same time.

    Windows have a smaller cache in architectures that mix them with full layers (Gemma, Cohere 2, gpt-oss, Llama 4).
    """

    name: ClassVar[str] = "llama.cpp"
    version: ClassVar[str] = "llama.cpp of autumn 2026"
    flags: ClassVar[Mapping[str, str]] = {
        "parallel": "slots",
        "n_seq_max": "slots",
        "kv_unified": "unified",
        "ubatch_size": "ubatch_tokens",
        "n_ubatch": "ubatch_tokens",
        "swa_full": "full_windows",
    }
    model: ModelSpec
    sizes: Sizes
    slots: int = 1
    """Sequences that share the context out (--parallel); tokens are those of all slots together."""
    unified: bool = False
    """One cache for all slots (--kv-unified) instead of one each."""
    ubatch_tokens: int = 512
    """Tokens computed at once (--ubatch-size), which a window holds besides its own."""
    full_windows: bool = False
    """Windowed layers keep everything (--swa-full)."""
    flash_attention: bool = True
    """Without it the values of all layers are padded to the widest."""
    draft_tokens: int = 0
    """Tokens drafted ahead, each with a copy of the states."""

    def __post_init__(self) -> None:
        require_no_compression(self.model, self.name)
        self.sizes.split.require_none("llama.cpp", "tensor_parallel", "data_parallel", "decode_context_parallel")
        if not self.flash_attention and self.sizes.values.block_numbers > 1:
            raise ValueError(
                f"value_dtype must be a plain type without flash attention under the llama.cpp rule, got "
                f"{self.sizes.values.name}"
            )
        require_scalar(self.slots, count_up_to(65_536, low=1), "slots")
        require_scalar(self.ubatch_tokens, AT_ONCE, "ubatch_tokens")
        require_switches(unified=self.unified, full_windows=self.full_windows, flash_attention=self.flash_attention)
        require_scalar(self.draft_tokens, count_up_to(MAX_DRAFT_TOKENS), "draft_tokens")
        if any(group.kind == "cross" or group.cross_kv_heads for group in self.model.layer_groups):
            raise ValueError("layers of kind cross are not known under the llama.cpp rule")

    def has_window(self, group: LayerGroup) -> bool:
        """Whether a layer has the smaller cache: windows alone, as in the first Mistral, are kept in full."""
        loaded = self.has_full_layers and self.model.model_type not in WITHOUT_WINDOWS
        return group.window is not None and not self.full_windows and loaded

    def kept(self, group: LayerGroup, tokens: Numeric) -> Numeric:
        """Cells of a layer, of all its streams."""
        streams = 1 if self.unified else self.slots
        per_stream = _padded(pages(tokens, streams))
        if self.has_window(group):
            window = group.window * (self.slots if self.unified else 1)
            per_stream = _padded(smaller(per_stream, window + self.ubatch_tokens))
        return streams * per_stream

    def row(self, group: LayerGroup, heads: int) -> int:
        """One cell of a layer; without flash attention its values are as wide as those of the widest layer."""
        row = LayerRule.row(self, group, heads)
        if self.flash_attention or group.is_latent:
            return row
        values = self.sizes.values
        widest = max(
            other.kv_heads * values.row(other.value_width) for other in self.model.layer_groups if other.kv_heads
        )
        return row + widest - heads_per_rank(heads, 1) * values.row(group.value_width)

    def state(self, state: State) -> int:
        """A state of every slot, and its copies for drafted tokens."""
        return self.slots * (1 + self.draft_tokens) * self.sizes.state_bytes(state, state.columns, STATE_DTYPE)

    @property
    def step(self) -> int:
        """Tokens after which growth repeats itself."""
        return CELL_PADDING * (1 if self.unified else self.slots)

    @property
    def full_windows_at(self) -> int:
        """Tokens from which on no smaller cache grows."""
        widest = max((group.window or 0 for group in self.model.layer_groups), default=0)
        per_slot = widest * (self.slots if self.unified else 1) + self.ubatch_tokens + CELL_PADDING
        return min(MAX_COUNT, self.slots * per_slot)


def _padded(tokens: Numeric) -> Numeric:
    return CELL_PADDING * pages(tokens, CELL_PADDING)
