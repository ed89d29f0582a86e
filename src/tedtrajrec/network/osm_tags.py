"""What the tags of an OpenStreetMap way say to a car driver: may I drive here, in which direction, how fast.

Pure functions over plain dictionaries. The rules, and why they are as they are, stand in ``docs/network.md``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from tedtrajrec.network.classes import CLASS_NUMBER, DEFAULT_SPEED_KMH

Tags = Mapping[str, str]

VEHICLES = ("motorcar", "motor_vehicle", "vehicle")
"""The names under which OSM speaks of a car; an earlier one is more specific and overrules the later ones."""

CLOSED = frozenset({
    "no", "private", "agricultural", "forestry", "emergency", "military", "psv", "bus", "restricted", "use_sidepath",
})  # fmt: skip
"""Access values that keep cars out. All others are open, also to those who need a reason: destination, permit..."""

ONE_WAY_JUNCTIONS = frozenset({"roundabout", "circular"})

RELEVANT = frozenset(
    {"highway", "area", "service", "junction", "oneway", "access", "access:forward", "access:backward"}
    | {f"{name}{suffix}" for name in VEHICLES for suffix in ("", ":forward", ":backward")}
    | {f"oneway:{name}" for name in VEHICLES}
    | {"maxspeed", "maxspeed:forward", "maxspeed:backward"}
    | {"maxspeed:type", "source:maxspeed", "zone:maxspeed", "zone:traffic"}
)
"""The keys that the functions below look at."""

UNLIMITED_KMH = 130.0  # "none": what is advised, and about what is driven, on German motorways
WALKING_KMH = 7.0
FASTEST_KMH = 200.0  # what is above is a slip of the pen, not a limit

_MPH = 1.609344
_UNITS_KMH = {"": 1.0, "km/h": 1.0, "kmh": 1.0, "kph": 1.0, "mph": _MPH, "knots": 1.852}
_NUMBER = re.compile(r"(\d+(?:\.\d+)?) ?([a-z/]*)")
_ZONE = re.compile(r"(?:zone:?)?(\d+)")


class Limits(NamedTuple):
    """The speed limits of a country in km/h, where no sign says otherwise."""

    urban: float
    rural: float
    trunk: float
    motorway: float
    living_street: float = 20.0


LIMITS: dict[str, Limits] = {
    "AR": Limits(40, 110, 120, 130),
    "AT": Limits(50, 100, 100, 130, WALKING_KMH),
    "AU": Limits(50, 100, 100, 110, 10),
    "BE": Limits(50, 70, 120, 120),
    "BG": Limits(50, 90, 120, 140),
    "BR": Limits(60, 60, 110, 110),
    "CA": Limits(50, 80, 100, 100),
    "CH": Limits(50, 80, 100, 120),
    "CL": Limits(50, 100, 120, 120),
    "CN": Limits(50, 70, 80, 120),
    "CZ": Limits(50, 90, 110, 130),
    "DE": Limits(50, 100, 100, UNLIMITED_KMH, WALKING_KMH),
    "DK": Limits(50, 80, 80, 130, 15),
    "EE": Limits(50, 90, 110, 110),
    "ES": Limits(50, 90, 90, 120),
    "FI": Limits(50, 80, 100, 120),
    "FR": Limits(50, 80, 110, 130),
    "GB": Limits(30 * _MPH, 60 * _MPH, 70 * _MPH, 70 * _MPH, 20 * _MPH),
    "GR": Limits(50, 90, 110, 130),
    "HR": Limits(50, 90, 110, 130, 10),
    "HU": Limits(50, 90, 110, 130),
    "IE": Limits(50, 80, 100, 120),
    "IT": Limits(50, 90, 110, 130, 30),
    "JP": Limits(60, 60, 60, 100),
    "LT": Limits(50, 90, 120, 130),
    "LU": Limits(50, 90, 90, 130),
    "LV": Limits(50, 90, 90, 90),
    "NL": Limits(50, 80, 100, 100, 15),
    "NO": Limits(50, 80, 80, 110),
    "NZ": Limits(50, 100, 100, 100),
    "PL": Limits(50, 90, 100, 140),
    "PT": Limits(50, 90, 100, 120),
    "RO": Limits(50, 90, 100, 130),
    "RS": Limits(50, 80, 100, 130, 10),
    "RU": Limits(60, 90, 110, 110),
    "SE": Limits(50, 70, 70, 110, WALKING_KMH),
    "SI": Limits(50, 90, 110, 130, 10),
    "SK": Limits(50, 90, 90, 130),
    "TR": Limits(50, 90, 110, 120),
    "UA": Limits(50, 90, 110, 130),
    "US": Limits(25 * _MPH, 55 * _MPH, 55 * _MPH, 65 * _MPH, 15 * _MPH),
    "ZA": Limits(60, 100, 120, 120),
}
"""General limits for cars by ISO 3166 code; where they differ by state or lane, the usual one."""

_OTHER_NAMES = {"UK": "GB"}  # the code mappers write, and the one of ISO 3166
_NATIONAL_KMH = {
    ("GB", "nsl_single"): 60 * _MPH,
    ("GB", "nsl_dual"): 70 * _MPH,
    ("GB", "nsl_restricted"): 30 * _MPH,
    ("FR", "walk"): 20.0,
}
_COUNTRY_RULE = {  # the limit that holds on a class where no tag tells: a city's streets are urban
    "motorway": "motorway",
    "trunk": "trunk",
    "primary": "urban",
    "secondary": "urban",
    "tertiary": "urban",
    "unclassified": "urban",
    "residential": "urban",
    "living_street": "living_street",
}


class Road(NamedTuple):
    """A way that cars may use: its class and the speed in each direction of its nodes, 0 where it is closed."""

    road_class: int
    forward_kmh: float
    backward_kmh: float
    odd_maxspeed: bool  # a limit is given that cannot be read


def read_road(tags: Tags, *, service: bool, country: str | None) -> Road | str:
    """Return what a way is to a car, or the reason why it is left out of the network.

    Parameters
    ----------
    tags
        The tags of the way; ``highway`` is among them.
    service
        Whether service roads are wanted.
    country
        ISO 3166 code for the limits that hold where no tag names one, or None for the default of the class.
    """
    highway = tags["highway"]
    if highway not in CLASS_NUMBER:
        return "not a road for cars"
    if tags.get("area") == "yes":
        return "an area"
    if highway == "service" and (not service or tags.get("service") == "emergency_access"):
        return "service road"
    forward, backward = directions(tags)
    if not (forward or backward):
        return "closed to cars"
    there, back = speed_kmh(tags, "forward", country), speed_kmh(tags, "backward", country)
    return Road(
        CLASS_NUMBER[highway],
        (there or DEFAULT_SPEED_KMH[highway]) if forward else 0.0,
        (back or DEFAULT_SPEED_KMH[highway]) if backward else 0.0,
        _has_odd_maxspeed(tags),
    )


def is_open(tags: Tags, direction: str) -> bool:
    """Return whether cars are allowed in a direction (``forward`` or ``backward``); the most specific tag decides."""
    for key in (*VEHICLES, "access"):
        value = tags.get(f"{key}:{direction}") or tags.get(key)
        if value:
            return any(part.strip() not in CLOSED for part in value.lower().split(";"))
    return True


def directions(tags: Tags) -> tuple[bool, bool]:
    """Return whether a car may drive along the order of the nodes, and against it."""
    forward, backward = True, True
    oneway = next((tags[key] for key in (*(f"oneway:{name}" for name in VEHICLES), "oneway") if key in tags), None)
    match oneway:
        case "yes" | "true" | "1":
            backward = False
        case "-1" | "reverse":
            forward = False
        case "no" | "false" | "0" | "reversible" | "alternating":
            pass  # reversible lanes: which way is open depends on an hour that the map does not know
        case _:
            backward = not (tags.get("junction") in ONE_WAY_JUNCTIONS or tags.get("highway") == "motorway")
    return forward and is_open(tags, "forward"), backward and is_open(tags, "backward")


def speed_kmh(tags: Tags, direction: str, country: str | None) -> float | None:
    """Return the speed limit in a direction in km/h, or None where neither tags nor country tell it.

    A number counts before a kind of limit (``PT:urban``), which counts before the rule of the country for the class.
    """
    for key in (
        f"maxspeed:{direction}",
        "maxspeed",
        "maxspeed:type",
        "source:maxspeed",
        "zone:maxspeed",
        "zone:traffic",
    ):
        if key in tags:
            limit = parse_maxspeed(tags[key])
            if limit is not None:
                return limit
    rule = _COUNTRY_RULE.get(tags["highway"])
    limits = LIMITS.get(country_code(country)) if country and rule else None
    return getattr(limits, rule) if limits and rule else None


def parse_maxspeed(text: str) -> float | None:
    """Return the km/h of a ``maxspeed`` value, or None if it gives none (``signals``) or cannot be read.

    ``50``, ``50 km/h``, ``30 mph``, ``none``, ``walk``, ``PT:urban``, ``DE:zone:30``; of a list the first that can be
    read counts.
    """
    for part in re.split(r"[;|]", text.lower()):
        value = part.strip()
        if value == "none":
            return UNLIMITED_KMH
        if value == "walk":
            return WALKING_KMH
        number = _NUMBER.fullmatch(value)
        if number and number[2] in _UNITS_KMH:
            limit: float | None = float(number[1]) * _UNITS_KMH[number[2]]
        else:
            limit = _national_limit(*value.split(":", 1)) if ":" in value else None
        if limit and limit <= FASTEST_KMH:
            return limit
    return None


def country_code(name: str) -> str:
    """Return the ISO 3166 code for what mappers write: ``uk`` is GB, ``BE-VLG`` is BE."""
    code = name.upper().split("-")[0]
    return _OTHER_NAMES.get(code, code)


def _national_limit(country: str, rule: str) -> float | None:
    code = country_code(country)
    if (code, rule) in _NATIONAL_KMH:
        return _NATIONAL_KMH[code, rule]
    zone = _ZONE.fullmatch(rule)
    if zone:
        return float(zone[1]) * (_MPH if code in ("GB", "US") else 1.0)
    if rule == "walk":
        return WALKING_KMH
    limits = LIMITS.get(code)
    return getattr(limits, rule) if limits and rule in Limits._fields else None


def _has_odd_maxspeed(tags: Tags) -> bool:
    values = (tags.get(key) for key in ("maxspeed", "maxspeed:forward", "maxspeed:backward"))
    return any(value and value not in ("signals", "variable") and parse_maxspeed(value) is None for value in values)
