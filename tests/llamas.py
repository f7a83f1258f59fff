"""Llamas of any heads, for the tests that count what their heads keep."""

from hypothesis import strategies as st

from calc.model_config import read_config


def llama(query_heads, kv_heads, **changes):
    """A llama of 32 layers with these heads."""
    heads = {"num_attention_heads": query_heads, "num_key_value_heads": kv_heads, "head_dim": 128}
    return read_config({"model_type": "llama", **heads, **changes})


@st.composite
def shared_heads(draw):
    """Query heads and KV heads, the former a multiple of the latter."""
    kv_heads = draw(st.integers(1, 64))
    return kv_heads * draw(st.integers(1, 64)), kv_heads
