"""Reading .gguf files: those by gguf's own writer hold what the models' config.json say; damaged ones are refused."""

import random
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from gguf import MODEL_ARCH_NAMES, GGUFEndian, GGUFWriter
from numpy import zeros

from calc.cli import main
from calc.kv_cache import sequence_memory
from calc.model_config import config_as_read, gguf_header, read_config
from calc.model_config.gguf_file import ARCHITECTURES
from calc.model_config.gguf_header import MAX_KEYS, MAX_LIST, is_gguf
from calc.model_config.rules import FAMILIES
from calc.presets import model_preset

LENGTHS = (0, 1, 127, 4_096, 10_000, 131_072)
SHAPE = dict(
    block_count=2, context_length=4096, embedding_length=64, feed_forward_length=96, head_count=4, vocab_size=160
)


def one_in(period, layers, there, else_=0, *, offset=-1):
    """One value per layer: `there` once per period, at its end unless an offset says otherwise."""
    return [there if (i - offset) % period == 0 else else_ for i in range(layers)]


PATTERN_56B = config_as_read(model_preset("nemotron-h-56b"))["hybrid_override_pattern"]
ATTENTION_LFM2 = (2, 5, 8, 10, 12, 14)
FILES = {
    # The keys that llama.cpp's converter writes for each of these models.
    "llama-3.1-8b": ("llama", dict(block_count=32, embedding_length=4096, head_count=32, head_count_kv=8)),
    "llama-3.2-1b": ("llama", dict(block_count=16, embedding_length=2048, head_count=32, head_count_kv=8, key_length=64,
                                   value_length=64)),
    "mixtral-8x7b": ("llama", dict(block_count=32, embedding_length=4096, head_count=32, head_count_kv=8, expert_count=8)),
    "qwen2.5-72b": ("qwen2", dict(block_count=80, embedding_length=8192, head_count=64, head_count_kv=8)),
    "qwen3-8b": ("qwen3", dict(block_count=36, embedding_length=4096, head_count=32, head_count_kv=8, key_length=128,
                               value_length=128)),
    "qwen3-30b-a3b": ("qwen3moe", dict(block_count=48, embedding_length=2048, head_count=32, head_count_kv=4,
                                       key_length=128, value_length=128, expert_count=128)),
    "gemma-2-9b": ("gemma2", dict(block_count=42, embedding_length=3584, head_count=16, head_count_kv=8, key_length=256,
                                  value_length=256, sliding_window=4096)),
    "gemma-3-27b": ("gemma3", dict(block_count=62, embedding_length=5376, head_count=32, head_count_kv=16, key_length=128,
                                   value_length=128, sliding_window=1024)),
    "gemma-4-26b-a4b": ("gemma4", dict(block_count=30, embedding_length=2816, head_count=16,
                                       head_count_kv=one_in(6, 30, 2, 8), key_length=512, value_length=512,
                                       key_length_swa=256, value_length_swa=256, sliding_window=1024,
                                       sliding_window_pattern=one_in(6, 30, False, True), shared_kv_layers=0)),
    "phi-4": ("phi3", dict(block_count=40, embedding_length=5120, head_count=40, head_count_kv=10, sliding_window=0)),
    "phi-3-medium-128k": ("phi3", dict(block_count=40, embedding_length=5120, head_count=40, head_count_kv=10,
                                       sliding_window=131072)),
    "deepseek-v3": ("deepseek2", dict(block_count=61, embedding_length=7168, head_count=128, head_count_kv=1,
                                      key_length=576, value_length=512, key_length_mla=192, value_length_mla=128,
                                      kv_lora_rank=512, q_lora_rank=1536, rope_dimension_count=64, expert_count=256)),
    "falcon-7b": ("falcon", dict(block_count=32, embedding_length=4544, head_count=71, head_count_kv=1)),
    "falcon-40b": ("falcon", dict(block_count=60, embedding_length=8192, head_count=128, head_count_kv=8)),
    "gpt-oss-20b": ("gpt-oss", dict(block_count=24, embedding_length=2880, head_count=64, head_count_kv=8, key_length=64,
                                    value_length=64, sliding_window=128, expert_count=32)),
    "llama-4-scout": ("llama4", dict(block_count=48, embedding_length=5120, head_count=40, head_count_kv=8,
                                     key_length=128, value_length=128, expert_count=16)),
    "command-r7b": ("cohere2", dict(block_count=32, embedding_length=4096, head_count=32, head_count_kv=8,
                                    sliding_window=4096)),
    "olmo-3.1-32b": ("olmo2", dict(block_count=64, embedding_length=5120, head_count=40, head_count_kv=8,
                                   sliding_window=4096)),
    "olmo-2-32b": ("olmo2", dict(block_count=64, embedding_length=5120, head_count=40, head_count_kv=8)),
    "exaone-4.0-32b": ("exaone4", dict(block_count=64, embedding_length=5120, head_count=40, head_count_kv=8,
                                       key_length=128, value_length=128, sliding_window=4096,
                                       sliding_window_pattern=one_in(4, 64, False, True))),
    "qwen3-next-80b-a3b": ("qwen3next", dict(block_count=48, embedding_length=2048, head_count=16, head_count_kv=2,
                                             key_length=256, value_length=256, ssm_conv_kernel=4, ssm_state_size=128,
                                             ssm_group_count=16, ssm_time_step_rank=32, ssm_inner_size=4096,
                                             full_attention_interval=4, expert_count=512)),
    "qwen3.5-27b": ("qwen35", dict(block_count=65, embedding_length=5120, head_count=24, head_count_kv=4, key_length=256,
                                   value_length=256, ssm_conv_kernel=4, ssm_state_size=128, ssm_group_count=16,
                                   ssm_time_step_rank=48, ssm_inner_size=6144, full_attention_interval=4,
                                   nextn_predict_layers=1)),
    "glm-4.5-air": ("glm4moe", dict(block_count=47, embedding_length=4096, head_count=96, head_count_kv=8, key_length=128,
                                    value_length=128, nextn_predict_layers=1, expert_count=128)),
    "falcon-mamba-7b": ("mamba", dict(block_count=64, context_length=2**20, embedding_length=4096, feed_forward_length=0,
                                      head_count=0, ssm_conv_kernel=4, ssm_inner_size=8192, ssm_state_size=16,
                                      ssm_time_step_rank=256)),
    "mamba-codestral-7b": ("mamba2", dict(block_count=64, context_length=2**20, embedding_length=4096, head_count=0,
                                          feed_forward_length=0, ssm_conv_kernel=4, ssm_inner_size=8192,
                                          ssm_state_size=128, ssm_time_step_rank=128, ssm_group_count=8)),
    "jamba-v0.1": ("jamba", dict(block_count=32, embedding_length=4096, head_count=32,
                                 head_count_kv=one_in(8, 32, 8, offset=4), ssm_conv_kernel=4, ssm_inner_size=8192,
                                 ssm_state_size=16, ssm_time_step_rank=256, expert_count=16)),
    "nemotron-h-56b": ("nemotron_h", dict(block_count=118, embedding_length=8192, head_count=64, key_length=128,
                                          value_length=128, head_count_kv=[8 * (k == "*") for k in PATTERN_56B],
                                          feed_forward_length=[32768 * (k == "-") for k in PATTERN_56B],
                                          ssm_conv_kernel=4, ssm_inner_size=16384, ssm_state_size=256,
                                          ssm_time_step_rank=256, ssm_group_count=8)),
    "lfm2-1.2b": ("lfm2", dict(block_count=16, embedding_length=2048, head_count=32, shortconv_l_cache=3,
                               head_count_kv=[8 * (i in ATTENTION_LFM2) for i in range(16)])),
    "kimi-linear-48b-a3b": ("kimi-linear", dict(block_count=27, embedding_length=2304, head_count=32, key_length=576,
                                                head_count_kv=[int(i + 1 in (4, 8, 12, 16, 20, 24, 27)) for i in range(27)],
                                                key_length_mla=192, value_length_mla=128, kv_lora_rank=512,
                                                rope_dimension_count=64, ssm_conv_kernel=4, kda_head_dim=128)),
    "gpt2-xl": ("gpt2", dict(block_count=48, embedding_length=1600, head_count=25)),
    "gpt-neox-20b": ("gptneox", dict(block_count=44, embedding_length=6144, head_count=64)),
    "minimax-m2.5": ("minimax-m2", dict(block_count=62, embedding_length=3072, head_count=48, head_count_kv=8,
                                        key_length=128, value_length=128, expert_count=256)),
}  # fmt: skip
WITH_WEIGHTS = [name for name in FILES if model_preset(name).weights is not None]


