"""Reads the lines of an engine's log that say something of its cache; every other line is passed over."""

import re
from dataclasses import dataclass, field, replace
from fractions import Fraction

from calc.engine_logs.printed import MAX_DIGITS, Printed, whole
from calc.units import GIB, MIB

MAX_CHARACTERS = 2_000_000
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_WHOLE = r"(?<![\d,_])\d{1,40}(?:[,_]\d{1,9}){0,12}"
"""A number with separators, begun where no number goes on, and of bounded length, so that no text takes long to search."""
_REAL = _WHOLE + r"(?:\.\d+)?"
_UNITS = {"GIB": GIB, "GB": GIB, "MIB": MIB, "MB": MIB, "B": 1, "BYTES": 1}
"""As logs write them: their GB are GiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLine:
    """A cache that an engine says it has allocated."""

    tokens: int | None = None
    """Tokens, or cells, of one stream."""
    streams: int = 1
    layers: int | None = None
    layer_tokens: int | None = None
    """Tokens of all layers together, where they are printed so."""
    is_windowed: bool | None = None
    """None where the log does not tell windowed layers from the others."""
    is_state: bool = False
    size: Printed | None = None
    keys: Printed | None = None
    values: Printed | None = None
    key_format: str | None = None
    value_format: str | None = None
    rotated: Printed | None = None
    """The rotated part of latent rows, where it is printed apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What the lines say, each number once; None where they do not."""

    engine: str
    version: str | None = None
    max_len: int | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    kv_dtype: str | None = None
    prefix_caching: bool | None = None
    available: Printed | None = None
    tokens: int | None = None
    is_v0: bool = False
    """Whether a line has the form that vLLM had before its engine V1."""
    gpu_blocks: int | None = None
    cpu_blocks: int | None = None
    storable_tokens: int | None = None
    concurrency: Printed | None = None
    needed: Printed | None = None
    refused_available: Printed | None = None
    refused_max_len: int | None = None
    longest: int | None = None
    attention_block: int | None = None
    padding_percent: Printed | None = None
    full_tokens: int | None = None
    windowed_tokens: int | None = None
    block_tokens: int | None = None
    ranks_size: Printed | None = None
    free: Printed | None = None
    caches: tuple[CacheLine, ...] = ()
    several: tuple[str, ...] = ()
    """What lines say more than once and not alike; the smallest counts, as it does among an engine's ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """How a line is told and what it gives: names of the pattern's groups are fields of Log."""

    engine: str
    pattern: re.Pattern
    is_setting: bool = False
    """True where the line says nothing of sizes by itself."""
    fixed: dict = field(default_factory=dict)


def _form(engine: str, pattern: str, **more) -> _Form:
    """A form whose pattern has <N> for a whole number, <R> for one with decimals, <size:name> for a size."""
    text = _SIZE.sub(r"(?P<\1><R>)\\s*(?P<\1_unit>GiB|GB|MiB|MB)", pattern)
    text = text.replace("<N>", _WHOLE).replace("<R>", _REAL)
    return _Form(engine=engine, pattern=re.compile(text, re.IGNORECASE | re.ASCII), **more)


_SIZE = re.compile("<size:([a-z_]+)>")
_V0 = {"is_v0": True}
_FORMS = (
    _form("vllm", r"GPU KV cache size:\s*(?P<tokens><N>)\s*tokens"),
    _form(
        "vllm",
        r"\b(?!CPU)[a-z]+ blocks:\s*(?P<gpu_blocks><N>)(?:\s*,\s*#\s*CPU blocks:\s*(?P<cpu_blocks><N>))?",
        fixed=_V0,
    ),
    _form("vllm", r"Maximum concurrency for\s+(?P<max_len><N>) tokens per request:\s*(?P<concurrency><R>)\s*x"),
    _form("vllm", r"Available KV cache memory:\s*<size:available>"),
    _form("vllm", r"reserved for KV Cache is\s*<size:available>", fixed=_V0),
    _form("vllm", r"\bkv_cache_size=<size:available>", fixed=_V0),
    _form(
        "vllm",
        r"<size:needed> KV cache is needed, which is larger than the available KV cache memory "
        r"\(?<size:refused_available>",
    ),
    _form("vllm", r"estimated maximum model length is\s*(?P<longest><N>)"),
    _form("vllm", r"tokens that can be stored in (?:the )?KV cache\s*\((?P<storable_tokens><N>)\)", fixed=_V0),
    _form("vllm", r"Setting attention block size to\s*(?P<attention_block><N>) tokens"),
    _form("vllm", r"Padding mamba page size by\s*(?P<padding_percent><R>)\s*%"),
    _form("vllm", r"max(?:imum)? seq(?:uence)? len(?:gth)?\s*\((?P<refused_max_len><N>)\)", is_setting=True),
    _form("vllm", r"\(v(?P<version>\d+\.\d+)[\w.+]*\) with config", is_setting=True),
    _form("vllm", r"max_(?:seq|model)_len'?[=:]\s*(?P<max_len><N>)", is_setting=True),
    _form("", r"\btensor_parallel_size'?[=:]\s*(?P<tensor_parallel><N>)", is_setting=True),
    _form("", r"\bpipeline_parallel_size'?[=:]\s*(?P<pipeline_parallel><N>)", is_setting=True),
    _form("", r"\bkv_cache_dtype'?[=:]\s*'?(?!auto)(?P<kv_dtype>\w+)", is_setting=True),
    _form("", r"enable_prefix_caching'?[=:]\s*(?P<prefix_caching>True|False)", is_setting=True),
    _form("sglang", r"max_total_num_tokens=(?P<tokens><N>)"),
    _form("sglang", r"full_layer_tokens=(?P<full_tokens><N>),\s*swa_layer_tokens=(?P<windowed_tokens><N>)"),
    _form("sglang", r"context_len=(?P<max_len><N>)", is_setting=True),
    _form("llama.cpp", r"\bn_ctx\s*=\s*(?P<max_len><N>)", is_setting=True),
    _form("tensorrt-llm", r"Max tokens in paged KV cache:\s*(?P<tokens><N>)"),
    _form("tensorrt-llm", r"Using (?P<tokens><N>) tokens in paged KV cache"),
    _form("tensorrt-llm", r"Allocated <size:available> for max tokens in paged KV cache \((?P<tokens><N>)\)"),
    _form("tensorrt-llm", r"Allocat(?:ing|e) (?P<available><N>)\s*(?P<available_unit>bytes)"),
    _form("tensorrt-llm", r"blocks in KV cache primary pool:\s*(?P<gpu_blocks><N>)"),
    _form("tensorrt-llm", r"max tokens in paged kv cache: total: [^,]*, available:\s*<size:free>"),
    _form("tensorrt-llm", r"tokens per block:\s*(?P<block_tokens><N>)", is_setting=True),
    _form(
        "xinfer",
        r"(?P<gpu_blocks><N>) GPU blocks \(<size:available>(?:\s*x\s*(?P<tensor_parallel><N>))?\), "
        r"max usable kvcache tokens (?P<tokens><N>)",
    ),
)
_SGLANG_POOL = re.compile(
    rf"KV Cache is allocated.*?#tokens:\s*(?P<tokens>{_WHOLE}).*?"
    rf"(?:K size:\s*(?P<keys>{_REAL})\s*GB,\s*V size:\s*(?P<values>{_REAL})\s*GB|KV size:\s*(?P<size>{_REAL})\s*GB)",
    re.IGNORECASE | re.ASCII,
)
_CREATING = re.compile(
    rf"creating\s+(?P<non>non-)?SWA KV cache, size\s*=\s*(?P<cells>{_WHOLE}) cells", re.IGNORECASE | re.ASCII
)
_KV_SIZE = re.compile(
    rf"kv_size\s*=\s*(?P<cells>{_WHOLE}).*?type_k\s*=\s*'(?P<keys>\w+)',\s*type_v\s*=\s*'(?P<values>\w+)'",
    re.IGNORECASE | re.ASCII,
)
_BUFFER = re.compile(rf"KV buffer size\s*=\s*(?P<size>{_REAL})\s*(?P<unit>MiB|MB)", re.IGNORECASE | re.ASCII)
_SELF_SIZE = re.compile(
    rf"KV self size\s*=\s*(?P<size>{_REAL})\s*(?P<unit>MiB|MB)(?P<parts>.*)"
    rf"|\bmemory_size\s*=\s*(?P<early>{_REAL})\s*MB,\s*n_mem\s*=\s*(?P<n_mem>{_WHOLE})",
    re.IGNORECASE | re.ASCII,
)
_CELLS = re.compile(
    rf"(?P<name>llama_\w+):?\s.*?\bsize\s*=\s*(?P<size>{_REAL})\s*MiB\s*\(\s*(?P<cells>{_WHOLE}) cells,\s*"
    rf"(?P<layers>{_WHOLE}) layers,\s*(?:(?P<slots>{_WHOLE})/\s*(?P<streams>{_WHOLE})|(?P<all>{_WHOLE})) seqs?\)"
    r"(?P<parts>.*)",
    re.IGNORECASE | re.ASCII,
)
_PART = re.compile(rf"(?P<name>K\^R|c\^KV|K|V)\s*\((?P<format>\w+)\):\s*(?P<size>{_REAL})\s*MiB", re.ASCII)
_EXAMPLES = (
    "GPU KV cache size: N tokens",
    "# GPU blocks: N, # CPU blocks: M",
    "Maximum concurrency for N tokens per request: Yx",
    "Available KV cache memory: G GiB",
    "KV cache is needed, which is larger than the available KV cache memory",
    "Setting attention block size to N tokens",
    "KV Cache is allocated. #tokens: N, K size: G GB, V size: G GB",
    "max_total_num_tokens=N",
    "KV self size = M MiB",
    "llama_kv_cache: size = M MiB (N cells, ...)",
    "KV buffer size = M MiB",
    "Max tokens in paged KV cache: N",
    "Allocating B bytes",
    "N GPU blocks (G GB), max usable kvcache tokens N",
)
"""The commonest forms, for the message of a text in which none is."""


def read_log(text: str) -> Log:
    """What the lines of a log say of the cache.

    Parameters
    ----------
    text : str
        Lines of one start of an engine, with or without prefixes and colours [text].

    Returns
    -------
    Log
        The numbers, each as printed [facts].

    Raises
    ------
    ValueError
        If no line is known, lines of two engines or of two starts are mixed, or a number has too many digits.

    Examples
    --------
    >>> read_log("INFO 09-21 [kv_cache_utils.py:864] GPU KV cache size: 175,856 tokens").tokens
    175856
    """
    if not isinstance(text, str) or len(text) > MAX_CHARACTERS:
        raise ValueError(f"lines of a log must be a text of at most {MAX_CHARACTERS:,} characters")
    lines = [ANSI.sub("", line) for line in text.splitlines()]
    settings: dict[str, dict] = {"": {}}
    found: dict[str, dict] = {}
    for line in lines:
        for form in _FORMS:
            for match in form.pattern.finditer(line):
                values = (settings if form.is_setting else found).setdefault(form.engine, {})
                _take(values, form, match.groupdict())
    sized = set(found)
    caches = {"sglang": _sglang_pools(lines), "llama.cpp": _llama_caches(lines)}
    sized |= {engine for engine, own in caches.items() if own}
    if not sized:
        raise ValueError(f"no line says what a cache takes; known are: {'; '.join(_EXAMPLES)}")
    if len(sized) > 1:
        raise ValueError(f"lines must be of one engine, got lines of {' and '.join(sorted(sized))}")
    engine = sized.pop()
    stated = {**settings[""], **settings.get(engine, {}), **found.get(engine, {})}
    for name in MORE_THAN_NONE:
        if stated.get(name) == 0:
            raise ValueError(f"{name} of a line must be at least 1, got 0")
    return Log(engine=engine, **{**stated, "caches": caches.get(engine, ())})


MORE_THAN_NONE = ("max_len", "tensor_parallel", "pipeline_parallel")
"""Numbers of a line that no engine serves with at 0."""


def _take(values: dict, form: _Form, groups: dict[str, str | None]) -> None:
    """Adds what a line gives; of several ranks' numbers the smallest counts, which is what the engine goes by."""
    for name, text in groups.items():
        if text is None or name.endswith("_unit"):
            continue
        number = _value(name, text, groups.get(f"{name}_unit"))
        before = values.get(name)
        if form.is_setting or before is None:
            values[name] = number
        elif name == "max_len" and before != number:
            raise ValueError(
                f"lines must be of one start of the engine, got max_len {before:,} and {number:,}: give those of one"
            )
        elif before != number:
            values[name] = min(before, number, key=lambda n: n.value if isinstance(n, Printed) else n)
            values["several"] = (*values.get("several", ()), name)
    values.update(form.fixed)


