"""How attention can keep less or read less: five mechanisms, what each keeps, reads and loses, in words and in bytes."""

from dataclasses import dataclass, replace

from calc.flops import decode_cache_read_bytes
from calc.kv_cache import sequence_bytes
from calc.layouts import WINDOW, as_latent
from calc.model_spec import LayerGroup, ModelSpec, State
from calc.numeric import MAX_COUNT, Numeric, count_up_to, require

PICKED = 2048
"""Tokens that an indexer picks for each query where nothing else is asked for, as in DeepSeek-V3.2 [tokens]."""
INDEX_WIDTH = 128
"""Width of an indexer's key, as in DeepSeek-V3.2 [numbers]."""
INDEX_HEADS = 64
"""Heads of an indexer, as in DeepSeek-V3.2; bytes do not depend on them [heads]."""
NEWEST_COUNTED = count_up_to(MAX_COUNT, low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """One way of attending to a long context, in plain words."""

    name: str
    kept: str
    """What a layer holds of a sequence."""
    read: str
    """What a layer reads for each decoded token."""
    lost: str
    """What a token can no longer see."""


MECHANISMS = (
    Mechanism(
        name="full",
        kept="The key and the value of every token.",
        read="All of them.",
        lost="Nothing.",
    ),
    Mechanism(
        name="sliding",
        kept="The keys and values of the newest tokens, up to the window.",
        read="All that is kept.",
        lost="Everything before the window; it can only arrive through other layers, which carried it forward.",
    ),
    Mechanism(
        name="linear",
        kept="One matrix for each head, key width by value width, to which every token is added.",
        read="The whole matrix, whatever the length.",
        lost="Single tokens: they overlap in the matrix, so that exact recall fades as more of them come.",
    ),
    Mechanism(
        name="sparse",
        kept="The keys and values of every token, and a short index key for each.",
        read="The index keys of all tokens, then the keys and values of those that score highest.",
        lost="For this token, all that was not picked; nothing is deleted, a later token may still pick it.",
    ),
    Mechanism(
        name="compressed",
        kept="For every token one latent, from which the keys and values of all heads are rebuilt, and one rotated key.",
        read="All of them; one reading serves every head.",
        lost="What the narrow latent cannot hold of separate heads.",
    ),
)
"""Compression is across heads here, by a latent; a layer may compress tokens too, one entry for a block of them."""

_OF_KIND = {
    "full": ("full",),
    "sliding": ("sliding",),
    "chunked": ("sliding",),
    "latent": ("compressed",),
    "sliding latent": ("sliding", "compressed"),
    "compressed latent": ("sliding", "compressed"),
    "indexed": ("sparse",),
    "indexed latent": ("sparse", "compressed"),
    "full with state": ("full", "linear"),
    "sliding with state": ("sliding", "linear"),
    "recurrent": ("linear",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanismBytes:
    """What one layer keeps of one sequence, and what it reads of it for the newest token."""

    mechanisms: tuple[str, ...]
    """Names in `MECHANISMS`; a layer may combine two, and none stands for a layer without a cache of its own."""
    kind: str
    """The kind of layer."""
    layers: int
    kept_bytes: Numeric
    """Of one layer."""
    read_bytes: Numeric | None
    """Of one layer; None where it is not known."""


def mechanism_bytes(
    tokens: Numeric,
    *,
    query_heads: int,
    kv_heads: int,
    head_width: int,
    kv_dtype: str = "bf16",
    window: int = WINDOW,
    picked: int = PICKED,
    index_width: int = INDEX_WIDTH,
) -> tuple[MechanismBytes, ...]:
    """One layer of a head shape under each mechanism.

    Parameters
    ----------
    tokens : int or array
        Tokens of the sequence, the newest counted, n, at least 1 [tokens].
    query_heads : int
        Query heads; the linear layer has a matrix for each, h [heads].
    kv_heads : int
        Heads of keys and values, where they are kept token by token [heads].
    head_width : int
        Width of one head's key and of its value, d [numbers].
    kv_dtype : str
        Format of the cached keys and values; the linear layer's state is float32 whatever it is [name].
    window : int
        Window of the sliding layer, the token itself counted [tokens].
    picked : int
        Tokens that the sparse layer's indexer picks [tokens].
    index_width : int
        Width of its index key [numbers].

    Returns
    -------
    tuple of MechanismBytes
        One row for each of `MECHANISMS`, in their order [bytes].

    Raises
    ------
    ValueError
        If a number is out of range, or the query heads are not a multiple of the KV heads.
    LookupError
        If the format is not known.

    Notes
    -----
    The compressed layer has the proportions of `as_latent`: 4 d numbers and d / 2. The linear layer's state is
    h d d numbers, without convolutions beside it. Reads of one decoded token; what it writes is not counted.
    """
    full = LayerGroup(
        kind="full", layers=1, query_heads=query_heads, kv_heads=kv_heads, key_width=head_width, value_width=head_width
    )
    state = State(kind="recurrent", heads=query_heads, numbers=head_width * head_width, dtype="fp32")
    groups = (
        full,
        replace(full, kind="sliding", window=window),
        LayerGroup(kind="recurrent", layers=1, states=(state,)),
        replace(full, kind="indexed", index_width=index_width, index_heads=INDEX_HEADS, index_tokens=picked),
        as_latent(_one_layer(full)).layer_groups[0],
    )
    return tuple(_layer(group, tokens, kv_dtype, "bf16") for group in groups)


def attention_shape(model: ModelSpec) -> LayerGroup:
    """The heads of a model with which mechanisms are compared.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].

    Returns
    -------
    LayerGroup
        Its first layers with KV heads of their own, or 32 query and 8 KV heads of 128 where it has none [facts].
    """
    common = LayerGroup(kind="full", layers=1, query_heads=32, kv_heads=8, key_width=128, value_width=128)
    return next((group for group in model.layer_groups if group.kv_heads and not group.is_latent), common)


def model_mechanisms(model: ModelSpec, tokens: Numeric, *, kv_dtype: str = "bf16") -> tuple[MechanismBytes, ...]:
    """The layers of a model, by mechanism.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].
    tokens : int or array
        Tokens of the sequence, the newest counted, at least 1 [tokens].
    kv_dtype : str
        Format of the cached keys and values [name].

    Returns
    -------
    tuple of MechanismBytes
        One row for each group of layers, in the model's order of groups [bytes].

    Raises
    ------
    ValueError
        If a number is out of range.
    LookupError
        If the format is not known.

    Notes
    -----
    Times the layers of each row, the kept bytes are `sequence_bytes`.
    """
    return tuple(_layer(group, tokens, kv_dtype, model.dtype) for group in model.layer_groups)


def _layer(group: LayerGroup, tokens: Numeric, kv_dtype: str, dtype: str) -> MechanismBytes:
    tokens = require(tokens, NEWEST_COUNTED, "tokens")
    model = _one_layer(replace(group, layers=1), dtype)
    kept = sequence_bytes(model, tokens, kv_dtype=kv_dtype)
    try:
        read = decode_cache_read_bytes(model, tokens - 1, kv_dtype=kv_dtype)
    except ValueError:  # None says that it is not known
        read = None
    return MechanismBytes(
        mechanisms=_OF_KIND.get(group.kind, ()),
        kind=group.kind,
        layers=group.layers,
        kept_bytes=kept,
        read_bytes=read,
    )


def _one_layer(group: LayerGroup, dtype: str = "bf16") -> ModelSpec:
    return ModelSpec(
        name="one layer", model_type="one layer", layer_groups=(group,), weights=None, max_context=None, dtype=dtype
    )
