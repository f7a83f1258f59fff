"""The same agent run under four policies: plain, cached, compacted, and both, as a ledger of token classes per call."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from calc.caching import CachingRule, cache_split
from calc.cost import ByClass, PriceCard, exact_usd, usd_by_class
from calc.names import known
from calc.numeric import COUNT, POSITIVE_COUNT, count_up_to, require_scalar
from calc.prompts import MAX_LISTED_CALLS, first_refused_call, growth_per_call, prompt_tokens_per_call

POLICIES = ("plain", "cached", "compacted", "both")
"""plain: every call pays for its whole prompt; cached: the shared prefix is read from the provider's cache; compacted:
the history is replaced by a summary after every block; both: the two together."""

LIFETIMES = ("5m", "1h")
"""How long a cache entry lives; its write has a price of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRun:
    """What a run sends and how it compacts."""

    calls: int
    prefix: int
    """Fixed tokens at the start of every prompt."""
    growth: int | tuple[int, ...]
    """Tokens that a call adds to the next prompt, its output included: one number, or one per call but the last."""
    output: int = 0
    """Tokens that each call writes; part of the growth where they are sent back."""
    block: int = 1
    """Calls between two compactions."""
    summary: int = 0
    """Tokens of a summary."""
    instruction: int = 0
    """Tokens that ask for the summary."""

    def __post_init__(self) -> None:
        ranges = dict.fromkeys(("prefix", "output", "summary", "instruction"), COUNT)
        ranges |= {"calls": count_up_to(MAX_LISTED_CALLS, low=1), "block": POSITIVE_COUNT}
        for name, allowed in ranges.items():
            object.__setattr__(self, name, require_scalar(getattr(self, name), allowed, name))
        if isinstance(self.growth, Iterable):
            whole = tuple(growth_per_call(self.calls, self.growth).tolist())
        else:
            whole = require_scalar(self.growth, COUNT, "growth")
        object.__setattr__(self, "growth", whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Every request of a run under one policy."""

    policy: str
    prompt_tokens: np.ndarray
    """Prompt size of each call that was made."""
    calls: ByClass
    """Tokens of the run's own calls, one entry per call."""
    compactions: ByClass
    """Tokens of the compaction calls, one entry each."""
    compaction_after: np.ndarray
    """Number of the call after which each compaction was made."""
    refused_call: int | None
    """The first call that could not be made, because it or the compaction before it did not fit the context window;
    nothing from there on counts."""

    @property
    def tokens(self) -> ByClass:
        """Sums over the run, compaction calls included."""
        return self.calls.summed() + self.compactions.summed()

    def usd_per_call(self, card: PriceCard) -> np.ndarray:
        """Dollars of each call, a compaction's added to the call that it followed; shape of `prompt_tokens` [USD]."""
        dollars = np.array(usd_by_class(self.calls, card).total, dtype=np.float64)
        np.add.at(dollars, self.compaction_after - 1, usd_by_class(self.compactions, card).total)
        return dollars

    def usd(self, card: PriceCard) -> ByClass:
        """Dollars of each class over the run, compaction calls included, as exact fractions [USD]."""
        return exact_usd(self.calls, card) + exact_usd(self.compactions, card)

    @property
    def largest_prompt(self) -> int:
        """Size of the largest prompt that was sent, those of compaction calls included [tokens]."""
        return max(int(np.max(requests.prompt, initial=0)) for requests in (self.calls, self.compactions))


def run_ledger(
    run: AgentRun,
    policy: str,
    rule: CachingRule,
    *,
    lifetime: str = "5m",
    context_window: int | None = None,
) -> Ledger:
    """The ledger of a run under a policy.

    Parameters
    ----------
    run : AgentRun
        The run [tokens, calls].
    policy : str
        plain, cached, compacted or both [name].
    rule : CachingRule
        Minimum length and granularity of the cache [tokens].
    lifetime : str
        Lifetime of what is written to the cache: 5m or 1h [name].
    context_window : int or None
        Largest prompt that the model accepts, as price lists state it; None for no limit [tokens].

    Returns
    -------
    Ledger
        Tokens by class of every call and every compaction call [tokens].

    Raises
    ------
    ValueError
        If a number is out of range.
    LookupError
        If policy or lifetime is not known.

    Notes
    -----
    Gaps between calls are shorter than the lifetime, so that no entry expires. A compaction call sends the whole context
    and the instruction; with a cache it reads what the last call stored. The prefix stays cached through a compaction.
    The output of a call is written to the cache with the next prompt, as providers bill it.

    Examples
    --------
    >>> from calc.caching import TEXTBOOK_RULE
    >>> run = AgentRun(calls=50, prefix=4000, growth=500, block=10, summary=1500, instruction=200)
    >>> run_ledger(run, "both", TEXTBOOK_RULE).tokens
    ByClass(uncached=0, cache_read=378500, cache_write_5m=35300, cache_write_1h=0, output=6000)
    """
    known(policy, POLICIES, "policy")
    known(lifetime, LIFETIMES, "lifetime")
    compacts = policy in ("compacted", "both")
    prompts = prompt_tokens_per_call(
        run.calls, run.prefix, run.growth, block=run.block if compacts else None, summary=run.summary
    )
    ends = np.arange(run.block, run.calls, run.block) if compacts else np.arange(0)
    contexts = prompts[ends - 1] + _growth_after(run, ends)
    calls_made, compactions_made = _fitting(prompts, ends, contexts + run.instruction, context_window)
    refused = calls_made + 1 if calls_made < run.calls else None
    prompts = prompts[:calls_made]
    ends, contexts = ends[:compactions_made], contexts[:compactions_made]

    openings = np.isin(np.arange(len(prompts)), ends)
    shared = np.concatenate(([0], prompts))[: len(prompts)]
    shared = np.where(openings, np.minimum(run.prefix, prompts), shared)
    caches = policy in ("cached", "both")
    return Ledger(
        policy=policy,
        prompt_tokens=prompts,
        calls=_classes(prompts, shared, run.output, rule if caches else None, lifetime),
        compactions=_classes(
            contexts + run.instruction, prompts[ends - 1], run.summary, rule if caches else None, lifetime
        ),
        compaction_after=ends,
        refused_call=refused,
    )


def _growth_after(run: AgentRun, ends: np.ndarray) -> np.ndarray:
    """What the last call of each block added, which only the compaction call reads."""
    if isinstance(run.growth, tuple):
        return np.array(run.growth, dtype=np.int64)[ends - 1]
    return np.full(len(ends), run.growth, dtype=np.int64)


def _fitting(
    requests: np.ndarray, ends: np.ndarray, compactions: np.ndarray, context_window: int | None
) -> tuple[int, int]:
    """How many calls and how many compactions come before the first request that the window refuses."""
    if context_window is None:
        return len(requests), len(ends)
    call = first_refused_call(requests, context_window)
    compaction = first_refused_call(compactions, context_window)
    calls_made = len(requests) if call is None else call - 1
    if compaction is not None:
        calls_made = min(calls_made, int(ends[compaction - 1]))
    compactions_made = np.searchsorted(ends, calls_made, side="right")
    return calls_made, min(int(compactions_made), len(ends) if compaction is None else compaction - 1)


def _classes(prompts: np.ndarray, shared: np.ndarray, output: int, rule: CachingRule | None, lifetime: str) -> ByClass:
    """Prompts by class; all plain where there is no cache."""
    outputs = np.full(len(prompts), output, dtype=np.int64)
    if rule is None:
        nothing = np.zeros(len(prompts), dtype=np.int64)
        return ByClass(
            uncached=prompts, cache_read=nothing, cache_write_5m=nothing, cache_write_1h=nothing, output=outputs
        )
    split = cache_split(prompts, shared, rule)
    written = {"5m": np.zeros_like(split.written), "1h": np.zeros_like(split.written), lifetime: split.written}
    return ByClass(
        uncached=split.plain,
        cache_read=split.read,
        cache_write_5m=written["5m"],
        cache_write_1h=written["1h"],
        output=outputs,
    )