def _value(name: str, text: str, unit: str | None) -> int | str | bool | Printed:
    if name in ("kv_dtype", "version"):
        return text
    if name == "prefix_caching":
        return text.lower() == "true"
    _require_digits(text)
    if unit is not None:
        size = _UNITS[unit.upper()]
        return Printed.exact(whole(text)) if size == 1 else Printed.rounded(text, size)
    return Printed.rounded(text) if name in ("concurrency", "padding_percent") else whole(text)


def _require_digits(text: str) -> None:
    if sum(character.isdigit() for character in text) > MAX_DIGITS:
        raise ValueError(f"a number of a log must have at most {MAX_DIGITS} digits, got {text[:40]!r}")


def _size(text: str, unit: int) -> Printed:
    _require_digits(text)
    return Printed.rounded(text, unit)


def _count(text: str) -> int:
    _require_digits(text)
    return whole(text)


def _sglang_pools(lines: list[str]) -> tuple[CacheLine, ...]:
    """Pools of SGLang; ranks that say the same say it once."""
    pools = []
    for line in lines:
        if match := _SGLANG_POOL.search(line):
            sizes = {name: _size(match[name], GIB) for name in ("keys", "values", "size") if match[name] is not None}
            pools.append(CacheLine(tokens=_count(match["tokens"]), **sizes))
    return tuple(dict.fromkeys(pools))


