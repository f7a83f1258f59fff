"""Prompt size of each call of a run, listed: growth as a number, a list or a curve, and what a window refuses."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from calc.numeric import COUNT, MAX_COUNT, POSITIVE_COUNT, count_up_to, exact_sum, require, require_list

MAX_LISTED_CALLS = 1_000_000
"""Longest run whose calls are listed one by one; the closed forms of `calc.tokens` have no such limit."""

LISTED_CALLS = count_up_to(MAX_LISTED_CALLS)


def growth_per_call(calls: int, growth: Any) -> np.ndarray:
    """What each call adds to the next prompt, from one number or a list.

    Parameters
    ----------
    calls : int
        Calls of the run, T [calls].
    growth : int or sequence of int
        One growth for all calls, or T - 1 of them: entry t is what call t adds to the prompt of call t + 1
        [tokens per call].

    Returns
    -------
    ndarray, shape (T - 1,)
        Growth after each call but the last [tokens].

    Raises
    ------
    ValueError
        If the run is too long to be listed, or a list does not have T - 1 entries.

    Examples
    --------
    >>> growth_per_call(4, 300)
    array([300, 300, 300])
    >>> growth_per_call(3, [100, 900])
    array([100, 900])
    """
    calls = require(calls, LISTED_CALLS, "calls")
    growth = require(growth, COUNT, "growth")
    steps = max(calls - 1, 0)
    if not isinstance(growth, np.ndarray):
        return np.full(steps, growth, dtype=np.int64)
    if growth.shape != (steps,):
        raise ValueError(f"growth must be one number or a list of calls - 1 = {steps} numbers, got {growth.size}")
    return growth


def growth_through_sizes(calls: int, sizes: Sequence[tuple[int, int]]) -> np.ndarray:
    """Growth of a run whose prompt size is known at a few calls, in straight steps between them.

    Parameters
    ----------
    calls : int
        Calls of the run, T [calls].
    sizes : sequence of (int, int)
        Pairs of call number (from 1) and prompt size, in rising order of both; the first is call 1
        [calls, tokens].

    Returns
    -------
    ndarray, shape (T - 1,)
        Growth after each call but the last; after the last pair the last slope goes on [tokens].

    Raises
    ------
    ValueError
        If the pairs do not start at call 1 or do not rise.

    Notes
    -----
    Sizes between two pairs are rounded down to whole tokens, so that the given sizes are met exactly.

    Examples
    --------
    >>> sizes = [(1, 2000), (5, 14_000), (15, 58_000), (25, 112_000)]
    >>> growth = growth_through_sizes(25, sizes)
    >>> [int(x) for x in prompt_tokens_per_call(25, 2000, growth)[[0, 4, 14, 24]]]
    [2000, 14000, 58000, 112000]
    """
    calls = require(calls, LISTED_CALLS, "calls")
    at, size = _pair_columns(sizes, "sizes")
    if len(at) < 2 or at[0] != 1 or (np.diff(at) <= 0).any() or (np.diff(size) < 0).any():
        raise ValueError(
            "sizes must be two or more pairs (call, tokens) that start at call 1 and rise, "
            f"got {list(zip(at.tolist(), size.tolist()))}"
        )
    numbers = np.arange(1, calls + 1)
    piece = np.clip(np.searchsorted(at, numbers, side="right") - 1, 0, len(at) - 2)
    # Python integers where the product of a step and a rise could pass int64.
    exact = object if float(calls) * float(size[-1]) >= 2**62 else np.int64
    numbers, at, size = (column.astype(exact) for column in (numbers, at, size))
    prompt = size[piece] + (numbers - at[piece]) * np.diff(size)[piece] // np.diff(at)[piece]
    _require_listable(int(prompt.max(initial=0)))
    return np.diff(prompt).astype(np.int64)


def growth_in_steps(calls: int, steps: Sequence[tuple[int, int]]) -> np.ndarray:
    """Growth that is constant between a few calls: a step curve.

    Parameters
    ----------
    calls : int
        Calls of the run, T [calls].
    steps : sequence of (int, int)
        Pairs (from call, growth): from that call on, each call adds that much; the first is call 1
        [calls, tokens per call].

    Returns
    -------
    ndarray, shape (T - 1,)
        Growth after each call but the last [tokens].

    Raises
    ------
    ValueError
        If the pairs do not start at call 1 or do not rise.

    Examples
    --------
    >>> growth_in_steps(6, [(1, 300), (4, 2000)])
    array([ 300,  300,  300, 2000, 2000])
    """
    calls = require(calls, LISTED_CALLS, "calls")
    first, growth = _pair_columns(steps, "steps")
    if not len(first) or first[0] != 1 or (np.diff(first) <= 0).any():
        raise ValueError(
            f"steps must be pairs (call, growth) that start at call 1 and rise, got {list(map(tuple, steps))[:6]}"
        )
    numbers = np.arange(1, max(calls, 1))
    return growth[np.searchsorted(first, numbers, side="right") - 1]


def _pair_columns(pairs: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The two columns of a list of pairs."""
    try:
        firsts, seconds = [first for first, _ in pairs], [second for _, second in pairs]
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a list of pairs of numbers, got {str(pairs)[:60]}") from None
    return require_list(firsts, COUNT, name), require_list(seconds, COUNT, name)


