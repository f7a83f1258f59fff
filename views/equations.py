"""The equations of the Formulas page, chapter by chapter, and what the scenario puts into each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from calc.accelerators import accelerator
from calc.attention import (
    attention_flops,
    causal_pairs,
    chunk_pairs,
    decode_attention_intensity,
    latent_attention_flops,
    run_pairs_without_reuse,
    square_pairs,
    window_pairs,
)
from calc.caching import hit_tokens
from calc.cost import cached_input_cost
from calc.engines.vllm import BLOCK_TOKENS, vllm_window_pages
from calc.flops import decode_cache_read_bytes
from calc.kv_cache import kv_cache_bytes
from calc.kv_formats import bytes_per_number, kv_format, row_bytes
from calc.layer_formulas import (
    attention_layer_bytes,
    convolution_state_bytes,
    pages,
    plane_layer_bytes,
    recurrent_state_bytes,
    transformers_window_tokens,
    whole_blocks,
    window_tokens,
)
from calc.model_spec import LayerGroup, State
from calc.policies import run_ledger
from calc.roofline import break_even_sequences, ridge_intensity
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
from views.inputs import Scenario
from views.pricing import scenario_card, scenario_rule

IN_FLIGHT_TOKENS = 2 * 8192
"""Tokens in flight by vLLM's defaults: two batches of 8,192."""
WEIGHT_BYTES = 2
"""Bytes of a weight in bf16."""


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


def _group(scenario: Scenario, wanted: Callable[[LayerGroup], object], what: str) -> LayerGroup:
    """The model's first group of layers of a kind, or a ValueError that it has none."""
    found = next((group for group in scenario.model.layer_groups if wanted(group)), None)
    if found is None:
        raise ValueError(f"it has no {what}")
    return found


def _with_heads(scenario: Scenario) -> LayerGroup:
    return _group(scenario, lambda group: group.kv_heads and not group.is_latent, "layers with KV heads")


def _latent(scenario: Scenario) -> LayerGroup:
    return _group(scenario, lambda group: group.is_latent, "latent layers")


def _window(scenario: Scenario, kind: str = "sliding") -> int:
    return _group(scenario, lambda group: group.window and group.kind.startswith(kind), f"{kind} layers").window


def _state(scenario: Scenario, kind: str) -> State:
    group = _group(scenario, lambda group: any(s.kind == kind for s in group.states), f"{kind} states")
    return next(state for state in group.states if state.kind == kind)


def _row(scenario: Scenario) -> Mapping[str, float]:
    packed = kv_format(scenario.kv_dtype)
    return {
        "width": _with_heads(scenario).key_width,
        "block_numbers": packed.block_numbers,
        "block_bytes": packed.block_bytes,
        "scale_bytes": packed.row_bytes,
    }


def _layer(scenario: Scenario) -> Mapping[str, float]:
    group, packed = _with_heads(scenario), kv_format(scenario.kv_dtype)
    return {
        "kept_tokens": scenario.tokens,
        "kv_heads": group.kv_heads,
        "key_row_bytes": packed.row(group.key_width),
        "value_row_bytes": packed.row(group.value_width),
    }


def _plane(scenario: Scenario) -> Mapping[str, float]:
    group = _latent(scenario)
    row = kv_format(scenario.kv_dtype).latent_row(group.key_width, group.value_width)
    return {"kept_tokens": scenario.tokens, "row_bytes": row}


def _convolution(scenario: Scenario) -> Mapping[str, float]:
    state = _state(scenario, "convolution")
    return {"channels": state.heads * state.numbers, "columns": state.columns, "bytes_per_number": 2}


def _recurrence(scenario: Scenario) -> Mapping[str, float]:
    state = _state(scenario, "recurrent")
    return {"heads": state.heads, "numbers": state.numbers, "bytes_per_number": 4 if state.dtype == "fp32" else 2}


