"""Lines that state a cache's tokens and bytes (SGLang, llama.cpp, TensorRT-LLM, xInfer): rows against sizes."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from calc.engine_logs.answer import OtherLength, Reading, memory_text, off_ratio, off_text
from calc.engine_logs.lines import CacheLine, Log, cell_range
from calc.engine_logs.printed import Printed
from calc.engine_logs.vllm import plain
from calc.engines.layers import LayerRule
from calc.engines.llama_cpp import CELL_PADDING
from calc.formats import bytes_text, count_text
from calc.kv_cache import cache_rule
from calc.kv_formats import kv_format
from calc.layer_formulas import pages
from calc.model_spec import LayerGroup, ModelSpec
from calc.names import UnknownName
from calc.numeric import POSITIVE_COUNT, require_scalar
from calc.parallel import heads_per_rank, pipeline_stages

RULES = {
    "sglang": "SGLang: buffers of tokens + one page, a row of every layer each; its GB are GiB",
    "llama.cpp": "llama.cpp: cells x a row of every layer that has a cache",
    "tensorrt-llm": "TensorRT-LLM: bytes = tokens in whole blocks x a row of every layer",
    "xinfer": "xInfer: tokens = blocks x 64, bytes = tokens x a row of every layer",
}
PAGES = {"sglang": (1, 64, 32, 16, 128, 256), "tensorrt-llm": (64, 32, 128, 16), "xinfer": (64,)}
"""Tokens of a page or block: the default first."""
FREE_FRACTION = 0.9
"""Of the memory that is free after loading, what TensorRT-LLM takes by default."""
_ANY_WIDTH = 128
"""A width that the blocks of every format fill."""
OLD_PADDING = 32
"""Cells came in multiples of 32 before flash attention asked for 256."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What some layers keep of one token on one rank."""

    what: str
    layers: int
    keys: int
    values: int
    rotated: int = 0
    """The rotated part of latent rows; it is counted in the keys too."""
    is_windowed: bool | None = None
    """None where the layers are all that keep tokens."""
    covers_all: bool = True

    @property
    def row(self) -> int:
        """Keys and values."""
        return self.keys + self.values


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A line beside the layers that it is about."""

    rows: Rows
    tokens: int
    """Of all streams."""
    problems: tuple[str, ...]
    off: float
    remarks: tuple[str, ...] = ()


def cache_readings(
    model: ModelSpec,
    log: Log,
    *,
    max_len: int | None,
    lengths: Sequence[int],
    settings: dict[str, Any],
    given_format: str | None = None,
    **options: Any,
) -> list[Reading]:
    """What the lines of an engine other than vLLM say.

    Parameters
    ----------
    model : ModelSpec
        The model [facts].
    log : Log
        The lines [facts].
    max_len : int or None
        Context that was asked for [tokens].
    lengths : sequence of int
        Other contexts to tell the cache for [tokens].
    settings : dict
        Settings of the engine that are known, and block_tokens [each as its rule says].
    given_format : str or None
        Format that a user says the cache is in, which a line may contradict [name].
    **options
        Formats and ranks, as `calc.kv_cache.cache_rule` takes them [each as it says].

    Returns
    -------
    list of Reading
        One for each size of pages that the engine may have, its default first [readings].

    Raises
    ------
    ValueError
        If the model cannot be split so, or the engine knows no such format.
    """
    settings = dict(settings)
    if (block := settings.pop("block_tokens", None)) is not None:
        log = replace(log, block_tokens=require_scalar(block, POSITIVE_COUNT, "block_tokens"))
    sizes = (log.block_tokens,) if log.block_tokens else PAGES.get(log.engine, (1,))
    if log.engine == "llama.cpp":
        return [_llama(model, log, max_len, lengths, settings, given_format, options)]
    one = _sglang if log.engine == "sglang" else _paged
    readings = []
    for page in sizes:
        for stage in _kinds_of_stages(model, options["pipeline_parallel"]):
            readings.append(one(model, log, page, stage, lengths, settings, options))
    return sorted(readings, key=lambda reading: (len(reading.assumptions), -reading.slope_bytes_per_token))


def _kinds_of_stages(model: ModelSpec, stages: int) -> list[range]:
    """Pipeline stages that differ in their layers."""
    order = model.groups_in_order
    kinds = {}
    for layers in pipeline_stages(model.layers, stages):
        kinds.setdefault(frozenset(Counter(order[layers.start : layers.stop]).items()), layers)
    return list(kinds.values())


def cache_rows(rule: LayerRule, layers: range) -> list[Rows]:
    """What layers keep of one token on one rank, keys and values apart.

    Parameters
    ----------
    rule : LayerRule
        An engine's rule for a model [rule].
    layers : range
        Layers of a pipeline stage [layers].

    Returns
    -------
    list of Rows
        All layers that keep tokens; then those without a window and those with one, where there are both [bytes].

    Raises
    ------
    ValueError
        If no layer keeps tokens.

    Examples
    --------
    >>> from calc.presets import model_preset
    >>> rows = cache_rows(cache_rule(model_preset("llama-3.1-8b"), engine="llama.cpp"), range(32))[0]
    >>> rows.keys, rows.values, rows.row
    (65536, 65536, 131072)
    """
    order = Counter(rule.model.groups_in_order[layers.start : layers.stop])
    parts = {False: [0, 0, 0, 0], True: [0, 0, 0, 0]}
    for index, number in order.items():
        group = rule.model.layer_groups[index]
        if not group.kv_heads or group.kind == "cross":
            continue
        heads = rule.heads(group)
        whole = rule.row(group, heads)
        on_rank = heads_per_rank(heads, rule.sizes.split.head_ranks)
        keys = whole if group.is_latent else on_rank * rule.sizes.keys.row(group.key_width)
        rotated = _rotated_row(rule, group)
        part = parts[group.window is not None]
        for place, size in enumerate((1, keys, whole - keys, rotated)):
            part[place] += number * size
    both = all(part[0] for part in parts.values())
    together = [first + second for first, second in zip(*parts.values())]
    found = [
        Rows(
            what="layers that keep tokens",
            layers=together[0],
            keys=together[1],
            values=together[2],
            rotated=together[3],
            is_windowed=None if both or not parts[True][0] else True,
        )
    ]
    for windowed, what in ((False, "layers without a window"), (True, "layers with a window")):
        if both:
            count, keys, values, rotated = parts[windowed]
            found.append(
                Rows(
                    what=what,
                    layers=count,
                    keys=keys,
                    values=values,
                    rotated=rotated,
                    is_windowed=windowed,
                    covers_all=False,
                )
            )
    if not together[0]:
        raise ValueError("no layer of the model keeps tokens, so that lines on a KV cache cannot be of it")
    return found


def _rotated_row(rule: LayerRule, group: LayerGroup) -> int:
    """The rotated part of a latent row; 0 where its format does not let it stand alone."""
    keys = rule.sizes.keys
    if not group.is_latent or keys.is_for_latent_rows or group.value_width % keys.block_numbers:
        return 0
    return keys.row(group.value_width)


def _alike(model: ModelSpec) -> bool:
    """Whether every layer that keeps anything keeps every token."""
    return all(group.window is None and not group.states and not group.cross_kv_heads for group in model.layer_groups)


def _best(line: CacheLine, candidates: Sequence[Rows], tokens_of: dict[str, tuple[int, tuple[str, ...]]]) -> Match:
    """The layers that fit a line best."""
    matches = []
    for rows in candidates:
        if None not in (line.is_windowed, rows.is_windowed) and line.is_windowed != rows.is_windowed:
            continue
        tokens, problems = tokens_of[rows.what]
        matches.append(_match(line, rows, tokens, problems))
    return min(matches, key=lambda match: (len(match.problems), match.off))


def _match(line: CacheLine, rows: Rows, tokens: int, problems: tuple[str, ...]) -> Match:
    found, off = list(problems), 1.0
    if line.layers is not None and line.layers != rows.layers:
        found.append(f"the log has {line.layers:,} layers, the model {rows.layers:,} {rows.what}")
        off = max(off, off_ratio(line.layers, rows.layers))
    keys = rows.keys - rows.rotated if line.rotated is not None else rows.keys
    for what, printed, row in (
        ("", line.size, rows.row),
        ("keys: ", line.keys, keys),
        ("values: ", line.values, rows.values),
        ("rotated part: ", line.rotated, rows.rotated),
    ):
        if printed is not None and not printed.covers(tokens * row):
            logged, ours = float(printed.value), tokens * row
            ratio = off_ratio(logged, ours)
            found.append(
                f"{what}the log has {bytes_text(logged)}, {count_text(tokens, 'tokens')} of {rows.what} take "
                f"{bytes_text(ours)}: off by {off_text(ratio)}"
            )
            off = max(off, ratio)
    if problems:
        off = math.inf
    return Match(rows=rows, tokens=tokens, problems=tuple(found), off=off)


def _printed_size(line: CacheLine) -> Printed | None:
    if line.size is not None or line.keys is None:
        return line.size
    return line.keys if line.values is None else line.keys + line.values


def _llama(
    model: ModelSpec,
    log: Log,
    max_len: int | None,
    lengths: Sequence[int],
    settings: dict[str, Any],
    given_format: str | None,
    options: dict[str, Any],
) -> Reading:
    """llama.cpp: one line per cache, all devices together."""
    every_layer = range(model.layers)
    matches, states, problems, remarks, off = [], [], [], [], 1.0
    rule = None
    for line in log.caches:
        rule = _llama_rule(model, line, settings, options)
        if line.key_format and (problem := _other_format(line, given_format)):
            problems.append(problem)
            off = math.inf
        if line.is_state:
            held = rule.stage(every_layer, 0).fixed * (line.tokens or 1)
            states.append(held)
            if line.size is not None and not line.size.covers(held):
                problems.append(
                    f"states: the log has {bytes_text(float(line.size.value))}, the model's take {bytes_text(held)}"
                )
                off = max(off, off_ratio(float(line.size.value), held))
            continue
        candidates = cache_rows(rule, every_layer)
        tokens_of = {rows.what: _llama_tokens(line, rows, max_len) for rows in candidates}
        match = _best(line, candidates, tokens_of)
        matches.append(match)
        problems += match.problems
        off = max(off, match.off)
        if line.tokens is None and line.layer_tokens is None:
            remarks.append(f"The size is that of {count_text(match.tokens, 'cells')}.")
        if max_len is not None:
            remark, short = _against_context(rule, match, max_len)
            remarks += remark
            problems += short
            off = max(off, max_len / max(1, match.tokens) if short else 1.0)
    held = sum(match.tokens * match.rows.row for match in matches)
    covers = any(match.rows.covers_all for match in matches) or len({match.rows.what for match in matches}) > 1
    tokens = max((match.tokens for match in matches), default=0)
    slope = plain(Fraction(rule.stage(every_layer, rule.step).growing, rule.step))
    measured = [_printed_size(line) for line in log.caches if not line.is_state and _printed_size(line) is not None]
    rate = slope if _alike(model) or not tokens else plain(Fraction(held, tokens))
    return Reading(
        rule=RULES["llama.cpp"],
        problems=tuple(problems),
        off=off,
        bytes_per_token=rate,
        slope_bytes_per_token=slope,
        pool_bytes=held + sum(states),
        tokens=tokens or None,
        measured_bytes_per_token=_sum(measured).over(tokens) if measured and tokens else None,
        other_lengths=tuple(
            OtherLength(max_len=length, pool_bytes=int(rule.stage(every_layer, length).total)) for length in lengths
        ),
        sentences=tuple(
            [
                *(
                    f"{count_text(match.tokens, 'cells')} x {match.rows.row:,} bytes of {match.rows.layers:,} "
                    f"{match.rows.what} = {memory_text(match.tokens * match.rows.row)}."
                    for match in matches
                ),
                *remarks,
                *([] if covers or not matches else ["The lines are of a part of the layers only."]),
            ]
        ),
    )


def _sum(sizes: Sequence[Printed]) -> Printed:
    together = sizes[0]
    for size in sizes[1:]:
        together = together + size
    return together


def _llama_rule(model: ModelSpec, line: CacheLine, settings: dict[str, Any], options: dict) -> LayerRule:
    """The rule in the formats that a line names, else in those that were given."""
    named = {}
    if line.key_format is not None:
        named = {"kv_dtype": line.key_format, "value_dtype": line.value_format or line.key_format}
    try:
        return cache_rule(model, engine="llama.cpp", **{**options, **named}, **settings)
    except UnknownName as problem:
        if not named:
            raise
        raise ValueError(f"a line is in a format that is not known here: {problem}") from None


def _other_format(line: CacheLine, given: str | None) -> str | None:
    """What is wrong where a line is in another format than the one that was given."""
    if given is None:
        return None
    row = kv_format(given).latent_row(_ANY_WIDTH, 0)
    if row == kv_format(line.key_format).latent_row(_ANY_WIDTH, 0):
        return None
    return f"the log's keys are in {line.key_format}, not in {given}"


def _llama_tokens(line: CacheLine, rows: Rows, max_len: int | None) -> tuple[int, tuple[str, ...]]:
    """Cells that a line is about, of all streams: as printed, or as its size has it."""
    if line.tokens is not None:
        return line.tokens * line.streams, ()
    if line.layer_tokens is not None:
        whole = line.layer_tokens % rows.layers == 0
        problem = f"{line.layer_tokens:,} cells are not the same number for each of {rows.layers:,} layers"
        return line.layer_tokens // rows.layers, () if whole else (problem,)
    size = _printed_size(line)
    low, high = cell_range(size, rows.row)
    asked = () if max_len is None else (CELL_PADDING * pages(max_len, CELL_PADDING), max_len)
    for cells in asked:
        if low <= cells <= high:
            return cells, ()
    for padding in (CELL_PADDING, OLD_PADDING, 1):
        if (cells := padding * -(-low // padding)) <= high and cells:
            return cells, ()
    return max(low, 1), ()


def _against_context(rule: LayerRule, match: Match, max_len: int) -> tuple[list[str], list[str]]:
    """What the cells are beside the context that was asked for: remarks, and what cannot be."""
    windows = {group.window for group in rule.model.layer_groups if group.window}
    if match.rows.is_windowed:
        group = next(group for group in rule.model.layer_groups if group.window and group.kv_heads)
        expected = int(rule.kept(group, max_len))
        if match.tokens != expected and match.tokens < max_len:
            return [
                f"For windows of {min(windows):,} the rule takes {expected:,} cells with these settings, the log has "
                f"{match.tokens:,}: another batch, or another version."
            ], []
        return [], []
    if match.tokens < max_len:
        return [], [f"{count_text(match.tokens, 'cells')} cannot hold a context of {max_len:,}"]
    padded = CELL_PADDING * pages(max_len, CELL_PADDING)
    if match.tokens != padded:
        return [
            f"The context of {max_len:,} padded to {CELL_PADDING} is {padded:,} cells; the log has "
            f"{match.tokens - padded:+,}: slots of their own, or a front end that asks for more."
        ], []
    return ([f"The context of {max_len:,} is padded to {padded:,} cells."] if padded != max_len else []), []


def _sglang(
    model: ModelSpec,
    log: Log,
    page: int,
    stage: range,
    lengths: Sequence[int],
    settings: dict[str, Any],
    options: dict,
) -> Reading:
    """SGLang: buffers of tokens + one page; tokens = available // row of a token, in whole pages."""
    rule = cache_rule(model, engine="sglang", page_tokens=page, **options, **settings)
    candidates = cache_rows(rule, stage)
    lines = [replace(line, streams=1) for line in log.caches]
    matches = [_best(line, candidates, {rows.what: (line.tokens + page, ()) for rows in candidates}) for line in lines]
    problems = [problem for match in matches for problem in match.problems]
    off = max((match.off for match in matches), default=1.0)
    slope = plain(Fraction(rule.stage(stage, rule.step).growing, rule.step))
    tokens = log.tokens or log.full_tokens or max((line.tokens for line in lines), default=0)
    if log.tokens and lines and log.tokens > max(line.tokens for line in lines):
        problems.append(f"{count_text(log.tokens, 'tokens')} are more than any pool that is allocated")
    held = sum(match.tokens * match.rows.row for match in matches) or int(rule.stage(stage, tokens).growing)
    if log.available is not None and tokens:
        least, most = rule.stage(stage, tokens).growing, rule.stage(stage, tokens + page).growing
        if least > log.available.high or most < log.available.low:
            ratio = off_ratio(float(least), float(log.available.value))
            problems.append(
                f"{count_text(tokens, 'tokens')} take {bytes_text(float(least))}, "
                f"{bytes_text(float(log.available.value))} are available: off by {off_text(ratio)}"
            )
            off = max(off, ratio)
    covers = not matches or any(match.rows.covers_all for match in matches) or len(matches) > 1
    rate = slope
    if not covers:
        rate = matches[0].rows.row
    measured = [_printed_size(line) for line in lines]
    counted = max((line.tokens for line in lines), default=0) + page
    if measured:
        per_token = _sum(measured).over(counted)
    else:
        per_token = None if log.available is None or not tokens else log.available.over(tokens)
    return Reading(
        rule=RULES["sglang"],
        problems=tuple(problems),
        off=off,
        bytes_per_token=rate,
        slope_bytes_per_token=slope,
        pool_bytes=held,
        tokens=tokens,
        assumptions=() if page in (PAGES["sglang"][0], log.block_tokens) else (f"pages of {page} tokens",),
        measured_bytes_per_token=per_token,
        other_lengths=tuple(OtherLength(max_len=n, tokens=tokens, concurrency=tokens / n) for n in lengths if tokens),
        sentences=tuple(
            [
                *(
                    f"{count_text(match.tokens - page, 'tokens')} and a page of {page} x {match.rows.row:,} bytes of "
                    f"{match.rows.layers:,} {match.rows.what} = {memory_text(match.tokens * match.rows.row)} on a rank."
                    for match in matches
                ),
                *([] if matches or tokens else ["The line says that the pool holds nothing."]),
                *(
                    [
                        f"Layers with a window have a pool of {log.windowed_tokens / log.full_tokens:.3g} of the others' "
                        "tokens."
                    ]
                    if log.full_tokens and log.windowed_tokens
                    else []
                ),
                *([] if covers else ["The line is of a part of the layers only."]),
            ]
        ),
    )


