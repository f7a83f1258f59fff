"""The four policies against a simulation of prompts as lists of tokens, and the published test vectors."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.caching import TEXTBOOK_RULE, CachingRule, caching_rule
from calc.cost import ByClass, card_by_hand
from calc.policies import POLICIES, AgentRun, run_ledger
from tests.test_caching import simulated

PRICES = ByClass(uncached=5.0, cache_read=0.5, cache_write_5m=6.25, cache_write_1h=10.0, output=25.0)
CARD = card_by_hand(PRICES, model="example", date="2026-11-30")
VECTOR = dict(calls=50, prefix=4000, growth=500, summary=1500, instruction=200)


def requests(run: AgentRun, compacts: bool):
    """Every prompt of the run as a list of distinct tokens, and whether it is a compaction call."""
    fresh = (f"t{i}" for i in range(10**6))
    take = lambda count: [next(fresh) for _ in range(count)]  # noqa: E731
    prefix, history = take(run.prefix), []
    for call in range(1, run.calls + 1):
        yield prefix + history, False
        history = history + take(run.growth)
        if compacts and call % run.block == 0 and call < run.calls:
            yield prefix + history + take(run.instruction), True
            history = take(run.summary)


small = st.integers(0, 9)
runs = st.builds(
    AgentRun,
    calls=st.integers(1, 9),
    prefix=small,
    growth=small,
    output=small,
    block=st.integers(1, 10),
    summary=small,
    instruction=small,
)


@given(runs, st.sampled_from(POLICIES), st.integers(0, 8), st.integers(1, 4))
@settings(max_examples=400, deadline=None)
def test_every_class_equals_the_simulation(run, policy, steps, granularity):
    minimum = steps * granularity
    rule = CachingRule(minimum_tokens=minimum, granularity_tokens=granularity, stated=True, source="this test")
    sent = list(requests(run, policy in ("compacted", "both")))
    ledger = run_ledger(run, policy, rule)
    assert ledger.prompt_tokens.tolist() == [len(prompt) for prompt, compaction in sent if not compaction]
    if policy in ("cached", "both"):
        split = list(simulated([prompt for prompt, _ in sent], minimum, granularity))
    else:
        split = [(0, 0, len(prompt)) for prompt, _ in sent]
    read, written, plain = (sum(column) for column in zip(*split))
    compactions = sum(compaction for _, compaction in sent)
    assert ledger.tokens == ByClass(
        uncached=plain,
        cache_read=read,
        cache_write_5m=written,
        output=run.output * run.calls + run.summary * compactions,
    )


def usd(policy, block, **changes):
    run = AgentRun(**{**VECTOR, "block": block, **changes})
    return run_ledger(run, policy, TEXTBOOK_RULE).usd(CARD).total


def test_the_published_vectors_come_out_exactly():
    assert usd("plain", 10) == pytest.approx(4.0625, rel=1e-12)
    assert usd("compacted", 10) == pytest.approx(2.219, rel=1e-12)
    assert usd("compacted", 9) == pytest.approx(2.2175, rel=1e-12)
    assert usd("cached", 10) == pytest.approx(0.570125, rel=1e-12)
    assert usd("both", 10) == pytest.approx(0.559875, rel=1e-12)
    assert usd("both", 5) == pytest.approx(0.78425, rel=1e-12)
    assert usd("both", 26) == pytest.approx(0.488, rel=1e-12)
    both = run_ledger(AgentRun(**VECTOR, block=10), "both", TEXTBOOK_RULE).tokens
    assert (both.cache_read, both.cache_write_5m) == (378_500, 35_300)


def test_best_block_lengths_of_the_vector():
    assert min(range(1, 51), key=lambda block: usd("compacted", block)) == 9
    assert min(range(1, 51), key=lambda block: usd("both", block)) == 26


@given(runs)
def test_with_reads_and_writes_at_the_input_price_a_cache_changes_nothing(run):
    flat = card_by_hand(
        ByClass(uncached=3.0, cache_read=3.0, cache_write_5m=3.0, cache_write_1h=3.0, output=15.0),
        model="flat",
        date="2026-11-30",
    )
    dollars = {policy: run_ledger(run, policy, TEXTBOOK_RULE).usd(flat).total for policy in POLICIES}
    assert dollars["cached"] == pytest.approx(dollars["plain"], rel=1e-12)
    assert dollars["both"] == pytest.approx(dollars["compacted"], rel=1e-12)


@given(runs, st.sampled_from(POLICIES), st.sampled_from(["5m", "1h"]))
def test_per_call_dollars_add_up_to_the_bill(run, policy, lifetime):
    ledger = run_ledger(run, policy, TEXTBOOK_RULE, lifetime=lifetime)
    assert ledger.usd_per_call(CARD).sum() == pytest.approx(ledger.usd(CARD).total, rel=1e-12, abs=1e-15)


def test_the_minimum_length_of_a_real_card_costs_visibly_more_than_the_textbook():
    # Calls 1 to 7 (2,000 ... 3,800 tokens) stay below 4,096: 20,300 plain tokens. From call 8 on prompts are stored:
    # written once 31,700, read 1,685,000 - 20,300 - 31,700 = 1,633,000.
    run = AgentRun(calls=100, prefix=2000, growth=300)
    real = run_ledger(run, "cached", caching_rule("anthropic", "claude-opus-4-6"))
    assert real.tokens == ByClass(uncached=20_300, cache_read=1_633_000, cache_write_5m=31_700)
    by_hand = (20_300 * 5 + 1_633_000 * 0.5 + 31_700 * 6.25) / 1e6
    assert real.usd(CARD).total == pytest.approx(by_hand, rel=1e-12)
    assert real.usd(CARD).total > 1.08 * run_ledger(run, "cached", TEXTBOOK_RULE).usd(CARD).total


def test_a_run_stops_at_the_first_call_that_the_window_refuses():
    run = AgentRun(calls=100, prefix=2000, growth=300, output=100, block=20, summary=1000)
    plain = run_ledger(run, "plain", TEXTBOOK_RULE, context_window=8_000)
    # A window is the largest prompt: 2,000 + 300 * 20 = 8,000 fits at call 21; call 22 does not.
    assert (plain.refused_call, len(plain.prompt_tokens), plain.largest_prompt) == (22, 21, 8_000)
    # The first compaction reads 8,000, the later ones 1,000 more.
    one = run_ledger(run, "compacted", TEXTBOOK_RULE, context_window=8_999)
    assert (one.refused_call, one.tokens.output) == (41, 40 * 100 + 1_000)
    none = run_ledger(run, "compacted", TEXTBOOK_RULE, context_window=7_999)
    assert (none.refused_call, none.tokens.output) == (21, 20 * 100)
    whole = run_ledger(run, "compacted", TEXTBOOK_RULE, context_window=9_000)
    assert (whole.refused_call, whole.largest_prompt) == (None, 9_000)


@given(runs, st.sampled_from(POLICIES))
def test_a_bill_is_exact_to_the_last_digit(run, policy):
    ledger = run_ledger(run, policy, TEXTBOOK_RULE)
    prices = {"uncached": "5", "cache_read": "0.5", "cache_write_5m": "6.25", "cache_write_1h": "10", "output": "25"}
    exact = sum(Fraction(prices[name]) * count for name, count in ledger.tokens.as_dict().items()) / 10**6
    assert ledger.usd(CARD).total == exact


def test_growth_per_call_may_be_a_list():
    steady = AgentRun(calls=4, prefix=10, growth=5, block=2, summary=3)
    listed = AgentRun(calls=4, prefix=10, growth=(5, 5, 5), block=2, summary=3)
    for policy in POLICIES:
        assert run_ledger(steady, policy, TEXTBOOK_RULE).tokens == run_ledger(listed, policy, TEXTBOOK_RULE).tokens


def test_unknown_policies_are_refused_with_near_names():
    with pytest.raises(LookupError, match="unknown policy 'cache'; did you mean cached?"):
        run_ledger(AgentRun(calls=1, prefix=1, growth=1), "cache", TEXTBOOK_RULE)


def test_sums_over_a_run_pass_int64_without_wrapping():
    # 1,000,000 prompts of 10^13 tokens: 10^19, more than int64 holds.
    ledger = run_ledger(AgentRun(calls=10**6, prefix=10**13, growth=0), "plain", TEXTBOOK_RULE)
    assert ledger.tokens.prompt == 10**19
    assert ledger.usd(CARD).total == 5 * 10**13


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"growth": [3, 3, 3]}, "growth must be one number or a list of calls - 1 = 4 numbers, got 3"),
        ({"calls": [5]}, "calls must be .* one number, got 1 of them"),
        ({"prefix": [10, 20]}, "prefix must be .* one number, got 2 of them"),
        ({"output": "3"}, "output must be a whole number"),
        ({"block": 0}, "block must be a whole number from 1"),
        ({"growth": -1}, "growth must be a whole number"),
    ],
)
def test_a_run_that_is_not_one_is_refused(changes, message):
    given_run = {"calls": 5, "prefix": 1, "growth": 1} | changes
    with pytest.raises(ValueError, match=message):
        AgentRun(**given_run)


def test_a_run_takes_whole_floats_arrays_and_ranges_as_what_they_are():
    run = AgentRun(calls=5.0, prefix=1, growth=range(4), block=2.0, summary=1)
    assert (run.calls, run.block, run.growth) == (5, 2, (0, 1, 2, 3))
    assert run_ledger(run, "both", TEXTBOOK_RULE).refused_call is None
