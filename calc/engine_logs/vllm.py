"""vLLM's lines: each gives a range of blocks under a version's rule, and a rule fits where the ranges meet."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from calc.engine_logs.answer import OtherLength, Reading, memory_text, off_text
from calc.engine_logs.lines import Log
from calc.engine_logs.printed import Printed
from calc.engines.pools import vllm_concurrency, vllm_tokens, vllm_tokens_until_0_20
from calc.engines.vllm import ATTENTION, STATE, WINDOW, PageGroup, Vllm
from calc.formats import bytes_text, count_text
from calc.kv_cache import cache_rule
from calc.model_spec import ModelSpec
from calc.numeric import total
from calc.parallel import pipeline_stages

CURRENT = "vLLM 0.21 and newer: tokens = int(blocks / blocks of a request x max_len)"
GROUPED = "vLLM until 0.20: tokens = blocks // groups x tokens of the smallest block"
UNGROUPED = "vLLM before 0.9, or with the hybrid manager off: tokens = blocks x tokens of a block, windows kept in full"
V0 = "vLLM V0, and V1 of early 2025: tokens = blocks x tokens of a block"
FIRST_CURRENT, LAST_GROUPED = (0, 20), (0, 21)
"""Sources place the change at 0.20 or 0.21: both versions may print either."""
NO_HYBRIDS = "the hybrid manager is off"
RANK_SPREAD = Fraction(3, 100)
"""By how much less memory than on the rank that printed it another rank may have: one public log shows 1.1 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one line says of the number of blocks."""

    says: str
    low: int
    high: int

    def meets(self, other: "Evidence") -> bool:
        """Whether both can be true of one pool."""
        return max(self.low, other.low) <= min(self.high, other.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A model's pages on the rank whose blocks are largest, under one set of settings."""

    rule: Vllm
    block_bytes: int
    tables: tuple[PageGroup, ...]
    block_tokens: int
    """Tokens of the smallest block, over the ranks that share a sequence's tokens."""
    slope_bytes_per_token: int | float
    grows_alike: bool
    """Whether every layer keeps every token in blocks of one length."""

    def request_blocks(self, tokens: int) -> int:
        """Blocks of one request."""
        return int(total(self.rule.request_pages(group.page, tokens) for group in self.tables))


def vllm_readings(
    model: ModelSpec,
    log: Log,
    *,
    max_len: int | None,
    lengths: Sequence[int],
    swap_bytes: int,
    settings: dict[str, Any],
    **options: Any,
) -> list[Reading]:
    """What vLLM's lines say under each rule, the likeliest first.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].
    log : Log
        The lines [facts].
    max_len : int or None
        Longest sequence that the server takes [tokens].
    lengths : sequence of int
        Other longest sequences to tell the pool's tokens for [tokens].
    swap_bytes : int
        Swap space of vLLM V0 on each rank [bytes].
    settings : dict
        Settings of vLLM that are known [each as its rule says].
    **options
        Formats and ranks, as `calc.kv_cache.cache_rule` takes them [each as it says].

    Returns
    -------
    list of Reading
        Rule by rule, newest first; those with fewer assumptions before others of the same rule [readings].

    Raises
    ------
    ValueError
        If the model cannot be split or paged so, or no rule can be applied without max_len.
    """
    readings, left_out = [], False
    for assumed, more in _assumptions(model, log, settings):
        pool = vllm_pool(model, **options, **{**settings, **more})
        for rule in _rules(model, log, pool):
            spreads = [Fraction(0)]
            if options["tensor_parallel"] * options["pipeline_parallel"] > 1 and log.available is not None:
                spreads.append(RANK_SPREAD)
            for spread in spreads:
                reading = _reading(rule, pool, log, max_len, lengths, swap_bytes, spread, assumed)
                left_out = left_out or reading is None
                readings += [reading] if reading is not None else []
    if left_out and not any(reading.fits for reading in readings):
        raise ValueError(
            f"max_len (--max-len) must be known to read these lines for a model of "
            f"{' and '.join(sorted(_kinds(model)))} layers: what a pool holds depends on the longest sequence"
        )
    if not readings:
        raise ValueError("no version of vLLM that prints these lines is known to serve such a model")
    order = {CURRENT: 0, GROUPED: 1, UNGROUPED: 2, V0: 0}
    return sorted(readings, key=lambda reading: (order[reading.rule], len(reading.assumptions)))


