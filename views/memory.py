"""Memory: what does the KV cache take?"""

import numpy as np
import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from calc.formats import bytes_text, count_text
from calc.kv_cache import (
    bytes_per_number,
    context_warnings,
    heads_per_rank,
    kv_cache_bytes,
    layer_bytes,
    layouts_to_compare,
    sequence_bytes,
    sequence_memory,
)
from calc.model_spec import ModelSpec
from calc.units import GIB, KIB
from views import charts, inputs, layout, text
from views.inputs import Scenario

LADDER = tuple(KIB * size for size in (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024))
"""Context lengths of the table."""


def render(scenario: Scenario, answer: DeltaGenerator) -> None:
    """Draws the answer, the first view and the closed sections."""
    model, tokens = scenario.model, scenario.tokens
    memory = sequence_memory(model, tokens, kv_dtype=scenario.kv_dtype, tensor_parallel=scenario.ranks)
    layouts = layouts_to_compare(model)
    sizes = {name: sequence_bytes(same, tokens, kv_dtype=scenario.kv_dtype) for name, same in layouts.items()}
    with answer:
        _verdict(scenario, layouts, sizes)
    one = sequence_bytes(model, tokens, kv_dtype=scenario.kv_dtype)
    text.headline(
        [
            ("One sequence", bytes_text(one), "Keys and values of every token, without any engine's rounding."),
            (
                f"All {count_text(scenario.sequences)}" if scenario.sequences > 1 else "On all ranks",
                bytes_text(memory.bytes * scenario.sequences),
                "Over all ranks, replicas counted.",
            ),
            (
                f"On each of {count_text(scenario.ranks)} ranks" if scenario.ranks > 1 else "On one rank",
                bytes_text(memory.bytes_per_rank * scenario.sequences),
                "What one accelerator holds for all sequences.",
            ),
            (
                "Each further token",
                bytes_text(sequence_memory(model, 1, kv_dtype=scenario.kv_dtype).slope_bytes_per_token),
                "What the cache of one sequence grows by, without replicas on further ranks.",
            ),
        ]
    )
    text.chart(_curves(scenario, layouts), "kv_by_context", "KV cache by context length, one line per head layout")
    text.table(
        _layout_table(scenario, layouts, sizes),
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


def _verdict(scenario: Scenario, layouts: dict[str, ModelSpec], sizes: dict[str, int]) -> None:
    model = scenario.model
    own = next(name for name, same in layouts.items() if same is model)
    memory = sequence_memory(model, scenario.tokens, kv_dtype=scenario.kv_dtype, tensor_parallel=scenario.ranks)
    each = f", {bytes_text(sizes[own])} each" if scenario.sequences > 1 else ""
    spread = (
        f"; {bytes_text(memory.bytes_per_rank * scenario.sequences)} on each of {count_text(scenario.ranks)} ranks"
        if scenario.ranks > 1
        else ""
    )
    text.answer(
        f"{count_text(scenario.sequences, 'sequences')} of {count_text(scenario.tokens, 'tokens')} of "
        f"{text.text_only(model.name)} take {bytes_text(memory.bytes * scenario.sequences)} of KV cache in "
        f"{scenario.kv_dtype}{each}{spread}."
    )
    stored = memory.bytes / sizes[own] if sizes[own] else 1
    replicas = (
        f" Every KV head is stored {stored:g} times, since there are more ranks than heads." if stored > 1 else ""
    )
    others = [f"{bytes_text(size)} as {name}" for name, size in sizes.items() if name != own]
    st.caption(f"This model is {own}. One sequence would take {' or '.join(others)}.{replicas}" if others else replicas)
    for warning in (*model.warnings, *context_warnings(model, scenario.tokens)):
        st.warning(text.text_only(warning))


def _curves(scenario: Scenario, layouts: dict[str, ModelSpec]):
    contexts = np.linspace(0, 2 * scenario.tokens, 101).round().astype(np.int64)
    return charts.lines(
        {
            name: (contexts, sequence_bytes(same, contexts, kv_dtype=scenario.kv_dtype) / GIB)
            for name, same in layouts.items()
        },
        {name: charts.layout_style(name) for name in layouts},
        title="KV cache of one sequence",
        x_title="Context (tokens)",
        y_title="GiB",
        marks={"your context": scenario.tokens},
    )


def _layout_table(scenario: Scenario, layouts: dict[str, ModelSpec], sizes: dict[str, int]) -> pd.DataFrame:
    own = sizes[next(name for name, same in layouts.items() if same is scenario.model)]
    return pd.DataFrame(
        [
            {
                "Layout": name + (" (this model)" if same is scenario.model else ""),
                "KV heads": max(group.kv_heads for group in same.layer_groups),
                "Bytes per token": sequence_memory(same, 1, kv_dtype=scenario.kv_dtype).slope_bytes_per_token,
                f"At {count_text(scenario.tokens)} tokens": bytes_text(sizes[name]),
                "Against this model": sizes[name] / own if own else None,
            }
            for name, same in layouts.items()
        ]
    )


def _ladder(scenario: Scenario, layouts: dict[str, ModelSpec]) -> None:
    contexts = np.array(LADDER)
    frame = pd.DataFrame({"Context (tokens)": contexts})
    for name, same in layouts.items():
        frame[f"{name} (GiB)"] = sequence_bytes(same, contexts, kv_dtype=scenario.kv_dtype) / GIB
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
    if any(group.kind != "full" or group.cross_kv_heads for group in scenario.model.layer_groups):
        return _layers_of_several_kinds(scenario)
    size = bytes_per_number(scenario.kv_dtype)
    text.latex(kv_cache_bytes)
    for group in scenario.model.layer_groups:
        heads = heads_per_rank(group.kv_heads, scenario.ranks) * scenario.ranks
        total = scenario.sequences * sequence_bytes(
            scenario.model, scenario.tokens, kv_dtype=scenario.kv_dtype, tensor_parallel=scenario.ranks
        )
        replicated = f" ({group.kv_heads} stored on {scenario.ranks} ranks)" if heads != group.kv_heads else ""
        st.markdown(
            text.text_only(
                f"{scenario.sequences:,} sequences x {group.layers} layers x {scenario.tokens:,} tokens x {heads} "
                f"KV heads{replicated} x "
                f"({group.key_width} + {group.value_width}) numbers x {size} bytes = {total:,} bytes = {bytes_text(total)}"
            )
        )


def _layers_of_several_kinds(scenario: Scenario) -> None:
    """What each group of layers keeps; the sum is the model's."""
    layers = layer_bytes(scenario.model, scenario.tokens, kv_dtype=scenario.kv_dtype, tensor_parallel=scenario.ranks)
    first = {group: index for index, group in reversed(list(enumerate(scenario.model.groups_in_order)))}
    for index, group in enumerate(scenario.model.layer_groups):
        window = f", window {group.window:,}" if group.window else ""
        each = layers[first[index]].bytes
        st.markdown(
            text.text_only(
                f"{group.layers} layers of kind {group.kind}{window}: {each:,} bytes each = {group.layers * each:,} bytes"
            )
        )


def _assumptions() -> None:
    text.bullet_list(
        [
            "Exact: the bytes of keys and values that any implementation must keep.",
            "Left out: what an engine adds by rounding to pages, block tables, and its reserve.",
            "GiB is 1,073,741,824 bytes; vendors' GB is 1,000,000,000.",
            "Tensor-parallel ranks split the KV heads; with more ranks than heads each head is stored more than once.",
            "The weights and the activations need memory besides.",
        ]
    )


def _settings() -> None:
    with st.expander("Ranks that share the cache", key="open_ranks", on_change="rerun") as section:
        if section.open:
            inputs.row(inputs.RANKS)
    inputs.own_config()


layout.page(
    "What does the KV cache take?",
    first=(inputs.MODEL, inputs.TOKENS, inputs.KV_DTYPE, inputs.SEQUENCES),
    settings=_settings,
    render=render,
)
