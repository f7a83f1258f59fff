"""Every page run in process: the published numbers stand on it, and bad input gives one message."""

import datetime
import json

import pytest
from streamlit.testing.v1 import AppTest

from calc.engines import engine_version
from calc.formats import bytes_text
from calc.units import GIB

PAGES = ("views/trade_off.py", "views/memory.py", "views/compute.py", "views/formulas.py")
LINK = {"card": "anthropic/claude-opus-4-6", "date": "2026-11-30", "output": "0"}
SECTIONS = {
    "views/trade_off.py": (
        "open_prices", "open_own_config", "open_calls", "open_classes", "open_served", "open_card", "open_formulas",
        "open_assumed",
    ),
    "views/memory.py": ("open_ranks", "open_ladder", "open_facts", "open_memory_formula", "open_memory_assumed"),
    "views/compute.py": (
        "open_format", "open_decode", "open_counter", "open_intensity", "open_compute_formulas", "open_compute_assumed",
    ),
    "views/formulas.py": ("open_scoreboard", "open_glossary", "open_parameters"),
}  # fmt: skip


def opened(page: str = PAGES[0], **link: str) -> AppTest:
    app = AppTest.from_file("../app.py", default_timeout=120)
    for name, value in {**LINK, **link}.items():
        app.query_params[name] = value
    app.run()
    if page != PAGES[0]:
        app.switch_page(page).run()
    assert not app.exception
    return app


def words(app: AppTest) -> str:
    """All text of a page."""
    elements = [*app.title, *app.markdown, *app.caption, *app.metric, *app.error, *app.warning, *app.latex]
    return " ".join(str(element.value) for element in elements).replace("\\", "")


def link_of(app: AppTest) -> dict[str, str]:
    """The page's address; AppTest holds a value as text or as a list of one."""
    return {name: value if isinstance(value, str) else value[0] for name, value in app.query_params.items()}


def metrics(app: AppTest) -> dict[str, str]:
    return {metric.label: metric.value.replace("\\", "") for metric in app.metric}


@pytest.mark.parametrize("view", PAGES)
def test_a_page_opens_with_its_answer_and_no_message(view):
    app = opened(view)
    assert app.title[0].value
    assert app.markdown[0].value.startswith("##### ")
    assert not app.error
    assert not app.warning


@pytest.mark.parametrize("view", PAGES)
def test_every_section_of_a_page_opens(view):
    app = opened(view)
    for key in SECTIONS[view]:
        app.session_state[key] = True
    app.run()
    assert not app.exception
    assert not app.error
    assert len(words(app)) > len(words(opened(view)))


def test_the_trade_off_shows_the_run_of_100_in_tokens_and_dollars():
    app = opened()
    table = app.dataframe[0].value.set_index("Policy")
    assert table["Submitted tokens"].to_dict() == {
        "Plain": 1_685_000, "Cached": 1_685_000, "Compacted": 600_000, "Both": 600_000,
    }  # fmt: skip
    # By hand on the card of that day (5 / 0.5 / 6.25 / 25 USD per million tokens, minimum 4,096):
    assert metrics(app)["Plain"] == "$8.43"  # 1,685,000 x 5 = 8.425
    # 20,300 x 5 + 1,633,000 x 0.5 + 31,700 x 6.25 = 1.116125
    assert metrics(app)["Cached"] == "$1.12"
    # 600,000 x 5 + 4,000 x 25
    assert metrics(app)["Compacted"] == "$3.10"


def test_a_price_typed_by_hand_replaces_the_card_s():
    assert metrics(opened(input_price="10"))["Plain"] == "$16.85"


def test_a_date_chooses_the_card():
    # Sonnet 4.6 above 200k tokens: 6 USD per million until 2026-03-12, 3 from 2026-03-13 on (genai-prices; Anthropic).
    run = {"card": "anthropic/claude-sonnet-4-6", "calls": "1", "prefix": "300000", "growth": "0"}
    assert metrics(opened(date="2026-03-12", **run))["Plain"] == "$1.80"
    assert metrics(opened(date="2026-03-13", **run))["Plain"] == "$0.90"


def test_a_run_that_passes_the_window_says_at_which_call_it_stops():
    # The window of the card is 1,000,000 tokens: 2,000 + 100,000 (t - 1) passes it at t = 11.
    app = opened(calls="30", growth="100000", block="5")
    assert "call 11 does not fit the window of 1,000,000 tokens" in words(app)