def _kinds(model: ModelSpec) -> set[str]:
    return {group.kind for group in model.layer_groups}


def _assumptions(model: ModelSpec, log: Log, settings: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], dict]]:
    """Settings that the lines leave out: the defaults first, then what other accelerators and versions have."""
    yield (), {}
    if any(group.states for group in model.layer_groups) and "prefix_caching" not in settings:
        yield ("prefix caching is off",), {"prefix_caching": False}
    if any(group.window for group in model.layer_groups):
        batched = [settings["batched_tokens"]] if "batched_tokens" in settings else [8192, 2048, 16_384]
        batches = [settings["batches_in_flight"]] if "batches_in_flight" in settings else [2, 1]
        for number in batches:
            for tokens in batched:
                if (tokens, number) != (batched[0], batches[0]):
                    yield (
                        (
                            f"{count_text(tokens, 'tokens')} scheduled at once, {count_text(number, 'batches')} in flight",
                        ),
                        {"batched_tokens": tokens, "batches_in_flight": number},
                    )
        if "hybrid_manager" not in settings:
            yield (NO_HYBRIDS,), {"hybrid_manager": False}
    latent = any(group.is_latent for group in model.layer_groups)
    if latent and "block_tokens" not in settings and log.attention_block is None:
        for block in (16, 32, 128):
            yield (f"blocks of {block} tokens",), {"block_tokens": block}


def vllm_pool(model: ModelSpec, **options: Any) -> Pool:
    """The pages of a model on the rank whose blocks are largest.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].
    **options
        Format, ranks and settings, as `calc.kv_cache.cache_rule` takes them [each as it says].

    Returns
    -------
    Pool
        Bytes of a block, tables of pages, and how they grow [facts].

    Raises
    ------
    ValueError
        If the model cannot be split or paged so, or keeps nothing in pages.

    Examples
    --------
    >>> from calc.presets import model_preset
    >>> pool = vllm_pool(model_preset("llama-3.1-8b"))
    >>> pool.block_bytes, pool.request_blocks(20_000)
    (2097152, 1250)
    """
    rule = cache_rule(model, engine="vllm", **options)
    stages = pipeline_stages(model.layers, rule.sizes.split.pipeline_parallel)
    block_bytes = max(rule.bytes_per_block(layers) for layers in stages)
    if not block_bytes:
        raise ValueError("the model's layers keep nothing that vLLM pages")
    tables = rule.tables()
    shared = rule.sizes.split.decode_context_parallel
    sizes = [group.page.block_tokens * shared for group in tables if group.page.block_tokens]
    growing = [
        Fraction(block_bytes, group.page.block_tokens * shared) for group in tables if group.page.kind == ATTENTION
    ]
    return Pool(
        rule=rule,
        block_bytes=block_bytes,
        tables=tables,
        block_tokens=min(sizes, default=0),
        slope_bytes_per_token=plain(sum(growing, Fraction(0))),
        grows_alike=len(tables) == 1 and tables[0].page.kind == ATTENTION,
    )


def _rules(model: ModelSpec, log: Log, pool: Pool) -> Iterator[str]:
    """The rules that lines of this form may come from."""
    has_windows = any(group.window for group in model.layer_groups)
    managed = pool.rule.hybrid_manager or not has_windows
    if log.is_v0:
        # the manager of V0 kept windowed layers like full ones, and states outside the pool
        if (not managed or not has_windows) and pool.block_tokens:
            yield V0
        return
    version = tuple(map(int, log.version.split("."))) if log.version else None
    if version is None or version >= FIRST_CURRENT:
        yield CURRENT
    if log.tokens is not None and (version is None or version <= LAST_GROUPED) and pool.block_tokens:
        yield GROUPED if managed else UNGROUPED