def written(path, architecture, *, tensors=(), endian=GGUFEndian.LITTLE, other=(), **keys):
    """A .gguf file, by gguf's own writer: keys by the names of its add_ methods, others by type and name."""
    writer = GGUFWriter(path, architecture, endianess=endian)
    for name, value in keys.items():
        getattr(writer, f"add_{name}")(value)
    for kind, name, value in other:
        getattr(writer, f"add_{kind}")(name, value)
    for name in tensors:
        writer.add_tensor(name, zeros((2, 32), "float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def written_preset(folder, preset, **more):
    architecture, keys = FILES[preset]
    rest = dict(context_length=4096, feed_forward_length=96, vocab_size=160)
    return written(folder / "model.gguf", architecture, **{**rest, **keys, **more})


def refusal(path):
    with pytest.raises(ValueError) as caught:
        read_config(path)
    assert type(caught.value) is ValueError
    message = str(caught.value)
    assert message and "\n" not in message and len(message) < 500
    return message


def shapes(model):
    return [model.layer_groups[group] for group in model.groups_in_order]


@pytest.mark.parametrize("name", FILES)
def test_a_file_holds_what_the_config_of_the_same_model_holds(name, tmp_path):
    from_file, from_config = read_config(written_preset(tmp_path, name)), model_preset(name)
    assert from_file.layers == from_config.layers
    kinds = [[(group.kind, group.window) for group in shapes(model)] for model in (from_file, from_config)]
    assert kinds[0] == kinds[1]
    for tokens in LENGTHS:
        ours, theirs = (sequence_memory(model, tokens, engine="ideal") for model in (from_file, from_config))
        assert (ours.bytes, ours.floor_bytes) == (theirs.bytes, theirs.floor_bytes)


@pytest.mark.parametrize("name", FILES)
def test_every_number_names_its_key_and_no_key_is_left_unread(name, tmp_path):
    model = read_config(written_preset(tmp_path, name))
    assert model.unread_fields == ()
    for entry in model.provenance:
        assert not entry.source.startswith("class default") or entry.value in ("true", "false")
    (layers,) = [entry.source for entry in model.provenance if entry.fact == "layers"]
    assert layers in (f"{FILES[name][0]}.block_count of the GGUF file", "the length of layers_block_type")
    assert read_config(config_as_read(model)).layer_groups == model.layer_groups


@pytest.mark.parametrize("name", WITH_WEIGHTS)
def test_the_shape_of_a_dense_model_is_that_of_its_config(name, tmp_path):
    expected = model_preset(name).weights
    size = dict(feed_forward_length=expected.intermediate_width, vocab_size=expected.vocabulary)
    biased = name in ("gpt2-xl", "gpt-neox-20b", "qwen2.5-72b")
    tensors = ["token_embd.weight", *(["blk.0.attn_q.bias"] if biased else [])]
    tensors += [] if expected.tied_head else ["output.weight"]
    context = model_preset(name).max_context
    model = read_config(written_preset(tmp_path, name, tensors=tensors, context_length=context, **size))
    assert model.weights == expected


def test_a_tokenizer_is_passed_over_and_counted(tmp_path):
    keys = {key: value for key, value in SHAPE.items() if key != "vocab_size"}
    path = written(tmp_path / "m.gguf", "llama", **keys, tokenizer_model="gpt2", token_list=["a", "bc", "é" * 9] * 4_000,
                   token_scores=[0.5] * 12_000, token_types=[1] * 12_000, token_merges=["a b"] * 20_000)  # fmt: skip
    model = read_config(path)
    assert model.weights.vocabulary == 12_000
    (source,) = [entry.source for entry in model.provenance if entry.fact == "vocabulary"]
    assert source == "length of tokenizer.ggml.tokens of the GGUF file"


def test_a_file_of_the_other_byte_order_is_read(tmp_path):
    paths = [written(tmp_path / f"{e.name}.gguf", "llama", endian=e, token_list=["a"] * 9, **SHAPE) for e in GGUFEndian]
    assert read_config(paths[0]) == read_config(paths[1])


def test_a_model_is_named_by_its_file(tmp_path):
    path = written(tmp_path / "m.gguf", "llama", name="My Model 2 layers", **SHAPE)
    assert read_config(path).name == "My Model 2 layers"
    assert read_config(written(tmp_path / "n.gguf", "llama", **SHAPE)).name == "llama"


def test_a_file_is_known_by_its_first_bytes_or_its_name(tmp_path):
    path = written(tmp_path / "model.bin", "llama", **SHAPE)
    assert is_gguf(path) and read_config(path).layers == 2
    assert not is_gguf(tmp_path) and not is_gguf(tmp_path / "missing.gguf")
    for name, content in (("a.gguf", b'{"model_type": "llama"}'), ("b.GGUF", b""), ("c.gguf", b"GG")):
        (tmp_path / name).write_bytes(content)
        assert "is no GGUF file, damaged or cut off" in refusal(tmp_path / name)
    assert "cannot be read" in refusal(tmp_path / "missing.gguf")


def test_windows_follow_the_pattern_of_the_file_before_the_one_that_llama_cpp_fixes(tmp_path):
    shape = {**SHAPE, "block_count": 6, "head_count_kv": 2, "sliding_window": 512}
    for pattern, expected in (
        (None, [True, False] * 3),
        (3, [True, True, False] * 2),
        (0, [True] * 6),
        ([False, True, True, False, False, True], [False, True, True, False, False, True]),
    ):
        more = {} if pattern is None else {"sliding_window_pattern": pattern}
        model = read_config(written(tmp_path / "m.gguf", "gpt-oss", **shape, **more))
        assert [group.kind == "sliding" for group in shapes(model)] == expected
    for pattern in ([True], [1] * 6):
        path = written(tmp_path / "m.gguf", "gpt-oss", **shape, sliding_window_pattern=pattern)
        assert "gpt-oss.attention.sliding_window_pattern must be 6 times true or false" in refusal(path)
    # Llama 4: a window of 0 switches chunks off; gemma2 has 4,096 where no key says.
    model = read_config(written(tmp_path / "m.gguf", "llama4", **{**shape, "sliding_window": 0}))
    assert {group.kind for group in shapes(model)} == {"full"}
    without = {key: value for key, value in shape.items() if key != "sliding_window"}
    assert {g.window for g in shapes(read_config(written(tmp_path / "m.gguf", "gemma2", **without)))} == {4096, None}


def test_gemma_3n_shares_the_keys_and_values_of_its_first_twenty_layers(tmp_path):
    # google/gemma-3n-E4B: 35 layers, the last 15 without a cache of their own (config.json: num_kv_shared_layers 15)
    keys = {**SHAPE, "block_count": 35, "head_count": 8, "head_count_kv": 2, "key_length": 256, "value_length": 256,
            "sliding_window": 512}  # fmt: skip
    model = read_config(written(tmp_path / "m.gguf", "gemma3n", **keys))
    assert sum(group.kind == "shared" for group in shapes(model)) == 15
    model = read_config(written(tmp_path / "m.gguf", "gemma3n", **keys, shared_kv_layers=10))
    assert sum(group.kind == "shared" for group in shapes(model)) == 10


@pytest.mark.parametrize("architecture", ["rwkv7", "t5", "plamo3", "mimo2", "glm-dsa", "clip", "openelm", "deepseek5"])
def test_an_architecture_without_rules_is_refused_by_name(architecture, tmp_path):
    path = written(tmp_path / "m.gguf", architecture, **SHAPE)
    assert f"unknown GGUF architecture {architecture!r}" in refusal(path)


@pytest.mark.parametrize(
    ("other", "part"),
    [
        (("uint32", "llama.ssm.state_size", 16), "GGUF key llama.ssm.state_size = 16 is not known"),
        (("uint32", "llama.attention.sliding_window", 4096), "llama.attention.sliding_window = 4096 is not known"),
        (("uint32", "llama.attention.indexer.key_length", 128), "llama.attention.indexer.key_length = 128"),
        (("array", "llama.attention.head_count_kv", [2, 0]), "llama.attention.head_count_kv is 0 for some layers"),
        (("array", "llama.attention.head_count_kv", [2, 4]), "llama.attention.head_count_kv must be one number"),
        (("array", "llama.attention.head_count_kv", [2]), "must have an entry for each of 2 layers, got 1"),
        (("uint32", "llama.attention.value_length", 8), "llama.attention.value_length must be the keys' 16, got 8"),
        (("uint32", "llama.attention.head_count_kv", 3), "must divide the 4 query heads"),
        (("uint32", "llama.nextn_predict_layers", 2), "llama.block_count must leave 1 to"),
        (("string", "llama.attention.head_count_kv", "2"), "llama.attention.head_count_kv must be a whole number"),
        (("float32", "llama.attention.key_length", 16.0), "llama.attention.key_length must be a whole number"),
        (("int32", "llama.attention.key_length", -16), "llama.attention.key_length must be a whole number"),
        (("uint64", "llama.attention.key_length", 2**60), "head_dim must be"),
        (("array", "llama.attention.head_count_kv", [2] * (MAX_LIST + 1)), "got a list of 4097"),
        (("string", "general.type", "mmproj"), "its general.type is 'mmproj'"),
        (("uint16", "split.no", 1), "give the first"),
    ],
    ids=range(16),
)
def test_a_key_that_cannot_be_or_is_not_understood_is_refused_by_name(other, part, tmp_path):
    assert part in refusal(written(tmp_path / "m.gguf", "llama", **SHAPE, other=[other]))


@pytest.mark.parametrize("key", ["block_count", "head_count", "embedding_length", "context_length", "vocab_size"])
def test_a_file_without_a_key_that_decides_is_refused(key, tmp_path):
    keys = {name: value for name, value in SHAPE.items() if name != key}
    assert "must have" in refusal(written(tmp_path / "m.gguf", "llama", **keys))


def test_the_first_of_several_files_is_read_and_says_so(tmp_path):
    path = written(tmp_path / "m-00001-of-00003.gguf", "llama", **SHAPE, tensors=["token_embd.weight"],
                   other=[("uint16", "split.no", 0), ("uint16", "split.count", 3)])  # fmt: skip
    model = read_config(path)
    assert "split over 3 files" in model.warnings[0]
    assert not model.weights.tied_head  # the head may be in another file
    later = written(tmp_path / "m-00002-of-00003.gguf", "llama", other=[("uint16", "split.no", 1)])
    assert "file 1 of a split model: give the first" in refusal(later)


def test_traps_of_a_file_raise_a_warning(tmp_path):
    model = read_config(written_preset(tmp_path, "glm-4.5-air"))
    assert any("1 of the file's blocks only predict ahead" in text for text in model.warnings)
    architecture, keys = FILES["deepseek-v3"]
    old = {key: value for key, value in keys.items() if not key.endswith("_mla")}
    model = read_config(written(tmp_path / "old.gguf", architecture, context_length=4096, **old))
    assert any("deepseek2.attention.key_length_mla is absent" in text for text in model.warnings)
    odd = written(tmp_path / "odd.gguf", "llama", **SHAPE, other=[("uint32", "llama.attention.new_thing", 7)])
    assert read_config(odd).unread_fields == ("llama.attention.new_thing",)


def test_the_command_line_reads_a_gguf_file(tmp_path, capsys):
    path = written_preset(tmp_path, "llama-3.1-8b", name="Llama from a file")
    main(["memory", "--config", str(path), "--tokens", "128000"])
    printed = capsys.readouterr().out
    assert printed.startswith("Llama from a file: GQA, 32 layers") and "16,777,216,000 bytes" in printed
    main(["flops", "--config", str(path), "--tokens", "1000"])
    assert "Llama from a file" in capsys.readouterr().out
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")
    with pytest.raises(SystemExit) as stopped:
        main(["memory", "--config", str(tmp_path / "bad.gguf"), "--tokens", "1"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith("error: GGUF file")


def test_architectures_are_those_of_gguf_and_their_types_are_read():
    assert set(ARCHITECTURES) <= set(MODEL_ARCH_NAMES.values())
    for row in ARCHITECTURES.values():
        assert {row["model_type"], row.get("experts"), row.get("windowed")} - {None} <= FAMILIES.keys()


def head(keys, tensors=0, version=3):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys)


def text(value):
    return struct.pack("<Q", len(value)) + value


def a_list(kind, count, content=b""):
    return text(b"llama.x") + struct.pack("<IIQ", 9, kind, count) + content


@pytest.mark.parametrize(
    "content",
    [
        head(0, version=1),
        head(0, version=99),
        head(2**63),
        head(MAX_KEYS + 1),
        head(1, tensors=2**62),
        head(0, tensors=2**62),
        head(1) + text(b"a"),
        head(1) + struct.pack("<Q", 2**64 - 1),
        head(1) + text(b"\xff\xfe") + struct.pack("<II", 4, 7),
        head(1) + text(b"a") + struct.pack("<II", 77, 7),
        head(2) + 2 * (text(b"a") + struct.pack("<II", 4, 7)),
        head(1) + a_list(4, 2**62),
        head(1) + a_list(8, 2**62),
        head(1) + a_list(8, 3, text(b"a") * 2),
        head(1) + a_list(8, 2, text(b"a") + struct.pack("<Q", 2**63)),
        head(1) + a_list(9, 2**40),
        head(1) + text(b"llama.x") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 20_000,
        head(1) + a_list(0, 200_000, b"\0" * 100),
        head(40)
        + b"".join(text(b"llama.%d" % i) + struct.pack("<IIQ", 9, 0, 4_000) + b"\0" * 4_000 for i in range(40)),
        head(0),
    ],
    ids=range(20),
)
def test_a_damaged_or_hostile_file_is_one_clear_error(content, tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    tracemalloc.start()
    message = refusal(path)
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "GGUF file" in message
    assert used < 100_000_000


def mutated(content, draw):
    """The bytes with a few changed, cut, repeated or filled with ones."""
    content = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        where = draw.randrange(len(content))
        match draw.randrange(5):
            case 0:
                content[where] = draw.randrange(256)
            case 1:
                del content[where : where + draw.randint(1, 40)]
            case 2:
                content[where:where] = content[where : where + draw.randint(1, 40)]
            case 3:
                content[where : where + 8] = b"\xff" * draw.randint(1, 8)
            case 4:
                content[where : where + 8] = struct.pack("<Q", draw.choice([0, 1, 2**31, 2**40, 2**63]))
        if not content:
            break
    return bytes(content)


def test_mutated_files_give_a_model_or_one_clear_error(tmp_path):
    draw = random.Random(20261130)
    whole = [written_preset(tmp_path, name, token_list=["a", "b"]).read_bytes() for name in list(FILES)[::4]]
    path = tmp_path / "mutated.gguf"
    for _ in range(1_500):
        path.write_bytes(mutated(draw.choice(whole), draw))
        try:
            model = read_config(path)
        except ValueError as error:
            assert type(error) is ValueError and str(error)
        else:
            assert sequence_memory(model, 1000).bytes >= 0


def test_gguf_is_loaded_with_the_first_gguf_file_only(tmp_path):
    path = written(tmp_path / "m.gguf", "llama", **SHAPE)
    code = (
        "import sys, pathlib\nfrom calc.model_config import read_config\n"
        "read_config({'model_type': 'llama'})\nassert 'gguf' not in sys.modules\n"
        f"read_config(pathlib.Path({str(path)!r}))\nassert 'gguf' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], check=True, timeout=60)


def test_the_reader_of_the_package_has_the_methods_that_are_replaced():
    for method in ("_get", "_build_fields", "_get_field_parts", "_build_tensor_info", "_build_tensors"):
        replaced = gguf_header._header_class()
        assert method in vars(replaced) and method in vars(replaced.__base__)
