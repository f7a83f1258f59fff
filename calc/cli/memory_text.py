"""The lines in which the memory command answers people: ranks, kinds of layers, pages, rows of a comparison."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from calc.formats import bytes_text, count_text, flops_text
from calc.kv_cache import SequenceMemory
from calc.layouts import ANOTHER_MODEL
from calc.model_spec import ModelSpec

MOST_LISTED = 16
"""Layers of a kind that are listed one by one."""


def format_text(options: dict[str, Any]) -> str:
    """The formats of keys and values."""
    keys, values = options["kv_dtype"], options["value_dtype"]
    return keys if values in (None, keys) else f"{keys} keys and {values} values in the"


def rank_lines(memory: SequenceMemory, options: dict[str, Any]) -> list[str]:
    """What one rank holds, how often parts are replicated, and the fullest stage."""
    stages, ranks = memory.stages, options["tensor_parallel"]
    on = f"Per rank of {count_text(ranks * len(stages))}"
    lines = [f"{on}  {bytes_text(memory.bytes_per_rank)}"]
    if memory.replication > 1:
        lines.append(f"Replication  {memory.replication:.4g} x: parts are stored on more than one rank")
    if len({stage.bytes_per_rank for stage in stages}) > 1:
        worst = stages[memory.worst_stage]
        lines.append(
            f"Fullest stage  {memory.worst_stage + 1} of {len(stages)}, {len(worst.layers)} layers, "
            f"{bytes_text(worst.bytes_per_rank)} per rank"
        )
    return lines


def comparison_lines(rows: list[dict[str, Any]], refused: Sequence[str]) -> list[str]:
    """Rows of a comparison, and why rows or numbers are missing."""
    if not rows:
        return []
    lines = [f"Compared by the ideal rule, unsplit on one rank; * is {ANOTHER_MODEL}:"]
    for row in rows:
        change, flops, break_even = row["parameters_change"], row["decode_flops"], row["break_even_tokens"]
        lines.append(
            f"  {row['name']:24}{'not known' if row['bytes'] is None else bytes_text(row['bytes']):>12}"
            + (f"  {change:+,} parameters" if change is not None else "")
            + (f", {flops_text(flops)} a decoded token" if flops is not None else "")
            + (f", break-even {count_text(break_even, 'tokens')}" if break_even is not None else "")
        )
    lines.append("Break-even: tokens in all caches of a batch at which a step reads as much cache as weights (bf16)")
    return [*lines, *refused, *(f"{row['name']}: {reason}" for row in rows for reason in row["unknown"])]


def mechanism_lines(mechanisms: list[dict[str, Any]]) -> list[str]:
    """What a layer keeps, reads and loses under each mechanism."""
    if not mechanisms:
        return []
    return [
        "One layer of these heads under five mechanisms: what it keeps, what it reads for a new token, what it loses",
        *(
            f"  {one['name']:12}{bytes_text(one['kept_bytes']):>12} kept{bytes_text(one['read_bytes']):>12} read  "
            f"{one['lost']}"
            for one in mechanisms
        ),
    ]


def kind_lines(model: ModelSpec) -> list[str]:
    """Which layers are of which kind, where there are several."""
    if len(model.layer_groups) < 2:
        return []
    lines = []
    for number, group in enumerate(model.layer_groups):
        own = [index + 1 for index, other in enumerate(model.groups_in_order) if other == number]
        window = f" (window {count_text(group.window, 'tokens')})" if group.window else ""
        listed = f": {', '.join(map(str, own))}" if len(own) <= MOST_LISTED else ""
        lines.append(f"{count_text(group.layers, f'{group.kind} layers')}{window}{listed}")
    return lines


def group_lines(groups: list[dict[str, Any]]) -> list[str]:
    """Tables of pages, those that are alike in one line."""
    if len(groups) < 2:
        return []
    lines = Counter(
        f"{group['layers']} {group['kind']} layers  {count_text(group['pages'], 'pages')} of "
        f"{bytes_text(group['page_bytes'])} for each layer"
        + (f", {count_text(group['block_tokens'], 'tokens')} a page" if group["block_tokens"] else "")
        + (f"; padded by {count_text(group['padding_layers'], 'layers')}" if group["padding_layers"] else "")
        for group in groups
    )
    return [f"{times} x {line}" for line, times in lines.items()]
