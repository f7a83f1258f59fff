"""Charts as plotly figures. They know nothing of Streamlit; colour always comes with a dash or a pattern."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

FEW_LINES = 4
MAX_POINTS = 600
"""A line of more points is thinned: a screen shows no more."""


SI_PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z", "Y", "R", "Q")


@dataclass(frozen=True, slots=True)
class Style:
    """How one meaning is drawn, the same on every page (Okabe-Ito colours)."""

    colour: str
    dash: str


ORANGE, BLUE, GREEN, PINK, GREY, GOLD = "#D55E00", "#2A7FBF", "#009E73", "#CC79A7", "#888888", "#B8860B"

POLICY_STYLES = {
    "plain": Style(ORANGE, "dot"),
    "cached": Style(BLUE, "dash"),
    "compacted": Style(PINK, "dashdot"),
    "both": Style(GREEN, "solid"),
}
LAYOUT_STYLES = {"MHA": Style(ORANGE, "dot"), "GQA": Style(BLUE, "solid"), "MQA": Style(GREEN, "dash")}
PART_STYLES = {
    "attention": Style(ORANGE, "dash"),
    "matrix products": Style(BLUE, "dot"),
    "total": Style(GREEN, "solid"),
}
CLASS_STYLES = {
    "cache_read": ("Cache reads", GREEN, ""),
    "cache_write_5m": ("Cache writes, 5 min", BLUE, "/"),
    "cache_write_1h": ("Cache writes, 1 h", PINK, "x"),
    "uncached": ("Plain input", ORANGE, "."),
    "output": ("Output", GREY, "-"),
}


LONG_DASH, LONG_DASH_DOT = "8px,3px", "8px,3px,2px,3px"
"""Dashes of which a legend's short sample shows more than one."""
ROW_STYLES = {
    "own": Style(BLUE, "solid"),
    "MHA": Style(ORANGE, "dot"),
    "MQA": Style(GREEN, "dash"),
    "MLA": Style(PINK, "dashdot"),
    "GQA": Style(GREY, LONG_DASH),
    "sliding": Style(GOLD, LONG_DASH_DOT),
}
"""Six lines that can be told apart; a layout has its own, a further model one that is left."""
ENGINE_STYLES = {
    "ideal": Style(GREEN, "solid"),
    "transformers": Style(GREY, LONG_DASH),
    "vllm": Style(BLUE, "dash"),
    "sglang": Style(PINK, "dashdot"),
    "llama.cpp": Style(ORANGE, "dot"),
}


@dataclass(frozen=True, slots=True)
class Kind:
    """How a kind of layer is drawn, and what it keeps in plain words."""

    colour: str
    pattern: str
    meaning: str


KINDS = {
    "full": Kind(ORANGE, "", "keeps keys and values of every token"),
    "sliding": Kind(BLUE, "/", "keeps the newest tokens, up to its window"),
    "chunked": Kind(BLUE, "x", "keeps the tokens of the current chunk"),
    "latent": Kind(PINK, "", "keeps one compressed row of every token, from which keys and values are rebuilt"),
    "sliding latent": Kind(PINK, "/", "keeps one compressed row of the newest tokens"),
    "compressed latent": Kind(
        PINK, "x", "keeps rows of the newest tokens, and one entry for each block of all tokens, its open block apart"
    ),
    "indexed": Kind(GOLD, "", "keeps every token, and a key by which an indexer picks those that are read"),
    "indexed latent": Kind(GOLD, ".", "keeps a compressed row of every token, and a key by which an indexer picks"),
    "cross": Kind(GOLD, "x", "keeps keys and values of an encoder's or an image's tokens"),
    "recurrent": Kind(GREEN, "-", "keeps a state of one size, whatever the length"),
    "full with state": Kind(GREEN, "", "keeps every token and a state besides"),
    "sliding with state": Kind(GREEN, "/", "keeps the newest tokens and a state besides"),
    "shared": Kind(GREY, ".", "keeps nothing: it reads another layer's keys and values"),
    "none": Kind(GREY, "x", "keeps nothing: no attention"),
}


