"""Formulas: where does a number come from? Every equation, its source, and the scenario's numbers in it."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from calc import GLOSSARY
from calc.attention import (
    attention_flops,
    causal_pairs,
    decode_attention_intensity,
    run_pairs_without_reuse,
    square_pairs,
)
from calc.caching import hit_tokens
from calc.cost import cached_input_cost
from calc.kv_cache import kv_cache_bytes
from calc.kv_formats import bytes_per_number
from calc.policies import run_ledger
from calc.scoreboard import Row, scoreboard
from calc.tokens import (
    accumulated_input_tokens,
    compacted_input_tokens,
    compaction_calls,
    compaction_read_tokens,
    compaction_written_tokens,
    last_call_tokens,
    submitted_input_tokens,
)
from calc.weights import matrix_flops, parameters
from views import inputs, layout, text
from views.inputs import Scenario
from views.pricing import scenario_card, scenario_rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A formula, the values that the scenario puts into it, and the unit of its result."""

    function: Callable
    values: Callable[[Scenario], Mapping[str, float]]
    unit: str


def _run(*names: str) -> Callable[[Scenario], Mapping[str, float]]:
    return lambda scenario: {name: getattr(scenario.run, name) for name in names}


def _hit(scenario: Scenario) -> Mapping[str, float]:
    rule = scenario_rule(scenario, scenario_card(scenario))
    return {
        "shared_tokens": scenario.run.prefix,
        "minimum_tokens": rule.minimum_tokens,
        "granularity_tokens": rule.granularity_tokens,
    }


def _cached_input(scenario: Scenario) -> Mapping[str, float]:
    card = scenario_card(scenario)
    tokens = run_ledger(scenario.run, "cached", scenario_rule(scenario, card)).tokens
    return {
        "tokens": tokens.prompt,
        "cached_fraction": tokens.cache_read / tokens.prompt if tokens.prompt else 0.0,
        "usd_per_mtok": card.usd_per_mtok.uncached,
        "cached_usd_per_mtok": card.usd_per_mtok.cache_read,
    }


def _attention(scenario: Scenario) -> Mapping[str, float]:
    group = scenario.model.layer_groups[0]
    names = ("layers", "query_heads", "key_width", "value_width")
    return {"pairs": causal_pairs(0, scenario.tokens), **{name: getattr(group, name) for name in names}}


def _cache(scenario: Scenario) -> Mapping[str, float]:
    group = scenario.model.layer_groups[0]
    return {
        "layers": group.layers,
        "tokens": scenario.tokens,
        "kv_heads": group.kv_heads,
        "head_width": group.key_width,
        "bytes_per_number": bytes_per_number(scenario.kv_dtype, group.key_width),
    }


def _intensity(scenario: Scenario) -> Mapping[str, float]:
    group = scenario.model.layer_groups[0]
    return {
        "query_heads": group.query_heads,
        "kv_heads": group.kv_heads,
        "bytes_per_number": bytes_per_number(scenario.kv_dtype, group.key_width),
    }


BLOCKS = ("calls", "prefix", "growth", "block", "summary")
CHAPTERS: dict[str, tuple[Entry, ...]] = {
    "Tokens of a run": (
        Entry(function=submitted_input_tokens, values=_run("calls", "prefix", "growth"), unit="tokens"),
        Entry(function=last_call_tokens, values=_run("calls", "prefix", "growth"), unit="tokens"),
        Entry(function=compacted_input_tokens, values=_run(*BLOCKS), unit="tokens"),
        Entry(function=accumulated_input_tokens, values=_run(*BLOCKS), unit="tokens"),
        Entry(function=compaction_calls, values=_run("calls", "block"), unit="compactions"),
        Entry(function=compaction_read_tokens, values=_run(*BLOCKS, "instruction"), unit="tokens"),
        Entry(function=compaction_written_tokens, values=_run("calls", "block", "summary"), unit="tokens"),
    ),
    "Cache and money": (
        Entry(function=hit_tokens, values=_hit, unit="tokens of the prefix"),
        Entry(function=cached_input_cost, values=_cached_input, unit="USD"),
    ),
    "Memory": (Entry(function=kv_cache_bytes, values=_cache, unit="bytes"),),
    "Computation": (
        Entry(
            function=causal_pairs,
            values=lambda scenario: {"cached": scenario.cached, "new": scenario.tokens},
            unit="pairs",
        ),
        Entry(
            function=square_pairs,
            values=lambda scenario: {"tokens": scenario.tokens, "cached": scenario.cached},
            unit="pairs",
        ),
        Entry(function=attention_flops, values=_attention, unit="FLOP"),
        Entry(
            function=matrix_flops,
            values=lambda scenario: {
                "parameters": parameters(scenario.model).layer_matrices,
                "tokens": scenario.tokens,
            },
            unit="FLOP",
        ),
        Entry(function=decode_attention_intensity, values=_intensity, unit="FLOP per byte"),
        Entry(function=run_pairs_without_reuse, values=_run("calls", "prefix", "growth"), unit="pairs"),
    ),
}


