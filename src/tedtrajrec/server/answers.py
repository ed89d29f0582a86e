"""Results to answers: JSON, GeoJSON or CSV, compressed where the client takes it; made outside the event loop."""

from __future__ import annotations

import json
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import Response
from pydantic_core import to_json

from tedtrajrec.maps.trips_json import recovered_json
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.recovery.recovered import NO_TIME, RecoveredTrips, Rejects
from tedtrajrec.server.inputs import CSV, GEOJSON, JSON
from tedtrajrec.server.schemas import Reject
from tedtrajrec.server.work import MatchedPart
from tedtrajrec.trips.match import ENDS, STATUS
from tedtrajrec.trips.writers import write_trips

_COMPRESS_FROM = 1 << 10  # bytes; less is not worth it
_SUFFIX = {GEOJSON: ".geojson", CSV: ".csv"}


def choose_type(accept: str | None) -> str:
    """Return the type of the answer for the header Accept: the first named that we write, JSON otherwise."""
    for entry in (accept or "").lower().split(","):
        name = entry.partition(";")[0].strip()
        if name in {JSON, GEOJSON, CSV}:
            return name
    return JSON


def takes_gzip(accept_encoding: str | None) -> bool:
    """Return whether the client takes compressed answers."""
    for entry in (accept_encoding or "").lower().split(","):
        name, _, quality = entry.partition(";")
        if name.strip() in {"gzip", "*"} and quality.strip().replace(" ", "") not in {"q=0", "q=0.0", "q=0.00"}:
            return True
    return False


def respond(
    content: bytes, media_type: str, *, gzip: bool, headers: Mapping[str, str] | None = None, status: int = 200
) -> Response:
    """Return an answer, compressed if wanted."""
    all_headers = {**(headers or {}), "Vary": "Accept, Accept-Encoding"}
    if gzip and len(content) >= _COMPRESS_FROM:
        content = compress(content)
        all_headers["Content-Encoding"] = "gzip"
    return Response(content, status, all_headers, media_type)


def compress(content: bytes) -> bytes:
    """Return content as gzip; fast rather than small."""
    packer = zlib.compressobj(4, zlib.DEFLATED, 31)
    return packer.compress(content) + packer.flush()


def recovered_content(
    recovered: RecoveredTrips, media_type: str, unread: Sequence[Reject], about: Mapping[str, Any]
) -> bytes:
    """Return recovered trips as JSON, GeoJSON or CSV.

    Parameters
    ----------
    unread
        Rows of an uploaded file that could not be read.
    about
        The members of the answer beside trips and rejects; CSV has no place for them, nor for the rejects.
    """
    if media_type == JSON:
        answer = {"trips": recovered_json(recovered), "rejects": _rejects(recovered.rejects, unread), **about}
        return to_json(answer, inf_nan_mode="null")
    with tempfile.TemporaryDirectory(prefix="tedtrajrec-") as folder:
        path = Path(folder) / f"recovered{_SUFFIX[media_type]}"
        write_trips(recovered.to_trips(), path)
        content = path.read_bytes()
    if media_type == GEOJSON:
        collection = json.loads(content)
        return to_json({**collection, "rejects": _rejects(recovered.rejects, unread), **about}, inf_nan_mode="null")
    return content


def matched_content(
    part: MatchedPart, network: RoadNetwork, unread: Sequence[Reject], about: Mapping[str, Any]
) -> bytes:
    """Return matched trips as JSON."""
    answer = {"trips": _matched(part, network), "rejects": _rejects(part.rejects, unread), **about}
    return to_json(answer, inf_nan_mode="null")


def _rejects(rejects: Rejects, unread: Sequence[Reject]) -> list[dict[str, Any]]:
    listed = [
        {"traj_id": name, "timestamp": None if time == NO_TIME else time, "reason": reason}
        for name, time, reason in zip(
            rejects.traj_id.tolist(), rejects.time.tolist(), rejects.reason.tolist(), strict=True
        )
    ]
    return listed + [row.model_dump() for row in unread]


def _matched(part: MatchedPart, network: RoadNetwork) -> list[dict[str, Any]]:
    matched = part.matched
    if matched is None:
        return []
    known = matched.segment >= 0
    way = np.zeros(len(known), np.int64)
    way[known] = network.way_at(matched.segment[known], matched.ratio[known])
    columns = {
        "timestamp": part.trips.time.tolist(),
        "lon": np.round(matched.lon, 7).tolist(),
        "lat": np.round(matched.lat, 7).tolist(),
        "segment": [s if s >= 0 else None for s in matched.segment.tolist()],
        "ratio": np.round(matched.ratio, 6).tolist(),
        "osm_way_id": [w if k else None for w, k in zip(way.tolist(), known.tolist(), strict=True)],
        "distance_m": np.round(matched.distance_m, 2).tolist(),
        "probability": np.round(matched.probability, 4).tolist(),
        "status": [STATUS[code] for code in matched.status.tolist()],
    }
    routes = [
        {
            "segment": matched.route_segment[start:end].tolist(),
            "enter": np.round(matched.route_enter[start:end], 2).tolist(),
            "leave": np.round(matched.route_leave[start:end], 2).tolist(),
            "ends": ENDS[code],
        }
        for start, end, code in zip(
            matched.route_offsets[:-1].tolist(),
            matched.route_offsets[1:].tolist(),
            matched.piece_ends.tolist(),
            strict=True,
        )
    ]
    return [
        {"traj_id": name}
        | {column: values[a:b] for column, values in columns.items()}
        | {"routes": routes[matched.piece_offsets[i] : matched.piece_offsets[i + 1]]}
        for i, (name, a, b) in enumerate(
            zip(
                part.trips.traj_id.tolist(),
                part.trips.offsets[:-1].tolist(),
                part.trips.offsets[1:].tolist(),
                strict=True,
            )
        )
    ]
