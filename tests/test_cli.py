"""The command line: published numbers as JSON and as text, and one clear line for anything typed wrong."""

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from calc.cli import main
from calc.units import MIB

ROOT = Path(__file__).parent.parent
LLAMA = {  # config.json of Llama 3.1 8B
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
TOKENS = ["tokens", "--calls", "100", "--prefix", "2000", "--growth", "300"]
COST = ["cost", "--model", "claude-opus-4-6", "--date", "2026-04-01", *TOKENS[1:]]
VECTOR = [  # facts/caching_and_cost.md, section 6, six test vectors
    *["cost", "--model", "claude-opus-4-6", "--date", "2026-04-01", "--minimum", "0"],
    *["--calls", "50", "--prefix", "4000", "--growth", "500"],
    *["--block", "10", "--summary", "1500", "--instruction", "200"],
]


def finite(constant):
    raise AssertionError(f"{constant} is not JSON")


@pytest.fixture
def typed(capsys):
    """Runs a command in this process; returns what it printed."""

    def run(*arguments):
        main(list(arguments))
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out

    return run


@pytest.fixture
def answer(typed):
    """Runs a command with --json; returns its object."""
    return lambda *arguments: json.loads(typed(*arguments, "--json"), parse_constant=finite)


@pytest.fixture
def refusal(capsys):
    """Runs a command that must fail; returns its one line."""

    def run(*arguments):
        with pytest.raises(SystemExit) as caught:
            main(list(arguments))
        printed = capsys.readouterr()
        assert caught.value.code == 2
        assert printed.out == ""
        assert printed.err.count("\n") == 1
        assert printed.err.endswith("\n")
        assert printed.err.startswith("error: ")
        assert "Traceback" not in printed.err
        assert len(printed.err) < 1000
        return printed.err

    return run


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    return str(path)


def test_tokens_gives_the_published_numbers(answer):
    found = answer(*TOKENS, "--block", "20", "--summary", "1000")
    assert found["submitted_tokens"] == 1_685_000
    assert found["compacted_tokens"] == 565_000
    assert found["last_call_tokens"] == 31_700


def test_tokens_counts_what_the_compaction_calls_read(answer):
    run = ["tokens", "--calls", "50", "--prefix", "4000", "--growth", "500"]
    found = answer(*run, "--block", "10", "--summary", "1500", "--instruction", "200")
    assert (found["submitted_tokens"], found["compacted_tokens"]) == (812_500, 372_500)
    assert (found["compaction_calls"], found["compaction_read_tokens"]) == (4, 41_300)
    assert found["compaction_written_tokens"] == 4 * 1500


def test_tokens_without_a_block_compacts_nothing(answer):
    assert "compacted_tokens" not in answer(*TOKENS)


def test_numbers_may_be_typed_with_separators(answer):
    assert answer("tokens", "--calls", "100", "--prefix", "2,000", "--growth", " 300 ")["submitted_tokens"] == 1_685_000
    assert answer("tokens", "--calls", "1_000", "--prefix", "1,000,000", "--growth", "0")["submitted_tokens"] == 10**9


@pytest.mark.parametrize("typed", ["1,5", "1,,000", "12,34", "_1", "1_", "1_00", "1.000,5", "1 000", "\u0663"])
def test_a_separator_out_of_place_is_refused(refusal, typed):
    assert repr(typed) in refusal("tokens", "--calls", typed, "--prefix", "1", "--growth", "1")


def test_the_model_s_own_layout_is_counted_by_the_rule_that_was_asked_for(answer, tmp_path):
    # A window of 4,096 keeps 4,095 tokens in transformers: 32 layers x 4,095 x 8 heads x 256 numbers x 2 bytes.
    file = tmp_path / "config.json"
    file.write_text('{"model_type": "mistral"}')
    found = answer("memory", "--config", str(file), "--tokens", "9000", "--engine", "transformers")
    assert found["bytes"] == found["layout_bytes"]["GQA-8"] == 32 * 4095 * 8 * 256 * 2


def test_memory_gives_the_published_bytes(answer, config):
    found = answer("memory", "--config", config, "--tokens", "128000")
    assert found["bytes"] == found["bytes_per_rank"] == 16_777_216_000
    assert found["floor_bytes"] == 0
    assert found["slope_bytes_per_token"] == 131_072
    assert found["layout_bytes"]["MHA"] == 67_108_864_000
    assert found["layout_bytes"]["MQA"] == 16_777_216_000 // 8
    assert found["layout"] == "GQA"
    assert found["unread_fields"] == []


def test_memory_in_fp8_over_eight_ranks_is_half_the_bytes_and_an_eighth_of_it_each(answer, config):
    found = answer("memory", "--config", config, "--tokens", "128000", "--kv-dtype", "fp8", "--tensor-parallel", "8")
    assert found["bytes"] == 16_777_216_000 // 2
    assert found["bytes_per_rank"] == 16_777_216_000 // 2 // 8
    assert found["slope_bytes_per_token"] == 65_536


def test_memory_counts_the_copies_that_more_ranks_than_heads_hold(answer, config):
    found = answer("memory", "--config", config, "--tokens", "1000", "--tensor-parallel", "16")
    assert found["bytes_per_rank"] == 32 * 1000 * (128 + 128) * 2
    assert found["bytes"] == 16 * found["bytes_per_rank"]


def test_memory_names_the_rule_the_pages_and_the_fullest_stage(answer):
    gemma = ["memory", "--model", "gemma-4-31b", "--tokens", "26800", "--engine", "vllm"]
    found = answer(*gemma)  # alvarobartt/hf-mem #61: 6 groups of 10 layers, pages of 262,144 bytes
    assert found["engine_version"] == "vLLM 0.32.0"
    assert [(g["kind"], g["layers"], g["page_bytes"]) for g in found["page_groups"]] == [
        *[("sliding", 10, 262_144)] * 5,
        ("full", 10, 262_144),
    ]
    assert sum(g["pages"] for g in found["page_groups"]) * 2_621_440 == found["bytes"]
    staged = answer("memory", "--model", "deepseek-v3", "--tokens", "1000", "--pipeline-parallel", "4")
    assert [stage["layers"] for stage in staged["stages"]] == [15, 15, 16, 15]
    assert staged["worst_stage"] == 3
    assert staged["bytes_per_rank"] == 16 * 1000 * 1152


def test_memory_takes_keys_and_values_in_formats_of_their_own_and_settings_of_the_engine(answer):
    base = ["memory", "--model", "llama-3.1-8b", "--tokens", "6656", "--engine", "llama.cpp", "--kv-dtype", "q4_0"]
    found = answer(*base, "--value-dtype", "q1_0", "--set", "slots=2", "--set", "unified=true")
    assert found["bytes"] == 32 * 8 * 6656 * (128 // 32 * 18 + 18)
    windowed = ["memory", "--model", "gemma-3-4b", "--tokens", "131072", "--engine", "llama.cpp"]
    assert answer(*windowed, "--set", "full_windows=true")["bytes"] == 17_408 * MIB  # ollama #17037


def test_groups_that_attend_apart_share_out_the_sequences(answer):
    found = answer("memory", "--model", "deepseek-v3", "--tokens", "1000", "--tensor-parallel", "8",
                   "--data-parallel", "8", "--sequences", "20")  # fmt: skip
    assert found["replication"] == 1
    assert found["all_sequences_bytes"] == 20 * 1000 * 70_272
    assert found["all_sequences_bytes_per_rank"] == 3 * 1000 * 70_272  # 20 over 8 groups: 3 on the fullest


def test_a_comparison_counts_with_the_formats_the_split_and_the_encoder_of_the_question(answer):
    base = ["memory", "--model", "llama-3.1-8b", "--tokens", "5000", "--compare", "MHA"]
    apart = answer(*base, "--kv-dtype", "q4_0", "--value-dtype", "q8_0")
    assert apart["bytes"] == apart["compared"][0]["bytes"] == 5000 * 32 * 8 * (128 // 32) * (18 + 34)
    assert apart["compared"][1]["bytes"] == apart["layout_bytes"]["MHA"]
    split = answer(*base, "--tensor-parallel", "16", "--decode-context-parallel", "2")
    assert split["bytes_per_rank"] == split["compared"][0]["bytes_per_rank"] == 2500 * 16_384


def test_five_mechanisms_stand_beside_each_other(answer):
    found = answer("memory", "--model", "llama-3.1-8b", "--tokens", "128000", "--mechanisms")["mechanisms"]
    kept = {one["name"]: one["kept_bytes"] for one in found}
    assert kept["full"] == 128_000 * 4096
    assert kept["sliding"] == 4096 * 4096
    assert kept["linear"] == 32 * 128 * 128 * 4
    assert kept["compressed"] == 128_000 * (4 * 128 + 64) * 2
    assert all(one["lost"] for one in found)


def test_a_row_that_the_format_cannot_hold_says_so_and_leaves_the_others(answer):
    found = answer("memory", "--model", "deepseek-v3", "--tokens", "1000", "--kv-dtype", "fp8_ds_mla",
                   "--compare", "qwen3-32b")  # fmt: skip
    assert [row["bytes"] for row in found["compared"]] == [1000 * 61 * 656, None]
    assert "KV format fp8_ds_mla is for latent rows only" in found["compared"][1]["unknown"][0]


@pytest.mark.parametrize("number", ["16.0", "1.6e1"])
def test_a_setting_without_a_fraction_is_whole(answer, number):
    found = answer(
        "memory", "--model", "llama-3.1-8b", "--tokens", "17", "--engine", "vllm", "--set", f"block_tokens={number}"
    )
    assert found["bytes"] == 32 * 131_072


def test_memory_sets_layouts_and_other_models_beside_the_model(answer):
    found = answer("memory", "--model", "llama-3.1-8b", "--tokens", "128000", "--compare", "MHA", "--compare", "MLA",
                   "--compare", "llama-2-7b")  # fmt: skip
    assert [row["name"] for row in found["compared"]] == ["Llama 3.1 8B", "as MHA *", "as MLA *", "Llama 2 7B"]
    assert [row["bytes"] for row in found["compared"]] == [
        128_000 * per_token for per_token in (131_072, 524_288, 32 * 576 * 2, 524_288)
    ]
    # MHA: 24 more KV heads of 128 for keys and for values, from 4,096 channels, in 32 layers.
    assert found["compared"][1]["parameters_change"] == 32 * 2 * 24 * 128 * 4096
    assert found["compared"][1]["attention_intensity"] == 1.0


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["--compare", "MHB"], ["layout or model", "'MHB'", "MHA"]),
        (
            [
                word
                for name in ("MHA", "MQA", "MLA", "GQA-4", "gpt2", "phi-4", "qwen3-8b")
                for word in ("--compare", name)
            ],
            ["1 to 6", "8"],
        ),
        (["--compare", "MLA", "--window", "0"], ["window", "whole number from 1", "0"]),
        (["--set", "block_tokens=abc"], ["block_tokens", "whole number", "'abc'"]),
        (["--set", "block_tokens=" + "[" * 100_000], ["block_tokens", "whole number from 1 to 1,000,000"]),
        (["--set", "block_tokens=1000000000"], ["block_tokens", "1,000,000", "1,000,000,000"]),
        (["--pipeline-parallel", "1001"], ["pipeline_parallel", "from 1 to 1,000", "1,001"]),
        (["--set", "blocks=1"], ["--set", "block_tokens", "'blocks=1'"]),
        (["--set", "block_tokens"], ["--set", "NAME=VALUE"]),
        (["--set", "prefix_caching=3"], ["prefix_caching", "true or false", "'3'"]),
        (["--set", "state_dtype=fp7"], ["state_dtype", "'fp7'"]),
        (["--kv-dtype", "q8_0"], ["kv_dtype", "vllm", "q8_0"]),
        (["--tensor-parallel", "3"], ["tensor_parallel", "8 KV heads", "3"]),
    ],
)
def test_what_an_engine_cannot_do_is_refused_in_one_line(refusal, typed, words):
    message = refusal("memory", "--model", "llama-3.1-8b", "--tokens", "10", "--engine", "vllm", *typed)
    for word in words:
        assert word in message


