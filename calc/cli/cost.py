"""python -m calc cost: the same run plain, cached, compacted and both, in tokens and dollars."""

import datetime

import click

from calc.caching import caching_rule
from calc.cli.options import PRICE, WHOLE, as_json, show
from calc.cost import PriceTier, with_prices
from calc.formats import count_text, usd_text
from calc.policies import LIFETIMES, POLICIES, AgentRun, run_ledger
from calc.prices import price_card

COLUMN = 17
"""Characters of a column."""


@click.command("cost")
@click.option("--model", required=True, help="Model to price as: its exact id in the price list.")
@click.option("--provider", help="Provider's id; by default the model's maker, else the only one that lists it.")
@click.option("--date", help="Day of the prices, YYYY-MM-DD; by default today (UTC).")
@click.option("--calls", type=WHOLE, required=True, help="Calls of the run.")
@click.option("--prefix", type=WHOLE, required=True, help="Fixed tokens at the start of every prompt.")
@click.option("--growth", type=WHOLE, required=True, help="Tokens that a call adds to the next prompt.")
@click.option(
    "--output",
    type=WHOLE,
    default=0,
    show_default=True,
    help="Tokens of each answer.",
)
@click.option("--block", type=WHOLE, help="Calls between two compactions; without it nothing is compacted.")
@click.option("--summary", type=WHOLE, default=0, show_default=True, help="Tokens of a summary.")
@click.option("--instruction", type=WHOLE, default=0, show_default=True, help="Tokens that ask for the summary.")
@click.option("--lifetime", default="5m", show_default=True, help=f"Life of a cache entry: {' or '.join(LIFETIMES)}.")
@click.option("--minimum", type=WHOLE, help="Shortest cached prefix, in place of the provider's.")
@click.option("--input-price", type=PRICE, help="USD per million tokens, in place of the card's.")
@click.option("--read-price", type=PRICE, help="The same for cache reads.")
@click.option("--write-price", type=PRICE, help="The same for 5-minute cache writes.")
@click.option("--write-1h-price", type=PRICE, help="The same for 1-hour cache writes.")
@click.option("--output-price", type=PRICE, help="The same for output.")
@as_json
def command(
    model: str,
    provider: str | None,
    date: str | None,
    calls: int,
    prefix: int,
    growth: int,
    output: int,
    block: int | None,
    summary: int,
    instruction: int,
    lifetime: str,
    minimum: int | None,
    input_price: float | None,
    read_price: float | None,
    write_price: float | None,
    write_1h_price: float | None,
    output_price: float | None,
    as_json: bool,
) -> None:
    """Tokens and dollars of a run under four policies, compaction calls included."""
    day = datetime.datetime.now(datetime.UTC).date() if date is None else date
    card = with_prices(
        price_card(model, provider=provider, date=day),
        uncached=input_price,
        cache_read=read_price,
        cache_write_5m=write_price,
        cache_write_1h=write_1h_price,
        output=output_price,
    )
    rule = caching_rule(card.provider, card.model, minimum_tokens=minimum)
    run = AgentRun(
        calls=calls,
        prefix=prefix,
        growth=growth,
        output=output,
        block=calls if block is None else block,
        summary=summary,
        instruction=instruction,
    )
    compacts = run.block < calls
    answer = {}
    headings = ("submitted tokens", "cache reads", "cache writes", "plain", "output", "USD")
    lines = ["policy   " + "".join(f" {heading:>{COLUMN}}" for heading in headings)]
    for policy in POLICIES:
        ledger = run_ledger(run, policy, rule, lifetime=lifetime, context_window=card.context_window)
        tokens, dollars = ledger.tokens, ledger.usd(card)
        answer[policy] = {
            "tokens": tokens.as_dict(),
            "submitted_tokens": tokens.prompt,
            "usd": float(dollars.total),
            "usd_by_class": {name: float(value) for name, value in dollars.as_dict().items()},
            "refused_call": ledger.refused_call,
        }
        written = tokens.cache_write_5m + tokens.cache_write_1h
        columns = [
            f"{count:,}" for count in (tokens.prompt, tokens.cache_read, written, tokens.uncached, tokens.output)
        ]
        lines.append(
            f"{policy:9}" + "".join(f" {column:>{COLUMN}}" for column in (*columns, usd_text(float(dollars.total))))
        )
        if ledger.refused_call is not None:
            lines.append(
                f"  stops: call {ledger.refused_call:,} does not fit the window of {count_text(card.context_window)}"
                " tokens; nothing after it is counted"
            )
    answer["card"] = {
        "model": card.model,
        "provider": card.provider,
        "date": card.date,
        "source": card.source,
        "url": card.url,
        "usd_per_mtok": [{"above_tokens": t.above_tokens, **t.usd_per_mtok.as_dict()} for t in card.tiers],
        "minimum_tokens": rule.minimum_tokens,
        "granularity_tokens": rule.granularity_tokens,
        "caching_stated": rule.stated,
        "caching_source": rule.source,
        "notes": list(card.notes),
    }
    lines += [
        f"Priced as {card.model} of {card.provider} ({card.source}){f', see {card.url}' if card.url else ''}",
        *(_tier_line(tier) for tier in card.tiers),
        f"Cached from {count_text(rule.minimum_tokens, 'tokens')} on, in steps of {count_text(rule.granularity_tokens)}"
        f" ({rule.source})" + ("" if rule.stated else "; not stated by the provider for this model"),
        f"Each call outputs {count_text(output, 'tokens')} (--output)",
        *([] if compacts else ["Nothing is compacted: --block is not given, or as long as the run"]),
        *card.notes,
    ]
    show(answer, lines, as_json)


def _tier_line(tier: PriceTier) -> str:
    where = f", whole prompts above {tier.above_tokens:,} tokens" if tier.above_tokens >= 0 else ""
    prices = ", ".join(f"{name} {price:g}" for name, price in tier.usd_per_mtok.as_dict().items())
    return f"USD per million tokens{where}: {prices}"
