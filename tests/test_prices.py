"""Price cards against published prices, bills worked out by hand, and the price library's own arithmetic."""

import datetime
from decimal import Decimal
from importlib.metadata import version

import genai_prices
import pytest
from genai_prices import data_snapshot
from hypothesis import example, given, settings
from hypothesis import strategies as st

from calc.cost import CLASSES, ByClass, usd_by_class
from calc.names import UnknownName
from calc.prices import price_card, price_library, priced_models

DAY = "2026-11-30"  # a Monday: 12:00 UTC is off-peak at DeepSeek

PUBLISHED = {  # facts/caching_and_cost.md, "Price anchors": input, read, 5-minute write, 1-hour write, output
    "claude-opus-5-5": {-1: (4, 0.20, 5, 8, 20)},
    "claude-sonnet-5-5": {-1: (2, 0.10, 2.5, 4, 10)},
    "claude-fable-5-2": {-1: (8, 0.20, 10, 16, 40)},
    "claude-haiku-5-5": {-1: (0.10, 0.01, 0.125, 0.2, 0.50), 100_000: (0.5, 0.05, 0.625, 1, 2.5)},
    "claude-opus-4-6": {-1: (5, 0.50, 6.25, 10, 25)},
    "claude-opus-4-8": {-1: (5, 0.50, 6.25, 10, 25)},
    "claude-opus-5": {-1: (5, 0.50, 6.25, 10, 25)},
    "gpt-5.6-sol": {-1: (4, 0.40, 5, 5, 20), 272_000: (8, 0.8, 10, 10, 30)},
    "gpt-5.4": {-1: (2.5, 0.25, 2.5, 2.5, 15), 272_000: (5, 0.5, 5, 5, 22.5)},
    "gemini-3.1-pro-preview": {-1: (2, 0.20, 2, 2, 12), 200_000: (4, 0.4, 4, 4, 18)},
    "deepseek-v4-pro": {-1: (0.66, 0.022, 0.66, 0.66, 1.98)},
    "grok-4.7": {-1: (2, 0.50, 2, 2, 6), 199_999: (4, 1, 4, 4, 12)},
}
"""Prices by the prompt above which they hold, in USD per million tokens; a write without a price is input."""

BY_HAND = [  # the same document, section 3: 100k read, 5k written, 2k plain, 1k output
    ("claude-opus-5-5", 0.020 + 0.025 + 0.008 + 0.020, 0.073),
    ("claude-sonnet-5-5", 0.010 + 0.0125 + 0.004 + 0.010, 0.0365),
    ("claude-haiku-5-5", 0.005 + 0.003125 + 0.001 + 0.0025, 0.011625),
    ("gpt-5.6-sol", 0.040 + 0.025 + 0.008 + 0.020, 0.093),
    ("gemini-3.1-pro-preview", 0.020 + 0.014 + 0.012, 0.046),
    ("grok-4.7", 0.050 + 0.014 + 0.006, 0.070),
    ("deepseek-v4-pro", 0.0022 + 0.00462 + 0.00198, 0.0088),
]

AGREEING = (
    "anthropic/claude-opus-4-6",
    "anthropic/claude-opus-5-5",
    "anthropic/claude-fable-5-2",
    "anthropic/claude-sonnet-4-5",
    "anthropic/claude-sonnet-4-6",
    "anthropic/claude-haiku-4-5",
    "anthropic/claude-haiku-5-5",
    "anthropic/claude-2",
    "aws/regional.anthropic.claude-opus-4-6-v1:0",
    "azure/o4-mini",
    "cerebras/gpt-oss-120b",
    "deepseek/deepseek-v4-pro",
    "deepseek/deepseek-chat",
    "google/claude-opus-4-6",
    "google/gemini-2.5-pro",
    "google/gemini-3.1-pro-preview",
    "google/gemini-4-argon",
    "google/gemini-1.5-flash",
    "groq/llama-3.3-70b-versatile",
    "minimax/minimax-m3",
    "mistral/mistral-large-2512",
    "moonshotai/kimi-k3",
    "openai/gpt-4o",
    "openai/gpt-5.4",
    "openai/gpt-5.6-sol",
    "openai/gpt-6-luna",
    "openai/o3",
    "openrouter/anthropic/claude-opus-4.6",
    "x-ai/grok-4.7",
    "x-ai/grok-4.20",
    "zhipuai/GLM-5",
    "quicksilverpro/claude-opus-5",
)
"""Cards with and without tiers, write prices and read prices, at makers and at resellers."""


