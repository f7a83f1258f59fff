"""Frozen facts of a model: its layers group by group, its widths, and where each fact came from."""

from dataclasses import dataclass, replace

from calc.numeric import POSITIVE_COUNT, count_up_to, require, require_all

MAX_LAYERS = 100_000
MAX_HEADS = 65_536
MAX_WIDTH = 10**8


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """Layers that keep and read their cache in the same way."""

    kind: str
    """How the layer's cache grows: "full" keeps every token."""
    layers: int
    query_heads: int
    kv_heads: int
    key_width: int
    """Numbers in one head's key."""
    value_width: int
    """Numbers in one head's value."""

    def __post_init__(self) -> None:
        require(self.layers, count_up_to(MAX_LAYERS, low=1), "layers")
        require_all(count_up_to(MAX_HEADS, low=1), query_heads=self.query_heads, kv_heads=self.kv_heads)
        require_all(count_up_to(MAX_WIDTH, low=1), key_width=self.key_width, value_width=self.value_width)
        if self.query_heads % self.kv_heads:
            raise ValueError(f"query_heads must be a multiple of kv_heads = {self.kv_heads}, got {self.query_heads}")

    @property
    def layout(self) -> str:
        """The field's name of the head layout: MHA, GQA or MQA."""
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
    weights: WeightShape
    max_context: int | None
    """Tokens the config allows; None where it does not say."""
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

    @property
    def layers(self) -> int:
        """Layers of all groups."""
        return sum(group.layers for group in self.layer_groups)

    @property
    def layout(self) -> str:
        """The head layouts of the groups, joined by " + "."""
        return " + ".join(dict.fromkeys(group.layout for group in self.layer_groups))


def with_kv_heads(model: ModelSpec, kv_heads: int) -> ModelSpec:
    """The same model with another number of KV heads in every group.

    Parameters
    ----------
    model : ModelSpec
        The model to change [facts].
    kv_heads : int
        KV heads per layer; must divide the query heads [count].

    Returns
    -------
    ModelSpec
        Another model: it would have to be trained, and its quality is not modelled [facts].

    Raises
    ------
    ValueError
        If the query heads are not a multiple of `kv_heads`.
    """
    require(kv_heads, POSITIVE_COUNT, "kv_heads")
    groups = tuple(replace(group, kv_heads=kv_heads) for group in model.layer_groups)
    return replace(model, layer_groups=groups, name=f"{model.name} with {kv_heads} KV heads", config_text="")
