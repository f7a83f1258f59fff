"""Every input of the pages, declared once, and the frozen scenario that they end in."""

import datetime
import json
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from calc.accelerators import accelerator_ids, accelerator_label
from calc.engines import ENGINES
from calc.kv_formats import bytes_per_number, kv_format_names
from calc.layouts import LAYOUTS
from calc.model_config import config_as_read, read_config
from calc.model_spec import ModelSpec
from calc.numeric import Range, count_up_to
from calc.policies import LIFETIMES, AgentRun
from calc.presets import model_ids, model_label, model_preset
from calc.prices import FIRST_DAY, LAST_DAY, priced_models
from views import link
from views.fields import Choice, Day, Field, Hidden, Price, Several, Whole
from views.text import text_only

PASTED = "pasted"
UPLOADED = "uploaded"
MAX_CALLS = 20_000
"""Longest run that a page lists call by call."""
MAX_TOKENS = 10**9
MAX_CONFIG_BYTES = 10**6

MAX_RANKS = 1024
FULL_BLOCKS = 128
"""Numbers of a head for which a format's bits are shown."""
AS_KEYS = "as the keys"
ON, OFF = "on", "off"
OTHER_LAYOUTS = tuple(name for name in LAYOUTS if name != "own")
NARROWEST = 165
"""Pixels below which inputs side by side wrap: two fit a phone."""

_UPLOADED_CONFIG = "_uploaded_config"
_UNREAD = "_unread_fields"
_CONFIG_PROBLEM = "_config_problem"

_SIZE = count_up_to(MAX_TOKENS)
_PRICE = Range(low=0, high=100_000, whole=False)


def _model_options() -> list[str]:
    own = [PASTED] if st.session_state.get("config") else []
    own += [UPLOADED] if st.session_state.get(_UPLOADED_CONFIG) else []
    return [*own, *model_ids()]


def _model_shown(name: str) -> str:
    if name in (PASTED, UPLOADED):
        return f"Your own config.json ({name})"
    return model_label(name)


def _price(key: str, what: str) -> Price:
    return Price(
        key=key,
        label=what,
        help=f"{what}: USD per million tokens, in place of the card's. Empty: as listed.",
        allowed=_PRICE,
    )


def _format_shown(name: str) -> str:
    """A format with its true bits per number."""
    width = FULL_BLOCKS
    return f"{name} ({8 * bytes_per_number(name, width):.4g} bits)"


def _ranks(key: str, label: str, what: str) -> Whole:
    return Whole(key=key, label=label, help=what, default=1, allowed=count_up_to(MAX_RANKS, low=1))


def _setting(key: str, label: str, what: str, *, low: int = 1, most: int = MAX_TOKENS) -> Whole:
    return Whole(
        key=key, label=label, help=what, default=None, allowed=count_up_to(most, low=low), empty="engine's default"
    )


def _switch(key: str, label: str, what: str, default: str) -> Choice:
    return Choice(key=key, label=label, help=what, default=default, options=lambda: (ON, OFF))