def test_settings_of_an_engine_are_listed(typed):
    listed = typed("memory", "--model", "llama-3.1-8b", "--tokens", "1", "--engine", "sglang", "--set", "help")
    assert listed.splitlines() == [
        "page_tokens (default: 1), the same as page_size",
        "swa_full_tokens_ratio (default: 0.8)",
        "state_slots (default: 3)",
    ]


def test_a_preset_and_its_config_give_one_answer(answer, config):
    for command in ("memory", "flops"):
        preset = answer(command, "--model", "llama-3.1-8b", "--tokens", "32768")
        read = answer(command, "--config", config, "--tokens", "32768")
        assert {**preset, "model": ""} == {**read, "model": ""}


def test_flops_adds_up_from_the_shapes_of_the_model(answer, config):
    n = 32_768
    attention_widths = 4096 * (32 * 128) + 2 * 4096 * (8 * 128) + (32 * 128) * 4096
    layers = 32 * (attention_widths + 3 * 4096 * 14_336)
    head = 4096 * 128_256
    found = answer("flops", "--config", config, "--tokens", str(n))
    assert found["prefill_attention_flops"] == 2 * 32 * 32 * 256 * (n * (n + 1) // 2)
    assert found["prefill_flops"] == found["prefill_attention_flops"] + 2 * layers * n + 2 * head
    assert found["decode_flops_per_token"] == 2 * 32 * 32 * 256 * (n + 1) + 2 * layers + 2 * head
    assert found["counter_prefill_flops"] == 2 * 32 * 32 * 256 * n * n + 2 * layers * n + 2 * head * n
    assert found["decode_cache_read_bytes"] == 131_072 * (n + 1)


def test_flops_on_a_cached_prefix_are_the_difference_of_two_prefills(answer, config):
    whole = answer("flops", "--config", config, "--tokens", "1500")
    prefix = answer("flops", "--config", config, "--tokens", "1000")
    rest = answer("flops", "--config", config, "--tokens", "500", "--cached", "1000")
    assert whole["prefill_attention_flops"] == prefix["prefill_attention_flops"] + rest["prefill_attention_flops"]
    assert rest["decode_flops_per_token"] == whole["decode_flops_per_token"]


def test_cost_gives_the_published_test_vectors(answer):
    found = answer(*VECTOR)
    assert {policy: found[policy]["usd"] for policy in ("plain", "cached", "compacted", "both")} == pytest.approx(
        {"plain": 4.0625, "cached": 0.570125, "compacted": 2.219, "both": 0.559875}, rel=1e-12
    )
    both = found["both"]["tokens"]
    assert (both["cache_read"], both["cache_write_5m"], both["output"]) == (378_500, 35_300, 6_000)
    assert found["compacted"]["submitted_tokens"] == 372_500 + 41_300
    assert found["plain"]["submitted_tokens"] == found["cached"]["submitted_tokens"] == 812_500
    for policy in ("plain", "cached", "compacted", "both"):
        assert sum(found[policy]["usd_by_class"].values()) == pytest.approx(found[policy]["usd"], rel=1e-12)
        assert found[policy]["refused_call"] is None


def test_cost_names_its_card(answer):
    card = answer(*COST)["card"]
    assert (card["model"], card["provider"], card["date"]) == ("claude-opus-4-6", "anthropic", "2026-04-01")
    assert card["minimum_tokens"] == 4096
    assert card["usd_per_mtok"][0]["cache_read"] == 0.5
    assert "genai-prices" in card["source"]


def test_cost_of_writes_that_live_an_hour_is_the_other_price(answer):
    found = answer(*VECTOR, "--lifetime", "1h")["cached"]
    assert found["tokens"]["cache_write_1h"] == 28_500
    assert found["usd"] == pytest.approx((784_000 * 0.5 + 28_500 * 10) / 1e6, rel=1e-12)


def test_cost_at_prices_typed_by_hand(answer):
    prices = ["--input-price", "1", "--read-price", "0.1", "--write-price", "1.25", "--output-price", "5"]
    found = answer(*VECTOR, *prices)
    assert found["plain"]["usd"] == pytest.approx(0.8125, rel=1e-12)
    assert found["cached"]["usd"] == pytest.approx((784_000 * 0.1 + 28_500 * 1.25) / 1e6, rel=1e-12)
    assert found["compacted"]["usd"] == pytest.approx((413_800 * 1 + 6_000 * 5) / 1e6, rel=1e-12)
    assert "typed by hand" in found["card"]["source"]


def test_cost_stops_at_the_window_of_the_card(answer, typed):
    run = "cost --model gpt-4o --date 2026-11-30 --calls 10 --prefix 100000 --growth 10000".split()
    # The window is 128,000 tokens: prompts of 100k, 110k, 120k fit, 130k does not.
    assert answer(*run)["plain"]["refused_call"] == 4
    assert answer(*run)["plain"]["submitted_tokens"] == 330_000
    assert "call 4 does not fit the window of 128,000 tokens" in typed(*run)


def test_cost_without_a_date_is_priced_today(answer):
    before = datetime.datetime.now(datetime.UTC).date().isoformat()
    found = answer(*[part for part in COST if part not in ("--date", "2026-04-01")])["card"]["date"]
    assert before <= found <= datetime.datetime.now(datetime.UTC).date().isoformat()


def test_select_gives_the_published_choice(answer):
    found = answer("select", "--item", "6:8", "--item", "3:5", "--item", "3:5", "--budget", "6")
    assert (found["selected"], found["value"], found["size"]) == ([1, 2], 10, 6)
    assert found["greedy_value"] == 8


def test_select_carries_pinned_items_first(answer):
    found = answer("select", "--item", "3:5", "--item", "3:4", "--pin", "3", "--budget", "6")
    assert (found["selected"], found["value"]) == ([0, 2], 5)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([*TOKENS, "--block", "20", "--summary", "1000"], ["1,685,000 tokens", "31,700 tokens", "565,000 tokens"]),
        (
            ["memory", "--model", "llama-3.1-8b", "--tokens", "128000"],
            ["15.625 GiB", "62.5 GiB", "131,072 bytes", "GQA"],
        ),
        (["flops", "--model", "llama-3.1-8b", "--tokens", "32768"], ["PFLOP", "GiB of bf16 cache", "32,768 tokens"]),
        (VECTOR, ["$4.06", "$2.22", "$0.57", "$0.56", "USD per million tokens", "anthropic", "2026-04-01", "812,500"]),
        (
            ["select", "--item", "6:8", "--item", "3:5", "--item", "3:5", "--budget", "6"],
            ["1, 2", "Value 10", "6 tokens"],
        ),
    ],
    ids=["tokens", "memory", "flops", "cost", "select"],
)
def test_the_text_for_people_holds_the_numbers_with_their_units(typed, arguments, parts):
    text = typed(*arguments)
    for part in parts:
        assert part in text
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["-h"], *([c, "-h"] for c in ("tokens", "memory", "explain-log", "flops", "cost", "select"))],
)
def test_help_is_on_standard_output(typed, arguments):
    assert "Usage: python -m calc" in typed(*arguments)


