"""Bytes of the KV cache: what one sequence must keep, per rank and in all."""

from dataclasses import dataclass

from calc.cache_rules import RANKS, Counting, LayerParts
from calc.cache_rules import heads_per_rank as heads_per_rank
from calc.layer_formulas import times
from calc.model_spec import ModelSpec
from calc.names import known
from calc.numeric import COUNT, POSITIVE, Numeric, formula, require, require_scalar, total

BYTES_PER_NUMBER = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 1, "int8": 1}
"""Cache formats whose numbers carry no scales, in bytes."""

DTYPE_ALIASES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32",
                 "fp8_e4m3": "fp8", "fp8_e5m2": "fp8"}  # fmt: skip

ENGINES = ("ideal", "transformers")
"""Allocation rules: "ideal" is what any implementation must keep, without rounding; "transformers" is what that
library's dynamic cache holds after a prefill."""


def bytes_per_number(kv_dtype: str) -> int:
    """Size of one cached number in a format.

    Parameters
    ----------
    kv_dtype : str
        bf16, fp16, fp32, fp8, int8, or an alias such as bfloat16 [name].

    Returns
    -------
    int
        Bytes of one number [bytes].

    Raises
    ------
    LookupError
        If the format is not known.

    Examples
    --------
    >>> bytes_per_number("bfloat16"), bytes_per_number("fp8")
    (2, 1)
    """
    return BYTES_PER_NUMBER[known(kv_dtype, BYTES_PER_NUMBER, "KV format", aliases=DTYPE_ALIASES)]