CALLS = Whole(
    key="calls",
    label="Calls",
    help="How often the agent calls the model in one run.",
    default=100,
    allowed=count_up_to(MAX_CALLS, low=1),
    step=10,
)
PREFIX = Whole(
    key="prefix",
    label="Fixed prefix (tokens)",
    help="What every prompt starts with: system text, tools, rules.",
    default=2000,
    allowed=_SIZE,
    step=500,
)
GROWTH = Whole(
    key="growth",
    label="Growth per call (tokens)",
    help="All that a call adds to the next prompt: tool results, user text and the model's own output.",
    default=300,
    allowed=_SIZE,
    step=100,
)
BLOCK = Whole(
    key="block",
    label="Compact every (calls)",
    help="Calls between two compactions, which replace the history by a summary.",
    default=20,
    allowed=count_up_to(MAX_CALLS, low=1),
    step=5,
)
SUMMARY = Whole(
    key="summary",
    label="Summary (tokens)",
    help="Length of the summary that replaces the history.",
    default=1000,
    allowed=_SIZE,
    step=100,
)
INSTRUCTION = Whole(
    key="instruction",
    label="Compaction instruction (tokens)",
    help="Length of the text that asks for the summary.",
    default=0,
    allowed=_SIZE,
    step=50,
)
OUTPUT = Whole(
    key="output",
    label="Output per call (tokens)",
    help="What the model writes in each call, billed as output. Where it is sent back, it is also part of the growth.",
    default=100,
    allowed=_SIZE,
    step=50,
)
CARD = Choice(
    key="card",
    label="Priced as",
    help="The provider's model whose price list pays for the run. A closed model's memory and FLOPs are unknown: those "
    "are shown for the model served as.",
    default="anthropic/claude-opus-4-6",
    options=priced_models,
)
DATE = Day(
    key="date",
    label="Prices of (day, UTC)",
    help="Price lists change; the card of this day is used.",
    first=FIRST_DAY,
    last=LAST_DAY,
)
LIFETIME = Choice(
    key="lifetime",
    label="Cache entries live",
    help="5 minutes or 1 hour; the write price differs.",
    default="5m",
    options=lambda: LIFETIMES,
)
MINIMUM = Whole(
    key="minimum",
    label="Shortest cached prefix (tokens)",
    help="Below this length nothing is cached. Empty: the provider's rule.",
    default=None,
    allowed=_SIZE,
    step=256,
)
PRICES = {
    "uncached": _price("input_price", "Input"),
    "cache_read": _price("read_price", "Cache read"),
    "cache_write_5m": _price("write_price", "Cache write, 5 min"),
    "cache_write_1h": _price("write_1h_price", "Cache write, 1 h"),
    "output": _price("output_price", "Output"),
}
CONFIG = Hidden(key="config", check=lambda text: read_config(text))
MODEL = Choice(
    key="model",
    label="Model",
    help="An open model, or your own config.json (open the section below).",
    default="llama-3.1-8b",
    options=_model_options,
    shown=_model_shown,
    not_in_links={
        PASTED: "the link names a pasted config but holds none that can be used",
        UPLOADED: "an uploaded config does not go into a link; paste it instead to share it",
    },
)
SERVED_AS = replace(
    MODEL,
    label="Served as",
    help="The open model whose memory and FLOP are shown for this run. What the provider runs is not known.",
)
TOKENS = Whole(
    key="tokens",
    label="Context (tokens)",
    help="Tokens of one sequence: prompt and output together.",
    default=128_000,
    allowed=count_up_to(MAX_TOKENS, low=1),
    step=1000,
)
PROMPT = replace(
    TOKENS, label="Prompt (tokens)", help="Tokens that the prefill computes, on top of those already cached."
)
SEQUENCES = Whole(
    key="sequences",
    label="Sequences",
    help="Conversations held in memory at the same time.",
    default=8,
    allowed=count_up_to(1_000_000, low=1),
)
KV_DTYPE = Choice(
    key="kv_dtype",
    label="KV format",
    help="Format of the cached numbers. Bits are true ones, scales included, for heads of 128 numbers.",
    default="bf16",
    options=kv_format_names,
    shown=_format_shown,
)
VALUE_DTYPE = Choice(
    key="value_dtype",
    label="Value format (if another)",
    help="Format of the values, where it is another than that of the keys: under the rules ideal and llama.cpp.",
    default=AS_KEYS,
    options=lambda: (AS_KEYS, *kv_format_names()),
    shown=lambda name: name if name == AS_KEYS else _format_shown(name),
)
ENGINE = Choice(
    key="engine",
    label="Engine (allocation rule)",
    help="ideal: what any implementation must keep. transformers: what its dynamic cache holds after a prefill. vllm, "
    "sglang, llama.cpp: what one request of this length takes there, by the rule of the version that the answer names.",
    default="ideal",
    options=lambda: ENGINES,
)
RANKS = _ranks(
    "ranks",
    "Tensor-parallel ranks",
    "Accelerators that share the KV heads. With more ranks than heads, heads are stored more than once.",
)
STAGES = _ranks(
    "stages", "Pipeline stages", "Groups of accelerators that share out the layers, one group after the other."
)
ATTENTION_GROUPS = _ranks(
    "attention_groups",
    "Data-parallel attention groups",
    "Groups of the tensor-parallel ranks, each of which holds conversations of its own.",
)
CONTEXT_RANKS = _ranks(
    "context_ranks",
    "Context-parallel ranks",
    "Ranks that share out the tokens of a conversation while decoding: full and latent layers only.",
)
ENGINE_SETTINGS: dict[str, tuple[Whole | Choice, ...]] = {
    "vllm": (
        _setting("block_tokens", "Block (tokens)", "Tokens of a page. Empty: 16, and 64 for latent rows."),
        _setting("batched_tokens", "Batched tokens", "Tokens scheduled at once. Empty: 8,192, as from 70 GiB on."),
        _setting(
            "draft_tokens",
            "Draft tokens",
            "Tokens drafted ahead by speculative decoding. Empty: none.",
            low=0,
            most=1000,
        ),
        _switch("prefix_caching", "Prefix caching", "On: a request's states are kept twice.", "on"),
    ),
    "sglang": (
        _setting("page_tokens", "Page (tokens)", "Tokens of a page. Empty: 1."),
        _setting(
            "state_slots", "State slots", "Copies of a request's states. Empty: 3; 1 without the radix cache.", most=64
        ),
    ),
    "llama.cpp": (
        _setting("slots", "Slots", "Sequences that share the context out. Empty: 1.", most=1024),
        _setting(
            "ubatch_tokens",
            "Micro-batch (tokens)",
            "Tokens computed at once, which a window holds besides. Empty: 512.",
        ),
        _switch("full_windows", "Full windows", "On: windowed layers keep everything (--swa-full).", "off"),
    ),
}
"""The settings of each engine that the page offers; the command line has all of them."""
COMPARED = Several(
    key="compared",
    label="Compared with",
    help="Up to five: this model under another layout, or other models.",
    default=("MQA", "MLA", "sliding-1-in-4"),
    options=lambda: (*OTHER_LAYOUTS, *model_ids()),
    most=5,
    shown=lambda name: f"as {name}" if name in OTHER_LAYOUTS else model_label(name),
)
ACCELERATOR = Choice(
    key="accelerator",
    label="Accelerator",
    help="Whose memory and computing are set against what decoding reads and computes.",
    default="h100-sxm",
    options=accelerator_ids,
    shown=accelerator_label,
)
WINDOW = Whole(
    key="window",
    label="Window of the sliding layout (tokens)",
    help="Newest tokens that the sliding layers of the changed layout keep, the token itself among them.",
    default=4096,
    allowed=count_up_to(MAX_TOKENS, low=1),
    step=512,
)
CACHED = Whole(
    key="cached",
    label="Already cached (tokens)",
    help="Tokens before the prompt whose keys and values are in the cache: what prefix caching saves.",
    default=0,
    allowed=_SIZE,
    step=1000,
)
DECODED = Whole(
    key="decoded",
    label="Decoded (tokens)",
    help="Tokens written after the prompt, one after the other.",
    default=500,
    allowed=count_up_to(MAX_TOKENS, low=1),
    step=100,
)

