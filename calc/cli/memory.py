"""python -m calc memory: the KV cache of a model at a context length."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from calc.cli.memory_text import (
    comparison_lines,
    format_text,
    group_lines,
    kind_lines,
    mechanism_lines,
    rank_lines,
)
from calc.cli.options import WHOLE, as_json, chosen_model, model_options, model_remarks, show
from calc.comparison import choices_of, comparison
from calc.engines import ENGINES, engine_flags, engine_name, engine_settings, engine_version
from calc.engines.vllm import Vllm
from calc.formats import bytes_text, count_text
from calc.kv_cache import (
    cache_rule,
    context_warnings,
    engine_remarks,
    sequence_bytes,
    sequence_memory,
)
from calc.kv_formats import kv_format_names
from calc.layouts import ANOTHER_MODEL, LAYOUTS, WINDOW, layouts_to_compare
from calc.mechanisms import MECHANISMS, attention_shape, mechanism_bytes
from calc.model_spec import ModelSpec
from calc.numeric import POSITIVE_COUNT, require


@click.command("memory")
@model_options
@click.option("--tokens", type=WHOLE, required=True, help="Tokens in the cache.")
@click.option(
    "--kv-dtype", default="bf16", show_default=True, help=f"Format of the cache: {', '.join(kv_format_names())}."
)
@click.option("--value-dtype", help="Format of the values, where it is another than that of the keys.")
@click.option("--engine", default="ideal", show_default=True, help=f"Allocation rule: {', '.join(ENGINES)}.")
@click.option("--tensor-parallel", type=WHOLE, default=1, show_default=True, help="Ranks that share the KV heads.")
@click.option("--pipeline-parallel", type=WHOLE, default=1, show_default=True, help="Stages that share the layers.")
@click.option(
    "--data-parallel",
    type=WHOLE,
    default=1,
    show_default=True,
    help="Groups of the tensor-parallel ranks that attend for sequences of their own.",
)
@click.option(
    "--decode-context-parallel",
    type=WHOLE,
    default=1,
    show_default=True,
    help="Ranks of a group that share the tokens of a sequence.",
)
@click.option("--sequences", type=WHOLE, default=1, show_default=True, help="Conversations held at the same time.")
@click.option("--encoder-tokens", type=WHOLE, default=0, show_default=True, help="Tokens that cross-attention reads.")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the engine, such as block_tokens=32; `--set help` lists them.",
)
@click.option(
    "--compare",
    "compared",
    multiple=True,
    metavar="NAME",
    help=f"Another layout of the model ({', '.join(name for name in LAYOUTS if name != 'own')}) or another model by name; "
    "up to five.",
)
@click.option("--mechanisms", is_flag=True, help="What the model's layers keep and read, and five ways of attending.")
@click.option("--window", type=WHOLE, default=WINDOW, show_default=True, help="Window of the sliding layout.")
@as_json
def command(
    config: Path | None,
    preset: str | None,
    tokens: int,
    sequences: int,
    assignments: Sequence[str],
    compared: Sequence[str],
    window: int,
    mechanisms: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """KV cache of one sequence as an engine allocates it, and the same model as MHA, GQA and MQA."""
    engine = options["engine"] = engine_name(options["engine"])
    if "help" in assignments:
        flags = {setting: flag for flag, setting in engine_flags(engine).items()}
        settings = [
            f"{name} (default: {value}){f', the same as {flags[name]}' if name in flags else ''}"
            for name, value in engine_settings(engine).items()
        ]
        click.echo("\n".join(settings or [f"the {engine} rule has no settings"]))
        return
    require(sequences, POSITIVE_COUNT, "sequences")
    options = {**options, **_settings(engine, assignments)}
    model = chosen_model(config, preset)
    memory = sequence_memory(model, tokens, **options)
    alone = {**options, "tensor_parallel": 1, "pipeline_parallel": 1, "data_parallel": 1, "decode_context_parallel": 1}
    layouts = {name: sequence_bytes(same, tokens, **alone) for name, same in layouts_to_compare(model).items()}
    warnings = [*model.warnings, *context_warnings(model, tokens)]
    groups = _page_groups(model, tokens, options)
    holders = options["data_parallel"]
    rows, refused = _comparison(model, tokens, compared, window, options) if compared else ([], ())
    answer = {
        "bytes": memory.bytes,
        "bytes_per_rank": memory.bytes_per_rank,
        "all_sequences_bytes": memory.bytes * sequences,
        "all_sequences_bytes_per_rank": memory.bytes_per_rank * -(-sequences // holders),
        "floor_bytes": memory.floor_bytes,
        "slope_bytes_per_token": memory.slope_bytes_per_token,
        "plateau_bytes": memory.plateau_bytes,
        "replication": memory.replication,
        "stages": [{"layers": len(stage.layers), "bytes_per_rank": stage.bytes_per_rank} for stage in memory.stages],
        "worst_stage": memory.worst_stage + 1,
        "page_groups": groups,
        "engine": engine,
        "engine_version": engine_version(engine),
        "layout": model.layout,
        "layout_bytes": layouts,
        "compared": rows,
        "mechanisms": _mechanisms(model, tokens, window, options["kv_dtype"]) if mechanisms else [],
        "model": model.name,
        "warnings": warnings,
        "unread_fields": list(model.unread_fields),
    }
    lines = [
        f"{model.name}: {model.layout}, {model.layers} layers, {format_text(options)} cache, {engine} rule"
        + (f" ({engine_version(engine)})" if engine != "ideal" else ""),
        *(
            [
                f"All {count_text(sequences, 'sequences')}  {bytes_text(memory.bytes * sequences)}, "
                f"{bytes_text(answer['all_sequences_bytes_per_rank'])} per rank"
            ]
            if sequences > 1
            else []
        ),
        f"{'One sequence' if sequences > 1 else 'KV cache'} at {count_text(tokens, 'tokens')}  "
        f"{bytes_text(memory.bytes)} ({count_text(memory.bytes, 'bytes')})",
        *rank_lines(memory, options),
        f"Each further token  {memory.slope_bytes_per_token:,.10g} bytes",
        *(
            f"{name}  {bytes_text(size)}"
            for name, size in (
                ("Before the first token", memory.floor_bytes),
                ("Windows, once full", memory.plateau_bytes),
            )
            if size
        ),
        *kind_lines(model),
        *group_lines(groups),
        *engine_remarks(model, **options),
        *([f"On one rank, under other head layouts ({ANOTHER_MODEL}):"] if len(layouts) > 1 else []),
        *(f"  {name:8}{bytes_text(size)}" for name, size in layouts.items() if len(layouts) > 1),
        *comparison_lines(rows, refused),
        *mechanism_lines(answer["mechanisms"]),
        *model_remarks(model, warnings),
    ]
    show(answer, lines, as_json)


def _settings(engine: str, assignments: Sequence[str]) -> dict[str, Any]:
    """Settings typed as NAME=VALUE; a value is read as JSON, else as text."""
    known = engine_settings(engine)
    settings = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or name not in {**known, **engine_flags(engine)}:
            raise ValueError(
                f"--set of the {engine} rule must be NAME=VALUE with a name among {', '.join(known) or 'none'}, "
                f"got {assignment[:60]!r}"
            )
        try:
            settings[name] = json.loads(text)
        except (ValueError, RecursionError):
            settings[name] = text
    return settings


def _comparison(
    model: ModelSpec, tokens: int, others: Sequence[str], window: int, options: dict[str, Any]
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Up to six models and layouts by the ideal rule, and those that the model cannot have."""
    compared = choices_of(model, others, window=window)
    engine_alone = ("engine", *engine_settings(options["engine"]), *engine_flags(options["engine"]))
    of_any_rule = {name: value for name, value in options.items() if name not in engine_alone}
    rows = comparison(compared.choices, tokens, window=window, **of_any_rule)
    shown = (
        "bytes",
        "bytes_per_rank",
        "decode_flops",
        "decode_attention_flops",
        "attention_intensity",
        "parameters",
        "parameters_change",
        "break_even_tokens",
        "break_even_sequences",
        "is_another_model",
        "unknown",
    )
    return [
        {"name": name, **{key: getattr(row, key) for key in shown}} for name, row in zip(compared.names, rows)
    ], compared.refused