def test_the_memory_page_shows_the_published_sizes_side_by_side():
    app = opened(PAGES[1], tokens="128000")
    assert metrics(app)["One sequence"] == bytes_text(16_777_216_000) == "15.625 GiB"
    table = app.dataframe[0].value
    assert table["KV heads"].tolist() == [32, 8, 1]
    assert table["At 128,000 tokens"].tolist() == ["62.5 GiB", "15.625 GiB", "1.9531 GiB"]


def test_the_compute_page_compares_a_long_prompt_with_a_short_one():
    # Llama 3.1 8B, by hand: 6.98e9 layer parameters and 262,144 FLOP per pair of tokens; see tests/test_flops.py.
    assert "28" in words(opened(PAGES[2], tokens="100000")).split(" times a prompt of 1,000")[0][-4:]


def test_a_pasted_config_becomes_the_model_and_goes_into_the_link_as_what_was_read():
    app = opened(PAGES[1])
    app.session_state["open_own_config"] = True
    app.run()
    config = {
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 160, "rms_norm_eps": 1e-6,
    }  # fmt: skip
    app.text_area(key="pasted_text").set_value(json.dumps(config)).run()
    assert app.session_state["model"] == "pasted"
    # 2 layers x 2 heads x (16 + 16) numbers x 2 bytes
    assert metrics(app)["Each further token"] == "256 bytes"
    in_link = json.loads(link_of(app)["config"])
    assert in_link["num_key_value_heads"] == 2
    assert "rms_norm_eps" not in in_link
    again = opened(PAGES[1], model="pasted", config=link_of(app)["config"])
    assert metrics(again)["Each further token"] == "256 bytes"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"model_type": "llama", "sliding_window": 4096}', "sliding window"),
        ('{"model_type": "no-such"}', "no-such"),
        ('{"model_type": "llama"', "JSON"),
        ("[" * 100_000, "nest"),
        ("[1, 2]", "object"),
        ('{"model_type": "llama", "num_hidden_layers": -1}', "num_hidden_layers"),
        ('{"model_type": "llama", "hidden_size": NaN}', "NaN"),
        ("x" * 1_000_001, "1,000,000"),
    ],
)
def test_a_config_that_cannot_be_used_gives_one_message_and_keeps_the_model(text, message):
    app = opened(PAGES[1])
    before = metrics(app)
    app.session_state["open_own_config"] = True
    app.run()
    app.text_area(key="pasted_text").set_value(text).run()
    assert not app.exception
    assert len(app.error) == 1
    assert message.lower() in app.error[0].value.replace("\\", "").lower()
    assert metrics(app) == before


def test_uploads_are_read_or_refused_with_one_message():
    app = opened(PAGES[1])
    app.session_state["open_own_config"] = True
    app.run()
    app.file_uploader(key="uploaded_file").upload("config.json", b"\xff\xfe\x00").run()
    assert "UTF-8" in words(app)
    app.file_uploader(key="uploaded_file").upload("config.json", b" " * 1_000_001).run()
    assert "1,000,000 bytes" in words(app)
    config = {"model_type": "gpt2", "n_layer": 3, "n_embd": 64, "n_head": 4}
    app.file_uploader(key="uploaded_file").upload("config.json", json.dumps(config).encode()).run()
    assert not app.error
    # 3 layers x 4 heads x 2 x 16 numbers x 2 bytes
    assert metrics(app)["Each further token"] == "768 bytes"
    assert "config" not in app.query_params


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("calls", "-1"), ("calls", "1e400"), ("calls", "9" * 400), ("calls", "nan"), ("calls", "2.5"), ("calls", "٣x"),
        ("prefix", "inf"), ("block", "0"), ("card", "claude-opus-4-6-foo"), ("date", "2026-13-01"), ("date", "0000"),
        ("model", "<script>alert(1)</script>"), ("model", "uploaded"), ("model", "pasted"), ("kv_dtype", "q99"),
        ("input_price", "-1"), ("input_price", "nan"), ("config", '{"a'),
            ("config", '{"model_type": "llama", "sliding_window": 4096}'),
        ("lifetime", "2h"), ("zzz", "1"), ("v", "99"),
    ],
)  # fmt: skip
def test_a_link_with_a_nonsense_value_opens_with_one_message_that_names_it(name, value):
    app = opened(**{"calls": "50", name: value})
    assert len(app.warning) == 1
    assert name in app.warning[0].value.replace("\\", "")
    assert not app.error
    # What was good is kept.
    assert app.number_input(key="prefix").value == 2000
    assert name == "calls" or app.number_input(key="calls").value == 50


