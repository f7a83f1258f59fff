"""The section in which lines of an engine's log are read with the scenario's model."""

import streamlit as st

from calc.engine_logs import explain_log
from calc.engine_logs.answer import Explanation, OtherLength, rate_text
from calc.engine_logs.lines import read_log
from calc.formats import bytes_text, count_text
from calc.numeric import MAX_COUNT
from views import inputs, text
from views.fields import KEEP
from views.inputs import Scenario

MAX_GIB = 1_000_000.0
MAX_CHARACTERS = 100_000


def log_section(scenario: Scenario) -> None:
    """Draws the inputs for a log and what it says: of the scenario's model, in its KV format and on its ranks."""
    st.caption(
        "Lines of vLLM, SGLang, llama.cpp, TensorRT-LLM or xInfer as they stand in the log, such as "
        "GPU KV cache size: 175,856 tokens. They are read here and stored nowhere, and do not go into the page's link."
    )
    st.text_area(
        "Paste lines of the engine's log",
        key="log_lines",
        height=120,
        max_chars=MAX_CHARACTERS,
        help="All lines of one start, with whatever stands around them: each tells more.",
        **KEEP,
    )
    with st.grid(2, min_column_width=inputs.NARROWEST, vertical_alignment="bottom"):
        st.number_input(
            "Memory for the cache (GiB per rank)",
            min_value=0.001,
            max_value=MAX_GIB,
            value=st.session_state.get("log_available_gib"),
            step=0.01,
            format="%.10g",
            key="log_available_gib",
            help="As the engine printed it, where the lines do not say it. Empty: as the lines say.",
            placeholder="as the lines say",
            **KEEP,
        )
        st.number_input(
            "Longest sequence, max_len (tokens)",
            min_value=1,
            max_value=MAX_COUNT,
            value=st.session_state.get("log_max_len"),
            step=1000,
            key="log_max_len",
            help="What the server was told to take at most, where the lines do not say it. Empty: as the lines say.",
            placeholder="as the lines say",
            **KEEP,
        )
    lines = st.session_state["log_lines"]
    if not (lines or "").strip():
        return
    with text.problems():
        _draw(_explanation(scenario, lines))


def _explanation(scenario: Scenario, lines: str) -> Explanation:
    """What the lines say; a format or a number of ranks that they name goes before the scenario's."""
    log = read_log(lines)
    named = log.kv_dtype or next((cache.key_format for cache in log.caches if cache.key_format), None)
    kv_dtype = None if named else scenario.kv_dtype
    ranks = log.tensor_parallel or scenario.ranks
    st.caption(
        text.text_only(
            f"Read as {scenario.model.name}, with a cache in {named or scenario.kv_dtype}, on {count_text(ranks, 'ranks')} "
            "of each stage."
        )
    )
    return explain_log(
        scenario.model,
        lines,
        available_gib=st.session_state["log_available_gib"],
        max_len=st.session_state["log_max_len"],
        tensor_parallel=ranks,
        kv_dtype=kv_dtype,
    )


def _draw(found: Explanation) -> None:
    """The reading: whether it can be, the rule, and why."""
    rate = count_text(found.bytes_per_token, "bytes")
    if found.possible:
        st.success(
            text.text_only(f"{found.rule}."), title=text.text_only(f"This is possible: {rate} per token on one rank")
        )
    else:
        st.warning(
            text.text_only(f"Nearest: {found.rule}."),
            title=text.text_only(f"No rule here gives these numbers with {rate} per token on one rank"),
        )
    numbers = [
        (
            "Bytes per token",
            rate,
            "What one rank's pool takes for each token the log counts.",
        ),
        (
            "Each further token, on one rank",
            bytes_text(found.slope_bytes_per_token),
            "What a long sequence grows by on one rank.",
        ),
    ]
    if found.measured_bytes_per_token is not None:
        numbers.append(
            (
                "Stated memory over tokens",
                rate_text(*found.measured_bytes_per_token),
                "From the log's own numbers, over what their rounding allows.",
            )
        )
    if found.pool_bytes is not None:
        numbers.append(("Pool on one rank", bytes_text(found.pool_bytes), "What the printed tokens or blocks take."))
    text.headline(numbers)
    text.bullet_list(
        [
            *(text.text_only(sentence) for sentence in found.sentences),
            *(text.text_only(f"An older rule gives the same: {rule}.") for rule in found.other_rules),
            *(text.text_only(_at_length(other)) for other in found.other_lengths),
        ]
    )


def _at_length(other: OtherLength) -> str:
    start = f"At a max_len of {count_text(other.max_len, 'tokens')}"
    if other.pool_bytes is not None:
        return f"{start} the cache takes {bytes_text(other.pool_bytes)}."
    held = count_text(other.tokens, "tokens")
    return f"{start} the same pool is {held}: {other.concurrency:.2f} sequences of that length."
