"""Memory: what does the KV cache take?"""

from collections.abc import Iterator

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from calc.engines import engine_version
from calc.formats import bytes_text, count_text
from calc.kv_cache import SequenceMemory, context_warnings, engine_remarks, layer_bytes, sequence_memory
from calc.layouts import layouts_to_compare
from calc.model_spec import LayerGroup, ModelSpec
from calc.units import GIB
from views import charts, inputs, layout, text
from views.inputs import Scenario
from views.memory_sections import render_sections


def render(scenario: Scenario, answer: DeltaGenerator) -> None:
    """Draws the answer, the first view and the closed sections."""
    model = scenario.model
    layouts = layouts_to_compare(model)
    spread = sequence_memory(model, scenario.tokens, **scenario.on_all_ranks)
    with answer:
        _verdict(scenario, layouts, spread)
    _headline(scenario, spread)
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
    render_sections(scenario, layouts, spread)


def _headline(scenario: Scenario, spread: SequenceMemory) -> None:
    ranks = scenario.accelerators
    text.headline(
        [
            (
                "One sequence",
                bytes_text(spread.bytes),
                "What one conversation keeps, over all ranks, replicas counted.",
            ),
            (
                f"All {count_text(scenario.sequences)} sequences" if scenario.sequences > 1 else "On all ranks",
                bytes_text(spread.bytes * scenario.sequences),
                "Over all ranks, replicas counted.",
            ),
            (
                f"On each of {count_text(ranks)} ranks" if ranks > 1 else "On one rank",
                bytes_text(spread.bytes_per_rank * scenario.sequences_per_group),
                "What one accelerator holds for all its sequences; of several stages, one of the fullest.",
            ),
            (
                "Each further token",
                bytes_text(spread.slope_bytes_per_token),
                "What the cache of one sequence grows by once every window is full, over all ranks.",
            ),
        ]
    )


def _verdict(scenario: Scenario, layouts: dict[str, ModelSpec], spread: SequenceMemory) -> None:
    model = scenario.model
    each = f", {bytes_text(spread.bytes)} each" if scenario.sequences > 1 else ""
    on_ranks = (
        f"; {bytes_text(spread.bytes_per_rank * scenario.sequences_per_group)} on each of "
        f"{count_text(scenario.accelerators)} ranks"
        if scenario.accelerators > 1
        else ""
    )
    own_values = scenario.value_dtype not in (inputs.AS_KEYS, scenario.kv_dtype)
    values = f" keys and {scenario.value_dtype} values" if own_values else ""
    text.answer(
        f"{count_text(scenario.sequences, 'sequences')} of {count_text(scenario.tokens, 'tokens')} of "
        f"{text.text_only(model.name)} take {bytes_text(spread.bytes * scenario.sequences)} of KV cache in "
        f"{text.text_only(scenario.kv_dtype + values)}{each}{on_ranks}."
    )
    st.caption(" ".join(_remarks(scenario, layouts, spread)))
    for warning in (*model.warnings, *context_warnings(model, scenario.tokens)):
        st.warning(text.text_only(warning))


def _remarks(scenario: Scenario, layouts: dict[str, ModelSpec], spread: SequenceMemory) -> Iterator[str]:
    """What the number is made of, a sentence each."""
    if scenario.engine != "ideal":
        yield f"Counted as {text.text_only(engine_version(scenario.engine))} allocates."
        yield from map(text.text_only, engine_remarks(scenario.model, **scenario.on_all_ranks))
    yield f"This model is {own_name(scenario, layouts)}."
    others = [
        f"{bytes_text(sequence_memory(same, scenario.tokens, **scenario.on_one_rank).bytes)} as {name}"
        for name, same in layouts.items()
        if same is not scenario.model
    ]
    if others:
        alone = " on one rank" if scenario.accelerators > 1 else ""
        yield f"One sequence would take {' or '.join(others)}{alone}."
    if spread.floor_bytes:
        yield f"{bytes_text(spread.floor_bytes)} of a sequence stand before its first token (floor)."
    if spread.plateau_bytes:
        yield f"Layers with a window take {bytes_text(spread.plateau_bytes)} once it is full, and no more (plateau)."
    if spread.replication > 1:
        yield f"Over all ranks {spread.replication:.3g} times as much is stored as on one, since parts are replicated."
    if len({stage.bytes_per_rank for stage in spread.stages}) > 1:
        yield f"Stage {spread.worst_stage + 1} of {len(spread.stages)} is the fullest."


def own_name(scenario: Scenario, layouts: dict[str, ModelSpec]) -> str:
    """What the model's own layout is called among others."""
    return next(name for name, same in layouts.items() if same is scenario.model)


def layers_by_group(scenario: Scenario) -> list[tuple[LayerGroup, int]]:
    """Each group of layers, and what one of its layers keeps on one rank."""
    layers = layer_bytes(scenario.model, scenario.tokens, **scenario.on_one_rank)
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
            for group, each in layers_by_group(scenario)
        ]
    )


def _curves(scenario: Scenario, layouts: dict[str, ModelSpec]):
    contexts = charts.contexts_around(scenario.tokens)
    return charts.lines(
        {
            name: (contexts, sequence_memory(same, contexts, **scenario.on_one_rank).bytes / GIB)
            for name, same in layouts.items()
        },
        {name: charts.layout_style(name) for name in layouts},
        title="KV cache of one sequence" + (", unsplit on one rank" if scenario.accelerators > 1 else ""),
        x_title="Context (tokens)",
        y_title="GiB",
        marks={"your context": scenario.tokens},
    )


def _layout_table(scenario: Scenario, layouts: dict[str, ModelSpec]) -> pd.DataFrame:
    memories = {name: sequence_memory(same, scenario.tokens, **scenario.on_one_rank) for name, same in layouts.items()}
    own = memories[own_name(scenario, layouts)].bytes
    return pd.DataFrame(
        [
            {
                "Layout": name + (" (this model)" if same is scenario.model else ""),
                "KV heads": max(group.kv_heads for group in same.layer_groups),
                "Each further token (bytes)": memories[name].slope_bytes_per_token,
                f"At {count_text(scenario.tokens)} tokens": bytes_text(memories[name].bytes),
                "Against this model": memories[name].bytes / own if own else None,
            }
            for name, same in layouts.items()
        ]
    )


def _settings() -> None:
    with st.expander("Ranks, allocation rule, formats", key="open_ranks", on_change="rerun") as section:
        if section.open:
            inputs.row(inputs.RANKS, inputs.STAGES, inputs.ATTENTION_GROUPS, inputs.CONTEXT_RANKS)
            inputs.row(inputs.ENGINE, inputs.VALUE_DTYPE)
            if own := inputs.ENGINE_SETTINGS.get(st.session_state.get(inputs.ENGINE.key), ()):
                inputs.row(*own)
    inputs.own_config()


layout.page(
    "What does the KV cache take?",
    first=(inputs.MODEL, inputs.TOKENS, inputs.KV_DTYPE, inputs.SEQUENCES),
    settings=_settings,
    render=render,
)
