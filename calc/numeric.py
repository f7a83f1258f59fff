"""What a number may be: ranges, their one error message, and exact whole numbers in scalars and arrays.

This module alone tells scalars from arrays. A formula is written once, in plain arithmetic, under
``@formula(argument=RANGE, ...)``; the decorator checks every argument and then

- evaluates scalar counts in Python integers, which are exact at any size;
- evaluates arrays in float64, and hands back int64 where that is exact, int64 evaluated again where float64
  would round, and float64 where int64 could overflow. Nothing wraps around.
"""

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

import numpy as np

Numeric = int | float | np.ndarray
"""A scalar or an array of any shape; arrays broadcast."""

MAX_COUNT = 10**15
"""Largest count accepted: below 2**53, so that a float64 holds it exactly."""

MAX_REAL = 10**12
"""Largest number accepted that need not be whole: a price, a size in bytes, a value."""

_EXACT_IN_FLOAT64 = 2**50
_EXACT_IN_INT64 = 2**60
"""Both leave a factor of eight for sums and products on the way to a result."""
_FIRST_BEYOND_INT64 = 2**63
_LARGEST_FLOAT = int(np.finfo(np.float64).max)
_SHOWN_IN_FULL = 10**15


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The values an argument may take, ends included."""

    low: float
    high: float
    whole: bool

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        if math.isinf(self.high):
            return f"{kind} >= {_plain(self.low)}"
        return f"{kind} from {_plain(self.low)} to {_plain(self.high)}"


COUNT = Range(low=0, high=MAX_COUNT, whole=True)
POSITIVE_COUNT = Range(low=1, high=MAX_COUNT, whole=True)
RUN_TOKENS = Range(low=0, high=10**33, whole=True)
"""Tokens summed over the calls of a run."""
NON_NEGATIVE = Range(low=0, high=MAX_REAL, whole=False)
POSITIVE = Range(low=1e-12, high=MAX_REAL, whole=False)
FRACTION = Range(low=0, high=1, whole=False)


def count_up_to(high: int, *, low: int = 0) -> Range:
    """Whole numbers from `low` to `high`."""
    return Range(low=low, high=high, whole=True)


def require(value: Any, allowed: Range, name: str) -> Numeric:
    """The value as a plain number or array, or one message that names field, range and value.

    Parameters
    ----------
    value : number or array_like
        What was given [any].
    allowed : Range
        What it may be [same unit as the value].
    name : str
        What the message calls it [text].

    Returns
    -------
    int, float or ndarray
        Python int for a scalar count, float for another scalar, int64 or float64 array otherwise
        [same unit as the value].

    Raises
    ------
    ValueError
        If the value is not a number, not finite, not whole where it must be, or out of range.

    Examples
    --------
    >>> require(100.0, COUNT, "calls")
    100
    >>> require(-1, COUNT, "calls")
    Traceback (most recent call last):
        ...
    ValueError: calls must be a whole number from 0 to 1,000,000,000,000,000, got -1
    >>> require([1, 2.5], COUNT, "calls")
    Traceback (most recent call last):
        ...
    ValueError: calls must be a whole number from 0 to 1,000,000,000,000,000, got 2.5
    """
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, (np.ndarray, list, tuple, range)):
        return _required_array(value, allowed, name)
    return _required_scalar(value, allowed, name)


def require_all(allowed: Range, **values: Any) -> tuple[Numeric, ...]:
    """Several values of one range, checked in the order given; returns them cleaned, as `require` does."""
    return tuple(require(value, allowed, name) for name, value in values.items())


def _required_scalar(value: Any, allowed: Range, name: str) -> int | float:
    if type(value) is int and allowed.whole and allowed.low <= value <= allowed.high:  # the common case first
        return value
    if isinstance(value, Fraction) or not isinstance(value, Real) or isinstance(value, (bool, np.bool_)):
        raise _out_of_range(value, allowed, name)
    if isinstance(value, Integral):
        number: int | float = int(value)
        if not allowed.whole and abs(number) > _LARGEST_FLOAT:
            raise _out_of_range(value, allowed, name)
    else:
        number = float(value)
        if not math.isfinite(number) or (allowed.whole and not number.is_integer()):
            raise _out_of_range(value, allowed, name)
        number = int(number) if allowed.whole else number
    if not allowed.low <= number <= allowed.high:
        raise _out_of_range(value, allowed, name)
    return number


def _required_array(value: Any, allowed: Range, name: str) -> np.ndarray:
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(f"{name} must be {allowed}, or an array of such, got an array with masked entries")
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        raise ValueError(f"{name} must be {allowed}, or an array of such, got rows of different lengths") from None
    if array.dtype.kind == "O":  # Python integers beyond int64, or things that are not numbers
        for item in array.flat:
            _required_scalar(item, allowed, name)
        array = array.astype(np.float64)
    hidden = [item for item in value if isinstance(item, bool)] if isinstance(value, (list, tuple)) else []
    if hidden and array.dtype.kind != "b":  # numpy takes a truth value among numbers for 0 or 1
        raise _out_of_range(hidden[0], allowed, name)
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{name} must be {allowed}, or an array of such, got an array of {array.dtype}")
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):  # a longdouble beyond float64 becomes infinite, and is refused as such
            array = array.astype(np.float64, copy=False)
    if array.size == 0:
        return array.astype(np.int64 if allowed.whole else np.float64)
    ok = np.isfinite(array) & (array >= allowed.low) & (array <= allowed.high)
    if allowed.whole and array.dtype.kind == "f":
        ok &= np.floor(array) == array
    if not ok.all():
        raise _out_of_range(array[~ok].flat[0].item(), allowed, name)
    fits_int64 = array.max() < _FIRST_BEYOND_INT64
    is_whole = allowed.whole or array.dtype.kind in "iu"
    return array.astype(np.int64 if is_whole and fits_int64 else np.float64, copy=False)


def _out_of_range(value: Any, allowed: Range, name: str) -> ValueError:
    return ValueError(f"{name} must be {allowed}, got {_plain(value)}")


def _plain(value: Any) -> str:
    """A short text of any value; a number of many digits or a long text is cut."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        if abs(int(value)) >= 10**24:
            return "a number of more than 24 digits"
        return f"{int(value):,}"
    if isinstance(value, (float, np.floating)):
        return f"{value:,.0f}" if abs(value) < _SHOWN_IN_FULL and float(value).is_integer() else f"{float(value):,g}"
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def larger(first: Numeric, second: Numeric) -> Numeric:
    """The larger of two values, elementwise; exact Python integers stay what they are."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.maximum(first, second)
    return max(first, second)


def require_scalar(value: Any, allowed: Range, name: str) -> int | float:
    """One number, as `require` takes it; a list or an array is refused."""
    number = require(value, allowed, name)
    if isinstance(number, np.ndarray):
        raise ValueError(f"{name} must be {allowed}, one number, got {number.size} of them")
    return number


def require_list(values: Any, allowed: Range, name: str) -> np.ndarray:
    """A list of numbers of one range as an array of one dimension; anything else is refused."""
    numbers = require(list(values) if isinstance(values, Iterable) else values, allowed, name)
    if not isinstance(numbers, np.ndarray) or numbers.ndim != 1:
        raise ValueError(f"{name} must be a list of numbers, each {allowed}, got {_plain(values)}")
    return numbers


def exact_sum(counts: Any) -> int:
    """The sum of whole numbers, of any size, as a Python int."""
    counts = np.asarray(counts)
    if counts.size and float(np.abs(counts.astype(np.float64)).sum()) >= _EXACT_IN_INT64:
        return int(counts.astype(object).sum())
    return int(counts.sum())


def smaller(first: Numeric, second: Numeric) -> Numeric:
    """The smaller of two values, elementwise; exact Python integers stay what they are."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.minimum(first, second)
    return min(first, second)


