"""Frozen facts of a model: its layers group by group, its widths, and where each fact came from."""

from collections import Counter
from dataclasses import dataclass

from calc.numeric import POSITIVE_COUNT, count_up_to, require, require_all

MAX_LAYERS = 100_000
MAX_HEADS = 65_536
MAX_WIDTH = 10**8


PER_TOKEN_KINDS = ("full", "sliding", "chunked", "latent", "sliding latent", "indexed", "indexed latent", "cross",
                   "compressed latent", "full with state", "sliding with state")  # fmt: skip
"""Kinds whose layers keep something for each token; "cross" for each token of an encoder or an image."""
OTHER_KINDS = ("recurrent", "shared", "none")
"""Kinds that keep a state of one size, use another layer's keys and values, or keep nothing."""
MODEL_DTYPE = "model"
"""The dtype of what follows the model's own type, rather than having one of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Numbers that a layer keeps per sequence, whatever its length."""

    kind: str
    """"convolution": the last inputs of a short convolution; "recurrent": what a recurrence carries on."""
    heads: int
    """What ranks can share out: heads of a recurrence, channels of a convolution."""
    numbers: int
    """Numbers of one head or channel, in one column."""
    columns: int = 1
    """What must be kept of a convolution's kernel: all columns but the newest; 1 for a recurrence."""
    dtype: str = MODEL_DTYPE
    """bf16, fp16, fp32, int64, or "model" where it follows the model's type."""
    is_replicated: bool = False
    """Groups that all heads of a rank read: with more ranks than groups each rank has one, as with KV heads."""
    transformers_columns: int = 1
    """Columns that transformers keeps."""
    transformers_dtype: str = MODEL_DTYPE
    """The type that transformers keeps it in."""
    vllm_dtype: str = MODEL_DTYPE
    """The type that vLLM keeps it in."""

    def __post_init__(self) -> None:
        require_all(count_up_to(MAX_WIDTH, low=1), heads=self.heads, numbers=self.numbers)
        require_all(count_up_to(MAX_WIDTH), columns=self.columns, transformers_columns=self.transformers_columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compression:
    """What a layer keeps of tokens beyond its window: one entry for each block of them."""

    block_tokens: int
    """Tokens that one entry stands for."""
    entry_width: int
    index_width: int = 0
    """Numbers of an entry's key by which an indexer picks entries; 0 where all are read."""
    pending_numbers: int
    """Numbers kept of each token of a block that is not full yet, in the model's type: contents and gates."""
    overlaps: bool = False
    """The last full block is needed once more, for the entry after it."""

    def __post_init__(self) -> None:
        require(self.block_tokens, POSITIVE_COUNT, "block_tokens")
        require_all(count_up_to(MAX_WIDTH), entry_width=self.entry_width, index_width=self.index_width)
        require(self.pending_numbers, count_up_to(8 * MAX_WIDTH), "pending_numbers")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """Layers that keep and read their cache in the same way."""

    kind: str
    """How the layer's cache grows: "full" keeps every token."""
    layers: int
    query_heads: int = 0
    kv_heads: int = 0
    key_width: int = 0
    """Numbers in one head's key; of a latent layer the numbers of the latent."""
    value_width: int = 0
    """Numbers in one head's value; of a latent layer those of the rotated key that all heads share, or 0."""
    nope_width: int = 0
    """Of a latent layer: numbers in one head's key that are rebuilt from the latent; 0 where it is not known."""
    head_value_width: int = 0
    """Of a latent layer: numbers in one head's value that are rebuilt from the latent; 0 where it is not known."""
    window: int | None = None
    """Newest tokens that are kept, the token itself among them; None where all are."""
    index_width: int = 0
    """Numbers in the key by which an indexer picks tokens."""
    index_dtype: str = MODEL_DTYPE
    """fp32 where the indexer's keys are never anything else."""
    index_heads: int = 0
    """Heads with which an indexer scores tokens; 0 where it is not known."""
    index_tokens: int | None = None
    """Tokens that an indexer picks for each query; None where it is not known."""
    extra_tokens: int = 0
    """Tokens of a learned prompt that are kept before those of the sequence."""
    cross_kv_heads: int = 0
    """Heads of this layer's cross-attention over an encoder's tokens, in the same widths."""
    states: tuple[State, ...] = ()
    compression: Compression | None = None
    """Entries for the tokens beyond the window; None where those are dropped."""
    transformers_planes: int = 1
    """Rows that transformers stores for one latent row: 2 where it keeps the same row as key and as value."""
    transformers_kv_heads: int | None = None
    """Heads that transformers caches, where it repeats the model's own."""
    transformers_trims: bool = True
    """False where transformers keeps every token in spite of the window."""
    transformers_token_bytes: int = 0
    """What transformers keeps of each token besides numbers of the model's type: int64 positions."""

    def __post_init__(self) -> None:
        require(self.layers, count_up_to(MAX_LAYERS, low=1), "layers")
        if self.kind in OTHER_KINDS:
            return
        if self.kind not in PER_TOKEN_KINDS:
            raise ValueError(f"kind must be one of {', '.join((*PER_TOKEN_KINDS, *OTHER_KINDS))}, got {self.kind!r}")
        require_all(count_up_to(MAX_HEADS, low=1), query_heads=self.query_heads, kv_heads=self.kv_heads)
        require(self.key_width, count_up_to(MAX_WIDTH, low=1), "key_width")
        require(self.value_width, count_up_to(MAX_WIDTH, low=0 if self.is_latent else 1), "value_width")
        require(self.index_width, count_up_to(MAX_WIDTH), "index_width")
        require_all(count_up_to(MAX_WIDTH), nope_width=self.nope_width, head_value_width=self.head_value_width)
        require(self.index_heads, count_up_to(MAX_HEADS), "index_heads")
        if self.window is not None:
            require(self.window, POSITIVE_COUNT, "window")
        if self.index_tokens is not None:
            require(self.index_tokens, POSITIVE_COUNT, "index_tokens")
        if self.query_heads % self.kv_heads:
            raise ValueError(f"query_heads must be a multiple of kv_heads = {self.kv_heads}, got {self.query_heads}")

    @property
    def is_latent(self) -> bool:
        """Whether one latent plane stands for the keys and values of all heads."""
        return self.kind.endswith("latent")

    @property
    def layout(self) -> str:
        """The field's name of the head layout: MHA, GQA, MQA or MLA; without attention, the kind."""
        if self.kind in OTHER_KINDS:
            return self.kind
        if self.is_latent:
            return "MLA"
        if self.kv_heads == 1:
            return "MQA"
        return "MHA" if self.kv_heads == self.query_heads else "GQA"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightShape:
    """What a dense decoder's parameter count depends on besides its attention widths."""

    hidden_width: int
    intermediate_width: int
    vocabulary: int
    gated_mlp: bool
    """Three matrices (gate, up, down) instead of two."""
    tied_head: bool
    """The output head is the embedding matrix, stored once."""
    query_key_value_bias: bool
    attention_output_bias: bool
    mlp_bias: bool
    norm_vectors: int
    """Vectors of one norm over the hidden width: 1 for RMSNorm, 2 for LayerNorm with its bias, 0 without weights."""
    norms_per_layer: int
    query_key_norm: bool
    """A norm over each head's query and one over its key."""
    position_embeddings: int
    """Rows of a learned position table; 0 where positions are computed."""
    head_bias: bool = False
    outer_norms: int = 1
    """Norms outside the layers: the one before the head, and any after the embedding."""
    query_key_norm_vectors: int = 1
    """Vectors of the query's and of the key's norm, where there is one: 1 a weight, 2 a weight and a bias."""
    query_key_norm_per_head: bool = False
    """Each head has its own norm weights, rather than all heads sharing those of one."""

    def __post_init__(self) -> None:
        require_all(
            count_up_to(MAX_WIDTH, low=1),
            hidden_width=self.hidden_width,
            intermediate_width=self.intermediate_width,
            vocabulary=self.vocabulary,
        )
        require_all(
            count_up_to(MAX_WIDTH),
            norm_vectors=self.norm_vectors,
            norms_per_layer=self.norms_per_layer,
            position_embeddings=self.position_embeddings,
            outer_norms=self.outer_norms,
            query_key_norm_vectors=self.query_key_norm_vectors,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where one fact of a model came from."""

    fact: str
    value: str
    source: str
    """The config field, "class default", or how it was derived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model as the formulas see it."""

    name: str
    model_type: str
    layer_groups: tuple[LayerGroup, ...]
    weights: WeightShape | None
    """None where the parameters are not known by the rules here."""
    max_context: int | None
    """Tokens the config allows; None where it does not say."""
    layer_order: tuple[int, ...] = ()
    """The group of each layer, first layer to last; empty where one group follows the other."""
    unknown_weights: str = ""
    """What model it is whose parameters are not known, such as "a model with experts"."""
    unknown_attention: str = ""
    """What it is about attention whose FLOP are not known, such as "attention to later tokens"; empty where they are."""
    dtype: str = "bf16"
    """The model's own type, which some states follow whatever the format of keys and values."""
    provenance: tuple[Provenance, ...] = ()
    warnings: tuple[str, ...] = ()
    """What a reader should know before relying on a number."""
    unread_fields: tuple[str, ...] = ()
    """Config fields that no rule here reads."""
    config_text: str = ""
    """JSON of the config fields that were read, enough to read the same facts again; empty where there is no config."""

    def __post_init__(self) -> None:
        if not self.layer_groups:
            raise ValueError("layer_groups must hold at least one group, got none")
        if self.max_context is not None:
            require(self.max_context, POSITIVE_COUNT, "max_context")
        if self.layer_order and Counter(self.layer_order) != dict(enumerate(g.layers for g in self.layer_groups)):
            raise ValueError("layer_order must name each group as often as it has layers")

    @property
    def layers(self) -> int:
        """Layers of all groups."""
        return sum(group.layers for group in self.layer_groups)

    @property
    def layout(self) -> str:
        """The head layouts of the groups, joined by " + "."""
        return " + ".join(dict.fromkeys(group.layout for group in self.layer_groups))

    @property
    def groups_in_order(self) -> tuple[int, ...]:
        """The group of each layer, first layer to last."""
        return self.layer_order or tuple(i for i, group in enumerate(self.layer_groups) for _ in range(group.layers))
