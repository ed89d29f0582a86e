"""GPS error: a drift that lasts, a jitter that does not, a slowly changing sky that scales both, and rare jumps."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.trips.simulation import chance
from tedtrajrec.trips.simulation.config import NoiseConfig

Floats = NDArray[np.float64]


class Gps(NamedTuple):
    """The numbers of :class:`NoiseConfig` at one step."""

    drift_m: float
    drift_keep: float  # correlation of the drift from one step to the next
    jitter_m: float
    sky_sigma: float
    sky_keep: float
    outlier_share: float
    outlier_m: float


def build_gps(config: NoiseConfig, step_s: int) -> Gps:
    """Return what the kernel needs of the settings; the error's law does not depend on the step."""
    return Gps(
        drift_m=config.drift_m,
        drift_keep=math.exp(-step_s / config.drift_tau_s),
        jitter_m=config.jitter_m,
        sky_sigma=config.sky_sigma,
        sky_keep=math.exp(-step_s / config.sky_tau_s),
        outlier_share=config.outlier_share,
        outlier_m=config.outlier_m,
    )


@njit(cache=True, nogil=True)
def draw_errors(gps: Gps, stream: chance.Stream, east: Floats, north: Floats) -> None:  # pragma: no cover  (compiled)
    """Fill ``east`` and ``north`` with the errors of one trip's fixes in metres."""
    drift_fresh = math.sqrt(1.0 - gps.drift_keep**2)
    sky_fresh = math.sqrt(1.0 - gps.sky_keep**2)
    drift_x, drift_y, sky = chance.normal(stream), chance.normal(stream), chance.normal(stream)
    for i in range(len(east)):
        if i > 0:
            drift_x = gps.drift_keep * drift_x + drift_fresh * chance.normal(stream)
            drift_y = gps.drift_keep * drift_y + drift_fresh * chance.normal(stream)
            sky = gps.sky_keep * sky + sky_fresh * chance.normal(stream)
        scale = math.exp(gps.sky_sigma * sky)
        east[i] = scale * (gps.drift_m * drift_x + gps.jitter_m * chance.normal(stream))
        north[i] = scale * (gps.drift_m * drift_y + gps.jitter_m * chance.normal(stream))
        if chance.uniform(stream) < gps.outlier_share:
            angle = 2.0 * math.pi * chance.uniform(stream)
            size = chance.exponential(stream, gps.outlier_m)
            east[i] += size * math.cos(angle)
            north[i] += size * math.sin(angle)