def snapshot_model(card_id):
    """The price library's own entry of a card, found without the code under test."""
    provider, _, model = card_id.partition("/")
    (owner,) = [entry for entry in data_snapshot.get_snapshot().providers if entry.id == provider]
    (entry,) = [entry for entry in owner.models if entry.id == model]
    return owner, entry


def library_price(card_id, tokens: ByClass, day):
    owner, entry = snapshot_model(card_id)
    usage = genai_prices.Usage(
        input_tokens=tokens.prompt,
        cache_read_tokens=tokens.cache_read,
        cache_write_tokens=tokens.cache_write_5m + tokens.cache_write_1h,
        cache_write_1h_tokens=tokens.cache_write_1h,
        output_tokens=tokens.output,
    )
    noon = datetime.datetime.combine(day, datetime.time(12), tzinfo=datetime.UTC)
    return entry.calc_price(usage, owner, genai_request_timestamp=noon)


def usd(model, *, date=DAY, **tokens):
    return usd_by_class(ByClass(**tokens), price_card(model, date=date)).total


@pytest.mark.parametrize(("model", "tiers"), PUBLISHED.items())
def test_a_card_holds_the_published_prices(model, tiers):
    card = price_card(model, date=DAY)
    found = {tier.above_tokens: tuple(tier.usd_per_mtok.as_dict().values()) for tier in card.tiers}
    assert found == tiers


@pytest.mark.parametrize(("model", "parts", "total"), BY_HAND)
def test_a_bill_worked_out_by_hand_comes_out(model, parts, total):
    bill = usd(model, uncached=2_000, cache_read=100_000, cache_write_5m=5_000, output=1_000)
    assert bill == pytest.approx(total, rel=1e-12)
    assert bill == pytest.approx(parts, rel=1e-12)


@pytest.mark.parametrize(
    ("model", "largest_short_prompt", "short", "long"),
    [
        ("grok-4.7", 199_999, 2, 4),
        ("gemini-3.1-pro-preview", 200_000, 2, 4),
        ("gpt-5.4", 272_000, 2.5, 5),
        ("gpt-5.6-sol", 272_000, 4, 8),
        ("claude-haiku-5-5", 100_000, 0.1, 0.5),
    ],
)
def test_a_prompt_at_the_boundary_is_long_only_where_the_provider_says_so(model, largest_short_prompt, short, long):
    for prompt, price in (
        (largest_short_prompt - 1, short),
        (largest_short_prompt, short),
        (largest_short_prompt + 1, long),
        (largest_short_prompt + 2, long),
    ):
        assert usd(model, uncached=prompt) == pytest.approx(prompt * price / 1e6, rel=1e-12)
        # Reads and writes fill the prompt too; the class that is looked at has one token.
        assert usd_by_class(
            ByClass(uncached=1, cache_read=prompt - 1), price_card(model, date=DAY)
        ).uncached == pytest.approx(price / 1e6, rel=1e-12)


def test_long_prompts_double_the_published_prices_of_grok():
    short, long = (usd("grok-4.7", uncached=size, output=1000) for size in (199_999, 200_000))
    assert short == pytest.approx((199_999 * 2 + 1000 * 6) / 1e6, rel=1e-12)
    assert long == pytest.approx((200_000 * 4 + 1000 * 12) / 1e6, rel=1e-12)


