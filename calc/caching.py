"""Which prompt tokens are read from the provider's cache, written to it, or plain."""

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import numpy as np

from calc.catalogue import preset_table
from calc.numeric import COUNT, POSITIVE_COUNT, Numeric, formula, larger, require, require_all
from calc.tokens import submitted_input_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class CachingRule:
    """How long a shared prefix must be to be cached, and in which steps a hit is counted."""

    minimum_tokens: int
    """A shorter prefix is neither stored nor read; 0 for no minimum."""
    granularity_tokens: int
    """Hits and stores are whole multiples of this."""
    stated: bool
    """False where the provider does not state these numbers for the model."""
    source: str

    def __post_init__(self) -> None:
        require(self.minimum_tokens, COUNT, "minimum_tokens")
        require(self.granularity_tokens, POSITIVE_COUNT, "granularity_tokens")


TEXTBOOK_RULE = CachingRule(
    minimum_tokens=0,
    granularity_tokens=1,
    stated=False,
    source="no rule of this provider is known here: no minimum length, hits to the token",
)
"""Every token of a shared prefix counts."""


@cache
def _rules() -> tuple[dict[str, Any], ...]:
    return tuple(preset_table("caching")["rule"])


def caching_rule(provider: str, model: str, *, minimum_tokens: int | None = None) -> CachingRule:
    """The caching rule of a provider's model.

    Parameters
    ----------
    provider : str
        The provider's id in the price list [name].
    model : str
        The model's id in the price list [name].
    minimum_tokens : int or None
        Shortest cached prefix typed by hand, in place of the provider's [tokens].

    Returns
    -------
    CachingRule
        The provider's first rule that fits, else the maker's, else `TEXTBOOK_RULE`; its source says which
        [tokens].

    Examples
    --------
    >>> caching_rule("anthropic", "claude-opus-4-6").minimum_tokens
    4096
    >>> caching_rule("openai", "gpt-5.4").granularity_tokens
    128
    """
    rule = _listed_rule(provider, model)
    if minimum_tokens is None:
        return rule
    return replace(rule, minimum_tokens=minimum_tokens, source=f"{rule.source}; minimum typed by hand")


def _listed_rule(provider: str, model: str) -> CachingRule:
    own = [rule for rule in _rules() if rule["provider"] == provider]
    of_makers = [rule for rule in _rules() if rule["models"] != ["*"]]
    for rule in (*own, *of_makers):
        if any(fnmatchcase(model, pattern) for pattern in rule["models"]):
            resold = "" if rule["provider"] == provider else f", as {rule['provider']} caches its own models"
            return CachingRule(
                minimum_tokens=rule["minimum_tokens"],
                granularity_tokens=rule["granularity_tokens"],
                stated=rule["stated"] and not resold,
                source=f"{rule['source']} (checked {rule['checked']}){resold}",
            )
    return TEXTBOOK_RULE


