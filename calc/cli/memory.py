"""python -m calc memory: the KV cache of a model at a context length."""

from pathlib import Path

import click

from calc.cli.options import WHOLE, as_json, chosen_model, model_options, model_remarks, show
from calc.formats import bytes_text, count_text
from calc.kv_cache import context_warnings, sequence_bytes, sequence_memory
from calc.layouts import layouts_to_compare
from calc.numeric import POSITIVE_COUNT, require


@click.command("memory")
@model_options
@click.option("--tokens", type=WHOLE, required=True, help="Tokens in the cache.")
@click.option("--kv-dtype", default="bf16", show_default=True, help="Format of the cache: bf16, fp16, fp32, fp8, int8.")
@click.option("--engine", default="ideal", show_default=True, help="Allocation rule: ideal, transformers.")
@click.option("--tensor-parallel", type=WHOLE, default=1, show_default=True, help="Ranks that share the KV heads.")
@click.option("--sequences", type=WHOLE, default=1, show_default=True, help="Conversations held at the same time.")
@click.option("--encoder-tokens", type=WHOLE, default=0, show_default=True, help="Tokens that cross-attention reads.")
@as_json
def command(
    config: Path | None,
    preset: str | None,
    tokens: int,
    kv_dtype: str,
    engine: str,
    tensor_parallel: int,
    sequences: int,
    encoder_tokens: int,
    as_json: bool,
) -> None:
    """KV cache of one sequence, and the same model as MHA, GQA and MQA."""
    require(sequences, POSITIVE_COUNT, "sequences")
    model = chosen_model(config, preset)
    memory = sequence_memory(
        model,
        tokens,
        kv_dtype=kv_dtype,
        engine=engine,
        tensor_parallel=tensor_parallel,
        encoder_tokens=encoder_tokens,
    )
    layouts = {
        name: sequence_bytes(same, tokens, kv_dtype=kv_dtype, engine=engine, encoder_tokens=encoder_tokens)
        for name, same in layouts_to_compare(model).items()
    }
    warnings = [*model.warnings, *context_warnings(model, tokens)]
    answer = {
        "bytes": memory.bytes,
        "bytes_per_rank": memory.bytes_per_rank,
        "all_sequences_bytes": memory.bytes * sequences,
        "all_sequences_bytes_per_rank": memory.bytes_per_rank * sequences,
        "floor_bytes": memory.floor_bytes,
        "slope_bytes_per_token": memory.slope_bytes_per_token,
        "plateau_bytes": memory.plateau_bytes,
        "layout": model.layout,
        "layout_bytes": layouts,
        "model": model.name,
        "warnings": warnings,
        "unread_fields": list(model.unread_fields),
    }
    lines = [
        f"{model.name}: {model.layout}, {model.layers} layers, {kv_dtype} cache, {engine} rule",
        f"KV cache at {count_text(tokens, 'tokens')}  {bytes_text(memory.bytes)} ({count_text(memory.bytes, 'bytes')})",
        f"Per rank of {tensor_parallel}  {bytes_text(memory.bytes_per_rank)}",
        *(
            [
                f"All {count_text(sequences, 'sequences')}  {bytes_text(memory.bytes * sequences)}, "
                f"{bytes_text(memory.bytes_per_rank * sequences)} per rank"
            ]
            if sequences > 1
            else []
        ),
        f"Per token  {count_text(memory.slope_bytes_per_token, 'bytes')}",
        *(
            f"{name}  {bytes_text(size)}"
            for name, size in (("Before the first token", memory.floor_bytes), ("Full windows", memory.plateau_bytes))
            if size
        ),
        "On one rank, under other head layouts (another model: needs retraining, quality not modelled):",
        *(f"  {name:8}{bytes_text(size)}" for name, size in layouts.items()),
        *model_remarks(model, warnings),
    ]
    show(answer, lines, as_json)