def test_a_long_gemini_prompt_costs_the_published_sum():
    # The same document: 0.162 at 207k tokens, here 190k read, 15k written (as input), 2k plain and 1k output.
    bill = usd("gemini-3.1-pro-preview", uncached=2_000, cache_read=190_000, cache_write_5m=15_000, output=1_000)
    assert bill == pytest.approx(0.076 + 0.060 + 0.008 + 0.018, rel=1e-12)
    assert bill == pytest.approx(0.162, rel=1e-12)


def test_sonnet_4_6_lost_its_long_context_price_on_2026_03_13():
    assert usd("claude-sonnet-4-6", date="2026-03-12", uncached=300_000) == pytest.approx(1.80, rel=1e-12)
    assert usd("claude-sonnet-4-6", date="2026-03-13", uncached=300_000) == pytest.approx(0.90, rel=1e-12)


def test_writes_of_both_lifetimes_have_their_own_price():
    assert usd("claude-opus-4-8", cache_write_5m=600_000, cache_write_1h=400_000) == pytest.approx(7.75, rel=1e-12)


def test_gemini_4_argon_doubles_on_2026_12_01():
    before, after = (price_card("gemini-4-argon", date=day).usd_per_mtok for day in (DAY, "2026-12-01"))
    assert after.as_dict() == {name: 2 * price for name, price in before.as_dict().items()}
    assert before.uncached > 0


def test_prices_that_change_with_the_hour_are_those_of_noon_and_the_card_says_so():
    _, entry = snapshot_model("deepseek/deepseek-v4-pro")
    peak = entry.get_prices(datetime.datetime(2026, 11, 30, 2, tzinfo=datetime.UTC)).input_mtok
    card = price_card("deepseek-v4-pro", date=DAY)
    assert peak == 2 * Decimal("0.66")
    assert card.usd_per_mtok.uncached == 0.66
    assert any("change with the hour" in note and "12:00 UTC" in note for note in card.notes)
    assert not any("change with the hour" in note for note in price_card("claude-opus-4-6", date=DAY).notes)


counts = st.one_of(st.integers(0, 10**6), st.sampled_from((0, 1, 100_000, 199_999, 200_000, 200_001, 272_000)))
usages = st.builds(ByClass, **{name: counts for name in CLASSES})
days = st.dates(datetime.date(2026, 1, 1), datetime.date(2027, 6, 30))


@pytest.mark.parametrize("card_id", AGREEING)
@given(usages, days)
@example(ByClass(uncached=200_000), datetime.date(2026, 3, 12))
@example(ByClass(cache_read=200_000, uncached=1), datetime.date(2026, 3, 13))
@example(ByClass(cache_write_1h=300_000, output=10), datetime.date(2026, 11, 30))
@example(ByClass(cache_write_5m=300_000, output=10), datetime.date(2026, 11, 30))
@example(ByClass(output=10), datetime.date(2026, 11, 30))
@settings(max_examples=40, deadline=None)
def test_a_bill_is_what_the_price_library_itself_charges(card_id, tokens, day):
    bill = usd_by_class(tokens, price_card(card_id, date=day))
    charged = library_price(card_id, tokens, day)
    assert bill.total == pytest.approx(float(charged.total_price), rel=1e-9, abs=0)
    assert bill.prompt == pytest.approx(float(charged.input_price), rel=1e-9, abs=0)
    assert bill.output == pytest.approx(float(charged.output_price), rel=1e-9, abs=0)


@given(st.lists(usages, min_size=1, max_size=8))
@settings(max_examples=30, deadline=None)
def test_an_array_of_calls_is_charged_call_by_call(calls):
    columns = ByClass(**{name: [getattr(call, name) for call in calls] for name in CLASSES})
    bill = usd_by_class(columns, price_card("claude-haiku-5-5", date=DAY))
    charged = [
        library_price("anthropic/claude-haiku-5-5", call, datetime.date.fromisoformat(DAY)).total_price
        for call in calls
    ]
    assert bill.total.tolist() == pytest.approx([float(price) for price in charged], rel=1e-9, abs=0)