FIELDS: tuple[Field, ...] = (
    CALLS, PREFIX, GROWTH, BLOCK, SUMMARY, INSTRUCTION, OUTPUT, CARD, DATE, LIFETIME, MINIMUM, *PRICES.values(),
    CONFIG, MODEL, TOKENS, SEQUENCES, KV_DTYPE, VALUE_DTYPE, RANKS, STAGES, ATTENTION_GROUPS, CONTEXT_RANKS, ENGINE,
    *(setting for settings in ENGINE_SETTINGS.values() for setting in settings), COMPARED, WINDOW, ACCELERATOR,
    CACHED, DECODED,
)  # fmt: skip
"""In the order of a link; CONFIG stands before MODEL, which may name it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """All inputs of all pages."""

    run: AgentRun
    card: str
    date: datetime.date
    lifetime: str
    minimum: int | None
    prices: tuple[tuple[str, float | None], ...]
    model: ModelSpec
    tokens: int
    sequences: int
    kv_dtype: str
    value_dtype: str
    ranks: int
    stages: int
    attention_groups: int
    context_ranks: int
    engine: str
    settings: tuple[tuple[str, int | bool], ...]
    """What was typed for the chosen engine; the rest has the engine's defaults."""
    compared: tuple[str, ...]
    window: int
    accelerator: str
    cached: int
    decoded: int

    @property
    def formats(self) -> dict[str, str]:
        """Formats of keys and values, as `calc.kv_cache.cache_rule` takes them."""
        values = {} if self.value_dtype == AS_KEYS else {"value_dtype": self.value_dtype}
        return {"kv_dtype": self.kv_dtype, **values}

    @property
    def under_any_rule(self) -> dict[str, Any]:
        """Formats and ranks, without the engine."""
        return {
            **self.formats,
            "tensor_parallel": self.ranks,
            "pipeline_parallel": self.stages,
            "data_parallel": self.attention_groups,
            "decode_context_parallel": self.context_ranks,
        }

    @property
    def on_one_rank(self) -> dict[str, Any]:
        """How the cache is counted on one rank alone."""
        return {**self.formats, "engine": self.engine, **dict(self.settings)}

    @property
    def on_all_ranks(self) -> dict[str, Any]:
        """How the cache is counted over all ranks."""
        return {**self.on_one_rank, **self.under_any_rule}

    @property
    def accelerators(self) -> int:
        """Ranks of all stages."""
        return self.ranks * self.stages

    @property
    def sequences_per_group(self) -> int:
        """Conversations that the fullest rank has a part of."""
        return -(-self.sequences // self.attention_groups)


def scenario() -> Scenario:
    """The session's inputs, checked again: what a browser sends is not trusted.

    Raises
    ------
    ValueError
        If an input is out of range.
    LookupError
        If a name is not known.
    """
    value = {field.key: field.checked(st.session_state.get(field.key, field.default)) for field in FIELDS}
    run = AgentRun(**{key: value[key] for key in
                      ("calls", "prefix", "growth", "output", "block", "summary", "instruction")})  # fmt: skip
    shared = (
        "card",
        "date",
        "lifetime",
        "minimum",
        "tokens",
        "sequences",
        "kv_dtype",
        "value_dtype",
        "ranks",
        "stages",
        "attention_groups",
        "context_ranks",
        "engine",
        "compared",
        "window",
        "accelerator",
        "cached",
        "decoded",
    )
    return Scenario(
        run=run,
        prices=tuple((name, value[field.key]) for name, field in PRICES.items()),
        model=_model(value["model"]),
        settings=_settings(value["engine"], value),
        **{key: value[key] for key in shared},
    )


def _settings(engine: str, value: dict[str, Any]) -> tuple[tuple[str, int | bool], ...]:
    """What was typed for an engine."""
    typed = ((field, value[field.key]) for field in ENGINE_SETTINGS.get(engine, ()))
    return tuple(
        (field.key, given == ON if isinstance(field, Choice) else given) for field, given in typed if given is not None
    )


def _model(name: str) -> ModelSpec:
    if name not in (PASTED, UPLOADED):
        return model_preset(name)
    model = read_config(st.session_state["config" if name == PASTED else _UPLOADED_CONFIG])
    unread = st.session_state.get(_UNREAD, {}).get(name, ())
    return replace(model, name=f"your {model.model_type} config ({model.layers} layers)", unread_fields=unread)


def open_link() -> None:
    """Reads the address into the session when it is new."""
    link.read(FIELDS)


def write_link() -> None:
    """Makes the address hold every input."""
    link.write(FIELDS)


def row(*fields: Field) -> None:
    """Draws inputs side by side, wrapping on narrow screens."""
    with st.grid(min(len(fields), 5), min_column_width=NARROWEST, vertical_alignment="bottom"):
        for field in fields:
            field.draw()


def own_config() -> None:
    """Draws the section in which a user gives a config.json of their own."""
    with st.expander("Use your own config.json", key="open_own_config", on_change="rerun") as section:
        if not section.open:
            return
        st.caption(
            "The file that stands beside a model's weights on Hugging Face. It is read here and stored nowhere; a pasted "
            "config goes into the page's link as the few fields that were read, an uploaded one does not."
        )
        st.text_area("Paste the config.json", key="pasted_text", height=160, on_change=_take_pasted)
        st.file_uploader("Or upload it", type="json", key="uploaded_file", on_change=_take_uploaded, max_upload_size=1)


def render_config_problem() -> None:
    """Says why the config that was given last is not what the page shows."""
    if problem := st.session_state.get(_CONFIG_PROBLEM):
        st.error(text_only(problem), title="This config was not used; the page still shows the model before it")


def _take_pasted() -> None:
    text = st.session_state["pasted_text"]
    st.session_state[_CONFIG_PROBLEM] = None
    if text.strip():
        _take(text, "config", PASTED)


def _take_uploaded() -> None:
    upload = st.session_state["uploaded_file"]
    st.session_state[_CONFIG_PROBLEM] = None
    if upload is None:
        return
    if upload.size > MAX_CONFIG_BYTES:
        st.session_state[_CONFIG_PROBLEM] = (
            f"config must be a text of at most {MAX_CONFIG_BYTES:,} bytes, got a file of {upload.size:,}"
        )
        return
    try:
        text = upload.getvalue().decode("utf-8")
    except UnicodeDecodeError:
        st.session_state[_CONFIG_PROBLEM] = "config must be UTF-8 text, got a file that is not"
        return
    _take(text, _UPLOADED_CONFIG, UPLOADED)


def _take(text: str, key: str, name: str) -> None:
    """Makes a config the session's model, or keeps the model and says what is wrong with the config."""
    try:
        model = read_config(text)
    except ValueError as problem:
        st.session_state[_CONFIG_PROBLEM] = str(problem)
        return
    st.session_state[key] = json.dumps(config_as_read(model), separators=(",", ":"))
    st.session_state[_UNREAD] = {**st.session_state.get(_UNREAD, {}), name: model.unread_fields}
    st.session_state["model"] = name
    st.session_state[_CONFIG_PROBLEM] = None
