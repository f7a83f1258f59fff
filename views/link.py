"""Keeps the page's address equal to its inputs: a link holds every value, so that it reproduces the page.

Streamlit's own binding of widgets to the address drops values that equal their default (an old link would change with
the default), ignores bad values silently, and breaks on some numbers. Here the address is read when a session starts
and when the browser goes back or forward, and written after every run.
"""

from collections.abc import Sequence

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from views.fields import Field
from views.text import text_only

VERSION_KEY = "v"
VERSION = "1"
_STARTED = "_link_was_read"
_PROBLEMS = "_link_problems"
_KEPT = "_link_kept"
MAX_SHOWN = 6


def read(fields: Sequence[Field]) -> None:
    """Puts the address's values, or defaults, into the session; bad values are kept as messages.

    Parameters
    ----------
    fields : sequence of Field
        The inputs of all pages [fields].

    Returns
    -------
    None
        Nothing; it changes the session [nothing].
    """
    context = get_script_run_ctx()
    went_back = context is not None and getattr(context, "is_history_navigation", False)
    if st.session_state.get(_STARTED) and not went_back:
        return
    st.session_state[_STARTED] = True
    problems = []
    given = {key: st.query_params.get_all(key) for key in st.query_params}
    if any(field.key in given for field in fields) or not went_back:
        for field in fields:
            value, problem = _value(field, given.get(field.key, []))
            st.session_state[field.key] = value
            problems += [problem] if problem else []
    if given.get(VERSION_KEY, [VERSION]) != [VERSION]:
        problems.append(f"{VERSION_KEY} must be {VERSION}, the version of this page's links, got another")
    unknown = sorted(given.keys() - {field.key for field in fields} - {VERSION_KEY})
    if unknown:
        problems.append(f"no input is called {', '.join(repr(name[:30]) for name in unknown[:5])}")
    st.session_state[_PROBLEMS] = problems


def _value(field: Field, texts: list[str]) -> tuple[object, str | None]:
    """A field's value from the address, and what was wrong with it."""
    if not texts:
        return field.default, None
    if len(texts) > 1:
        return field.default, f"{field.key} must stand in the link once, got it {len(texts)} times"
    try:
        return field.parsed(texts[0]), None
    except (ValueError, LookupError) as problem:
        return field.default, str(problem)


def render_problems() -> None:
    """Says above the page, until an input is changed, which values of the link could not be kept."""
    problems = st.session_state.get(_PROBLEMS)
    if problems:
        more = f"\n- and {len(problems) - MAX_SHOWN} more" if len(problems) > MAX_SHOWN else ""
        st.warning(
            "\n".join(f"- {text_only(problem)}" for problem in problems[:MAX_SHOWN])
            + f"{more}\n\nThe default stands in each place; the link's other values were kept.",
            title="This link could not be opened as it is",
        )


def write(fields: Sequence[Field]) -> None:
    """Makes the address hold every input's value.

    Parameters
    ----------
    fields : sequence of Field
        The inputs of all pages [fields].

    Returns
    -------
    None
        Nothing; it changes the address [nothing].
    """
    wanted = {VERSION_KEY: VERSION}
    for field in fields:
        value = st.session_state.get(field.key, field.default)
        if text := field.text(value):
            wanted[field.key] = text
    if st.session_state.setdefault(_KEPT, wanted) != wanted:
        st.session_state[_PROBLEMS] = []
    if st.query_params.to_dict() != wanted:
        st.query_params.from_dict(wanted)
