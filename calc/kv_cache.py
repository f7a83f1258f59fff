"""Bytes of the KV cache: what one sequence must keep, per rank and in all, and the same model under other head layouts."""

from dataclasses import dataclass

from calc.model_spec import LayerGroup, ModelSpec, with_kv_heads
from calc.names import known
from calc.numeric import COUNT, POSITIVE, POSITIVE_COUNT, Numeric, count_up_to, formula, require, require_scalar

BYTES_PER_NUMBER = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 1, "int8": 1}
"""Cache formats whose numbers carry no scales, in bytes."""

DTYPE_ALIASES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32",
                 "fp8_e4m3": "fp8", "fp8_e5m2": "fp8"}  # fmt: skip

ENGINES = ("ideal",)
"""Allocation rules: "ideal" is what any implementation must keep, without rounding."""

RANKS = count_up_to(65_536, low=1)
SLOPE = count_up_to(10**33)


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
    """What a sequence takes before its first token, over all ranks."""
    slope_bytes_per_token: int
    """What each further token takes, over all ranks."""


def sequence_memory(
    model: ModelSpec,
    tokens: Numeric,
    *,
    kv_dtype: str = "bf16",
    engine: str = "ideal",
    tensor_parallel: int = 1,
) -> SequenceMemory:
    """KV cache of one sequence of a model, with its share per rank.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].
    tokens : int or array
        Tokens in the cache [tokens].
    kv_dtype : str
        Format of the cached numbers [name].
    engine : str
        Allocation rule; "ideal" is what any implementation must keep [name].
    tensor_parallel : int
        Ranks that share the KV heads; where there are more ranks than heads, heads are replicated [ranks].

    Returns
    -------
    SequenceMemory
        Total over all ranks, per rank, floor and slope [bytes, bytes per token].

    Raises
    ------
    ValueError
        If a number is out of range, or the heads cannot be split over the ranks.
    LookupError
        If the format or the engine is not known.

    Notes
    -----
    A rank holds max(1, h_kv / ranks) heads. Source: vLLM and SGLang, rule 1 of their cache planning.
    """
    tokens = require(tokens, COUNT, "tokens")
    ranks = require_scalar(tensor_parallel, RANKS, "tensor_parallel")
    known(engine, ENGINES, "engine")
    size = bytes_per_number(kv_dtype)
    slope_per_rank = sum(_bytes_per_token(group, ranks, size) for group in model.layer_groups)
    per_rank = _scaled(slope_per_rank, tokens)
    return SequenceMemory(
        bytes=_scaled(slope_per_rank * ranks, tokens),
        bytes_per_rank=per_rank,
        floor_bytes=0,
        slope_bytes_per_token=slope_per_rank * ranks,
    )


@formula(r"\text{slope} \cdot n", slope=SLOPE, tokens=COUNT)
def _scaled(slope: Numeric, tokens: Numeric) -> Numeric:
    return slope * tokens


def sequence_bytes(
    model: ModelSpec,
    tokens: Numeric,
    *,
    kv_dtype: str = "bf16",
    engine: str = "ideal",
    tensor_parallel: int = 1,
) -> Numeric:
    """Bytes of the KV cache of one sequence of a model, over all ranks.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].
    tokens : int or array
        Tokens in the cache [tokens].
    kv_dtype : str
        Format of the cached numbers [name].
    engine : str
        Allocation rule [name].
    tensor_parallel : int
        Ranks that share the KV heads [ranks].

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
    memory = sequence_memory(model, tokens, kv_dtype=kv_dtype, engine=engine, tensor_parallel=tensor_parallel)
    return memory.bytes


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


def _bytes_per_token(group: LayerGroup, ranks: int, number_bytes: int) -> int:
    """Bytes that one token takes on one rank in a group of layers that keep every token."""
    heads = heads_per_rank(group.kv_heads, ranks)
    return group.layers * heads * (group.key_width + group.value_width) * number_bytes


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


def head_layouts(model: ModelSpec) -> dict[str, ModelSpec]:
    """The same model as MHA, GQA and MQA, its own layout among them.

    Parameters
    ----------
    model : ModelSpec
        The model; its layer groups must share one number of query heads [facts].

    Returns
    -------
    dict of str to ModelSpec
        Label such as "GQA-8" and model, most KV heads first. Every one but the model's own is another model: it needs
        training, and its quality is not modelled [facts].

    Raises
    ------
    ValueError
        If the layer groups differ in query heads.

    Notes
    -----
    Where the model itself is not GQA, the GQA shown has the number of KV heads that divides the query heads and lies
    nearest to a quarter of them; query heads that are prime allow none.
    """
    heads = {(group.query_heads, group.kv_heads) for group in model.layer_groups}
    if len(heads) > 1:
        raise ValueError(f"query and KV heads must be the same in all layers to compare layouts, got {sorted(heads)}")
    query_heads, own = heads.pop()
    between = [n for n in range(2, query_heads) if query_heads % n == 0]
    grouped = [own] if 1 < own < query_heads else sorted(between, key=lambda n: abs(n - query_heads / 4))[:1]
    labels = {query_heads: "MHA", 1: "MQA"} | {n: f"GQA-{n}" for n in grouped}
    return {labels[n]: (model if n == own else with_kv_heads(model, n)) for n in sorted(labels, reverse=True)}
