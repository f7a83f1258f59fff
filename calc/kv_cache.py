"""Bytes of the KV cache: what one sequence must keep, per rank and in all."""

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calc.engines import engine_rule
from calc.engines.ideal import Ideal
from calc.engines.layers import LayerRule, Sizes
from calc.kv_formats import kv_format
from calc.model_spec import ModelSpec
from calc.numeric import COUNT, POSITIVE, Numeric, formula, larger, require, require_scalar
from calc.parallel import Split, pipeline_stages


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
class StageMemory:
    """What one pipeline stage holds of one sequence."""

    layers: range
    """Indices of its layers."""
    bytes_per_rank: Numeric


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceMemory:
    """KV cache of one sequence: total, per rank, and how it grows."""

    bytes: Numeric
    """Over all ranks that hold the sequence, replicas counted."""
    bytes_per_rank: Numeric
    """On the fullest rank."""
    floor_bytes: int
    """What a sequence takes before its first token, over all ranks: states, and keys and values of an encoder."""
    slope_bytes_per_token: Numeric
    """What each further token takes once every window is full, over all ranks; a mean where pages are padded."""
    plateau_bytes: int = 0
    """What the layers with a window take once it is full, over all ranks."""
    stages: tuple[StageMemory, ...] = ()
    """The pipeline stages, first to last."""
    replication: float = 1.0
    """What all ranks must keep over what one rank alone would, whatever an engine rounds: at least 1."""

    @property
    def worst_stage(self) -> int:
        """Index of the stage whose ranks hold most, of the longest sequence where there are several."""
        sizes = [np.max(stage.bytes_per_rank, initial=0) for stage in self.stages]
        return sizes.index(max(sizes))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBytes:
    """What one layer keeps of one sequence, over all ranks."""

    kind: str
    bytes: Numeric


def cache_rule(
    model: ModelSpec,
    *,
    kv_dtype: str = "bf16",
    value_dtype: str | None = None,
    engine: str = "ideal",
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    data_parallel: int = 1,
    decode_context_parallel: int = 1,
    encoder_tokens: int = 0,
    **settings: Any,
) -> LayerRule:
    """The rule by which an engine allocates the cache of a model.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].
    kv_dtype : str
        Format of the cached keys and values; with engine="transformers" the type of the whole model [name].
    value_dtype : str or None
        Format of the values, where it is another than that of the keys; None: the same [name].
    engine : str
        ideal, transformers, vllm, sglang or llama.cpp [name].
    tensor_parallel : int
        Ranks that share the KV heads; where there are more ranks than heads, heads are replicated, as a latent plane
        is; states are shared out by heads and channels [ranks].
    pipeline_parallel : int
        Stages that share out the layers [stages].
    data_parallel : int
        Groups of the tensor-parallel ranks, each of which attends for sequences of its own [groups].
    decode_context_parallel : int
        Ranks of a group that share out the tokens of a sequence [ranks].
    encoder_tokens : int
        Tokens of the encoder or image that cross-attention reads; other models take no notice [tokens].
    **settings
        Settings of the engine, as `calc.engines.engine_settings` lists them [each as its rule says].

    Returns
    -------
    LayerRule
        What counts stages and layers [rule].

    Raises
    ------
    ValueError
        If a number is out of range, the model cannot be split so, or the engine has no such format or setting.
    LookupError
        If a format or the engine is not known.
    """
    split = Split(
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        data_parallel=data_parallel,
        decode_context_parallel=decode_context_parallel,
    )
    keys = kv_format(kv_dtype)
    follows = keys if engine == "transformers" else kv_format(model.dtype)
    sizes = Sizes(
        keys=keys,
        values=keys if value_dtype is None else kv_format(value_dtype),
        model_bytes=follows.block_bytes,
        split=split,
        encoder_tokens=require_scalar(encoder_tokens, COUNT, "encoder_tokens"),
    )
    return engine_rule(engine, model, sizes, settings)


