"""Wires the pages: page config, inputs from the link, navigation. Nothing else."""

import streamlit as st

from views import inputs, link

inputs.open_link()

page = st.navigation(
    {
        "Agents": [
            st.Page(
                "views/trade_off.py",
                title="Trade-off",
                icon=":material/balance:",
                default=True,
                help="One agent run priced four ways: plain, cached, compacted and both.",
            ),
        ],
        "Models": [
            st.Page(
                "views/memory.py",
                title="Memory",
                icon=":material/memory:",
                help="KV cache of a model at any context length, and under other head layouts.",
            ),
            st.Page(
                "views/compute.py",
                title="Compute",
                icon=":material/speed:",
                help="FLOP of prefill and decode against context length.",
            ),
        ],
        "Reference": [
            st.Page(
                "views/formulas.py",
                title="Formulas",
                icon=":material/function:",
                help="Every equation with its source and the page's numbers in it.",
            ),
        ],
    }
)
st.set_page_config(page_title=f"{page.title} - what long context costs", page_icon="📏", layout="wide")
link.render_problems()
page.run()
inputs.write_link()
