"""Requests that mean harm or come from broken programs are refused cleanly, and others are answered meanwhile."""

from __future__ import annotations

import contextlib
import gzip
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tedtrajrec.server import connections
from tedtrajrec.server.loading import Served
from tedtrajrec.server.settings import Limits, ServerSettings
from tedtrajrec.trips.table import Trips
from tests.server.running import as_request, client_of, running, until

JSON = {"Content-Type": "application/json"}


def problem(answer: httpx.Response, status: int) -> dict[str, object]:
    """Check that an answer is a problem without anything of our insides, and return it."""
    assert answer.status_code == status, answer.text[:500]
    assert answer.headers["content-type"] == "application/problem+json"
    for word in ("Traceback", "/tmp", "site-packages", ".py", "/work"):
        assert word not in answer.text
    found: dict[str, object] = answer.json()
    assert found["status"] == status
    return found


def answers_others(http: httpx.Client, one: Trips) -> None:
    with client_of(str(http.base_url)) as client:
        assert client.post("/v1/recover", json=as_request(one)).status_code == 200


def test_200_mb_are_refused_by_their_declared_size(http: httpx.Client, one: Trips) -> None:
    chunk = bytes(1 << 20)
    body = (chunk for _ in range(200))
    answer = http.post("/v1/recover", content=body, headers={**JSON, "Content-Length": str(200 << 20)})
    problem(answer, 413)
    answers_others(http, one)


def test_10_million_points_are_refused_while_they_stream(http: httpx.Client, one: Trips) -> None:
    point = b'{"lon":10.0,"lat":50.0,"timestamp":1500000000},'
    sent = 0

    def stream() -> Iterator[bytes]:
        nonlocal sent
        yield b'{"trips":[{"traj_id":"a","points":['
        for _ in range(1000):
            sent += 10_000
            yield point * 10_000

    problem(http.post("/v1/recover", content=stream(), headers=JSON), 413)
    answers_others(http, one)


def test_too_many_points_are_refused_before_they_are_parsed(http: httpx.Client) -> None:
    point = b'{"lon":10.0,"lat":50.0,"timestamp":1500000000}'
    body = b'{"trips":[{"traj_id":"a","points":[' + b",".join([point] * 250_000) + b"]}]}"
    assert "points" in str(problem(http.post("/v1/recover", content=body, headers=JSON), 413)["detail"])


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "181", "true", '"10"', "null"])
def test_numbers_that_are_no_longitudes(http: httpx.Client, number: str) -> None:
    body = '{"trips":[{"traj_id":"a","points":[{"lon":?,"lat":50,"timestamp":1500000000}]}]}'.replace("?", number)
    found = problem(http.post("/v1/recover", content=body, headers=JSON), 422)
    assert found["field"] in {"trips[0].points[0].lon", None}


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"trips":['])
@pytest.mark.parametrize("closed", [True, False])
def test_deep_json(http: httpx.Client, one: Trips, opening: str, closed: bool) -> None:
    depth = 1_000_000
    closing = "".join({"[": "]", "{": "}"}[sign] for sign in reversed(opening) if sign in "[{")
    body = opening * depth + ("1" + closing * depth if closed else "")
    problem(http.post("/v1/recover", content=body, headers=JSON), 422)
    answers_others(http, one)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"\xff\xfe\x00",
        b'{"trips":[]}',
        b'{"trips":[{"traj_id":"a","points":[]}]}',
        b'{"trips":[{"traj_id":"","points":[{"lon":1,"lat":1,"timestamp":1500000000}]}]}',
        b'{"trips":[{"traj_id":"\\ud800","points":[{"lon":1,"lat":1,"timestamp":1500000000}]}]}',
        b'{"trips":[{"traj_id":"a","points":[{"lon":1,"lat":1,"timestamp":1e300}]}]}',
        b'{"trips":[{"traj_id":"a","points":[{"lon":1,"lat":1,"timestamp":' + b"9" * 5000 + b"}]}]}",
        b'{"trips":[{"traj_id":"a","points":[{"lon":1,"lat":1,"timestamp":"yesterday at noon"}]}]}',
        b'{"trips":[{"traj_id":"a","points":[{"lon":1,"lat":1,"timestamp":"1500000000"}]}]}',
        b'{"trips":[{"traj_id":"a","points":[{"lon":1,"lat":1,"timestamp":"2013-02-30T00:00:00Z"}]}]}',
        b'{"trips":[{"traj_id":"a","points":[{"lon":1,"lat":1,"timestamp":1500000000,"x":1}]}]}',
        b'{"trip":[{"traj_id":"a","points":[{"lon":1,"lat":1,"timestamp":1500000000}]}]}',
        b'{"step_s":0,"trips":[{"traj_id":"a","points":[{"lon":1,"lat":1,"timestamp":1500000000}]}]}',
        b'{"timezone":"../../etc/passwd","trips":[{"traj_id":"a","points":[{"lon":1,"lat":1,"timestamp":1500000000}]}]}',
        b'{"timezone":"/etc/passwd","trips":[{"traj_id":"a","points":[{"lon":1,"lat":1,"timestamp":1500000000}]}]}',
    ],
)
def test_rubbish(http: httpx.Client, body: bytes) -> None:
    for path in ("/v1/recover", "/v1/match"):
        problem(http.post(path, content=body, headers=JSON), 422)


