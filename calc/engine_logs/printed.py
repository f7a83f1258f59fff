"""Numbers as a log prints them: rounded, so that each stands for an interval."""

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Self

HUNDREDTH = Fraction(1, 100)
MAX_DIGITS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """A printed number and what it may have been before it was rounded."""

    value: Fraction
    low: Fraction
    high: Fraction

    @classmethod
    def rounded(cls, text: str, unit: int = 1) -> Self:
        """A number with decimals, at least to hundredths: engines that print 18.5 mean 18.50."""
        digits = text.replace(",", "").replace("_", "")
        value = Fraction(Decimal(digits))
        last = min(HUNDREDTH, Fraction(1, 10 ** len(digits.partition(".")[2])))
        return cls(value=value * unit, low=max(Fraction(0), value - last / 2) * unit, high=(value + last / 2) * unit)

    @classmethod
    def exact(cls, value: int) -> Self:
        """A number that was not rounded."""
        return cls(value=Fraction(value), low=Fraction(value), high=Fraction(value))

    def __add__(self, other: Self) -> Self:
        return Printed(value=self.value + other.value, low=self.low + other.low, high=self.high + other.high)

    def covers(self, number: Fraction | int) -> bool:
        """Whether the number may have been printed so."""
        return self.low <= number <= self.high

    def over(self, number: int) -> tuple[float, float]:
        """The interval divided by a number."""
        return float(self.low / number), float(self.high / number)


def whole(text: str) -> int:
    """A whole number with separators or without."""
    return int(text.replace(",", "").replace("_", ""))
