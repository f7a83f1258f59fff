"""What one layer keeps for one sequence: a formula for each kind of layer, and the two ways of counting them."""

from dataclasses import dataclass
from functools import reduce

from calc.model_spec import MODEL_DTYPE, LayerGroup, State
from calc.numeric import COUNT, POSITIVE, POSITIVE_COUNT, Numeric, count_up_to, formula, require, smaller

STATE_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "int64": 8}
"""Types of their own that states have, in bytes."""
BYTES = count_up_to(10**33)
RANKS = count_up_to(65_536, low=1)


@formula(r"k = \min(n, w)", tokens=COUNT, window=POSITIVE_COUNT)
def window_tokens(tokens: Numeric, window: Numeric) -> Numeric:
    """Tokens that a layer with a sliding window must keep.

    Parameters
    ----------
    tokens : int or array
        Tokens of the sequence, n [tokens].
    window : int or array
        Window, which counts the token itself, w [tokens].

    Returns
    -------
    int or array
        min(n, w) [tokens].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    A chunk counts as a window of its length. Source: definition of the mask.

    Examples
    --------
    >>> window_tokens([3, 4096, 9000], 4096)
    array([   3, 4096, 4096])
    """
    return smaller(tokens, window)


@formula(r"k = \min(n, w - 1),\quad k = n \text{ for } w = 1", tokens=COUNT, window=POSITIVE_COUNT)
def transformers_window_tokens(tokens: Numeric, window: Numeric) -> Numeric:
    """Tokens that a sliding layer of transformers' dynamic cache holds after a prefill.

    Parameters
    ----------
    tokens : int or array
        Tokens of the sequence, n [tokens].
    window : int or array
        Window, which counts the token itself, w [tokens].

    Returns
    -------
    int or array
        min(n, w - 1), and n for a window of 1 [tokens].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    The next token joins those of the window before it, so that one less is kept; the slice that does it keeps
    everything where there is nothing to keep. Source: transformers 5.24.0, DynamicSlidingWindowLayer.

    Examples
    --------
    >>> transformers_window_tokens([3, 4096, 9000], 4096), transformers_window_tokens(9000, 1)
    (array([   3, 4095, 4095]), 9000)
    """
    return smaller(tokens, window - 1 + (window == 1) * tokens)


@formula(
    r"\text{bytes} = k\,h_{kv}(d_k + d_v)\,b",
    kept_tokens=COUNT,
    kv_heads=COUNT,
    key_width=COUNT,
    value_width=COUNT,
    bytes_per_number=POSITIVE,
)
def attention_layer_bytes(
    kept_tokens: Numeric, kv_heads: Numeric, key_width: Numeric, value_width: Numeric, bytes_per_number: Numeric
) -> Numeric:
    """Bytes of the keys and values of one layer.

    Parameters
    ----------
    kept_tokens : int or array
        Tokens that the layer keeps, k [tokens].
    kv_heads : int or array
        Heads that are cached, h_kv [heads].
    key_width : int or array
        Width of one head's key, d_k [numbers].
    value_width : int or array
        Width of one head's value, d_v [numbers].
    bytes_per_number : int, float or array
        Size of one cached number, b [bytes].

    Returns
    -------
    int, float or array
        k h_kv (d_k + d_v) b [bytes].

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Full, sliding, chunked and cross-attention, each with its own k. Source: the shapes of the cached tensors.

    Examples
    --------
    >>> attention_layer_bytes(4095, 8, 128, 128, 2)
    16773120
    """
    return kept_tokens * kv_heads * (key_width + value_width) * bytes_per_number