@pytest.mark.parametrize("media_type", ["text/csv", "application/gpx+xml", "application/geo+json"])
@pytest.mark.parametrize(
    "body",
    [
        b"rubbish",
        b"\x00\x01\x02",
        b"a,b\n1,2\n",
        b"<gpx></gpx>",
        b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aa">]><gpx><trk><name>&a;</name></trk></gpx>',
        b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><gpx>&a;</gpx>',
        b'{"type":"FeatureCollection","features":[]}',
        b"traj_id,timestamp,lon,lat\na,noon,1,2\n",
        gzip.compress(b"rubbish", mtime=0),
        gzip.compress(b"rubbish" * 1000, mtime=0)[:-9],
    ],
)
def test_rubbish_files(http: httpx.Client, media_type: str, body: bytes) -> None:
    found = problem(http.post("/v1/recover", content=body, headers={"Content-Type": media_type}), 422)
    assert "passwd" not in str(found)


def test_packed_files_unpack_to_no_more_than_a_body(http: httpx.Client) -> None:
    bomb = gzip.compress(bytes(200 << 20), 9)
    assert len(bomb) < 1 << 20
    problem(http.post("/v1/recover", content=bomb, headers={"Content-Type": "text/csv"}), 413)
    twice = gzip.compress(gzip.compress(b"traj_id,timestamp,lon,lat\n", mtime=0))
    problem(http.post("/v1/recover", content=twice, headers={"Content-Type": "text/csv"}), 415)
    problem(http.post("/v1/recover", content=b"PAR1....PAR1", headers={"Content-Type": "text/csv"}), 415)
    problem(http.post("/v1/recover", content=bomb, headers={**JSON, "Content-Encoding": "gzip"}), 415)


@pytest.mark.parametrize("media_type", ["", "text/plain", "application/xml", "multipart/form-data; boundary=x"])
def test_other_types(http: httpx.Client, media_type: str) -> None:
    problem(http.post("/v1/recover", content=b"x", headers={"Content-Type": media_type}), 415)


def test_epoch_times_of_javascript_are_named(http: httpx.Client) -> None:
    body = {"trips": [{"traj_id": "a", "points": [{"lon": 1, "lat": 1, "timestamp": 1_500_000_000_000}]}]}
    found = problem(http.post("/v1/recover", json=body), 422)
    assert found["field"] == "trips[0].points[0].timestamp"


@pytest.mark.parametrize(
    "path",
    [
        "/static/../../../../etc/passwd",
        "/static/%2e%2e/%2e%2e/__init__.py",
        "/static/..%2f..%2f__init__.py",
        "/static//etc/passwd",
        "/static/%00",
        "/static/vendor",
        "/v1/../../etc/passwd",
        "/v1/recover/../../../etc/passwd",
        "/" + "a" * 5000,
    ],
)
def test_paths_lead_nowhere(http: httpx.Client, path: str) -> None:
    host, port = http.base_url.host, http.base_url.port
    with socket.create_connection((host, port or 80)) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b"application/problem+json" in answer
    assert b"root:" not in answer


