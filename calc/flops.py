"""What a model computes and reads: attention and matrix products together, for prefill, decode and a whole agent run."""

import bisect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from calc.attention import (
    attention_flops,
    causal_pairs,
    chunk_pairs,
    indexer_flops,
    latent_attention_flops,
    run_pairs_without_reuse,
    run_window_pairs_without_reuse,
    square_pairs,
    window_pairs,
)
from calc.kv_cache import sequence_bytes
from calc.layer_formulas import transformers_window_tokens
from calc.model_spec import MODEL_DTYPE, LayerGroup, ModelSpec
from calc.numeric import COUNT, MAX_COUNT, POSITIVE_COUNT, Numeric, count_up_to, require, require_all, smaller, total
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


_KNOWN_KINDS = ("full", "sliding", "chunked", "latent", "sliding latent", "indexed", "indexed latent", "shared", "none")
"""Kinds of layers whose attention FLOP are known, where the facts that they need are."""
_OfLayer = Callable[[LayerGroup], Numeric]
"""Gives the pairs, or the tokens, of one layer of a group."""


def _causal(cached: Numeric, new: Numeric) -> _OfLayer:
    """The pairs that the mask of a layer leaves."""

    def pairs(group: LayerGroup) -> Numeric:
        if group.kind == "chunked":
            return chunk_pairs(cached, new, group.window)
        if group.window is not None:
            return window_pairs(cached, new, group.window)
        return causal_pairs(cached, new)

    return pairs


def _picked(cached: Numeric, new: Numeric) -> _OfLayer:
    """The pairs that attention computes: where an indexer picks tokens, as many as it picks."""

    def pairs(group: LayerGroup) -> Numeric:
        if group.index_tokens is not None:
            return window_pairs(cached, new, group.index_tokens)
        return _causal(cached, new)(group)

    return pairs


def _attention(model: ModelSpec, attended: _OfLayer, scored: _OfLayer, *, absorbed: bool) -> Numeric:
    """FLOP of attention over the pairs that are attended to, and of indexers over those that are scored."""
    if model.unknown_attention:
        raise ValueError(f"FLOP of {model.unknown_attention}, as in {model.name}, are not known here")
    terms: list[Numeric] = []
    for group in model.layer_groups:
        _require_known(model, group, absorbed=absorbed)
        if group.kind == "none":
            continue
        if group.index_width:
            terms.append(indexer_flops(scored(group), group.layers, group.index_heads, group.index_width))
        if group.is_latent and absorbed:
            terms.append(
                latent_attention_flops(
                    attended(group), group.layers, group.query_heads, group.key_width, group.value_width
                )
            )
            continue
        widths = (group.key_width, group.value_width)
        if group.is_latent:
            widths = (group.nope_width + group.value_width, group.head_value_width)
        terms.append(attention_flops(attended(group), group.layers, group.query_heads, *widths))
    return total(terms)


def _require_known(model: ModelSpec, group: LayerGroup, *, absorbed: bool) -> None:
    is_indexed = group.kind.startswith("indexed")
    if (
        group.kind not in _KNOWN_KINDS
        or group.cross_kv_heads
        or group.extra_tokens
        or (group.kind == "shared" and not group.query_heads)
        or (is_indexed and (group.index_tokens is None or not (group.index_heads and group.index_width)))
    ):
        raise ValueError(f"attention FLOP of layers of kind {group.kind!r} are not known here")
    if group.is_latent and not absorbed and not (group.nope_width and group.head_value_width):
        raise ValueError(
            f"prefill FLOP of latent attention need the widths of a head's key and value, and those of {model.name} "
            "are not known here"
        )


def _matrices(model: ModelSpec, tokens: Numeric, logits: Numeric, *, rebuilt: _OfLayer | None = None) -> Numeric:
    """Layer matrices on all tokens, the head on those whose logits are wanted, and cached planes built up again."""
    size = parameters(model)
    terms = [matrix_flops(size.layer_matrices, tokens), matrix_flops(size.head_matrix, logits)]
    for group in model.layer_groups if rebuilt else ():
        if group.is_latent:
            up = group.key_width * group.query_heads * (group.nope_width + group.head_value_width)
            terms.append(matrix_flops(group.layers * up, rebuilt(group)))
    return total(terms)


def _in_reach(cached: Numeric) -> _OfLayer:
    """The cached tokens of a layer that the first new one attends to."""
    return lambda group: cached if group.window is None else smaller(cached, group.window - 1)