@formula(
    r"\text{bytes} = 2\,L\,n\,h_{kv}\,d\,b",
    layers=COUNT,
    tokens=COUNT,
    kv_heads=COUNT,
    head_width=COUNT,
    bytes_per_number=POSITIVE,
)
def kv_cache_bytes(
    layers: Numeric, tokens: Numeric, kv_heads: Numeric, head_width: Numeric, bytes_per_number: Numeric
) -> Numeric:
    """Bytes of the KV cache of one sequence in a model whose layers all keep every token.

    Parameters
    ----------
    layers : int or array
        Layers that keep a cache, L [layers].
    tokens : int or array
        Tokens in the cache, n [tokens].
    kv_heads : int or array
        Heads that are cached, h_kv [heads].
    head_width : int or array
        Width of one head's key and of its value, d [numbers].
    bytes_per_number : int, float or array
        Size of one cached number, b [bytes].

    Returns
    -------
    int, float or array
        2 L n h_kv d b; whole where every argument is [bytes].

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Two planes, keys and values. Valid for full attention with keys and values of one width.
    Source: the shapes of the cached tensors; checked against transformers' caches.

    Examples
    --------
    >>> kv_cache_bytes(32, 128_000, 8, 128, 2)
    16777216000
    >>> kv_cache_bytes(32, 128_000, [32, 8, 1], 128, 2)
    array([67108864000, 16777216000,  2097152000])
    """
    return 2 * layers * tokens * kv_heads * head_width * bytes_per_number


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceMemory:
    """KV cache of one sequence: total, per rank, and how it grows."""

    bytes: Numeric
    """Over all ranks, replicas counted."""
    bytes_per_rank: Numeric
    floor_bytes: int
    """What a sequence takes before its first token, over all ranks: states, and keys and values of an encoder."""
    slope_bytes_per_token: int
    """What each further token takes once every window is full, over all ranks."""
    plateau_bytes: int = 0
    """What the layers with a window take once it is full, over all ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBytes:
    """What one layer keeps of one sequence, over all ranks."""

    kind: str
    bytes: Numeric


def sequence_memory(
    model: ModelSpec,
    tokens: Numeric,
    *,
    kv_dtype: str = "bf16",
    engine: str = "ideal",
    tensor_parallel: int = 1,
    encoder_tokens: int = 0,
) -> SequenceMemory:
    """KV cache of one sequence of a model, with its share per rank.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].
    tokens : int or array
        Tokens in the cache [tokens].
    kv_dtype : str
        Format of the cached keys and values; with engine="transformers" the type of the whole model [name].
    engine : str
        Allocation rule; "ideal" is what any implementation must keep, "transformers" what that library's dynamic cache
        holds after a prefill [name].
    tensor_parallel : int
        Ranks that share the KV heads; where there are more ranks than heads, heads are replicated, as a latent plane
        is; states are shared out by heads and channels [ranks].
    encoder_tokens : int
        Tokens of the encoder or image that cross-attention reads; other models take no notice [tokens].

    Returns
    -------
    SequenceMemory
        Total over all ranks, per rank, floor, slope and plateau [bytes, bytes per token].

    Raises
    ------
    ValueError
        If a number is out of range, or the heads cannot be split over the ranks.
    LookupError
        If the format or the engine is not known.

    Notes
    -----
    Beyond every window, bytes = floor + plateau + slope n. A rank holds max(1, h_kv / ranks) heads. The KV format does
    not touch states. Source: vLLM and SGLang, rule 1 of their cache planning; transformers 5.24.0.
    """
    tokens = require(tokens, COUNT, "tokens")
    counting = _counting(model, kv_dtype, engine, tensor_parallel, encoder_tokens)
    now = _all_layers(model, counting, tokens)
    widest = max((group.window or 0 for group in model.layer_groups), default=0)
    full, one = _all_layers(model, counting, widest), _all_layers(model, counting, 1)
    per_rank = total([now.growing, now.windowed, now.fixed])
    return SequenceMemory(
        bytes=times(per_rank, counting.ranks),
        bytes_per_rank=per_rank,
        floor_bytes=now.fixed * counting.ranks,
        slope_bytes_per_token=one.growing * counting.ranks,
        plateau_bytes=full.windowed * counting.ranks,
    )


def sequence_bytes(
    model: ModelSpec,
    tokens: Numeric,
    *,
    kv_dtype: str = "bf16",
    engine: str = "ideal",
    tensor_parallel: int = 1,
    encoder_tokens: int = 0,
) -> Numeric:
    """Bytes of the KV cache of one sequence of a model, over all ranks.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].
    tokens : int or array
        Tokens in the cache [tokens].
    kv_dtype : str
        Format of the cached keys and values [name].
    engine : str
        Allocation rule [name].
    tensor_parallel : int
        Ranks that share the KV heads [ranks].
    encoder_tokens : int
        Tokens of the encoder or image that cross-attention reads [tokens].

    Returns
    -------
    int or array
        Total over all ranks, replicas counted [bytes].

    Raises
    ------
    ValueError
        If a number is out of range, or the heads cannot be split over the ranks.
    LookupError
        If the format or the engine is not known.

    Notes
    -----
    See `sequence_memory`, which also gives the share of one rank.
    """
    return sequence_memory(
        model,
        tokens,
        kv_dtype=kv_dtype,
        engine=engine,
        tensor_parallel=tensor_parallel,
        encoder_tokens=encoder_tokens,
    ).bytes


def layer_bytes(
    model: ModelSpec,
    tokens: Numeric,
    *,
    kv_dtype: str = "bf16",
    engine: str = "ideal",
    tensor_parallel: int = 1,
    encoder_tokens: int = 0,
) -> tuple[LayerBytes, ...]:
    """What each layer of a model keeps of one sequence, first layer to last.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].
    tokens : int or array
        Tokens in the cache [tokens].
    kv_dtype : str
        Format of the cached keys and values [name].
    engine : str
        Allocation rule [name].
    tensor_parallel : int
        Ranks that share the KV heads [ranks].
    encoder_tokens : int
        Tokens of the encoder or image that cross-attention reads [tokens].

    Returns
    -------
    tuple of LayerBytes
        Kind and bytes of each layer, over all ranks; together they are `sequence_bytes` [bytes].

    Raises
    ------
    ValueError
        If a number is out of range, or the heads cannot be split over the ranks.
    LookupError
        If the format or the engine is not known.
    """
    tokens = require(tokens, COUNT, "tokens")
    counting = _counting(model, kv_dtype, engine, tensor_parallel, encoder_tokens)
    of_group = []
    for group in model.layer_groups:
        parts = counting.parts(group, tokens)
        per_rank = total([parts.growing, parts.windowed, parts.fixed])
        of_group.append(LayerBytes(kind=group.kind, bytes=times(per_rank, counting.ranks)))
    return tuple(of_group[index] for index in model.groups_in_order)


def _counting(model: ModelSpec, kv_dtype: str, engine: str, tensor_parallel: int, encoder_tokens: int) -> Counting:
    ranks = require_scalar(tensor_parallel, RANKS, "tensor_parallel")
    known(engine, ENGINES, "engine")
    size = bytes_per_number(kv_dtype)
    return Counting(
        engine=engine,
        number_bytes=size,
        model_bytes=size if engine == "transformers" else bytes_per_number(model.dtype),
        ranks=ranks,
        encoder_tokens=require_scalar(encoder_tokens, COUNT, "encoder_tokens"),
    )


def _all_layers(model: ModelSpec, counting: Counting, tokens: Numeric) -> LayerParts:
    """What all layers keep on one rank."""
    parts = [(group.layers, counting.parts(group, tokens)) for group in model.layer_groups]
    return LayerParts(
        growing=total([times(part.growing, layers) for layers, part in parts]),
        windowed=total([times(part.windowed, layers) for layers, part in parts]),
        fixed=total([times(part.fixed, layers) for layers, part in parts]),
    )


def context_warnings(model: ModelSpec, tokens: int) -> tuple[str, ...]:
    """What to know of a context length before relying on a number for it.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].
    tokens : int
        Tokens of one sequence [tokens].

    Returns
    -------
    tuple of str
        One sentence where the config allows fewer tokens, else nothing [text].
    """
    if model.max_context is None or tokens <= model.max_context:
        return ()
    return (f"the config allows {model.max_context:,} tokens; {tokens:,} is beyond what the model was made for",)
