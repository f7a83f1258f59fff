"""Dollars against cards and bills worked out by hand."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.cost import (
    CLASSES,
    ByClass,
    PriceCard,
    PriceTier,
    cached_input_cost,
    cached_input_cost_slope,
    card_by_hand,
    reuse_saving,
    usd_by_class,
    with_prices,
)

OPUS = ByClass(uncached=5.0, cache_read=0.5, cache_write_5m=6.25, cache_write_1h=10.0, output=25.0)
counts = st.integers(0, 10**7)
prices = st.integers(0, 10**4).map(lambda cents: cents / 100)


def card(*tiers):
    return PriceCard(
        model="example",
        provider="test",
        date="2026-11-30",
        tiers=tuple(PriceTier(above_tokens=above, usd_per_mtok=rates) for above, rates in tiers),
        caches=True,
        context_window=None,
        source="this test",
    )


@given(counts, st.integers(0, 100), st.integers(0, 5000), st.integers(0, 5000))
def test_the_two_class_cost_equals_rational_arithmetic(tokens, percent, plain_cents, cached_cents):
    h, p_u, p_c = Fraction(percent, 100), Fraction(plain_cents, 100), Fraction(cached_cents, 100)
    exact = tokens * ((1 - h) * p_u + h * p_c) / 10**6
    assert cached_input_cost(tokens, percent / 100, float(p_u), float(p_c)) == pytest.approx(float(exact), rel=1e-12)


@given(counts, prices, prices)
def test_the_slope_is_the_difference_between_all_cached_and_none(tokens, plain, cached):
    exact = tokens * (Fraction(cached) - Fraction(plain)) / 10**6
    assert cached_input_cost_slope(tokens, plain, cached) == pytest.approx(float(exact), rel=1e-9, abs=1e-12)
    assert reuse_saving(tokens, plain, cached) == -cached_input_cost_slope(tokens, plain, cached)


@given(counts, counts, prices, prices)
def test_the_two_class_cost_is_the_bill_without_writes(read, plain, p_u, p_c):
    bill = usd_by_class(ByClass(uncached=plain, cache_read=read), card((-1, ByClass(uncached=p_u, cache_read=p_c))))
    total = read + plain
    h = read / total if total else 0.0
    assert bill.total == pytest.approx(cached_input_cost(total, h, p_u, p_c), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("tokens", "rates", "usd"),
    [  # public bills; sources: langfuse claude-observability-plugin#34, oh-my-pi#6876, pi#5738, litellm#35127
        (ByClass(cache_write_1h=37_175), ByClass(cache_write_1h=20), 0.7435),
        (ByClass(cache_write_1h=344_139), OPUS, 3.44139),
        (ByClass(cache_write_5m=600_000, cache_write_1h=400_000), OPUS, 7.75),
        (
            ByClass(uncached=14_000, cache_read=155_000, cache_write_5m=3_000),
            ByClass(uncached=5, cache_read=0.5, cache_write_5m=6.25, output=30),
            0.16625,
        ),
    ],
)
def test_public_bills_come_out(tokens, rates, usd):
    assert usd_by_class(tokens, card((-1, rates))).total == pytest.approx(usd, rel=1e-12)


def test_the_whole_prompt_picks_the_tier_and_the_boundary_is_in_the_lower_one():
    doubled = ByClass(**{name: 2 * price for name, price in OPUS.as_dict().items()})
    tiered = card((-1, OPUS), (200_000, doubled))
    # 10k fresh and the rest read: only the whole prompt is above 200k.
    calls = ByClass(uncached=10_000, cache_read=np.array([189_999, 190_000, 190_001]), output=1)
    reads = usd_by_class(calls, tiered).cache_read
    assert reads == pytest.approx([189_999 * 0.5e-6, 190_000 * 0.5e-6, 190_001 * 1e-6], rel=1e-12)
    outputs = usd_by_class(calls, tiered).output
    assert outputs == pytest.approx([25e-6, 25e-6, 50e-6], rel=1e-12)


@given(st.sampled_from(CLASSES), counts, counts)
def test_more_tokens_of_one_class_never_cost_less(name, tokens, more):
    one = card((-1, OPUS), (200_000, ByClass(**{n: 2 * p for n, p in OPUS.as_dict().items()})))
    less = usd_by_class(ByClass(**{name: tokens}), one).total
    assert usd_by_class(ByClass(**{name: tokens + more}), one).total >= less


def test_prices_typed_by_hand_replace_the_card_s_and_say_so():
    changed = with_prices(card_by_hand(OPUS, model="x", date="2026-01-01"), cache_read=0.25, output=None)
    assert changed.usd_per_mtok.cache_read == 0.25
    assert changed.usd_per_mtok.output == 25.0
    assert "typed by hand: cache_read 0.25 USD/MTok" in changed.source


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf"), "5"])
def test_a_bad_price_is_named(bad):
    with pytest.raises(ValueError, match="price of output must be a number from 0 to 1,000,000,000,000, got"):
        with_prices(card_by_hand(OPUS, model="x", date="2026-01-01"), output=bad)
    with pytest.raises(ValueError, match="usd_per_mtok must be a number from 0 to 1,000,000,000,000, got"):
        cached_input_cost(1, 0.5, bad, 1)


def test_a_fraction_outside_zero_to_one_is_named():
    with pytest.raises(ValueError, match="cached_fraction must be a number from 0 to 1, got 1.5"):
        cached_input_cost(1, 1.5, 5, 1)