def _paged(
    model: ModelSpec,
    log: Log,
    block: int,
    stage: range,
    lengths: Sequence[int],
    settings: dict[str, Any],
    options: dict,
) -> Reading:
    """TensorRT-LLM and xInfer: whole blocks, every layer in full."""
    if settings:
        raise ValueError(f"settings of {log.engine} must be block_tokens only, got {', '.join(sorted(settings))}")
    if options["kv_dtype"] == "int8":
        options = {**options, "kv_dtype": "int8_per_tensor"}
    rows = cache_rows(cache_rule(model, engine="ideal", **options), stage)[0]
    tokens = log.tokens if log.tokens is not None else (log.gpu_blocks or 0) * block
    problems, off = [] if tokens else ["a cache of no tokens is allocated for nothing"], 1.0
    blocks = -(-tokens // block)
    for what, printed, ours in _paged_checks(log, block, blocks, tokens, rows.row):
        if not any(printed.covers(number) for number in ours):
            ratio = off_ratio(float(printed.value), ours[0])
            problems.append(f"{what}: the rule gives {ours[0]:,}, off by {off_text(ratio)}")
            off = max(off, ratio)
    sentences = [
        f"{count_text(tokens, 'tokens')} x {rows.row:,} bytes of {rows.layers:,} layers = {memory_text(tokens * rows.row)} "
        "on a rank."
    ]
    if log.free is not None and tokens:
        share = tokens * rows.row / float(log.free.value) if log.free.value else math.inf
        sentences.append(
            f"That is {100 * share:.1f} % of the {bytes_text(float(log.free.value))} that were free; the default is "
            f"{100 * FREE_FRACTION:.0f} %, in whole blocks."
        )
        if share > 1:
            problems.append(f"the cache takes {share:.3g} times the memory that was free")
            off = max(off, share)
    if any(group.window for group in model.layer_groups):
        sentences.append("Layers with a window are counted in full: how they are split is not known here.")
    return Reading(
        rule=RULES[log.engine],
        problems=tuple(problems),
        off=off,
        bytes_per_token=rows.row,
        slope_bytes_per_token=rows.row,
        pool_bytes=tokens * rows.row,
        blocks=blocks,
        tokens=tokens,
        assumptions=() if block in (PAGES[log.engine][0], log.block_tokens) else (f"blocks of {block} tokens",),
        measured_bytes_per_token=None if log.available is None or not tokens else log.available.over(tokens),
        other_lengths=tuple(OtherLength(max_len=n, tokens=tokens, concurrency=tokens / n) for n in lengths if tokens),
        sentences=tuple(sentences),
    )


def _paged_checks(
    log: Log, block: int, blocks: int, tokens: int, row: int
) -> Iterator[tuple[str, Printed, tuple[int, ...]]]:
    """What is printed, and what the rule gives for it: tokens as they are, or in whole blocks."""
    if log.gpu_blocks is not None:
        yield count_text(log.gpu_blocks, "blocks"), Printed.exact(log.gpu_blocks), (blocks,)
    if log.available is not None and tokens:
        yield f"{bytes_text(float(log.available.value))} allocated", log.available, (tokens * row, blocks * block * row)
    if log.engine == "xinfer" and log.tokens is not None:
        yield count_text(log.tokens, "tokens"), Printed.exact(log.tokens), (blocks * block,)
