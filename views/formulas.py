"""Formulas: where does a number come from? Every equation, its source, and the scenario's numbers in it."""

import inspect
import re

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from calc import GLOSSARY
from calc.scoreboard import Row, scoreboard
from calc.weights import parameters
from views import inputs, layout, text
from views.equations import CHAPTERS, Entry
from views.inputs import Scenario
from views.pricing import scenario_card


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
                    "Ours (middle)": _shown(row.ours),
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
