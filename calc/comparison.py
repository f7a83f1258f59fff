"""Models and layouts side by side: bytes, FLOP, intensity, parameters, and where the cache outweighs the weights."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calc.flops import decode_attention_flops, decode_cache_read_bytes, decode_flops
from calc.kv_cache import sequence_bytes, sequence_memory
from calc.kv_formats import kv_format
from calc.layouts import LAYOUTS, WINDOW, layout
from calc.model_spec import ModelSpec
from calc.names import known
from calc.numeric import MAX_COUNT, POSITIVE_COUNT, Numeric, count_up_to, require, require_scalar
from calc.parallel import Split
from calc.presets import model_ids, model_preset
from calc.roofline import arithmetic_intensity, break_even_sequences
from calc.weights import parameters

SPLITS = ("tensor_parallel", "pipeline_parallel", "data_parallel", "decode_context_parallel")
MAX_COMPARED = 6
"""Rows that can still be told apart in a chart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One model or layout of a comparison; None where a number is not known, with the reason in `unknown`."""

    label: str
    model: ModelSpec
    is_another_model: bool
    """The layout is not the model's own: it would have to be trained, and its quality is not modelled."""
    bytes: Numeric | None
    """Cache of one sequence on one rank; None where the format cannot hold it."""
    bytes_per_rank: Numeric | None
    """Cache of one sequence on each of the ranks; None where the heads cannot be split over them."""
    decode_attention_flops: Numeric | None
    """Attention of one decoded token."""
    decode_flops: Numeric | None
    """One decoded token, matrix products included."""
    attention_intensity: Numeric | None
    """FLOP of decode attention per byte of cache that it reads."""
    parameters: int | None
    parameters_change: int | None
    """Parameters more than the first row has."""
    break_even_sequences: Numeric | None
    """Sequences of this length whose caches take as many bytes to read, on a rank, as its share of the weights."""
    break_even_tokens: Numeric | None
    """The same as a number of tokens, batch times context."""
    unknown: tuple[str, ...]
    """Why numbers are None, a sentence each."""


