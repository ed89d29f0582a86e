"""Take the picture of the README from the map of the demonstration.

Run ``make demo``, then ``python tests/e2e/screenshot.py demo/map.html docs/img/map.png``.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright


def main(page: Path, picture: Path) -> None:
    """Open a map in Chromium, drive the vehicle half-way and save what it shows."""
    with sync_playwright() as driver:
        flags = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--no-sandbox"]
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        tab = browser.new_page(viewport={"width": 1280, "height": 760})
        tab.goto(page.resolve().as_uri())
        tab.wait_for_timeout(6000)
        tab.locator("input[type=range]").first.focus()
        tab.keyboard.press("Home")
        for _ in range(12):
            tab.keyboard.press("ArrowRight")
        tab.wait_for_timeout(2500)
        tab.screenshot(path=str(picture))
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
