"""The command: signals, workers, settings and what cannot be served."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tedtrajrec.errors import ConfigError
from tedtrajrec.server.settings import make_settings
from tedtrajrec.trips.table import Trips
from tests.server.running import as_request, client_of, until


@contextlib.contextmanager
def command(log: Path, *arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[bytes], httpx.Client]]:
    """Run 'tedtrajrec serve' at a free port; it is told to stop at the end."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    line = [sys.executable, "-m", "tedtrajrec", "serve", "--port", str(port), *arguments]
    with log.open("w") as file:
        process = subprocess.Popen(line, stderr=file, env={**os.environ, "OMP_NUM_THREADS": "1", **environment})
    try:
        with client_of(f"http://127.0.0.1:{port}") as client:
            yield process, client
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)


def ready(client: httpx.Client) -> bool:
    try:
        return client.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False


def test_requests_in_flight_are_answered_before_it_stops(network_file: Path, sparse: Trips, tmp_path: Path) -> None:
    with command(tmp_path / "log", "--network", str(network_file)) as (process, client):
        until(lambda: ready(client))
        answers: list[httpx.Response] = []

        def ask() -> None:
            with client_of(str(client.base_url)) as own:
                answers.append(own.post("/v1/recover", json=as_request(sparse, step_s=1)))

        clients = [threading.Thread(target=ask) for _ in range(6)]
        for thread in clients:
            thread.start()
        until(lambda: 'path="/metrics"' in client.get("/metrics").text)
        # the first is being recovered, others wait
        until(lambda: "tedtrajrec_waiting 0.0" not in client.get("/metrics").text or len(answers) > 0)
        process.send_signal(signal.SIGTERM)
        for thread in clients:
            thread.join(60)
        assert [answer.status_code for answer in answers] == [200] * 6
        assert process.wait(60) == 0
        assert not ready(client)


def test_several_workers_count_together_and_stop_together(network_file: Path, one: Trips, tmp_path: Path) -> None:
    secret = "0123456789abcdef"
    arguments = "--network", str(network_file), "--workers", "2"
    with command(tmp_path / "log", *arguments, TEDTRAJREC_TOKEN=secret) as (process, client):
        client.headers["Authorization"] = f"Bearer {secret}"
        until(lambda: ready(client) and "tedtrajrec_ready 2.0" in client.get("/metrics").text, 120)
        for _ in range(12):
            with client_of(str(client.base_url)) as own:
                own.headers["Authorization"] = f"Bearer {secret}"
                assert own.post("/v1/recover", json=as_request(one)).status_code == 200
        text = client.get("/metrics").text
        assert 'tedtrajrec_requests_total{path="/v1/recover",status="200",verb="POST"} 12.0' in text
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_what_cannot_be_loaded_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "network.npz").write_bytes(b"rubbish")
    with command(tmp_path / "log", "--network", str(tmp_path / "network.npz")) as (process, _):
        assert process.wait(60) == 2
        text = (tmp_path / "log").read_text()
        assert "network.npz" in text.splitlines()[-1]
        assert "Traceback" not in text


def test_a_taken_port_is_said_in_words(network_file: Path) -> None:
    from tedtrajrec.server.run import run_server

    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="Cannot listen"):
        run_server(make_settings(network=network_file, port=taken.getsockname()[1]))


def test_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="run folder"):
        make_settings()
    with pytest.raises(ConfigError, match="port"):
        make_settings(network="n.npz", port=99_999)
    with pytest.raises(ConfigError, match="needs --examples"):
        make_settings(network="n.npz", truth="t.csv")
    monkeypatch.setenv("TEDTRAJREC_LIMITS__POINTS", "17")
    monkeypatch.setenv("TEDTRAJREC_PORT", "9000")
    monkeypatch.setenv("TEDTRAJREC_TOKEN", "0123456789abcdef")
    found = make_settings(network="n.npz", port=9001)
    assert (found.limits.points, found.port, found.read_token()) == (17, 9001, "0123456789abcdef")
    assert "0123456789abcdef" not in repr(found)
    assert not found.is_open
    assert make_settings(network="n.npz", host="0.0.0.0").is_open
    monkeypatch.setenv("TEDTRAJREC_TOKEN", "short")
    with pytest.raises(ConfigError, match="16"):
        make_settings(network="n.npz").read_token()
    monkeypatch.delenv("TEDTRAJREC_TOKEN")
    with pytest.raises(ConfigError, match="token"):
        make_settings(network="n.npz", token_file=tmp_path / "none").read_token()
