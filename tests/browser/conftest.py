"""A real headless Chromium on a real server of the app, on this machine only."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

ROOT = Path(__file__).parents[2]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
READY = "[data-testid=stApp][data-test-connection-state=CONNECTED][data-test-script-state=notRunning]"
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
PATIENCE_MS = 90_000
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="session")
def server() -> str:
    """Address of the running app."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={port}", "--server.headless=true",
         "--server.fileWatcherType=none"],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ,
    )  # fmt: skip
    address = f"http://localhost:{port}"
    try:
        _wait_until_healthy(process, address)
        yield address
    finally:
        process.terminate()
        process.wait(timeout=30)


def _wait_until_healthy(process: subprocess.Popen, address: str) -> None:
    for _ in range(240):
        if process.poll() is not None:
            raise RuntimeError(f"the app's server ended with code {process.returncode}")
        try:
            with urllib.request.urlopen(f"{address}/_stcore/health", timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    raise RuntimeError("the app's server did not become healthy")


@pytest.fixture(scope="session")
def chromium() -> Browser:
    """The system's Chromium; without one the browser tests fail, and say what to install."""
    if CHROMIUM is None:
        pytest.fail("the browser tests need Chromium: install it (Debian: sudo apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Browser) -> Page:
    """A fresh window of 1440 by 900, in the light theme."""
    context = chromium.new_context(viewport={"width": 1440, "height": 900}, color_scheme="light")
    context.set_default_timeout(PATIENCE_MS)
    yield context.new_page()
    context.close()


def settled(page: Page) -> None:
    """Waits until the app has answered."""
    page.wait_for_selector(READY)
    page.wait_for_function("document.querySelectorAll('[data-stale=true]').length === 0")


def opened(page: Page, address: str) -> None:
    """Opens an address and waits for the answer."""
    page.goto(address)
    settled(page)
    answer(page).wait_for()


def answer(page: Page):
    """The sentence that answers the page's question."""
    return page.locator("h5").first


def becomes(page: Page, text: str) -> None:
    """Waits until the answer holds a text."""
    page.locator("h5", has_text=text).first.wait_for()
    settled(page)
