"""What a model was trained on, kept with it: the road network, and in numbers what its trips are like.

``profile.json`` lets the product tell a user that the trips at hand are unlike those; ``network.npz`` lets a model work
with nothing but its folder.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tedtrajrec.config import from_dict, to_dict
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.data.sampling import Rule, draw_observed
from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.files import read_json, replacing
from tedtrajrec.methods.shipped import CARD, read_card
from tedtrajrec.network.geodesy import short_distance_m
from tedtrajrec.trips.table import Trips

NETWORK = "network.npz"
PROFILE = "profile.json"
QUANTILES = (0.01, 0.05, 0.5, 0.95, 0.99)
MOST_TRIPS = 4000  # looked at; more do not change quantiles that matter


@dataclass(frozen=True)
class Profile:
    """What the trips are like that a model learned from."""

    step_s: int
    time_zone: str  # IANA name
    network: str  # hash
    trips: int = 0  # 0: nothing more is known
    keep: tuple[str, ...] = ()  # shares of observed steps
    bbox: tuple[float, ...] = ()  # west, south, east, north of the fixes
    interval_s: tuple[float, ...] = ()  # between thinned fixes, at QUANTILES
    speed_mps: tuple[float, ...] = ()  # between thinned fixes as the crow flies, at QUANTILES
    date: str = ""  # when it was trained


def make_profile(dataset: Dataset, keep: Sequence[str], rule: Rule = "exact") -> Profile:
    """Return what the training trips of a dataset are like when thinned to the given shares."""
    info, train = dataset.info, dataset.split("train")
    chosen = np.sort(np.random.default_rng(0).permutation(len(train))[:MOST_TRIPS])
    trips = train.trips(chosen)
    seen = ~np.isnan(trips.lon)
    parts = [motion(trips.keep_fixes(draw_observed(trips, share, rule=rule))) for share in keep]
    interval, speed = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Profile(
        step_s=info.step_s,
        time_zone=info.time_zone,
        network=info.network_hash,
        trips=len(train),
        keep=tuple(keep),
        bbox=tuple(
            round(float(edge), 5)
            for edge in (trips.lon[seen].min(), trips.lat[seen].min(), trips.lon[seen].max(), trips.lat[seen].max())
        ),
        interval_s=tuple(round(float(value), 1) for value in np.quantile(interval, QUANTILES)),
        speed_mps=tuple(round(float(value), 2) for value in np.quantile(speed, QUANTILES)),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
    )


def motion(trips: Trips) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], ...]:
    """Return seconds and straight speed from each fix to the next one of its trip, where that is later."""
    elapsed = np.diff(trips.time)
    pair = np.flatnonzero((np.diff(trips.trip_of_fix) == 0) & (elapsed > 0))
    metres = short_distance_m(trips.lon[pair], trips.lat[pair], trips.lon[pair + 1], trips.lat[pair + 1])
    seconds = elapsed[pair].astype(np.float64)
    return seconds, metres / seconds


def write_profile(folder: str | Path, dataset: Dataset, keep: Sequence[str], rule: Rule = "exact") -> Profile:
    """Write ``network.npz`` and ``profile.json`` into the folder of a model; see :func:`make_profile`."""
    profile = make_profile(dataset, keep, rule)
    Path(folder).mkdir(parents=True, exist_ok=True)
    dataset.network.save(Path(folder) / NETWORK)
    with replacing(Path(folder) / PROFILE) as path:
        path.write_text(json.dumps(to_dict(profile), indent=2) + "\n", "utf-8")
    return profile


def read_profile(folder: str | Path) -> Profile:
    """Return the profile of a model; without one, what its card says."""
    file = Path(folder) / PROFILE
    if file.is_file():
        try:
            return from_dict(Profile, read_json(file, "the profile of a model"))
        except ConfigError as error:
            raise InputError(f"this is not the profile of a model ({error})", file=file) from error
    if (Path(folder) / CARD).is_file():
        card = read_card(folder)
        return Profile(card["data"]["step_s"], card["data"]["time_zone"], card["network"]["hash"])
    raise InputError(
        "there is no profile.json beside this model, which says what it was trained on",
        file=folder,
        remedy="Write it with tedtrajrec.training.profile.write_profile(folder, Dataset(...), keep=['1/8']).",
    )
