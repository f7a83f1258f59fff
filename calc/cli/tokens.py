"""python -m calc tokens: what a run submits, with and without compaction."""

import click

from calc.cli.options import WHOLE, as_json, show
from calc.formats import count_text
from calc.numeric import COUNT, POSITIVE_COUNT, require, require_all
from calc.tokens import (
    compacted_input_tokens,
    compaction_calls,
    compaction_read_tokens,
    compaction_written_tokens,
    last_call_tokens,
    submitted_input_tokens,
)


@click.command("tokens")
@click.option("--calls", type=WHOLE, required=True, help="Calls of the run.")
@click.option("--prefix", type=WHOLE, required=True, help="Fixed tokens at the start of every prompt.")
@click.option("--growth", type=WHOLE, required=True, help="Tokens that a call adds to the next prompt.")
@click.option("--block", type=WHOLE, help="Calls between two compactions; without it nothing is compacted.")
@click.option("--summary", type=WHOLE, default=0, show_default=True, help="Tokens of a summary.")
@click.option("--instruction", type=WHOLE, default=0, show_default=True, help="Tokens that ask for the summary.")
@as_json
def command(
    calls: int, prefix: int, growth: int, block: int | None, summary: int, instruction: int, as_json: bool
) -> None:
    """Tokens that an agent run submits."""
    require(calls, POSITIVE_COUNT, "calls")
    require_all(COUNT, summary=summary, instruction=instruction)
    answer = {
        "submitted_tokens": submitted_input_tokens(calls, prefix, growth),
        "last_call_tokens": last_call_tokens(calls, prefix, growth),
    }
    lines = [
        f"Submitted without compaction  {count_text(answer['submitted_tokens'], 'tokens')}",
        f"Last call                     {count_text(answer['last_call_tokens'], 'tokens')}",
    ]
    if block is not None:
        answer |= {
            "compacted_tokens": compacted_input_tokens(calls, prefix, growth, block, summary),
            "compaction_calls": compaction_calls(calls, block),
            "compaction_read_tokens": compaction_read_tokens(calls, prefix, growth, block, summary, instruction),
            "compaction_written_tokens": compaction_written_tokens(calls, block, summary),
        }
        lines += [
            f"Compacted every {block:,} calls".ljust(30) + count_text(answer["compacted_tokens"], "tokens"),
            f"  its {answer['compaction_calls']:,} compactions read".ljust(30)
            + count_text(answer["compaction_read_tokens"], "tokens"),
            "  and write".ljust(30) + count_text(answer["compaction_written_tokens"], "tokens"),
        ]
    show(answer, lines, as_json)