def test_names_from_clients_are_only_names(http: httpx.Client, one: Trips) -> None:
    body = as_request(one)
    for name in ("../../../tmp/x", "a/b\\c", "\u0000", "<script>", "x" * 200, "..", "🚕"):
        body["trips"][0]["traj_id"] = name
        for accept in ("application/json", "application/geo+json"):
            answer = http.post("/v1/recover", json=body, headers={"Accept": accept})
            assert answer.status_code == 200, (name, answer.text)
            trips = answer.json().get("trips") or [f["properties"] for f in answer.json()["features"]]
            assert trips[0]["traj_id"] == name
    body["trips"][0]["traj_id"] = "x" * 201
    problem(http.post("/v1/recover", json=body), 422)


def test_not_http(http: httpx.Client) -> None:
    with socket.create_connection((http.base_url.host, http.base_url.port or 80)) as connection:
        connection.sendall(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in answer


def test_other_verbs(http: httpx.Client) -> None:
    for verb in ("PUT", "DELETE", "PATCH", "TRACE", "BREW", "GET"):
        answer = http.request(verb, "/v1/recover")
        assert problem(answer, 405)["detail"] == "This address takes POST."
        assert answer.headers["allow"] == "POST"


def test_slow_clients_are_cut_off_and_keep_nobody_waiting(
    settings: ServerSettings, served: Served, one: Trips, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 1.0)
    quick = settings.model_copy(update={"limits": Limits(body_seconds=1.0)})
    with running(quick, lambda _: served) as http:
        address = http.base_url.host, http.base_url.port or 80
        head = b"POST /v1/recover HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        dribbled = [socket.create_connection(address) for _ in range(20)]
        bodies = [socket.create_connection(address) for _ in range(20)]
        silent = [socket.create_connection(address) for _ in range(20)]
        started = time.monotonic()
        for connection in dribbled:
            connection.sendall(head[:30])
        for connection in bodies:
            connection.sendall(head + b'Content-Length: 100\r\n\r\n{"trips"')
        answers_others(http, one)
        for connection in bodies:
            connection.settimeout(20)
            assert connection.recv(65536).startswith(b"HTTP/1.1 408 ")
        for connection in (*dribbled, *silent):
            connection.settimeout(20)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""
        assert time.monotonic() - started > 0.9
        for connection in (*dribbled, *bodies, *silent):
            connection.close()
        answers_others(http, one)


def test_a_client_that_goes_away_is_forgotten(settings: ServerSettings, served: Served, one: Trips) -> None:
    with running(settings, lambda _: served) as http:
        with pytest.raises(httpx.TimeoutException), client_of(str(http.base_url)) as hasty:
            hasty.post("/v1/recover", json=as_request(one, step_s=1), timeout=0.001)
        until(lambda: "tedtrajrec_waiting 0.0" in http.get("/metrics").text)
        answers_others(http, one)


def test_bodies_of_all_clients_together_have_a_limit(settings: ServerSettings, served: Served, one: Trips) -> None:
    tight = settings.model_copy(update={"limits": Limits(held_bytes=1 << 20)})
    with running(tight, lambda _: served) as http:
        answer = http.post("/v1/recover", content=b" " * (2 << 20), headers=JSON)
        assert problem(answer, 429)
        assert answer.headers["retry-after"]
        answers_others(http, one)  # what was refused is not counted any more


def test_many_bad_requests_among_good_ones(http: httpx.Client, one: Trips) -> None:
    good = as_request(one)
    bad = [b"{", b'{"trips":[{"traj_id":"a","points":[{"lon":NaN,"lat":1,"timestamp":1}]}]}', b"[" * 1000]

    def ask(number: int) -> int:
        with client_of(str(http.base_url)) as client:
            if number % 2:
                return client.post("/v1/recover", json=good).status_code
            return client.post("/v1/recover", content=bad[number % 3], headers=JSON).status_code

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(40))) == [422, 200] * 20
