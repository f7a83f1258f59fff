"""How ranks share heads, tokens and layers: published replication, identities, and splits that are refused."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.kv_cache import sequence_bytes, sequence_memory
from calc.model_config import read_config
from calc.parallel import Split, heads_per_rank, pipeline_stages
from calc.presets import model_preset


@pytest.mark.parametrize(
    ("name", "ranks", "per_rank", "times"),
    [  # facts/kv_cache.md, section 4: 16-bit bytes per token and rank, and replication
        ("llama-3.1-8b", 8, 16_384, 1),
        ("llama-3.1-8b", 16, 16_384, 2),
        ("llama-3.1-70b", 16, 40_960, 2),
        ("qwen3-235b-a22b", 4, 48_128, 1),
        ("qwen3-235b-a22b", 8, 48_128, 2),
        ("qwen3-235b-a22b", 16, 48_128, 4),
        ("falcon-7b", 8, 8_192, 8),
        ("deepseek-v3", 8, 70_272, 8),
        ("deepseek-v3", 16, 70_272, 16),
    ],
)
def test_replication_is_the_published_one(name, ranks, per_rank, times):
    memory = sequence_memory(model_preset(name), 1, tensor_parallel=ranks)
    assert (memory.bytes_per_rank, memory.replication) == (per_rank, times)


def test_growing_layers_of_a_hybrid_are_replicated_and_states_are_not():
    memory = sequence_memory(model_preset("qwen3.5-35b-a3b"), 1, tensor_parallel=8)
    assert memory.slope_bytes_per_token == 8 * 10_240  # facts/kv_cache.md: 4x of 20,480
    assert 1 < memory.replication < 4


@pytest.mark.parametrize("removes", [{"data_parallel": 8}, {"decode_context_parallel": 8}])
def test_groups_that_attend_apart_and_ranks_that_share_tokens_hold_a_latent_once(removes):
    model = model_preset("deepseek-v3")
    memory = sequence_memory(model, 1000, tensor_parallel=8, **removes)
    assert memory.bytes == sequence_bytes(model, 1000)
    assert memory.replication == 1


def test_ranks_that_share_tokens_hold_an_eighth_each():
    model = model_preset("deepseek-v3")
    memory = sequence_memory(model, 1001, tensor_parallel=8, decode_context_parallel=8)
    assert memory.bytes == 1001 * 70_272
    assert memory.bytes_per_rank == 126 * 70_272  # 1001 / 8, rounded up
    shared = sequence_memory(model_preset("llama-3.1-8b"), 1000, tensor_parallel=16, decode_context_parallel=2)
    assert (shared.replication, shared.bytes_per_rank) == (1, 500 * 16_384)


@settings(deadline=None)
@given(st.integers(1, 200), st.data())
def test_stages_share_out_all_layers_in_order_and_evenly(layers, data):
    stages = pipeline_stages(layers, data.draw(st.integers(1, layers)))
    assert [index for stage in stages for index in stage] == list(range(layers))
    sizes = [len(stage) for stage in stages]
    assert max(sizes) - min(sizes) <= 1
    assert sizes[-1] == min(sizes)  # the head stands there


def test_stages_of_61_layers_are_those_of_vllm():
    # get_pp_indices: 61 = 15 + 15 + 16 + 15; 62 = 15 + 16 + 16 + 15
    assert [len(stage) for stage in pipeline_stages(61, 4)] == [15, 15, 16, 15]
    assert [len(stage) for stage in pipeline_stages(62, 4)] == [15, 16, 16, 15]


def test_the_worst_stage_is_the_one_with_most_growing_layers():
    config = {"model_type": "gemma3_text", "num_hidden_layers": 8, "layer_types": ["sliding_attention"] * 5
              + ["full_attention"] * 3}  # fmt: skip
    memory = sequence_memory(read_config(config), 100_000, pipeline_parallel=4)
    assert memory.worst_stage == 3
    assert memory.bytes_per_rank == memory.stages[3].bytes_per_rank == max(s.bytes_per_rank for s in memory.stages)
    assert memory.bytes == sum(stage.bytes_per_rank for stage in memory.stages)
    assert memory.replication == 1


@settings(deadline=None)
@given(st.integers(1, 32), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(0, 10**6))
def test_no_split_holds_less_than_the_model_and_ranks_add_up(kv_heads, times, groups, context, tokens):
    heads = {"num_attention_heads": 2 * kv_heads, "num_key_value_heads": kv_heads, "head_dim": 64}
    model = read_config({"model_type": "llama", **heads, "num_hidden_layers": 4})
    options = {
        "tensor_parallel": kv_heads * times * groups * context,
        "data_parallel": groups,
        "decode_context_parallel": context,
    }
    memory = sequence_memory(model, tokens, **options)
    assert memory.replication == times
    assert memory.bytes == times * sequence_bytes(model, tokens)
    assert memory.bytes <= memory.bytes_per_rank * kv_heads * times * context


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("phi-4", {"tensor_parallel": 4}, "tensor_parallel must divide the 10 KV heads or be a multiple"),
        (
            "phi-4",
            {"tensor_parallel": 10, "data_parallel": 3},
            "data_parallel must divide the 10 tensor-parallel ranks",
        ),
        (
            "phi-4",
            {"tensor_parallel": 4, "decode_context_parallel": 3},
            "decode_context_parallel must divide the 4 ranks",
        ),
        ("gemma-3-4b", {"tensor_parallel": 4, "decode_context_parallel": 2}, "only full and latent layers share out"),
        ("qwen3.5-27b", {"tensor_parallel": 8, "decode_context_parallel": 2}, "must be 1 for layers of kind recurrent"),
        ("gpt2", {"pipeline_parallel": 13}, "pipeline_parallel must be at most the 12 layers of the model, got 13"),
        ("gpt2", {"data_parallel": 0}, "data_parallel must be a whole number from 1 to 65,536, got 0"),
        ("gpt2", {"pipeline_parallel": 2.5}, "pipeline_parallel must be a whole number from 1 to 1,000, got 2.5"),
        ("llama-3.1-8b", {"tensor_parallel": 8, "decode_context_parallel": 2, "engine": "vllm"}, "at most the 8 ranks"),
        (
            "llama-3.1-8b",
            {"tensor_parallel": 2, "engine": "llama.cpp"},
            "tensor_parallel must be 1 under the llama.cpp",
        ),
        ("gpt2", {"tensor_parallel": 2, "decode_context_parallel": 2, "engine": "transformers"}, "must be 1 under the"),
    ],
)
def test_an_impossible_split_is_refused_with_its_reason(name, options, message):
    with pytest.raises(ValueError, match=message):
        sequence_memory(model_preset(name), 1000, **options)


def test_groups_of_a_state_are_replicated_like_heads():
    """Mamba-2 with one group of projections: every rank holds the group beside its share of the inner channels."""
    model = read_config({"model_type": "bamba", "num_hidden_layers": 1, "attn_layer_indices": [], "hidden_size": 256,
                         "mamba_expand": 2, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_n_groups": 1,
                         "mamba_n_heads": 8, "mamba_d_head": 64, "num_attention_heads": 8})  # fmt: skip
    one = sequence_memory(model, 0)
    assert one.bytes == (512 + 2 * 16) * 3 * 2 + 8 * 64 * 16 * 4
    four = sequence_memory(model, 0, tensor_parallel=4)
    assert four.bytes_per_rank == (512 // 4 + 2 * 16) * 3 * 2 + 2 * 64 * 16 * 4


def test_ranks_of_one_tensor_group_are_split_as_its_properties_say():
    split = Split(tensor_parallel=16, data_parallel=2, decode_context_parallel=4)
    assert (split.attention_ranks, split.head_ranks) == (8, 2)
    assert Counter(heads_per_rank(8, ranks) for ranks in (1, 2, 4, 8, 16)) == {8: 1, 4: 1, 2: 1, 1: 2}
