"""Recovered trips as the kind of frame that the fixes came in."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np

from tedtrajrec.recovery.recovered import NO_TIME, RecoveredTrips, Rejects
from tedtrajrec.trips.frames import trips_to_frame

FrameKind = Literal["polars", "pandas", "geopandas"]


class RejectedWarning(UserWarning):
    """Some fixes or trips could not be recovered; :attr:`rejects` lists them."""

    def __init__(self, rejects: Rejects) -> None:
        self.rejects = rejects
        trips = int(np.count_nonzero(rejects.time == NO_TIME))
        super().__init__(
            f"{len(rejects) - trips:,} fixes were not used and {trips:,} trips not recovered, such as one of trip "
            f"'{rejects.traj_id[0]}': {rejects.reason[0]}. The warning's 'rejects' lists all."
        )


def frame_kind(frame: Any) -> FrameKind:  # noqa: ANN401  (frames of several libraries)
    """Return of which library a frame is that :func:`~tedtrajrec.trips.frames.trips_from_frame` can read."""
    modules = {cls.__module__.partition(".")[0] for cls in type(frame).__mro__}
    if "geopandas" in modules:
        return "geopandas"
    return "pandas" if "pandas" in modules else "polars"


def recovered_to_frame(recovered: RecoveredTrips, kind: FrameKind) -> Any:  # noqa: ANN401
    """Return recovered trips as a frame, and warn where some were rejected; see :func:`trips_to_frame`."""
    if len(recovered.rejects):
        warnings.warn(RejectedWarning(recovered.rejects), stacklevel=3)
    return trips_to_frame(recovered.to_trips(), kind)
