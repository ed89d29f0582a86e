"""The page as one file."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re

from tedtrajrec.maps.bundle import PAGE, html_page, modules_in_order

NAMES = re.compile(r'(?:from|import)\s*\(?\s*"(\.[^"]+)"')


def packed(html: str, name: str) -> object:
    text = re.search(rf'id="{name}">([^<]*)</script>', html)
    assert text is not None
    return json.loads(gzip.decompress(base64.b64decode(text[1])))


def test_every_module_comes_behind_those_it_imports() -> None:
    order = modules_in_order()
    assert order[-1] == "main.js"
    assert len(set(order)) == len(order)
    for place, name in enumerate(order):
        if name.startswith("vendor/"):
            continue
        for other in NAMES.findall((PAGE / name).read_text()):
            assert other.removeprefix("./") in order[:place], (name, other)


def test_all_modules_of_the_folder_are_used() -> None:
    assert {path.name for path in PAGE.glob("*.js")} == {name for name in modules_in_order() if "/" not in name}


def test_the_file_asks_for_nothing_outside_itself() -> None:
    html = html_page({"title": "x"})
    assert "static/" not in re.sub(r'id="packed-\w+">[^<]*', "", html)
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=\"(?!data:)", html)
    assert "@import" not in html
    assert set(re.findall(r"url\(\"?(\w+):", html)) == {"data"}


def test_data_come_back_whatever_they_hold() -> None:
    data = {"title": "</script><script>alert(1)</script> é 北京 \u2028", "n": [1.5, None, True]}
    html = html_page(data)
    assert "alert(1)" not in html
    assert packed(html, "packed-data") == data


def test_the_same_data_give_the_same_file() -> None:
    assert html_page({"title": "x"}) == html_page({"title": "x"})


def test_the_served_page_has_no_script_or_style_inside() -> None:
    index = (PAGE / "index.html").read_text()
    assert re.findall(r"<script[^>]*>[^<]+", index) == []
    assert re.search(r"\s(?:style|on\w+)=", index) is None
    assert "<style" not in index
    wanted = re.findall(r'(?:src|href)="static/([^"]+)"', index)
    assert len(wanted) >= 3
    assert all((PAGE / name).is_file() for name in wanted)


def test_ids_that_modules_look_for_are_on_the_page() -> None:
    index = (PAGE / "index.html").read_text()
    ids = set(re.findall(r'id="([\w-]+)"', index)) | {"data"}
    for name in modules_in_order():
        if name.startswith("vendor/"):
            continue
        text = (PAGE / name).read_text()
        for wanted in re.findall(r'(?:byId|getElementById)\("([\w-]+)"\)', text):
            assert wanted in ids, (name, wanted)


def test_maplibre_is_as_it_was_published() -> None:
    folder = PAGE / "vendor" / "maplibre-gl"
    lines = re.findall(r"^    ([0-9a-f]{64}) +(\S+)$", (folder / "README.md").read_text(), re.MULTILINE)
    listed = {name: digest for digest, name in lines}
    assert set(listed) == {"maplibre-gl.mjs", "maplibre-gl-worker.mjs", "maplibre-gl.css"}
    for name, digest in listed.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    assert "Redistribution and use" in (folder / "LICENSE.txt").read_text()
