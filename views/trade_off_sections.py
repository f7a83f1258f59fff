"""The closed sections of the Trade-off page: call by call, by class, what serving takes, the card, the formulas."""

import pandas as pd
import streamlit as st

from calc.caching import CachingRule, hit_tokens
from calc.cost import CLASSES, LEDGER_EQUATION, PriceCard, cached_input_cost
from calc.flops import run_prefill_flops
from calc.formats import bytes_text, count_text, flops_text, usd_text
from calc.kv_cache import sequence_bytes
from calc.policies import Ledger
from calc.tokens import compacted_input_tokens, compaction_read_tokens, submitted_input_tokens
from views import charts, text
from views.inputs import Scenario

NAMES = {"plain": "Plain", "cached": "Cached", "compacted": "Compacted", "both": "Both"}


def render_sections(scenario: Scenario, card: PriceCard, rule: CachingRule, ledgers: dict[str, Ledger]) -> None:
    """Draws the sections; each is computed when it is opened."""
    text.section("Call by call: prompt size and dollars", "open_calls", lambda: _call_by_call(card, ledgers))
    text.section("Where the dollars go, by token class", "open_classes", lambda: _by_class(card, ledgers))
    text.section("What serving it holds and computes", "open_served", lambda: _served(scenario, ledgers))
    text.section("The price card and the caching rule", "open_card", lambda: _card_section(card, rule))
    text.section("The formulas with these numbers", "open_formulas", lambda: _formulas(scenario, card, rule, ledgers))
    text.section("What is assumed", "open_assumed", _assumptions)


def _call_by_call(card: PriceCard, ledgers: dict[str, Ledger]) -> None:
    styles = {NAMES[policy]: style for policy, style in charts.POLICY_STYLES.items()}
    numbers = {policy: range(1, len(ledger.prompt_tokens) + 1) for policy, ledger in ledgers.items()}
    sizes = {"Without compaction": "plain", "With compaction": "compacted"}
    text.chart(
        charts.lines(
            {name: (numbers[policy], ledgers[policy].prompt_tokens) for name, policy in sizes.items()},
            {name: charts.POLICY_STYLES[policy] for name, policy in sizes.items()},
            title="Prompt size of each call",
            x_title="Call",
            y_title="Tokens",
        ),
        key="prompt_sizes",
        alt="Prompt size of each call, with and without compaction",
    )
    text.chart(
        charts.lines(
            {NAMES[policy]: (numbers[policy], ledger.usd_per_call(card)) for policy, ledger in ledgers.items()},
            styles,
            title="Dollars of each call",
            x_title="Call",
            y_title="USD",
            y_prefix="$",
        ),
        key="dollars_per_call",
        alt="Dollars of each call, one line per policy; a compaction's are added to the call before it",
    )
    st.caption("A compaction's dollars are added to the call that it follows.")
    length = max(len(ledger.prompt_tokens) for ledger in ledgers.values())
    frame = pd.DataFrame({"Call": range(1, length + 1)})
    for policy, ledger in ledgers.items():
        for name in CLASSES:
            label = charts.CLASS_STYLES[name][0].lower()
            frame[f"{NAMES[policy]}: {label}"] = pd.Series(getattr(ledger.calls, name))
        frame[f"{NAMES[policy]}: USD"] = pd.Series(ledger.usd_per_call(card))
    text.table(frame, key="calls", alt="Tokens by class and dollars of every call")


def _by_class(card: PriceCard, ledgers: dict[str, Ledger]) -> None:
    names = [NAMES[policy] for policy in ledgers]
    usd = [ledger.usd(card) for ledger in ledgers.values()]
    text.chart(
        charts.stacked_bars(
            names,
            {key: [float(getattr(bill, key)) for bill in usd] for key in charts.CLASS_STYLES},
            title="Dollars of the run by token class",
            y_title="USD",
            y_prefix="$",
        ),
        key="dollars_by_class",
        alt="Dollars of the run by token class, one bar per policy",
    )
    tokens = [ledger.tokens for ledger in ledgers.values()]
    text.chart(
        charts.stacked_bars(
            names,
            {key: [getattr(count, key) for count in tokens] for key in charts.CLASS_STYLES},
            title="Tokens of the run by class",
            y_title="Tokens",
        ),
        key="tokens_by_class",
        alt="Tokens of the run by class, one bar per policy",
    )


def _served(scenario: Scenario, ledgers: dict[str, Ledger]) -> None:
    run, model = scenario.run, scenario.model
    largest = {policy: ledgers[policy].largest_prompt for policy in ("plain", "compacted")}
    st.markdown(
        f"Served as **{model.name}** with a {scenario.kv_dtype} cache. The provider's own model may differ: a closed "
        "model's memory and FLOP are not known."
    )
    text.headline(
        [
            (
                f"KV cache, {name}",
                bytes_text(sequence_bytes(model, largest[policy], kv_dtype=scenario.kv_dtype)),
                f"Of one conversation at its largest prompt, {count_text(largest[policy], 'tokens')}.",
            )
            for name, policy in (("no compaction", "plain"), ("with compaction", "compacted"))
        ]
    )
    if not isinstance(run.growth, int) or run.prefix == 0:
        st.caption("The FLOP of the run are shown for a prefix of at least one token.")
        return
    flops = run_prefill_flops(model, run.calls, run.prefix, run.growth)
    frame = pd.DataFrame(
        [
            {
                "Prefill of the run, no compaction": name,
                "Attention": flops_text(part.attention),
                "Matrix products": flops_text(part.matrices),
                "Total": flops_text(part.total),
                "Of plain": part.total / flops.without_reuse.total,
            }
            for name, part in (
                ("every call computes its whole prompt", flops.without_reuse),
                ("the cached prefix is reused", flops.with_reuse),
            )
        ]
    )
    text.table(frame, "run_flops", "FLOP of the run with and without reuse", formats={"Of plain": "percent"})
    st.caption(
        "Without reuse, attention grows with the cube of the calls and matrix products with their square; with reuse, "
        "with the square and in proportion."
    )


