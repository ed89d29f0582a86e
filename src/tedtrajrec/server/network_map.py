"""The road network as GeoJSON, whole or within a bounding box."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from pydantic_core import to_json

from tedtrajrec.maps.network_json import network_json
from tedtrajrec.network.bbox import BBox
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.server.answers import compress
from tedtrajrec.server.problems import ProblemError


class NetworkMap:
    """Answers questions for parts of a network; the whole is made once.

    Parameters
    ----------
    most
        Segments in one answer.
    """

    def __init__(self, network: RoadNetwork, attribution: str | None, most: int) -> None:
        self.network = network
        self.attribution = attribution
        self.most = most
        starts = network.geom_offset[:-1]
        self._box = (
            np.minimum.reduceat(network.geom_lon, starts),
            np.minimum.reduceat(network.geom_lat, starts),
            np.maximum.reduceat(network.geom_lon, starts),
            np.maximum.reduceat(network.geom_lat, starts),
        )

    def within(self, bbox: BBox) -> NDArray[np.int64]:
        """Return the segments whose own boxes touch a box."""
        west, south, east, north = bbox
        left, low, right, high = self._box
        return np.flatnonzero((right >= west) & (left <= east) & (high >= south) & (low <= north))

    @cached_property
    def packed(self) -> bytes:
        """The whole network, compressed."""
        return compress(self.content(None))

    def content(self, bbox: BBox | None) -> bytes:
        """Return the segments of a box, or all, as GeoJSON."""
        chosen = np.arange(self.network.n_segments) if bbox is None else self.within(bbox)
        if len(chosen) > self.most:
            raise ProblemError(
                "too-large", f"{len(chosen):,} segments; an answer may have {self.most:,}.", field="bbox"
            )
        return to_json(network_json(self.network, chosen) | {"attribution": self.attribution})
