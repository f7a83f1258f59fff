"""python -m calc flops: what prefill and decode compute at a context length."""

from pathlib import Path

import click

from calc.cli.options import WHOLE, as_json, chosen_model, model_options, model_remarks, show
from calc.flops import (
    attention_overtakes_at,
    counter_prefill_flops,
    decode_cache_read_bytes,
    decode_flops,
    prefill_flops,
)
from calc.formats import bytes_text, count_text, flops_text
from calc.kv_cache import context_warnings
from calc.numeric import count_up_to, require

MAX_CONTEXT = 10**12


@click.command("flops")
@model_options
@click.option("--tokens", type=WHOLE, required=True, help="Prompt tokens; decode runs on a cache of as many.")
@click.option("--cached", type=WHOLE, default=0, show_default=True, help="Tokens before the prompt, already cached.")
@as_json
def command(config: Path | None, preset: str | None, tokens: int, cached: int, as_json: bool) -> None:
    """FLOP of prefill and decode: attention and matrix products."""
    model = chosen_model(config, preset)
    require(tokens, count_up_to(MAX_CONTEXT, low=1), "tokens")
    require(cached, count_up_to(MAX_CONTEXT), "cached")
    prefill = prefill_flops(model, tokens, cached=cached)
    decode = decode_flops(model, cached + tokens)
    warnings = [*model.warnings, *context_warnings(model, cached + tokens)]
    answer = {
        "prefill_flops": prefill.total,
        "decode_flops_per_token": decode.total,
        "prefill_attention_flops": prefill.attention,
        "counter_prefill_flops": counter_prefill_flops(model, tokens, cached=cached).total,
        "prefill_matrix_flops": prefill.matrices,
        "decode_attention_flops_per_token": decode.attention,
        "decode_cache_read_bytes": decode_cache_read_bytes(model, cached + tokens),
        "attention_overtakes_at_tokens": attention_overtakes_at(model),
        "model": model.name,
        "warnings": warnings,
        "unread_fields": list(model.unread_fields),
    }
    on_top = f" on top of {count_text(cached)} cached" if cached else ""
    lines = [
        f"{model.name}, {count_text(tokens, 'tokens')}{on_top}",
        f"Prefill           {flops_text(prefill.total)} (attention {flops_text(prefill.attention)})",
        f"Decode, per token {flops_text(decode.total)} (attention {flops_text(decode.attention)}), "
        f"reads {bytes_text(answer['decode_cache_read_bytes'])} of bf16 cache",
        f"A FLOP counter reports {flops_text(answer['counter_prefill_flops'])} for this prefill: masked pairs and the "
        "logits of all tokens too",
        "Within its windows, attention never overtakes the matrix products"
        if answer["attention_overtakes_at_tokens"] is None
        else f"From an empty cache, attention overtakes the matrix products at "
        f"{count_text(answer['attention_overtakes_at_tokens'], 'tokens')}",
        *model_remarks(model, warnings),
    ]
    show(answer, lines, as_json)
