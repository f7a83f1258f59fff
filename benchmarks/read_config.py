"""Times the reading of a config, beside json.loads of the same text, over all presets and reference configs."""

import json
import statistics
import time
import tomllib
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from calc.model_config import read_config

ROUNDS = 5
GOAL_SECONDS = 1e-3
MICRO = 1_000_000
"""Microseconds of a second."""
REFERENCES = Path(__file__).parent.parent / "tests" / "references"


def named_configs() -> dict[str, dict[str, Any]]:
    """The configs of the presets, of the recorded caches and of models outside transformers."""
    presets = tomllib.loads(files("calc").joinpath("presets", "models.toml").read_text("utf-8"))
    named = {name: record["config"] for name, record in presets.items()}
    for path in sorted(REFERENCES.glob("*.json")):
        records = json.loads(path.read_text("utf-8"))["records"]
        named |= {f"{path.stem}: {record['id']}": record["config"] for record in records}
    return named


def readable(texts: dict[str, str]) -> dict[str, str]:
    """Those that are read; refusals are another path."""
    found = {}
    for name, text in texts.items():
        try:
            read_config(text)
        except ValueError:
            continue
        found[name] = text
    return found


def fastest_seconds(function: Callable[[str], Any], text: str) -> float:
    """The fastest of several calls."""
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        function(text)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main() -> None:
    """Prints the median and the slowest of both, and how many configs are below the goal."""
    named = named_configs()
    texts = readable({name: json.dumps(config) for name, config in named.items()})
    reading = {name: fastest_seconds(read_config, text) for name, text in texts.items()}
    parsing = {name: fastest_seconds(json.loads, text) for name, text in texts.items()}
    slowest = max(reading, key=reading.__getitem__)
    below = sum(seconds < GOAL_SECONDS for seconds in reading.values())
    print(f"{len(texts)} of {len(named)} configs are read, the fastest of {ROUNDS} calls each")
    print(f"{'us':12}{'read_config':>14}{'json.loads':>14}")
    for label, of in (("median", statistics.median), ("slowest", max)):
        print(f"{label:12}{of(reading.values()) * MICRO:14.0f}{of(parsing.values()) * MICRO:14.0f}")
    print(f"Below {GOAL_SECONDS * MICRO:,.0f} us: {below} of {len(texts)}; the slowest is {slowest}")


if __name__ == "__main__":
    main()