def layout_style(label: str) -> Style:
    """Style of a head layout by its label, such as GQA-8; a model that no layout is compared with has GQA's."""
    return LAYOUT_STYLES.get(label.split("-")[0], LAYOUT_STYLES["GQA"])


def row_styles(names: Sequence[str]) -> dict[str, Style]:
    """Styles of up to six rows, the first of which is the model itself; "as MHA *" has the same on every chart."""
    layouts = {name: re.sub(r"^as (\w+).*", r"\1", name) if name.startswith("as ") else "" for name in names[1:]}
    taken = {"own", *layouts.values()}
    left = iter([style for layout, style in ROW_STYLES.items() if layout not in taken])
    used: set[str] = set()
    styles = {names[0]: ROW_STYLES["own"]}
    for name, layout in layouts.items():
        is_own = layout in ROW_STYLES and layout not in used
        styles[name] = ROW_STYLES[layout] if is_own else next(left, ROW_STYLES["own"])
        used.add(layout)
    return styles


def lines(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    styles: Mapping[str, Style],
    *,
    title: str,
    x_title: str,
    y_title: str,
    y_prefix: str = "",
    logarithmic: bool = False,
    marks: Mapping[str, float] | None = None,
) -> go.Figure:
    """Lines over a common axis, each with its own colour and dash.

    Parameters
    ----------
    series : mapping of str to (x, y)
        Points of each line by its name [as the axis titles say].
    styles : mapping of str to Style
        Style of each line [style].
    title : str
        What the chart shows [text].
    x_title, y_title : str
        Titles of the axes, with their units [text].
    y_prefix : str
        What stands before a value, such as "$" [text].
    logarithmic : bool
        Whether both axes are logarithmic [yes or no].
    marks : mapping of str to float or None
        Vertical lines: what each says, and where it stands [text, as the x axis].

    Returns
    -------
    plotly.graph_objects.Figure
        The chart [figure].
    """
    figure = go.Figure()
    for name, (x, y) in series.items():
        x = np.asarray(x, dtype=float)
        x, y = _thinned(x, np.broadcast_to(np.asarray(y, dtype=float), x.shape))
        figure.add_scatter(
            x=x,
            y=y,
            name=name,
            mode="lines" if len(x) > 1 else "markers",
            line={"color": styles[name].colour, "dash": styles[name].dash, "width": 2.5},
            hovertemplate=f"%{{x:,.0f}}: {y_prefix}%{{y:,.4~g}}<extra>{name}</extra>",
        )
    for level, (text, x) in enumerate(sorted((marks or {}).items(), key=lambda mark: mark[1])):
        # On a logarithmic axis a shape stands in data units, an annotation in powers of ten.
        figure.add_shape(
            type="line", x0=x, x1=x, y0=0, y1=1, yref="paper", line={"color": GREY, "dash": "dot", "width": 1.5}
        )
        figure.add_annotation(
            x=np.log10(x) if logarithmic else x,
            y=1 + 0.06 * level,
            yref="paper",
            yanchor="bottom",
            text=text,
            showarrow=False,
        )
    figure.update_xaxes(title=x_title, tickformat=",")
    figure.update_yaxes(title=y_title, tickprefix=y_prefix, rangemode="tozero")
    if logarithmic:
        figure.update_xaxes(**_decades([x for x, _ in series.values()]))
        figure.update_yaxes(**_decades([y for _, y in series.values()]))
    figure = _laid_out(figure, title)
    if len(series) > FEW_LINES:  # on a phone each name has a row of its own
        figure.update_layout(height=460, legend_y=-0.27)
    return figure