def formula(equation: str, /, *, quotient: bool = False, **ranges: Range) -> Callable:
    """Make a plain-arithmetic function check its arguments and stay exact over scalars and arrays.

    Parameters
    ----------
    equation : str
        The equation in LaTeX, one line or more, kept on the function as ``.equation`` for the pages to show [text].
    quotient : bool
        True where the formula divides, so that its result is a float even for whole arguments [yes or no].
    **ranges : Range
        The range of each argument that is a number; other arguments pass untouched [see each function].

    Returns
    -------
    callable
        A decorator. The decorated function returns a Python int where every argument is whole and scalar [as the
        function says].

    Notes
    -----
    Whole-number formulas must keep intermediate results within eight times the largest result.
    """

    def decorate(function: Callable) -> Callable:
        signature = inspect.signature(function)
        names = tuple(signature.parameters)
        if unknown := ranges.keys() - signature.parameters.keys():
            raise TypeError(f"{function.__name__} has no arguments {sorted(unknown)}")

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            if len(args) == len(names) and not kwargs:  # the common case, without the cost of a binding
                given = dict(zip(names, args))
            else:
                bound = signature.bind(*args, **kwargs)
                bound.apply_defaults()
                given = bound.arguments
            numbers = {name: require(given[name], allowed, name) for name, allowed in ranges.items()}
            return _evaluated(function, {**given, **numbers}, numbers, quotient)

        checked.equation = equation
        checked.ranges = ranges
        return checked

    return decorate


def _evaluated(function: Callable, arguments: Mapping[str, Any], numbers: Mapping[str, Numeric], quotient: bool) -> Any:
    arrays = {name: value for name, value in numbers.items() if isinstance(value, np.ndarray)}
    if not arrays:
        return function(**arguments)
    try:
        np.broadcast_shapes(*(array.shape for array in arrays.values()))
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise ValueError(f"arrays must have shapes that fit together, got {shapes}") from None
    in_float64 = function(**{**arguments, **{name: value.astype(np.float64) for name, value in arrays.items()}})
    if quotient or not all(map(_is_whole, numbers.values())):
        return in_float64
    largest = np.max(np.abs(in_float64), initial=0)
    if largest < _EXACT_IN_FLOAT64:
        return in_float64.astype(np.int64)
    if largest < _EXACT_IN_INT64:
        try:
            return function(**arguments)
        except OverflowError:  # a scalar beyond int64 met an array
            return in_float64
    return in_float64


def _is_whole(number: Numeric) -> bool:
    return number.dtype.kind == "i" if isinstance(number, np.ndarray) else isinstance(number, int)


@formula("a + b", first=count_up_to(10**63), second=count_up_to(10**63))
def _added(first: Numeric, second: Numeric) -> Numeric:
    return first + second


def total(terms: Iterable[Numeric]) -> Numeric:
    """The sum of whole numbers, elementwise; arrays do not wrap around."""
    terms = list(terms)
    if not any(isinstance(term, np.ndarray) for term in terms):
        return sum(terms)
    return functools.reduce(_added, terms, 0)
