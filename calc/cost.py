"""Tokens into dollars: four disjoint classes of input and the output, priced by a dated card whose tier the prompt picks."""

from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any

import numpy as np

from calc.names import known
from calc.numeric import COUNT, FRACTION, NON_NEGATIVE, RUN_TOKENS, Numeric, exact_sum, formula, require
from calc.units import MTOK


@formula(
    r"C_{in} = N\left[(1-h)\,p_u + h\,p_c\right]",
    tokens=RUN_TOKENS,
    cached_fraction=FRACTION,
    usd_per_mtok=NON_NEGATIVE,
    cached_usd_per_mtok=NON_NEGATIVE,
    quotient=True,
)
def cached_input_cost(
    tokens: Numeric, cached_fraction: Numeric, usd_per_mtok: Numeric, cached_usd_per_mtok: Numeric
) -> Numeric:
    """Dollars of input tokens when a given share of them is read from the cache.

    Parameters
    ----------
    tokens : int or array
        Submitted input tokens, N [tokens].
    cached_fraction : float or array
        Share that is read from the cache, h [fraction].
    usd_per_mtok : float or array
        Price of the other tokens, p_u [USD per million tokens].
    cached_usd_per_mtok : float or array
        Price of a token read from the cache, p_c [USD per million tokens].

    Returns
    -------
    float or array
        N [(1 - h) p_u + h p_c] [USD].

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    The two-class form: it leaves out the premium of tokens written to the cache, and takes h as given. A bill of disjoint
    classes is `usd_by_class`, of which this is the case with no writes; h of an append-only run is
    `calc.caching.cached_fraction_of_run`. Source: the definition of the two prices.

    Examples
    --------
    >>> cached_input_cost(1_000_000, 0.5, 4, 2)
    3.0
    >>> cached_input_cost(1_000_000, np.array([0, 1]), 5, 0.5)
    array([5. , 0.5])
    """
    return tokens * ((1 - cached_fraction) * usd_per_mtok + cached_fraction * cached_usd_per_mtok) / MTOK


def cached_input_cost_slope(tokens: Numeric, usd_per_mtok: Numeric, cached_usd_per_mtok: Numeric) -> Numeric:
    """Change of `cached_input_cost` per unit of the cached fraction.

    Parameters
    ----------
    tokens : int or array
        Submitted input tokens, N [tokens].
    usd_per_mtok : float or array
        Price of uncached input, p_u [USD per million tokens].
    cached_usd_per_mtok : float or array
        Price of a read, p_c [USD per million tokens].

    Returns
    -------
    float or array
        N (p_c - p_u), the cost of h = 1 less that of h = 0 [USD per unit fraction].

    Raises
    ------
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> cached_input_cost_slope(1_000_000, 5, 0.5)
    -4.5
    """
    return cached_input_cost(tokens, 1, usd_per_mtok, cached_usd_per_mtok) - cached_input_cost(
        tokens, 0, usd_per_mtok, cached_usd_per_mtok
    )


def reuse_saving(prefix: Numeric, usd_per_mtok: Numeric, cached_usd_per_mtok: Numeric) -> Numeric:
    """Dollars that one reuse of a cached prefix saves.

    Parameters
    ----------
    prefix : int or array
        Tokens of the prefix, p [tokens].
    usd_per_mtok : float or array
        Price of uncached input, p_u [USD per million tokens].
    cached_usd_per_mtok : float or array
        Price of a read, p_c [USD per million tokens].

    Returns
    -------
    float or array
        p (p_u - p_c); negative where a read is dearer than fresh input [USD].

    Raises
    ------
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> reuse_saving(1_000_000, 5, 0.5)
    4.5
    """
    return -cached_input_cost_slope(prefix, usd_per_mtok, cached_usd_per_mtok)


