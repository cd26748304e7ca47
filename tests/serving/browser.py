"""A real Chromium and a real service for it to look at."""

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from rankformer.serving.server import create_app
from rankformer.serving.settings import ServiceSettings, Tokens

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 375, "height": 760}
PATIENCE = 20.0  # seconds for the first model to be loaded


def find_chromium() -> str | None:
    """The path of an installed Chromium or Chrome; the variable CHROMIUM goes before the usual names."""
    wanted = os.environ.get("CHROMIUM")
    return shutil.which(wanted) if wanted else next(filter(None, map(shutil.which, NAMES)), None)


def required_chromium() -> str:
    """The path of the browser; without one the test is skipped, or fails where it runs as a check (CI=true)."""
    path = find_chromium()
    if path is not None:
        return path
    message = f"the page's tests need a browser: none of {', '.join(NAMES)} is installed; run tools/install-browser"
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(message)
    pytest.skip(message)


@contextmanager
def headless_chromium(path: str) -> Iterator[Browser]:
    """A browser without a window. While it runs, this thread has an event loop: close it before others need one."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def served(
    run: Path, tokens: Tokens | None = None, settings: ServiceSettings | None = None
) -> Iterator[tuple[str, FastAPI]]:
    """The address of a service for a run, on loopback in a thread of its own, and its application."""
    app = create_app(run, settings, tokens)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, ws="none"))
    thread = threading.Thread(target=server.run, name="service")
    thread.start()
    try:
        deadline = time.monotonic() + PATIENCE
        while not server.started or app.state.service.current is None:
            assert thread.is_alive(), "the service ended before it began"
            assert time.monotonic() < deadline, f"the service is not ready after {PATIENCE} s"
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/", app
    finally:
        server.should_exit = True
        thread.join()


class Visits:
    """Opens pages and hears everything they say and ask for."""

    def __init__(self, browser: Browser, address: str) -> None:
        self._browser, self._address = browser, address
        self._contexts: list[BrowserContext] = []
        self._complaints: list[str] = []
        self._elsewhere: list[str] = []

    def __call__(
        self, fragment: str = "", at: str | None = None, before: Callable[[Page], object] | None = None, **options: Any
    ) -> Page:
        """The page at a fragment, at desktop size unless told otherwise; `before` prepares it."""
        at = at or self._address
        context = self._browser.new_context(**{"viewport": DESKTOP, **options})
        self._contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("pageerror", lambda error: self._complaints.append(str(error)))
        page.on("console", lambda message: self._complaints.append(message.text))
        page.on("request", lambda request: self._elsewhere.append(request.url))
        if before is not None:
            before(page)
        page.goto(at + fragment)
        self._at = at
        return page

    def leave(self) -> None:
        """Close everything, after making sure that nothing complained, nothing foreign ran, nothing went elsewhere."""
        for context in self._contexts:
            assert all(page.evaluate("window.harmed") is None for page in context.pages)
            context.close()
        # The browser itself notes answers of 4xx and 5xx; everything else would be ours.
        assert [text for text in self._complaints if not text.startswith("Failed to load resource")] == []
        assert [url for url in self._elsewhere if not url.startswith((self._at, "data:"))] == []


def settled(page: Page) -> Page:
    """The page once nothing on it waits for an answer."""
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    return page


def move(page: Page, fragment: str) -> Page:
    """The page once it has followed a change of its address."""
    change = (
        "to => new Promise(done => { addEventListener('hashchange', () => done(), {once: true}); location.hash = to })"
    )
    page.evaluate(change, fragment)
    return settled(page)


def rows_of(page: Page, place: str = ".results .ranked > li > .row-line") -> list[tuple[str, float]]:
    """Name and score of each row of a list, once nothing waits."""
    read = "rows => rows.map(row => [row.querySelector('.name').textContent, Number(row.querySelector('data').value)])"
    return [(name, score) for name, score in settled(page).locator(place).evaluate_all(read)]


def tab_to(page: Page, selector: str) -> None:
    """Presses Tab until the focus is on something that matches, and makes sure that one can see it there."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
            return
    raise AssertionError(f"the Tab key never reaches {selector}")


# Brightness of the page, and contrast and text of everything one can read, by the formulas of WCAG 2.
_CONTRASTS = """() => {
  const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
  const linear = (part) => (part <= 10 ? part / 3294 : ((part / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = (element) => {
    for (; element; element = element.parentElement) {
      const color = numbers(getComputedStyle(element).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    if (element.closest("script, .visually-hidden")) continue;
    const style = getComputedStyle(element);
    const [a, b] = [light(numbers(element.closest("svg") ? style.fill : style.color)), light(behind(element))];
    found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), walker.currentNode.data]);
  }
  return [light(behind(document.body)), found];
}"""


def contrasts_of(page: Page) -> tuple[float, list[tuple[float, str]]]:
    """How bright the page is, and how much each text stands out from what is behind it."""
    paper, found = settled(page).evaluate(_CONTRASTS)
    return paper, [(ratio, text) for ratio, text in found]
