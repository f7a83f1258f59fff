"""Memory: what does the KV cache take?"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from calc.formats import bytes_text, count_text
from calc.kv_cache import (
    SequenceMemory,
    context_warnings,
    kv_cache_bytes,
    layer_bytes,
    sequence_memory,
)
from calc.kv_formats import bytes_per_number
from calc.layouts import layouts_to_compare
from calc.model_spec import LayerGroup, ModelSpec
from calc.numeric import Numeric
from calc.parallel import heads_per_rank
from calc.units import GIB, KIB
from views import charts, inputs, layout, text
from views.inputs import Scenario

LADDER = tuple(KIB * size for size in (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024))
"""Context lengths of the table."""


def render(scenario: Scenario, answer: DeltaGenerator) -> None:
    """Draws the answer, the first view and the closed sections."""
    model = scenario.model
    layouts = layouts_to_compare(model)
    one, spread = _memory(scenario, model), _memory(scenario, model, ranks=scenario.ranks)
    with answer:
        _verdict(scenario, layouts, one, spread)
    text.headline(
        [
            ("One sequence", bytes_text(one.bytes), "What one conversation keeps, on one rank."),
            (
                f"All {count_text(scenario.sequences)}" if scenario.sequences > 1 else "On all ranks",
                bytes_text(spread.bytes * scenario.sequences),
                "Over all ranks, replicas counted.",
            ),
            (
                f"On each of {count_text(scenario.ranks)} ranks" if scenario.ranks > 1 else "On one rank",
                bytes_text(spread.bytes_per_rank * scenario.sequences),
                "What one accelerator holds for all sequences.",
            ),
            (
                "Each further token",
                bytes_text(one.slope_bytes_per_token),
                "What the cache of one sequence grows by once every window is full, on one rank.",
            ),
        ]
    )
    text.chart(_curves(scenario, layouts), "kv_by_context", "KV cache by context length, one line per head layout")
    if len(model.layer_groups) > 1 or len(layouts) == 1:
        text.table(_kinds_table(scenario), "layer_kinds", "What the layers of each kind keep")
    if len(layouts) > 1:
        text.table(
            _layout_table(scenario, layouts),
            "head_layouts",
            "The same model under other head layouts",
            formats={"Against this model": "%.3g x"},
        )
        st.caption(
            "Every layout but the model's own is another model: it needs training, and its quality is not modelled here."
        )
    text.section("Context lengths", "open_ladder", lambda: _ladder(scenario, layouts))
    text.section("Facts of the model, and where each came from", "open_facts", lambda: _facts(model))
    text.section("The formula with these numbers", "open_memory_formula", lambda: _formula(scenario))
    text.section("What is assumed", "open_memory_assumed", _assumptions)


def _memory(scenario: Scenario, model: ModelSpec, tokens: Numeric | None = None, *, ranks: int = 1) -> SequenceMemory:
    """One sequence under the scenario's format and rule."""
    return sequence_memory(
        model,
        scenario.tokens if tokens is None else tokens,
        kv_dtype=scenario.kv_dtype,
        engine=scenario.engine,
        tensor_parallel=ranks,
    )


def _own_name(scenario: Scenario, layouts: dict[str, ModelSpec]) -> str:
    return next(name for name, same in layouts.items() if same is scenario.model)


def _verdict(scenario: Scenario, layouts: dict[str, ModelSpec], one: SequenceMemory, spread: SequenceMemory) -> None:
    model = scenario.model
    each = f", {bytes_text(one.bytes)} each" if scenario.sequences > 1 else ""
    on_ranks = (
        f"; {bytes_text(spread.bytes_per_rank * scenario.sequences)} on each of {count_text(scenario.ranks)} ranks"
        if scenario.ranks > 1
        else ""
    )
    text.answer(
        f"{count_text(scenario.sequences, 'sequences')} of {count_text(scenario.tokens, 'tokens')} of "
        f"{text.text_only(model.name)} take {bytes_text(spread.bytes * scenario.sequences)} of KV cache in "
        f"{scenario.kv_dtype}{each}{on_ranks}."
    )
    st.caption(" ".join(_remarks(scenario, layouts, one, spread)))
    for warning in (*model.warnings, *context_warnings(model, scenario.tokens)):
        st.warning(text.text_only(warning))


def _remarks(
    scenario: Scenario, layouts: dict[str, ModelSpec], one: SequenceMemory, spread: SequenceMemory
) -> Iterator[str]:
    """What the number is made of, a sentence each."""
    yield f"This model is {_own_name(scenario, layouts)}."
    others = [
        f"{bytes_text(_memory(scenario, same).bytes)} as {name}"
        for name, same in layouts.items()
        if same is not scenario.model
    ]
    if others:
        yield f"One sequence would take {' or '.join(others)}."
    if one.floor_bytes:
        yield f"{bytes_text(one.floor_bytes)} of it stand before the first token."
    if one.plateau_bytes:
        yield f"Layers with a window take {bytes_text(one.plateau_bytes)} once it is full, and no more after that."
    stored = spread.bytes / one.bytes if one.bytes else 1
    if stored > 1:
        yield f"Over all ranks {stored:.3g} times as much is stored as on one, since parts are replicated."
    if scenario.engine != "ideal":
        yield f"Counted as {scenario.engine} allocates."


