"""What past trips teach, as arrays with names for files, and what there is where none has been."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tedtrajrec.methods.base import Arrays, part_of
from tedtrajrec.methods.lattice import WITHIN_S, Past
from tedtrajrec.methods.past.drives import drives_of
from tedtrajrec.methods.past.history import order_of_past
from tedtrajrec.methods.past.links import Links, find_links
from tedtrajrec.methods.past.pace import learn_pace
from tedtrajrec.methods.past.pairs import Pairs, learn_pairs, no_pairs, pairs_state
from tedtrajrec.methods.past.passing import index_passing, no_passing, passing_state, restored_passing
from tedtrajrec.methods.past.visits import Visits, visits_of
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.table import Trips

PAST = "past."  # how names of what past trips taught begin in the state of a method
LOOKUP = "lookup."  # and behind that those of a look-up whose votes count


def learn_past(network: RoadNetwork, trips: Trips, *, most: int) -> tuple[Visits, Past]:
    """Return which segments trips of known truth visited when, and what they teach: links, pace, pairs and drives.

    Parameters
    ----------
    network
        The road network.
    trips
        The training trips.
    most
        Drives over each segment that are remembered at most, a fair sample.
    """
    drives = drives_of(network, trips)
    pace = learn_pace(network, drives)
    visits = visits_of(network, trips, pace * network.length_m)
    pairs = learn_pairs(visits, network.n_segments, within_s=WITHIN_S)
    rank = np.argsort(order_of_past(trips))
    passing = index_passing(visits, rank, network.n_segments, most=most)
    return visits, Past(find_links(drives), pace, pairs, passing)


def no_past(network: RoadNetwork) -> Past:
    """Return what is known of a city where no trip has been seen: its map, driven at the speeds this says."""
    none = np.zeros(0, np.int32)
    pace = 1 / network.speed_mps.astype(np.float64)
    return Past(Links(none, none), pace, no_pairs(network.n_segments), no_passing(network.n_segments))


def past_state(past: Past) -> Arrays:
    """Return what past trips taught as arrays."""
    parts = {
        "links.": past.links._asdict(),
        "pairs.": pairs_state(past.pairs),
        "passing.": passing_state(past.passing),
    }
    named = {part + name: array for part, arrays in parts.items() for name, array in arrays.items()}
    return {"pace": past.pace} | named


def restored_past(state: Arrays) -> Past:
    """Return what :func:`past_state` was given."""

    def part(begin: str, names: Iterable[str]) -> dict[str, Any]:
        return {name: state[f"{begin}.{name}"] for name in names}

    return Past(
        Links(**part("links", Links._fields)),
        state["pace"].astype(np.float64),
        Pairs(**part("pairs", Pairs._fields)),
        restored_passing(part("passing", passing_state(no_passing(0)))),
    )


def parted(state: Arrays) -> tuple[Arrays, Arrays]:
    """Return the weights, and what past trips taught under the names of :func:`past_state`."""
    return {name: array for name, array in state.items() if not name.startswith(PAST)}, part_of(state, PAST)
