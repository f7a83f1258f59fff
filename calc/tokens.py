"""Submitted tokens of an agent run: a growing history, block compaction, and what a prompt carries on top.

A run makes T calls. Call t submits the fixed prefix m (system text, tools) and the history so far, which grows by r
tokens a call; r counts all that a call adds to the next prompt, the model's own output included. With compaction every
K calls, the history is replaced by a summary of c tokens.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from calc.numeric import COUNT, MAX_COUNT, POSITIVE_COUNT, Numeric, count_up_to, formula, larger, require

MAX_LISTED_CALLS = 1_000_000
"""Longest run whose calls are listed one by one; closed forms have no such limit."""

LISTED_CALLS = count_up_to(MAX_LISTED_CALLS)


@formula(r"N = m T + \frac{r\,T(T-1)}{2}", calls=COUNT, prefix=COUNT, growth=COUNT)
def submitted_input_tokens(calls: Numeric, prefix: Numeric, growth: Numeric) -> Numeric:
    """Input tokens that a run submits when every call re-sends the whole history.

    Parameters
    ----------
    calls : int or array
        Calls of the run, T [calls].
    prefix : int or array
        Fixed tokens at the start of every prompt, m [tokens].
    growth : int or array
        What a call adds to the next prompt, its output included, r [tokens per call].

    Returns
    -------
    int or array
        Sum of the prompt sizes, N [tokens].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    N = m T + r T (T - 1) / 2, the sum of m + r (t - 1) over t = 1 ... T. The bill grows with the square of the calls.
    Source: arithmetic series.

    Examples
    --------
    >>> submitted_input_tokens(100, 2000, 300)
    1685000
    >>> submitted_input_tokens(np.array([1, 2, 100]), 2000, 300)
    array([   2000,    4300, 1685000])
    """
    return prefix * calls + growth * (calls * (calls - 1) // 2)


@formula(r"P_T = m + r\,(T-1)", calls=POSITIVE_COUNT, prefix=COUNT, growth=COUNT)
def last_call_tokens(calls: Numeric, prefix: Numeric, growth: Numeric) -> Numeric:
    """Prompt size of the last call when nothing is compacted.

    Parameters
    ----------
    calls : int or array
        Calls of the run, T [calls].
    prefix : int or array
        Fixed tokens, m [tokens].
    growth : int or array
        Growth per call, r [tokens per call].

    Returns
    -------
    int or array
        Tokens of the last prompt [tokens].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    P_T = m + r (T - 1). Source: the definition of the run.

    Examples
    --------
    >>> last_call_tokens(100, 2000, 300)
    31700
    >>> last_call_tokens([1, 100], 2000, 300)
    array([ 2000, 31700])
    """
    return prefix + growth * (calls - 1)


@formula(
    r"N_K = m T + \frac{r}{2}\left[Q K(K-1) + s(s-1)\right] + c \max(T-K, 0), \quad T = Q K + s",
    calls=COUNT,
    prefix=COUNT,
    growth=COUNT,
    block=POSITIVE_COUNT,
    summary=COUNT,
)
def compacted_input_tokens(
    calls: Numeric, prefix: Numeric, growth: Numeric, block: Numeric, summary: Numeric
) -> Numeric:
    """Input tokens of a run whose history is replaced by one summary after every block of calls.

    Parameters
    ----------
    calls : int or array
        Calls of the run, T [calls].
    prefix : int or array
        Fixed tokens, m [tokens].
    growth : int or array
        Growth per call, r [tokens per call].
    block : int or array
        Calls between two compactions, K [calls].
    summary : int or array
        Tokens of the summary that opens every block but the first, c [tokens].

    Returns
    -------
    int or array
        Tokens submitted by the run's own calls; what the compaction calls read is
        `compaction_read_tokens` [tokens].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    N_K = m T + (r/2) [Q K (K-1) + s (s-1)] + c max(T - K, 0) with T = Q K + s: Q full blocks and a last one of s calls.
    Each summary replaces the one before; for summaries that pile up see `accumulated_input_tokens`.
    Source: sum over the calls; checked against a loop in the tests.

    Examples
    --------
    >>> compacted_input_tokens(100, 2000, 300, 20, 1000)
    565000
    >>> compacted_input_tokens(100, 2000, 300, np.array([20, 100]), 1000)
    array([ 565000, 1685000])
    """
    return _block_tokens(calls, prefix, growth, block) + summary * larger(calls - block, 0)


@formula(
    r"N = m T + \frac{r}{2}\left[Q K(K-1) + s(s-1)\right] + c\left[\frac{K Q(Q-1)}{2} + s Q\right]",
    calls=COUNT,
    prefix=COUNT,
    growth=COUNT,
    block=POSITIVE_COUNT,
    summary=COUNT,
)
def accumulated_input_tokens(
    calls: Numeric, prefix: Numeric, growth: Numeric, block: Numeric, summary: Numeric
) -> Numeric:
    """Input tokens of a run whose summaries are all kept, one more after every block.

    Parameters
    ----------
    calls : int or array
        Calls of the run, T [calls].
    prefix : int or array
        Fixed tokens, m [tokens].
    growth : int or array
        Growth per call, r [tokens per call].
    block : int or array
        Calls between two compactions, K [calls].
    summary : int or array
        Tokens of each summary, c [tokens].

    Returns
    -------
    int or array
        Tokens submitted by the run's own calls [tokens].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    Block b = 0, 1, ... carries b summaries. With B = T/K full blocks the sum is
    m T + r T (K-1)/2 + c K B (B-1)/2. Source: sum over the blocks.

    Examples
    --------
    >>> accumulated_input_tokens(100, 2000, 300, 20, 1000)
    685000
    >>> accumulated_input_tokens([20, 100], 2000, 300, 20, 1000)
    array([ 97000, 685000])
    """
    blocks, rest = calls // block, calls % block
    return _block_tokens(calls, prefix, growth, block) + summary * (block * (blocks * (blocks - 1) // 2) + rest * blocks)


def _block_tokens(calls: Numeric, prefix: Numeric, growth: Numeric, block: Numeric) -> Numeric:
    """Prefix and growth of a run in blocks, without its summaries."""
    blocks, rest = calls // block, calls % block
    return prefix * calls + growth * (blocks * (block * (block - 1) // 2) + rest * (rest - 1) // 2)


@formula(r"n = \max\left(\lceil T/K \rceil - 1,\ 0\right)", calls=COUNT, block=POSITIVE_COUNT)
def compaction_calls(calls: Numeric, block: Numeric) -> Numeric:
    """How often a run compacts: between its blocks, never after the last call.

    Parameters
    ----------
    calls : int or array
        Calls of the run, T [calls].
    block : int or array
        Calls between two compactions, K [calls].

    Returns
    -------
    int or array
        Compactions [calls].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    n = ceil(T / K) - 1, and 0 for an empty run. Source: the definition of the run.

    Examples
    --------
    >>> compaction_calls(100, 20), compaction_calls(101, 20), compaction_calls(0, 20)
    (4, 5, 0)
    >>> compaction_calls([100, 5], 20)
    array([4, 0])
    """
    return _compactions(calls, block)


def _compactions(calls: Numeric, block: Numeric) -> Numeric:
    return larger(-(-calls // block) - 1, 0)


@formula(
    r"n\,(m + r K + q) + c\,\max(n-1, 0)",
    calls=COUNT,
    prefix=COUNT,
    growth=COUNT,
    block=POSITIVE_COUNT,
    summary=COUNT,
    instruction=COUNT,
)
def compaction_read_tokens(
    calls: Numeric, prefix: Numeric, growth: Numeric, block: Numeric, summary: Numeric, instruction: Numeric = 0
) -> Numeric:
    """Input tokens that the compaction calls themselves read.

    Parameters
    ----------
    calls : int or array
        Calls of the run, T [calls].
    prefix : int or array
        Fixed tokens, m [tokens].
    growth : int or array
        Growth per call, r [tokens per call].
    block : int or array
        Calls between two compactions, K [calls].
    summary : int or array
        Tokens of the summary that a later block opens with, c [tokens].
    instruction : int or array
        Tokens that ask for the summary, q [tokens].

    Returns
    -------
    int or array
        Prompt tokens of all compaction calls together [tokens].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    n (m + r K + q) + c max(n - 1, 0): each of the n compactions reads the prefix, the block's growth and the
    instruction; each but the first also the summary before it. Source: sum over the compactions.

    Examples
    --------
    >>> compaction_read_tokens(50, 4000, 500, 10, 1500, 200)
    41300
    >>> compaction_read_tokens([20, 100], 2000, 300, 20, 1000)
    array([    0, 35000])
    """
    count = _compactions(calls, block)
    return count * (prefix + growth * block + instruction) + summary * larger(count - 1, 0)


@formula(r"n\,c", calls=COUNT, block=POSITIVE_COUNT, summary=COUNT)
def compaction_written_tokens(calls: Numeric, block: Numeric, summary: Numeric) -> Numeric:
    """Output tokens that the compaction calls write: one summary each.

    Parameters
    ----------
    calls : int or array
        Calls of the run, T [calls].
    block : int or array
        Calls between two compactions, K [calls].
    summary : int or array
        Tokens of one summary, c [tokens].

    Returns
    -------
    int or array
        Output tokens of all compaction calls together [tokens].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    n c with n of `compaction_calls`. Source: the definition of the run.

    Examples
    --------
    >>> compaction_written_tokens(100, 20, 1000)
    4000
    >>> compaction_written_tokens([20, 100], 20, 1000)
    array([   0, 4000])
    """
    return summary * _compactions(calls, block)


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
    at, size = (require([pair[i] for pair in sizes], COUNT, "sizes") for i in (0, 1))
    if len(sizes) < 2 or at[0] != 1 or (np.diff(at) <= 0).any() or (np.diff(size) < 0).any():
        raise ValueError(
            "sizes must be two or more pairs (call, tokens) that start at call 1 and rise, "
            f"got {list(zip(at.tolist(), size.tolist()))}"
        )
    numbers = np.arange(1, calls + 1)
    piece = np.clip(np.searchsorted(at, numbers, side="right") - 1, 0, len(at) - 2)
    prompt = size[piece] + (numbers - at[piece]) * np.diff(size)[piece] // np.diff(at)[piece]
    return np.diff(prompt)


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
    first, growth = (require([pair[i] for pair in steps], COUNT, "steps") for i in (0, 1))
    if not len(steps) or first[0] != 1 or (np.diff(first) <= 0).any():
        raise ValueError(
            f"steps must be pairs (call, growth) that start at call 1 and rise, got {list(map(tuple, steps))}"
        )
    numbers = np.arange(1, max(calls, 1))
    return growth[np.searchsorted(first, numbers, side="right") - 1]


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
    _require_listable(prefix + summary * (calls if accumulate else 1) + int(steps.astype(object).sum()))
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
