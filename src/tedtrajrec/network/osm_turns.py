"""Turn restrictions of OpenStreetMap: relations become pairs of segments that must not follow each other."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

# A reason why a restriction was not turned into forbidden pairs. The words appear in the network's description.
CONDITIONAL = "holds at certain times only"
OTHER_VEHICLES = "not for cars"
VIA_WAY = "via a way"
MALFORMED = "members or value cannot be read"
ABSENT_WAY = "a way is not in the network"
ABSENT_NODE = "the via node is not in the network"
APART = "a way does not touch the via node"
ONE_WAY = "a one-way street runs the other way"
REDUNDANT = "it leaves only what is the only way on anyhow"
AMBIGUOUS = "a way runs through the via node in both directions"

_KIND = re.compile(r"(no|only)_(left_turn|right_turn|straight_on|u_turn|entry|exit)")
_KEYS = ("restriction:motorcar", "restriction:motor_vehicle", "restriction:vehicle", "restriction")
_CARS = frozenset({"motorcar", "motor_vehicle", "vehicle"})
_TIMES = ("day_on", "day_off", "hour_on", "hour_off")

Member = tuple[str, int, str]  # type (n, w, r), id, role


@dataclass(frozen=True)
class Restriction:
    """A turn restriction via a node, as mapped."""

    relation_id: int
    kind: str  # no_left_turn, only_straight_on...
    from_ways: tuple[int, ...]
    via_node: int
    to_ways: tuple[int, ...]


def parse(relation_id: int, tags: Mapping[str, str], members: Iterable[Member]) -> Restriction | str:
    """Return the restriction that a relation describes, or the reason why it says nothing to a car at all times."""
    kind = next((tags[key] for key in _KEYS if key in tags), None)
    if kind is None:
        conditional = any(f"{key}:conditional" in tags for key in _KEYS)
        return CONDITIONAL if conditional else OTHER_VEHICLES
    if _CARS & {part.strip() for part in tags.get("except", "").split(";")}:
        return OTHER_VEHICLES
    if any(key in tags for key in _TIMES):
        return CONDITIONAL
    if not _KIND.fullmatch(kind):
        return MALFORMED
    parts: dict[tuple[str, str], list[int]] = {}
    for member_type, ref, role in members:
        parts.setdefault((role, member_type), []).append(ref)
    if ("via", "w") in parts:
        return VIA_WAY
    from_ways, via, to_ways = (parts.get(key, []) for key in (("from", "w"), ("via", "n"), ("to", "w")))
    several_from, several_to = kind == "no_entry", kind == "no_exit"
    if len(via) != 1 or not from_ways or not to_ways:
        return MALFORMED
    if (len(from_ways) > 1 and not several_from) or (len(to_ways) > 1 and not several_to):
        return MALFORMED
    return Restriction(relation_id, kind, tuple(from_ways), via[0], tuple(to_ways))


@dataclass(frozen=True, eq=False)
class Junctions:
    """The segments that meet at each node, with the OSM way on which they reach it."""

    node_id: NDArray[np.int64]  # [N] OSM node ids, ascending
    seg_from: NDArray[np.int32]  # [S]
    seg_to: NDArray[np.int32]  # [S]
    geom_offset: NDArray[np.int64]  # [S+1]
    geom_lon: NDArray[np.float64]  # [G]
    geom_lat: NDArray[np.float64]  # [G]
    geom_way_id: NDArray[np.int64]  # [G] OSM way of the piece that starts at the vertex

    @cached_property
    def _first_way(self) -> NDArray[np.int64]:
        return self.geom_way_id[self.geom_offset[:-1]]

    @cached_property
    def _last_way(self) -> NDArray[np.int64]:
        return self.geom_way_id[self.geom_offset[1:] - 2]

    @cached_property
    def _ways(self) -> frozenset[int]:
        return frozenset(np.unique(self.geom_way_id).tolist())

    @cached_property
    def _by_start(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return _group(self.seg_from, len(self.node_id))

    @cached_property
    def _by_end(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return _group(self.seg_to, len(self.node_id))

    def turns(self, restriction: Restriction) -> list[tuple[int, int]] | str:
        """Return the turns (segment, segment) that a restriction speaks of, or the reason why none can be told.

        Of the ways it names, only the segments that touch the via node count, and only in the direction driven: those
        of the from way that end there, and those of the to way that start there.
        """
        node = int(np.searchsorted(self.node_id, restriction.via_node))
        if node == len(self.node_id) or self.node_id[node] != restriction.via_node:
            return ABSENT_NODE
        arriving, leaving = _members(self._by_end, node), _members(self._by_start, node)
        touching = {*self._last_way[arriving].tolist(), *self._first_way[leaving].tolist()}
        named = {*restriction.from_ways, *restriction.to_ways}
        if not named <= touching:
            return APART if named <= self._ways else ABSENT_WAY
        into = arriving[np.isin(self._last_way[arriving], restriction.from_ways)].tolist()
        out = leaving[np.isin(self._first_way[leaving], restriction.to_ways)].tolist()
        if restriction.kind.endswith("u_turn") and restriction.from_ways == restriction.to_ways:
            return [(a, b) for a in into for b in out if self._doubles_back(a, b)] or ONE_WAY
        if len(into) > len(restriction.from_ways) or len(out) > len(restriction.to_ways):
            return AMBIGUOUS
        return [(a, b) for a in into for b in out] or ONE_WAY

    def forbidden(self, restriction: Restriction) -> list[tuple[int, int]] | str:
        """Return the turns that a restriction forbids, or the reason why there are none."""
        named = self.turns(restriction)
        if isinstance(named, str) or restriction.kind.startswith("no"):
            return named
        others = ((a, int(b)) for a in {a for a, _ in named} for b in _members(self._by_start, self.seg_to[a]))
        return [turn for turn in others if turn not in named] or REDUNDANT

    def _doubles_back(self, a: int, b: int) -> bool:
        before, after = self.geom_offset[a + 1] - 2, self.geom_offset[b] + 1
        return bool(self.geom_lon[before] == self.geom_lon[after] and self.geom_lat[before] == self.geom_lat[after])


def forbidden_turns(
    restrictions: Sequence[Restriction], junctions: Junctions
) -> tuple[NDArray[np.int64], Counter[str]]:
    """Return the forbidden pairs of segments [K, 2] and how many restrictions were left out for which reason.

    Two ``only`` restrictions for the same approach allow both turns; taken by the letter nothing would be left.
    """
    pairs: set[tuple[int, int]] = set()
    allowed: set[tuple[int, int]] = set()
    ignored: Counter[str] = Counter()
    is_only = [restriction.kind.startswith("only") for restriction in restrictions]
    for restriction in itertools.compress(restrictions, is_only):
        named = junctions.turns(restriction)
        allowed.update([] if isinstance(named, str) else named)
    for restriction, only in zip(restrictions, is_only, strict=True):
        found = junctions.forbidden(restriction)
        if isinstance(found, str):
            ignored[found] += 1
        else:
            pairs.update(turn for turn in found if not (only and turn in allowed))
    return np.array(sorted(pairs), np.int64).reshape(-1, 2), ignored


def _group(nodes: NDArray[np.int32], n_nodes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    order = np.argsort(nodes, kind="stable")
    return np.searchsorted(nodes[order], np.arange(n_nodes + 1)), order


def _members(groups: tuple[NDArray[np.int64], NDArray[np.int64]], node: int | np.int32) -> NDArray[np.int64]:
    first, order = groups
    return order[first[node] : first[node + 1]]
