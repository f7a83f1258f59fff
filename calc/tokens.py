"""Submitted tokens of an agent run in closed form: a growing history, and block compaction.

A run makes T calls. Call t submits the fixed prefix m (system text, tools) and the history so far, which grows by r
tokens a call; r counts all that a call adds to the next prompt, the model's own output included. With compaction every
K calls, the history is replaced by a summary of c tokens.
"""

from calc.numeric import COUNT, POSITIVE_COUNT, Numeric, formula, larger


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
    >>> submitted_input_tokens([1, 2, 100], 2000, 300)
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
    r"N_K = m T + \frac{r}{2}\,G + c \max(T-K, 0)"
    "\n"
    r"G = Q K(K-1) + s(s-1)"
    "\n"
    r"T = Q K + s",
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
    N_K = m T + (r/2) G + c max(T - K, 0) with G = Q K (K-1) + s (s-1) and T = Q K + s: Q full blocks, then one of s.
    Each summary replaces the one before; for summaries that pile up see `accumulated_input_tokens`.
    Source: sum over the calls; checked against a loop in the tests.

    Examples
    --------
    >>> compacted_input_tokens(100, 2000, 300, 20, 1000)
    565000
    >>> compacted_input_tokens(100, 2000, 300, [20, 100], 1000)
    array([ 565000, 1685000])
    """
    return _block_tokens(calls, prefix, growth, block) + summary * larger(calls - block, 0)


@formula(
    r"N = m T + \frac{r}{2}\,G + c\left[\frac{K Q(Q-1)}{2} + s Q\right]"
    "\n"
    r"G = Q K(K-1) + s(s-1)"
    "\n"
    r"T = Q K + s",
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
    return _block_tokens(calls, prefix, growth, block) + summary * (
        block * (blocks * (blocks - 1) // 2) + rest * blocks
    )


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
