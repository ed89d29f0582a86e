"""Prepared trips for tests: whole ones drawn at random, and any that hypothesis can think of."""

import itertools

import numpy as np
from hypothesis import strategies as st

from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.table import TEXT, Trips, as_text

START = 1_404_400_000  # 2014-07-03 15:06:40 UTC
STEP_S = 15


def made_trips(
    network: RoadNetwork, lengths: list[int], *, seed: int = 0, missing: float = 0.2, unknown: float = 0.1
) -> Trips:
    """Return trips that drive from segment to successor, with noisy fixes, some of them and some truth missing."""
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    steps = int(offsets[-1])
    segment = np.zeros(steps, np.int32)
    for first, end in itertools.pairwise(offsets.tolist()):
        at = int(rng.integers(network.n_segments))
        for i in range(first, end):
            segment[i] = at
            following = network.successors(at)
            at = int(rng.choice(following)) if len(following) and rng.random() < 0.7 else at
    ratio = rng.random(steps).astype(np.float32).astype(np.float64)
    lon, lat = network.point_at(segment, ratio)
    lon, lat = lon + rng.normal(0, 5e-5, steps), lat + rng.normal(0, 5e-5, steps)
    no_fix, no_truth = rng.random(steps) < missing, rng.random(steps) < unknown
    lon[no_fix] = lat[no_fix] = ratio[no_truth] = np.nan
    segment[no_truth] = -1
    start = START + rng.integers(0, 30 * 86_400, len(lengths))
    return Trips(
        traj_id=as_text([f"trip-{k:04d}" for k in range(len(lengths))]),
        offsets=offsets,
        time=np.repeat(start, lengths) + (np.arange(steps) - np.repeat(offsets[:-1], lengths)) * STEP_S,
        lon=lon,
        lat=lat,
        segment=segment,
        ratio=ratio,
    )


@st.composite
def any_trips(draw: st.DrawFn, network: RoadNetwork, *, most: int = 6) -> Trips:
    """Return trips of any lengths, ids, places and gaps that a dataset may hold."""
    lengths = draw(st.lists(st.integers(1, 12), max_size=most))
    steps = sum(lengths)

    def column(values: st.SearchStrategy) -> list:
        return draw(st.lists(values, min_size=steps, max_size=steps))

    truth = column(
        st.none()
        | st.tuples(st.integers(0, network.n_segments - 1), st.floats(0, 1, width=32) | st.sampled_from([0, 1]))
    )
    fix = column(st.none() | st.tuples(st.floats(-180, 180), st.floats(-90, 90)))
    start = draw(st.lists(st.integers(-(2**33), 2**33), min_size=len(lengths), max_size=len(lengths)))
    ids = draw(
        st.lists(
            st.text(st.characters(exclude_categories=["Cs"])),
            min_size=len(lengths),
            max_size=len(lengths),
        )
    )
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Trips(
        traj_id=np.array(ids, TEXT),
        offsets=offsets,
        time=np.repeat(start, lengths).astype(np.int64)
        + (np.arange(steps) - np.repeat(offsets[:-1], lengths).astype(np.int64)) * STEP_S,
        lon=np.array([np.nan if f is None else f[0] for f in fix], np.float64),
        lat=np.array([np.nan if f is None else f[1] for f in fix], np.float64),
        segment=np.array([-1 if p is None else p[0] for p in truth], np.int32),
        ratio=np.array([np.nan if p is None else p[1] for p in truth], np.float64),
    )
