"""What a layer of each kind keeps, from the facts of its model: one function per kind of state."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from calc.model_spec import MODEL_DTYPE, Compression, State

Facts = Callable[[str], Any]
"""Gives a fact of the model by its name."""
FP32 = "fp32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """What a layer is made of."""

    attention: bool = False
    window: str = ""
    """The fact that bounds the tokens kept: "window" or "chunk"; empty where all are kept."""
    indexed: bool = False
    cross: bool = False
    """Attention over an encoder's tokens only."""
    state: bool = False
    compressed: str = ""
    """The fact that says how many tokens one entry stands for: "sparse_rate" or "heavy_rate"; empty where none does."""


WORDS = {
    "full_attention": Word(attention=True),
    "sliding_attention": Word(attention=True, window="window"),
    "chunked_attention": Word(attention=True, window="chunk"),
    "indexed_attention": Word(attention=True, indexed=True),
    "cross_attention": Word(attention=True, cross=True),
    "compressed_sparse_attention": Word(attention=True, window="window", compressed="sparse_rate"),
    "heavily_compressed_attention": Word(attention=True, window="window", compressed="heavy_rate"),
    "linear_attention": Word(state=True),
    "conv": Word(state=True),
    "hybrid": Word(attention=True, state=True),
    "hybrid_sliding": Word(attention=True, window="window", state=True),
    "none": Word(),
}
"""The words of layer_types and what each means."""


def convolution(
    channels: int, kernel: int, *, transformers_columns: int | None = None, fixed: str = MODEL_DTYPE
) -> State:
    """A short convolution's inputs: all but the newest must be kept; transformers keeps the kernel's width."""
    return State(
        kind="convolution",
        heads=channels,
        numbers=1,
        columns=kernel - 1,
        transformers_columns=kernel if transformers_columns is None else transformers_columns,
        transformers_dtype=fixed,
    )


def recurrence(
    fact: Facts, heads: int, numbers: int, *, transformers_dtype: str = FP32, vllm_dtype: str | None = None
) -> State:
    """A recurrent state, in the type that the config documents, float32 where it says nothing."""
    return State(
        kind="recurrent",
        heads=heads,
        numbers=numbers,
        dtype=fact("state_dtype"),
        transformers_dtype=transformers_dtype,
        vllm_dtype=fact("served_state_dtype") if vllm_dtype is None else vllm_dtype,
    )


def mamba(fact: Facts) -> tuple[State, ...]:
    """Selective state space, first version: a state of N numbers per inner channel."""
    inner = fact("state_inner_width")
    return convolution(inner, fact("conv_kernel")), recurrence(fact, inner, fact("state_width"))


def mamba2(fact: Facts) -> tuple[State, ...]:
    """State space in heads: the inner channels and the two projections of each group are convolved."""
    width = fact("state_width")
    projections = replace(convolution(fact("state_groups"), fact("conv_kernel")), numbers=2 * width, is_replicated=True)
    return (
        convolution(fact("state_inner_width"), fact("conv_kernel")),
        projections,
        recurrence(fact, fact("state_heads"), fact("state_head_width") * width),
    )


def delta_rule(fact: Facts) -> tuple[State, ...]:
    """Gated delta rule: a matrix of key by value width per value head; queries, keys and values are convolved."""
    keys = fact("linear_key_heads") * fact("linear_key_width")
    heads, width = fact("linear_value_heads"), fact("linear_value_width")
    return (
        convolution(2 * keys + heads * width, fact("conv_kernel")),
        recurrence(fact, heads, fact("linear_key_width") * width),
    )


def kimi_delta(fact: Facts) -> tuple[State, ...]:
    """Kimi delta attention: square matrices, and three convolutions."""
    heads, width = fact("linear_heads"), fact("linear_head_width")
    return convolution(3 * heads * width, fact("conv_kernel")), recurrence(fact, heads, width * width, vllm_dtype=FP32)


def lightning(fact: Facts) -> tuple[State, ...]:
    """Linear attention with decay: a square matrix per head."""
    width = fact("head_width")
    return (recurrence(fact, fact("query_heads"), width * width, transformers_dtype=MODEL_DTYPE),)


def short_convolution(fact: Facts) -> tuple[State, ...]:
    """A gated short convolution over the hidden width, without a recurrence."""
    return (convolution(fact("hidden_width"), fact("conv_kernel")),)


def gated_recurrence(fact: Facts) -> tuple[State, ...]:
    """Real-gated linear recurrent unit: one number per channel, after a convolution."""
    width, kernel = fact("recurrence_width"), fact("conv_kernel")
    return convolution(width, kernel, transformers_columns=kernel - 1), recurrence(fact, width, 1)


def convolved_attention(fact: Facts) -> tuple[State, ...]:
    """Queries and keys convolved before attention, and half of the last value (Zaya)."""
    keys = fact("kv_heads") * fact("head_width")
    half = State(kind="recurrent", heads=fact("kv_heads"), numbers=fact("head_width") // 2)
    return convolution(fact("query_heads") * fact("head_width") + keys, fact("conv_kernel")), half


def four_convolutions(fact: Facts) -> tuple[State, ...]:
    """Convolutions of keys, of values and of two hidden vectors, which transformers keeps in float32 (Inkling)."""
    keys = fact("kv_heads") * fact("head_width")
    return (convolution(2 * keys + 2 * fact("hidden_width"), fact("conv_kernel"), fixed=FP32),)


def receptance(fact: Facts) -> tuple[State, ...]:
    """RWKV-4: the last inputs of both mixers, and three vectors of the recurrence."""
    width = fact("hidden_width")
    inputs = State(kind="convolution", heads=width, numbers=2)
    return inputs, recurrence(fact, width, 3)


def ngram_states(fact: Facts) -> tuple[State, ...]:
    """A convolution over the embeddings of the last token n-grams, and the ids of their tokens (Qwen4-Exp)."""
    size, kernel = fact("ngram_size"), fact("ngram_kernel")
    channels = fact("ngram_streams") * fact("hidden_width") * size
    states = [convolution(channels, kernel, transformers_columns=kernel - 1)]
    if size > 1:
        ids = State(kind="recurrent", heads=1, numbers=size - 1, dtype="int64", transformers_dtype="int64")
        states.append(ids)
    return tuple(states)


def compression(fact: Facts, rate: str) -> Compression:
    """Entries for blocks of tokens beyond the window; those of sparse layers overlap, and an indexer picks among them."""
    width = fact("latent_width")
    if rate == "heavy_rate":
        return Compression(block_tokens=fact(rate), entry_width=width, pending_numbers=2 * width)
    index = fact("index_width")
    return Compression(
        block_tokens=fact(rate),
        entry_width=width,
        index_width=index,
        pending_numbers=4 * (width + index),
        overlaps=True,
    )


STATES: dict[str, Callable[[Facts], tuple[State, ...]]] = {
    "mamba": mamba,
    "mamba2": mamba2,
    "delta_rule": delta_rule,
    "kimi_delta": kimi_delta,
    "lightning": lightning,
    "short_convolution": short_convolution,
    "gated_recurrence": gated_recurrence,
    "convolved_attention": convolved_attention,
    "four_convolutions": four_convolutions,
    "receptance": receptance,
}
