"""The section that reads an engine's log, on a page of its own."""

import pytest
from streamlit.testing.v1 import AppTest

PAGE = """
from dataclasses import replace
from calc.presets import model_preset
from views import inputs
from views.engine_log import log_section
inputs.open_link()
log_section(replace(inputs.scenario(), model=model_preset({model!r}), kv_dtype={kv_dtype!r}, ranks={ranks}))
inputs.write_link()
"""
LINE = "INFO [kv_cache_utils.py:864] GPU KV cache size: 175,856 tokens"


def page(model="qwen3-1.7b", kv_dtype="bf16", ranks=1) -> AppTest:
    app = AppTest.from_string(PAGE.format(model=model, kv_dtype=kv_dtype, ranks=ranks), default_timeout=60).run()
    assert not app.exception
    return app


def pasted(app: AppTest, lines: str) -> AppTest:
    app.text_area(key="log_lines").set_value(lines).run()
    assert not app.exception
    return app


def words(app: AppTest) -> str:
    elements = [*app.markdown, *app.success, *app.warning, *app.error, *app.caption, *app.metric]
    return " ".join(str(element.value) for element in elements).replace("\\", "")


def test_without_lines_nothing_is_said():
    app = page()
    assert not app.success
    assert not app.error
    assert not pasted(app, " \n ").error


def test_a_line_is_read_with_the_model_and_the_memory_beside_it():
    app = page()
    app.number_input(key="log_available_gib").set_value(18.78)
    app.number_input(key="log_max_len").set_value(40_960)
    pasted(app, LINE)
    assert len(app.success) == 1
    # 28 layers x 8 heads x 128 x 2 planes x 2 bytes
    assert {metric.label: metric.value for metric in app.metric}["Bytes per token"] == "114,688 bytes"
    assert "18.783 GiB" in words(app)
    assert "At a max_len of 20,480 tokens the same pool is 175,856 tokens" in words(app)


@pytest.mark.parametrize(("kv_dtype", "ranks"), [("fp8", 1), ("bf16", 2)])
def test_a_line_that_cannot_be_says_so_and_guesses_why(kv_dtype, ranks):
    app = page(kv_dtype=kv_dtype, ranks=ranks)
    pasted(app, f"Available KV cache memory: 18.78 GiB\n{LINE}")
    assert not app.success
    assert "as a guess" in words(app)


def test_a_format_that_the_line_names_goes_before_the_page_s():
    app = page(model="deepseek-r1", kv_dtype="bf16")
    pasted(app, "KV self size  = 1166.62 MiB, c^KV (q8_0): 1166.62 MiB, kv^T: not used")
    assert len(app.success) == 1
    assert "37,332 bytes" in words(app)
    assert "a cache in q8_0" in words(app)


@pytest.mark.parametrize(
    ("lines", "part"),
    [
        ("hello", "no line says what a cache takes"),
        ("Maximum concurrency for 1 tokens per request: 1x\nKV self size = 1.00 MiB", "one engine"),
    ],
)
def test_what_cannot_be_read_gives_one_message(lines, part):
    app = pasted(page(), lines)
    assert len(app.error) == 1
    assert part in words(app)
    assert not app.success


def test_pasted_lines_do_not_go_into_the_link():
    app = pasted(page(), LINE)
    assert app.query_params
    assert not any("log" in name for name in app.query_params)
    assert not any("175" in str(value) for value in app.query_params.values())