def _latent_pairs(scenario: Scenario) -> Mapping[str, float]:
    group = _latent(scenario)
    return {
        "pairs": scenario.tokens + 1,
        "layers": group.layers,
        "query_heads": group.query_heads,
        "latent_width": group.key_width,
        "rope_width": group.value_width,
    }


def _ridge(scenario: Scenario) -> Mapping[str, float]:
    chosen = accelerator(scenario.accelerator)
    flops = chosen.flops_per_second("bf16")
    if flops is None or chosen.bytes_per_second is None:
        raise ValueError(f"the peaks of {chosen.label} are not known")
    return {"flops_per_second": flops, "bytes_per_second": chosen.bytes_per_second}


def _break_even(scenario: Scenario) -> Mapping[str, float]:
    size = parameters(scenario.model)
    return {
        "weights_bytes": (size.layer_matrices + size.head_matrix + size.vectors) * WEIGHT_BYTES,
        "sequence_bytes": decode_cache_read_bytes(scenario.model, scenario.tokens, kv_dtype=scenario.kv_dtype),
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
    "Memory": (
        Entry(function=kv_cache_bytes, values=_cache, unit="bytes"),
        Entry(function=row_bytes, values=_row, unit="bytes"),
        Entry(function=attention_layer_bytes, values=_layer, unit="bytes"),
        Entry(function=plane_layer_bytes, values=_plane, unit="bytes"),
        Entry(
            function=window_tokens,
            values=lambda scenario: {"tokens": scenario.tokens, "window": _window(scenario)},
            unit="tokens",
        ),
        Entry(
            function=whole_blocks,
            values=lambda scenario: {
                "tokens": scenario.tokens,
                "block_tokens": _group(
                    scenario, lambda group: group.compression, "layers that compress blocks"
                ).compression.block_tokens,
            },
            unit="entries",
        ),
        Entry(function=convolution_state_bytes, values=_convolution, unit="bytes"),
        Entry(function=recurrent_state_bytes, values=_recurrence, unit="bytes"),
    ),
    "Memory as engines allocate it": (
        Entry(
            function=transformers_window_tokens,
            values=lambda scenario: {"tokens": scenario.tokens, "window": _window(scenario)},
            unit="tokens",
        ),
        Entry(
            function=pages,
            values=lambda scenario: {"tokens": scenario.tokens, "page_tokens": BLOCK_TOKENS},
            unit="pages",
        ),
        Entry(
            function=vllm_window_pages,
            values=lambda scenario: {
                "tokens": scenario.tokens,
                "window": _window(scenario),
                "in_flight_tokens": IN_FLIGHT_TOKENS,
                "block_tokens": BLOCK_TOKENS,
            },
            unit="pages",
        ),
    ),
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
        Entry(
            function=window_pairs,
            values=lambda scenario: {"cached": scenario.cached, "new": scenario.tokens, "window": _window(scenario)},
            unit="pairs",
        ),
        Entry(
            function=chunk_pairs,
            values=lambda scenario: {
                "cached": scenario.cached,
                "new": scenario.tokens,
                "chunk": _window(scenario, "chunked"),
            },
            unit="pairs",
        ),
        Entry(function=attention_flops, values=_attention, unit="FLOP"),
        Entry(function=latent_attention_flops, values=_latent_pairs, unit="FLOP of one decoded token"),
        Entry(
            function=matrix_flops,
            values=lambda scenario: {
                "parameters": parameters(scenario.model).layer_matrices,
                "tokens": scenario.tokens,
            },
            unit="FLOP",
        ),
        Entry(function=decode_attention_intensity, values=_intensity, unit="FLOP per byte"),
        Entry(function=ridge_intensity, values=_ridge, unit="FLOP per byte"),
        Entry(function=break_even_sequences, values=_break_even, unit="sequences"),
        Entry(function=run_pairs_without_reuse, values=_run("calls", "prefix", "growth"), unit="pairs"),
    ),
}