def test_without_a_command_the_commands_are_listed(typed):
    text = typed()
    for command in ("tokens", "memory", "explain-log", "flops", "cost", "select"):
        assert f"\n  {command} " in text


MEMORY = ["memory", "--model", "llama-3.1-8b", "--tokens", "10"]
EXPLAIN = ["explain-log", "--model", "llama-3.1-8b", "--line", "GPU KV cache size: 16 tokens"]
FLOPS = ["flops", "--model", "llama-3.1-8b", "--tokens", "10"]
SELECT = ["select", "--item", "3:5", "--budget", "6"]
WHOLE_OPTIONS = [
    *((TOKENS, option) for option in ("calls", "prefix", "growth", "block", "summary", "instruction")),
    *(
        (COST, option)
        for option in ("calls", "prefix", "growth", "output", "block", "summary", "instruction", "minimum")
    ),
    *(
        (MEMORY, option)
        for option in (
            "tokens",
            "tensor-parallel",
            "pipeline-parallel",
            "data-parallel",
            "decode-context-parallel",
            "sequences",
        )
    ),
    *((EXPLAIN, option) for option in ("max-len", "tensor-parallel", "block-tokens")),
    *((FLOPS, option) for option in ("tokens", "cached")),
    (SELECT, "budget"),
]


