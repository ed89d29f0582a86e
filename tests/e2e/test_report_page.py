"""The report in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tedtrajrec.experiments.report import make_report
from tests.e2e.conftest import Tab
from tests.experiments.report_rows import write_row


def test_it_is_drawn_whole_and_numbers_lead_to_rows(tmp_path: Path, open_tab: Callable[..., Tab]) -> None:
    write_row(tmp_path / "rows", "tedtrajrec", 0.7)
    write_row(tmp_path / "rows", "route_hmm", 0.65, learned=False)
    for k in range(40):  # rows enough that a link must scroll
        write_row(tmp_path / "rows", "linear_hmm", 0.3, group=f"group {k}", learned=False, trips=False)
    page = make_report(tmp_path / "rows", tmp_path / "report")
    tab = open_tab(page.as_uri(), width=1000, height=700)
    loaded = tab.page.evaluate("[...document.images].map((image) => image.complete && image.naturalWidth > 100)")
    assert loaded
    assert all(loaded)
    assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")  # wide tables scroll by themselves
    assert tab.page.evaluate("getComputedStyle(document.querySelector('td strong')).fontWeight") == "700"
    picture = tab.page.screenshot(full_page=True)
    assert len(picture) > 50_000
    tab.page.click("td strong")
    row = tab.page.evaluate("location.hash")
    assert "performance-chengdu-tedtrajrec-1of8-0.json" in tab.page.inner_text(row)
    top = tab.page.evaluate(f"document.querySelector('{row}').getBoundingClientRect().top")
    assert -1 <= top < 700
    assert tab.errors == []
    assert tab.requests[0] == page.as_uri()
    assert all(url.startswith("data:") for url in tab.requests[1:])
    tab.page.set_viewport_size({"width": 390, "height": 800})
    assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