def sequence_memory(model: ModelSpec, tokens: Numeric, **options: Any) -> SequenceMemory:
    """KV cache of one sequence of a model, with its share per rank.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].
    tokens : int or array
        Tokens in the cache; under a serving engine the longest sequence that it is told to take [tokens].
    **options
        Format, engine, ranks and settings, as `cache_rule` takes them [each as it says].

    Returns
    -------
    SequenceMemory
        Total over all ranks, per rank, floor, slope, plateau and stages [bytes, bytes per token].

    Raises
    ------
    ValueError
        If a number is out of range, the model cannot be split so, or the engine has no such format or setting.
    LookupError
        If a format or the engine is not known.

    Notes
    -----
    Beyond every window, bytes = floor + plateau + slope n, up to an engine's rounding. A rank holds max(1, h_kv / ranks)
    heads. The KV format does not touch states. Sources: `calc.engines.engine_version`.

    Examples
    --------
    >>> from calc.presets import model_preset
    >>> memory = sequence_memory(model_preset("llama-3.1-8b"), 1000, engine="vllm", tensor_parallel=16)
    >>> memory.bytes, memory.bytes_per_rank, memory.replication
    (264241152, 16515072, 2.0)
    """
    tokens = require(tokens, COUNT, "tokens")
    rule = cache_rule(model, **options)
    stages = pipeline_stages(model.layers, rule.sizes.split.pipeline_parallel)
    held = tuple(
        StageMemory(layers=layers, bytes_per_rank=parts.total)
        for layers, parts in zip(stages, rule.stages(stages, tokens))
    )
    one_step, far = rule.all_ranks(stages, rule.step), rule.all_ranks(stages, rule.full_windows_at)
    return SequenceMemory(
        bytes=rule.all_ranks(stages, tokens).total,
        bytes_per_rank=functools.reduce(larger, (stage.bytes_per_rank for stage in held)),
        floor_bytes=one_step.fixed,
        slope_bytes_per_token=_mean(one_step.growing, rule.step),
        plateau_bytes=far.windowed,
        stages=held,
        replication=_replication(rule, stages),
    )


def sequence_bytes(
    model: ModelSpec,
    tokens: Numeric,
    *,
    kv_dtype: str = "bf16",
    engine: str = "ideal",
    tensor_parallel: int = 1,
    **options: Any,
) -> Numeric:
    """Bytes of the KV cache of one sequence of a model, over all ranks.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].
    tokens : int or array
        Tokens in the cache; under a serving engine the longest sequence that it is told to take [tokens].
    kv_dtype : str
        Format of the cached keys and values [name].
    engine : str
        Allocation rule [name].
    tensor_parallel : int
        Ranks that share the KV heads [ranks].
    **options
        Other formats, splits and settings, as `cache_rule` takes them [each as it says].

    Returns
    -------
    int or array
        Total over all ranks, replicas counted [bytes].

    Raises
    ------
    ValueError
        If a number is out of range, the model cannot be split so, or the engine has no such format or setting.
    LookupError
        If a format or the engine is not known.

    Notes
    -----
    See `sequence_memory`, which also gives the share of one rank.

    Examples
    --------
    >>> from calc.presets import model_preset
    >>> sequence_bytes(model_preset("llama-3.1-8b"), 128_000, kv_dtype="q8_0", engine="llama.cpp")
    8912896000
    """
    tokens = require(tokens, COUNT, "tokens")
    rule = cache_rule(model, kv_dtype=kv_dtype, engine=engine, tensor_parallel=tensor_parallel, **options)
    stages = pipeline_stages(model.layers, rule.sizes.split.pipeline_parallel)
    return rule.all_ranks(stages, tokens).total


def layer_bytes(model: ModelSpec, tokens: Numeric, **options: Any) -> tuple[LayerBytes, ...]:
    """What each layer of a model keeps of one sequence, first layer to last.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].
    tokens : int or array
        Tokens in the cache [tokens].
    **options
        Format, engine, ranks and settings, as `cache_rule` takes them [each as it says].

    Returns
    -------
    tuple of LayerBytes
        Kind and bytes of each layer, over all ranks; together they are `sequence_bytes`, but for what vLLM pads groups
        of layers with [bytes].

    Raises
    ------
    ValueError
        If a number is out of range, the model cannot be split so, or the engine has no such format or setting.
    LookupError
        If a format or the engine is not known.
    """
    tokens = require(tokens, COUNT, "tokens")
    rule = cache_rule(model, **options)
    order = model.groups_in_order
    of_group = [
        LayerBytes(kind=group.kind, bytes=rule.one_layer(order.index(number), tokens))
        for number, group in enumerate(model.layer_groups)
    ]
    return tuple(of_group[index] for index in order)


def _mean(growth: int, tokens: int) -> int | float:
    return growth // tokens if growth % tokens == 0 else growth / tokens


def _replication(rule: LayerRule, stages: tuple[range, ...]) -> float:
    """What all ranks must keep of a long sequence, over what one rank alone must keep of it."""
    ideal = Ideal(model=rule.model, sizes=rule.sizes)
    tokens = rule.sizes.split.decode_context_parallel * max(1, ideal.full_windows_at)
    alone = Ideal(model=rule.model, sizes=replace(rule.sizes, split=Split()))
    everything = (range(rule.model.layers),)
    kept = alone.all_ranks(everything, tokens).total
    return ideal.all_ranks(stages, tokens).total / kept if kept else 1.0


def engine_remarks(model: ModelSpec, **options: Any) -> tuple[str, ...]:
    """What to know of an engine's rule before relying on its number for a model.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].
    **options
        Format, engine, ranks and settings, as `cache_rule` takes them [each as it says].

    Returns
    -------
    tuple of str
        A sentence each; none where the rule keeps what must be kept [text].

    Raises
    ------
    ValueError
        If the model cannot be counted so.
    LookupError
        If a format or the engine is not known.
    """
    return cache_rule(model, **options).remarks()


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
