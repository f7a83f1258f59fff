"""Formats of cached numbers against ggml's blocks, torch's types and the sizes that engines state."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from calc.kv_formats import bytes_per_number, kv_format, kv_format_names, row_bytes
from calc.numeric import MAX_COUNT

# facts/kv_cache.md, 3.3: bytes per 32 values of ggml's types; q1_0 packs 128 into 18.
GGML = {"q8_0": 34, "q5_1": 24, "q5_0": 22, "q4_1": 20, "q4_0": 18, "iq4_nl": 18}
# The same file, 3.1: bytes per token and head of a key and a value of 128 each.
KEY_AND_VALUE_OF_128 = {"bf16": 512, "fp8": 256, "int8": 264, "fp8_per_token_head": 264, "int4": 136, "nvfp4": 144}
TORCH = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "fp8": torch.float8_e4m3fn}


@pytest.mark.parametrize(("name", "block"), GGML.items())
def test_a_block_of_32_takes_what_ggml_says(name, block):
    assert kv_format(name).row(32) == block
    assert kv_format(name).row(128) == 4 * block
    assert bytes_per_number(name, 128) * 32 == block


def test_eight_bits_are_eight_and_a_half():
    assert 8 * bytes_per_number("q8_0", 128) == 8.5
    assert 8 * bytes_per_number("q4_0", 128) == 4.5
    assert 8 * bytes_per_number("q1_0", 128) == 1.125  # llama.cpp #21551


@pytest.mark.parametrize(("name", "both"), KEY_AND_VALUE_OF_128.items())
def test_a_key_and_a_value_of_128_take_what_vllm_stores(name, both):
    assert 2 * kv_format(name).row(128) == both


@pytest.mark.parametrize(("name", "row"), {"bf16": 1152, "fp8_ds_mla": 656, "nvfp4_ds_mla": 352}.items())
def test_a_latent_row_of_512_and_64_takes_what_vllm_stores(name, row):
    assert kv_format(name).latent_row(512, 64) == row


@pytest.mark.parametrize(("name", "dtype"), TORCH.items())
def test_a_plain_type_is_as_large_as_in_torch(name, dtype):
    assert kv_format(str(dtype).removeprefix("torch.")).name == name
    assert kv_format(name).row(96) == 96 * dtype.itemsize == torch.empty(96, dtype=dtype).nbytes


def test_sglang_adds_a_sixteenth_and_a_thirty_second_for_scales():
    assert kv_format("fp4").row(128) == 64 + 64 // 8
    assert kv_format("mxfp8").row(128) == 128 + 128 // 32


def test_a_width_that_blocks_do_not_fill_is_refused_with_all_three_numbers():
    with pytest.raises(ValueError, match="width of a row in q8_0 must be a multiple of the 32 numbers .* got 80"):
        kv_format("q8_0").row(80)
    with pytest.raises(ValueError, match="q1_0 must be a multiple of the 128 numbers .* got 576"):
        kv_format("q1_0").latent_row(512, 64)


@pytest.mark.parametrize("name", ["fp8_ds_mla", "nvfp4_ds_mla"])
def test_a_format_of_latent_rows_holds_no_keys_and_values(name):
    with pytest.raises(ValueError, match=f"KV format {name} is for latent rows only"):
        kv_format(name).row(128)


def test_every_engine_knows_formats_of_its_own():
    assert kv_format_names("transformers") == ("bf16", "fp16", "fp32")
    assert set(GGML) < set(kv_format_names("llama.cpp"))
    assert not set(GGML) & (set(kv_format_names("vllm")) | set(kv_format_names("sglang")))
    for engine in ("transformers", "vllm", "sglang", "llama.cpp"):
        assert set(kv_format_names(engine)) < set(kv_format_names())


@given(st.sampled_from(kv_format_names()), st.integers(1, 512), st.integers(1, 8))
def test_a_row_grows_with_its_width_by_whole_blocks(name, blocks, more):
    packed = kv_format(name)
    row = packed.latent_row if packed.is_for_latent_rows else lambda width, _: packed.row(width)
    width, wider = blocks * packed.block_numbers, (blocks + more) * packed.block_numbers
    assert row(wider, 0) - row(width, 0) == more * packed.block_bytes
    assert row(width, 0) - blocks * packed.block_bytes == packed.row_bytes


@pytest.mark.parametrize("width", [-1, 2.5, MAX_COUNT + 1, None])
def test_a_width_that_is_no_count_is_refused(width):
    with pytest.raises(ValueError, match="^width must be a whole number from 0"):
        row_bytes(width, 1, 2)
    with pytest.raises(ValueError, match="^width must be a whole number from 1"):
        bytes_per_number("bf16", width)


def test_a_head_of_no_width_has_no_number_to_measure():
    with pytest.raises(ValueError, match="^width must be a whole number from 1 .*got 0"):
        bytes_per_number("bf16", 0)
