"""What a log means: the frozen answer, and the words in which it is given."""

import math
from dataclasses import dataclass

from calc.formats import bytes_text


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherLength:
    """What the same memory holds where the longest sequence is another."""

    max_len: int
    tokens: int | None = None
    """Tokens that the engine would print."""
    concurrency: float | None = None
    """Sequences of that length held at once."""
    pool_bytes: int | None = None
    """What the cache would take, where an engine allocates what the length asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A log line read with the model it is about."""

    engine: str
    rule: str
    """The newest rule that gives the printed numbers, with the versions it belongs to."""
    possible: bool
    bytes_per_token: int | float
    """Bytes of the pool of one rank for each token that the log counts, under the rule."""
    slope_bytes_per_token: int | float
    """What one rank takes for each further token of a long sequence."""
    pool_bytes: int | None = None
    """What the printed tokens or blocks take on one rank."""
    blocks: int | None = None
    measured_bytes_per_token: tuple[float, float] | None = None
    """From the log's own numbers, least and most that their rounding allows."""
    other_rules: tuple[str, ...] = ()
    """Older rules that give the same numbers."""
    assumptions: tuple[str, ...] = ()
    """What the lines do not say and the rule needs."""
    guesses: tuple[str, ...] = ()
    """Where no rule fits: what would make one fit."""
    other_lengths: tuple[OtherLength, ...] = ()
    sentences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The numbers of a log under one rule and one set of assumptions."""

    rule: str
    problems: tuple[str, ...]
    """What of the log the rule contradicts; none where it fits."""
    off: float
    """By what factor the worst number is off: 1 where the rule fits."""
    bytes_per_token: int | float
    slope_bytes_per_token: int | float
    pool_bytes: int | None = None
    blocks: int | None = None
    assumptions: tuple[str, ...] = ()
    tokens: int | None = None
    measured_bytes_per_token: tuple[float, float] | None = None
    other_lengths: tuple[OtherLength, ...] = ()
    sentences: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether the rule gives every printed number."""
        return not self.problems


def off_text(ratio: float) -> str:
    """By how much one number is above another: "12.3 % more", "2.01 times"."""
    if not 0 < ratio < math.inf:
        return "more than can be said"
    ratio = max(ratio, 1 / ratio)
    return f"{100 * (ratio - 1):.3g} %" if ratio < 1.5 else f"{ratio:.3g} times"


def off_ratio(first: float, second: float) -> float:
    """By what factor two sizes differ, at least 1; infinite where only one of them is nothing."""
    if first == second:
        return 1.0
    return max(first / second, second / first) if first and second else math.inf


def rate_text(low: float, high: float) -> str:
    """An interval of bytes per token."""
    return f"{low:,.0f}" if round(low) == round(high) else f"{low:,.0f} to {high:,.0f}"


def memory_text(count: float) -> str:
    """Bytes for people and to the byte."""
    return f"{bytes_text(count)} ({count:,.0f} bytes)"