@formula(
    r"\text{bytes} = k\,(r + d_r)\,b", kept_tokens=COUNT, latent_width=COUNT, rope_width=COUNT, bytes_per_number=POSITIVE
)
def latent_layer_bytes(
    kept_tokens: Numeric, latent_width: Numeric, rope_width: Numeric, bytes_per_number: Numeric
) -> Numeric:
    """Bytes of the latent plane of one layer of multi-head latent attention.

    Parameters
    ----------
    kept_tokens : int or array
        Tokens that the layer keeps, k [tokens].
    latent_width : int or array
        Width of the latent from which keys and values are rebuilt, r [numbers].
    rope_width : int or array
        Width of the rotated key that all heads share, d_r [numbers].
    bytes_per_number : int, float or array
        Size of one cached number, b [bytes].

    Returns
    -------
    int, float or array
        k (r + d_r) b: one plane, one head [bytes].

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Source: DeepSeek-V2 (arXiv 2405.04434); the shapes of the tensors that transformers caches.

    Examples
    --------
    >>> latent_layer_bytes(1, 512, 64, 2)
    1152
    """
    return kept_tokens * (latent_width + rope_width) * bytes_per_number


@formula(r"\text{bytes} = k\,d_i\,b", kept_tokens=COUNT, index_width=COUNT, bytes_per_number=POSITIVE)
def indexer_layer_bytes(kept_tokens: Numeric, index_width: Numeric, bytes_per_number: Numeric) -> Numeric:
    """Bytes of the keys by which one layer's indexer picks the tokens to attend to.

    Parameters
    ----------
    kept_tokens : int or array
        Tokens that the layer keeps, k [tokens].
    index_width : int or array
        Width of the indexer's key, d_i [numbers].
    bytes_per_number : int, float or array
        Size of one of its numbers, b [bytes].

    Returns
    -------
    int, float or array
        k d_i b, beside the layer's own cache [bytes].

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    One key per token, shared by the indexer's heads. Source: DeepSeek-V3.2; the tensors that transformers caches.

    Examples
    --------
    >>> indexer_layer_bytes(1000, 128, 2)
    256000
    """
    return kept_tokens * index_width * bytes_per_number


@formula(r"\text{bytes} = c\,k\,b", channels=COUNT, columns=COUNT, bytes_per_number=POSITIVE)
def convolution_state_bytes(channels: Numeric, columns: Numeric, bytes_per_number: Numeric) -> Numeric:
    """Bytes of the inputs that a short causal convolution keeps in one layer.

    Parameters
    ----------
    channels : int or array
        Channels, c [channels].
    columns : int or array
        Inputs kept per channel, k: the kernel's width less one [numbers].
    bytes_per_number : int, float or array
        Size of one number, b [bytes].

    Returns
    -------
    int, float or array
        c k b, whatever the length of the sequence [bytes].

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    The newest input is at hand when the next output is computed; transformers keeps the whole kernel's width.
    Source: the shapes of the cached tensors.

    Examples
    --------
    >>> convolution_state_bytes(8192, 3, 2), convolution_state_bytes(8192, 4, 2)
    (49152, 65536)
    """
    return channels * columns * bytes_per_number


@formula(r"\text{bytes} = h\,s\,b", heads=COUNT, numbers=COUNT, bytes_per_number=POSITIVE)
def recurrent_state_bytes(heads: Numeric, numbers: Numeric, bytes_per_number: Numeric) -> Numeric:
    """Bytes of the state of a recurrence (state space, delta rule, linear attention) in one layer.

    Parameters
    ----------
    heads : int or array
        Heads, h [heads].
    numbers : int or array
        Numbers in one head's state, s [numbers].
    bytes_per_number : int, float or array
        Size of one number, b [bytes].

    Returns
    -------
    int, float or array
        h s b, whatever the length of the sequence [bytes].

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Source: the shapes of the cached tensors.

    Examples
    --------
    >>> recurrent_state_bytes(32, 128 * 128, 4)
    2097152
    """
    return heads * numbers * bytes_per_number


@formula("a + b", first=BYTES, second=BYTES)
def _added(first: Numeric, second: Numeric) -> Numeric:
    return first + second


@formula("a b", each=BYTES, times=COUNT)
def per_rank_times(each: Numeric, times: Numeric) -> Numeric:
    """Bytes of as many ranks or layers, which do not wrap around in arrays."""
    return each * times


def total(terms: list[Numeric]) -> Numeric:
    """The sum of terms, which does not wrap around in arrays."""
    return reduce(_added, terms, 0)


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
    require(kv_heads, POSITIVE_COUNT, "kv_heads")
    require(tensor_parallel, RANKS, "tensor_parallel")
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
