"""Pictures of every state of the page, at desktop and phone width, to look at and for the documentation.

rankformer demo --out RUN
rankformer train demo --model ease --out OTHER
python -m tests.serving.screenshots RUN OTHER docs/page [STATE ...]
"""

import csv
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, Page, Route, expect

from rankformer.data.items import Items
from rankformer.runs.saved import load_run
from rankformer.serving.settings import ServiceSettings, Tokens

from .browser import headless_chromium, required_chromium, served
from .runs import write_shop

USER, ITEM = "mira-001", "book-128"
SIZES = {"": (1280, 800), "-phone": (375, 760)}


def ready(page: Page) -> None:
    """Waits until nothing on the page waits or moves."""
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    page.wait_for_timeout(400)


def wait(page: Page) -> None:
    """Waits a moment, for a page that keeps waiting."""
    page.wait_for_timeout(600)


def suggest(page: Page) -> None:
    """Types the beginning of an id."""
    ready(page)
    page.get_by_label("Find a user by id").click()
    page.keyboard.type("mira-0")
    expect(page.get_by_role("option")).not_to_have_count(20)
    page.keyboard.press("ArrowDown")


def pick_one_more(page: Page) -> None:
    """Picks an item and opens the details of one that the list now holds."""
    ready(page)
    page.get_by_label("Pick items this user likes").fill("Rye")
    expect(page.get_by_role("option").first).to_contain_text("Rye")
    page.keyboard.press("Enter")
    wait(page)
    page.locator(".results .row").nth(1).click()
    ready(page)


def click(page: Page) -> None:
    """Adds two clicks to a known user."""
    ready(page)
    for text in ("Rye", "Harbour"):
        page.get_by_label("Add a click of this moment").fill(text)
        page.get_by_role("option").first.wait_for()
        page.wait_for_timeout(300)
        page.keyboard.press("Enter")
        wait(page)
    ready(page)


def write_items(run: Path, target: Path) -> Path:
    """Write attributes for the items of the demo, and two that nobody has."""
    recommender = load_run(run).recommender
    titles = recommender.titles.to_pylist()
    rows = list(zip(recommender.item_ids.ids.to_pylist(), titles, strict=True))
    rows += [("book-500", "Fresh Orbit (space)"), ("book-501", "Fresh Loaf (bread)")]
    with open(target, "w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(("item_id", "title", "genre", "price", "in_stock"))
        for number, (item, title) in enumerate(rows):
            writer.writerow((item, title, title.rpartition("(")[2][:-1], 5 + number % 17, number % 4 > 0))
    assert len(Items.read(target)) == len(rows)
    return target


def refuse(status: int, code: str, message: str, **headers: str) -> Callable[[Route], None]:
    """An answer of the service's kind."""
    return lambda route: route.fulfill(
        status=status, json={"error": {"code": code, "message": message}}, headers=headers
    )


BUSY = refuse(429, "too_many_requests", "too many requests wait already", **{"Retry-After": "9"})
FAILED = refuse(500, "internal_error", "something went wrong here; the log of the service has more")


@dataclass(frozen=True)
class State:
    """How to get there: the fragment, what to do, and what to answer (None: nothing) instead of the service."""

    fragment: str
    act: Callable[[Page], None] = ready
    answers: Mapping[str, Callable[[Route], None] | None] = field(default_factory=dict)
    service: Literal["demo", "guarded", "shop", "two", "cold"] = "demo"
    dark: bool = False


STATES = {
    "start": State(""),
    "suggestions": State("", suggest),
    "recommendations": State(f"#user={USER}&item={ITEM}", dark=True),
    "seen": State(f"#user={USER}&k=5&seen=1"),
    "new-user-empty": State("#new-user="),
    "new-user": State("#new-user=book-128,book-023", pick_one_more, dark=True),
    "model": State("#model", dark=True),
    "unknown-user": State("#user=nobody"),
    "busy": State(f"#user={USER}", answers={"**/v1/recommend/*": BUSY}),
    "failed": State(f"#user={USER}&item={ITEM}", answers={"**/v1/explain/**": FAILED, "**/similar*": FAILED}),
    "down": State("", answers={"**/v1/**": lambda route: route.abort("connectionrefused")}),
    "loading": State(f"#user={USER}&item={ITEM}", wait, {"**/v1/*/**": None}),
    "token": State("", wait, service="guarded"),
    "filters": State(
        f"#user={USER}&where=genre%20%21%3D%20%27space%27%20and%20price%20%3C%2015&at_most=3%3Agenre", service="shop"
    ),
    "new-items": State(f"#user={USER}&where=cold&item=book-500", service="shop"),
    "clicks": State(f"#user={USER}", click),
    "no-interactions": State("#user=u999", service="cold"),
    "compare": State(f"#user={USER}&compare=1", service="two", dark=True),
    "compare-detail": State(f"#user={USER}&compare=1&item=book-355&of=other", service="two"),
    "compare-models": State("#model", service="two"),
}


def take(browser: Browser, address: str, name: str, size: str, scheme: Literal["light", "dark"], target: Path) -> None:
    """Write the picture of one state."""
    state, (width, height) = STATES[name], SIZES[size]
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    held: list[Route] = []
    for pattern, answer in state.answers.items():
        page.route(pattern, answer or (lambda route: held.append(route)))
    page.goto(address + state.fragment)
    state.act(page)
    picture = page.screenshot(full_page=width < 700 or name in ("model", "compare-models"))
    Image.open(BytesIO(picture)).quantize(256, kmeans=1).save(
        target, optimize=True
    )  # a third of the size, and no difference seen
    for route in held:
        route.abort()
    page.close()


def main(run: Path, other: Path, folder: Path, names: list[str]) -> None:
    """Write a picture of each state in each width, and of some in the dark."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as temporary,
        headless_chromium(required_chromium()) as browser,
        served(run) as (demo, _),
        served(run, Tokens(access="a-token-of-enough-letters")) as (guarded, _),
        served(run, settings=ServiceSettings(items=write_items(run, Path(temporary, "items.csv")))) as (shop, _),
        served(run, settings=ServiceSettings(compare=other)) as (two, _),
        served(write_shop(Path(temporary, "cold"))) as (cold, _),
    ):
        addresses = {"demo": demo, "guarded": guarded, "shop": shop, "two": two, "cold": cold}
        for name in names or STATES:
            state = STATES[name]
            for size in SIZES:
                where = addresses[state.service]
                take(browser, where, name, size, "light", folder / f"{name}{size}.png")
                if state.dark:
                    take(browser, where, name, size, "dark", folder / f"{name}-dark{size}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