def command_or_option(value):
    return value if isinstance(value, str) else value[0]


PRICE_OPTIONS = ["input-price", "read-price", "write-price", "write-1h-price", "output-price"]


def names(option):
    """How a message may name an option: as it is typed, or as the formulas name the quantity."""
    return option, option.replace("-", "_")


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1.5", "1e3", "x", "", "0x10", "1 000", "٣.٥", "9" * 5000])
@pytest.mark.parametrize(("command", "option"), WHOLE_OPTIONS, ids=command_or_option)
def test_what_is_not_a_whole_number_is_named(refusal, command, option, value):
    message = refusal(*command, f"--{option}", value)
    assert f"--{option}" in message
    assert "must be a whole number" in message
    assert repr(value[:60]) in message


@pytest.mark.parametrize("value", ["-1", str(10**18), str(10**30)])
@pytest.mark.parametrize(("command", "option"), WHOLE_OPTIONS, ids=command_or_option)
def test_a_count_out_of_range_is_named(refusal, command, option, value):
    message = refusal(*command, f"--{option}", value)
    assert any(name in message for name in names(option))
    assert "must be a whole number" in message
    assert f"got {int(value):,}" in message or "got a number of more than 24 digits" in message


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (TOKENS, "calls"),
        (TOKENS, "block"),
        (COST, "calls"),
        (COST, "block"),
        (MEMORY, "tensor-parallel"),
        (FLOPS, "tokens"),
    ],
    ids=command_or_option,
)
def test_a_zero_that_makes_no_sense_is_named(refusal, command, option):
    message = refusal(*command, f"--{option}", "0")
    assert any(name in message for name in names(option))
    assert "got 0" in message