def _card_section(card: PriceCard, rule: CachingRule) -> None:
    boundaries = [tier.above_tokens for tier in card.tiers[1:]]
    sizes = ["all prompts"] if not boundaries else [f"up to {boundaries[0]:,} tokens"]
    sizes += [f"above {boundary:,} tokens" for boundary in boundaries]
    frame = pd.DataFrame(
        [{"Prompt": size, **tier.usd_per_mtok.as_dict()} for size, tier in zip(sizes, card.tiers, strict=True)]
    ).rename(columns={key: label for key, (label, _, _) in charts.CLASS_STYLES.items()})
    st.caption("USD per million tokens; the whole prompt picks the row.")
    text.table(
        frame,
        key="card",
        alt="Price of each token class by prompt size",
        formats={name: "%.4g" for name in frame.columns[1:]},
    )
    window = "not in the price list" if card.context_window is None else count_text(card.context_window, "tokens")
    stated = "" if rule.stated else " These numbers are not stated by the provider for this model."
    text.bullet_list(
        [
            f"Source: {text.text_only(card.source)}." + (f" The provider's page: <{card.url}>." if card.url else ""),
            f"Context window: {window}.",
            f"Caching: a shared prefix counts from {count_text(rule.minimum_tokens, 'tokens')} on, in steps of "
            f"{count_text(rule.granularity_tokens, 'tokens')}. Source: {text.text_only(rule.source)}.{stated}",
            *card.notes,
        ]
    )


def _formulas(scenario: Scenario, card: PriceCard, rule: CachingRule, ledgers: dict[str, Ledger]) -> None:
    run, prices = scenario.run, card.usd_per_mtok
    cached = ledgers["cached"]
    submitted = submitted_input_tokens(run.calls, run.prefix, run.growth)
    text.equation(
        submitted_input_tokens,
        f"N = {run.prefix:,} x {run.calls:,} + {run.growth:,} x {run.calls:,} x {run.calls - 1:,} / 2 = "
        f"{submitted:,} tokens submitted without compaction.",
    )
    compacted = compacted_input_tokens(run.calls, run.prefix, run.growth, run.block, run.summary)
    text.equation(
        compacted_input_tokens,
        f"Q = {run.calls // run.block:,} blocks of K = {run.block:,} calls and s = {run.calls % run.block:,} more, "
        f"c = {run.summary:,}: {compacted:,} tokens in the run's own calls.",
    )
    read = compaction_read_tokens(run.calls, run.prefix, run.growth, run.block, run.summary, run.instruction)
    text.equation(
        compaction_read_tokens,
        f"The compaction calls read {read:,} tokens more: {compacted + read:,} submitted in all.",
    )
    text.equation(
        hit_tokens,
        f"Minimum {rule.minimum_tokens:,}, step {rule.granularity_tokens:,}: the cached run reads "
        f"{cached.tokens.cache_read:,} of its {cached.tokens.prompt:,} input tokens.",
    )
    h = cached.tokens.cache_read / cached.tokens.prompt if cached.tokens.prompt else 0.0
    two_classes = cached_input_cost(cached.tokens.prompt, h, prices.uncached, prices.cache_read)
    bill = float(cached.usd(card).prompt)
    text.equation(
        cached_input_cost,
        f"h = {h:.6f} follows from the run. This form of two classes gives {usd_text(two_classes)} for the input; the bill "
        f"gives {usd_text(bill)}, since writing to the cache has a price of its own"
        f"{' and larger prompts have higher ones' if len(card.tiers) > 1 else ''}:",
    )
    st.latex(LEDGER_EQUATION)
    for policy, ledger in ledgers.items():
        st.markdown(text.text_only(f"{NAMES[policy]}: {_sum_of_classes(ledger, card)}"))


def _sum_of_classes(ledger: Ledger, card: PriceCard) -> str:
    """A bill as the sum that it is: tokens times price by class, or dollars by class where tiers mix prices."""
    tokens, dollars = ledger.tokens, ledger.usd(card)
    names = [name for name in CLASSES if getattr(tokens, name)]
    if len(card.tiers) == 1:
        parts = [f"{getattr(tokens, name):,} x {getattr(card.usd_per_mtok, name):g}" for name in names]
        return f"({' + '.join(parts)}) / 1,000,000 = {float(dollars.total):,.6f} USD"
    parts = [f"{float(getattr(dollars, name)):,.6f} ({charts.CLASS_STYLES[name][0].lower()})" for name in names]
    return f"{' + '.join(parts)} = {float(dollars.total):,.6f} USD, each call priced in the tier of its prompt"


def _assumptions() -> None:
    text.bullet_list(
        [
            "Exact: tokens of every class, and dollars under the card shown, to the cent.",
            "The history only grows at its end, so that each call shares the whole prompt before it. A timestamp in the "
            "system text or a changed tool breaks this, and the cache with it.",
            "Calls follow each other within the life of a cache entry: nothing expires.",
            "The fixed prefix stays cached through a compaction. The compaction call sends the whole context and reads "
            "what is cached of it.",
            "All that a call adds is new input of the next call, the model's own output included, as providers bill it.",
            "A run stops at the first prompt that is larger than the context window; nothing after it is counted.",
            "Not counted: tool fees, batch or priority prices, taxes, storage fees of explicit caches, and the price of "
            "what a compaction forgets.",
        ]
    )