@pytest.mark.parametrize("card_id", ["perplexity/sonar", "perplexity/sonar-pro"])
def test_a_card_that_leaves_out_a_price_per_request_says_so(card_id):
    _, entry = snapshot_model(card_id)
    noon = datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.UTC)
    assert entry.get_prices(noon).requests_kcount is not None
    assert any("request" in note for note in price_card(card_id, date=DAY).notes)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("claude-opus-4-6-foo", "claude-opus-4-6"),
        ("claude-opus-4-6-20990101", "claude-opus-4-6"),
        ("gpt-5.4-foo", "gpt-5.4"),
        ("gpt-5.4 ", "gpt-5.4"),
        ("GPT-5.4", "gpt-5.4"),
        ("Claude-Opus-4-6", "claude-opus-4-6"),
        ("anthropic/gpt-5.4", "openai/gpt-5.4"),
        ("aws/claude-opus-4-6", "claude-opus-4-6"),
    ],
)
def test_a_name_that_is_not_listed_exactly_is_refused_with_near_names(name, near):
    with pytest.raises(LookupError) as caught:
        price_card(name, date=DAY)
    assert isinstance(caught.value, UnknownName)
    assert repr(name) in str(caught.value)
    assert near in str(caught.value)


@pytest.mark.parametrize(
    "name", ["", "/", "anthropic/", "/claude-opus-4-6", "claude", "gemini-3.1-pro", "\x00", "a" * 10_000]
)
def test_a_part_of_a_name_or_nonsense_is_not_a_model(name):
    with pytest.raises(LookupError) as caught:
        price_card(name, date=DAY)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("name", "listed"),
    [  # spellings that the price list itself gives in full
        ("claude-opus-4", "claude-opus-4-0"),
        ("claude-opus-4-20250514", "claude-opus-4-0"),
        ("claude-opus-5-latest", "claude-opus-5"),
        ("grok-3-latest", "grok-3"),
        ("gpt-3.5-turbo-0125", "gpt-3.5-turbo"),
    ],
)
def test_an_alias_that_is_listed_in_full_names_the_same_card(name, listed):
    assert price_card(name, date=DAY) == price_card(listed, date=DAY)
    assert price_card(name, date=DAY).model == listed


def test_a_model_of_several_providers_is_its_maker_s_unless_another_is_named():
    assert price_card("claude-opus-4-6", date=DAY).provider == "anthropic"
    assert price_card("claude-opus-4-6", provider="google", date=DAY).provider == "google"
    assert price_card("anthropic/claude-opus-4-6", date=DAY) == price_card("claude-opus-4-6", date=DAY)
    assert price_card("google/claude-opus-4-6", date=DAY) == price_card("claude-opus-4-6", provider="google", date=DAY)


def test_a_provider_in_front_goes_before_a_reseller_s_id_of_the_same_spelling():
    ids = {provider.id: {model.id for model in provider.models} for provider in data_snapshot.get_snapshot().providers}
    assert "moonshotai/kimi-k3" in ids["openrouter"]
    assert "kimi-k3" in ids["moonshotai"]
    card = price_card("moonshotai/kimi-k3", date=DAY)
    assert (card.provider, card.model) == ("moonshotai", "kimi-k3")
    reseller = price_card("openrouter/moonshotai/kimi-k3", date=DAY)
    assert (reseller.provider, reseller.model) == ("openrouter", "moonshotai/kimi-k3")


def test_a_model_that_only_resellers_list_needs_a_provider():
    with pytest.raises(LookupError, match="is listed by several providers; name one of .*openrouter"):
        price_card("deepseek/deepseek-v4-pro-0813", date=DAY)
    assert price_card("deepseek/deepseek-v4-pro-0813", provider="openrouter", date=DAY).provider == "openrouter"


@pytest.mark.parametrize("provider", ["nobody", "Anthropic", "", "anthropic "])
def test_an_unknown_provider_is_refused(provider):
    with pytest.raises(LookupError, match="unknown provider"):
        price_card("claude-opus-4-6", provider=provider, date=DAY)


