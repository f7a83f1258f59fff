"""Compute: what do prefill and decode cost?"""

import numpy as np
import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from calc.attention import attention_flops, causal_pairs, decode_attention_intensity, square_pairs, window_pairs
from calc.flops import (
    Flops,
    attention_overtakes_at,
    counter_prefill_flops,
    decode_cache_read_bytes,
    decode_flops,
    prefill_flops,
)
from calc.formats import bytes_text, count_text, flops_text
from calc.kv_cache import context_warnings
from calc.kv_formats import bytes_per_number
from calc.layouts import layouts_to_compare
from calc.weights import matrix_flops, parameters
from views import charts, inputs, layout, text
from views.inputs import Scenario

PART_STYLES = {name.capitalize(): style for name, style in charts.PART_STYLES.items()}
SHORT_PROMPT = 1000
MAX_CHARTED = 10**11
"""Longest context of a chart."""
LADDER = (1_000, 4_000, 10_000, 32_000, 100_000, 200_000, 500_000, 1_000_000)


def render(scenario: Scenario, answer: DeltaGenerator) -> None:
    """Draws the answer, the first view and the closed sections."""
    model, tokens, cached = scenario.model, scenario.tokens, scenario.cached
    prefill = prefill_flops(model, tokens, cached=cached)
    decode = decode_flops(model, cached + tokens, new=scenario.decoded)
    crossover = attention_overtakes_at(model)
    with answer:
        _verdict(scenario, prefill.total, crossover)
    text.headline(
        [
            (
                "Prefill",
                flops_text(prefill.total),
                f"Attention {flops_text(prefill.attention)}, matrix products {flops_text(prefill.matrices)}. A "
                "multiply-add is two.",
            ),
            (
                "Attention's share",
                f"{100 * prefill.attention / prefill.total:.0f} %",
                "The rest are matrix products with the weights, which grow in proportion to the tokens.",
            ),
            (
                f"Decode of {count_text(scenario.decoded)} tokens",
                flops_text(decode.total),
                f"On top of {count_text(cached + tokens)} cached tokens, one after the other.",
            ),
            (
                "Cache read per token",
                bytes_text(decode_cache_read_bytes(model, cached + tokens, kv_dtype=scenario.kv_dtype)),
                f"Every decoded token reads the whole {scenario.kv_dtype} cache, and the weights besides.",
            ),
        ]
    )
    text.chart(_curves(scenario, crossover), "flops_by_context", "Prefill FLOP by prompt length, by part")
    text.table(_ladder(scenario), "prefill_ladder", "Prefill and decode FLOP at several prompt lengths",
               formats={"Prefill, times 1,000 tokens": "%,.1f x"})  # fmt: skip
    st.caption("Every row of the table starts from an empty cache; decode is on top of that prompt.")
    text.section("Decode against context length", "open_decode", lambda: _decode(scenario))
    text.section("What a dense kernel or a FLOP counter reports", "open_counter", lambda: _counter(scenario))
    text.section("Arithmetic intensity of decode", "open_intensity", lambda: _intensity(scenario))
    text.section("The formulas with these numbers", "open_compute_formulas", lambda: _formulas(scenario))
    text.section("What is assumed", "open_compute_assumed", _assumptions)


def _verdict(scenario: Scenario, total: int, crossover: int | None) -> None:
    model = scenario.model
    short = prefill_flops(model, SHORT_PROMPT).total
    name = text.text_only(model.name)
    if scenario.cached:
        whole = prefill_flops(model, scenario.cached + scenario.tokens).total
        text.answer(
            f"Prefilling {count_text(scenario.tokens)} new tokens over {count_text(scenario.cached)} cached ones takes "
            f"{flops_text(total)} in {name}: {100 * total / whole:.1f} % of computing all of them."
        )
    else:
        times = f": {_times(total / short)} times a prompt of {count_text(SHORT_PROMPT, 'tokens')}"
        text.answer(
            f"Prefilling {count_text(scenario.tokens)} tokens of {name} takes {flops_text(total)}"
            + (times if scenario.tokens > SHORT_PROMPT else "")
            + "."
        )
    one = decode_flops(model, scenario.cached + scenario.tokens).total
    overtaking = (
        "Within the model's windows, attention never overtakes the matrix products."
        if crossover is None
        else f"From an empty cache, attention overtakes the matrix products at a prompt of "
        f"{count_text(crossover, 'tokens')}; from there on the cost grows more with the square of the prompt than with "
        "its length."
    )
    st.caption(f"Decoding one token after it takes {flops_text(one)}. {overtaking}")
    for warning in (*model.warnings, *context_warnings(model, scenario.cached + scenario.tokens + scenario.decoded)):
        st.warning(text.text_only(warning))


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"


def _curves(scenario: Scenario, crossover: int | None):
    contexts = _contexts(max(10 * (crossover or LADDER[-1]), 2 * scenario.tokens))
    return charts.lines(
        _parts(contexts, prefill_flops(scenario.model, contexts, cached=scenario.cached)),
        PART_STYLES,
        title="Prefill FLOP by prompt length",
        x_title="Prompt (tokens)",
        y_title="FLOP",
        logarithmic=True,
        marks={"your prompt": scenario.tokens}
        | ({} if scenario.cached or crossover is None else {"attention overtakes": crossover}),
    )


def _contexts(top: int) -> np.ndarray:
    """Context lengths of a logarithmic axis."""
    return np.unique(np.geomspace(100, min(top, MAX_CHARTED), 120).round().astype(np.int64))


def _parts(contexts: np.ndarray, flops: Flops) -> dict:
    """The lines of one phase's FLOP over context lengths."""
    return {
        "Attention": (contexts, flops.attention),
        "Matrix products": (contexts, flops.matrices),
        "Total": (contexts, flops.total),
    }


