"""What the dynamic cache of transformers holds after a prefill."""

from dataclasses import dataclass
from typing import ClassVar

from calc.engines.layers import STATE_BYTES, LayerRule, Sizes
from calc.layer_formulas import transformers_window_tokens
from calc.model_spec import MODEL_DTYPE, Compression, LayerGroup, ModelSpec, State
from calc.numeric import Numeric


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformers(LayerRule):
    """One token less of a window, the kernel's full width, repeated heads, indexers in the model's type."""

    name: ClassVar[str] = "transformers"
    version: ClassVar[str] = "transformers 5.24.0, dynamic cache"
    model: ModelSpec
    sizes: Sizes

    def __post_init__(self) -> None:
        self.sizes.split.require_none("transformers", "decode_context_parallel")

    def has_window(self, group: LayerGroup) -> bool:
        """A window of 1 and windows that are not trimmed keep everything."""
        return group.window is not None and group.window != 1 and group.transformers_trims

    def heads(self, group: LayerGroup) -> int:
        """Heads that are cached: repeated ones where the model repeats them first."""
        return group.kv_heads if group.transformers_kv_heads is None else group.transformers_kv_heads

    def kept(self, group: LayerGroup, tokens: Numeric) -> Numeric:
        """Tokens that a layer holds: one less than the window, which the next token joins."""
        return transformers_window_tokens(tokens, group.window) if self.has_window(group) else tokens

    def row(self, group: LayerGroup, heads: int) -> int:
        """What a layer holds of one token: a latent row twice, where the class keeps it as key and as value."""
        return group.transformers_planes * LayerRule.row(self, group, heads)

    def overlap_bytes(self, compression: Compression) -> int:
        """The last full block's contents in the model's type, and its gates in float32."""
        numbers = compression.block_tokens * (compression.entry_width + compression.index_width)
        return numbers * (self.sizes.model_bytes + STATE_BYTES["fp32"])

    def index_row(self, group: LayerGroup) -> int:
        """An indexer's key, and the positions beside it."""
        own = self.sizes.model_bytes if group.index_dtype == MODEL_DTYPE else STATE_BYTES[group.index_dtype]
        return group.index_width * own + group.transformers_token_bytes

    def state(self, state: State) -> int:
        """A state, with the kernel's full width."""
        return self.sizes.state_bytes(state, state.transformers_columns, state.transformers_dtype)
