"""Pace: seconds per metre of each segment, learned from past trips."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.methods.past.drives import Drives
from tedtrajrec.network.roadnet import RoadNetwork

Floats = NDArray[np.float64]

SLOWEST_S_PER_M = 2.0
FASTEST_S_PER_M = 1 / 40


def learn_pace(network: RoadNetwork, drives: Drives, *, prior_m: float = 2000.0, rounds: int = 3) -> Floats:
    """Return the seconds that a metre of each segment takes [S].

    The time of a drive is spread over its segments as their present pace has it, and the pace of a segment is the time
    spent on it over the metres driven; that is repeated. It starts from free flow. A segment is taken to have been
    driven ``prior_m`` metres more at the pace of its road class, and a class at the pace of all, so what nobody drove
    has the pace of its class.

    Parameters
    ----------
    network
        The road network.
    drives
        Of training trips, see :func:`~tedtrajrec.methods.past.drives.drives_of`.
    prior_m
        Weight of the road class, in metres driven.
    rounds
        How often the time is spread anew.
    """
    segment, drive = drives.segment, drives.drive_of
    kind = network.road_class.astype(np.int64)
    metres = np.bincount(segment, drives.metres, network.n_segments)
    kind_m = np.bincount(kind, metres)
    pace = 1 / network.speed_mps.astype(np.float64)
    for _ in range(rounds):
        cost = drives.metres * pace[segment]
        total = np.bincount(drive, cost, len(drives.seconds))
        count = np.diff(drives.offsets)
        # A vehicle that stands spends its time on the segments where it is, in equal parts.
        share = np.where(total[drive] > 0, cost / np.where(total > 0, total, 1.0)[drive], 1 / count[drive])
        seconds = np.bincount(segment, share * drives.seconds[drive], network.n_segments)
        kind_s = np.bincount(kind, seconds)
        overall = kind_s.sum() / kind_m.sum() if kind_m.sum() > 0 else float(np.mean(pace))
        kind_pace = (kind_s + prior_m * overall) / (kind_m + prior_m)
        pace = (seconds + prior_m * kind_pace[kind]) / (metres + prior_m)
        pace = pace.clip(FASTEST_S_PER_M, SLOWEST_S_PER_M)
    return pace
