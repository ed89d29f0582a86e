"""A real browser, and pages in it that may ask for nothing outside."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

TEST_GPU = ("--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--no-sandbox")  # WebGL without a graphics card
PATIENCE_S = 60.0


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Return Chromium; skip without it, or fail where it is required (CI)."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        reason = "no chromium on the path"
        if os.environ.get("TEDTRAJREC_REQUIRE_DATA"):
            pytest.fail(reason)
        pytest.skip(reason)
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, args=list(TEST_GPU))
        yield chromium
        chromium.close()


class Tab:
    """A page in the browser, with what it asked for and what went wrong in it."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.requests: list[str] = []
        self.errors: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda line: self.errors.append(line.text) if line.type == "error" else None)

    def until(self, script: str) -> Any:
        """Wait until a script gives something true, and return that; polls, as the policy of the page forbids eval."""
        end = time.monotonic() + PATIENCE_S
        while not (value := self.page.evaluate(script)):
            if time.monotonic() > end:
                pytest.fail(f"{script} did not come true; errors: {self.errors}; {self.page.inner_text('#error')}")
            self.page.wait_for_timeout(50)
        return value

    def drawn(self) -> None:
        """Wait until a trip is shown and all maps have drawn what they were given."""
        self.until("globalThis.tedtrajrec?.key !== undefined")
        self.page.evaluate("""() => Promise.all(
            tedtrajrec.maps.slice(0, tedtrajrec.views.shown.length).map(({ view }) => new Promise((done) => {
                view.once("idle", done);
                view.triggerRepaint();
            })),
        )""")

    def pixel_of(self, point: tuple[float, float], map_: int = 0) -> tuple[int, int]:
        """Return where on the screen a place (lon, lat) is."""
        x, y = self.page.evaluate(
            """([point, i]) => {
                const { view } = tedtrajrec.maps[i];
                const [at, box] = [view.project(point), view.getCanvas().getBoundingClientRect()];
                return [at.x + box.left, at.y + box.top];
            }""",
            [list(point), map_],
        )
        return round(x), round(y)


@pytest.fixture(scope="module")
def open_tab(browser: Any) -> Iterator[Callable[..., Tab]]:
    """Return a function that opens an address in a fresh context of some size; all close behind the module."""
    contexts = []

    def open_(url: str, *, width: int = 1000, height: int = 640) -> Tab:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme="light")
        contexts.append(context)
        tab = Tab(context.new_page())
        tab.page.goto(url)
        return tab

    yield open_
    for context in contexts:
        context.close()
