"""The page as one HTML file: its modules, MapLibre and the data packed inside, unpacked by the browser.

Browsers load no modules from files, only from addresses. So the modules travel as text; a short script in the file
makes an address (a Blob URL) of each, behind those it imports, whose names it replaces by their addresses.
"""

from __future__ import annotations

import base64
import functools
import gzip
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "page"
"""Folder of the page: ``index.html``, and everything that it asks for below ``static/``."""

_LIBRARY = "vendor/maplibre-gl/maplibre-gl.mjs"
_WORKER = "vendor/maplibre-gl/maplibre-gl-worker.mjs"
_IMPORT = re.compile(r'^import [^;]*?from "\./([\w./-]+)";$', re.MULTILINE)
_STYLE = re.compile(r'<link rel="stylesheet" href="static/([\w./-]+)">')
_SCRIPT = '<script type="module" src="static/main.js"></script>'

# Blob URLs need blob:, their worker data: (MapLibre makes it of the Blob, as files have no origin).
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' blob:; style-src 'unsafe-inline'; img-src data: blob:; "
    "connect-src blob:; worker-src blob: data:; base-uri 'none'; form-action 'none'"
)

_LOADER = """
const unpack = async (id) => {
  const packed = Uint8Array.from(atob(document.getElementById(id).textContent), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
};
const address = (text) => URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
const holder = document.createElement("script");
holder.type = "application/json";
holder.id = "data";
holder.textContent = JSON.stringify(await unpack("packed-data"));
document.body.append(holder);
const { modules, library, worker } = await unpack("packed-page");
const addresses = {};
for (const [name, text] of modules)
  addresses[name] = address(
    text.replace(/^(import [^;]*?from ")\\.\\/([\\w./-]+)(";)$/gm, (_, a, other, b) => a + addresses[other] + b),
  );
(await import(addresses[library])).setWorkerUrl(address(worker));
await import(addresses["main.js"]);
"""


def html_page(data: Mapping[str, Any]) -> str:
    """Return the page with its data as one HTML document that asks for nothing else.

    Parameters
    ----------
    data
        What ``embedded.js`` reads: title, time_zone, methods (name, trips, notes), fixes, truth, network, attribution.
    """
    index = (PAGE / "index.html").read_text(encoding="utf-8")
    policy = f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    index = index.replace('<meta charset="utf-8">', f'<meta charset="utf-8">\n{policy}', 1)
    index = _STYLE.sub(lambda found: f"<style>\n{_read(found[1])}</style>", index)
    scripts = "\n".join(
        [
            f'<script type="text/plain" id="packed-page">{_packed_page()}</script>',
            f'<script type="text/plain" id="packed-data">{_packed(data)}</script>',
            f'<script type="module">{_LOADER}</script>',
        ]
    )
    return index.replace(_SCRIPT, "").replace("</body>", f"{scripts}\n</body>")


def modules_in_order() -> list[str]:
    """Return the modules that ``main.js`` needs and itself, each behind those it imports."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name in order:
            return
        if not name.startswith("vendor/"):
            for other in _IMPORT.findall(_read(name)):
                visit(other)
        order.append(name)

    visit("main.js")
    return order


@functools.cache
def _packed_page() -> str:
    modules = [(name, _read(name)) for name in modules_in_order()]
    return _packed({"modules": modules, "library": _LIBRARY, "worker": _read(_WORKER)})


def _packed(value: Any) -> str:  # noqa: ANN401  (any JSON)
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def _read(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")
