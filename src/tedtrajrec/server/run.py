"""Running the service: sockets, workers, signals."""

from __future__ import annotations

import logging
import os
import signal
import socket
import tempfile
import threading
import time
from functools import partial
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.supervisors import Multiprocess

from tedtrajrec.errors import ConfigError
from tedtrajrec.server.app import create_app
from tedtrajrec.server.connections import PromptProtocol
from tedtrajrec.server.loading import load_served
from tedtrajrec.server.settings import ServerSettings

logger = logging.getLogger("tedtrajrec.server")


def run_server(settings: ServerSettings) -> None:
    """Serve until a signal says to stop; requests that are being answered are finished first.

    Raises
    ------
    TedtrajrecError
        If the model cannot be loaded or the address is taken.
    """
    settings.read_token()  # a bad one is told at once
    if settings.workers == 1:
        _run_one(settings)
    else:
        _run_several(settings)


def config_for(settings: ServerSettings, app: Any) -> uvicorn.Config:  # noqa: ANN401  (an app or what makes one)
    """Return how uvicorn serves an app, or a function that makes one."""
    return uvicorn.Config(
        app,
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        http=PromptProtocol,
        ws="none",
        lifespan="on",
        server_header=False,
        log_config=_logging(),
        timeout_keep_alive=5,
        timeout_graceful_shutdown=settings.shutdown_seconds,
        timeout_worker_healthcheck=60,  # a busy worker holds the interpreter for seconds when kernels are compiled
        h11_max_incomplete_event_size=16 << 10,
    )


def _run_one(settings: ServerSettings) -> None:
    failures: list[Exception] = []

    def on_failure(error: Exception) -> None:
        failures.append(error)
        server.should_exit = True

    server = uvicorn.Server(config_for(settings, partial(create_app, settings, on_failure=on_failure)))
    with _bind(settings) as listening:
        _tell(settings, listening)
        before = signal.signal(signal.SIGTERM, _ignore)  # uvicorn raises it again when all is done
        try:
            server.run(sockets=[listening])
        except KeyboardInterrupt:
            pass  # likewise
        finally:
            signal.signal(signal.SIGTERM, before)
    if failures:
        raise failures[0]


def _run_several(settings: ServerSettings) -> None:
    load_served(settings)  # what cannot be loaded is told once, and kernels are compiled once
    with tempfile.TemporaryDirectory(prefix="tedtrajrec-") as folder, _bind(settings) as listening:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        _tell(settings, listening)
        try:
            Multiprocess(config_for(settings, partial(_worker, settings, os.getpid())), [listening]).run()
        finally:
            del os.environ["PROMETHEUS_MULTIPROC_DIR"]


def _worker(settings: ServerSettings, parent: int) -> FastAPI:
    """Return the app of a worker, which stops when its parent is gone, however that ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent", daemon=True).start()
    return create_app(settings)


def _bind(settings: ServerSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((settings.host, settings.port))
        listening.set_inheritable(True)
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"Cannot listen at {settings.host} port {settings.port}: {reason}.") from error
    return listening


def _tell(settings: ServerSettings, listening: socket.socket) -> None:
    logging.config.dictConfig(_logging())
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    logger.info("Serving at http://%s:%d/ (Ctrl-C stops)", host, listening.getsockname()[1])
    if settings.is_open and settings.read_token() is None:
        logger.warning("Other machines can use this service without a token; --token-file sets one")


def _logging() -> dict[str, Any]:
    """Return how messages are written: uvicorn's manner, ours among them, all on standard error."""
    config: dict[str, Any] = {**uvicorn.config.LOGGING_CONFIG}
    config["handlers"] = {
        name: {**handler, "stream": "ext://sys.stderr"} for name, handler in config["handlers"].items()
    }
    ours = {"handlers": ["default"], "level": "INFO", "propagate": False}
    config["loggers"] = {**config["loggers"], "tedtrajrec.server": ours}
    return config


def _ignore(*_: object) -> None:
    pass
