"""The pages as a person meets them: open, change, reload, go back, download, keyboard, narrow and dark."""

import csv
import json
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from tests.browser.conftest import PATIENCE_MS, answer, becomes, opened, settled

pytestmark = pytest.mark.browser

LINK = "?v=1&card=anthropic%2Fclaude-opus-4-6&date=2026-11-30&output=0"
QUESTIONS = {
    "": "Cache, compact, both or neither?",
    "memory": "What does the KV cache take?",
    "compute": "What do prefill and decode cost?",
    "formulas": "Where does a number come from?",
}
OURS = {"exclude": [["[data-testid=stSidebarNavItems]"]]}
"""All but Streamlit's own navigation, whose grouped list axe finds fault with (rules list and listitem)."""


def test_an_input_changes_the_answer_and_the_link_reproduces_it(page, server):
    opened(page, f"{server}/{LINK}")
    becomes(page, "$8.43")
    calls = page.get_by_role("spinbutton", name="Calls", exact=True)
    calls.fill("10")
    calls.press("Enter")
    # By hand: 10 calls submit 2,000 x 10 + 300 x 45 = 33,500 tokens, 0.1675 USD at 5 per million.
    becomes(page, "$0.168")
    assert "calls=10&" in page.url
    page.reload()
    becomes(page, "$0.168")
    expect(page.get_by_role("spinbutton", name="Calls", exact=True)).to_have_value("10")
    page.go_back()
    becomes(page, "$8.43")


def test_every_page_opens_from_the_navigation_and_keeps_the_inputs(page, server):
    # Inputs that two pages share are drawn anew on the second: their values must not fall back to the minimum.
    opened(page, f"{server}/{LINK}&calls=70&block=7&tokens=4321")
    shared = {
        "": ("Compact every (calls)", "7"),
        "memory": ("Context (tokens)", "4321"),
        "compute": ("Prompt (tokens)", "4321"),
        "formulas": ("Compact every (calls)", "7"),
    }
    for name, title in (
        ("Formulas", "formulas"), ("Memory", "memory"), ("Compute", "compute"), ("Trade-off", ""), ("Compute", "compute"),
    ):  # fmt: skip
        page.get_by_role("link", name=name).click()
        page.get_by_role("heading", name=QUESTIONS[title]).wait_for()
        settled(page)
        label, value = shared[title]
        expect(page.get_by_role("spinbutton", name=label)).to_have_value(value)
        page.wait_for_timeout(500)
        expect(page.get_by_role("spinbutton", name=label)).to_have_value(value)
        for part in ("calls=70&", "block=7&", "tokens=4321&"):
            assert part in page.url
        assert page.get_by_test_id("stException").count() == 0


def test_the_table_downloads_as_the_numbers_on_the_page(page, server, tmp_path: Path):
    opened(page, f"{server}/{LINK}")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download table (CSV)").first.click()
    download.value.save_as(tmp_path / "policies.csv")
    rows = list(csv.DictReader((tmp_path / "policies.csv").read_text("utf-8").splitlines()))
    assert [row["Policy"] for row in rows] == ["Plain", "Cached", "Compacted", "Both"]
    assert [row["Submitted tokens"] for row in rows] == ["1685000", "1685000", "600000", "600000"]
    assert float(rows[0]["USD"]) == 8.425


def test_a_pasted_config_is_used_and_survives_in_the_link(page, server):
    opened(page, f"{server}/memory{LINK}")
    page.get_by_text("Use your own config.json").click()
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
              "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 160}  # fmt: skip
    box = page.get_by_role("textbox", name="Paste the config.json")
    box.fill(json.dumps(config))
    box.press("Control+Enter")
    # 128,000 tokens x 2 layers x 2 heads x (16 + 16) numbers x 2 bytes = 32,768,000 bytes
    becomes(page, "31.25 MiB")
    page.goto(page.url)
    becomes(page, "31.25 MiB")
    page.get_by_text("Use your own config.json").click()
    box = page.get_by_role("textbox", name="Paste the config.json")
    box.fill('{"model_type": "llama", "sliding_window": 4096}')
    box.press("Control+Enter")
    page.get_by_text("This config was not used").wait_for()
    assert "31.25 MiB" in answer(page).inner_text()
    too_large = {"name": "config.json", "mimeType": "application/json", "buffer": b" " * 3_000_000}
    page.locator("input[type=file]").set_input_files(too_large)
    page.get_by_text("File must be 1.0MB or smaller").wait_for()
    assert page.get_by_test_id("stException").count() == 0


def test_a_nonsense_link_gives_one_message_and_no_traceback(page, server):
    opened(page, f"{server}/?calls=1e400&prefix=-3&model=%3Cscript%3Ealert(1)%3C/script%3E&growth=400")
    alerts = page.get_by_test_id("stAlert")
    assert alerts.count() == 1
    message = alerts.inner_text()
    for part in ("calls must be a whole number from 1 to 20,000, got '1e400'", "got -3", "<script>alert(1)</script>"):
        assert part in message
    expect(page.get_by_role("spinbutton", name="Growth per call (tokens)")).to_have_value("400")
    assert page.get_by_test_id("stException").count() == 0


def test_the_keyboard_alone_changes_an_input_and_opens_a_section(page, server):
    opened(page, f"{server}/{LINK}")
    page.get_by_role("spinbutton", name="Calls", exact=True).focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    # 110 calls: 2,000 x 110 + 300 x 110 x 109 / 2 = 2,018,500 tokens, 10.0925 USD.
    becomes(page, "$10.09")
    page.locator("summary", has_text="What is assumed").focus()
    page.keyboard.press("Enter")
    page.get_by_text("Calls follow each other within the life of a cache entry").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_a_phone_and_has_no_serious_accessibility_finding(chromium: Browser, server, scheme):
    for width in (1440, 400):
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        for path in QUESTIONS:
            opened(page, f"{server}/{path}{LINK}")
            sideways = page.evaluate(
                "(() => { const m = document.querySelector('[data-testid=stMain]');"
                " return m.scrollWidth - m.clientWidth })()"
            )
            assert sideways <= 0, f"{path or 'trade_off'} scrolls sideways by {sideways} pixels at {width}"
            found = [
                (violation["id"], violation["impact"], [node["html"][:120] for node in violation["nodes"][:3]])
                for violation in Axe().run(page, context=OURS).response["violations"]
                if violation["impact"] in ("serious", "critical")
            ]
            assert not found, f"{path or 'trade_off'} at {width}, {scheme}: {found}"
        context.close()