def prefill_attention_flops(model: ModelSpec, tokens: Numeric, *, cached: Numeric = 0) -> Numeric:
    """FLOP of attention in a prefill, which do not depend on the model's parameters.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].
    tokens : int or array
        New prompt tokens to compute [tokens].
    cached : int or array
        Tokens before them whose keys and values are already cached [tokens].

    Returns
    -------
    int or array
        FLOP of exactly the pairs that each layer's mask leaves [FLOP].

    Raises
    ------
    ValueError
        If a count is not a whole number in range, or the FLOP of a layer are not known.

    Notes
    -----
    Full layers attend to every token before them, sliding ones within their window, chunked ones within their chunk,
    those with an indexer to the tokens it picks after it has scored all. Latent layers run expanded: the keys (width
    d_n + d_r) and values of every head are rebuilt, so that a pair costs 2 h_q (d_n + d_r + d_v). Layers that share
    another's keys and values compute attention like any other.
    """
    return _attention(model, _picked(cached, tokens), _causal(cached, tokens), absorbed=False)


def decode_attention_flops(model: ModelSpec, cached: Numeric, *, new: Numeric = 1) -> Numeric:
    """FLOP of attention in decode, which do not depend on the model's parameters.

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
    int or array
        FLOP of exactly the pairs that each layer's mask leaves [FLOP].

    Raises
    ------
    ValueError
        If a count is not a whole number in range, or the FLOP of a layer are not known.

    Notes
    -----
    As `prefill_attention_flops`, but latent layers run absorbed: a pair costs 2 h_q ((r + d_r) + r), and nothing is
    rebuilt.

    Examples
    --------
    >>> from calc.model_config import read_config
    >>> decode_attention_flops(read_config({"model_type": "deepseek_v3"}), 999) == 61 * 2 * 128 * (576 + 512) * 1000
    True
    """
    return _attention(model, _picked(cached, new), _causal(cached, new), absorbed=True)


def prefill_flops(model: ModelSpec, tokens: Numeric, *, cached: Numeric = 0) -> Flops:
    """FLOP of a prefill: exactly the pairs that the masks leave, and the logits of the last token only.

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
        If a count is not a whole number in range, or the parameters or the FLOP of a layer are not known.

    Notes
    -----
    A multiply-add is two. Softmax, norms, rotation and activations are left out: they are not matrix products. Latent
    layers rebuild the keys and values of the cached tokens in reach too, which counts among the matrix products.
    See `prefill_attention_flops`.
    """
    tokens, cached = require(tokens, POSITIVE_COUNT, "tokens"), require(cached, COUNT, "cached")
    matrices = _matrices(model, tokens, 1, rebuilt=_in_reach(cached))
    return Flops(attention=prefill_attention_flops(model, tokens, cached=cached), matrices=matrices)


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
        If a count is not a whole number in range, or the parameters or the FLOP of a layer are not known.

    Notes
    -----
    Attention of full layers: 2 L h_q (d_k + d_v) (g n + g (g + 1) / 2). In the absorbed form of latent layers the
    matrices that would rebuild keys and values meet each new token once, as every matrix does.
    See `decode_attention_flops`.
    """
    cached, new = require_all(COUNT, cached=cached, new=new)
    matrices = _matrices(model, new, new)
    return Flops(attention=decode_attention_flops(model, cached, new=new), matrices=matrices)


def counter_attention_flops(model: ModelSpec, tokens: Numeric, *, cached: Numeric = 0) -> Numeric:
    """FLOP of attention as a FLOP counter reports them: every pair of a new token and a token that is held.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].
    tokens : int or array
        Tokens computed now [tokens].
    cached : int or array
        Tokens before them [tokens].

    Returns
    -------
    int or array
        FLOP of the full square of pairs [FLOP].

    Raises
    ------
    ValueError
        If a count is not a whole number in range, or the FLOP of a layer are not known.

    Notes
    -----
    The convention of torch.utils.flop_counter on transformers' eager attention, which computes what a mask hides:
    causality saves nothing, nor does picking, and latent layers run expanded. A window saves what the cache has dropped
    before: its layers compute g (min(n, w - 1) + g) pairs. A decoded token is the case of one.
    """
    tokens, cached = require_all(COUNT, tokens=tokens, cached=cached)

    def held(group: LayerGroup) -> Numeric:
        trims = group.window is not None and group.transformers_trims
        return square_pairs(tokens, transformers_window_tokens(cached, group.window) if trims else cached)

    return _attention(model, held, held, absorbed=False)


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
        If a count is not a whole number in range, or the parameters or the FLOP of a layer are not known.

    Notes
    -----
    The convention of torch.utils.flop_counter on eager attention. See `counter_attention_flops`.
    """
    tokens, cached = require_all(COUNT, tokens=tokens, cached=cached)
    matrices = _matrices(model, tokens, tokens, rebuilt=_in_reach(cached))
    return Flops(attention=counter_attention_flops(model, tokens, cached=cached), matrices=matrices)