def test_a_changed_input_clears_the_message_about_the_link():
    app = opened(prefix="-3")
    assert app.warning
    app.number_input(key="calls").set_value(7).run()
    app.run()
    assert not app.warning


def test_the_link_holds_every_input_and_reproduces_the_page_on_another_day():
    app = opened(calls="70", tokens="5000", read_price="0.25")
    link = link_of(app)
    assert datetime.date.fromisoformat(link["date"]) == datetime.date(2026, 11, 30)
    again = AppTest.from_file("../app.py", default_timeout=120)
    for name, value in link.items():
        again.query_params[name] = value
    again.run()
    assert metrics(again) == metrics(app)
    assert link_of(again) == link


def test_inputs_keep_their_values_from_page_to_page():
    app = opened(calls="70")
    app.number_input(key="growth").set_value(450).run()
    app.switch_page(PAGES[1]).run()
    app.switch_page(PAGES[0]).run()
    assert app.number_input(key="calls").value == 70
    assert app.number_input(key="growth").value == 450


def test_a_gib_is_binary():
    assert bytes_text(GIB) == "1 GiB"


OTHER_KINDS = {
    "mistral": "sliding",
    "gemma3_text": "full",
    "gemma4_text": "sliding",
    "deepseek_v3": "latent",
    "deepseek_v32": "indexed latent",
    "jamba": "recurrent",
    "mamba2": "recurrent",
    "falcon_h1": "full with state",
    "bart": "full",
    "mixtral": "full",
}


@pytest.mark.parametrize(("model_type", "kind"), OTHER_KINDS.items())
def test_the_memory_of_any_layer_kind_is_shown_and_flop_are_refused_with_one_message(model_type, kind):
    link = {"model": "pasted", "config": json.dumps({"model_type": model_type})}
    for page in PAGES:
        app = opened(page, **link)
        assert not app.exception
        if page == PAGES[1]:
            assert not app.error
            app.session_state["open_memory_formula"] = True
            app.session_state["open_ladder"] = True
            app.run()
            assert not app.exception and not app.error
            formula = words(app).replace(
                "32 layers x 128,000 tokens", "(kind: full"
            )  # full attention shows its factors
            assert f"(kind: {kind}" in formula
        else:
            assert len(app.error) <= 1


MEMORY_SECTIONS = (
    "open_picture", "open_engines", "open_compared", "open_by_rank", "open_formats", "open_mechanisms", "open_log",
    "open_ladder", "open_memory_formula",
)  # fmt: skip
SPLIT = {"ranks": "8", "stages": "4", "attention_groups": "2", "sequences": "5"}


@pytest.mark.parametrize(
    ("model", "link"),
    [
        ("gemma-4-31b", {"engine": "vllm", **SPLIT}),
        ("qwen3.5-27b", {"engine": "vllm", "kv_dtype": "fp8", "ranks": "2"}),
        ("deepseek-v3.2", {"engine": "sglang", "ranks": "8", "context_ranks": "8"}),
        ("gemma-3-4b", {"engine": "llama.cpp", "kv_dtype": "q8_0", "value_dtype": "q4_0", "slots": "2"}),
        ("llama-4-scout", {"engine": "transformers"}),
        ("gpt2", {"stages": "12"}),
    ],
)
def test_every_section_of_the_memory_page_holds_for_every_engine(model, link):
    app = opened(PAGES[1], model=model, **link)
    for section in MEMORY_SECTIONS:
        app.session_state[section] = True
    app.run()
    assert not app.exception and not app.error
    shown = words(app)
    if link.get("engine"):
        assert f"Counted as {engine_version(link['engine'])}" in shown


def test_the_memory_page_shares_sequences_out_and_names_the_fullest_stage():
    app = opened(PAGES[1], model="deepseek-v3", tokens="1000", **SPLIT)
    numbers = metrics(app)
    per_group = 3  # 5 sequences in 2 groups
    assert numbers["On each of 32 ranks"] == bytes_text(per_group * 1000 * 16 * 1152)  # 16 of the 61 layers
    assert "Stage 3 of 4 is the fullest" in words(app)
    assert numbers["All 5 sequences"] == bytes_text(
        5 * 4 * 1000 * 70_272
    )  # four ranks of a group hold the latent rows each


