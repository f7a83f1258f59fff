"""Which of a layer's tokens, heads and states are kept, on one rank, by each way of counting."""

from dataclasses import dataclass

from calc.layer_formulas import (
    attention_layer_bytes,
    convolution_state_bytes,
    indexer_layer_bytes,
    latent_layer_bytes,
    recurrent_state_bytes,
    transformers_window_tokens,
    window_tokens,
)
from calc.model_spec import MODEL_DTYPE, LayerGroup, State
from calc.numeric import POSITIVE_COUNT, Numeric, count_up_to, require_scalar, total

STATE_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "int64": 8}
"""Types of their own that states have, in bytes."""
RANKS = count_up_to(65_536, low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerParts:
    """What one layer keeps on one rank, by how it grows."""

    growing: Numeric = 0
    """For every token of the sequence."""
    windowed: Numeric = 0
    """For the newest tokens, up to a window."""
    fixed: Numeric = 0
    """Whatever the length: states, and the keys and values of an encoder's tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counting:
    """One way of counting what is kept, and the sizes it counts with."""

    engine: str
    number_bytes: int
    """Of keys and values."""
    model_bytes: int
    """Of what follows the model's own type."""
    ranks: int
    encoder_tokens: int

    def parts(self, group: LayerGroup, tokens: Numeric) -> LayerParts:
        """What one layer of a group keeps on one rank."""
        fixed = [self._state(state) for state in group.states]
        if group.cross_kv_heads:
            fixed.append(self._tokens_of(group, self.encoder_tokens, group.cross_kv_heads))
        if not group.kv_heads:
            return LayerParts(fixed=total(fixed))
        heads = group.kv_heads
        if self._is_transformers and group.transformers_kv_heads is not None:
            heads = group.transformers_kv_heads
        if group.kind == "cross":
            return LayerParts(fixed=total([*fixed, self._tokens_of(group, self.encoder_tokens, heads)]))
        if group.extra_tokens:
            fixed.append(self._tokens_of(group, group.extra_tokens, heads))
        if group.window is None or self._keeps_all(group):
            return LayerParts(growing=self._tokens_of(group, tokens, heads), fixed=total(fixed))
        kept = (transformers_window_tokens if self._is_transformers else window_tokens)(tokens, group.window)
        return LayerParts(windowed=self._tokens_of(group, kept, heads), fixed=total(fixed))

    @property
    def _is_transformers(self) -> bool:
        return self.engine == "transformers"

    def _keeps_all(self, group: LayerGroup) -> bool:
        return self._is_transformers and (not group.transformers_trims or group.window == 1)

    def _tokens_of(self, group: LayerGroup, kept: Numeric, heads: int) -> Numeric:
        """Everything that a layer keeps of its kept tokens."""
        if group.is_latent:
            terms = [latent_layer_bytes(kept, group.key_width, group.value_width, self.number_bytes)]
        else:
            on_rank = heads_per_rank(heads, self.ranks)
            terms = [attention_layer_bytes(kept, on_rank, group.key_width, group.value_width, self.number_bytes)]
        if group.index_width:
            size = self.number_bytes if group.index_dtype == MODEL_DTYPE else STATE_BYTES[group.index_dtype]
            terms.append(indexer_layer_bytes(kept, group.index_width, size))
        if self._is_transformers and group.transformers_token_bytes:
            terms.append(indexer_layer_bytes(kept, 1, group.transformers_token_bytes))
        return total(terms)

    def _state(self, state: State) -> Numeric:
        dtype = state.transformers_dtype if self._is_transformers else state.dtype
        columns = state.transformers_columns if self._is_transformers else state.columns
        size = self.model_bytes if dtype == MODEL_DTYPE else STATE_BYTES[dtype]
        heads = shared_heads(state, self.ranks)
        if state.kind == "convolution":
            return convolution_state_bytes(heads * state.numbers, columns, size)
        return recurrent_state_bytes(heads, state.numbers * columns, size)


def heads_per_rank(kv_heads: int, tensor_parallel: int) -> int:
    """KV heads that one rank holds.

    Parameters
    ----------
    kv_heads : int
        KV heads of the model [heads].
    tensor_parallel : int
        Ranks [ranks].

    Returns
    -------
    int
        max(1, kv_heads / ranks) [heads].

    Raises
    ------
    ValueError
        If neither number divides the other, or one is out of range.

    Examples
    --------
    >>> heads_per_rank(8, 4), heads_per_rank(8, 16)
    (2, 1)
    """
    require_scalar(kv_heads, POSITIVE_COUNT, "kv_heads")
    require_scalar(tensor_parallel, RANKS, "tensor_parallel")
    if kv_heads % tensor_parallel and tensor_parallel % kv_heads:
        raise ValueError(
            f"tensor_parallel must divide the {kv_heads} KV heads or be a multiple of them, got {tensor_parallel}"
        )
    return max(1, kv_heads // tensor_parallel)


def shared_heads(state: State, tensor_parallel: int) -> int:
    """Heads or channels of a state that one rank holds.

    Parameters
    ----------
    state : State
        The state [facts].
    tensor_parallel : int
        Ranks [ranks].

    Returns
    -------
    int
        Heads / ranks; a state with a single head is on every rank [heads].

    Raises
    ------
    ValueError
        If the ranks do not divide the heads.
    """
    if state.heads == 1:
        return 1
    if state.heads % tensor_parallel:
        what = "channels of a convolution" if state.kind == "convolution" else "heads of a recurrent state"
        raise ValueError(f"tensor_parallel must divide the {state.heads} {what}, got {tensor_parallel}")
    return state.heads // tensor_parallel