@pytest.mark.parametrize("value", ["-1", "nan", "inf", "-inf", "x", "", "1,5", "1e400"])
@pytest.mark.parametrize("option", PRICE_OPTIONS)
def test_a_bad_price_is_named(refusal, option, value):
    message = refusal(*COST, f"--{option}", value)
    shown = "inf" if value == "1e400" else value
    assert "price" in message
    assert f"got {shown}" in message or repr(value) in message


def test_a_price_too_large_for_a_sum_is_refused(refusal):
    message = refusal(*COST, "--input-price", "1e308")
    assert "price" in message


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (
            ["cost", "--model", "claude-opus-4-6-foo", *TOKENS[1:]],
            ["unknown model", "'claude-opus-4-6-foo'", "claude-opus-4-6"],
        ),
        (["cost", "--model", "", *TOKENS[1:]], ["unknown model", "''"]),
        ([*COST, "--provider", "nobody"], ["unknown provider 'nobody'"]),
        ([*COST, "--provider", "openai"], ["unknown model at openai 'claude-opus-4-6'"]),
        ([*COST, "--lifetime", "2h"], ["unknown lifetime '2h'", "1h, 5m"]),
        ([*COST, "--date", "2026-02-30"], ["date", "YYYY-MM-DD", "'2026-02-30'"]),
        ([*COST, "--date", "yesterday"], ["date", "'yesterday'"]),
        ([*COST, "--date", ""], ["date", "''"]),
        ([*COST, "--date", "1999-12-31"], ["date", "1999-12-31"]),
        (["memory", "--model", "llama-3.1-9b", "--tokens", "10"], ["unknown model 'llama-3.1-9b'", "llama-3.1-8b"]),
        ([*MEMORY, "--kv-dtype", "fp23"], ["unknown KV format 'fp23'", "fp32"]),
        ([*MEMORY, "--engine", "vlm"], ["unknown engine 'vlm'"]),
        ([*MEMORY, "--tensor-parallel", "3"], ["tensor_parallel", "8 KV heads", "got 3"]),
        (["memory", "--tokens", "10"], ["--config", "--model"]),
        ([*MEMORY, "--config", "config.json"], ["--config", "--model"]),
        (["memory", "--model", "llama-3.1-8b"], ["Missing option '--tokens'"]),
        (["tokens", "--calls", "1", "--prefix", "1"], ["Missing option '--growth'"]),
        (["cost", *TOKENS[1:]], ["Missing option '--model'"]),
        (["select", "--budget", "6"], ["Missing option '--item'"]),
        (["select", "--item", "3:5"], ["Missing option '--budget'"]),
        (["token"], ["token"]),
        (["bogus", "--json"], ["bogus"]),
        ([*TOKENS, "--bogus", "1"], ["--bogus"]),
        ([*TOKENS, "extra"], ["extra"]),
        ([*TOKENS, "--block"], ["--block"]),
        ([*SELECT, "--item", "nonsense"], ["--item", "SIZE:VALUE", "'nonsense'"]),
        ([*SELECT, "--item", ""], ["--item", "''"]),
        ([*SELECT, "--item", "3"], ["--item", "'3'"]),
        ([*SELECT, "--item", "3:"], ["--item", "'3:'"]),
        ([*SELECT, "--item", ":5"], ["--item"]),
        ([*SELECT, "--item", "x:5"], ["--item", "'x"]),
        ([*SELECT, "--item", "1.5:5"], ["--item", "'1.5"]),
        ([*SELECT, "--item", "3:x"], ["--item", "'3:x'"]),
        ([*SELECT, "--item", "3:5:7"], ["--item", "'3:5:7'"]),
        ([*SELECT, "--item", "-3:5"], ["size", "got -3"]),
        ([*SELECT, "--item", "3:-5"], ["value", "got -5"]),
        ([*SELECT, "--item", "3:nan"], ["value", "got nan"]),
        ([*SELECT, "--item", "3:inf"], ["value", "got inf"]),
        ([*SELECT, "--item", "3:1e400"], ["value", "got inf"]),
        ([*SELECT, "--item", f"{10**18}:5"], ["size", "got 1,000,000,000,000,000,000"]),
        ([*SELECT, "--item", "1:1e308", "--item", "1:1e308"], ["value"]),
        ([*SELECT, "--pin", "x"], ["--pin", "'x'"]),
        ([*SELECT, "--pin", "-1"], ["size", "got -1"]),
        ([*SELECT, "--pin", "7"], ["pinned", "7", "6"]),
    ],
    ids=lambda value: " ".join(value)[-40:],
)
def test_bad_input_ends_in_one_line_that_names_it(refusal, arguments, parts):
    message = refusal(*arguments)
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"", ["nothing"]),
        (b" \n\t", ["nothing"]),
        (b'{"num_hidden_layers": 32', ["not valid JSON", "line 1"]),
        (json.dumps(LLAMA)[:100].encode(), ["not valid JSON"]),
        (b"[" * 100_000, ["nested too deeply"]),
        (b'{"a":' * 50_000, ["nested too deeply"]),
        (b'{"num_hidden_layers": NaN}', ["finite", "NaN"]),
        (b'{"num_hidden_layers": -Infinity}', ["finite", "-Infinity"]),
        (b'{"num_hidden_layers": 1e999}', ["finite", "1e999"]),
        (b'{"num_hidden_layers": ' + b"9" * 5000 + b"}", ["digits", "5,000"]),
        (b'{"num_hidden_layers": 32, "num_hidden_layers": 16}', ["num_hidden_layers", "twice"]),
        (b'{"a": {"b": 1, "b": 2}}', ["'b'", "twice"]),
        (b" " * 1_000_001, ["1,000,000 bytes"]),
        (json.dumps({**LLAMA, "x": "y" * 1_000_000}).encode(), ["1,000,000 bytes"]),
        (b"[1, 2]", ["JSON object", "a list of 2"]),
        (b"null", ["JSON object", "null"]),
        (b'"llama"', ["JSON object", "'llama'"]),
        (b"32", ["JSON object", "32"]),
        (b"{}", []),
        (b"\xff\xfe{\x00}\x00", ["UTF-8"]),
        (b"\x00" * 10, ["not valid JSON"]),
        (b"import json\n", ["not valid JSON"]),
        (json.dumps({**LLAMA, "model_type": "no-such-family"}).encode(), ["model_type", "no-such-family"]),
        (json.dumps({**LLAMA, "num_hidden_layers": -1}).encode(), ["layers", "-1"]),
        (json.dumps({**LLAMA, "num_hidden_layers": 10**18}).encode(), ["layers", str(10**18)]),
        (json.dumps({**LLAMA, "num_hidden_layers": 1.5}).encode(), ["layers", "1.5"]),
        (json.dumps({**LLAMA, "num_hidden_layers": "32"}).encode(), ["layers", "32"]),
        (json.dumps({**LLAMA, "num_key_value_heads": 5}).encode(), ["5"]),
    ],
    ids=lambda value: ascii(value[-40:]) if isinstance(value, bytes) else "-",
)
@pytest.mark.parametrize("command", ["memory", "flops"])
def test_a_bad_config_file_ends_in_one_line_that_says_why(refusal, tmp_path, command, content, parts):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    message = refusal(command, "--config", str(path), "--tokens", "10").replace(",", "")
    for part in parts:
        assert part.replace(",", "") in message