def _reading(
    rule: str,
    pool: Pool,
    log: Log,
    max_len: int | None,
    lengths: Sequence[int],
    swap_bytes: int,
    spread: Fraction,
    assumed: tuple[str, ...],
) -> Reading | None:
    """The lines under one rule, or nothing where they cannot be read without max_len."""
    needs_max_len = (log.tokens is not None and rule == CURRENT) or log.concurrency is not None
    if max_len is None and needs_max_len and not pool.grows_alike:
        return None
    evidence = list(_evidence(rule, pool, log, max_len, spread))
    problems, off = _contradictions(evidence, pool)
    for what, logged, ours in _comparisons(rule, pool, log, swap_bytes):
        if not logged.covers(ours):
            ratio = float(ours / logged.value) if logged.value and ours else math.inf
            problems.append(f"{what}; the rule gives {float(ours):,.6g}")
            off = max(off, ratio, 1 / ratio if ratio else math.inf)
    blocks = None
    if evidence:
        low, high = max(item.low for item in evidence), min(item.high for item in evidence)
        if problems:
            low, high = evidence[0].low, evidence[0].high
        blocks = min(max(_nominal(pool, log), low), high) if log.available is not None and low <= high else low
    if rule in (V0, UNGROUPED):  # which say so themselves
        assumed = tuple(text for text in assumed if text != NO_HYBRIDS)
    if spread:
        assumed = (*assumed, "another rank has less memory than the one that printed it")
    rate = _rate(rule, pool, max_len)
    return Reading(
        rule=rule,
        problems=tuple(problems),
        off=off,
        bytes_per_token=rate,
        slope_bytes_per_token=pool.slope_bytes_per_token,
        pool_bytes=None if blocks is None else blocks * pool.block_bytes,
        blocks=blocks,
        assumptions=assumed,
        tokens=log.tokens,
        measured_bytes_per_token=_measured(log, swap_bytes, pool),
        other_lengths=() if blocks is None else tuple(_at(rule, pool, blocks, length) for length in lengths),
        sentences=tuple(_sentences(rule, pool, log, max_len, blocks)),
    )


def _nominal(pool: Pool, log: Log) -> int:
    return int(log.available.value) // pool.block_bytes


def _evidence(rule: str, pool: Pool, log: Log, max_len: int | None, spread: Fraction) -> Iterator[Evidence]:
    """The range of blocks that each line allows."""
    if log.tokens is not None:
        low, high = blocks_of_tokens(rule, pool, log.tokens, max_len)
        yield Evidence(says=f"{count_text(log.tokens, 'tokens')}", low=low, high=high)
    if log.gpu_blocks is not None:
        yield Evidence(says=count_text(log.gpu_blocks, "blocks"), low=log.gpu_blocks, high=log.gpu_blocks)
    if log.storable_tokens is not None:
        low, high = blocks_of_tokens(V0, pool, log.storable_tokens, None)
        yield Evidence(says=f"{count_text(log.storable_tokens, 'tokens')} that can be stored", low=low, high=high)
    if log.concurrency is not None and max_len is not None:
        # V0 and the first versions of V1 divided tokens by max_len, later ones divide blocks by the blocks of a request
        rounded = Fraction(pool.request_blocks(max_len))
        unrounded = Fraction(max_len, pool.block_tokens) if rule != CURRENT and pool.grows_alike else rounded
        yield Evidence(
            says=f"{float(log.concurrency.value):g} requests of {count_text(max_len, 'tokens')}",
            low=math.ceil(log.concurrency.low * unrounded),
            high=math.floor(log.concurrency.high * (unrounded if rule == V0 else rounded)),
        )
    if log.available is not None:
        yield Evidence(
            says=f"{bytes_text(float(log.available.value))} available",
            low=math.floor(log.available.low * (1 - spread) / pool.block_bytes),
            high=math.floor(log.available.high / pool.block_bytes),
        )
    elif log.longest is not None and log.refused_available is not None:
        yield Evidence(
            says=f"{bytes_text(float(log.refused_available.value))} available",
            low=math.floor(log.refused_available.low / pool.block_bytes),
            high=math.floor(log.refused_available.high / pool.block_bytes),
        )
        yield Evidence(
            says=f"{count_text(log.longest, 'tokens')} at most",
            low=pool.request_blocks(log.longest),
            high=pool.request_blocks(log.longest + 1) - 1,
        )


