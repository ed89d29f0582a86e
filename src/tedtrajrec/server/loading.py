"""What the service serves: the model, the untrained method beside it, the matcher, the network and examples."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from tedtrajrec.errors import InputError
from tedtrajrec.methods.feasible import Feasible
from tedtrajrec.methods.registry import describe_method, saved_folder
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.recovery.recoverer import Recoverer
from tedtrajrec.server.network_map import NetworkMap
from tedtrajrec.server.settings import ServerSettings
from tedtrajrec.trips.match import Matcher
from tedtrajrec.trips.readers import read_trips
from tedtrajrec.trips.table import Trips, as_text

logger = logging.getLogger("tedtrajrec.server")

Decode = Literal["feasible", "greedy"]

_BESIDE = "route_hmm"  # the page compares a model with it
_MOST_EXAMPLES = 100


@dataclass(eq=False)
class ServedMethod:
    """A method by its name; requests choose how it decodes, and the second way is loaded when first asked for."""

    name: str
    description: str
    load: Callable[[Decode], Recoverer]
    usual: Decode
    _loaded: dict[Decode, Recoverer] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def loaded(self, decode: Decode | None = None) -> Recoverer | None:
        """Return what recovers trips, if it is there already."""
        return self._loaded.get(decode or self.usual)

    def recoverer(self, decode: Decode | None = None) -> Recoverer:
        """Return what recovers trips; call it outside the event loop."""
        wanted = decode or self.usual
        with self._lock:
            if wanted not in self._loaded:
                self._loaded[wanted] = self.load(wanted)
            return self._loaded[wanted]


@dataclass(frozen=True, eq=False)
class Served:
    """All that requests are answered with."""

    methods: dict[str, ServedMethod]  # the first is the default
    network: RoadNetwork
    attribution: str | None
    matcher: Matcher
    map: NetworkMap
    examples: list[dict[str, Any]]

    @property
    def default(self) -> ServedMethod:
        """The method of requests that name none."""
        return next(iter(self.methods.values()))


def load_served(settings: ServerSettings) -> Served:
    """Load everything, and recover one trip with each method, so that the first client need not wait for compilers."""
    first = _load_first(settings)
    recoverer = first.recoverer()
    methods = {first.name: first}
    if _BESIDE not in methods:
        methods[_BESIDE] = ServedMethod(
            _BESIDE,
            describe_method(_BESIDE),
            lambda decode: Recoverer.from_network(
                recoverer.network,
                method=_BESIDE,
                time_zone=recoverer.time_zone,
                step_s=recoverer.step_s,
                decode=decode,
            ),
            settings.decode,
        )
    network = recoverer.network
    attribution = network.meta.get("attribution") or None
    trip = _made_up_trip(network)
    for method in methods.values():
        method.recoverer().recover_trips(trip)
    matcher = Matcher(network)
    matcher.match(trip)
    return Served(
        methods,
        network,
        attribution,
        matcher,
        NetworkMap(network, attribution, settings.limits.segments),
        _read_examples(settings),
    )


def _load_first(settings: ServerSettings) -> ServedMethod:
    found = None if settings.model is None else _stamp(settings.model)

    def load(decode: Decode) -> Recoverer:
        if settings.model is not None:
            if _stamp(settings.model) != found:
                raise InputError(
                    "the model is another one than when the service started",
                    file=settings.model,
                    remedy="Start the service again to use it.",
                )
            return Recoverer.load(settings.model, network=settings.network, device=settings.device, decode=decode)
        if settings.network is None:
            raise InputError("there is neither a model nor a network")
        return Recoverer.from_network(
            settings.network,
            method=settings.method,
            time_zone=settings.timezone,
            step_s=settings.step_s,
            decode=decode,
        )

    recoverer = load(settings.decode)
    method = recoverer.method.method if isinstance(recoverer.method, Feasible) else recoverer.method
    description = describe_method(method.name)
    served = ServedMethod(method.name, description, load, settings.decode)
    served._loaded[settings.decode] = recoverer  # noqa: SLF001  (made here)
    return served


def _stamp(model: str) -> list[tuple[int, ...] | None]:
    """Return what tells the files of a model from others that take their place."""
    files = [saved_folder(model) / name for name in ("config.json", "model.safetensors")]
    stats = [file.stat() if file.is_file() else None for file in files]
    return [None if stat is None else (stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats]


def _made_up_trip(network: RoadNetwork, segments: int = 8) -> Trips:
    """Return a short drive over segments that follow each other."""
    here = int(np.argmax(np.diff(network.succ_offset)))
    way = [here]
    while len(way) < segments and len(after := network.successors(way[-1])):
        way.append(int(after[len(way) % len(after)]))
    lon, lat = network.point_at(way, np.full(len(way), 0.5))
    seconds = np.cumsum(network.length_m[way] / network.speed_mps[way] + 1).astype(np.int64)
    return Trips(
        traj_id=as_text(["made up"]),
        offsets=np.array([0, len(way)]),
        time=1_700_000_000 + seconds,
        lon=lon,
        lat=lat,
    )


def _read_examples(settings: ServerSettings) -> list[dict[str, Any]]:
    """Return the sparse trips that clients may try, with the truth where it is known."""
    if settings.examples is None:
        return []
    sparse = read_trips(settings.examples, timezone=settings.timezone)
    sparse = sparse.select(np.arange(min(len(sparse), _MOST_EXAMPLES)))
    whole: dict[str, dict[str, Any]] = {}
    if settings.truth is not None:
        truth = read_trips(settings.truth, timezone=settings.timezone)
        wanted = set(sparse.traj_id.tolist())
        whole = {name: _columns(truth, i) for i, name in enumerate(truth.traj_id.tolist()) if name in wanted}
    return [
        {"traj_id": name, "points": _points(_columns(sparse, i)), "truth": whole.get(name)}
        for i, name in enumerate(sparse.traj_id.tolist())
    ]


def _columns(trips: Trips, number: int) -> dict[str, Any]:
    rows = slice(int(trips.offsets[number]), int(trips.offsets[number + 1]))
    return {
        "timestamp": trips.time[rows].tolist(),
        "lon": trips.lon[rows].tolist(),
        "lat": trips.lat[rows].tolist(),
        "segment": None if trips.segment is None else [s if s >= 0 else None for s in trips.segment[rows].tolist()],
        "ratio": None if trips.ratio is None else trips.ratio[rows].tolist(),
    }


def _points(columns: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"lon": lon, "lat": lat, "timestamp": time}
        for lon, lat, time in zip(columns["lon"], columns["lat"], columns["timestamp"], strict=True)
    ]
