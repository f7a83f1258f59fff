"""What the pages share: the answer's place, tables to download, formulas with their numbers, and the one error."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from calc.formats import usd_text
from calc.names import UnknownName

NARROWEST = 185
"""Pixels that a headline number needs; where four do not fit, they wrap."""

CHART_CONFIG = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}


def text_only(text: str) -> str:
    """A text that markdown shows as it is."""
    return "".join(f"\\{character}" if character in "\\`*_{}[]<>()#+-.!|$:~" else character for character in text)


@contextmanager
def problems(place: Any = st) -> Iterator[None]:
    """Shows a refused input as one message in a place of the page, instead of what would have followed."""
    try:
        yield
    except (ValueError, UnknownName) as problem:
        place.error(text_only(str(problem)), title="This cannot be computed as it stands")


def answer(sentence: str) -> None:
    """The page's answer, in one sentence that is read first."""
    st.markdown(f"##### {sentence}")


def money(dollars: float) -> str:
    """Dollars for markdown, where a bare dollar sign would begin an equation."""
    return usd_text(dollars).replace("$", "\\$")


def headline(numbers: Sequence[tuple[str, str, str | None]]) -> None:
    """Headline numbers as equal cards: label, value with unit, and help."""
    with st.grid(min(len(numbers), 4), min_column_width=NARROWEST):
        for label, value, help_text in numbers:
            st.metric(label, value, help=help_text, border=True, height="stretch")


def chart(figure: go.Figure, key: str, alt: str) -> None:
    """A chart that keeps its zoom between reruns."""
    st.plotly_chart(figure, key=key, alt=alt, config={**CHART_CONFIG, "toImageButtonOptions": {"filename": key}})


def table(frame: pd.DataFrame, key: str, alt: str, formats: dict[str, str] | None = None) -> None:
    """A short table with its download."""
    config = {name: st.column_config.NumberColumn(format=form) for name, form in (formats or {}).items()}
    whole = {
        name: st.column_config.NumberColumn(format="localized")
        for name in frame.select_dtypes("number").columns
        if name not in config
    }
    st.dataframe(frame, hide_index=True, column_config=config | whole, alt=alt, key=f"{key}_table")
    st.download_button(
        "Download table (CSV)",
        data=lambda: frame.to_csv(index=False),
        file_name=f"{key}.csv",
        mime="text/csv",
        key=f"{key}_csv",
        on_click="ignore",
    )


def section(label: str, key: str, content: Callable[[], None]) -> None:
    """A closed section whose content is computed when it is opened."""
    with st.expander(label, key=key, on_change="rerun") as opened:
        if opened.open:
            with problems():
                content()


def equation(function: Callable[..., Any], with_numbers: str) -> None:
    """A formula as its function states it, and the same with the page's numbers in it.

    Parameters
    ----------
    function : callable
        A function made by `calc.numeric.formula` [function].
    with_numbers : str
        The substituted line, which ends in the number that the page shows [text].

    Returns
    -------
    None
        Nothing; it draws [nothing].
    """
    latex(function)
    st.markdown(text_only(with_numbers))


def latex(function: Callable[..., Any]) -> None:
    """A formula as its function states it; long ones stand in lines, each short enough for a phone."""
    for line in function.equation.splitlines():
        st.latex(line)


def bullet_list(items: Sequence[str]) -> None:
    """A list of plain sentences."""
    st.markdown("\n".join(f"- {item}" for item in items))
