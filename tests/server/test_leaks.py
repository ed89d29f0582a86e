"""What answers and the log tell, whatever goes wrong: no path, no stack trace, no token, no id in the log."""

from __future__ import annotations

import dataclasses
import re
import shutil
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from tedtrajrec.errors import InputError, OutputError
from tedtrajrec.methods.registry import make_method
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.recovery.recoverer import Recoverer
from tedtrajrec.server import guard
from tedtrajrec.server.loading import Served, load_served
from tedtrajrec.server.problems import KINDS
from tedtrajrec.server.settings import Limits, ServerSettings
from tedtrajrec.trips.table import Trips, as_text
from tests.server.running import as_request, running

TOKEN = "a-token-that-nobody-may-read-4711"
SECRET = "/srv/somebody/secret.npz"
LEAKS = re.compile(r"Traceback|File \"|\.py\b|site-packages|/tmp|/srv|/home|/root|/usr|0x[0-9a-f]{6}|Error\b")
FAULT = "a fault of the service; its log says more"
JSON = "application/json"
BAD_BODIES = [
    (b"{", JSON), (b"[" * 9_000, JSON), (b" " * 30_000, JSON), (b"", JSON), (b"\x93NUMPY", "text/csv"),
    (b"<gpx>", "application/gpx+xml"), (b"\x1f\x8brubbish", "text/csv"), (b"{}", "image/png"),
]  # fmt: skip
HALF_A_BODY = (
    f"POST /v1/recover HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    f"Content-Type: {JSON}\r\nContent-Length: 99\r\n\r\n{{"
).encode()


class Fails:
    """Stands for a method with a fault."""

    step_s, notes = 15, ()

    def __init__(self, error: Exception) -> None:
        self.error = error

    def recover_trips(self, *_: Any, **__: Any) -> None:
        raise self.error

    def check(self, *_: Any) -> list[str]:
        return []


def failing(served: Served, error: Exception) -> Served:
    """Return what is served, with a method that fails."""
    method = dataclasses.replace(served.default, _loaded={"feasible": Fails(error)})
    return dataclasses.replace(served, methods={method.name: method})


def assert_tells_nothing(answer: httpx.Response) -> None:
    text = "\n".join([*(f"{name}: {value}" for name, value in answer.headers.items()), answer.text])
    assert not LEAKS.search(text), text
    assert TOKEN not in text


@pytest.fixture
def guarded(settings: ServerSettings) -> ServerSettings:
    """Return settings of a service with a token and tight limits."""
    limits = Limits(body_bytes=20_000, body_seconds=0.5)
    return settings.model_copy(update={"token": SecretStr(TOKEN), "limits": limits})


def test_every_problem_tells_nothing_but_itself(
    guarded: ServerSettings, served: Served, one: Trips, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setattr(guard, "_LINGER_S", 0.1)
    with running(guarded, lambda _: served) as http:
        answers = [*refused(http, one), raw(http, b"rubbish\r\n\r\n"), raw(http, HALF_A_BODY)]
    full = guarded.model_copy(update={"limits": Limits(held_bytes=1024)})
    broken = dataclasses.replace(served, map=None)  # type: ignore[arg-type]
    for settings, what in ((full, served), (guarded, broken), (guarded, FileNotFoundError(2, "No such file", SECRET))):
        with running(settings, lambda _, what=what: _given(what), wait=what is served) as http:
            http.headers["Authorization"] = f"Bearer {TOKEN}"
            answers.append(http.post("/v1/recover", content=b" " * 5_000, headers={"Content-Type": JSON}))
            answers.append(http.get("/v1/network"))
    problems = [answer for answer in answers if answer.status_code >= 400]
    for answer in problems:
        assert_tells_nothing(answer)
    assert {answer.status_code for answer in problems} == {status for status, _ in KINDS.values()}
    log = capsys.readouterr().err
    assert TOKEN not in log
    assert SECRET in log  # there it belongs


def refused(http: httpx.Client, one: Trips) -> list[httpx.Response]:
    """Ask all addresses for what they refuse."""
    addresses = [("POST", "/v1/recover"), ("POST", "/v1/match")]
    addresses += [("GET", path) for path in ("/v1/network", "/v1/methods", "/v1/examples", "/metrics")]
    answers = [http.request(verb, path) for verb, path in addresses]  # without the token
    http.headers["Authorization"] = f"Bearer {TOKEN}"
    answers += [http.request("PUT", path) for _, path in addresses]
    for path in ("/v1/recover", "/v1/match"):
        answers += [http.post(path, content=body, headers={"Content-Type": kind}) for body, kind in BAD_BODIES]
    for option in ({"timezone": "../../etc/passwd"}, {"method": "/etc/passwd"}, {"step_s": -1}):
        answers.append(http.post("/v1/recover", json=as_request(one, **option)))
    paths = ("/v1/network?bbox=x", "/static/%2e%2e/%2e%2e/x", "/static/%00", "/etc/passwd")
    answers += [http.get(path) for path in paths]
    answers.append(http.get("/v1/methods", headers={"Host": "evil.example"}))
    assert all(answer.status_code >= 400 for answer in answers)
    return answers


def _given(what: Served | Exception) -> Served:
    if isinstance(what, Exception):
        raise what
    return what


def raw(http: httpx.Client, request: bytes) -> httpx.Response:
    """Send bytes that may be no request, and return the answer."""
    with socket.create_connection((http.base_url.host, http.base_url.port or 80)) as connection:
        connection.sendall(request)
        connection.settimeout(20)
        head, _, body = b"".join(iter(lambda: connection.recv(65536), b"")).partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return httpx.Response(int(first.split()[1]), headers=headers, content=body)


@pytest.mark.parametrize("error", [RuntimeError(SECRET), OutputError(SECRET), InputError("it is bad", file=SECRET)])
def test_a_trip_that_fails_tells_nothing_of_the_fault(
    error: Exception, settings: ServerSettings, served: Served, one: Trips, capsys: pytest.CaptureFixture[str]
) -> None:
    named = one.replace(traj_id=as_text(["anna-4711"]))
    with running(settings, lambda _: failing(served, error)) as http:
        answer = http.post("/v1/recover", json=as_request(named))
        assert_tells_nothing(answer)
        (reject,) = answer.json()["rejects"]
        assert reject["reason"] == ("it is bad" if isinstance(error, InputError) else FAULT)
    log = capsys.readouterr().err
    assert (SECRET in log) != isinstance(error, InputError)
    assert "anna" not in log


def test_good_answers_tell_no_path(http: httpx.Client, settings: ServerSettings, one: Trips) -> None:
    answers = [http.get(path) for path in ("/v1/methods", "/v1/network", "/v1/examples", "/metrics", "/healthz")]
    answers += [http.post(path, json=as_request(one)) for path in ("/v1/recover", "/v1/match")]
    assert settings.network is not None
    for answer in answers:
        assert answer.status_code == 200
        assert str(settings.network.parent) not in answer.text
        assert "site-packages" not in answer.text


@pytest.mark.parametrize("replaced", ["by another model", "by nothing"])
def test_a_model_that_is_replaced_while_it_serves(
    replaced: str, city: RoadNetwork, network_file: Path, one: Trips, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    make_method("route_hmm", city).save(folder)
    shutil.copy(network_file, folder / "network.npz")
    (folder / "profile.json").write_text(f'{{"step_s": 15, "time_zone": "UTC", "network": "{city.hash}"}}')
    settings = ServerSettings(model=str(folder))
    served = load_served(settings)
    before = Recoverer.load(folder).recover_trips(one).segment.tolist()
    shutil.rmtree(folder)
    if replaced == "by another model":
        make_method("linear_hmm", city).save(folder)
    with running(settings, lambda _: served) as http:
        (trip,) = http.post("/v1/recover", json=as_request(one)).raise_for_status().json()["trips"]
        assert trip["segment"] == before  # what is loaded is what answers
        answer = http.post("/v1/recover", json=as_request(one, decode="greedy"))  # is loaded when first asked for
        assert answer.status_code == 503
        assert answer.headers["retry-after"]
        assert_tells_nothing(answer)
