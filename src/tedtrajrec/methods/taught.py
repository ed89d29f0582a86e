"""What past trips taught as arrays with names, for files, and what there is where none has been."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tedtrajrec.methods.base import Arrays
from tedtrajrec.methods.lattice import Past
from tedtrajrec.methods.past.links import Links
from tedtrajrec.methods.past.pairs import Pairs, no_pairs, pairs_state
from tedtrajrec.methods.past.passing import no_passing, passing_state, restored_passing
from tedtrajrec.network.roadnet import RoadNetwork

PAST = "past."  # how names of what past trips taught begin in the state of a method


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
