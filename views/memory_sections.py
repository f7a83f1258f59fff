"""The closed sections of the Memory page: the layers as a picture, engines, ranks, formats, contexts, facts."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from calc.engines import ENGINES, engine_version
from calc.engines.vllm import Vllm
from calc.formats import bytes_text, count_text
from calc.kv_cache import SequenceMemory, cache_rule, engine_remarks, kv_cache_bytes, layer_bytes, sequence_memory
from calc.kv_formats import bytes_per_number, kv_format, kv_format_names
from calc.model_spec import ModelSpec
from calc.names import UnknownName
from calc.parallel import heads_per_rank
from calc.units import GIB, KIB
from views import charts, text
from views.engine_log import log_section
from views.inputs import Scenario
from views.memory_comparison import comparison_section, mechanism_section

LADDER = tuple(KIB * size for size in (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024))
"""Context lengths of the table."""
RANKS = (1, 2, 4, 8, 16, 32)
"""Tensor-parallel ranks of the table."""


def render_sections(scenario: Scenario, layouts: dict[str, ModelSpec], spread: SequenceMemory) -> None:
    """Draws the sections; each is computed when it is opened."""
    text.section("The layers as a picture", "open_picture", lambda: _picture(scenario))
    text.section("The same under every engine's rule", "open_engines", lambda: _engines(scenario))
    text.section("Compared with other layouts and models", "open_compared", lambda: comparison_section(scenario))
    text.section("Rank by rank", "open_by_rank", lambda: _by_rank(scenario, spread))
    text.section("In every KV format", "open_formats", lambda: _formats(scenario))
    text.section("What each mechanism keeps, reads and loses", "open_mechanisms", lambda: mechanism_section(scenario))
    text.section("What does this log line mean?", "open_log", lambda: log_section(scenario))
    text.section("Context lengths", "open_ladder", lambda: _ladder(scenario, layouts))
    text.section("Facts of the model, and where each came from", "open_facts", lambda: _facts(scenario.model))
    text.section("The formula with these numbers", "open_memory_formula", lambda: _formula(scenario))
    text.section("What is assumed", "open_memory_assumed", _assumptions)


def _picture(scenario: Scenario) -> None:
    layers = layer_bytes(scenario.model, scenario.tokens, **scenario.on_one_rank)
    groups = [scenario.model.layer_groups[i] for i in scenario.model.groups_in_order]
    text.chart(
        charts.layer_strip(
            [group.kind for group in groups],
            [f"window {group.window:,} tokens" if group.window else "" for group in groups],
            [bytes_text(layer.bytes) for layer in layers],
            title="Layers, first to last",
        ),
        "layer_strip",
        "One bar per layer, coloured and patterned by its kind",
    )
    kinds = dict.fromkeys(group.kind for group in groups)
    text.bullet_list([f"**{text.text_only(kind)}**: {charts.KINDS[kind].meaning}" for kind in kinds])


def _engines(scenario: Scenario) -> None:
    """Every rule's floor, slope and plateau; an engine that cannot hold the model says why."""
    rows, curves, remarks, refused = [], {}, [], []
    contexts = charts.contexts_around(scenario.tokens)
    for engine in ENGINES:
        options = _options_of(scenario, engine)
        try:
            memory = sequence_memory(scenario.model, scenario.tokens, **options)
            remarks += engine_remarks(scenario.model, **options)
            curves[engine] = contexts, sequence_memory(scenario.model, contexts, **options).bytes / GIB
        except ValueError as problem:
            refused.append(f"**{text.text_only(engine)}**: {text.text_only(str(problem))}.")
            continue
        rows.append(
            {
                "Rule": engine_version(engine),
                f"At {count_text(scenario.tokens)} tokens": bytes_text(memory.bytes),
                "Before the first token": bytes_text(memory.floor_bytes),
                "Each further token": bytes_text(memory.slope_bytes_per_token),
                "Windows, once full": bytes_text(memory.plateau_bytes),
            }
        )
    if rows:
        text.chart(
            charts.lines(
                curves,
                {engine: charts.ENGINE_STYLES[engine] for engine in curves},
                title="KV cache of one sequence under each rule",
                x_title="Context (tokens)",
                y_title="GiB",
                marks={"your context": scenario.tokens},
            ),
            "kv_by_engine",
            "KV cache by context length, one line per engine's rule",
        )
        text.table(pd.DataFrame(rows), "engines", "One sequence on one rank under every engine's rule")
    text.bullet_list(refused)
    text.bullet_list([text.text_only(remark) for remark in remarks])
    st.caption(
        "One sequence on one rank. vllm, sglang and llama.cpp: what one request of this length takes. Another engine than "
        "the chosen one is counted with its default settings."
    )
    _pages(scenario)


def _options_of(scenario: Scenario, engine: str) -> dict[str, Any]:
    """One rank under an engine's rule; the settings typed belong to the chosen engine."""
    typed = dict(scenario.settings) if engine != scenario.engine else {}
    return {**{name: v for name, v in scenario.on_one_rank.items() if name not in typed}, "engine": engine}


def _pages(scenario: Scenario) -> None:
    """The groups of layers that share tables of pages under vLLM."""
    options = {"kv_dtype": scenario.kv_dtype, "engine": Vllm.name, "tensor_parallel": scenario.ranks}
    own = dict(scenario.settings) if scenario.engine == Vllm.name else {}
    try:
        rule = cache_rule(scenario.model, **options, **own)
        groups = rule.page_groups()
    except ValueError:  # the list above says why
        return
    if not groups:
        return
    st.markdown("**Pages of one request under vllm, on each rank**")
    text.table(
        pd.DataFrame(
            [
                {
                    "Group": number,
                    "Holds": group.page.kind,
                    "Layers": len(group.layers),
                    "Padding layers": group.padding_layers,
                    "Tokens a page": f"{group.page.block_tokens:,}" if group.page.block_tokens else "a state",
                    "Page size": bytes_text(group.page.page_bytes),
                    "of which padding": bytes_text(group.page.page_bytes - group.page.used_bytes),
                    "Pages": rule.request_pages(group.page, scenario.tokens),
                }
                for number, group in enumerate(groups, start=1)
            ]
        ),
        "pages",
        "Groups of layers that share a table of pages under vLLM's rule",
    )


