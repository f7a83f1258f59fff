"""The log explainer: what a line of an engine's log says of a model's cache, by which rule, or that it cannot be."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from calc.engine_logs.answer import Explanation, Reading, rate_text
from calc.engine_logs.caches import cache_readings
from calc.engine_logs.lines import Log, read_log
from calc.engine_logs.printed import Printed
from calc.engine_logs.vllm import vllm_readings
from calc.engines import engine_settings
from calc.formats import bytes_text
from calc.kv_formats import kv_format, kv_format_names
from calc.model_spec import OTHER_KINDS, LayerGroup, ModelSpec
from calc.names import UnknownName
from calc.numeric import Range, count_up_to, require_scalar
from calc.parallel import RANKS
from calc.units import GIB

SWAP_GIB = 4
"""Swap space of vLLM V0 on each rank (--swap-space)."""
LONGEST = count_up_to(10**12, low=1)
GIBIBYTES = Range(low=0.001, high=1_000_000, whole=False)
OTHER_RANKS = (2, 4, 8, 16)
COMMON_FORMATS = ("bf16", "fp8")
OTHER_BLOCKS = (8, 32, 64, 128, 256)
MAX_GUESSES = 3
SERVING = ("vllm", "sglang", "llama.cpp")
"""Engines that have a rule of their own in calc.engines."""
HEAD_WIDTH = 128
"""Width of a head's unrotated key and of its value in DeepSeek's latent models, where they are not kept as latents."""


def explain_log(
    model: ModelSpec,
    text: str,
    *,
    available_gib: str | float | None = None,
    max_len: int | None = None,
    tensor_parallel: int | None = None,
    pipeline_parallel: int | None = None,
    kv_dtype: str | None = None,
    value_dtype: str | None = None,
    decode_context_parallel: int = 1,
    other_max_len: Sequence[int] = (),
    swap_gib: float = SWAP_GIB,
    **settings: Any,
) -> Explanation:
    """What lines of an engine's log say of the KV cache of a model.

    Parameters
    ----------
    model : ModelSpec
        The model that was served [facts].
    text : str
        Lines of one start of vLLM, SGLang, llama.cpp, TensorRT-LLM or xInfer, with whatever stands around them [text].
    available_gib : str, float or None
        Memory for the cache on each rank, as printed, where no line has it [GiB].
    max_len : int or None
        Longest sequence that the server takes, where no line has it [tokens].
    tensor_parallel : int or None
        Ranks that share the KV heads; None: as the lines say, else 1 [ranks].
    pipeline_parallel : int or None
        Stages that share out the layers; None: as the lines say, else 1 [stages].
    kv_dtype : str or None
        Format of the cache; None: as the lines say, else bf16 [name].
    value_dtype : str or None
        Format of the values, where llama.cpp keeps them in another [name].
    decode_context_parallel : int
        Ranks that share out the tokens of a sequence [ranks].
    other_max_len : sequence of int
        Further longest sequences to tell the pool's tokens for [tokens].
    swap_gib : float
        Swap space of vLLM V0 on each rank [GiB].
    **settings
        Settings of the engine, as `calc.engines.engine_settings` lists them, and block_tokens for engines with pages
        [each as it says].

    Returns
    -------
    Explanation
        Rule, bytes per token, and whether the numbers are possible [bytes per token].

    Raises
    ------
    ValueError
        If no line is known, an option contradicts a line, or nothing can be said without max_len.
    LookupError
        If a format is not known.

    Notes
    -----
    A printed number is rounded, so that it stands for an interval; a rule fits where its prediction over the interval
    covers every printed number. Sources: `calc.engines.engine_version`, and the public logs of the scoreboard.

    Examples
    --------
    >>> from calc.presets import model_preset
    >>> found = explain_log(model_preset("qwen3-1.7b"), "GPU KV cache size: 175,856 tokens", available_gib=18.78)
    >>> found.bytes_per_token, found.possible
    (114688, True)
    >>> explain_log(model_preset("qwen3-1.7b"), "GPU KV cache size: 175,857 tokens").possible
    False
    """
    log = read_log(text)
    log, max_len = _with_options(log, available_gib, max_len)
    options = {
        "tensor_parallel": _ranks("tensor_parallel", tensor_parallel, log.tensor_parallel),
        "pipeline_parallel": _ranks("pipeline_parallel", pipeline_parallel, log.pipeline_parallel),
        "decode_context_parallel": decode_context_parallel,
        "kv_dtype": _format(kv_dtype, log),
        "value_dtype": value_dtype,
    }
    others = [require_scalar(length, LONGEST, "other_max_len") for length in other_max_len]
    lengths = sorted({*([max(1, max_len // 2), max_len, 2 * max_len] if max_len else []), *others})
    swap_bytes = int(require_scalar(swap_gib, GIBIBYTES, "swap_gib") * GIB)
    settings = _settings(log, settings)

    def readings(model: ModelSpec, **changed: Any) -> list[Reading]:
        more = {name: changed.pop(name) for name in list(changed) if name == "block_tokens"}
        shared = {"max_len": max_len, "lengths": lengths, "settings": {**settings, **more}, **options, **changed}
        if log.engine == "vllm":
            return vllm_readings(model, log, swap_bytes=swap_bytes, **shared)
        return cache_readings(model, log, given_format=None if "kv_dtype" in changed else kv_dtype, **shared)

    found = readings(model)
    fitting = [reading for reading in found if reading.fits]
    best = fitting[0] if fitting else min(found, key=lambda reading: (bool(reading.assumptions), reading.off))
    guesses = () if fitting else tuple(_guesses(model, log, options, readings))[:MAX_GUESSES]
    return _explanation(log, best, fitting, guesses, max_len)


def _with_options(log: Log, available_gib: str | float | None, max_len: int | None) -> tuple[Log, int | None]:
    """The log with what its lines leave out; lines and options must agree."""
    if available_gib is not None:
        require_scalar(_number(available_gib), GIBIBYTES, "available_gib")
        given = Printed.rounded(str(available_gib), GIB)
        if log.available is not None and (given.high < log.available.low or given.low > log.available.high):
            raise ValueError(
                f"available_gib must be what the lines say, {bytes_text(float(log.available.value))}, got {available_gib}"
            )
        log = replace(log, available=log.available or given)
    if max_len is not None:
        max_len = require_scalar(max_len, LONGEST, "max_len")
        if log.engine == "vllm" and log.max_len not in (None, max_len):
            raise ValueError(f"max_len must be what the lines say, {log.max_len:,}, got {max_len:,}")
    return log, max_len or log.max_len or log.refused_max_len


def _number(value: str | float) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"available_gib must be {GIBIBYTES}, got {str(value)[:40]!r}") from None


def _ranks(name: str, given: int | None, logged: int | None) -> int:
    if given is not None and logged is not None and given != logged:
        raise ValueError(f"{name} must be what the lines say, {logged:,}, got {given:,}")
    return require_scalar(given if given is not None else logged or 1, RANKS, name)


def _format(kv_dtype: str | None, log: Log) -> str:
    given = None if kv_dtype is None else kv_format(kv_dtype).name
    if log.kv_dtype is None:
        return given or "bf16"
    try:
        logged = kv_format(log.kv_dtype).name
    except UnknownName as problem:
        raise ValueError(f"a line names a format that is not known here: {problem}") from None
    if given not in (None, logged):
        raise ValueError(f"kv_dtype must be what the lines say, {logged}, got {given}")
    return logged


def _settings(log: Log, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of the log's engine; those that are None are left out."""
    given = {name: value for name, value in settings.items() if value is not None}
    own = set(engine_settings(log.engine)) if log.engine in SERVING else set()
    if log.engine != "llama.cpp":
        own = (own - {"page_tokens"}) | {"block_tokens"}
    if unknown := given.keys() - own:
        raise ValueError(
            f"settings of {log.engine} must be among {', '.join(sorted(own))}, got {', '.join(sorted(unknown))}"
        )
    if log.engine == "vllm" and log.prefix_caching is not None:
        given.setdefault("prefix_caching", log.prefix_caching)
    return given