def _layers_by_group(scenario: Scenario, ranks: int = 1) -> list[tuple[LayerGroup, int]]:
    """Each group of layers, and what one of its layers keeps over all ranks."""
    layers = layer_bytes(
        scenario.model,
        scenario.tokens,
        kv_dtype=scenario.kv_dtype,
        engine=scenario.engine,
        tensor_parallel=ranks,
    )
    order = scenario.model.groups_in_order
    return [(group, layers[order.index(number)].bytes) for number, group in enumerate(scenario.model.layer_groups)]


def _kinds_table(scenario: Scenario) -> pd.DataFrame:
    """Layers by kind: what one keeps now, and what all of the kind keep."""
    return pd.DataFrame(
        [
            {
                "Layers": group.layers,
                "Kind": group.kind,
                "Window (tokens)": f"{group.window:,}" if group.window else "none",
                "Heads": group.layout,
                "Each keeps": bytes_text(each),
                "Together": bytes_text(group.layers * each),
            }
            for group, each in _layers_by_group(scenario)
        ]
    )


def _curves(scenario: Scenario, layouts: dict[str, ModelSpec]):
    contexts = np.linspace(0, 2 * scenario.tokens, 101).round().astype(np.int64)
    return charts.lines(
        {name: (contexts, _memory(scenario, same, contexts).bytes / GIB) for name, same in layouts.items()},
        {name: charts.layout_style(name) for name in layouts},
        title="KV cache of one sequence",
        x_title="Context (tokens)",
        y_title="GiB",
        marks={"your context": scenario.tokens},
    )


def _layout_table(scenario: Scenario, layouts: dict[str, ModelSpec]) -> pd.DataFrame:
    memories = {name: _memory(scenario, same) for name, same in layouts.items()}
    own = memories[_own_name(scenario, layouts)].bytes
    return pd.DataFrame(
        [
            {
                "Layout": name + (" (this model)" if same is scenario.model else ""),
                "KV heads": max(group.kv_heads for group in same.layer_groups),
                "Bytes per token": memories[name].slope_bytes_per_token,
                f"At {count_text(scenario.tokens)} tokens": bytes_text(memories[name].bytes),
                "Against this model": memories[name].bytes / own if own else None,
            }
            for name, same in layouts.items()
        ]
    )


def _ladder(scenario: Scenario, layouts: dict[str, ModelSpec]) -> None:
    contexts = np.array(LADDER)
    frame = pd.DataFrame({"Context (tokens)": contexts})
    for name, same in layouts.items():
        frame[f"{name} (GiB)"] = _memory(scenario, same, contexts).bytes / GIB
    text.table(
        frame,
        "ladder",
        "KV cache at ten context lengths, one column per head layout",
        formats={name: "%.4f" for name in frame.columns[1:]},
    )


def _facts(model: ModelSpec) -> None:
    frame = pd.DataFrame([{"Fact": p.fact, "Value": p.value, "Came from": p.source} for p in model.provenance])
    text.table(frame, "facts", "Facts of the model with their sources")
    if model.unread_fields:
        st.caption("Config fields that no rule here reads: " + text.text_only(", ".join(model.unread_fields)) + ".")


def _formula(scenario: Scenario) -> None:
    """The sum over the layers; for full attention under the ideal rule with every factor."""
    plain = scenario.engine == "ideal" and all(
        group.kind == "full" and not group.cross_kv_heads for group in scenario.model.layer_groups
    )
    if plain:
        text.latex(kv_cache_bytes)
    for group, each in _layers_by_group(scenario, scenario.ranks):
        total = scenario.sequences * group.layers * each
        if plain:
            heads = heads_per_rank(group.kv_heads, scenario.ranks) * scenario.ranks
            replicated = f" ({group.kv_heads} stored on {scenario.ranks} ranks)" if heads != group.kv_heads else ""
            factors = (
                f"{scenario.tokens:,} tokens x {heads} KV heads{replicated} x ({group.key_width} + {group.value_width}) "
                f"numbers x {bytes_per_number(scenario.kv_dtype, group.key_width)} bytes"
            )
        else:
            window = f", window {group.window:,}" if group.window else ""
            factors = f"{each:,} bytes (kind: {group.kind}{window})"
        st.markdown(
            text.text_only(
                f"{scenario.sequences:,} sequences x {group.layers} layers x {factors} = {total:,} bytes = "
                f"{bytes_text(total)}"
            )
        )


def _assumptions() -> None:
    text.bullet_list(
        [
            "Exact: the bytes of keys, values and states that any implementation must keep, or that transformers holds.",
            "A window counts the token itself. States that follow the model's type and states that are always float32 are "
            "not touched by the KV format.",
            "Left out: what an engine adds by rounding to pages, block tables, and its reserve.",
            "GiB is 1,073,741,824 bytes; vendors' GB is 1,000,000,000.",
            "Tensor-parallel ranks split the KV heads; with more ranks than heads each head is stored more than once.",
            "The weights and the activations need memory besides.",
        ]
    )


def _settings() -> None:
    with st.expander("Ranks and allocation rule", key="open_ranks", on_change="rerun") as section:
        if section.open:
            inputs.row(inputs.RANKS, inputs.ENGINE)
    inputs.own_config()


layout.page(
    "What does the KV cache take?",
    first=(inputs.MODEL, inputs.TOKENS, inputs.KV_DTYPE, inputs.SEQUENCES),
    settings=_settings,
    render=render,
)
