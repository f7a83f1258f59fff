"""A model as another one: the same layers with other heads, with a latent plane or with windows."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from calc.model_spec import MAX_LAYERS, OTHER_KINDS, LayerGroup, ModelSpec
from calc.names import known
from calc.numeric import POSITIVE_COUNT, count_up_to, require_scalar

ANOTHER_MODEL = "another model: needs retraining, quality not modelled"
"""What is said of every layout but the model's own."""

WINDOW = 4096
"""Window of the sliding layout where none is asked for, as in Gemma 2, Cohere 2 and Mistral 7B [tokens]."""
EVERY = 4
"""The sliding layout keeps one layer in four full, as Cohere 2 does [layers]."""
LATENT_HEAD_WIDTHS = 4
"""Width of the latent in head widths, as in DeepSeek-V2: 512 for heads of 128; the rotated key has half a width."""

_LATENT = {"full": "latent", "sliding": "sliding latent", "chunked": "sliding latent"}
_FULL_AND_SLIDING = {
    "full": ("full", "sliding"),
    "sliding": ("full", "sliding"),
    "chunked": ("full", "sliding"),
    "latent": ("latent", "sliding latent"),
    "sliding latent": ("latent", "sliding latent"),
    "full with state": ("full with state", "sliding with state"),
    "sliding with state": ("full with state", "sliding with state"),
}


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
        If the query heads are not a multiple of `kv_heads`, or a layer has no KV heads to change.
    """
    require_scalar(kv_heads, POSITIVE_COUNT, "kv_heads")
    _require_kv_heads(model)
    groups = (replace(group, kv_heads=kv_heads) for group in model.layer_groups)
    return _changed(model, groups, f"{model.name} with {kv_heads} KV heads")


def head_layouts(model: ModelSpec) -> dict[str, ModelSpec]:
    """The same model as MHA, GQA and MQA, its own layout among them.

    Parameters
    ----------
    model : ModelSpec
        The model; layers with keys and values must share one number of query and of KV heads [facts].

    Returns
    -------
    dict of str to ModelSpec
        Label such as "GQA-8" and model, most KV heads first. Every one but the model's own is another model: it needs
        training, and its quality is not modelled. A model with layers that have no KV heads to change (latent,
        recurrent) comes alone [facts].

    Raises
    ------
    ValueError
        If the layer groups differ in query heads.

    Notes
    -----
    Where the model itself is not GQA, the GQA shown has the number of KV heads that divides the query heads and lies
    nearest to a quarter of them; query heads that are prime allow none.
    """
    if any(group.is_latent or group.kind in OTHER_KINDS for group in model.layer_groups):
        return {model.layout: model}
    heads = {(group.query_heads, group.kv_heads) for group in model.layer_groups}
    if len(heads) > 1:
        raise ValueError(f"query and KV heads must be the same in all layers to compare layouts, got {sorted(heads)}")
    query_heads, own = heads.pop()
    between = [n for n in range(2, query_heads) if query_heads % n == 0]
    grouped = [own] if 1 < own < query_heads else sorted(between, key=lambda n: abs(n - query_heads / 4))[:1]
    labels = {query_heads: "MHA", 1: "MQA"} | {n: f"GQA-{n}" for n in grouped}
    return {labels[n]: (model if n == own else with_kv_heads(model, n)) for n in sorted(labels, reverse=True)}


def layouts_to_compare(model: ModelSpec) -> dict[str, ModelSpec]:
    """The model under other head layouts, or the model alone where its layers differ in heads.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].

    Returns
    -------
    dict of str to ModelSpec
        What `head_layouts` gives, or the model under the name of its own layout [facts].
    """
    heads = {(group.query_heads, group.kv_heads) for group in model.layer_groups}
    return head_layouts(model) if len(heads) == 1 else {model.layout: model}


def as_latent(model: ModelSpec) -> ModelSpec:
    """The same model with multi-head latent attention in every layer that has keys and values.

    Parameters
    ----------
    model : ModelSpec
        The model to change [facts].

    Returns
    -------
    ModelSpec
        Another model: it would have to be trained, and its quality is not modelled [facts].

    Raises
    ------
    ValueError
        If a layer's cache is of a kind that has no latent form here, such as one with an indexer.

    Notes
    -----
    With heads of width d the latent has r = 4 d numbers and the rotated key, which all heads share, d / 2: one plane
    of 4.5 d numbers per token and layer. Each head keeps its key of width d, now beside the rotated part, and its
    value. Queries are projected whole, without a latent of their own; the latent has a norm, which takes the place of
    norms of queries and keys; biases, where there are any, are those of the query and of the plane. Windows stay; a
    chunk becomes a window of its length. Layers without keys and values, and latent ones, stay as they are. Source:
    DeepSeek-V2 (arXiv 2405.04434), where r = 4 d and d_r = d / 2.
    """
    allowed = (*_LATENT, *_LATENT.values(), *OTHER_KINDS)
    if other := [group.kind for group in model.layer_groups if group.kind not in allowed or group.cross_kv_heads]:
        raise ValueError(f"layers of kind {other[0]!r} have no latent form here")
    return _changed(model, (_latent(group) for group in model.layer_groups), f"{model.name} as MLA")


def _latent(group: LayerGroup) -> LayerGroup:
    if group.kind not in _LATENT:
        return group
    return replace(
        group,
        kind=_LATENT[group.kind],
        kv_heads=1,
        transformers_kv_heads=None,
        key_width=LATENT_HEAD_WIDTHS * group.key_width,
        value_width=group.key_width // 2,
        nope_width=group.key_width,
        head_value_width=group.value_width,
    )


def as_sliding(model: ModelSpec, window: int = WINDOW, every: int = EVERY) -> ModelSpec:
    """The same model with a sliding window in all but one layer of each N.

    Parameters
    ----------
    model : ModelSpec
        The model to change [facts].
    window : int
        Window of the layers that slide, the token itself counted, w [tokens].
    every : int
        One layer in this many stays full, N; with 1 all do [layers].

    Returns
    -------
    ModelSpec
        Another model: it would have to be trained, and its quality is not modelled [facts].

    Raises
    ------
    ValueError
        If a number is out of range, or a layer's cache is of a kind that has no window here, such as one with an
        indexer.

    Notes
    -----
    The last layer of each N is the full one, as in Gemma 3 and Cohere 2, so that a remainder at the end slides. Layers
    without keys and values of their own (recurrent, shared, none) stay as they are and do not count. Heads and
    parameters do not change.
    """
    require_scalar(window, POSITIVE_COUNT, "window")
    require_scalar(every, count_up_to(MAX_LAYERS, low=1), "every")
    if other := [group.kind for group in model.layer_groups if group.kind not in (*_FULL_AND_SLIDING, *OTHER_KINDS)]:
        raise ValueError(f"layers of kind {other[0]!r} have no window to set here")
    counts: dict[LayerGroup, int] = {}
    order, attending = [], 0
    for index in model.groups_in_order:
        shape = replace(model.layer_groups[index], layers=1)
        if shape.kind in _FULL_AND_SLIDING:
            attending += 1
            full, sliding = _FULL_AND_SLIDING[shape.kind]
            is_full = attending % every == 0
            shape = replace(shape, kind=full if is_full else sliding, window=None if is_full else window)
        counts[shape] = counts.get(shape, 0) + 1
        order.append(list(counts).index(shape))
    groups = [replace(shape, layers=number) for shape, number in counts.items()]
    name = f"{model.name} with a window of {window:,} in all but one layer in {every}"
    return _changed(model, groups, name, order=tuple(order) if len(groups) > 1 else ())


def layout(model: ModelSpec, name: str, *, window: int = WINDOW) -> ModelSpec:
    """The same model under a layout by its name.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].
    name : str
        own, MHA, GQA-8, GQA-4, MQA, MLA or sliding-1-in-4 [name].
    window : int
        Window of the sliding layout, the token itself counted [tokens].

    Returns
    -------
    ModelSpec
        The model itself where it has this layout already, else another model, which would have to be trained and whose
        quality is not modelled [facts].

    Raises
    ------
    LookupError
        If the name is not known.
    ValueError
        If the model cannot have the layout, such as 8 KV heads for 12 query heads.

    Notes
    -----
    See `with_kv_heads`, `as_latent` and `as_sliding` for what each assumes.

    Examples
    --------
    >>> from calc.presets import model_preset
    >>> model = model_preset("llama-3.1-8b")
    >>> layout(model, "GQA-8") is model, layout(model, "MLA").name
    (True, 'Llama 3.1 8B as MLA')
    """
    other = _LAYOUTS[known(name, LAYOUTS, "layout")](model, window)
    return model if other.layer_groups == model.layer_groups else other


def _as_mha(model: ModelSpec) -> ModelSpec:
    _require_kv_heads(model)
    groups = (replace(group, kv_heads=group.query_heads) for group in model.layer_groups)
    return _changed(model, groups, f"{model.name} as MHA")


_LAYOUTS: dict[str, Callable[[ModelSpec, int], ModelSpec]] = {
    "own": lambda model, window: model,
    "MHA": lambda model, window: _as_mha(model),
    "GQA-8": lambda model, window: with_kv_heads(model, 8),
    "GQA-4": lambda model, window: with_kv_heads(model, 4),
    "MQA": lambda model, window: with_kv_heads(model, 1),
    "MLA": lambda model, window: as_latent(model),
    "sliding-1-in-4": lambda model, window: as_sliding(model, window, EVERY),
}
LAYOUTS = tuple(_LAYOUTS)
"""Names that `layout` knows."""


def _require_kv_heads(model: ModelSpec) -> None:
    if fixed := [group.kind for group in model.layer_groups if group.kind in OTHER_KINDS or group.is_latent]:
        raise ValueError(f"layers of kind {fixed[0]!r} have no KV heads to change")


def _changed(
    model: ModelSpec, groups: Iterable[LayerGroup], name: str, *, order: tuple[int, ...] | None = None
) -> ModelSpec:
    """The model with other layers: no config gives it."""
    return replace(
        model,
        layer_groups=tuple(groups),
        layer_order=model.layer_order if order is None else order,
        name=name,
        config_text="",
    )