@dataclass(frozen=True, slots=True, kw_only=True)
class ByClass:
    """One value per token class: token counts, prices or dollars; numbers or arrays of one shape.

    The classes are disjoint: a prompt token is plain (uncached), read from the cache, or written to it for 5 minutes or
    1 hour; the model's output is the fifth class.
    """

    uncached: Any = 0
    cache_read: Any = 0
    cache_write_5m: Any = 0
    cache_write_1h: Any = 0
    output: Any = 0

    @property
    def prompt(self) -> Any:
        """Sum of the four input classes."""
        return self.uncached + self.cache_read + self.cache_write_5m + self.cache_write_1h

    @property
    def total(self) -> Any:
        """Sum of all classes."""
        return self.prompt + self.output

    def summed(self) -> "ByClass":
        """Sum over the calls of every class."""
        return ByClass(**{name: exact_sum(value) for name, value in self.as_dict().items()})

    def __add__(self, other: "ByClass") -> "ByClass":
        return ByClass(**{name: getattr(self, name) + getattr(other, name) for name in CLASSES})

    def as_dict(self) -> dict[str, Any]:
        """Class name and value."""
        return {name: getattr(self, name) for name in CLASSES}


CLASSES = tuple(field.name for field in fields(ByClass))
"""Names of the token classes, in the order of a bill."""


LEDGER_EQUATION = r"C = U p_u + R\,p_c + W p_w + O\,p_o"
"""A bill over the disjoint classes: plain, read, written, output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTier:
    """Prices of every class for prompts larger than a boundary."""

    above_tokens: int
    """The tier applies to a whole prompt of more tokens than this; -1 for the first tier."""
    usd_per_mtok: ByClass


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceCard:
    """What a provider charges for a model on a date."""

    model: str
    provider: str
    date: str
    """The day (UTC) that the prices hold for, as YYYY-MM-DD."""
    tiers: tuple[PriceTier, ...]
    """In rising order of their boundaries; the first has boundary -1."""
    caches: bool
    """Whether the card lists a price for cache reads; without one, reads are charged as input."""
    context_window: int | None
    """Largest prompt [tokens], None where the price list does not say."""
    source: str
    url: str = ""
    """Where the provider states these prices, empty if not known."""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        boundaries = [tier.above_tokens for tier in self.tiers]
        if not boundaries or boundaries[0] != -1 or sorted(set(boundaries)) != boundaries:
            raise ValueError(f"tiers must start at -1 and rise, got {boundaries}")
        for tier in self.tiers:
            for name, price in tier.usd_per_mtok.as_dict().items():
                require(price, NON_NEGATIVE, f"price of {name}")

    @property
    def usd_per_mtok(self) -> ByClass:
        """Prices of the first tier."""
        return self.tiers[0].usd_per_mtok


def usd_by_class(tokens: ByClass, card: PriceCard) -> ByClass:
    """Dollars of each token class, every call priced in the tier that its whole prompt picks.

    Parameters
    ----------
    tokens : ByClass
        Tokens per call; numbers or arrays of one shape [tokens].
    card : PriceCard
        Prices [USD per million tokens].

    Returns
    -------
    ByClass
        Dollars of each class, of the same shape [USD].

    Raises
    ------
    ValueError
        If a count is not a whole number in range.

    Notes
    -----
    The tier is chosen by the whole prompt, cache reads and writes included, and applies to every token of the call. A
    prompt exactly at a boundary is in the lower tier; cards whose boundary is inclusive hold the number below it.

    Examples
    --------
    >>> prices = ByClass(uncached=5.0, cache_read=0.5, cache_write_5m=6.25, cache_write_1h=10.0, output=25.0)
    >>> card = card_by_hand(prices, model="example", date="2026-02-12")
    >>> usd_by_class(ByClass(uncached=1_000_000, output=[100_000, 0]), card).total.tolist()
    [7.5, 5.0]
    """
    tokens, tier_of_call = _tiered(tokens, card)
    dollars = {}
    for name, count in tokens.as_dict().items():
        prices = np.array([getattr(tier.usd_per_mtok, name) for tier in card.tiers], dtype=np.float64)
        dollars[name] = prices[tier_of_call] * count / MTOK
    return ByClass(**dollars)


def exact_usd(tokens: ByClass, card: PriceCard) -> ByClass:
    """Dollars of each token class over all calls, as exact fractions.

    Parameters
    ----------
    tokens : ByClass
        Tokens per call; numbers or arrays of one shape [tokens].
    card : PriceCard
        Prices [USD per million tokens].

    Returns
    -------
    ByClass
        Sums over the calls, each a Fraction; a price counts as the decimal number that the card prints [USD].

    Raises
    ------
    ValueError
        If a count is not a whole number in range.

    Notes
    -----
    The same sum as `usd_by_class`, free of rounding: a bill's total is right to the last digit, not only to the cent.

    Examples
    --------
    >>> prices = ByClass(uncached=0.1, cache_read=0.01, cache_write_5m=0.125, cache_write_1h=0.2, output=0.5)
    >>> card = card_by_hand(prices, model="example", date="2026-02-12")
    >>> exact_usd(ByClass(uncached=[1, 2], output=[1, 0]), card).total
    Fraction(1, 1250000)
    """
    tokens, tier_of_call = _tiered(tokens, card)
    dollars = dict.fromkeys(CLASSES, Fraction(0))
    for number, tier in enumerate(card.tiers):
        in_tier = tier_of_call == number
        for name, count in tokens.as_dict().items():
            summed = exact_sum(np.broadcast_to(count, in_tier.shape)[in_tier])
            dollars[name] += summed * Fraction(repr(getattr(tier.usd_per_mtok, name))) / MTOK
    return ByClass(**dollars)


def _tiered(tokens: ByClass, card: PriceCard) -> tuple[ByClass, np.ndarray]:
    """Checked counts, and the tier that each call's whole prompt picks."""
    tokens = ByClass(**{name: require(value, COUNT, name) for name, value in tokens.as_dict().items()})
    boundaries = np.array([tier.above_tokens for tier in card.tiers])
    return tokens, np.searchsorted(boundaries, np.asarray(tokens.prompt), side="left") - 1