@formula(
    r"\text{hit} = \begin{cases} 0 & s < s_{\min} \\ g \lfloor s/g \rfloor & \text{else} \end{cases}",
    shared_tokens=COUNT,
    minimum_tokens=COUNT,
    granularity_tokens=POSITIVE_COUNT,
)
def hit_tokens(shared_tokens: Numeric, minimum_tokens: Numeric, granularity_tokens: Numeric) -> Numeric:
    """Tokens of a shared prefix that count as cached.

    Parameters
    ----------
    shared_tokens : int or array
        Tokens that a prompt has in common with an earlier one, from the first token on, s [tokens].
    minimum_tokens : int or array
        Shortest prefix that is cached [tokens].
    granularity_tokens : int or array
        Step in which hits are counted, g [tokens].

    Returns
    -------
    int or array
        0 below the minimum, else the largest multiple of g that is not above s [tokens].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    Source: the providers' caching guides; the rules are in presets/caching.toml.

    Examples
    --------
    >>> hit_tokens(3000, 4096, 1), hit_tokens(1300, 1024, 128)
    (0, 1280)
    >>> hit_tokens([1000, 1300], 1024, 128)
    array([   0, 1280])
    """
    return (shared_tokens >= minimum_tokens) * (shared_tokens // granularity_tokens * granularity_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSplit:
    """The tokens of each prompt by what the cache does with them; the three add up to the prompt."""

    read: Numeric
    written: Numeric
    plain: Numeric


def cache_split(prompt_tokens: Any, shared_tokens: Any, rule: CachingRule) -> CacheSplit:
    """What the cache does with each prompt of a run.

    Parameters
    ----------
    prompt_tokens : array_like
        Size of each prompt [tokens].
    shared_tokens : array_like
        Tokens that each prompt shares, from its first token on, with what was sent before; 0 for the first prompt
        [tokens].
    rule : CachingRule
        Minimum length and granularity [tokens].

    Returns
    -------
    CacheSplit
        Tokens read, written and plain of each prompt [tokens].

    Raises
    ------
    ValueError
        If a prompt is smaller than what it shares, or a count is out of range.

    Notes
    -----
    A prompt is stored up to its last whole step; what was not already there is written. No entry expires here.

    Examples
    --------
    >>> split = cache_split([2000, 2300], [0, 2000], TEXTBOOK_RULE)
    >>> split.read.tolist(), split.written.tolist(), split.plain.tolist()
    ([0, 2000], [2000, 300], [0, 0])
    """
    prompt, shared = require_all(COUNT, prompt_tokens=prompt_tokens, shared_tokens=shared_tokens)
    if np.any(np.asarray(shared) > np.asarray(prompt)):
        raise ValueError("shared_tokens must not exceed prompt_tokens, got a prompt that shares more than it holds")
    read = hit_tokens(shared, rule.minimum_tokens, rule.granularity_tokens)
    stored = hit_tokens(prompt, rule.minimum_tokens, rule.granularity_tokens)
    return CacheSplit(read=read, written=stored - read, plain=prompt - stored)


def append_only_split(calls: Numeric, prefix: Numeric, growth: Numeric, minimum_tokens: Numeric = 0) -> CacheSplit:
    """Tokens read, written and plain over a whole append-only run, in closed form.

    Parameters
    ----------
    calls : int or array
        Calls of the run, T [calls].
    prefix : int or array
        Fixed tokens, m [tokens].
    growth : int or array
        Growth per call, r [tokens per call].
    minimum_tokens : int or array
        Shortest prefix that is cached; hits are counted to the token [tokens].

    Returns
    -------
    CacheSplit
        Sums over the run; they add up to `submitted_input_tokens` [tokens].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    Let u be the calls whose prompt is below the minimum. They are plain: N(u). Every later call reads the prompt before
    it, if that was stored: N(T - 1) - N(u); the rest is written, the last prompt's size if T > u, else nothing.
    Source: telescoping sum; checked against a call-by-call simulation in the tests.

    Examples
    --------
    >>> append_only_split(50, 4000, 500)
    CacheSplit(read=784000, written=28500, plain=0)
    >>> append_only_split(100, 2000, 300, 4096).plain
    20300
    """
    calls, prefix, growth, minimum_tokens = require_all(
        COUNT, calls=calls, prefix=prefix, growth=growth, minimum_tokens=minimum_tokens
    )
    short_calls = _calls_below(calls, prefix, growth, minimum_tokens)
    return CacheSplit(
        read=_read_of_run(calls, prefix, growth, short_calls),
        written=_last_stored(calls, prefix, growth, short_calls),
        plain=submitted_input_tokens(short_calls, prefix, growth),
    )


@formula(r"\sum_{t=u+1}^{T-1} P_t", calls=COUNT, prefix=COUNT, growth=COUNT, short_calls=COUNT)
def _read_of_run(calls: Numeric, prefix: Numeric, growth: Numeric, short_calls: Numeric) -> Numeric:
    """Prompts from the first that is stored to the last but one, each read by the call after it."""
    stored = larger(calls - 1 - short_calls, 0)
    return stored * prefix + growth * (stored * (2 * short_calls + stored - 1) // 2)


@formula(r"P_T \text{ if } T > u", calls=COUNT, prefix=COUNT, growth=COUNT, short_calls=COUNT)
def _last_stored(calls: Numeric, prefix: Numeric, growth: Numeric, short_calls: Numeric) -> Numeric:
    """What stands in the cache after the run, written piece by piece: the last prompt, if it is stored at all."""
    return (calls > short_calls) * (prefix + growth * larger(calls - 1, 0))


@formula(
    r"u = \min\left(T, \lceil (s_{\min} - m) / r \rceil\right)",
    calls=COUNT,
    prefix=COUNT,
    growth=COUNT,
    minimum_tokens=COUNT,
)
def _calls_below(calls: Numeric, prefix: Numeric, growth: Numeric, minimum_tokens: Numeric) -> Numeric:
    """Calls of the run whose prompt is smaller than the minimum."""
    missing = larger(minimum_tokens - prefix, 0)
    # Where nothing grows, a prompt that starts below the minimum stays there in all calls.
    needed = -(-missing // larger(growth, 1)) + (growth == 0) * (missing > 0) * calls
    return calls - larger(calls - needed, 0)


def cached_fraction_of_run(calls: Numeric, prefix: Numeric, growth: Numeric, minimum_tokens: Numeric = 0) -> Numeric:
    """Share of the submitted tokens that an append-only run reads from the cache: h is not a free dial.

    Parameters
    ----------
    calls : int or array
        Calls of the run, T, at least 1 [calls].
    prefix : int or array
        Fixed tokens, m, at least 1 [tokens].
    growth : int or array
        Growth per call, r [tokens per call].
    minimum_tokens : int or array
        Shortest prefix that is cached [tokens].

    Returns
    -------
    float or array
        h = read / N [fraction].

    Raises
    ------
    ValueError
        If an argument is not a whole number in range.

    Notes
    -----
    Without a minimum h(T) = [m (T-1) + r (T-1)(T-2)/2] / N. Source: `append_only_split`.

    Examples
    --------
    >>> round(cached_fraction_of_run(100, 26_000, 1400), 4)
    0.9827
    """
    calls, prefix = require_all(POSITIVE_COUNT, calls=calls, prefix=prefix)
    read = append_only_split(calls, prefix, growth, minimum_tokens).read
    return read / submitted_input_tokens(calls, prefix, growth)