def blocks_of_tokens(rule: str, pool: Pool, tokens: int, max_len: int | None) -> tuple[int, int]:
    """Least and most blocks for which a rule prints a number of tokens.

    Parameters
    ----------
    rule : str
        One of the rules of this module [text].
    pool : Pool
        The pages [facts].
    tokens : int
        The number that is printed [tokens].
    max_len : int or None
        Longest sequence that the server takes; None: a multiple of the block [tokens].

    Returns
    -------
    tuple of int
        Least and most; the least is larger where no number of blocks gives the tokens [blocks].

    Examples
    --------
    >>> from calc.presets import model_preset
    >>> pool = vllm_pool(model_preset("llama-3.1-8b"))
    >>> blocks_of_tokens(GROUPED, pool, 1600, None), blocks_of_tokens(GROUPED, pool, 1601, None)
    ((100, 100), (101, 100))
    """
    if rule == CURRENT and max_len is not None:
        each = pool.request_blocks(max_len)
        near = tokens * each // max_len
        return _where(lambda blocks: int(vllm_tokens(blocks, each, max_len)), tokens, near)
    groups = len(pool.tables) if rule == GROUPED else 1
    first = -(-tokens // pool.block_tokens) * groups
    if int(vllm_tokens_until_0_20(first, groups, pool.block_tokens)) != tokens:
        return first, first - 1
    return first, first + groups - 1


def _where(printed: Callable[[int], int], tokens: int, near: int) -> tuple[int, int]:
    """The blocks about a guess for which a growing function prints a number."""
    low = max(0, near - 2)
    while low and printed(low) >= tokens:
        low -= 1
    while printed(low) < tokens:
        low += 1
    high = low
    while printed(high) == tokens:
        high += 1
    return low, high - 1


def _contradictions(evidence: list[Evidence], pool: Pool) -> tuple[list[str], float]:
    """Pairs of lines that no number of blocks satisfies."""
    problems, off = [], 1.0
    for item in evidence:
        if item.low > item.high:
            step = f"a multiple of {pool.block_tokens:,}" if pool.grows_alike else "what whole blocks give"
            problems.append(f"{item.says} is not {step}")
            off = max(off, item.low / max(1, item.high))
    sound = [item for item in evidence if item.low <= item.high]
    for index, first in enumerate(sound):
        for second in sound[index + 1 :]:
            if not first.meets(second):
                ratio = (
                    (first.low / max(1, second.high)) if first.low > second.high else (second.low / max(1, first.high))
                )
                problems.append(
                    f"{first.says} is {_blocks_text(first, pool)}, but {second.says} is {_blocks_text(second, pool)}: "
                    f"off by {off_text(ratio)}"
                )
                off = max(off, ratio)
    return problems, off


def _blocks_text(item: Evidence, pool: Pool) -> str:
    number = f"{item.low:,}" if item.low == item.high else f"{item.low:,} to {item.high:,}"
    return f"{number} blocks of {bytes_text(pool.block_bytes)}"


def _comparisons(rule: str, pool: Pool, log: Log, swap_bytes: int) -> Iterator[tuple[str, Printed, Fraction | int]]:
    """What a line states of pages themselves, and what the rule gives for it."""
    if log.cpu_blocks:
        yield (
            f"{count_text(log.cpu_blocks, 'CPU blocks')} in {bytes_text(swap_bytes)} of swap space",
            Printed.exact(log.cpu_blocks),
            swap_bytes // pool.block_bytes,
        )
    if log.needed is not None and log.refused_max_len is not None:
        yield (
            f"{bytes_text(float(log.needed.value))} needed for {count_text(log.refused_max_len, 'tokens')}",
            log.needed,
            pool.request_blocks(log.refused_max_len) * pool.block_bytes,
        )
    pages = [group.page for group in pool.rule.page_groups()]
    states = [page for page in pages if page.kind == STATE]
    if log.attention_block is not None:
        blocks = [page.block_tokens for page in pages if page.kind in (ATTENTION, WINDOW)]
        yield (
            f"attention blocks of {count_text(log.attention_block, 'tokens')}",
            Printed.exact(log.attention_block),
            min(blocks, default=0),
        )
    if log.padding_percent is not None:
        padding = [Fraction(100 * (page.page_bytes - page.used_bytes), page.used_bytes) for page in states]
        yield (
            f"{float(log.padding_percent.value):g} % of padding after a state",
            log.padding_percent,
            min(padding, default=Fraction(0)),
        )


def _rate(rule: str, pool: Pool, max_len: int | None) -> int | float:
    """Bytes of the pool for each token that the rule counts."""
    if pool.grows_alike:
        return pool.slope_bytes_per_token
    if rule == CURRENT:
        if max_len is None:
            return pool.slope_bytes_per_token
        return plain(Fraction(pool.block_bytes * pool.request_blocks(max_len), max_len))
    groups = len(pool.tables) if rule == GROUPED else 1
    return plain(Fraction(pool.block_bytes * groups, pool.block_tokens))


def _measured(log: Log, swap_bytes: int, pool: Pool) -> tuple[float, float] | None:
    """Bytes per token from the log's own numbers."""
    tokens = log.tokens or (log.gpu_blocks or 0) * pool.block_tokens or log.storable_tokens
    if log.available is not None and tokens:
        return log.available.over(tokens)
    if log.cpu_blocks:
        return swap_bytes / ((log.cpu_blocks + 1) * pool.block_tokens), swap_bytes / (
            log.cpu_blocks * pool.block_tokens
        )
    if log.refused_available is not None and log.longest:
        return log.refused_available.over(log.longest)
    return None


def _at(rule: str, pool: Pool, blocks: int, max_len: int) -> OtherLength:
    each = pool.request_blocks(max_len)
    if rule == CURRENT:
        tokens = int(vllm_tokens(blocks, each, max_len))
    else:
        groups = len(pool.tables) if rule == GROUPED else 1
        tokens = int(vllm_tokens_until_0_20(blocks, groups, pool.block_tokens))
    return OtherLength(max_len=max_len, tokens=tokens, concurrency=float(vllm_concurrency(blocks, each)))


def _sentences(rule: str, pool: Pool, log: Log, max_len: int | None, blocks: int | None) -> Iterator[str]:
    """The reading in plain words."""
    if pool.grows_alike:
        yield (
            f"Every layer keeps every token: a block of {pool.block_tokens:,} tokens takes {memory_text(pool.block_bytes)} "
            f"on a rank, {pool.slope_bytes_per_token:,} bytes per token."
        )
    else:
        yield (
            f"The layers share {count_text(len(pool.tables), 'tables')} of pages; a block of the pool takes "
            f"{memory_text(pool.block_bytes)} on a rank."
        )
        if max_len is not None:
            yield (
                f"A request of {count_text(max_len, 'tokens')} takes {count_text(pool.request_blocks(max_len), 'blocks')}."
            )
    if blocks is not None:
        yield f"The pool has {count_text(blocks, 'blocks')}: {memory_text(blocks * pool.block_bytes)} on each rank."
    if rule == GROUPED and not pool.grows_alike and max_len is not None and blocks is not None:
        now = _at(CURRENT, pool, blocks, max_len)
        yield (
            f"This older rule shares blocks evenly out among groups of layers that do not need them evenly: it is wrong "
            f"for this model. The same pool is {count_text(now.tokens, 'tokens')} in vLLM 0.21 and newer, "
            f"{now.concurrency:.2f} requests of {count_text(max_len, 'tokens')}."
        )
    elif rule == GROUPED and not pool.grows_alike:
        yield "This older rule shares blocks evenly out among groups of layers that do not need them so: it is wrong here."
    if log.cpu_blocks:
        yield "CPU blocks are swap space // bytes of a block: they tell the size of a block whatever memory is left."


def plain(number: Fraction) -> int | float:
    """A whole number as an int, any other as a float."""
    return int(number) if number.denominator == 1 else float(number)
