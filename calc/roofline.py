"""Where computing and reading memory take equally long, and where a batch's cache weighs as much as the weights."""

from calc.numeric import POSITIVE_COUNT, Numeric, Range, formula, larger

RATE = Range(low=1, high=10**24, whole=False)
FLOP = Range(low=0, high=10**60, whole=False)
BYTES = Range(low=0, high=10**33, whole=False)
POSITIVE_BYTES = Range(low=1, high=10**33, whole=False)
"""Bytes that need not be whole: weights of 4.25 bits."""


@formula(r"I^* = \frac{F}{B}", quotient=True, flops_per_second=RATE, bytes_per_second=RATE)
def ridge_intensity(flops_per_second: Numeric, bytes_per_second: Numeric) -> Numeric:
    """FLOP per byte at which an accelerator computes as long as it reads memory.

    Parameters
    ----------
    flops_per_second : int, float or array
        Dense peak in the format that is computed in, F [FLOP/s].
    bytes_per_second : int, float or array
        Peak bandwidth of the memory, B [bytes/s].

    Returns
    -------
    float or array
        F / B; work with fewer FLOP per byte waits for memory [FLOP per byte].

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Peaks: what is reached is lower on both sides. Source: Williams, Waterman, Patterson, Roofline (2009).

    Examples
    --------
    >>> ridge_intensity(1000, 4)
    250.0
    >>> ridge_intensity([1000, 500], 4)
    array([250., 125.])
    """
    return flops_per_second / bytes_per_second


@formula(r"I = \frac{\text{FLOP}}{\text{bytes}}", quotient=True, flops=FLOP, read_bytes=POSITIVE_BYTES)
def arithmetic_intensity(flops: Numeric, read_bytes: Numeric) -> Numeric:
    """FLOP for each byte that is read.

    Parameters
    ----------
    flops : int, float or array
        Work [FLOP].
    read_bytes : int, float or array
        Memory that it reads [bytes].

    Returns
    -------
    float or array
        Below an accelerator's ridge the work waits for memory [FLOP per byte].

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    See `ridge_intensity`. Source: Williams, Waterman, Patterson, Roofline (2009).

    Examples
    --------
    >>> arithmetic_intensity(1000, 250)
    4.0
    >>> arithmetic_intensity([1000, 500], 250)
    array([4., 2.])
    """
    return flops / read_bytes


@formula(r"B^* = \frac{W}{m(n)}", quotient=True, weights_bytes=BYTES, sequence_bytes=POSITIVE_BYTES)
def break_even_sequences(weights_bytes: Numeric, sequence_bytes: Numeric) -> Numeric:
    """Sequences of one length in a decode step whose caches take as many bytes to read as the weights.

    Parameters
    ----------
    weights_bytes : int, float or array
        Weights that a step reads once for the whole batch, W [bytes].
    sequence_bytes : int, float or array
        Cache of one sequence that a step reads, floor and full windows included, m(n) [bytes].

    Returns
    -------
    float or array
        W / m(n); a larger batch spends most of its memory traffic on the cache [sequences].

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Exact at the length that the bytes belong to. Times that length it is the batch x context of the break-even.
    Bytes only: writes, activations and what does not overlap are left out. Source: equating both reads.

    Examples
    --------
    >>> break_even_sequences(16_000, 500)
    32.0
    >>> break_even_sequences(16_000, [500, 1000])
    array([32., 16.])
    """
    return weights_bytes / sequence_bytes


@formula(
    r"N^* = \max\left(0, \frac{W - B\,f}{s}\right)",
    quotient=True,
    weights_bytes=BYTES,
    slope_bytes_per_token=POSITIVE_BYTES,
    fixed_bytes=BYTES,
    sequences=POSITIVE_COUNT,
)
def break_even_tokens(
    weights_bytes: Numeric, slope_bytes_per_token: Numeric, fixed_bytes: Numeric = 0, sequences: Numeric = 1
) -> Numeric:
    """Cached tokens, over all sequences of a decode step, that take as many bytes to read as the weights.

    Parameters
    ----------
    weights_bytes : int, float or array
        Weights that a step reads once for the whole batch, W [bytes].
    slope_bytes_per_token : int, float or array
        What each further token of a sequence takes, s [bytes per token].
    fixed_bytes : int, float or array
        What each sequence takes whatever its length, floor and full windows, f [bytes].
    sequences : int or array
        Sequences of the batch, B [sequences].

    Returns
    -------
    float or array
        (W - B f) / s, the batch times its mean context; 0 where the fixed bytes alone exceed the weights [tokens].

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Where nothing is fixed it does not matter how the tokens are spread over sequences. Valid where every sequence is
    longer than every window; `break_even_sequences` has no such limit. Source: W = B f + s N.

    Examples
    --------
    >>> break_even_tokens(16_000, 10)
    1600.0
    >>> break_even_tokens(16_000, 10, 3000, [1, 4, 8])
    array([1300.,  400.,    0.])
    """
    return larger(0.0, (weights_bytes - sequences * fixed_bytes) / slope_bytes_per_token)
