"""A model on a newer version of its map: what it learned of segments that did not change is kept.

Segments have no names that last, so old and new ones are told to be the same by their geometry: both ends and the
middle lie within 5 m of each other, and the lengths within 2 %.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
from numpy.typing import NDArray
from safetensors.numpy import load_file
from scipy.spatial import cKDTree

from tedtrajrec.config import from_dict
from tedtrajrec.errors import InputError
from tedtrajrec.methods.base import Arrays, Origin, part_of, read_description
from tedtrajrec.methods.lattice import Past
from tedtrajrec.methods.learned import TABLE, LearnedMethod
from tedtrajrec.methods.lookup import PAST as TRIPS
from tedtrajrec.methods.lookup import ROUTE
from tedtrajrec.methods.past.links import Links, with_links
from tedtrajrec.methods.past.pairs import Pairs
from tedtrajrec.methods.past.passing import Passing, passing_state, restored_passing
from tedtrajrec.methods.registry import method_class
from tedtrajrec.methods.taught import LOOKUP, PAST, no_past, past_state, restored_past
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.roadnet import RoadNetwork

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_APART_M = 5.0
MOST_LONGER = 0.02
LEAST_KEPT = 0.5  # of the new segments, below which it is another city

SCORES = ("decoder.score.weight", "decoder.score.bias")


class Change(NamedTuple):
    """Which of S new segments were among R old ones."""

    old: Ints  # [S] number of the same segment in the old network; -1 for a new one
    new: Ints  # [R] number in the new network; -1 for one that is gone

    @property
    def share(self) -> float:
        """Share of the new segments that are old."""
        return float((self.old >= 0).mean())

    def __str__(self) -> str:
        fresh, gone = int((self.old < 0).sum()), int((self.new < 0).sum())
        return f"{fresh:,} of {len(self.old):,} segments are new and {gone:,} are gone"


def find_change(old: RoadNetwork, new: RoadNetwork) -> Change:
    """Return which segments two networks share."""
    here, there = _shape(new, new), _shape(old, new)
    query = cKDTree(there).query(here, distance_upper_bound=3 * MOST_APART_M)
    apart, nearest = np.asarray(query[0]), np.asarray(query[1])
    found = np.flatnonzero(np.isfinite(apart))
    partner = nearest[found]
    parts_m = np.hypot(*np.moveaxis((here[found] - there[partner]).reshape(-1, 3, 2), -1, 0))
    length = new.length_m[found], old.length_m[partner]
    same = (parts_m.max(axis=1) <= MOST_APART_M) & (np.abs(length[0] - length[1]) <= MOST_LONGER * np.maximum(*length))
    found, partner = found[same], partner[same]
    # Each old segment is one new one at most: the nearest, and of several as near the first.
    order = np.lexsort((found, apart[found], partner))
    first = order[np.flatnonzero(np.diff(partner[order], prepend=-1))]
    change = Change(np.full(len(new), -1), np.full(len(old), -1))
    change.old[found[first]] = partner[first]
    change.new[partner[first]] = found[first]
    return change


def _shape(network: RoadNetwork, on: RoadNetwork) -> NDArray[np.float64]:
    """Return start, middle and end of each segment in metres on the plane of a network [S, 6]."""
    segment = np.arange(len(network))
    points = [on.plane.to_xy(*network.point_at(segment, ratio)) for ratio in (0.0, 0.5, 1.0)]
    return np.column_stack([axis for point in points for axis in point])


def load_on_changed(folder: Path, old: RoadNetwork, new: RoadNetwork, change: Change) -> LearnedMethod[Any, Any]:
    """Return a trained model on a newer version of its network.

    Parameters
    ----------
    folder
        Of the model.
    old, new
        The network it was trained on, and the one it is to be used on.
    change
        What :func:`find_change` says of them.
    """
    described = read_description(folder)
    cls = method_class(described["method"])
    method = cls(new, from_dict(cls.Config, described["config"]))
    # Other learned methods keep more by segment or by place than is known how to renumber.
    if not (isinstance(method, LearnedMethod) and TABLE in method.state_dict()):
        raise InputError(
            f"{method.name} knows one network only, and {change}",
            file=folder,
            remedy="Let it learn from trips on this one, or use the network it was made for.",
        )
    weights = folder / "model.safetensors"
    try:
        method.restore(renumbered(load_file(weights), change, old, new))
        if "origin" in described:
            method.origin = Origin(**described["origin"])
    except (safetensors.SafetensorError, KeyError, IndexError, ValueError, TypeError, OSError) as error:
        raise InputError(f"this does not hold the tables of {method.name} ({error})", file=weights) from error
    method.start = described.get("start")
    method.see_places_as_on(old)
    return method


def renumbered(state: Arrays, change: Change, old: RoadNetwork, new: RoadNetwork) -> Arrays:
    """Return the state of a learned method for the new network; of new segments nothing is known."""
    kept = np.flatnonzero(change.old >= 0)
    out = {name: array for name, array in state.items() if not name.startswith(PAST)}
    for name in (TABLE, *SCORES):
        if name in state:
            # New segments have no vector of their own, and are as likely as the mean of the old ones.
            usual = np.zeros(state[name].shape[1:]) if name == TABLE else state[name].mean(axis=0, dtype=np.float64)
            out[name] = np.broadcast_to(usual, (len(change.old), *usual.shape)).astype(state[name].dtype)
            out[name][kept] = state[name][change.old[kept]]
    taught = part_of(state, PAST)
    if taught:
        past = {"step_s": taught["step_s"]} | past_state(_renumbered_past(restored_past(taught), change, new))
        voters = part_of(taught, LOOKUP)
        if voters:
            voters = _renumbered_lookup(voters, change, old, new)
        past |= {LOOKUP + name: array for name, array in voters.items()}
        out |= {PAST + name: array for name, array in past.items()}
    return out


def _renumbered_past(past: Past, change: Change, network: RoadNetwork) -> Past:
    return Past(
        _renumbered_links(past.links, change)[0],
        _renumbered_pace(past.pace, change, network),
        _renumbered_pairs(past.pairs, change),
        _renumbered_passing(past.passing, change),
    )


def _renumbered_pace(old: Floats, change: Change, network: RoadNetwork) -> Floats:
    known = change.old >= 0
    pace = no_past(network).pace
    pace[known] = old[change.old[known]]
    return pace


def _renumbered_links(links: Links, change: Change) -> tuple[Links, Ints]:
    """Return the links whose ends are still there, and which those were."""
    source, target = change.new[links.source], change.new[links.target]
    both = np.flatnonzero((source >= 0) & (target >= 0))
    both = both[np.lexsort((target[both], source[both]))]
    return Links(source[both].astype(np.int32), target[both].astype(np.int32)), both


def _renumbered_lookup(state: Arrays, change: Change, old: RoadNetwork, new: RoadNetwork) -> Arrays:
    """Return what past trips have told a look-up; where they drove on what is gone, it is not known where they were."""
    segment = np.append(change.new, -1)[state[TRIPS + "segment"]].astype(np.int32)
    source, target, count = (state[ROUTE + name] for name in ("link_source", "link_target", "turn_count"))
    links, kept = _renumbered_links(Links(source, target), change)
    link = np.full(len(source), -1)
    link[kept] = len(new) + np.arange(len(kept))
    number = np.append(change.new, link)  # with links, which come behind the segments
    here, there = _turns(with_links(old, Links(source, target))), _turns(with_links(new, links))
    turn = number[here]
    both = (turn >= 0).all(axis=0)
    n = len(new) + len(kept)
    wanted, names = (np.array([n, 1]) @ pairs for pairs in (turn[:, both], there))
    order = np.argsort(names)
    place = order[np.searchsorted(names, wanted, sorter=order).clip(max=len(names) - 1)]
    found = names[place] == wanted  # a turn may be forbidden now
    taken = np.zeros(len(names), count.dtype)
    taken[place[found]] = count[both][found]
    return state | {
        TRIPS + "segment": segment,
        ROUTE + "link_source": links.source,
        ROUTE + "link_target": links.target,
        ROUTE + "pace": _renumbered_pace(state[ROUTE + "pace"], change, new),
        ROUTE + "turn_count": taken,
    }


def _turns(network: RoadNetwork) -> Ints:
    """Return from which segments to which turns lead [2, E]."""
    return np.stack([np.repeat(np.arange(len(network)), np.diff(network.succ_offset)), network.succ])


def _renumbered_pairs(pairs: Pairs, change: Change) -> Pairs:
    source = change.new[np.repeat(np.arange(len(change.new)), np.diff(pairs.offset))]
    target = change.new[pairs.target]
    both = np.flatnonzero((source >= 0) & (target >= 0))
    order = both[np.lexsort((target[both], source[both]))]
    visits = np.zeros(len(change.old), np.float32)
    known = change.old >= 0
    visits[known] = pairs.visits[change.old[known]]
    return Pairs(
        offset=np.searchsorted(source[order], np.arange(len(change.old) + 1)).astype(np.int64),
        target=target[order].astype(np.int32),
        trips=pairs.trips[order],
        seconds=pairs.seconds[order],
        squares=pairs.squares[order],
        visits=visits,
    )


def _renumbered_passing(passing: Passing, change: Change) -> Passing:
    """Return past trips without their visits of segments that are gone."""
    segment = change.new[passing.segment]
    kept = segment >= 0
    count = np.zeros(len(change.old), np.int64)
    known = np.flatnonzero(change.old >= 0)
    old = change.old[known]
    count[known] = np.diff(passing.offset)[old]
    remembered = passing.seen["visit"][ranges(passing.offset[old], np.diff(passing.offset)[old])]
    return restored_passing(
        passing_state(passing)
        | {
            "trip": passing.trip[kept],
            "segment": segment[kept].astype(np.int32),
            "enter": passing.enter[kept],
            "leave": passing.leave[kept],
            "offset": np.concatenate([[0], np.cumsum(count)]).astype(np.int64),
            "visit": (np.cumsum(kept) - 1)[remembered].astype(np.int32),
        }
    )
