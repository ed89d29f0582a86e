"""Prepared trips that walk over a network at random, and methods whose answers are known beforehand."""

import numpy as np

from tedtrajrec.data.dataset import shards_of, write_dataset
from tedtrajrec.methods.base import Method, as_recovered
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.trips.table import Trips, as_text

STEP_S = 15
MONDAY = 1_700_438_400  # 2023-11-20 00:00 UTC


def walk_trips(network, lengths, *, seed=0, noise_m=5.0, without_fix=0.0, unknown=0.0, name="trip"):
    """Return trips that stay on a segment or drive on at every step; both ends have a fix."""
    rng = np.random.default_rng(seed)
    lengths = np.asarray(lengths)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    segment = np.empty(offsets[-1], np.int32)
    for i, length in enumerate(lengths):
        here = int(rng.integers(len(network)))
        for j in range(length):
            if j and rng.random() < 0.7:
                here = int(rng.choice(network.successors(here)))
            segment[offsets[i] + j] = here
    ratio = rng.random(offsets[-1]).astype(np.float32).astype(np.float64)
    x, y = network.plane.to_xy(*network.point_at(segment, ratio))
    lon, lat = network.plane.to_lonlat(x + rng.normal(0, noise_m, len(x)), y + rng.normal(0, noise_m, len(y)))
    inner = np.ones(offsets[-1], bool)
    inner[offsets[:-1]] = inner[offsets[1:] - 1] = False
    lost = inner & (rng.random(offsets[-1]) < without_fix)
    lon[lost], lat[lost] = np.nan, np.nan
    dark = rng.random(offsets[-1]) < unknown
    step = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    start = MONDAY + 1000 * np.arange(len(lengths))
    return Trips(
        traj_id=as_text([f"{name} {i}" for i in range(len(lengths))]),
        offsets=offsets,
        time=np.repeat(start, lengths) + step * STEP_S,
        lon=lon,
        lat=lat,
        segment=np.where(dark, -1, segment).astype(np.int32),
        ratio=np.where(dark, np.nan, ratio),
    )


def walk_dataset(path, network, trips, *, shard_trips=16):
    """Return a dataset with these test trips, in several shards."""
    return write_dataset(
        path, network, {"test": shards_of(trips, shard_trips)}, step_s=STEP_S, time_zone="UTC", source="walks"
    )


class Truth(Method):
    """Answers with the truth, which no real method may look at."""

    name = "truth"

    def recover(self, batch):
        mask = batch.step_mask
        return as_recovered(batch, batch.segment[mask].numpy(), batch.ratio[mask].numpy().astype(float))


class Silent(Method):
    """Has no answer at any step."""

    name = "silent"

    def recover(self, batch):
        n = int(batch.step_mask.sum())
        return as_recovered(batch, np.full(n, -1), np.zeros(n))


class Nearest(Method):
    """Answers with the segment nearest to the last fix; the probability tells which step it is."""

    name = "nearest"

    def __init__(self, network, config=None):
        super().__init__(network, config)
        self.finder = CandidateFinder(network)
        self.seen = []

    def recover(self, batch):
        self.seen.append(batch)
        fixes = batch.fixes(self.network)
        found = self.finder.nearest(fixes.lon, fixes.lat)
        observed = batch.observed[batch.step_mask].numpy()
        last = np.cumsum(observed) - 1
        offsets, _ = batch.step_times()
        step = np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))
        return as_recovered(batch, found.segment[last].astype(np.int32), found.ratio[last], -step.astype(float))