def _llama_caches(lines: list[str]) -> tuple[CacheLine, ...]:
    """Caches of llama.cpp: lines on one cache follow each other, so that each adds to the cache begun last."""
    caches: list[CacheLine] = []
    buffers = False
    for line in lines:
        if match := _CREATING.search(line):
            caches.append(CacheLine(tokens=_count(match["cells"]), is_windowed=match["non"] is None))
            buffers = True
        elif match := _KV_SIZE.search(line):
            caches.append(
                CacheLine(tokens=_count(match["cells"]), key_format=match["keys"], value_format=match["values"])
            )
            buffers = True
        elif match := _BUFFER.search(line):
            size = _size(match["size"], MIB)
            if buffers and caches:
                before = caches[-1].size
                caches[-1] = replace(caches[-1], size=size if before is None else before + size)
            else:
                caches.append(CacheLine(size=size))
                buffers = True
        elif match := _CELLS.search(line) or _SELF_SIZE.search(line):
            begun = caches.pop() if buffers and caches else CacheLine()
            caches.append(_summed_up(begun, match.groupdict()))
            buffers = False
    return tuple(
        cache for cache in caches if (cache.size is not None or cache.tokens is not None) and cache.layers != 0
    )


def _summed_up(begun: CacheLine, groups: dict[str, str | None]) -> CacheLine:
    """A cache from the line that sums it up, and what lines before it said."""
    if groups.get("early"):
        return replace(begun, size=_size(groups["early"], MIB), layer_tokens=_count(groups["n_mem"]))
    known: dict = {"size": _size(groups["size"], MIB)}
    if groups.get("cells"):
        known |= {
            "tokens": _count(groups["cells"]),
            "layers": _count(groups["layers"]),
            "streams": _count(groups.get("streams") or "1"),
            "is_state": "recurrent" in groups["name"].lower(),
        }
    for part in _PART.finditer(groups["parts"] or ""):
        size, form = _size(part["size"], MIB), part["format"]
        if part["name"] in ("K", "c^KV"):
            known |= {"keys": size, "key_format": form}
        elif part["name"] == "V":
            known |= {"values": size, "value_format": form}
        else:
            known["rotated"] = size
    return replace(begun, **known)


def cell_range(size: Printed, row: int) -> tuple[int, int]:
    """Least and most rows that may take a printed size; the least is larger where no whole number does.

    Parameters
    ----------
    size : Printed
        The size [bytes].
    row : int
        What each takes [bytes].

    Returns
    -------
    tuple of int
        Least and most [rows].

    Examples
    --------
    >>> cell_range(Printed.exact(1000), 10), cell_range(Printed.exact(1001), 10)
    ((100, 100), (101, 100))
    """
    return -int(-size.low // row), int(Fraction(size.high) // row)
