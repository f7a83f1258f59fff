"""The scoreboard: numbers that engines state in public, beside ours by the rules of this package."""

import bisect
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from calc.catalogue import preset_table
from calc.engine_logs.caches import Rows, cache_rows
from calc.engine_logs.printed import Printed
from calc.engine_logs.vllm import CURRENT, GROUPED, V0, Pool, blocks_of_tokens, vllm_pool
from calc.engines.pools import pool_blocks, vllm_tokens, vllm_tokens_until_0_20
from calc.engines.vllm import ATTENTION, STATE
from calc.kv_cache import cache_rule
from calc.model_config import read_config
from calc.model_spec import LayerGroup, ModelSpec
from calc.presets import model_preset
from calc.units import GIB, MIB

LOG_RULES = {"current": CURRENT, "until 0.20": GROUPED, "V0": V0}
MAX_LONGEST = 10**9
"""Longest sequence that is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """A number by our rules; an interval where what goes into it was printed with rounding."""

    low: Fraction
    nominal: Fraction
    high: Fraction

    @classmethod
    def exact(cls, number: int | Fraction) -> "Ours":
        """A number that follows exactly."""
        return cls(low=Fraction(number), nominal=Fraction(number), high=Fraction(number))

    def through(self, function: Callable[[int], int | Fraction]) -> "Ours":
        """What a growing function of a whole number makes of it."""
        return Ours(
            low=Fraction(function(int(self.low))),
            nominal=Fraction(function(int(self.nominal))),
            high=Fraction(function(int(self.high))),
        )

    def over(self, unit: int | Fraction) -> "Ours":
        """The same in a unit."""
        return Ours(low=self.low / unit, nominal=self.nominal / unit, high=self.high / unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A stated number beside ours."""

    id: str
    case: str
    of: str
    engine: str
    stated: int | float | str
    unit: str
    source: str
    quantity: str | None
    """The function that computes ours; None where no rule covers the number."""
    ours: int | float | None = None
    error: float | None = None
    """Ours less stated, over stated."""
    is_within_rounding: bool | None = None
    """Whether ours, over the rounding of what goes into it, meets the stated number over its own."""
    reason: str = ""
    """Why no rule covers the number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model, and what is known of how it was served."""

    model: ModelSpec
    settings: dict[str, Any]
    INPUTS: ClassVar[frozenset[str]] = frozenset(
        {
            "available_gib", "blocks", "cells", "concurrency", "log_rule", "longest", "max_len", "of_block_tokens",
            "of_tensor_parallel", "pool_bytes", "pool_gib", "swap_gib", "tokens",
        }
    )  # fmt: skip
    """What goes into a quantity; every other setting is one of the rule's."""

    @property
    def options(self) -> dict[str, Any]:
        """Formats, ranks and settings of the engine."""
        return {name: value for name, value in self.settings.items() if name not in self.INPUTS}

    @property
    def pool(self) -> Pool:
        """vLLM's pages."""
        return vllm_pool(self.model, **self.options)

    @property
    def rule(self) -> str:
        """The rule by which vLLM's version printed its tokens."""
        return LOG_RULES[self.settings.get("log_rule", "current")]

    def given(self, name: str) -> Printed:
        """A number that goes in, with its rounding."""
        return Printed.rounded(self.settings[name])

    def rows(self, engine: str) -> list[Rows]:
        """What the model's layers keep of one token on one rank."""
        options = {name: value for name, value in self.options.items() if name != "block_tokens"}
        return cache_rows(cache_rule(self.model, engine=engine, **options), range(self.model.layers))


def _blocks(case: Case) -> Ours:
    """Blocks of vLLM's pool, from whatever else is stated."""
    pool, settings = case.pool, case.settings
    if "blocks" in settings:
        return Ours.exact(settings["blocks"])
    if "tokens" in settings:
        low, high = blocks_of_tokens(case.rule, pool, settings["tokens"], settings.get("max_len"))
        return Ours(low=Fraction(low), nominal=Fraction(low), high=Fraction(high))
    if "longest" in settings:
        low = pool.request_blocks(settings["longest"])
        return Ours(
            low=Fraction(low),
            nominal=Fraction(low),
            high=Fraction(pool.request_blocks(settings["longest"] + 1) - 1),
        )
    if "concurrency" in settings:
        given, each = case.given("concurrency"), _each(case)
        return Ours(
            low=Fraction(math.ceil(given.low * each)),
            nominal=Fraction(round(given.value * each)),
            high=Fraction(math.floor(given.high * each)),
        )
    given = case.given("available_gib")
    return (
        Ours(low=given.low, nominal=given.value, high=given.high)
        .over(Fraction(1, GIB))
        .through(lambda available: pool_blocks(available, pool.block_bytes))
    )


