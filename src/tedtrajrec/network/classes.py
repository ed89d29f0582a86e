"""What we take over from OpenStreetMap: its road classes for motor vehicles, with usual speeds, and its attribution."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

OSM_ATTRIBUTION = "(c) OpenStreetMap contributors, ODbL"
"""What a network says in ``meta["attribution"]`` if it is known to come from OpenStreetMap."""

ROAD_CLASSES: tuple[str, ...] = (
    "motorway",
    "motorway_link",
    "trunk",
    "trunk_link",
    "primary",
    "primary_link",
    "secondary",
    "secondary_link",
    "tertiary",
    "tertiary_link",
    "unclassified",
    "residential",
    "living_street",
    "service",
    "road",  # OSM's own word for a road of unknown class; also ours for what an edge table does not say
)
"""Names by class number. The order is part of the file format: append only."""

CLASS_NUMBER: dict[str, int] = {name: number for number, name in enumerate(ROAD_CLASSES)}

DEFAULT_SPEED_KMH: dict[str, float] = {
    "motorway": 110.0,
    "motorway_link": 60.0,
    "trunk": 80.0,
    "trunk_link": 50.0,
    "primary": 50.0,
    "primary_link": 40.0,
    "secondary": 50.0,
    "secondary_link": 40.0,
    "tertiary": 45.0,
    "tertiary_link": 35.0,
    "unclassified": 40.0,
    "residential": 30.0,
    "living_street": 15.0,
    "service": 15.0,
    "road": 40.0,
}
"""Typical urban speed by class, used where the map gives no limit."""


def class_numbers(names: Iterable[str]) -> NDArray[np.uint8]:
    """Return class numbers for OSM highway values; an unknown one becomes ``road``."""
    return np.array([CLASS_NUMBER.get(name, CLASS_NUMBER["road"]) for name in names], np.uint8)


def default_speed_mps(road_class: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return the default speed of each class number in metres per second."""
    table = np.array([DEFAULT_SPEED_KMH[name] / 3.6 for name in ROAD_CLASSES], np.float32)
    return table[road_class]
