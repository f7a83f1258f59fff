"""Sections of the Memory page that compare: up to six models and layouts, and five mechanisms of attention."""

from typing import Any

import pandas as pd
import streamlit as st

from calc.accelerators import accelerator
from calc.comparison import Compared, choices_of, comparison
from calc.formats import bytes_text, count_text, flops_text
from calc.kv_cache import sequence_bytes
from calc.layouts import ANOTHER_MODEL
from calc.mechanisms import MECHANISMS, PICKED, attention_shape, mechanism_bytes, model_mechanisms
from calc.roofline import ridge_intensity
from calc.units import GIB
from views import charts, inputs, text
from views.inputs import Scenario

UNKNOWN = "not known"


def comparison_section(scenario: Scenario) -> None:
    """Draws its inputs, the curves and the table of up to six models and layouts."""
    inputs.row(inputs.COMPARED)
    inputs.row(inputs.WINDOW, inputs.ACCELERATOR)
    compared = choices_of(scenario.model, scenario.compared, window=scenario.window)
    names = compared.names
    rows = comparison(
        compared.choices,
        scenario.tokens,
        window=scenario.window,
        **scenario.under_any_rule,
    )
    text.chart(_curves(scenario, rows, names), "compared_curves", "KV cache by context length, one line per row")
    text.table(_bytes_table(rows, names), "compared", "Bytes and parameters of models and layouts side by side")
    text.table(_decode_table(rows, names), "compared_decode", "What decoding one token computes and reads")
    st.markdown(text.text_only(_intensity(scenario, rows[0])))
    text.bullet_list([text.text_only(line) for line in [*compared.refused, *_reasons(rows, names)]])
    st.caption(
        f"Rows with a star are {ANOTHER_MODEL}. MLA takes a latent of four head widths and a rotated part of half a head "
        "width; sliding-1-in-4 keeps every fourth layer full. Bytes are those that any implementation must keep, weights "
        "in bf16. Break-even: the tokens in all caches of a batch at which a decode step reads as many bytes of cache as "
        "of weights; beyond it the cache costs more."
    )


def _curves(scenario: Scenario, rows: tuple[Compared, ...], names: tuple[str, ...]):
    contexts = charts.contexts_around(scenario.tokens)
    return charts.lines(
        {
            name: (contexts, sequence_bytes(row.model, contexts, **scenario.formats) / GIB)
            for name, row in zip(names, rows)
            if row.bytes is not None
        },
        charts.row_styles(names),
        title="KV cache of one sequence",
        x_title="Context (tokens)",
        y_title="GiB",
        marks={"your context": scenario.tokens},
    )


def _bytes_table(rows: tuple[Compared, ...], names: tuple[str, ...]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "Model or layout": name,
                "One sequence": _known(row.bytes, bytes_text),
                "On each rank": _known(row.bytes_per_rank, bytes_text),
                "Parameters": _known(row.parameters, count_text),
                "Parameters against the first": _known(row.parameters_change, lambda number: f"{number:+,}"),
                "Break-even (tokens)": _known(row.break_even_tokens, count_text),
                "Break-even (sequences)": _known(row.break_even_sequences, lambda number: f"{number:,.3g}"),
            }
            for name, row in zip(names, rows)
        ]
    )


def _decode_table(rows: tuple[Compared, ...], names: tuple[str, ...]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "Model or layout": name,
                "Decoding a token": _known(row.decode_flops, flops_text),
                "of which attention": _known(row.decode_attention_flops, flops_text),
                "Attention FLOP per byte of cache": _known(row.attention_intensity, lambda number: f"{number:.3g}"),
            }
            for name, row in zip(names, rows)
        ]
    )


def _known(number: Any, shown: Any) -> str:
    return UNKNOWN if number is None else shown(number)


def _intensity(scenario: Scenario, own: Compared) -> str:
    """What the accelerator makes of the model's decode attention."""
    chosen = accelerator(scenario.accelerator)
    flops = chosen.flops_per_second("bf16")
    if flops is None or chosen.bytes_per_second is None or own.attention_intensity is None:
        return f"Whether decode attention waits for memory on {chosen.label} is not known here."
    ridge = ridge_intensity(flops, chosen.bytes_per_second)
    waits = own.attention_intensity < ridge
    return (
        f"{chosen.label} can do {ridge:,.0f} bf16 FLOP in the time in which it reads a byte; decode attention of "
        f"{own.label} does {own.attention_intensity:,.3g} for each byte of cache. It is bound by "
        f"{'memory: fewer bytes are faster' if waits else 'computing: fewer bytes are not faster'}."
    )


def _reasons(rows: tuple[Compared, ...], names: tuple[str, ...]) -> list[str]:
    """Why numbers of a row are not known."""
    return [f"{name}: {reason}." for name, row in zip(names, rows) for reason in row.unknown]


def mechanism_section(scenario: Scenario) -> None:
    """Draws what each mechanism keeps, reads and loses, in words and for a layer of the model's heads."""
    shape = attention_shape(scenario.model)
    layers = mechanism_bytes(
        scenario.tokens,
        query_heads=shape.query_heads,
        kv_heads=shape.kv_heads,
        head_width=shape.key_width,
        kv_dtype=scenario.kv_dtype,
        window=scenario.window,
    )
    text.table(
        pd.DataFrame(
            [
                {
                    "Mechanism": mechanism.name,
                    f"A layer keeps of {count_text(scenario.tokens)} tokens": bytes_text(one.kept_bytes),
                    "It reads for each new token": _known(one.read_bytes, bytes_text),
                }
                for mechanism, one in zip(MECHANISMS, layers)
            ]
        ),
        "mechanisms",
        "What a layer of this shape keeps and reads under each mechanism",
    )
    text.bullet_list(
        [
            f"**{mechanism.name}** keeps: {_clause(mechanism.kept)} Reads: {_clause(mechanism.read)} "
            f"Loses: {_clause(mechanism.lost)}"
            for mechanism in MECHANISMS
        ]
    )
    st.caption(
        f"A layer of {shape.query_heads} query heads, {shape.kv_heads} KV heads and {shape.key_width} numbers a head; "
        f"window {scenario.window:,}, {PICKED:,} tokens picked, a float32 state. Quality is not modelled."
    )
    own = model_mechanisms(scenario.model, scenario.tokens, kv_dtype=scenario.kv_dtype)
    st.markdown("**This model's own layers**")
    text.table(
        pd.DataFrame(
            [
                {
                    "Layers": group.layers,
                    "Kind": group.kind,
                    "Mechanisms": " and ".join(group.mechanisms) or "none of its own",
                    "Each keeps": bytes_text(group.kept_bytes),
                    "Each reads for a new token": _known(group.read_bytes, bytes_text),
                }
                for group in own
            ]
        ),
        "own_mechanisms",
        "The mechanisms of the model's own layers",
    )


def _clause(sentence: str) -> str:
    return text.text_only(sentence[0].lower() + sentence[1:])
