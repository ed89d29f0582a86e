"""From sparse fixes to dense trips: the product's main job, behind all its front doors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.methods.base import Method, read_description
from tedtrajrec.methods.feasible import Feasible
from tedtrajrec.methods.learned import LearnedMethod
from tedtrajrec.methods.registry import METHODS, load_method, make_method, method_class, saved_folder
from tedtrajrec.methods.shipped import network_of
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from tedtrajrec.recovery.answers import answer
from tedtrajrec.recovery.changed import LEAST_KEPT, find_change, load_on_changed
from tedtrajrec.recovery.dense import dense_trips
from tedtrajrec.recovery.frames import frame_kind, recovered_to_frame
from tedtrajrec.recovery.grid import lay_out
from tedtrajrec.recovery.known import compare
from tedtrajrec.recovery.recovered import RecoveredTrips, Rejects, no_trips
from tedtrajrec.training.loop import choose_device
from tedtrajrec.training.profile import NETWORK, Profile, read_profile
from tedtrajrec.trips.frames import trips_from_frame
from tedtrajrec.trips.readers import read_trips
from tedtrajrec.trips.table import Trips

Decode = Literal["feasible", "greedy"]

UNTRAINED_METHODS = tuple(name for name, entry in METHODS.items() if entry.needs.of_map_alone)
UNTRAINED = (
    "No model: {method} drives the shortest ways between the fixes at the speeds of the map. A model trained on past "
    "trips of the city also knows which streets they take and how fast, and says how sure it is of every step "
    "(tedtrajrec prepare, then train)."
)


class Recoverer:
    """Recovers trips with one method on one road network.

    Make one with :meth:`load` (a trained model) or :meth:`from_network` (nothing but the map).

    Parameters
    ----------
    method
        A method that is ready for use.
    step_s, time_zone
        Of the trips it learned from.
    decode
        ``feasible``: trips that can be driven; ``greedy``: the likeliest road of each step by itself.
    profile
        What the trips it learned from are like, if that is known.
    notes
        What a user should know.
    """

    def __init__(
        self,
        method: Method[Any],
        *,
        step_s: int,
        time_zone: str,
        decode: Decode = "feasible",
        profile: Profile | None = None,
        notes: Iterable[str] = (),
    ) -> None:
        if decode not in ("feasible", "greedy"):
            raise ConfigError(f"There is no decoding '{decode}'; use feasible or greedy.")
        self.step_s, self.time_zone, self.profile = _checked_step(step_s), time_zone, profile
        self.notes = [*notes, *([method.note] if method.note else [])]
        if decode == "greedy":
            if "decode" in method.ADJUSTABLE:  # a method that decodes in several ways by itself
                method.config = dataclasses.replace(method.config, decode="greedy")
            self.notes.append("Decoded greedily: consecutive steps may not be connected by any way.")
        elif not method.drivable:
            method = Feasible(method)
        self.method = method
        self._finder = CandidateFinder(method.network)
        self._router = Router(method.network)

    @classmethod
    def load(
        cls,
        model: str | Path,
        *,
        network: str | Path | RoadNetwork | None = None,
        device: str = "auto",
        decode: Decode = "feasible",
    ) -> Recoverer:
        """Return a recoverer with a trained model.

        Parameters
        ----------
        model
            Folder of a run or of an exported model, or the name of a model that comes with tedtrajrec.
        network
            The road network, or its ``.npz`` file, if not the one the model was trained on. On a newer version of that
            one a model keeps what it learned of all segments that did not change; one of ``tedtrajrec_parallel`` works
            in other cities too.
        device
            ``cpu``, ``cuda`` or ``auto``.
        decode
            See :class:`Recoverer`.
        """
        folder = saved_folder(model)
        method, notes = _load(folder, _network_for(folder, network))
        if isinstance(method, LearnedMethod):
            method.to(choose_device(device))
        profile = read_profile(folder)
        return cls(
            method, step_s=profile.step_s, time_zone=profile.time_zone, decode=decode, profile=profile, notes=notes
        )

    @classmethod
    def from_network(
        cls,
        network: str | Path | RoadNetwork,
        *,
        method: str = "route_hmm",
        time_zone: str = "UTC",
        step_s: int = 15,
        decode: Decode = "feasible",
    ) -> Recoverer:
        """Return a recoverer that needs nothing but the map.

        Parameters
        ----------
        network
            The road network, or its ``.npz`` file.
        method
            One that works without training: ``route_hmm`` or ``linear_hmm``.
        time_zone, step_s
            Of the city, and the usual time between rows.
        decode
            See :class:`Recoverer`.
        """
        if method not in UNTRAINED_METHODS:
            method_class(method)  # an unknown name is another error
            raise ConfigError(f"{method} must be trained first; without, use {' or '.join(UNTRAINED_METHODS)}.")
        roads = network if isinstance(network, RoadNetwork) else RoadNetwork.load(network)
        note = UNTRAINED.format(method=method)
        return cls(make_method(method, roads), step_s=step_s, time_zone=time_zone, decode=decode, notes=[note])

    @property
    def network(self) -> RoadNetwork:
        """The road network of the recovered trips."""
        return self.method.network

    def __repr__(self) -> str:
        return f"Recoverer({self.method.name}, {self.method.decoding}, {self.step_s} s, {self.network!r})"

    def recover(
        self,
        data: Any,  # noqa: ANN401  (frames of several libraries)
        step_s: int | None = None,
        *,
        columns: Mapping[str, str] | None = None,
        timezone: str | None = None,
        alternatives: int = 0,
    ) -> Any:  # noqa: ANN401
        """Recover trips: a pandas, polars or geopandas frame in, the same kind out.

        Parameters
        ----------
        data
            A frame with one row per fix, :class:`~tedtrajrec.Trips`, or a file of trips.
        step_s
            Seconds from row to row; those of the model if not given.
        columns, timezone
            As for :func:`tedtrajrec.read_trips`.
        alternatives
            How many next best trips are added to each.

        Returns
        -------
        A frame of the kind that came in, with a row for each step. What could not be recovered is told in a warning of
        the class :class:`~tedtrajrec.recovery.frames.RejectedWarning`, which lists it. For trips and files,
        :class:`RecoveredTrips`, which has ``rejects``.
        """
        if isinstance(data, Trips):
            return self.recover_trips(data, step_s, alternatives=alternatives)
        if isinstance(data, str | Path):
            trips = read_trips(data, columns=columns, timezone=timezone)
            return self.recover_trips(trips, step_s, alternatives=alternatives)
        recovered = self.recover_trips(trips_from_frame(data, columns, timezone), step_s, alternatives=alternatives)
        return recovered_to_frame(recovered, frame_kind(data))

    def recover_trips(self, trips: Trips, step_s: int | None = None, *, alternatives: int = 0) -> RecoveredTrips:
        """Recover trips; those that cannot be are in ``rejects`` of the result, with the reason.

        Rows are ``step_s`` seconds apart from the first fix on, and the last one has the time of the last fix. After a
        gap of more than 30 minutes the trip goes on with a row that is marked as a break.
        """
        wanted = self.step_s if step_s is None else _checked_step(step_s)
        if alternatives < 0:
            raise ConfigError(f"There cannot be {alternatives} alternatives.")
        pieces, rejects = lay_out(trips, self._finder, self.step_s)
        if not len(pieces):
            return no_trips(rejects)
        answers = answer(
            self.method,
            self._router,
            trips,
            pieces,
            step_s=self.step_s,
            time_zone=self.time_zone,
            alternatives=alternatives,
        )
        dense = dense_trips(self._router, trips, pieces, answers, wanted)
        return dataclasses.replace(dense, rejects=Rejects.concat([rejects, dense.rejects]))

    def check(self, trips: Trips) -> list[str]:
        """Return in what ways trips are unlike those that the model learned from, each in a sentence; mostly none."""
        return compare(trips, self.network, self.profile)


def _checked_step(step_s: float) -> int:
    if not (step_s >= 1 and int(step_s) == step_s):
        raise ConfigError(f"The step is {step_s} s; it must be a whole number of seconds, at least 1.")
    return int(step_s)


def _network_for(folder: Path, network: str | Path | RoadNetwork | None) -> RoadNetwork:
    """Return the network given, or that in the folder of a model."""
    if isinstance(network, RoadNetwork):
        return network
    if network is None and not (folder / NETWORK).is_file():
        raise InputError(
            "this model comes without its road network", file=folder, remedy=f"Give it: {network_of(folder)}."
        )
    return RoadNetwork.load(folder / NETWORK if network is None else network)


def _load(folder: Path, network: RoadNetwork) -> tuple[Method[Any], list[str]]:
    """Return a saved method, and what a user should know where the network is not the one it was made for."""
    if read_description(folder)["network"] == network.hash or not (folder / NETWORK).is_file():
        return load_method(folder, network), []
    old = RoadNetwork.load(folder / NETWORK)
    change = find_change(old, network)
    if change.share < LEAST_KEPT:
        return load_method(folder, network), []
    note = f"The model was trained on an older map: {change}. It knows the new ones only by their roads and places."
    return load_on_changed(folder, old, network, change), [note]
