"""Times one million scenarios as arrays beside the same functions called once per scenario, on one core."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from calc.caching import append_only_split
from calc.cost import ByClass, PriceCard, card_by_hand, usd_by_class
from calc.flops import prefill_flops
from calc.kv_cache import sequence_bytes
from calc.model_spec import ModelSpec
from calc.numeric import Numeric
from calc.presets import model_preset
from calc.tokens import (
    compacted_input_tokens,
    compaction_read_tokens,
    compaction_written_tokens,
    last_call_tokens,
    submitted_input_tokens,
)

SCENARIOS = 1_000_000
BLOCK = 50_000
"""Rows of one array: small enough for the caches, large enough that a call's fixed cost does not show."""
SINGLE_CALLS = 2_000
"""Scenarios that the loop runs through; its time is scaled to all of them."""
ROUNDS = 5
MINIMUM_TOKENS = 4096
MICRO = 1_000_000
"""Microseconds of a second."""
USD_PER_MTOK = ByClass(uncached=5.0, cache_read=0.5, cache_write_5m=6.25, cache_write_1h=10.0, output=25.0)

STEPS = (
    "tokens, plain",
    "tokens, compacted",
    "cached split",
    "cost, compacted",
    "cost, cached",
    "last prompt",
    "KV bytes",
    "prefill FLOP",
)

Scenarios = Mapping[str, Numeric]


def random_scenarios(count: int) -> dict[str, np.ndarray]:
    """Runs of 1 to 500 calls, of the sizes that agents have."""
    draw = np.random.default_rng(20261130)
    return {
        "calls": draw.integers(1, 501, count),
        "prefix": draw.integers(1_000, 50_001, count),
        "growth": draw.integers(50, 3_001, count),
        "block": draw.integers(1, 101, count),
        "summary": draw.integers(200, 6_001, count),
        "instruction": draw.integers(0, 1_001, count),
    }


class Stopwatch:
    """Adds up the seconds of named steps."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STEPS, 0.0)

    def __call__(self, step: str, function: Callable) -> Any:
        """What the function returns; its time goes to the step."""
        start = time.perf_counter()
        answer = function()
        self.seconds[step] += time.perf_counter() - start
        return answer


def compacted_tokens(run: Scenarios) -> ByClass:
    """Tokens of a run without a cache that compacts, its compaction calls included."""
    shape = run["calls"], run["prefix"], run["growth"], run["block"], run["summary"]
    return ByClass(
        uncached=compacted_input_tokens(*shape) + compaction_read_tokens(*shape, run["instruction"]),
        output=compaction_written_tokens(run["calls"], run["block"], run["summary"]),
    )


def cached_tokens(run: Scenarios) -> ByClass:
    """Tokens of an append-only run with a cache."""
    split = append_only_split(run["calls"], run["prefix"], run["growth"], MINIMUM_TOKENS)
    return ByClass(uncached=split.plain, cache_read=split.read, cache_write_5m=split.written)


def work_through(run: Scenarios, model: ModelSpec, card: PriceCard, clock: Stopwatch) -> None:
    """Every answer of one scenario, or of an array of them."""
    shape = run["calls"], run["prefix"], run["growth"]
    clock("tokens, plain", lambda: submitted_input_tokens(*shape))
    compacted = clock("tokens, compacted", lambda: compacted_tokens(run))
    cached = clock("cached split", lambda: cached_tokens(run))
    clock("cost, compacted", lambda: usd_by_class(compacted, card).total)
    clock("cost, cached", lambda: usd_by_class(cached, card).total)
    last = clock("last prompt", lambda: last_call_tokens(*shape))
    clock("KV bytes", lambda: sequence_bytes(model, last))
    clock("prefill FLOP", lambda: prefill_flops(model, last).total)


def timed(pieces: list[Scenarios], model: ModelSpec, card: PriceCard) -> dict[str, float]:
    """Seconds of each step over all pieces."""
    clock = Stopwatch()
    for piece in pieces:
        work_through(piece, model, card, clock)
    return clock.seconds


def fastest(rounds: list[dict[str, float]]) -> dict[str, float]:
    """The round with the smallest sum."""
    return min(rounds, key=lambda seconds: sum(seconds.values()))


def main() -> None:
    """Prints the seconds of both ways, the fastest of interleaved rounds, and of the steps."""
    model = model_preset("llama-3.1-8b")
    card = card_by_hand(USD_PER_MTOK, model="example", date="2026-11-30")
    runs = random_scenarios(SCENARIOS)
    blocks = [{name: column[i : i + BLOCK] for name, column in runs.items()} for i in range(0, SCENARIOS, BLOCK)]
    singles = [{name: int(column[i]) for name, column in runs.items()} for i in range(SINGLE_CALLS)]

    array_rounds, loop_rounds = [], []
    for _ in range(ROUNDS):  # interleaved, so that a slow moment of the machine falls on both
        array_rounds.append(timed(blocks, model, card))
        loop_rounds.append(timed(singles, model, card))
    scale = SCENARIOS / SINGLE_CALLS
    arrays = fastest(array_rounds)
    loop = {step: seconds * scale for step, seconds in fastest(loop_rounds).items()}

    print(f"{SCENARIOS:,} scenarios, the fastest of {ROUNDS} interleaved rounds; FLOP and bytes of {model.name}")
    print(f"The loop was run over {SINGLE_CALLS:,} of them and scaled")
    print(f"{'':20}{f'arrays of {BLOCK:,}':>20}{'one by one':>14}")
    array_seconds, loop_seconds = sum(arrays.values()), sum(loop.values())
    print(f"{'seconds':20}{array_seconds:20.3f}{loop_seconds:14.1f}")
    print(f"{'us per scenario':20}{array_seconds / SCENARIOS * MICRO:20.3f}{loop_seconds / SCENARIOS * MICRO:14.1f}")
    print(f"Arrays are {loop_seconds / array_seconds:,.0f} times as fast")
    print("Seconds of each step:")
    for step in STEPS:
        print(f"{step:20}{arrays[step]:20.3f}{loop[step]:14.1f}")


if __name__ == "__main__":
    main()