def _each(case: Case) -> Fraction:
    """Blocks of a request: V0 did not round them up."""
    max_len = case.settings["max_len"]
    return Fraction(max_len, case.pool.block_tokens) if case.rule == V0 else Fraction(case.pool.request_blocks(max_len))


def _pool_gib(case: Case) -> Ours:
    """Memory that makes a number of blocks: from all of them to one more."""
    blocks, size = _blocks(case), case.pool.block_bytes
    return Ours(low=blocks.low * size, nominal=blocks.nominal * size, high=(blocks.high + 1) * size).over(GIB)


def _tokens(case: Case) -> Ours:
    pool, rule = case.pool, case.rule
    if rule == CURRENT:
        max_len = case.settings["max_len"]
        return _blocks(case).through(lambda blocks: int(vllm_tokens(blocks, pool.request_blocks(max_len), max_len)))
    groups = len(pool.tables) if rule == GROUPED else 1
    return _blocks(case).through(lambda blocks: vllm_tokens_until_0_20(blocks, groups, pool.block_tokens))


def _longest_tokens(case: Case) -> Ours:
    pool = case.pool

    def longest(blocks: int) -> int:
        return bisect.bisect_right(range(MAX_LONGEST), blocks, key=pool.request_blocks) - 1

    return _blocks(case).through(longest)


def _attention_block(case: Case) -> Ours:
    (block,) = {group.page.block_tokens for group in case.pool.tables if group.page.kind == ATTENTION}
    return Ours.exact(block)


def _padding_percent(case: Case) -> Ours:
    (page,) = {group.page for group in case.pool.tables if group.page.kind == STATE}
    return Ours.exact(Fraction(100 * (page.page_bytes - page.used_bytes), page.used_bytes))


def _swap_blocks(case: Case) -> Ours:
    return Ours.exact(pool_blocks(case.settings["swap_gib"] * GIB, case.pool.block_bytes))


def _parts(case: Case, part: str) -> Ours:
    """What llama.cpp allocates for a context, by how it grows."""
    rule = cache_rule(case.model, engine="llama.cpp", **case.options)
    return Ours.exact(getattr(rule.stage(range(case.model.layers), case.settings["tokens"]), part)).over(MIB)


def _cells(case: Case) -> Ours:
    """Cells of a layer that keeps every token, all slots together."""
    rule = cache_rule(case.model, engine="llama.cpp", **case.options)
    growing = next(group for group in case.model.layer_groups if group.kv_heads and group.window is None)
    return Ours.exact(rule.kept(growing, case.settings["tokens"]))


def _cells_mib(case: Case, rows: Callable[[Rows], int]) -> Ours:
    """A part of every row of all cells, as many as are given or as llama.cpp makes of the tokens."""
    cells = Ours.exact(case.settings["cells"]) if "cells" in case.settings else _cells(case)
    return Ours.exact(cells.nominal * rows(case.rows("llama.cpp")[0])).over(MIB)


def _row_bytes(case: Case) -> int:
    return case.rows("ideal")[0].row


