"""Metrics in the Prometheus text format; with several workers they are those of all workers together."""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)


class Metrics:
    """What the service counts.

    Where ``PROMETHEUS_MULTIPROC_DIR`` is set (the service sets it for several workers), the numbers go through files in
    that folder, and any worker answers for all.
    """

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            "tedtrajrec_requests",
            "Requests by address, verb and status.",
            ("path", "verb", "status"),
            registry=registry,
        )
        self.request_seconds = Histogram(
            "tedtrajrec_request_seconds", "Time to answer.", ("path",), buckets=_SECONDS, registry=registry
        )
        self.trips = Counter("tedtrajrec_trips", "Trips recovered or matched.", ("work",), registry=registry)
        self.rejects = Counter("tedtrajrec_rejects", "Fixes and trips that could not be used.", registry=registry)
        self.batch_trips = Histogram(
            "tedtrajrec_batch_trips", "Trips done in one call.", buckets=_COUNTS, registry=registry
        )
        self.batch_requests = Histogram(
            "tedtrajrec_batch_requests", "Requests done in one call.", buckets=_COUNTS[:8], registry=registry
        )
        self.batch_seconds = Histogram(
            "tedtrajrec_batch_seconds", "Time of one call.", buckets=_SECONDS, registry=registry
        )
        self.waiting = Gauge(
            "tedtrajrec_waiting", "Requests that wait.", registry=registry, multiprocess_mode="livesum"
        )
        self.ready = Gauge(
            "tedtrajrec_ready", "Workers that have loaded the model.", registry=registry, multiprocess_mode="livesum"
        )

    def observe_batch(self, requests: int, trips: int, seconds: float) -> None:
        """Count one call."""
        self.batch_requests.observe(requests)
        self.batch_trips.observe(trips)
        self.batch_seconds.observe(seconds)

    def text(self) -> bytes:
        """Return all metrics."""
        registry = self._registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
