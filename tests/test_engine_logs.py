"""The log explainer: public logs, hand arithmetic, the rules run forwards against the reader, and random text."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.engine_logs import explain_log
from calc.engine_logs.lines import read_log
from calc.engine_logs.printed import Printed
from calc.engines.pools import vllm_tokens, vllm_tokens_until_0_20
from calc.kv_cache import cache_rule, sequence_bytes
from calc.model_config import read_config
from calc.presets import model_preset
from calc.units import GIB, MIB

QWEN_1_7B, LLAMA_8B, LLAMA_70B, QWEN_27B, GEMMA_31B, R1 = (
    model_preset(name)
    for name in ("qwen3-1.7b", "llama-3.1-8b", "llama-3.1-70b", "qwen3.5-27b", "gemma-4-31b", "deepseek-r1")
)
TOKENS = "INFO 11-30 10:11:12 [kv_cache_utils.py:864] GPU KV cache size: 175,856 tokens"
REFUSAL = (
    "ValueError: To serve at least one request with the models's max seq len (221000), (10.12 GiB KV cache is needed, which "
    "is larger than the available KV cache memory (5.59 GiB). Based on the available memory, the estimated maximum model "
    "length is 122080. Try increasing `gpu_memory_utilization`."
)
ISWA = """llama_kv_cache_iswa: creating non-SWA KV cache, size = 131072 cells
llama_kv_cache:      CUDA0 KV buffer size =  2560.00 MiB
llama_kv_cache_iswa: creating     SWA KV cache, size = 1536 cells
llama_kv_cache:      CUDA0 KV buffer size =   174.00 MiB"""
MIXED = (
    "llama_kv_cache: size =  182.81 MiB (  6656 cells,  40 layers,  1/1 seqs), "
    "K (q4_0):  146.25 MiB, V (q1_0):   36.56 MiB"
)


def llama_like(layers):
    return read_config(
        {"model_type": "llama", "num_hidden_layers": layers, "num_attention_heads": 32, "num_key_value_heads": 8}
    )


def test_a_line_and_its_memory_give_bytes_per_token_and_the_rule():
    # 28 layers x 8 KV heads x 128 x 2 planes x 2 bytes = 114,688; 175,856 of them are 18.783 GiB
    found = explain_log(QWEN_1_7B, TOKENS, available_gib=18.78, max_len=40_960)
    assert (found.bytes_per_token, found.possible) == (114_688, True)
    assert type(found.bytes_per_token) is int
    assert found.rule.startswith("vLLM 0.21 and newer")
    assert [rule[:15] for rule in found.other_rules] == ["vLLM until 0.20"]
    low, high = found.measured_bytes_per_token
    assert low <= 114_688 <= high
    assert found.pool_bytes == 175_856 * 114_688


@pytest.mark.parametrize(
    ("options", "guess"),
    [
        ({"kv_dtype": "fp8"}, "the cache is in bf16"),
        ({"tensor_parallel": 2}, "heads are not shared out: as on one rank"),
    ],
)
def test_a_line_that_cannot_be_says_by_how_much_and_what_would_explain_it(options, guess):
    found = explain_log(QWEN_1_7B, TOKENS, available_gib=18.78, max_len=40_960, **options)
    assert not found.possible
    assert any(text.startswith(guess) for text in found.guesses)
    assert "off by" in " ".join(found.sentences)
    assert found.bytes_per_token == 114_688 // 2


def test_hidden_size_in_place_of_the_width_of_keys_is_recognised():
    # 32 layers x 4,096 x 2 planes x 2 bytes = 524,288 bytes per token, 4 times the model's own
    line = f"GPU KV cache size: {20 * GIB // 524_288 // 16 * 16} tokens"
    found = explain_log(LLAMA_8B, line, available_gib="20.00", max_len=4096)
    assert not found.possible
    assert any("hidden_size" in guess and "524,288" in guess for guess in found.guesses)


def test_layers_charged_in_full_are_recognised():
    # gemma-3-4b: 34 layers x 4 heads x 256 x 2 x 2 = 139,264 bytes per token where windows are kept in full
    tokens = int(10 * GIB // (139_264 * 16) * 16)
    found = explain_log(
        model_preset("gemma-3-4b"), f"GPU KV cache size: {tokens} tokens", available_gib="10.00", max_len=131_072
    )
    assert found.bytes_per_token == 139_264
    assert found.possible
    assert found.assumptions == ("the hybrid manager is off",)


def test_without_memory_a_pool_is_told_and_only_the_form_is_checked():
    found = explain_log(QWEN_1_7B, TOKENS)
    assert found.possible
    assert found.measured_bytes_per_token is None
    assert found.pool_bytes == 175_856 * 114_688
    assert not explain_log(QWEN_1_7B, "GPU KV cache size: 175,857 tokens").possible  # no multiple of 16


def test_other_lengths_come_from_the_same_blocks():
    found = explain_log(QWEN_1_7B, TOKENS, max_len=40_960, other_max_len=[1000])
    at = {other.max_len: other for other in found.other_lengths}
    assert set(at) == {20_480, 40_960, 81_920, 1000}
    assert at[20_480].tokens == 175_856
    # 10,991 blocks, 63 for a request of 1,000 tokens: 174 requests and a bit, 174,460 tokens
    assert at[1000].tokens == int(10_991 / 63 * 1000)
    assert at[81_920].concurrency == pytest.approx(175_856 / 81_920)


@pytest.mark.parametrize(
    ("model", "lines", "options", "rate"),
    [
        (  # vLLM #25350
            "qwen3-30b-a3b",
            "Available KV cache memory: 10.55 GiB\nGPU KV cache size: 230,528 tokens\n"
            "Maximum concurrency for 100,000 tokens per request: 2.31x",
            {"kv_dtype": "fp8"},
            49_152,
        ),
        ("qwen3-30b-a3b", REFUSAL, {"kv_dtype": "fp8"}, 49_152),  # the same
        (  # vLLM #10517
            "llama-3.1-8b",
            "model weights take 14.99GiB; the rest of the memory reserved for KV Cache is 3.81GiB.\n"
            "# GPU blocks: 1952, # CPU blocks: 2048\nMaximum concurrency for 20000 tokens per request: 1.56x",
            {},
            131_072,
        ),
        (  # the same with 29,000
            "llama-3.1-8b",
            "# cuda blocks: 1478, # CPU blocks: 2048\nMaximum concurrency for 29000 tokens per request: 0.82x\n"
            "ValueError: The model's max seq len (29000) is larger than the maximum number of tokens that can be stored "
            "in KV cache (23648).",
            {"available_gib": "2.89"},
            131_072,
        ),
        ("llama-3.1-70b", "# GPU blocks: 1381\nMaximum concurrency for 2048 tokens per request: 10.79x", {}, 327_680),
        ("llama-2-7b", "# GPU blocks: 507, # CPU blocks: 1024", {"tensor_parallel": 2}, 262_144),  # vLLM #5248
        ("llama-2-7b", "Max tokens in paged KV cache: 132608. Allocating 69524783104 bytes.", {}, 524_288),
        (  # TensorRT-LLM #1400, as its version wrote it
            "llama-2-7b",
            "[TensorRT-LLM][INFO] Allocate 69524783104 bytes for k/v cache. \n"
            "[TensorRT-LLM][INFO] Using 132608 tokens in paged KV cache.",
            {},
            524_288,
        ),
        (  # TensorRT-LLM #2268: 0.9 x 21.89 GiB / 32 MiB = 630.4, rounded up
            "llama-2-7b",
            "Memory usage when calculating max tokens in paged kv cache: total: 39.39 GiB, available: 21.89 GiB\n"
            "Number of blocks in KV cache primary pool: 631",
            {},
            524_288,
        ),
        (  # xInfer #195
            "qwen3-30b-a3b",
            "WARN KVCache Allocation: 8192 GPU blocks (48.00 GB), max usable kvcache tokens 524288, scheduling limits",
            {},
            98_304,
        ),
        (  # xInfer #197
            "qwen3-32b",
            "KVCache Allocation: 8192 GPU blocks (32.00 GB x 4), max usable kvcache tokens 524288 (64k bytes per token)",
            {},
            65_536,
        ),
        (  # vLLM #21348
            "qwen3-235b-a22b",
            "KV Cache is allocated. #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB",
            {"tensor_parallel": 4},
            48_128,
        ),
        (  # vLLM #21348: another rank had 1.1 % less than the 8.11 GiB
            "qwen3-235b-a22b",
            "Available KV cache memory: 8.11 GiB\nGPU KV cache size: 178,880 tokens",
            {"tensor_parallel": 4},
            48_128,
        ),
        (  # vLLM #13596, before and after the line was changed
            "qwen2.5-7b",
            "INFO 02-20 00:01:02 kv_cache_utils.py:522] # GPU blocks: 127626\n"
            "Maximum concurrency for 2048 tokens per request: 997.08x",
            {},
            57_344,
        ),
        (
            "qwen2.5-7b",
            "GPU KV cache size: 2,042,016 tokens\nMaximum concurrency for 2,048 tokens per request: 997.08x",
            {},
            57_344,
        ),
        (  # vLLM #10517, as the report has it
            "llama-3.1-8b",
            "Memory profiling results: total_gpu_memory=23.58GiB kv_cache_size=3.81GiB gpu_memory_utilization=0.90\n"
            "GPU blocks: 1952, # CPU blocks: 2048\nMaximum concurrency for 20000 tokens per request: 1.56x",
            {},
            131_072,
        ),
        (  # sglang #11309: with the indexer's keys
            "deepseek-v3.2",
            "[2025-10-07 23:17:19 DP0 TP0] KV Cache is allocated. #tokens: 975424, KV size: 43.67 GB",
            {"kv_dtype": "fp8"},
            48_068,
        ),
        (  # llama.cpp #11446
            "deepseek-r1",
            "KV self size  = 2196.00 MiB, K^R (f16):  244.00 MiB, c^KV (f16): 1952.00 MiB, kv^T: not used",
            {"max_len": 32_768},
            70_272,
        ),
        ("deepseek-r1", "KV self size  = 1166.62 MiB, c^KV (q8_0): 1166.62 MiB", {"max_len": 32_768}, 37_332),
        ("deepseek-r1", "KV self size  = 5369.91 MiB, c^KV (f16): 5369.91 MiB", {"max_len": 80_000}, 70_272),
        ("falcon-40b", "falcon_model_load: memory_size =   480.00 MB, n_mem = 122880", {"kv_dtype": "fp32"}, 245_760),
    ],
)
def test_a_public_log_is_possible_at_its_bytes_per_token(model, lines, options, rate):
    found = explain_log(model_preset(model), lines, **options)
    assert (found.possible, found.bytes_per_token) == (True, rate)
    assert found.guesses == ()


def test_llama_cpp_keeps_keys_and_values_in_the_formats_that_the_line_names():
    found = explain_log(llama_like(40), MIXED)  # llama.cpp #21551
    # 40 layers x 8 heads x 128 numbers x (18/32 + 18/128) bytes
    assert (found.possible, found.bytes_per_token) == (True, 28_800)
    assert not explain_log(llama_like(36), MIXED).possible
    assert "40 layers, the model 36" in " ".join(explain_log(llama_like(36), MIXED).sentences)
    assert not explain_log(llama_like(40), MIXED, kv_dtype="q8_0").possible


def test_two_caches_of_a_model_with_windows_are_read_together():
    found = explain_log(model_preset("gemma-3-4b"), ISWA, max_len=131_072)  # ollama #17037
    assert found.possible
    assert found.slope_bytes_per_token == 20_480
    assert found.pool_bytes == 2734 * MIB
    assert found.bytes_per_token == 2734 * MIB / 131_072
    alone = explain_log(model_preset("gemma-3-4b"), "\n".join(ISWA.splitlines()[:2]))
    assert (alone.possible, alone.bytes_per_token) == (True, 20_480)
    assert "part of the layers" in " ".join(alone.sentences)


def test_a_context_that_a_front_end_made_longer_is_possible_and_said():
    # koboldcpp #724: 82,120 MiB are 32,848 cells of 2.5 MiB, 80 more than were asked for
    mha = read_config(
        {
            "model_type": "llama",
            "num_hidden_layers": 80,
            "num_attention_heads": 64,
            "num_key_value_heads": 64,
            "head_dim": 128,
        }
    )
    found = explain_log(mha, "llama_kv_cache_init: CUDA0 KV buffer size = 82120.00 MiB", max_len=32_768)
    assert (found.possible, found.bytes_per_token) == (True, 2_621_440)
    assert "32,848 cells" in " ".join(found.sentences)
    assert "+80" in " ".join(found.sentences)
    short = explain_log(mha, "llama_kv_cache_init: CUDA0 KV buffer size = 82120.00 MiB", max_len=40_000)
    assert not short.possible


def test_one_token_of_latent_heads_is_recognised():
    line = "KV self size  =    4.77 MiB, K (f16):    2.86 MiB, V (f16):    1.91 MiB"  # llama.cpp #11446
    found = explain_log(R1, line)
    assert not found.possible
    assert any("heads of 192 and 128" in guess for guess in found.guesses)


def test_states_of_a_recurrent_model_are_read_in_float32():
    line = "llama_memory_recurrent: size =  149.06 MiB (     1 cells,  64 layers,  1 seqs), R (f32):    5.62 MiB"
    held = sequence_bytes(QWEN_27B, 0, engine="llama.cpp")
    assert held == 48 * (10_240 * 3 + 48 * 128 * 128) * 4  # 48 layers of a convolution and a state
    assert explain_log(QWEN_27B, line.replace("149.06", f"{held / MIB:.2f}")).possible
    assert not explain_log(QWEN_27B, line.replace("149.06", "300.00")).possible


def test_windows_that_v0_kept_in_full_are_no_assumption():
    # Mistral 7B v0.1: 32 layers x 8 heads x 128 x 2 x 2 bytes; blocks of 16 tokens are 2 MiB, 2,048 of them 4 GiB
    found = explain_log(model_preset("mistral-7b-v0.1"), "# GPU blocks: 3000, # CPU blocks: 2048")
    assert (found.possible, found.bytes_per_token, found.assumptions) == (True, 131_072, ())
    assert found.rule.startswith("vLLM V0")


def test_the_first_versions_of_v1_divided_tokens_by_max_len():
    # 127,626 blocks x 16 / 1,000 = 2,042.016 requests; in whole blocks of 63 it would be 2,025.81
    lines = "GPU KV cache size: 2,042,016 tokens\nMaximum concurrency for 1,000 tokens per request: {}x"
    for ratio in ("2042.02", "2025.81"):
        found = explain_log(model_preset("qwen2.5-7b"), lines.format(ratio))
        assert found.possible
        assert found.rule.startswith("vLLM until 0.20")
    assert not explain_log(model_preset("qwen2.5-7b"), lines.format("2000.00")).possible


def test_the_two_pools_of_sglang_are_told_apart_by_their_sizes():
    line = "[2026-01-31 13:50:39 TP1] KV Cache is allocated. #tokens: 300288, K size: 8.38 GB, V size: 5.59 GB"
    found = explain_log(model_preset("mimo-v2-flash"), line, tensor_parallel=4)  # SGLang #18039
    # 39 layers with a window x 2 heads x (192 + 128) numbers x 2 bytes; buffers of one page of 64 more
    assert (found.possible, found.bytes_per_token) == (True, 39 * 2 * (192 + 128) * 2)
    assert found.assumptions == ("pages of 64 tokens",)
    assert not explain_log(model_preset("mimo-v2-flash"), line, tensor_parallel=2).possible


def test_a_log_that_leaves_the_indexer_s_keys_out_is_recognised():
    # sglang #11309: 54.52 shown, 65.49 GiB true
    line = "KV Cache is allocated. #tokens: 1462784, KV size: 54.52 GB"
    found = explain_log(model_preset("deepseek-v3.2"), line, kv_dtype="fp8", block_tokens=64)
    assert not found.possible
    assert found.guesses[0].startswith("the indexer's keys are left out")
    assert round(found.pool_bytes / GIB, 2) == 65.49


def test_a_hybrid_of_another_size_is_read():
    lines = (  # club-3090 #612, vLLM 0.24.0: Qwen3.6-35B-A3B
        "(EngineCore pid=107) INFO 07-06 22:52:09 [gpu_worker.py:508] Available KV cache memory: 5.98 GiB\n"
        "(EngineCore pid=107) INFO 07-06 22:52:09 [kv_cache_utils.py:2146] GPU KV cache size: 567,978 tokens\n"
        "(EngineCore pid=107) INFO 07-06 22:52:09 [kv_cache_utils.py:2147] Maximum concurrency for 131,072 tokens per "
        "request: 4.33x\n(EngineCore pid=107) INFO 07-06 22:50:46 [core.py:114] Initializing a V1 LLM engine (v0.24.0) "
        "with config: max_seq_len=131072, kv_cache_dtype=fp8, enable_prefix_caching=True"
    )
    found = explain_log(model_preset("qwen3.5-35b-a3b"), lines)
    assert (found.possible, found.assumptions, found.blocks) == (True, (), 299)
    assert found.slope_bytes_per_token == 10_240


def test_windows_are_read_under_the_older_rule():
    lines = (  # kvcached #215: 19,821 x 16 tokens; 192 + 6 x 193 = 1,350 blocks for 3,072 tokens
        "GPU KV cache size: 317,136 tokens\nMaximum concurrency for 3,072 tokens per request: 102.78x"
    )
    found = explain_log(model_preset("gemma-3-4b"), lines)
    assert found.possible
    assert found.rule.startswith("vLLM until 0.20")
    assert found.blocks // 7 == 19_821


@pytest.mark.parametrize(
    ("tokens", "available", "max_len", "ratio"),
    [(302_921, "4.99", 131_072, "2.31"), (619_202, "9.84", 262_144, "2.36")],  # talos #1995, club-3090 #104
)
def test_a_hybrid_needs_max_len_and_counts_its_pool_per_token(tokens, available, max_len, ratio):
    lines = (
        f"Available KV cache memory: {available} GiB\nGPU KV cache size: {tokens:,} tokens\n"
        f"Maximum concurrency for {max_len:,} tokens per request: {ratio}x"
    )
    found = explain_log(QWEN_27B, lines, kv_dtype="fp8", tensor_parallel=2)
    assert found.possible
    assert found.slope_bytes_per_token == 16_384
    each = math.ceil(max_len / 1568) + 3 * 2
    assert found.bytes_per_token == pytest.approx(25_690_112 * each / max_len, rel=1e-12)
    with pytest.raises(ValueError, match="--max-len"):
        explain_log(QWEN_27B, lines.splitlines()[1], kv_dtype="fp8", tensor_parallel=2)


def test_the_older_rule_is_named_and_called_wrong_for_a_hybrid():
    lines = "Available KV cache memory: 24.54 GiB\nGPU KV cache size: 26,800 tokens"  # hf-mem #61
    found = explain_log(GEMMA_31B, lines, max_len=32_768)
    assert found.possible
    assert found.rule.startswith("vLLM until 0.20")
    assert found.bytes_per_token == 60 * 16_384  # as logged: as if all layers were of the wider kind
    assert found.slope_bytes_per_token == 81_920
    assert "wrong" in " ".join(found.sentences)
    assert found.other_rules == ()


def test_the_report_that_names_two_models_is_of_one_of_them():
    # vLLM #40691: 371 x 784 tokens; 1,487 blocks / (42 + 3) = 33.04: prefix caching was off
    lines = "GPU KV cache size: 290,864 tokens\nMaximum concurrency for 32,768 tokens per request: 33.04x"
    found = explain_log(QWEN_27B, lines)
    assert (found.possible, found.blocks) == (True, 1487)
    assert found.assumptions == ("prefix caching is off",)
    assert found.rule.startswith("vLLM until 0.20")
    assert not explain_log(model_preset("qwen3.5-35b-a3b"), lines).possible


@pytest.mark.parametrize(
    ("lines", "options"),
    [
        ("Setting attention block size to 784 tokens\nPadding mamba page size by 0.13%", {}),
        ("Setting attention block size to 1568 tokens\nPadding mamba page size by 0.13%", {"kv_dtype": "fp8"}),
        (
            "Setting attention block size to 480 tokens\nPadding mamba page size by 1.27%",
            {"draft_tokens": 15, "state_dtype": "bf16"},
        ),
        (
            "Setting attention block size to 864 tokens\nPadding mamba page size by 1.09%",
            {"draft_tokens": 7, "state_dtype": "bf16", "kv_dtype": "int8"},
        ),
    ],
)
def test_the_blocks_of_a_hybrid_are_checked(lines, options):
    assert explain_log(QWEN_27B, lines, **options).possible
    assert not explain_log(QWEN_27B, lines, **{**options, "kv_dtype": "fp32"}).possible


def test_what_the_engine_says_of_its_settings_is_taken_from_the_lines():
    config = (
        "INFO Initializing a V1 LLM engine (v0.11.0) with config: model='x', max_seq_len=40960, tensor_parallel_size=2, "
        "pipeline_parallel_size=1, kv_cache_dtype=fp8_e4m3, enable_prefix_caching=True"
    )
    tokens = int(10 * GIB // (28_672 * 16) * 16)  # 28 layers x 4 heads x 128 x 2 x 1 byte
    found = explain_log(
        QWEN_1_7B, f"{config}\nAvailable KV cache memory: 10.0 GiB\nGPU KV cache size: {tokens:,} tokens"
    )
    assert (found.possible, found.bytes_per_token) == (True, 28_672)
    assert found.rule.startswith("vLLM until 0.20")  # 0.11 knew only that one
    with pytest.raises(ValueError, match="tensor_parallel must be what the lines say, 2, got 4"):
        explain_log(QWEN_1_7B, f"{config}\nGPU KV cache size: 16 tokens", tensor_parallel=4)
    with pytest.raises(ValueError, match="kv_dtype must be what the lines say, fp8, got bf16"):
        explain_log(QWEN_1_7B, f"{config}\nGPU KV cache size: 16 tokens", kv_dtype="bf16")


@pytest.mark.parametrize(
    "line",
    [
        "GPU KV cache size: 175,856 tokens",
        "gpu kv cache size: 175856 tokens",
        "(EngineCore_DP0 pid=699134) INFO 09-28 01:43:24 [kv_cache_utils.py:805] GPU KV cache size: 175_856 tokens\r",
        "\x1b[32mINFO\x1b[0m GPU KV cache size: \x1b[1m175,856\x1b[0m tokens",
        "nothing\n\nGPU KV cache size: 175,856 tokens\n{'a': 1}",
    ],
)
def test_prefixes_colours_separators_and_other_lines_do_not_matter(line):
    assert read_log(line).tokens == 175_856


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [("18.78", 18.775, 18.785), ("18.5", 18.495, 18.505), ("20", 19.995, 20.005), ("3.812", 3.8115, 3.8125)],
)
def test_a_printed_number_stands_for_what_rounds_to_it(text, low, high):
    # vLLM prints round(x, 2), which drops zeros at the end
    printed = Printed.rounded(text)
    assert (float(printed.low), float(printed.high)) == (low, high)


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        ("hello", {}, "no line says what a cache takes; known are: GPU KV cache size"),
        ("", {}, "no line says"),
        ("max_seq_len=4096", {}, "no line says"),
        ("GPU KV cache size: 16 tokens\nKV self size = 2.00 MiB", {}, "one engine, got lines of llama.cpp and vllm"),
        (
            "Maximum concurrency for 10 tokens per request: 1x\nMaximum concurrency for 20 tokens per request: 1x",
            {},
            "one start of the engine, got max_len 10 and 20",
        ),
        (
            "Maximum concurrency for 10 tokens per request: 1x",
            {"max_len": 20},
            "max_len must be what the lines say, 10",
        ),
        (
            "Available KV cache memory: 1.5 GiB",
            {"available_gib": 2},
            "available_gib must be what the lines say, 1.5 GiB",
        ),
        (TOKENS, {"available_gib": "much"}, "available_gib must be a number"),
        (TOKENS, {"available_gib": "nan"}, "available_gib must be a number"),
        (TOKENS, {"available_gib": -1}, "available_gib must be a number"),
        (TOKENS, {"max_len": 0}, "max_len must be a whole number"),
        (TOKENS, {"tensor_parallel": 0}, "tensor_parallel must be a whole number"),
        (TOKENS, {"tensor_parallel": 3}, "tensor_parallel must divide the 8 KV heads"),
        (TOKENS, {"slots": 2}, "settings of vllm must be among .* got slots"),
        ("KV self size = 2.00 MiB", {"block_tokens": 16}, "settings of llama.cpp must be among .* got block_tokens"),
        (
            "max_total_num_tokens=5",
            {"page_tokens": 16},
            "settings of sglang must be among block_tokens, .* got page_tokens",
        ),
        ("max_total_num_tokens=5", {"block_tokens": 0}, "block_tokens must be a whole number"),
        (TOKENS, {"block_tokens": 0}, "block_tokens must be a whole number"),
        ("GPU KV cache size: 9999999999999999999 tokens", {}, "must have at most 15 digits"),
        (
            "KV self size = 2.00 MiB, K (tq9_9): 1.00 MiB",
            {},
            "format that is not known here: unknown KV format 'tq9_9'",
        ),
        (
            "kv_cache_dtype=odd GPU KV cache size: 16 tokens",
            {},
            "format that is not known here: unknown KV format 'odd'",
        ),
    ],
)
def test_lines_and_options_that_say_nothing_or_contradict_each_other_are_refused(lines, options, message):
    with pytest.raises(ValueError, match=message):
        explain_log(QWEN_1_7B, lines, **options)


def test_lines_on_a_kv_cache_cannot_be_of_a_model_without_one():
    with pytest.raises(ValueError, match="no layer of the model keeps tokens"):
        explain_log(model_preset("falcon-mamba-7b"), "KV self size = 2.00 MiB")


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([QWEN_1_7B, QWEN_27B, GEMMA_31B, R1, model_preset("gpt-oss-20b")]),
    st.integers(20, 5000),
    st.sampled_from([1000, 4096, 40_960, 131_072]),
    st.sampled_from(["current", "grouped"]),
)
def test_what_a_rule_prints_is_read_back(model, blocks, max_len, rule):
    pool = cache_rule(model, engine="vllm")
    each = pool.request_blocks(max_len)
    if rule == "current":
        tokens = int(vllm_tokens(blocks, each, max_len))
    else:
        smallest = min(group.page.block_tokens for group in pool.tables() if group.page.block_tokens)
        tokens = vllm_tokens_until_0_20(blocks, len(pool.tables()), smallest)
    memory = (blocks + 0.5) * pool.bytes_per_block(range(model.layers)) / GIB
    lines = (
        f"Available KV cache memory: {round(memory, 2)} GiB\nGPU KV cache size: {tokens:,} tokens\n"
        f"Maximum concurrency for {max_len:,} tokens per request: {blocks / each:.2f}x"
    )
    found = explain_log(model, lines)
    assert found.possible
    named = (found.rule, *found.other_rules)
    assert any(name.startswith("vLLM 0.21" if rule == "current" else "vLLM until") for name in named)
    # a tenth more memory than there was is not: the blocks that it would make are not printed
    if blocks > 100 and memory > 1:
        wrong = lines.replace(f"{round(memory, 2)} GiB", f"{round(1.5 * memory, 2)} GiB")
        assert not explain_log(model, wrong).possible


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([LLAMA_8B, R1, model_preset("gemma-3-4b"), QWEN_27B]),
    st.integers(1, 200_000),
    st.sampled_from(["fp16", "q8_0"]),
)
def test_what_llama_cpp_allocates_is_read_back(model, context, kv_dtype):
    rule = cache_rule(model, engine="llama.cpp", kv_dtype=kv_dtype)
    parts = rule.stage(range(model.layers), context)
    cells = -(-context // 256) * 256
    lines = [f"creating non-SWA KV cache, size = {cells} cells\nKV buffer size = {parts.growing / MIB:7.2f} MiB"]
    if parts.windowed:
        windowed = next(rule.kept(group, context) for group in model.layer_groups if group.window)
        lines.append(f"creating SWA KV cache, size = {windowed} cells\nKV buffer size = {parts.windowed / MIB:.2f} MiB")
    found = explain_log(model, "\n".join(lines), max_len=context, kv_dtype=kv_dtype)
    assert found.possible
    assert found.pool_bytes == parts.growing + parts.windowed


@pytest.mark.parametrize("text", ["1," * 100_000, "9" * 200_000, "GPU KV cache size: " + "9" * 200_000, "1_" * 100_000])
def test_a_long_number_is_passed_over_in_linear_time(text):
    # 200,000 characters: a search that starts over at each of them would take many minutes.
    with pytest.raises(ValueError, match="no line says what a cache takes"):
        explain_log(QWEN_1_7B, text)


def test_lines_that_differ_are_named():
    lines = "GPU KV cache size: 175,856 tokens\nGPU KV cache size: 300,000 tokens"
    found = explain_log(QWEN_1_7B, lines, available_gib="18.78")
    assert any("Lines differ in tokens" in sentence for sentence in found.sentences)


def test_memory_that_is_stated_alone_is_not_called_unknown():
    found = explain_log(QWEN_1_7B, "Available KV cache memory: 18.78 GiB")
    assert not any("not known" in sentence for sentence in found.sentences)


def test_a_server_that_takes_sequences_of_nothing_is_refused():
    with pytest.raises(ValueError, match="max_len of a line must be at least 1, got 0"):
        explain_log(QWEN_1_7B, "Maximum concurrency for 0 tokens per request: 4.29x")


PIECES = st.sampled_from(
    """GPU KV cache size: | tokens|# GPU blocks: |, # CPU blocks: |Maximum concurrency for | tokens per request: |x
