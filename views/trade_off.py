"""Trade-off: should this agent cache its prompt, compact its history, both or neither?"""

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from calc.cost import PriceCard
from calc.formats import count_text, usd_text
from calc.policies import POLICIES, Ledger, run_ledger
from views import charts, inputs, layout, text
from views.inputs import Scenario
from views.pricing import scenario_card, scenario_rule
from views.trade_off_sections import NAMES, render_sections

WHAT = {
    "plain": "neither caching nor compacting",
    "cached": "caching the prompt",
    "compacted": "compacting the history",
    "both": "caching and compacting",
}


def render(scenario: Scenario, answer: DeltaGenerator) -> None:
    """Draws the answer, the first view and the closed sections."""
    card = scenario_card(scenario)
    rule = scenario_rule(scenario, card)
    ledgers = {
        policy: run_ledger(scenario.run, policy, rule, lifetime=scenario.lifetime, context_window=card.context_window)
        for policy in POLICIES
    }
    dollars = {policy: float(ledger.usd(card).total) for policy, ledger in ledgers.items()}
    with answer:
        _verdict(scenario, card, ledgers, dollars)
    _first_view(card, ledgers, dollars)
    render_sections(scenario, card, rule, ledgers)


def _settings() -> None:
    with st.expander("Prices, served model, summary and output", key="open_prices", on_change="rerun") as section:
        if section.open:
            inputs.row(inputs.CARD, inputs.DATE, inputs.SERVED_AS, inputs.LIFETIME)
            inputs.row(inputs.OUTPUT, inputs.SUMMARY, inputs.INSTRUCTION, inputs.MINIMUM)
            st.caption("Prices typed by hand, in USD per million tokens; empty means as listed on the card.")
            inputs.row(*inputs.PRICES.values())
    inputs.own_config()


def _verdict(scenario: Scenario, card: PriceCard, ledgers: dict[str, Ledger], dollars: dict[str, float]) -> None:
    finished = [policy for policy in POLICIES if ledgers[policy].refused_call is None]
    if not finished:
        text.answer(
            f"No policy finishes this run: the window of {count_text(card.context_window, 'tokens')} refuses call "
            f"{min(ledger.refused_call for ledger in ledgers.values()):,} or one after it."
        )
    elif "plain" not in finished:
        best = min(finished, key=lambda policy: dollars[policy])
        text.answer(
            f"The cheapest way to finish is {WHAT[best]}: {text.money(dollars[best])} for a run of "
            f"{count_text(scenario.run.calls, 'calls')}. Without compaction it stops: call "
            f"{ledgers['plain'].refused_call:,} does not fit the window of {count_text(card.context_window, 'tokens')}."
        )
    else:
        text.answer(_comparison(scenario, ledgers, dollars))
    run = scenario.run
    st.caption(
        f"**Priced as** {card.provider}/{card.model}: {text.text_only(card.source)}. **Served as** "
        f"{text.text_only(scenario.model.name)}. Each call outputs {count_text(run.output, 'tokens')}, a summary has "
        f"{count_text(run.summary)}. This counts money only: what a compaction forgets has its price elsewhere."
    )


def _comparison(scenario: Scenario, ledgers: dict[str, Ledger], dollars: dict[str, float]) -> str:
    """What caching alone saves, which loses nothing, and what compaction, which does, adds to it or costs."""
    plain, cached, compacted, both = (dollars[policy] for policy in POLICIES)
    calls = count_text(scenario.run.calls, "calls")
    if cached < plain:
        first = (
            f"Caching alone costs {text.money(cached)} per run of {calls}, {_less(cached, plain)} than doing neither "
            f"({text.money(plain)}), and loses nothing."
        )
        with_compaction, without, again = both, cached, "Compacting as well"
    else:
        first = f"Doing neither costs {text.money(plain)} per run of {calls}; caching does not pay."
        with_compaction, without, again = compacted, plain, "Compacting"
    count = len(ledgers["compacted"].compaction_after)
    if not count:
        return f"{first} Nothing is compacted: the run ends before the first compaction."
    times = f"{count_text(count, 'compactions')}, each of which loses detail"
    if with_compaction < without:
        return f"{first} {again} saves {text.money(without - with_compaction)} more, with {times}."
    return f"{first} {again} would cost {text.money(with_compaction - without)} more, with {times}."


def _less(dollars: float, than: float) -> str:
    if not than:
        return "no less"
    percent = 100 * (1 - dollars / than)
    return f"{percent:.0f} % less" if percent < 99.5 else "more than 99 % less"


def _first_view(card: PriceCard, ledgers: dict[str, Ledger], dollars: dict[str, float]) -> None:
    text.headline(
        [
            (
                NAMES[policy],
                text.money(dollars[policy]) if ledger.refused_call is None else f"stops at {ledger.refused_call:,}",
                f"{WHAT[policy].capitalize()}: "
                + (
                    "dollars of the whole run, compaction calls included."
                    if ledger.refused_call is None
                    else f"call {ledger.refused_call:,} does not fit the context window; {usd_text(dollars[policy])} so far."
                ).replace("$", "\\$"),
            )
            for policy, ledger in ledgers.items()
        ]
    )
    text.chart(
        charts.lines(
            {
                NAMES[policy]: (range(1, len(ledger.prompt_tokens) + 1), ledger.usd_per_call(card).cumsum())
                for policy, ledger in ledgers.items()
                if len(ledger.prompt_tokens)
            },
            {NAMES[policy]: style for policy, style in charts.POLICY_STYLES.items()},
            title="Dollars so far, compaction calls included",
            x_title="Call",
            y_title="USD",
            y_prefix="$",
        ),
        key="cumulative_dollars",
        alt="Cumulative dollars of the run by call, one line per policy",
    )
    text.table(
        _table(ledgers, dollars),
        key="policies",
        alt="Tokens by class and dollars of the four policies",
        formats={"USD": "%,.4f", "Of plain": "percent"},
    )


def _table(ledgers: dict[str, Ledger], dollars: dict[str, float]) -> pd.DataFrame:
    plain_finishes = ledgers["plain"].refused_call is None
    rows = []
    for policy, ledger in ledgers.items():
        tokens = ledger.tokens
        rows.append(
            {
                "Policy": NAMES[policy],
                "USD": dollars[policy],
                "Of plain": dollars[policy] / dollars["plain"] if plain_finishes and dollars["plain"] else None,
                "Submitted tokens": tokens.prompt,
                "Cache reads": tokens.cache_read,
                "Cache writes": tokens.cache_write_5m + tokens.cache_write_1h,
                "Plain input": tokens.uncached,
                "Output": tokens.output,
                "Largest prompt": ledger.largest_prompt,
                "Stops at call": ledger.refused_call,
            }
        )
    frame = pd.DataFrame(rows).dropna(axis="columns", how="all")
    if "Stops at call" in frame:
        frame["Stops at call"] = frame["Stops at call"].map(
            lambda call: "finishes" if pd.isna(call) else f"{call:,.0f}"
        )
    return frame


layout.page(
    "Cache, compact, both or neither?",
    first=(inputs.CALLS, inputs.PREFIX, inputs.GROWTH, inputs.BLOCK),
    settings=_settings,
    render=render,
)
