"""Price cards of providers' models on a date, from the genai-prices package, offline.

The package is imported when a card is first asked for, not with this module. It matches model names loosely; here only
its exact ids and the exact aliases that it lists are known.
"""

import datetime
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from calc.cost import CLASSES, ByClass, PriceCard, PriceTier
from calc.names import UnknownName, known

_PRICE_KEYS = {
    "uncached": "input_mtok",
    "cache_read": "cache_read_mtok",
    "cache_write_5m": "cache_write_mtok",
    "cache_write_1h": "cache_write_1h_mtok",
    "output": "output_mtok",
}
_FALLBACK = {"cache_read": "uncached", "cache_write_5m": "uncached", "cache_write_1h": "cache_write_5m"}
"""What a class without a price of its own is charged as."""

FIRST_DAY = datetime.date(2020, 1, 1)
LAST_DAY = datetime.date(2100, 1, 1)
HOUR_OF_DAY = 12
"""Prices that change with the hour are taken at this hour UTC."""

SEPARATOR = "/"
"""Between provider and model in a card's id: anthropic/claude-opus-4-6."""


@cache
def _providers() -> dict[str, Any]:
    from genai_prices import data_snapshot

    return {provider.id: provider for provider in data_snapshot.get_snapshot().providers}


@cache
def _models(provider: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Models of a provider by exact id, and the exact aliases the price list gives them."""
    models = {model.id: model for model in _providers()[provider].models}
    aliases = {}
    for model in models.values():
        for alias in _exact_names(model.match):
            if alias not in models:
                aliases.setdefault(alias, model.id)
    return models, aliases


def _exact_names(clause: Any) -> Iterator[str]:
    """Names that a matching clause lists in full; its prefixes and patterns are left aside."""
    if hasattr(clause, "equals"):
        yield clause.equals
    for inner in getattr(clause, "or_", ()):
        yield from _exact_names(inner)


def price_library() -> str:
    """Name and version of the price list in use.

    Returns
    -------
    str
        Such as "genai-prices 0.2.3" [name].
    """
    from genai_prices import __version__

    return f"genai-prices {__version__}"


def price_card(model: str, *, provider: str | None = None, date: datetime.date | str) -> PriceCard:
    """The card of a model on a date.

    Parameters
    ----------
    model : str
        The model's id in the price list, an alias it lists in full, or both with the provider in front:
        "anthropic/claude-opus-4-6" [name].
    provider : str or None
        The provider's id; None for the model's maker, or the only provider that lists it [name].
    date : date or str
        The day (UTC), as a date or YYYY-MM-DD; prices that change with the hour are those of 12:00 [day].

    Returns
    -------
    PriceCard
        Prices of all classes and tiers, with source and remarks [USD per million tokens].

    Raises
    ------
    LookupError
        If model or provider is not known exactly, or several providers list the model and none of them made it.
    ValueError
        If the date is not one, or the card has no price for text input and output.

    Notes
    -----
    A class without a price of its own is charged as the price list charges it: a write as input, a 1-hour write as a
    5-minute one, a read as input. Source: the genai-prices package.

    Examples
    --------
    >>> card = price_card("claude-opus-4-6", date="2026-04-01")
    >>> card.provider, card.usd_per_mtok.cache_read, len(card.tiers)
    ('anthropic', 0.5, 1)
    """
    day = _day(date)
    provider_id, entry = _entry(model, provider)
    hour = datetime.datetime.combine(day, datetime.time(HOUR_OF_DAY), tzinfo=datetime.UTC)
    prices = entry.get_prices(hour)
    if prices.input_mtok is None or prices.output_mtok is None:
        raise ValueError(f"model {entry.id!r} of {provider_id} has no price per token for both input and output")
    tiers = _tiers(prices)
    urls = _providers()[provider_id].pricing_urls or ()
    return PriceCard(
        model=entry.id,
        provider=provider_id,
        date=day.isoformat(),
        tiers=tiers,
        caches=prices.cache_read_mtok is not None,
        context_window=entry.context_window,
        source=f"{price_library()}, prices of {day.isoformat()}",
        url=urls[0] if urls else "",
        notes=tuple(_notes(entry, prices, hour)),
    )


def _day(date: datetime.date | str) -> datetime.date:
    try:
        if not isinstance(date, datetime.date) and not re.fullmatch(r"\d{4}-\d\d-\d\d", date, re.ASCII):
            raise ValueError
        day = date if isinstance(date, datetime.date) else datetime.date.fromisoformat(date)
    except (TypeError, ValueError):
        raise ValueError(f"date must be a day written YYYY-MM-DD, got {str(date)[:40]!r}") from None
    if isinstance(day, datetime.datetime):
        day = (day.astimezone(datetime.UTC) if day.tzinfo else day).date()
    if not FIRST_DAY <= day <= LAST_DAY:
        raise ValueError(f"date must be a day from {FIRST_DAY} to {LAST_DAY}, got {day}")
    return day


def _entry(model: str, provider: str | None) -> tuple[str, Any]:
    """Provider id and model entry of an exact name."""
    model = str(model)
    if provider is None:
        front, separator, rest = model.partition(SEPARATOR)
        # A name such as moonshotai/kimi-k3 is also a whole id at resellers; the provider's own list goes first.
        if separator and front in _listings().get(rest, ()):
            return _entry(rest, front)
        provider = _default_provider(model)
    provider = known(provider, _providers(), "provider")
    models, aliases = _models(provider)
    return provider, models[known(model, models, f"model at {provider}", aliases=aliases)]


@cache
def _listings() -> dict[str, tuple[str, ...]]:
    """Every exact id and alias, with the providers that list it."""
    listings: dict[str, tuple[str, ...]] = {}
    for provider in _providers():
        models, aliases = _models(provider)
        for name in {**models, **aliases}:
            listings[name] = (*listings.get(name, ()), provider)
    return listings


def _default_provider(model: str) -> str:
    """The maker of a model, else its only provider."""
    listing = _listings()[known(model, _listings(), "model in the price list")]
    matches = {name: _providers()[name].model_match for name in listing}
    makers = [name for name, match in matches.items() if match is not None and match.is_match(model)]
    for found in (makers, listing):
        if len(found) == 1:
            return found[0]
    raise UnknownName(f"model {model!r} is listed by several providers; name one of {', '.join(listing)}")


def _tiers(prices: Any) -> tuple[PriceTier, ...]:
    """The tiers of a card: one for every boundary that any class has."""
    boundaries = {-1}
    for key in _PRICE_KEYS.values():
        boundaries |= {tier.start for tier in getattr(getattr(prices, key), "tiers", ())}
    return tuple(
        PriceTier(
            above_tokens=start,
            usd_per_mtok=ByClass(**{name: _price_at(prices, name, start) for name in CLASSES}),
        )
        for start in sorted(boundaries)
    )


def _price_at(prices: Any, name: str, start: int) -> float:
    """Price of a class in the tier that begins at a boundary."""
    price = getattr(prices, _PRICE_KEYS[name])
    if price is None:
        return _price_at(prices, _FALLBACK[name], start)
    if not hasattr(price, "tiers"):
        return float(price)
    reached = [price.base, *(tier.price for tier in price.tiers if tier.start <= start)]
    return float(reached[-1])


def _notes(entry: Any, prices: Any, hour: datetime.datetime) -> Iterator[str]:
    dated = [variant for variant in entry.prices if variant.prices is prices] if isinstance(entry.prices, list) else []
    since = next((getattr(variant.constraint, "start_date", None) for variant in dated), None)
    if since:
        yield f"The price list holds these prices from {since} on."
    else:
        yield "The price list does not say since when these prices hold, nor until when."
    if prices.cache_read_mtok is None:
        yield "This card lists no price for cache reads: they are charged as input."
    elif prices.cache_write_mtok is None:
        yield "This card lists no price for cache writes: they are charged as input."
    elif prices.cache_write_1h_mtok is None:
        yield "This card lists no price for 1-hour cache writes: they are charged as 5-minute ones."
    if prices.requests_kcount is not None:
        yield f"Each request also costs {float(prices.requests_kcount) / 1000:g} USD, which is not in these numbers."
    if any(entry.get_prices(hour.replace(hour=other)) != prices for other in range(24)):
        yield f"Prices of this model change with the hour; these are those of {HOUR_OF_DAY}:00 UTC."
    if entry.deprecated:
        yield "The provider has marked this model as deprecated."


@cache
def priced_models() -> tuple[str, ...]:
    """Ids of the cards that list prices for input, output and cache reads, at the providers that made the model.

    Returns
    -------
    tuple of str
        Such as "anthropic/claude-opus-4-6", provider by provider [names].
    """
    names = []
    for provider in _providers().values():
        if provider.model_match is None:
            continue
        for model in provider.models:
            variants = model.prices if isinstance(model.prices, list) else [model]
            prices = variants[-1].prices
            if (
                provider.model_match.is_match(model.id)
                and prices.input_mtok is not None
                and prices.output_mtok is not None
                and prices.cache_read_mtok is not None
            ):
                names.append(f"{provider.id}{SEPARATOR}{model.id}")
    return tuple(names)
