"""Tokens that a prompt carries besides its history: a document index, the documents it loads, tool schemas."""

import math
from collections.abc import Sequence

import numpy as np

from calc.numeric import COUNT, FRACTION, POSITIVE_COUNT, exact_sum, require, require_list

FEW_LOADS = 0.1
"""Expected loads in a run below which the closed form loses digits and its series is used."""
SERIES_TERMS = 14
"""Enough for the last digit of a float64 below FEW_LOADS."""


def _columns(**columns) -> list[np.ndarray]:
    """Columns of one table as arrays of one length."""
    arrays = [np.atleast_1d(column) for column in columns.values()]
    lengths = {name: array.size for name, array in zip(columns, arrays)}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"{' and '.join(columns)} must have one entry per item each, got lengths {lengths}")
    return arrays


def index_tokens_per_prompt(
    entry_tokens: Sequence[int], document_tokens: Sequence[int], load_probabilities: Sequence[float]
) -> float:
    """Expected tokens that a document index adds to one prompt.

    Parameters
    ----------
    entry_tokens : sequence of int
        Tokens of each document's line in the index, r_i, always sent [tokens].
    document_tokens : sequence of int
        Tokens of each document when loaded, l_i [tokens].
    load_probabilities : sequence of float
        Probability that a prompt loads the document, rho_i [fraction].

    Returns
    -------
    float
        sum r_i + sum rho_i l_i [tokens per prompt].

    Raises
    ------
    ValueError
        If lengths differ or an entry is out of range.

    Notes
    -----
    Source: expectation of a sum; no independence between documents is needed.

    Examples
    --------
    >>> index_tokens_per_prompt([20, 20], [1000, 4000], [0.5, 0.25])
    1540.0
    """
    entries, documents, probabilities = _index(entry_tokens, document_tokens, load_probabilities)
    return float(exact_sum(entries) + (probabilities * documents).sum())


def index_tokens_over_run(
    calls: int,
    entry_tokens: Sequence[int],
    document_tokens: Sequence[int],
    load_probabilities: Sequence[float],
) -> float:
    """Expected tokens that a document index adds to a run in which a loaded document stays in the history.

    Parameters
    ----------
    calls : int
        Calls of the run, T [calls].
    entry_tokens : sequence of int
        Tokens of each document's line in the index, r_i, sent with every call [tokens].
    document_tokens : sequence of int
        Tokens of each document when loaded, l_i [tokens].
    load_probabilities : sequence of float
        Probability that a call loads the document if it is not loaded yet, rho_i [fraction].

    Returns
    -------
    float
        T sum r_i + sum l_i sum_t (1 - (1 - rho_i)^t) [tokens].

    Raises
    ------
    ValueError
        If lengths differ or an entry is out of range.

    Notes
    -----
    A document is in the prompt of call t with probability 1 - (1 - rho)^t. Summed over t = 1 ... T this is
    T - q (1 - q^T) / (1 - q) with q = 1 - rho, and 0 for rho = 0. Calls load independently. Source: geometric series.

    Examples
    --------
    >>> index_tokens_over_run(2, [20], [1000], [0.5])
    1290.0
    """
    calls = require(calls, COUNT, "calls")
    entries, documents, probabilities = _index(entry_tokens, document_tokens, load_probabilities)
    prompts_with_document = np.array([_expected_prompts(calls, float(rho)) for rho in probabilities])
    return float(calls * exact_sum(entries) + (documents * prompts_with_document).sum())


def _expected_prompts(calls: int, probability: float) -> float:
    """Expected number of a run's prompts that hold a document: the sum of 1 - (1 - rho)^t."""
    if calls * probability < FEW_LOADS:
        # The closed form would cancel here; its expansion in rho, whose terms are binomials of T + 1, does not.
        total, term = 0.0, calls * (calls + 1) / 2 * probability
        for order in range(1, SERIES_TERMS + 1):
            total += term
            term *= -(calls - order) / (order + 2) * probability
        return total
    ever = 1.0 if probability == 1 else -math.expm1(calls * math.log1p(-probability))
    return calls - (1 - probability) * ever / probability


def _index(entry_tokens, document_tokens, load_probabilities) -> list[np.ndarray]:
    return _columns(
        entry_tokens=require_list(entry_tokens, COUNT, "entry_tokens"),
        document_tokens=require_list(document_tokens, COUNT, "document_tokens"),
        load_probabilities=require_list(load_probabilities, FRACTION, "load_probabilities"),
    )


def tool_schema_tokens(calls: int, schema_tokens: Sequence[int], first_calls: Sequence[int] | None = None) -> int:
    """Tokens that tool schemas add to a run: all loaded from the start, or each from a call of its own.

    Parameters
    ----------
    calls : int
        Calls of the run, T [calls].
    schema_tokens : sequence of int
        Tokens of each tool's schema, s_i [tokens].
    first_calls : sequence of int or None
        Number of the first call that carries each schema, from 1; larger than T for one that is never loaded; None
        where all are loaded from call 1 [calls].

    Returns
    -------
    int
        T sum s_i, or sum s_i max(T - t_i + 1, 0) when staged [tokens].

    Raises
    ------
    ValueError
        If lengths differ or an entry is out of range.

    Notes
    -----
    Schemas stand in front of the history, so that loading one in mid-run also breaks a prompt cache from there on; that
    price is not in this count. Source: the definition.

    Examples
    --------
    >>> tool_schema_tokens(100, [500, 1500])
    200000
    >>> tool_schema_tokens(100, [500, 1500], first_calls=[1, 91])
    65000
    """
    calls = require(calls, COUNT, "calls")
    schema_tokens = require_list(schema_tokens, COUNT, "schema_tokens")
    first = [1] * len(schema_tokens) if first_calls is None else first_calls
    schemas, first = _columns(
        schema_tokens=schema_tokens,
        first_calls=require_list(first, POSITIVE_COUNT, "first_calls"),
    )
    return sum(int(size) * max(calls - int(start) + 1, 0) for size, start in zip(schemas, first))