def _guesses(
    model: ModelSpec, log: Log, options: dict[str, Any], readings: Callable[..., list[Reading]]
) -> Iterator[str]:
    """What else would make a rule fit, of a short list of things that people and engines mix up.

    Two things at once, a format and a number of ranks, are tried where no single one fits.
    """
    single = list(_fitting(_alternatives(model, log, options), log, readings))
    yield from single or _fitting(_pairs(model, log, options), log, readings)


def _fitting(
    alternatives: Iterable[tuple[str, ModelSpec, dict]], log: Log, readings: Callable[..., list[Reading]]
) -> Iterator[str]:
    """The alternatives under which a rule fits, with what it makes of them."""
    for words, other, changed in alternatives:
        try:
            fitting = [reading for reading in readings(other, **changed) if reading.fits]
        except (ValueError, UnknownName):
            continue
        # sizes of pages are read off the line; of vLLM's settings no more than one thing is guessed at a time
        if fitting and (log.engine != "vllm" or not fitting[0].assumptions):
            yield f"{words}: {fitting[0].bytes_per_token:,.6g} bytes per token"


def _pairs(model: ModelSpec, log: Log, options: dict[str, Any]) -> Iterator[tuple[str, ModelSpec, dict]]:
    """A format and a number of ranks that nobody named."""
    for name in COMMON_FORMATS:
        for ranks in OTHER_RANKS:
            if name != options["kv_dtype"] and ranks != options["tensor_parallel"]:
                changed = {"kv_dtype": name, "tensor_parallel": ranks}
                yield f"the cache is in {name} and tensor_parallel is {ranks}", model, changed


