"""Times one million (context, batch, format, ranks) points of a model of five layer kinds, as arrays and one by one."""

import time
from itertools import product

import numpy as np

from calc.kv_cache import sequence_memory
from calc.model_spec import LayerGroup, ModelSpec, State

POINTS = 1_000_000
FORMATS = ("bf16", "fp8", "q8_0", "nvfp4")
RANKS = (1, 2, 4, 8, 16)
BLOCK = POINTS // (len(FORMATS) * len(RANKS))
"""Contexts and batches of one format and one number of ranks: an array of 50,000."""
SINGLE_POINTS = 1_000
"""Points that the loop runs through; its time is scaled to all of them."""
ROUNDS = 5
MICRO = 1_000_000
"""Microseconds of a second."""


def hybrid() -> ModelSpec:
    """Full, sliding, latent, recurrent and shared layers in one model."""
    heads = {"query_heads": 32, "kv_heads": 8, "key_width": 128, "value_width": 128}
    states = (
        State(kind="convolution", heads=8192, numbers=1, columns=3, transformers_columns=4),
        State(kind="recurrent", heads=32, numbers=128 * 128, dtype="fp32"),
    )
    groups = (
        LayerGroup(kind="full", layers=8, **heads),
        LayerGroup(kind="sliding", layers=24, window=4096, **heads),
        LayerGroup(kind="latent", layers=8, query_heads=32, kv_heads=1, key_width=512, value_width=64),
        LayerGroup(kind="recurrent", layers=16, states=states),
        LayerGroup(kind="shared", layers=8),
    )
    return ModelSpec(name="five kinds", model_type="none", layer_groups=groups, weights=None, max_context=None)


def sweep(model: ModelSpec, contexts: np.ndarray, batches: np.ndarray) -> float:
    """Seconds for the bytes per rank of all points."""
    start = time.perf_counter()
    for kv_dtype, ranks in product(FORMATS, RANKS):
        memory = sequence_memory(model, contexts, kv_dtype=kv_dtype, tensor_parallel=ranks)
        memory.bytes_per_rank * batches
    return time.perf_counter() - start


def loop(model: ModelSpec, contexts: np.ndarray, batches: np.ndarray) -> float:
    """Seconds for some of the points one by one, scaled to all."""
    start = time.perf_counter()
    for number in range(SINGLE_POINTS):
        kv_dtype, ranks = FORMATS[number % len(FORMATS)], RANKS[number % len(RANKS)]
        memory = sequence_memory(model, int(contexts[number]), kv_dtype=kv_dtype, tensor_parallel=ranks)
        memory.bytes_per_rank * int(batches[number])
    return (time.perf_counter() - start) * POINTS / SINGLE_POINTS


def main() -> None:
    """Prints the seconds of both ways, the fastest of interleaved rounds."""
    draw = np.random.default_rng(20261130)
    contexts, batches = draw.integers(1, 1_000_001, BLOCK), draw.integers(1, 513, BLOCK)
    model = hybrid()
    arrays, singles = [], []
    for _ in range(ROUNDS):  # interleaved, so that a slow moment of the machine falls on both
        arrays.append(sweep(model, contexts, batches))
        singles.append(loop(model, contexts, batches))
    print(f"{POINTS:,} points (context, batch, format, ranks) of a model of five layer kinds")
    print(f"The loop was run over {SINGLE_POINTS:,} of them and scaled")
    print(f"{'':20}{f'arrays of {BLOCK:,}':>20}{'one by one':>14}")
    print(f"{'seconds':20}{min(arrays):20.3f}{min(singles):14.1f}")
    print(f"{'us per point':20}{min(arrays) / POINTS * MICRO:20.3f}{min(singles) / POINTS * MICRO:14.1f}")
    print(f"Arrays are {min(singles) / min(arrays):,.0f} times as fast")


if __name__ == "__main__":
    main()
