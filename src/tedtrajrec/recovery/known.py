"""Whether trips look like those that a model learned from; if not, in which way, in words."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.training.profile import Profile, motion
from tedtrajrec.trips.table import Trips

LEAST_PAIRS = 20  # fixes with a next one, below which nothing is said of intervals and speeds
LEAST_SHARE = 0.05  # of fixes outside that is worth a word
MOST = 0.5  # of fixes: so many outside are of another place altogether
TWICE = 2.0
TOP_KMH = 150.0


def compare(trips: Trips, network: RoadNetwork, profile: Profile | None) -> list[str]:
    """Return in what ways trips are unlike those that a model learned from, each in a sentence.

    Parameters
    ----------
    trips
        The fixes to be recovered.
    network
        The road network they are recovered on.
    profile
        Of the model; without one only the area of the network and impossible speeds are looked at.
    """
    known = np.isfinite(trips.lon) & np.isfinite(trips.lat)
    if not known.any():
        return []
    found = []
    outside = _share_outside(trips, network.bbox, known)
    if outside > LEAST_SHARE:
        found.append(
            f"{outside:.0%} of the fixes lie outside the area of the road network ({_box(network.bbox)})"
            f"{_why_outside(trips, network, known) if outside > MOST else '.'}"
        )
    elif profile is not None and profile.bbox:
        outside = _share_outside(trips, profile.bbox, known)
        if outside > LEAST_SHARE:
            found.append(
                f"{outside:.0%} of the fixes lie outside the area of the trips that the model was trained on "
                f"({_box(profile.bbox)})."
            )
    seconds, speed = motion(trips.keep_fixes(known))
    if len(seconds) >= LEAST_PAIRS:
        fast = float((speed > TOP_KMH / 3.6).mean())
        if fast > LEAST_SHARE:
            found.append(
                f"{fast:.0%} of the ways between fixes would take more than {TOP_KMH:.0f} km/h: are lon, lat and times "
                "in the right columns and units?"
            )
        if profile is not None and profile.trips:
            found += _unlike_training(float(np.median(seconds)), float(np.median(speed)), profile)
    return found


def _unlike_training(seconds: float, speed: float, profile: Profile) -> list[str]:
    """Return sentences on intervals and speeds whose median is beyond all but a few of the training trips."""
    _, low_s, usual_s, high_s, _ = profile.interval_s
    found = []
    if seconds < low_s or seconds > high_s:
        found.append(
            f"There are {_time(seconds)} between fixes (median); the model was trained with {_time(usual_s)}, nearly "
            f"always {_time(low_s)} to {_time(high_s)}."
        )
    elif not 1 / TWICE <= seconds / usual_s <= TWICE:
        found.append(f"There are {_time(seconds)} between fixes (median); the model was trained with {_time(usual_s)}.")
    _, low, usual, high, _ = profile.speed_mps
    if speed < low or speed > high or not 1 / TWICE <= speed / max(usual, 0.1) <= TWICE:
        found.append(
            f"The vehicles move at {speed * 3.6:.0f} km/h as the crow flies (median), those of the training trips at "
            f"{usual * 3.6:.0f} km/h."
        )
    return found


def _why_outside(trips: Trips, network: RoadNetwork, known: NDArray[np.bool_]) -> str:
    exchanged = trips.replace(lon=trips.lat, lat=trips.lon)
    if _share_outside(exchanged, network.bbox, known) <= 1 - MOST:
        return ": they lie inside if lon and lat are exchanged."
    return ": is this the network of their city?"


def _share_outside(trips: Trips, bbox: tuple[float, ...], known: NDArray[np.bool_]) -> float:
    west, south, east, north = bbox
    lon, lat = trips.lon[known], trips.lat[known]
    return float(((lon < west) | (lon > east) | (lat < south) | (lat > north)).mean())


def _box(bbox: tuple[float, ...]) -> str:
    return ", ".join(f"{edge:.3f}" for edge in bbox)


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