Available KV cache memory: | GiB| GiB KV cache is needed, which is larger than the available KV cache memory (
estimated maximum model length is |max seq len (|)|stored in KV cache (|Setting attention block size to |%
Padding mamba page size by |max_seq_len=|tensor_parallel_size=|KV Cache is allocated. #tokens: |, K size: | GB, V size:
, KV size: | GB|max_total_num_tokens=|full_layer_tokens=|, swa_layer_tokens=|KV self size = | MiB|K (f16): |V (q8_0):
c^KV (f16): |K^R (f16): |llama_kv_cache: size = | MiB (| cells, | layers, |1/1 seqs)|creating SWA KV cache, size =
 cells|KV buffer size = |n_ctx = |llama_memory_recurrent: size = |Max tokens in paged KV cache: |Allocating | bytes
Allocated | GiB for max tokens in paged KV cache (|primary pool: |tokens per block: | GPU blocks (
 GB), max usable kvcache tokens |memory_size = | MB, n_mem = | |0|0.00|1|16|784|2048|175,856|4.99|18.78|1e9|-1|32
999999999999999""".replace("\n", "|").split("|")
    + ["\n"]
)


@settings(deadline=None, max_examples=400)
@given(
    st.lists(PIECES | st.text(max_size=5), max_size=25).map("".join),
    st.sampled_from([QWEN_1_7B, QWEN_27B, GEMMA_31B, R1, model_preset("falcon-mamba-7b"), model_preset("gpt2")]),
    st.sampled_from([None, 1, 4096]),
    st.sampled_from([None, "0.01", "18.78"]),
)
def test_random_text_is_read_or_refused(text, model, max_len, available_gib):
    try:
        found = explain_log(model, text, max_len=max_len, available_gib=available_gib)
    except ValueError as problem:
        assert str(problem)
    else:
        assert found.sentences
        assert found.possible in (True, False)
        assert found.bytes_per_token >= 0