def _mechanisms(model: ModelSpec, tokens: int, window: int, kv_dtype: str) -> list[dict[str, Any]]:
    """What one layer of the model's heads keeps and reads under each mechanism, and what is lost."""
    shape = attention_shape(model)
    layers = mechanism_bytes(
        tokens,
        query_heads=shape.query_heads,
        kv_heads=shape.kv_heads,
        head_width=shape.key_width,
        kv_dtype=kv_dtype,
        window=window,
    )
    return [
        {
            "name": mechanism.name,
            "kept": mechanism.kept,
            "read": mechanism.read,
            "lost": mechanism.lost,
            "kept_bytes": one.kept_bytes,
            "read_bytes": one.read_bytes,
        }
        for mechanism, one in zip(MECHANISMS, layers)
    ]


def _page_groups(model: ModelSpec, tokens: int, options: dict[str, Any]) -> list[dict[str, Any]]:
    """The tables of pages of a request, where the engine has several kinds of them."""
    rule = cache_rule(model, **options)
    if not isinstance(rule, Vllm):
        return []
    return [
        {
            "kind": group.page.kind,
            "layers": len(group.layers),
            "padding_layers": group.padding_layers,
            "block_tokens": group.page.block_tokens,
            "page_bytes": group.page.page_bytes,
            "pages": rule.request_pages(group.page, tokens),
        }
        for group in rule.page_groups()
    ]
