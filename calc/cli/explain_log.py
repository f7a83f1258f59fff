"""python -m calc explain-log: what a line of an engine's log says of a model's KV cache."""

from pathlib import Path
from typing import Any

import click

from calc.cli.options import WHOLE, as_json, chosen_model, model_options, model_remarks, show
from calc.engine_logs import explain_log
from calc.engine_logs.answer import Explanation, OtherLength, rate_text
from calc.engine_logs.lines import MAX_CHARACTERS
from calc.formats import bytes_text, count_text


@click.command("explain-log")
@model_options
@click.option("--line", "lines", multiple=True, help="A line of the log; give several.")
@click.option("--file", metavar="FILE", help="A file of lines, or - for standard input.")
@click.option("--available-gib", metavar="GIB", help="Memory for the cache on each rank, as the engine printed it.")
@click.option("--max-len", type=WHOLE, help="Longest sequence that the server takes.")
@click.option(
    "--tensor-parallel", type=WHOLE, help="Ranks that share the KV heads; by default as the lines say, else 1."
)
@click.option(
    "--pipeline-parallel", type=WHOLE, help="Stages that share out the layers; by default as the lines say, else 1."
)
@click.option("--decode-context-parallel", type=WHOLE, default=1, help="Ranks that share out a sequence's tokens.")
@click.option("--kv-dtype", help="Format of the cache; by default as the lines say, else bf16.")
@click.option("--value-dtype", help="Format of the values, where it is another (llama.cpp).")
@click.option("--other-max-len", type=WHOLE, multiple=True, help="Another length to tell the pool for; give several.")
@click.option("--block-tokens", type=WHOLE, help="Tokens of a block or page.")
@click.option("--swap-gib", type=float, default=4, show_default=True, help="Swap space of vLLM V0.")
@click.option("--batched-tokens", type=WHOLE, help="vLLM: tokens scheduled at once.")
@click.option("--batches-in-flight", type=WHOLE, help="vLLM: batches scheduled ahead.")
@click.option("--draft-tokens", type=WHOLE, help="Tokens drafted ahead.")
@click.option("--state-dtype", help="vLLM: type of recurrent states.")
@click.option("--prefix-caching/--no-prefix-caching", default=None, help="vLLM: whether states are kept twice.")
@click.option("--slots", type=WHOLE, help="llama.cpp: sequences that share the context out.")
@click.option("--ubatch-tokens", type=WHOLE, help="llama.cpp: tokens computed at once.")
@as_json
def command(
    config: Path | None,
    preset: str | None,
    lines: tuple[str, ...],
    file: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Bytes per token, the rule behind a log line, and whether it is possible."""
    model = chosen_model(config, preset)
    found = explain_log(model, _text(lines, file), **options)
    answer = {
        "bytes_per_token": found.bytes_per_token,
        "rule": found.rule,
        "possible": found.possible,
        "slope_bytes_per_token": found.slope_bytes_per_token,
        "measured_bytes_per_token": found.measured_bytes_per_token,
        "pool_bytes": found.pool_bytes,
        "blocks": found.blocks,
        "tokens_at": [
            {
                "max_len": other.max_len,
                "tokens": other.tokens,
                "concurrency": other.concurrency,
                "pool_bytes": other.pool_bytes,
            }
            for other in found.other_lengths
        ],
        "other_rules": found.other_rules,
        "assumptions": found.assumptions,
        "guesses": found.guesses,
        "explanation": found.sentences,
        "engine": found.engine,
        "model": model.name,
        "warnings": list(model.warnings),
        "unread_fields": list(model.unread_fields),
    }
    show(answer, [*_lines(model.name, found), *model_remarks(model, model.warnings)], as_json)


def _text(lines: tuple[str, ...], file: str | None) -> str:
    """The lines that were given, and those of the file."""
    texts = list(lines)
    if file is not None:
        try:
            with click.open_file(file, encoding="utf-8", errors="replace") as opened:  # - is standard input
                texts.append(opened.read(MAX_CHARACTERS + 1))
        except OSError as problem:
            raise ValueError(f"file {file[:200]} cannot be read: {problem.strerror or problem}") from None
    if not texts:
        raise ValueError("give the lines of a log with --line or --file")
    return "\n".join(texts)


def _lines(name: str, found: Explanation) -> list[str]:
    measured = (
        []
        if found.measured_bytes_per_token is None
        else [f"stated memory over tokens {rate_text(*found.measured_bytes_per_token)}"]
    )
    slope = (
        []
        if found.slope_bytes_per_token == found.bytes_per_token
        else [f"a long sequence grows by {count_text(found.slope_bytes_per_token, 'bytes')} per token"]
    )
    return [
        f"{name}: {'possible' if found.possible else 'not possible'}",
        f"Rule  {found.rule}",
        f"Bytes per token, on one rank  {', '.join([count_text(found.bytes_per_token), *measured, *slope])}",
        *(f"Fits too  {rule}" for rule in found.other_rules),
        *found.sentences,
        *map(_at_length, found.other_lengths),
    ]


def _at_length(other: OtherLength) -> str:
    start = f"At a max_len of {count_text(other.max_len)}  "
    if other.pool_bytes is not None:
        return start + bytes_text(other.pool_bytes)
    return f"{start}{count_text(other.tokens, 'tokens')}, {other.concurrency:.2f} sequences of that length"