def prompt_tokens_per_call(
    calls: int,
    prefix: int,
    growth: Any,
    *,
    block: int | None = None,
    summary: int = 0,
    accumulate: bool = False,
) -> np.ndarray:
    """Prompt size of each call of a run.

    Parameters
    ----------
    calls : int
        Calls of the run, T [calls].
    prefix : int
        Fixed tokens, m [tokens].
    growth : int or sequence of int
        Growth per call, one number or T - 1 of them [tokens per call].
    block : int or None
        Calls between two compactions, K; None for no compaction [calls].
    summary : int
        Tokens of one summary, c [tokens].
    accumulate : bool
        True where every summary is kept, False where each replaces the one before [yes or no].

    Returns
    -------
    ndarray, shape (T,)
        Prompt size of each call [tokens].

    Raises
    ------
    ValueError
        If an argument is out of range, or the sizes pass what can be listed exactly.

    Notes
    -----
    The growth of a block's last call is read by the compaction call and by nobody after it.

    Examples
    --------
    >>> prompt_tokens_per_call(4, 2000, 300)
    array([2000, 2300, 2600, 2900])
    >>> prompt_tokens_per_call(5, 2000, 300, block=2, summary=1000)
    array([2000, 2300, 3000, 3300, 3000])
    """
    steps = growth_per_call(calls, growth)
    calls = require(calls, LISTED_CALLS, "calls")
    prefix = require(prefix, COUNT, "prefix")
    summary = require(summary, COUNT, "summary")
    block = max(calls, 1) if block is None else require(block, POSITIVE_COUNT, "block")
    _require_listable(prefix + summary * (calls if accumulate else 1) + exact_sum(steps))
    history = np.concatenate(([0], np.cumsum(steps)))[:calls]
    number = np.arange(calls)
    past_blocks = number // block
    opening = history[past_blocks * block] if calls else history
    summaries = past_blocks if accumulate else np.minimum(past_blocks, 1)
    return prefix + summary * summaries + history - opening


def _require_listable(largest: int) -> None:
    if largest > MAX_COUNT:
        raise ValueError(f"the largest prompt must be at most {MAX_COUNT:,} tokens, got {largest:,}")


def first_refused_call(prompt_tokens: Any, context_limit: int) -> int | None:
    """The first call whose prompt is larger than the context window.

    Parameters
    ----------
    prompt_tokens : array_like, shape (T,)
        Prompt size of each call [tokens].
    context_limit : int
        Largest prompt that the model accepts [tokens].

    Returns
    -------
    int or None
        Number of the call, from 1; None where every call fits [calls].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Examples
    --------
    >>> first_refused_call([2000, 2300, 2600], 2300)
    3
    >>> first_refused_call([2000, 2300], 2300) is None
    True
    """
    prompt_tokens = np.atleast_1d(require(prompt_tokens, COUNT, "prompt_tokens"))
    context_limit = require(context_limit, COUNT, "context_limit")
    refused = np.flatnonzero(prompt_tokens > context_limit)
    return int(refused[0]) + 1 if refused.size else None