def comparison(
    choices: Sequence[tuple[ModelSpec, str]],
    tokens: Numeric,
    *,
    window: int = WINDOW,
    weights_dtype: str = "bf16",
    **options: Any,
) -> tuple[Compared, ...]:
    """Up to six models or layouts of models at one context length or at several.

    Parameters
    ----------
    choices : sequence of (ModelSpec, str)
        A model and the name of a layout, "own" for the model as it is; at most six of them [facts, name].
    tokens : int or array
        Tokens in the cache of one sequence, at least 1 [tokens].
    window : int
        Window of the sliding layout, the token itself counted [tokens].
    weights_dtype : str
        Format of the weights [name].
    **options
        Formats, splits and encoder tokens, as `calc.kv_cache.cache_rule` takes them; the rule is what must be kept
        [each as it says].

    Returns
    -------
    tuple of Compared
        One row for each choice, in the order given [bytes, FLOP, FLOP per byte, parameters, sequences, tokens].

    Raises
    ------
    ValueError
        If there are no choices or more than six, a number is out of range, or a model cannot have a layout.
    LookupError
        If a layout or a format is not known.

    Notes
    -----
    Bytes are those that any implementation must keep. The break-even takes the weights that a decode step reads -
    layers, head, norms; of the embedding only single rows - as shared out evenly over the ranks, and the cache as each
    rank reads it, with one token more than there were. What a sequence takes whatever its length counts once for each.

    Examples
    --------
    >>> from calc.presets import model_preset
    >>> model = model_preset("llama-3.1-8b")
    >>> [(row.label, row.bytes, row.parameters_change) for row in comparison([(model, "own"), (model, "MQA")], 1000)]
    [('Llama 3.1 8B', 131072000, 0), ('Llama 3.1 8B with 1 KV heads', 16384000, -234881024)]
    """
    if not 1 <= len(choices) <= MAX_COMPARED:
        raise ValueError(f"choices must be 1 to {MAX_COMPARED} models or layouts, got {len(choices)}")
    tokens = require(tokens, count_up_to(MAX_COUNT - 1, low=1), "tokens")
    Split(**{name: options.get(name, 1) for name in SPLITS})  # a number that no model can have is refused for all
    models = [(layout(model, name, window=window), model) for model, name in choices]
    packed = kv_format(weights_dtype)
    if packed.row_bytes or packed.is_for_latent_rows:
        raise ValueError(f"weights_dtype must be a format without scales per row, got {packed.name}")
    weight_bytes = packed.block_bytes / packed.block_numbers
    rows = [_row(shown, shown is not own, tokens, weight_bytes, options) for shown, own in models]
    return tuple(_against(row, rows[0]) for row in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What a model is compared with."""

    choices: tuple[tuple[ModelSpec, str], ...]
    """Models and names of layouts, as `comparison` takes them; the model itself is the first."""
    names: tuple[str, ...]
    """What each is called; a star marks a changed layout."""
    refused: tuple[str, ...]
    """Layouts that the model cannot have, with the reason, a sentence each."""


def choices_of(model: ModelSpec, others: Sequence[str], *, window: int = WINDOW) -> Choices:
    """A model, and others by name: its own layouts, or presets.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].
    others : sequence of str
        Names of layouts or ids of presets; the model's own layout is left out [names].
    window : int
        Window of the sliding layout, the token itself counted [tokens].

    Returns
    -------
    Choices
        What `comparison` takes, with names and refusals [facts].

    Raises
    ------
    ValueError
        If the window is no positive count.
    LookupError
        If a name is neither a layout nor a preset.

    Examples
    --------
    >>> from calc.presets import model_preset
    >>> choices_of(model_preset("deepseek-v3"), ["MQA", "llama-3.1-8b"]).names
    ('DeepSeek-V3', 'Llama 3.1 8B')
    """
    require_scalar(window, POSITIVE_COUNT, "window")
    choices, names, refused = [(model, "own")], [model.name], []
    for name in dict.fromkeys(others):
        if name not in LAYOUTS:
            known(name, (*LAYOUTS, *model_ids()), "layout or model")
            other = model_preset(name)
            choices.append((other, "own"))
            names.append(f"{other.name} (preset)" if other.name in names else other.name)
            continue
        try:
            same = layout(model, name, window=window)
        except ValueError as problem:
            refused.append(f"As {name}: {problem}.")
            continue
        if same is not model:
            choices.append((model, name))
            names.append(f"as {name} *")
    return Choices(choices=tuple(choices), names=tuple(names), refused=tuple(refused))


def _row(
    model: ModelSpec, is_another_model: bool, tokens: Numeric, weight_bytes: float, options: dict[str, Any]
) -> Compared:
    alone = {name: value for name, value in options.items() if name not in SPLITS}
    unknown: list[str] = []

    def found(number: Callable[[], Any]) -> Any:
        """A number, or None where it is not known, and why."""
        try:
            return number()
        except ValueError as error:
            unknown.append(str(error))
            return None

    attention = found(lambda: decode_attention_flops(model, tokens))
    read = found(lambda: decode_cache_read_bytes(model, tokens, **alone))
    on_ranks = found(lambda: decode_cache_read_bytes(model, tokens, **options))
    size = found(lambda: parameters(model))
    break_even = None
    if size is not None and on_ranks is not None and _is_positive(on_ranks):
        # Each rank reads its share of both; the ranks drop out but for heads that they replicate.
        read_each_step = size.layer_matrices + size.head_matrix + size.vectors
        break_even = break_even_sequences(read_each_step * weight_bytes, on_ranks)
    return Compared(
        label=model.name,
        model=model,
        is_another_model=is_another_model,
        bytes=found(lambda: sequence_bytes(model, tokens, **alone)),
        bytes_per_rank=found(lambda: sequence_memory(model, tokens, **options).bytes_per_rank),
        decode_attention_flops=attention,
        decode_flops=found(lambda: decode_flops(model, tokens).total),
        attention_intensity=None
        if attention is None or read is None or not _is_positive(read)
        else arithmetic_intensity(attention, read),
        parameters=None if size is None else size.total,
        parameters_change=None,
        break_even_sequences=break_even,
        break_even_tokens=None if break_even is None else break_even * tokens,
        unknown=tuple(dict.fromkeys(unknown)),
    )


def _is_positive(number: Numeric) -> bool:
    return bool(np.all(number))


def _against(row: Compared, first: Compared) -> Compared:
    if row.parameters is None or first.parameters is None:
        return row
    return replace(row, parameters_change=row.parameters - first.parameters)