def test_a_missing_file_a_folder_and_a_device_are_named(refusal, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("{}")
    assert "missing.json" in refusal("memory", "--config", "missing.json", "--tokens", "10")
    assert "file/config.json" in refusal("memory", "--config", "file/config.json", "--tokens", "10")
    assert "folder" in refusal("memory", "--config", "folder", "--tokens", "10")
    assert "/dev/null" in refusal("memory", "--config", "/dev/null", "--tokens", "10")
    assert "config" in refusal("memory", "--config", "", "--tokens", "10")


def test_a_pipe_is_refused_without_waiting_for_its_writer(refusal, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "pipe" in refusal("memory", "--config", str(tmp_path / "pipe"), "--tokens", "10")


def shell(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "calc", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_process_of_its_own_prints_json_and_exits_with_0():
    done = shell(*TOKENS, "--block", "20", "--summary", "1000", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["compacted_tokens"] == 565_000


def test_a_process_of_its_own_prices_a_run():
    done = shell(*VECTOR, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["both"]["usd"] == pytest.approx(0.559875, rel=1e-12)


def test_a_process_of_its_own_exits_with_2_and_one_line():
    done = shell("memory", "--config", "no/such/config.json", "--tokens", "10")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert "no/such/config.json" in done.stderr
    assert done.stderr.count("\n") == 1