def stacked_bars(
    names: Sequence[str],
    parts: Mapping[str, Sequence[float]],
    *,
    title: str,
    y_title: str,
    y_prefix: str = "",
) -> go.Figure:
    """Bars of token classes, one bar per name, each class with its own colour and pattern.

    Parameters
    ----------
    names : sequence of str
        One bar each [names].
    parts : mapping of str to sequence of float
        Height of each token class in each bar [as the y title says].
    title : str
        What the chart shows [text].
    y_title : str
        Title of the axis, with its unit [text].
    y_prefix : str
        What stands before a value [text].

    Returns
    -------
    plotly.graph_objects.Figure
        The chart [figure].
    """
    figure = go.Figure()
    for key, heights in parts.items():
        label, colour, pattern = CLASS_STYLES[key]
        if any(heights):
            figure.add_bar(
                x=list(names),
                y=list(heights),
                name=label,
                marker={
                    "color": colour,
                    "pattern": {
                        "shape": pattern,
                        "fillmode": "overlay",
                        "fgcolor": "rgba(255,255,255,0.55)",
                        "size": 7,
                    },
                },
                hovertemplate=f"{label}: {y_prefix}%{{y:,.4~g}}<extra>%{{x}}</extra>",
            )
    figure.update_layout(barmode="stack", legend_traceorder="normal")
    figure.update_yaxes(title=y_title, tickprefix=y_prefix)
    return _laid_out(figure, title)


def layer_strip(kinds: Sequence[str], notes: Sequence[str], sizes: Sequence[str], *, title: str) -> go.Figure:
    """One bar per layer, first to last, coloured and patterned by its kind.

    Parameters
    ----------
    kinds : sequence of str
        Kind of each layer [names].
    notes : sequence of str
        What else is said of each layer, such as its window [text].
    sizes : sequence of str
        What each layer keeps [text].
    title : str
        What the chart shows [text].

    Returns
    -------
    plotly.graph_objects.Figure
        The chart [figure].
    """
    figure = go.Figure()
    for kind in dict.fromkeys(kinds):
        own = [number for number, other in enumerate(kinds) if other == kind]
        figure.add_bar(
            x=[number + 1 for number in own],
            y=[1] * len(own),
            name=f"{kind} ({len(own)})",
            marker={
                "color": KINDS[kind].colour,
                "pattern": {
                    "shape": KINDS[kind].pattern,
                    "fillmode": "overlay",
                    "fgcolor": "rgba(255,255,255,0.7)",
                    "size": 6,
                },
            },
            customdata=[" ".join(filter(None, (notes[number], f"keeps {sizes[number]}"))) for number in own],
            hovertemplate="layer %{x}: %{customdata}<extra>" + kind + "</extra>",
        )
    figure.update_layout(barmode="stack", bargap=0.12)
    figure.update_xaxes(title="Layer", range=[0.4, len(kinds) + 0.6], fixedrange=True)
    figure.update_yaxes(visible=False, range=[0, 1], fixedrange=True)
    figure = _laid_out(figure, title)
    figure.update_layout(height=240, legend_y=-0.62)
    return figure


def contexts_around(tokens: int) -> np.ndarray:
    """Context lengths of an even axis, from none to twice the one that was asked for [tokens]."""
    return np.linspace(0, 2 * tokens, 101).round().astype(np.int64)


def _decades(values: Sequence[Sequence[float]]) -> dict:
    """A logarithmic axis whose ticks are powers of ten, written with the prefixes of units: 10k, 1M, 100T."""
    positive = np.concatenate([np.atleast_1d(np.asarray(v, dtype=float)) for v in values])
    exponents = np.log10(positive[positive > 0])
    powers = range(int(np.floor(exponents.min())), int(np.ceil(exponents.max())) + 1) if exponents.size else range(1)
    texts = [f"{10 ** (power % 3)}{SI_PREFIXES[power // 3]}" if power >= 0 else f"{10.0**power:g}" for power in powers]
    return {"type": "log", "tickvals": [10.0**power for power in powers], "ticktext": texts}


def _thinned(x: np.ndarray, y: np.ndarray) -> tuple[list[float], list[float]]:
    """At most MAX_POINTS points, the first and the last among them."""
    if len(x) > MAX_POINTS:
        kept = np.unique(np.linspace(0, len(x) - 1, MAX_POINTS).round().astype(int))
        x, y = x[kept], y[kept]
    return x.tolist(), y.tolist()


def _laid_out(figure: go.Figure, title: str) -> go.Figure:
    figure.update_layout(
        title={"text": title, "x": 0, "xanchor": "left", "y": 0.98, "yanchor": "top"},
        height=400,
        margin={"l": 10, "r": 10, "t": 70, "b": 10},
        legend={"orientation": "h", "yanchor": "top", "y": -0.22, "x": 0},
        hovermode="closest",
        uirevision="kept",
    )
    return figure
