"""python -m calc explain-log: where the lines come from, what is printed, and what is refused."""

import io
import json
import sys

import pytest

from calc.cli import main

LINE = "INFO [kv_cache_utils.py:864] GPU KV cache size: 175,856 tokens"
QWEN = ["explain-log", "--model", "qwen3-1.7b"]
KNOWN = ["--available-gib", "18.78", "--tensor-parallel", "1", "--kv-dtype", "bf16", "--max-len", "40960"]


def printed(capsys, *arguments):
    main([*QWEN, *arguments])
    out, err = capsys.readouterr()
    assert err == ""
    return out


def refusal(capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        main(["explain-log", *arguments])
    out, err = capsys.readouterr()
    assert (caught.value.code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: ")
    assert len(err) < 1000
    return err


def test_the_keys_that_scripts_rely_on(capsys):
    found = json.loads(printed(capsys, "--line", LINE, *KNOWN, "--json"))
    assert found["bytes_per_token"] == 114_688  # 28 layers x 8 heads x 128 x 2 planes x 2 bytes
    assert found["possible"] is True
    assert found["rule"].startswith("vLLM 0.21 and newer")
    assert [at["max_len"] for at in found["tokens_at"]] == [20_480, 40_960, 81_920]


def test_people_get_sentences(capsys):
    text = printed(capsys, "--line", LINE, *KNOWN, "--other-max-len", "8192")
    for part in ("possible", "114,688", "vLLM until 0.20", "18.783 GiB", "At a max_len of 8,192  175,856 tokens"):
        assert part in text


def test_lines_come_from_options_files_and_standard_input(capsys, tmp_path, monkeypatch):
    file = tmp_path / "server.log"
    file.write_bytes(f"\xff\n{LINE}\n".encode("latin-1"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LINE.encode())))
    memory = "Available KV cache memory: 18.78 GiB"
    answers = [
        json.loads(printed(capsys, *source, "--line", memory, "--json"))
        for source in (["--line", LINE], ["--file", str(file)], ["--file", "-"])
    ]
    assert answers[0] == answers[1] == answers[2]
    assert answers[0]["bytes_per_token"] == 114_688


def test_a_config_file_names_the_model(capsys, tmp_path):
    file = tmp_path / "config.json"
    file.write_text('{"model_type": "qwen3", "num_hidden_layers": 28, "num_key_value_heads": 8, "head_dim": 128}')
    main(["explain-log", "--config", str(file), "--line", LINE, *KNOWN, "--json"])
    assert json.loads(capsys.readouterr().out)["bytes_per_token"] == 114_688


def test_a_line_that_cannot_be_is_an_answer(capsys):
    found = json.loads(printed(capsys, "--line", LINE, "--available-gib", "18.78", "--kv-dtype", "fp8", "--json"))
    assert found["possible"] is False
    assert found["guesses"]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([*QWEN[1:]], "--line or --file"),
        (["--line", LINE], "--config FILE and --model NAME"),
        ([*QWEN[1:], "--line", "hello"], "no line says what a cache takes"),
        ([*QWEN[1:], "--file", "/no/such/file"], "/no/such/file cannot be read: No such file"),
        ([*QWEN[1:], "--file", "/"], "/ cannot be read"),
        ([*QWEN[1:], "--line", LINE, "--kv-dtype", "bf17"], "unknown KV format 'bf17'"),
        ([*QWEN[1:], "--line", LINE, "--available-gib", "x"], "available_gib must be a number"),
        ([*QWEN[1:], "--line", LINE, "--swap-gib", "0"], "swap_gib must be a number"),
        ([*QWEN[1:], "--line", LINE, "--slots", "2"], "got slots"),
        (["--model", "qwen3.5-27b", "--line", "GPU KV cache size: 302,921 tokens"], "--max-len"),
    ],
)
def test_bad_input_ends_in_one_line(capsys, arguments, part):
    assert part in refusal(capsys, *arguments)
