"""The description of the interface as a page: plain HTML without scripts, so that it works offline."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from html import escape
from typing import Any

from tedtrajrec.server.problems import KINDS

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f24; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
code, pre { font: .875rem/1.45 ui-monospace, monospace; }
pre { background: #f4f5f7; padding: .8rem; overflow: auto; border-radius: 6px; }
.verb { color: #fff; background: #1f5f8b; border-radius: 4px; padding: .1rem .5rem; margin-right: .4rem; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0; }
td, th { text-align: left; vertical-align: top; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid #e3e5e8; }
@media (prefers-color-scheme: dark) {
  body { background: #14171a; color: #e6e8ea; } pre { background: #20252a; } a { color: #7cc4f5; }
  td, th { border-color: #333a41; }
}
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""Content security policy of the page."""


def docs_page(description: dict[str, Any]) -> str:
    """Return the page of an OpenAPI description."""
    return "".join(_page(description))


def _page(description: dict[str, Any]) -> Iterator[str]:
    info = description["info"]
    yield f"<!doctype html><html lang=en><head><meta charset=utf-8><title>{escape(info['title'])}</title>"
    yield '<meta name=viewport content="width=device-width, initial-scale=1">'
    yield f"<style>{_STYLE}</style></head><body><h1>{escape(info['title'])} {escape(info['version'])}</h1>"
    yield f"<p>{escape(info['description'])}</p>"
    yield '<p>For programs: <a href="openapi.json">openapi.json</a> (OpenAPI 3.1). The map: <a href="./">here</a>.</p>'
    for path, operations in description["paths"].items():
        for verb, operation in operations.items():
            yield from _operation(path, verb, operation)
    yield "<h2 id=problems>Problems</h2><p>Errors are <code>application/problem+json</code>.</p><table>"
    for kind, (status, title) in KINDS.items():
        yield f"<tr id={kind}><td>{status}</td><td><code>{kind}</code></td><td>{escape(title)}</td></tr>"
    yield "</table><h2>Schemas</h2>"
    for name, schema in description["components"]["schemas"].items():
        yield f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary>'
        yield f"<pre>{escape(json.dumps(schema, indent=2, ensure_ascii=False))}</pre></details>"
    yield "</body></html>"


def _operation(path: str, verb: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"<h2><code class=verb>{verb.upper()}</code> <code>{escape(path)}</code></h2>"
    yield f"<p>{escape(operation.get('description', ''))}</p>"
    if parameters := operation.get("parameters"):
        yield "<table><tr><th>parameter</th><th></th></tr>"
        for parameter in parameters:
            yield f"<tr><td><code>{escape(parameter['name'])}</code></td>"
            yield f"<td>{escape(parameter.get('description', ''))}</td></tr>"
        yield "</table>"
    if body := operation.get("requestBody"):
        yield f"<p>Body: {_contents(body['content'])}</p>"
    yield "<table><tr><th>status</th><th>content</th><th></th></tr>"
    for status, answer in operation["responses"].items():
        yield f"<tr><td>{status}</td><td>{_contents(answer.get('content', {}))}</td>"
        yield f"<td>{escape(answer['description'])}</td></tr>"
    yield "</table>"


def _contents(content: dict[str, Any]) -> str:
    return ", ".join(f"<code>{escape(name)}</code>{_link(value)}" for name, value in content.items())


def _link(value: dict[str, Any]) -> str:
    name = value.get("schema", {}).get("$ref", "").rpartition("/")[2]
    return f' (<a href="#{escape(name)}">{escape(name)}</a>)' if name else ""