def test_settings_of_the_chosen_engine_are_in_force_and_in_the_link():
    app = opened(PAGES[1], model="llama-3.1-8b", tokens="1000", sequences="1", engine="vllm", block_tokens="128")
    assert metrics(app)["One sequence"] == bytes_text(1024 * 131_072)
    assert link_of(app)["block_tokens"] == "128"
    app.session_state["open_ranks"] = True
    app.run()
    app.selectbox(key="engine").set_value("ideal").run()
    assert metrics(app)["One sequence"] == bytes_text(1000 * 131_072)


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ({"engine": "vllm", "kv_dtype": "q8_0"}, "kv_dtype of the vllm rule must be one of"),
        ({"engine": "llama.cpp", "ranks": "2"}, "tensor_parallel must be 1 under the llama.cpp rule, got 2"),
        ({"ranks": "3"}, "tensor_parallel must divide the 8 KV heads or be a multiple of them, got 3"),
        ({"attention_groups": "2"}, "data_parallel must divide the 1 tensor-parallel ranks, got 2"),
        ({"stages": "33"}, "pipeline_parallel must be at most the 32 layers of the model, got 33"),
    ],
)
def test_what_cannot_be_split_or_packed_so_gives_one_message(link, message):
    app = opened(PAGES[1], **link)
    assert not app.exception
    assert len(app.error) == 1
    assert message in app.error[0].value.replace("\\", "")


def test_the_scoreboard_stands_on_the_formulas_page_with_what_it_leaves_out():
    app = opened("views/formulas.py")
    app.session_state["open_scoreboard"] = True
    app.run()
    assert not app.exception
    assert not app.error
    board = next(frame.value for frame in app.dataframe if "Stated" in frame.value)
    by_number = board.set_index(["Engine", "What is stated"])
    # talos-argocd-proxmox #1995: int(208 / 90 x 131,072)
    assert by_number.loc[("vLLM 0.2x", "GPU KV cache size"), "Ours (middle)"] == "302,921"
    assert set(board["Within rounding"]) == {"yes"}
    assert "Not covered: KV buffer (koboldcpp-724-qwen15-72b-mha), 82120.0 MiB" in words(app)


def test_up_to_six_layouts_and_models_stand_side_by_side():
    app = opened(PAGES[1], model="llama-3.1-8b", compared="MHA,MQA,MLA,sliding-1-in-4,deepseek-v3")
    app.session_state["open_compared"] = True
    app.run()
    assert not app.exception and not app.error
    board = next(frame.value for frame in app.dataframe if "Break-even (tokens)" in frame.value)
    assert list(board["Model or layout"]) == ["Llama 3.1 8B", "as MHA *", "as MQA *", "as MLA *", "as sliding-1-in-4 *",
                                              "DeepSeek-V3"]  # fmt: skip
    assert list(board["One sequence"][:3]) == ["15.625 GiB", "62.5 GiB", "1.9531 GiB"]
    # A latent of 4 x 128 and a rotated part of 64 numbers, 2 bytes each, in 32 layers.
    assert board["One sequence"][3] == bytes_text(128_000 * 32 * 576 * 2)
    # 8 of the 32 layers keep all tokens, 24 the newest 4,096.
    assert board["One sequence"][4] == bytes_text((8 * 128_000 + 24 * 4096) * 4096)
    assert "another model: needs retraining, quality not modelled" in words(app)


def test_a_layout_that_the_model_cannot_have_is_named_with_the_reason():
    app = opened(PAGES[1], model="deepseek-v3", compared="MHA,MLA")
    app.session_state["open_compared"] = True
    app.run()
    assert not app.exception and not app.error
    assert "As MHA: layers of kind 'latent' have no KV heads to change" in words(app)


def test_more_than_five_to_compare_and_unknown_names_are_refused_by_the_link():
    six = "MHA,GQA-8,GQA-4,MQA,MLA,sliding-1-in-4"
    for given, message in ((six, "compared must be at most 5 names, got 6"), ("MHB", "unknown compared 'MHB'")):
        app = opened(compared=given)
        assert message in app.warning[0].value.replace("\\", "")


def test_pasted_log_lines_are_read_with_the_page_s_model():
    app = opened(PAGES[1], model="qwen3-1.7b")
    app.session_state["open_log"] = True
    app.run()
    app.text_area(key="log_lines").set_value("GPU KV cache size: 175,856 tokens").run()
    app.number_input(key="log_available_gib").set_value(18.78).run()
    app.number_input(key="log_max_len").set_value(40960).run()
    assert not app.exception and not app.error
    assert metrics(app)["Bytes per token"] == "114,688 bytes"
    assert "log" not in " ".join(link_of(app))