def _blocks_of_the_pool(case: Case) -> Ours:
    """Blocks of one size that fit where a number of another size do, up to one more of them."""
    settings = case.settings
    other = {"tensor_parallel": settings["of_tensor_parallel"]} if "of_tensor_parallel" in settings else {}
    was = Case(model=case.model, settings={**case.options, **other})
    of_block = settings["of_block_tokens"] * _row_bytes(was)
    block = settings["block_tokens"] * _row_bytes(case)
    least, most = settings["blocks"] * of_block, (settings["blocks"] + 1) * of_block - 1
    return Ours(low=Fraction(least), nominal=Fraction(least), high=Fraction(most)).through(lambda size: size // block)


def _of_size(case: Case, low: Fraction, value: Fraction, high: Fraction) -> Ours:
    """Rows that a size may hold."""
    return Ours(low=low, nominal=value, high=high).over(_row_bytes(case))


def _tokens_of_gib(case: Case) -> Ours:
    given = case.given("pool_gib")
    return _of_size(case, given.low * GIB, given.value * GIB, given.high * GIB)


def _tokens_of_bytes(case: Case) -> Ours:
    size = Fraction(case.settings["pool_bytes"])
    return _of_size(case, size, size, size)


QUANTITIES: dict[str, Callable[[Case], Ours]] = {
    "blocks": _blocks,
    "tokens": _tokens,
    "concurrency": lambda case: _blocks(case).over(_each(case)),
    "pool_gib": _pool_gib,
    "request_gib": lambda case: Ours.exact(
        case.pool.request_blocks(case.settings["max_len"]) * case.pool.block_bytes
    ).over(GIB),
    "longest_tokens": _longest_tokens,
    "swap_blocks": _swap_blocks,
    "attention_block": _attention_block,
    "padding_percent": _padding_percent,
    "cache_mib": lambda case: (
        _cells_mib(case, lambda rows: rows.row) if "cells" in case.settings else _parts(case, "total")
    ),
    "growing_mib": lambda case: _parts(case, "growing"),
    "windowed_mib": lambda case: _parts(case, "windowed"),
    "keys_mib": lambda case: _cells_mib(case, lambda rows: rows.keys),
    "values_mib": lambda case: _cells_mib(case, lambda rows: rows.values),
    "rotated_mib": lambda case: _cells_mib(case, lambda rows: rows.rotated),
    "latent_mib": lambda case: _cells_mib(case, lambda rows: rows.keys - rows.rotated),
    "cells": _cells,
    "cells_of_all_layers": lambda case: Ours.exact(_cells(case).nominal * case.rows("llama.cpp")[0].layers),
    "row_bytes": lambda case: Ours.exact(_row_bytes(case)),
    "row_numbers": lambda case: Ours.exact(Fraction(_row_bytes(case), 2 * case.rows("ideal")[0].layers)),
    "tokens_bytes": lambda case: Ours.exact(case.settings["tokens"] * _row_bytes(case)),
    "tokens_gib": lambda case: Ours.exact(case.settings["tokens"] * _row_bytes(case)).over(GIB),
    "tokens_of_gib": _tokens_of_gib,
    "tokens_of_bytes": _tokens_of_bytes,
    "blocks_of_tokens": lambda case: Ours.exact(Fraction(case.settings["tokens"], case.settings["block_tokens"])),
    "blocks_of_the_pool": _blocks_of_the_pool,
}
"""What can be stated, and how ours is computed."""


def scoreboard() -> tuple[Row, ...]:
    """Every number of the public logs, beside ours where a rule covers it.

    Returns
    -------
    tuple of Row
        In the order of `calc/presets/public_logs.toml` [rows].

    Examples
    --------
    >>> rows = scoreboard()
    >>> rows[1].stated, rows[1].ours, rows[1].is_within_rounding
    (230528, 230464, True)
    """
    return tuple(map(_row, preset_table("public_logs")["number"]))


def _row(record: dict[str, Any]) -> Row:
    stated = {
        "stated": record["value"],
        **{name: record[name] for name in ("id", "case", "of", "engine", "unit", "source")},
        "quantity": record.get("quantity"),
        "reason": record.get("reason", ""),
    }
    if "quantity" not in record:
        return Row(**stated)
    ours = QUANTITIES[record["quantity"]](Case(model=_model(record), settings=record["settings"]))
    value, rounding = Fraction(str(record["value"])), Fraction(str(record["rounding"]))
    nominal = ours.nominal
    return Row(
        **stated,
        ours=int(nominal) if nominal.denominator == 1 else float(nominal),
        error=float(nominal / value - 1),
        is_within_rounding=ours.low <= value + rounding and ours.high >= value - rounding,
    )


def _model(record: dict[str, Any]) -> ModelSpec:
    """The model of a record: a preset, the fields of a config, or the layers themselves."""
    if "model" in record:
        return model_preset(record["model"])
    if "config" in record:
        return read_config(record["config"])
    groups = tuple(LayerGroup(**group) for group in record["groups"])
    return ModelSpec(name=record["of"], model_type="stated", layer_groups=groups, weights=None, max_context=None)