def _alternatives(model: ModelSpec, log: Log, options: dict[str, Any]) -> Iterator[tuple[str, ModelSpec, dict]]:
    """One thing that may have been mixed up."""
    seen = {kv_format(options["kv_dtype"]).row(HEAD_WIDTH) if not _for_latents(options["kv_dtype"]) else 0}
    for name in kv_format_names(log.engine if log.engine in SERVING else "ideal"):
        size = 0 if _for_latents(name) else kv_format(name).row(HEAD_WIDTH)
        if size not in seen or _for_latents(name):
            seen.add(size)
            yield f"the cache is in {name}", model, {"kv_dtype": name}
    ranks = options["tensor_parallel"]
    if ranks > 1:
        yield "heads are not shared out: as on one rank", model, {"tensor_parallel": 1}
    for other in OTHER_RANKS:
        if other != ranks:
            yield f"tensor_parallel is {other}", model, {"tensor_parallel": other}
    if log.engine != "llama.cpp":
        for block in OTHER_BLOCKS:
            yield f"blocks are of {block} tokens", model, {"block_tokens": block}
    groups = [group for group in model.layer_groups if group.kv_heads]
    if any(group.index_width for group in groups):
        without = tuple(replace(group, index_width=0) for group in model.layer_groups)
        yield "the indexer's keys are left out", replace(model, layer_groups=without), {}
    if not groups:
        return
    largest = max(groups, key=lambda group: group.kv_heads * (group.key_width + group.value_width))
    if len(model.layer_groups) > 1:
        yield "all layers are charged in full", _all(model, largest), {}
    if any(group.is_latent for group in groups):
        rotated = largest.value_width
        heads = {"kind": "full", "kv_heads": largest.query_heads, "index_width": 0}
        as_heads = replace(largest, **heads, key_width=HEAD_WIDTH + rotated, value_width=HEAD_WIDTH)
        padded = replace(largest, **heads, key_width=2 * HEAD_WIDTH, value_width=2 * HEAD_WIDTH)
        yield f"latent layers are kept as heads of {HEAD_WIDTH + rotated} and {HEAD_WIDTH}", _all(model, as_heads), {}
        yield f"latent layers are kept as heads padded to {2 * HEAD_WIDTH}", _all(model, padded), {}
    elif largest.query_heads > largest.kv_heads:
        wide = replace(largest, kv_heads=largest.query_heads)
        yield "all query heads are counted (hidden_size for the width of keys and values)", _all(model, wide), {}


def _for_latents(name: str) -> bool:
    return kv_format(name).is_for_latent_rows


def _all(model: ModelSpec, group: LayerGroup) -> ModelSpec:
    """The model with one kind of layer throughout, that keeps every token."""
    kind = "latent" if group.is_latent else "full"
    layers = sum(other.layers for other in model.layer_groups if other.kind not in OTHER_KINDS[1:])
    one = replace(group, kind=kind, layers=layers, window=None, states=(), cross_kv_heads=0)
    return replace(model, layer_groups=(one,), layer_order=())


def _explanation(
    log: Log, best: Reading, fitting: list[Reading], guesses: tuple[str, ...], max_len: int | None
) -> Explanation:
    others = [reading.rule for reading in fitting if reading.rule != best.rule]
    sentences = list(best.sentences)
    if best.assumptions:
        sentences.append(f"This assumes what the lines do not say: {'; '.join(best.assumptions)}.")
    if log.several:
        sentences.append(
            f"Lines differ in {' and '.join(sorted(set(log.several)))}: the smallest is taken, as it is among ranks."
        )
    if log.available is None and best.measured_bytes_per_token is None and best.pool_bytes:
        sentences.append("The memory that was available is not known, so that only the numbers' form is checked.")
    if not fitting:
        sentences.append(f"No rule known here gives these numbers: {'; '.join(best.problems)}.")
        if guesses:
            sentences.append(f"What would, as a guess: {', or '.join(guesses)}.")
    if best.measured_bytes_per_token is not None:
        sentences.append(
            f"The memory that is stated, over the tokens, makes {rate_text(*best.measured_bytes_per_token)} bytes per "
            "token; what is left over of it does not fill a block."
        )
    if best.other_lengths and log.engine == "vllm":
        sentences.append(
            "At another max_len the memory is held constant here; an engine measures it anew, so that it moves."
        )
    return Explanation(
        engine=log.engine,
        rule=best.rule,
        possible=bool(fitting),
        bytes_per_token=best.bytes_per_token,
        slope_bytes_per_token=best.slope_bytes_per_token,
        pool_bytes=best.pool_bytes,
        blocks=best.blocks,
        measured_bytes_per_token=best.measured_bytes_per_token,
        other_rules=tuple(dict.fromkeys(others)),
        assumptions=best.assumptions,
        guesses=guesses,
        other_lengths=best.other_lengths,
        sentences=tuple(sentences),
    )
