"""Mechanisms against arrays that hold what is kept and read, published sizes, and what each promises in words."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.kv_cache import kv_cache_bytes, sequence_bytes
from calc.layer_formulas import times
from calc.mechanisms import MECHANISMS, mechanism_bytes, model_mechanisms
from calc.model_config import read_config
from calc.numeric import total
from calc.presets import model_ids, model_preset

NAMES = tuple(mechanism.name for mechanism in MECHANISMS)
LLAMA_LAYER = {"query_heads": 32, "kv_heads": 8, "head_width": 128}


def held(tokens, query_heads, kv_heads, width, window, picked, index_width):
    """Tensors that a layer holds and those that it reads for the newest token, by mechanism."""

    def keys_and_values(rows):
        return [torch.zeros(rows, kv_heads, width, dtype=torch.bfloat16) for _ in range(2)]

    everything, newest = keys_and_values(tokens), keys_and_values(min(tokens, window))
    index = torch.zeros(tokens, index_width, dtype=torch.bfloat16)
    state = torch.zeros(query_heads, width, width)
    plane = torch.zeros(tokens, 4 * width + width // 2, dtype=torch.bfloat16)
    return {
        "full": (everything, everything),
        "sliding": (newest, newest),
        "linear": ([state], [state]),
        "sparse": ([*everything, index], [index, *keys_and_values(min(tokens, picked))]),
        "compressed": ([plane], [plane]),
    }


@given(*[st.integers(1, 40)] * 2, *[st.integers(1, 6)] * 2, st.integers(1, 12), st.integers(1, 50), st.integers(1, 9))
@settings(deadline=None)
def test_bytes_are_those_of_the_tensors_a_layer_holds_and_reads(
    tokens, window, kv_heads, shared_by, half, picked, index
):
    shape = {"query_heads": kv_heads * shared_by, "kv_heads": kv_heads, "head_width": 2 * half}
    rows = mechanism_bytes(tokens, **shape, window=window, picked=picked, index_width=index)
    tensors = held(tokens, kv_heads * shared_by, kv_heads, 2 * half, window, picked, index)
    for row, name in zip(rows, NAMES, strict=True):
        kept, read = ([tensor.nbytes for tensor in part] for part in tensors[name])
        assert row.mechanisms == (name,)
        assert (row.kept_bytes, row.read_bytes) == (sum(kept), sum(read))


def test_one_layer_of_llama_3_1_8b_at_128_000_tokens():
    full, sliding, linear, sparse, compressed = mechanism_bytes(128_000, **LLAMA_LAYER)
    assert 32 * full.kept_bytes == 32 * full.read_bytes == kv_cache_bytes(32, 128_000, 8, 128, 2) == 16_777_216_000
    assert sliding.kept_bytes == sliding.read_bytes == 4096 * 4096  # 4,096 tokens of 2 x 8 x 128 numbers of 2 bytes
    assert linear.kept_bytes == linear.read_bytes == 32 * 128 * 128 * 4
    assert sparse.kept_bytes == full.kept_bytes + 128_000 * 256
    assert sparse.read_bytes == 2048 * 4096 + 128_000 * 256
    assert compressed.kept_bytes == 128_000 * 576 * 2


def test_short_sequences_read_all_and_long_ones_read_a_bounded_part():
    tokens = np.array([1, 100, 10**4, 10**6, 10**9])
    full, sliding, linear, sparse, compressed = mechanism_bytes(tokens, **LLAMA_LAYER)
    assert (sliding.read_bytes == np.minimum(full.read_bytes, 4096 * 4096)).all()
    assert linear.read_bytes == linear.kept_bytes == 32 * 128 * 128 * 4
    assert (sparse.kept_bytes >= full.kept_bytes).all()
    assert (sparse.read_bytes <= sparse.kept_bytes).all()
    assert (compressed.kept_bytes < full.kept_bytes).all()


def test_the_layers_of_a_model_are_named_by_what_they_do():
    rows = model_mechanisms(model_preset("qwen3-next-80b-a3b"), 1000)
    assert {(row.kind, row.mechanisms) for row in rows} == {("recurrent", ("linear",)), ("full", ("full",))}
    (sparse,) = model_mechanisms(read_config({"model_type": "deepseek_v32"}), 10_000)
    assert sparse.mechanisms == ("sparse", "compressed")
    # 10,000 planes of 576 numbers and index keys of 128 are kept; 2,048 planes and all index keys are read.
    assert (sparse.kept_bytes, sparse.read_bytes) == (2 * 10_000 * (576 + 128), 2 * (2048 * 576 + 10_000 * 128))


def test_what_a_shared_layer_reads_is_left_open():
    rows = model_mechanisms(read_config({"model_type": "gemma3n_text"}), 100)
    shared = [row for row in rows if row.kind == "shared"]
    assert shared and all((row.mechanisms, row.kept_bytes, row.read_bytes) == ((), 0, None) for row in shared)


@pytest.mark.parametrize("name", model_ids())
def test_the_layers_together_keep_what_the_model_keeps(name):
    model = model_preset(name)
    rows = model_mechanisms(model, 5000)
    assert total(times(row.kept_bytes, row.layers) for row in rows) == sequence_bytes(model, 5000)
    assert {mechanism for row in rows for mechanism in row.mechanisms} <= set(NAMES)


def test_the_words_are_sentences():
    for mechanism in MECHANISMS:
        for text in (mechanism.kept, mechanism.read, mechanism.lost):
            assert text[0].isupper() and text.endswith(".")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": 0}, "^tokens must be a whole number from 1"),
        ({"query_heads": 12}, "^query_heads must be a multiple of kv_heads = 8, got 12"),
        ({"window": 0}, "^window must be a whole number from 1"),
        ({"picked": 0}, "^index_tokens must be a whole number from 1"),
        ({"head_width": 0}, "^numbers must be a whole number from 1|^key_width must be a whole number from 1"),
    ],
)
def test_a_number_out_of_range_is_named(changes, message):
    arguments = {"tokens": 10, **LLAMA_LAYER, **changes}
    with pytest.raises(ValueError, match=message):
        mechanism_bytes(arguments.pop("tokens"), **arguments)