def attention_overtakes_at(model: ModelSpec) -> int | None:
    """The shortest prompt whose prefill spends more FLOP on attention than on the layers' matrix products.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].

    Returns
    -------
    int or None
        Prompt length; None where windows keep attention below the matrix products at any length [tokens].

    Raises
    ------
    ValueError
        If the parameters or the FLOP of a layer are not known, or layers are chunked: there attention's share goes up
        and down with the length.

    Notes
    -----
    With full attention alone 2 P n = 2 L h_q (d_k + d_v) n (n + 1) / 2 at n = 2 P / [L h_q (d_k + d_v)] - 1, with P
    the parameters of the layers' matrices; the head, used once per prefill, is left out. Elsewhere a search: attention
    per token never falls as the prompt grows.
    """
    per_token = matrix_flops(parameters(model).layer_matrices, 1)
    if any(group.kind == "chunked" for group in model.layer_groups):
        raise ValueError("the prompt at which attention overtakes is not known for chunked layers")

    def overtaken(tokens: int) -> bool:
        return prefill_attention_flops(model, tokens) > per_token * tokens

    if not overtaken(MAX_COUNT):
        return None
    return bisect.bisect_left(range(MAX_COUNT + 1), True, lo=1, key=overtaken)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFlops:
    """Prefill FLOP of an agent run, with and without reuse of the cached prefix."""

    without_reuse: Flops
    """Every call computes its whole prompt: full attention grows as T^3, matrix products as T^2."""
    with_reuse: Flops
    """Every token is computed once: full attention grows as T^2, matrix products as T."""


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
    once per call, plus, in latent layers, rebuilding the keys and values of what is cached at each call.
    """
    calls, prefix = require_all(POSITIVE_COUNT, calls=calls, prefix=prefix)
    growth = require(growth, COUNT, "growth")
    last = require(last_call_tokens(calls, prefix, growth), COUNT, "the last call's prompt")
    submitted = submitted_input_tokens(calls, prefix, growth)

    def every_prompt(group: LayerGroup) -> Numeric:
        if group.kind == "chunked":
            raise ValueError("FLOP of a run without reuse are not known here for chunked layers")
        if group.window is not None:
            return run_window_pairs_without_reuse(calls, prefix, growth, group.window)
        return run_pairs_without_reuse(calls, prefix, growth)

    def every_picked_prompt(group: LayerGroup) -> Numeric:
        if group.index_tokens is not None:
            return run_window_pairs_without_reuse(calls, prefix, growth, group.index_tokens)
        return every_prompt(group)

    def rebuilt(group: LayerGroup) -> Numeric:
        if group.window is not None:
            raise ValueError("FLOP of a run with reuse are not known here for latent layers with a window")
        return submitted - last

    without_matrices = _matrices(model, submitted, calls)
    with_matrices = _matrices(model, last, calls, rebuilt=rebuilt)
    return RunFlops(
        without_reuse=Flops(
            attention=_attention(model, every_picked_prompt, every_prompt, absorbed=False), matrices=without_matrices
        ),
        with_reuse=Flops(attention=prefill_attention_flops(model, last), matrices=with_matrices),
    )


def decode_cache_read_bytes(model: ModelSpec, cached: Numeric, **options: Any) -> Numeric:
    """Bytes of the cache that decoding one token reads, the new token's own key and value included.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].
    cached : int or array
        Tokens in the cache before the new one [tokens].
    **options
        Formats and splits, as `calc.kv_cache.cache_rule` takes them; the rule is what must be kept [each as it says].

    Returns
    -------
    int or array
        Bytes of n + 1 tokens, over all ranks; where an indexer picks tokens, its keys of all and the cache of those it
        picks [bytes].

    Raises
    ------
    ValueError
        If a number is out of range, or what a layer reads is not known: how many tokens an indexer picks, or how much
        of another layer's cache a shared layer reads.
    LookupError
        If the format is not known.

    Notes
    -----
    States are read once, as they are kept; what is written is not counted.
    """
    cached = require(cached, count_up_to(MAX_COUNT - 1), "cached")
    read = replace(
        model, layer_groups=tuple(part for group in model.layer_groups for part in _read(group)), layer_order=()
    )
    return sequence_bytes(read, cached + 1, **options)


def _read(group: LayerGroup) -> tuple[LayerGroup, ...]:
    """Layers that keep what a decoded token reads of this one."""
    if group.kind == "shared":
        raise ValueError("what layers that share another's keys and values read is not known here")
    if group.index_tokens is None and not group.kind.startswith("indexed") and not group.compression:
        return (group,)
    if group.index_tokens is None or group.index_dtype != MODEL_DTYPE:
        raise ValueError(f"what layers of kind {group.kind!r} read is not known here")
    plain = {"indexed": "sliding", "indexed latent": "sliding latent", "latent": "sliding latent"}[group.kind]
    picked = replace(group, kind=plain, window=group.index_tokens, index_width=0, index_heads=0, index_tokens=None)
    if not group.index_width:
        return (picked,)
    # One key of this width for each token, in the cache's own format.
    scored = LayerGroup(
        kind="latent", layers=group.layers, query_heads=1, kv_heads=1, key_width=group.index_width, value_width=0
    )
    return picked, scored