def card_by_hand(usd_per_mtok: ByClass, *, model: str, date: str, context_window: int | None = None) -> PriceCard:
    """A card of one tier from prices typed by hand.

    Parameters
    ----------
    usd_per_mtok : ByClass
        Price of every class [USD per million tokens].
    model : str
        What the prices are of [name].
    date : str
        The day they hold for [YYYY-MM-DD].
    context_window : int or None
        Largest prompt, None if not known [tokens].

    Returns
    -------
    PriceCard
        The card [USD per million tokens].

    Raises
    ------
    ValueError
        If a price is negative or not a number.
    """
    return PriceCard(
        model=model,
        provider="by hand",
        date=date,
        tiers=(PriceTier(above_tokens=-1, usd_per_mtok=usd_per_mtok),),
        caches=True,
        context_window=context_window,
        source="typed by hand",
    )


def with_prices(card: PriceCard, **usd_per_mtok: float | None) -> PriceCard:
    """A card with some prices replaced by hand, in every tier.

    Parameters
    ----------
    card : PriceCard
        The card to change [USD per million tokens].
    **usd_per_mtok : float or None
        New price by class name; None leaves the card's own [USD per million tokens].

    Returns
    -------
    PriceCard
        The changed card; its source says what was replaced [USD per million tokens].

    Raises
    ------
    ValueError
        If a price is negative or not a number.
    """
    for name in usd_per_mtok:
        known(name, CLASSES, "token class")
    typed = {
        name: require(price, NON_NEGATIVE, f"price of {name}")
        for name, price in usd_per_mtok.items()
        if price is not None
    }
    if not typed:
        return card
    tiers = tuple(replace(tier, usd_per_mtok=replace(tier.usd_per_mtok, **typed)) for tier in card.tiers)
    words = ", ".join(f"{name} {price:g}" for name, price in typed.items())
    return replace(
        card,
        tiers=tiers,
        caches=card.caches or "cache_read" in typed,
        source=f"{card.source}; typed by hand: {words} USD/MTok",
    )