def test_a_model_that_a_provider_does_not_list_is_refused_there():
    with pytest.raises(LookupError, match="unknown model at openai 'claude-opus-4-6'"):
        price_card("claude-opus-4-6", provider="openai", date=DAY)


def test_a_model_without_a_price_per_token_is_refused():
    with pytest.raises(ValueError, match="'whisper-large-v3' of groq has no price per token"):
        price_card("whisper-large-v3", provider="groq", date=DAY)


@pytest.mark.parametrize(
    "date",
    [
        "", "today", "2026-02-30", "2026-13-01", "2026-4-1", "01-04-2026", "2026/04/01", " 2026-04-01", "2026-04-01x",
        "2026-04-01T12:00", "٢٠٢٦-٠٤-٠١", "x" * 10_000, None, 5, 20260401.0, True, ["2026-04-01"], b"2026-04-01",
        "2019-12-31", "2100-01-02", "0001-01-01", "9999-12-31", datetime.date(2019, 12, 31), datetime.date.max,
        datetime.time(12),
    ],
    ids=lambda value: repr(value)[:30],
)  # fmt: skip
def test_a_bad_date_is_named(date):
    with pytest.raises(ValueError, match="^date must be a day ") as caught:
        price_card("claude-opus-4-6", date=date)
    assert len(str(caught.value)) < 120


def test_a_day_may_be_a_date_a_text_or_a_time_of_that_day():
    text = price_card("claude-opus-4-6", date="2026-04-01")
    assert price_card("claude-opus-4-6", date=datetime.date(2026, 4, 1)) == text
    assert price_card("claude-opus-4-6", date=datetime.datetime(2026, 4, 1, 23, 59, tzinfo=datetime.UTC)) == text
    assert text.date == "2026-04-01"


def test_the_first_and_the_last_day_are_accepted():
    for day in ("2020-01-01", "2100-01-01"):
        assert price_card("claude-opus-4-6", date=day).date == day


def test_a_card_says_where_and_when_it_is_from():
    library = f"genai-prices {version('genai-prices')}"
    assert price_library() == library
    card = price_card("claude-opus-4-6", date=DAY)
    assert library in card.source
    assert DAY in card.source
    assert card.url.startswith("https://www.anthropic.com/")


def test_a_card_says_which_classes_have_no_price_of_their_own():
    assert not any("no price" in note for note in price_card("claude-opus-4-6", date=DAY).notes)
    assert any("1-hour cache writes" in note for note in price_card("gpt-5.6-sol", date=DAY).notes)
    assert any("no price for cache writes" in note for note in price_card("gpt-5.4", date=DAY).notes)
    without_cache = price_card("claude-2", provider="anthropic", date=DAY)
    assert any("no price for cache reads" in note for note in without_cache.notes)
    assert not without_cache.caches
    assert without_cache.usd_per_mtok.cache_read == without_cache.usd_per_mtok.uncached


def test_a_card_says_since_when_the_price_list_holds_it_or_that_it_does_not_say():
    # Opus 4.6 has been flat since 2026-03-13 (Anthropic's pricing page); its list holds nothing on the time before.
    assert "from 2026-03-13 on" in price_card("claude-opus-4-6", date="2026-04-01").notes[0]
    assert "does not say since when" in price_card("claude-opus-4-6", date="2020-01-01").notes[0]
    assert "does not say since when" in price_card("gpt-5.4", date=DAY).notes[0]


def test_every_listed_card_can_be_made_today_and_caches():
    today = datetime.datetime.now(datetime.UTC).date()
    names = priced_models()
    assert len(names) == len(set(names)) > 100
    for name in names:
        provider, _, model = name.partition("/")
        card = price_card(name, date=today)
        assert (card.provider, card.model) == (provider, model)
        assert card == price_card(model, provider=provider, date=today)
        assert card.caches


def test_the_listed_cards_include_the_published_ones():
    listed = {name.partition("/")[2] for name in priced_models()}
    assert set(PUBLISHED) <= listed
