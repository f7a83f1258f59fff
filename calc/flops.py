"""What a model computes and reads: attention and matrix products together, for prefill, decode and a whole agent run."""

from dataclasses import dataclass

from calc.attention import attention_flops, causal_pairs, run_pairs_without_reuse, square_pairs
from calc.kv_cache import sequence_bytes
from calc.model_spec import ModelSpec
from calc.numeric import COUNT, MAX_COUNT, POSITIVE_COUNT, Numeric, count_up_to, require, require_all, total
from calc.tokens import last_call_tokens, submitted_input_tokens
from calc.weights import matrix_flops, parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Flops:
    """FLOP of one phase, by what grows differently with the context."""

    attention: Numeric
    """Scores and weighted values: grows with the pairs of tokens."""
    matrices: Numeric
    """Projections, MLP and the head: grows with the tokens."""

    @property
    def total(self) -> Numeric:
        """Attention and matrix products."""
        return total((self.attention, self.matrices))


def _attention(model: ModelSpec, pairs: Numeric) -> Numeric:
    if model.weights is None:
        parameters(model)  # raises, and says what is not known
    if other := [group.kind for group in model.layer_groups if group.kind != "full" or group.cross_kv_heads]:
        raise ValueError(f"FLOP of layers of kind {other[0]!r} are not known here, only of full attention")
    return total(
        attention_flops(pairs, group.layers, group.query_heads, group.key_width, group.value_width)
        for group in model.layer_groups
    )


def _matrices(model: ModelSpec, tokens: Numeric, logits: Numeric) -> Numeric:
    """Layer matrices on all tokens, the head on those whose logits are wanted."""
    size = parameters(model)
    return total((matrix_flops(size.layer_matrices, tokens), matrix_flops(size.head_matrix, logits)))


def prefill_flops(model: ModelSpec, tokens: Numeric, *, cached: Numeric = 0) -> Flops:
    """FLOP of a prefill: exactly the causal pairs, and the logits of the last token only.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].
    tokens : int or array
        New prompt tokens to compute, at least 1 [tokens].
    cached : int or array
        Tokens before them whose keys and values are already cached [tokens].

    Returns
    -------
    Flops
        Attention and matrix products [FLOP].

    Raises
    ------
    ValueError
        If a count is not a whole number in range.

    Notes
    -----
    A multiply-add is two. Softmax, norms, rotation and activations are left out: they are not matrix products.
    """
    tokens = require(tokens, POSITIVE_COUNT, "tokens")
    return Flops(attention=_attention(model, causal_pairs(cached, tokens)), matrices=_matrices(model, tokens, 1))


def decode_flops(model: ModelSpec, cached: Numeric, *, new: Numeric = 1) -> Flops:
    """FLOP of decoding tokens one after the other on top of a cache.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].
    cached : int or array
        Tokens in the cache before the first new one; that one reads one key more [tokens].
    new : int or array
        Tokens decoded [tokens].

    Returns
    -------
    Flops
        Attention and matrix products, logits of every new token included [FLOP].

    Raises
    ------
    ValueError
        If a count is not a whole number in range.

    Notes
    -----
    Attention: 2 L h_q (d_k + d_v) (g n + g (g + 1) / 2).
    """
    return Flops(attention=_attention(model, causal_pairs(cached, new)), matrices=_matrices(model, new, new))


def counter_prefill_flops(model: ModelSpec, tokens: Numeric, *, cached: Numeric = 0) -> Flops:
    """FLOP of a prefill as a FLOP counter reports it: the full square of pairs, and the logits of all tokens.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].
    tokens : int or array
        Prompt tokens computed now [tokens].
    cached : int or array
        Tokens before them that are already cached [tokens].

    Returns
    -------
    Flops
        Attention and matrix products [FLOP].

    Raises
    ------
    ValueError
        If a count is not a whole number in range.

    Notes
    -----
    The convention of torch.utils.flop_counter on eager attention.
    """
    return Flops(attention=_attention(model, square_pairs(tokens, cached)), matrices=_matrices(model, tokens, tokens))


def attention_overtakes_at(model: ModelSpec) -> int:
    """The shortest prompt whose prefill spends more FLOP on attention than on the layers' matrix products.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].

    Returns
    -------
    int
        Prompt length [tokens].

    Notes
    -----
    2 P n = 2 L h_q (d_k + d_v) n (n + 1) / 2 at n = 2 P / [L h_q (d_k + d_v)] - 1, with P the parameters of the layers'
    matrices; the head, used once per prefill, is left out.
    """
    per_pair = _attention(model, 1)
    per_token = matrix_flops(parameters(model).layer_matrices, 1)
    # attention per token is per_pair (n + 1) / 2: the first n for which it is larger, in whole numbers.
    return 2 * per_token // per_pair


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFlops:
    """Prefill FLOP of an agent run, with and without reuse of the cached prefix."""

    without_reuse: Flops
    """Every call computes its whole prompt: attention grows as T^3, matrix products as T^2."""
    with_reuse: Flops
    """Every token is computed once: attention grows as T^2, matrix products as T."""


def run_prefill_flops(model: ModelSpec, calls: Numeric, prefix: Numeric, growth: Numeric) -> RunFlops:
    """Prefill FLOP summed over the calls of an append-only run.

    Parameters
    ----------
    model : ModelSpec
        The model that serves the run [facts].
    calls : int or array
        Calls of the run, T [calls].
    prefix : int or array
        Fixed tokens, m, at least 1 [tokens].
    growth : int or array
        Growth per call, r [tokens per call].

    Returns
    -------
    RunFlops
        Both cases, attention and matrix products apart [FLOP].

    Raises
    ------
    ValueError
        If a count is not a whole number in range.

    Notes
    -----
    Each call computes the logits of its last token. With reuse the sum is one prefill of the last prompt, plus the head
    once per call.
    """
    calls, prefix = require_all(POSITIVE_COUNT, calls=calls, prefix=prefix)
    growth = require(growth, COUNT, "growth")
    last = require(last_call_tokens(calls, prefix, growth), COUNT, "the last call's prompt")
    return RunFlops(
        without_reuse=Flops(
            attention=_attention(model, run_pairs_without_reuse(calls, prefix, growth)),
            matrices=_matrices(model, submitted_input_tokens(calls, prefix, growth), calls),
        ),
        with_reuse=Flops(attention=_attention(model, causal_pairs(0, last)), matrices=_matrices(model, last, calls)),
    )


def decode_cache_read_bytes(model: ModelSpec, cached: Numeric, *, kv_dtype: str = "bf16") -> Numeric:
    """Bytes of the cache that decoding one token reads, the new token's own key and value included.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].
    cached : int or array
        Tokens in the cache before the new one [tokens].
    kv_dtype : str
        Format of the cached numbers [name].

    Returns
    -------
    int or array
        Bytes of n + 1 tokens [bytes].

    Raises
    ------
    ValueError
        If `cached` is not a whole number in range.
    LookupError
        If the format is not known.
    """
    cached = require(cached, count_up_to(MAX_COUNT - 1), "cached")
    return sequence_bytes(model, cached + 1, kv_dtype=kv_dtype)