def render(scenario: Scenario, answer: DeltaGenerator) -> None:
    """Draws every chapter, the glossary and the parameters of the model."""
    count = sum(len(entries) for entries in CHAPTERS.values())
    card = scenario_card(scenario)
    with answer:
        text.answer(
            f"{count} equations, each with the numbers of your run and of {text.text_only(scenario.model.name)} in it."
        )
        st.caption(f"**Priced as** {card.provider}/{card.model}: {text.text_only(card.source)}.")
    for chapter, entries in CHAPTERS.items():
        st.header(chapter)
        for entry in entries:
            _entry(entry, scenario)
    text.section("Scoreboard: public logs against these rules", "open_scoreboard", _scoreboard)
    text.section("Glossary: symbols, names and units", "open_glossary", _glossary)
    text.section("Parameters of the model", "open_parameters", lambda: _parameters(scenario))


def _entry(entry: Entry, scenario: Scenario) -> None:
    docstring = inspect.getdoc(entry.function) or ""
    with st.container(border=True):
        st.markdown(f"**{text.text_only(docstring.splitlines()[0])}**")
        text.latex(entry.function)
        st.markdown(text.text_only(_with_numbers(entry, scenario)))
        source = re.search(r"Source: (.+?)(?:\n\n|\Z)", docstring, re.DOTALL)
        st.caption(
            text.text_only(f"calc.{entry.function.__module__.split('.', 1)[1]}.{entry.function.__name__}. ")
            + (text.text_only(f"Source: {' '.join(source[1].split())}".replace("`", "")) if source else "")
        )


def _with_numbers(entry: Entry, scenario: Scenario) -> str:
    """The formula's arguments and result, or why it has none for this model."""
    try:
        values = entry.values(scenario)
        arguments = ", ".join(f"{name} = {_shown(value)}" for name, value in values.items())
        return f"{arguments}: {_shown(entry.function(**values))} {entry.unit}"
    except ValueError as problem:
        return f"No number for {scenario.model.name}: {problem}."


def _shown(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


@st.cache_data(max_entries=1, show_spinner=False)
def _rows() -> tuple[Row, ...]:
    return scoreboard()


def _scoreboard() -> None:
    """What engines state in public beside ours, and the numbers that no rule covers."""
    covered = [row for row in _rows() if row.quantity is not None]
    held = sum(bool(row.is_within_rounding) for row in covered)
    st.markdown(
        f"{held} of {len(covered)} numbers that engines, or people who ran them, state of a cache follow from the rules "
        "here within the rounding in which they were printed."
    )
    text.table(
        pd.DataFrame(
            [
                {
                    "Engine": row.engine,
                    "What is stated": row.of,
                    "Stated": _shown(row.stated),
                    "Ours": _shown(row.ours),
                    "Unit": row.unit,
                    "Error (%)": 100 * row.error,
                    "Within rounding": "yes" if row.is_within_rounding else "no",
                    "Source": row.source,
                }
                for row in covered
            ]
        ),
        "scoreboard",
        "Stated numbers of public logs beside ours",
        formats={"Error (%)": "%.2f"},
    )
    st.caption(
        "Where what goes into a number was printed with rounding, such as 4.99 GiB, ours is an interval: its middle is "
        "shown, and it holds if it meets the stated number."
    )
    text.bullet_list(
        [
            text.text_only(f"Not covered: {row.of} ({row.case}), {row.stated} {row.unit}. {row.reason}")
            for row in _rows()
            if row.quantity is None
        ]
    )


def _glossary() -> None:
    text.table(
        pd.DataFrame([{"Symbol": s.symbol, "Name": s.name, "Unit": s.unit, "Meaning": s.meaning} for s in GLOSSARY]),
        "glossary",
        "Symbols of the equations",
    )


def _parameters(scenario: Scenario) -> None:
    size = parameters(scenario.model)
    text.table(
        pd.DataFrame(
            [
                {"Part": part.replace("_", " ").capitalize(), "Parameters": getattr(size, part)}
                for part in ("layer_matrices", "head_matrix", "embedding", "vectors", "total")
            ]
        ),
        "parameters",
        "Parameters of the model by part",
    )
    st.caption("A head that is tied to the embedding is listed with both and stored once.")


layout.page(
    "Where does a number come from?",
    first=(inputs.CALLS, inputs.BLOCK, inputs.MODEL, inputs.TOKENS),
    settings=inputs.own_config,
    render=render,
)