def _ladder(scenario: Scenario) -> pd.DataFrame:
    lengths = np.array(LADDER)
    prefill = prefill_flops(scenario.model, lengths)
    decode = decode_flops(scenario.model, lengths)
    return pd.DataFrame(
        {
            "Prompt (tokens)": lengths,
            "Prefill": [flops_text(value) for value in prefill.total],
            "Prefill attention": [flops_text(value) for value in prefill.attention],
            "Prefill, times 1,000 tokens": prefill.total / prefill_flops(scenario.model, SHORT_PROMPT).total,
            "Decode, per token": [flops_text(value) for value in decode.total],
            "Decode attention": [flops_text(value) for value in decode.attention],
            "Cache read, per token": [
                bytes_text(value)
                for value in decode_cache_read_bytes(scenario.model, lengths, kv_dtype=scenario.kv_dtype)
            ],
        }
    )


def _decode(scenario: Scenario) -> None:
    contexts = _contexts(max(10 * LADDER[-1], 2 * scenario.tokens))
    text.chart(
        charts.lines(
            _parts(contexts, decode_flops(scenario.model, contexts)),
            PART_STYLES,
            title="FLOP of a decoded token",
            x_title="Cached (tokens)",
            y_title="FLOP",
            logarithmic=True,
            marks={"your context": scenario.cached + scenario.tokens},
        ),
        key="decode_by_context",
        alt="FLOP of one decoded token by the number of cached tokens, by part",
    )


def _counter(scenario: Scenario) -> None:
    exact = prefill_flops(scenario.model, scenario.tokens, cached=scenario.cached)
    counted = counter_prefill_flops(scenario.model, scenario.tokens, cached=scenario.cached)
    text.table(
        pd.DataFrame(
            [
                {
                    "Convention": "causal pairs, logits of the last token",
                    "Attention": flops_text(exact.attention),
                    "Matrix products": flops_text(exact.matrices),
                    "Total": flops_text(exact.total),
                },
                {
                    "Convention": "full square, logits of all tokens",
                    "Attention": flops_text(counted.attention),
                    "Matrix products": flops_text(counted.matrices),
                    "Total": flops_text(counted.total),
                },
            ]
        ),  # fmt: skip
        "conventions",
        "Prefill FLOP by two conventions",
    )
    st.caption(
        "A counter adds up what eager code computes: the masked half of the scores too, and logits that serving never asks "
        "for. A causal kernel skips both."
    )


def _intensity(scenario: Scenario) -> None:
    width = scenario.model.layer_groups[0].key_width
    size = bytes_per_number(scenario.kv_dtype, width)
    text.table(
        pd.DataFrame(
            [
                {
                    "Layout": name + (" (this model)" if same is scenario.model else ""),
                    "KV heads": same.layer_groups[0].kv_heads,
                    "Attention FLOP per byte of cache": decode_attention_intensity(
                        same.layer_groups[0].query_heads, same.layer_groups[0].kv_heads, size
                    ),
                }
                for name, same in layouts_to_compare(scenario.model).items()
            ]
        ),
        "intensity",
        "Arithmetic intensity of decode attention by head layout",
    )
    st.caption(
        "An accelerator that can do more FLOP in the time of one byte of memory traffic waits for memory. Today's do "
        "hundreds: decode attention is bound by memory under every layout here. Sharing KV heads saves bytes, not "
        "FLOP: every layout computes the same."
    )


def _formulas(scenario: Scenario) -> None:
    model = scenario.model
    size = parameters(model)
    pairs = causal_pairs(scenario.cached, scenario.tokens)
    text.equation(
        causal_pairs,
        f"n = {scenario.cached:,} cached, g = {scenario.tokens:,} new: {pairs:,} pairs (a dense kernel computes "
        f"{square_pairs(scenario.tokens, scenario.cached):,}).",
    )
    for group in model.layer_groups:
        in_layer = pairs
        if group.window is not None:
            in_layer = window_pairs(scenario.cached, scenario.tokens, group.window)
            text.equation(window_pairs, f"Of these, a window of w = {group.window:,} leaves {in_layer:,} pairs.")
        flops = attention_flops(in_layer, group.layers, group.query_heads, group.key_width, group.value_width)
        text.equation(
            attention_flops,
            f"2 x {group.layers} layers x {group.query_heads} query heads x ({group.key_width} + {group.value_width}) x "
            f"{in_layer:,} = {flops:,} FLOP = {flops_text(flops)}.",
        )
    layers = matrix_flops(size.layer_matrices, scenario.tokens)
    head = matrix_flops(size.head_matrix, 1)
    text.equation(
        matrix_flops,
        f"2 x {size.layer_matrices:,} parameters in the layers' matrices x {scenario.tokens:,} tokens = {layers:,} FLOP; "
        f"the head, once, adds {head:,}. The model has {size.total:,} parameters in all.",
    )


def _assumptions() -> None:
    text.bullet_list(
        [
            "Exact: matrix products and attention, a multiply-add counted as two; checked against a FLOP counter.",
            "Left out: softmax, norms, rotations and activations, which are not matrix products.",
            "Prefill computes the logits of its last token only, decode those of every token.",
            "FLOP are not seconds: how fast they run depends on the accelerator and on memory traffic.",
        ]
    )


def _settings() -> None:
    with st.expander("KV format", key="open_format", on_change="rerun") as section:
        if section.open:
            inputs.row(inputs.KV_DTYPE)
    inputs.own_config()


layout.page(
    "What do prefill and decode cost?",
    first=(inputs.MODEL, inputs.PROMPT, inputs.CACHED, inputs.DECODED),
    settings=_settings,
    render=render,
)
