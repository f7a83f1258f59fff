"""The frame that all pages share: the question, the answer's place, the first inputs, the rest behind one section."""

from collections.abc import Callable, Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from views import inputs, text
from views.fields import Field
from views.inputs import Scenario


def page(
    question: str,
    first: Sequence[Field],
    settings: Callable[[], None],
    render: Callable[[Scenario, DeltaGenerator], None],
) -> None:
    """Draws a page: inputs stay where they are, whatever the formulas say of them.

    Parameters
    ----------
    question : str
        What the page answers [text].
    first : sequence of Field
        Inputs of the first view, at most four [fields].
    settings : callable
        Draws the closed sections of further inputs [function].
    render : callable
        Draws the answer into the place above the inputs, and the rest of the page below them [function].

    Returns
    -------
    None
        Nothing; it draws [nothing].
    """
    st.title(question)
    answer = st.container()
    with answer:
        inputs.render_config_problem()
    inputs.row(*first)
    settings()
    with text.problems(answer):
        render(inputs.scenario(), answer)