def _by_rank(scenario: Scenario, spread: SequenceMemory) -> None:
    if len(spread.stages) > 1:
        alike = len({stage.bytes_per_rank for stage in spread.stages}) == 1
        text.table(
            pd.DataFrame(
                [
                    {
                        "Stage": number,
                        "Layers": f"{stage.layers.start + 1} to {stage.layers.stop}",
                        "On each of its ranks": bytes_text(stage.bytes_per_rank * scenario.sequences_per_group),
                        "Fullest": "yes" if not alike and number - 1 == spread.worst_stage else "",
                    }
                    for number, stage in enumerate(spread.stages, start=1)
                ]
            ),
            "stages",
            "What each rank of each pipeline stage holds",
        )
    text.table(pd.DataFrame(_splits(scenario)), "splits", "Bytes per rank by tensor-parallel ranks")
    st.caption(
        "One sequence. Replication: what all ranks must keep over what one rank alone would; 1 x is none. More ranks than "
        "KV heads store heads more than once, a latent row is on every rank; attention groups and context-parallel ranks "
        "avoid it."
    )


def _splits(scenario: Scenario) -> Iterator[dict[str, str]]:
    """A row for each number of ranks: what it holds, or why the model cannot be split so."""
    for ranks in RANKS:
        try:
            memory = sequence_memory(
                scenario.model, scenario.tokens, **{**scenario.on_all_ranks, "tensor_parallel": ranks}
            )
            yield {
                "Tensor-parallel ranks": f"{ranks}",
                "On each rank": bytes_text(memory.bytes_per_rank),
                "On all ranks": bytes_text(memory.bytes),
                "Replication": f"{memory.replication:.3g} x",
                "Refused because": "",
            }
        except ValueError as problem:
            yield {
                "Tensor-parallel ranks": f"{ranks}",
                "On each rank": "",
                "On all ranks": "",
                "Replication": "",
                "Refused because": str(problem),
            }


def _formats(scenario: Scenario) -> None:
    width = max((group.key_width for group in scenario.model.layer_groups), default=0)
    rows = []
    for name in kv_format_names():
        packed = kv_format(name)
        try:
            memory = sequence_memory(scenario.model, scenario.tokens, kv_dtype=name)
            bits, size = f"{8 * bytes_per_number(name, width):.4g}", bytes_text(memory.bytes)
        except (ValueError, UnknownName):
            bits, size = "", "does not fit this model's widths" if not packed.is_for_latent_rows else "latent rows only"
        rows.append(
            {
                "Format": name,
                "Bits per number": bits,
                "One sequence": size,
                "Known to": "all"
                if len(packed.engines) == len(ENGINES) - 1
                else ", ".join(packed.engines) or "no engine here",
                "Packed as": packed.label,
            }
        )
    text.table(pd.DataFrame(rows), "formats", "The cache of one sequence in every format")
    st.caption("Bits include scales and offsets; by the ideal rule, on one rank. Recurrent states are not affected.")


def _ladder(scenario: Scenario, layouts: dict[str, ModelSpec]) -> None:
    contexts = np.array(LADDER)
    frame = pd.DataFrame({"Context (tokens)": contexts})
    for name, same in layouts.items():
        frame[f"{name} (GiB)"] = sequence_memory(same, contexts, **scenario.on_one_rank).bytes / GIB
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
    model = scenario.model
    plain = scenario.on_one_rank == {"kv_dtype": scenario.kv_dtype, "engine": "ideal"} and all(
        group.kind == "full" and not group.cross_kv_heads for group in model.layer_groups
    )
    undivided = scenario.stages == scenario.attention_groups == scenario.context_ranks == 1
    if plain:
        text.latex(kv_cache_bytes)
    sizes = layer_bytes(model, scenario.tokens, **(scenario.on_all_ranks if undivided else scenario.on_one_rank))
    for number, group in enumerate(model.layer_groups):
        each = sizes[model.groups_in_order.index(number)].bytes
        total = scenario.sequences * group.layers * each
        if plain:
            ranks = scenario.ranks if undivided else 1
            heads = heads_per_rank(group.kv_heads, ranks) * ranks
            replicated = f" ({group.kv_heads} stored on {ranks} ranks)" if heads != group.kv_heads else ""
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
    if not undivided:
        st.caption("On one rank that holds everything; stages, attention groups and context ranks share it out.")


def _assumptions() -> None:
    text.bullet_list(
        [
            "Exact: the bytes of keys, values and states that any implementation must keep (ideal), and what each engine "
            "reserves for one request by the rule of the version named.",
            "A window counts the token itself. States that follow the model's type and states that are always float32 are "
            "not touched by the KV format.",
            "Left out: block tables, the engine's own reserve, and what is lost when memory is not a multiple of a block.",
            "GiB is 1,073,741,824 bytes; vendors' GB is 1,000,000,000.",
            "Tensor-parallel ranks split the KV heads; with more ranks than heads each head is stored more than once.",
            "Whether an engine serves a model at all is not checked, only how it would page the model's layers.",
            "The weights and the activations need memory besides.",
        ]
    )
