"""Bodies to trips: JSON and GeoJSON through the schemas, CSV and GPX through the readers of files."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from tedtrajrec.errors import InputError, TedtrajrecError
from tedtrajrec.server.limits import check_json, check_points, check_trips
from tedtrajrec.server.problems import Fault, ProblemError
from tedtrajrec.server.schemas import Instant, Lat, Lon, Options, Reading, Reject, SparseTrip, TripId
from tedtrajrec.server.settings import Limits
from tedtrajrec.trips.files.times import NaiveTimesError, TimeReader
from tedtrajrec.trips.readers import RejectedRows, read_trips
from tedtrajrec.trips.table import Trips, as_text

JSON = "application/json"
GEOJSON = "application/geo+json"
CSV = "text/csv"
TSV = "text/tab-separated-values"
GPX = "application/gpx+xml"
MEDIA_TYPES = (JSON, CSV, TSV, GPX, GEOJSON)

_SUFFIX = {CSV: ".csv", TSV: ".tsv", GPX: ".gpx"}
_GZIP = b"\x1f\x8b"
_PARQUET = b"PAR1"
_MOST_REJECTS = 1_000  # unreadable rows in an answer

Request = TypeVar("Request", bound=Reading)


@dataclass(frozen=True)
class Upload:
    """What a body holds."""

    trips: Trips
    options: Options
    rejects: tuple[Reject, ...] = ()


def parse(body: bytes, media_type: str, model: type[Request], query: Options, limits: Limits) -> Upload:
    """Return the trips and options of a body.

    Parameters
    ----------
    model
        Schema of a JSON body; it has a field ``trips``.
    query
        The options of the address; a JSON body may say otherwise.
    """
    if media_type not in MEDIA_TYPES:
        raise ProblemError("media-type", f"Send {', '.join(MEDIA_TYPES[:-1])} or {MEDIA_TYPES[-1]}.")
    if not body:
        raise ProblemError("invalid", "The body is empty.")
    if media_type == JSON:
        check_json(body, limits)
        request = _validated(model, body)
        said = request.model_dump(include=request.model_fields_set - {"trips"})
        options = query.model_copy(update=said)
        sparse: list[SparseTrip] = getattr(request, "trips")  # noqa: B009  (both requests have it)
        trips = _to_trips(sparse, options.timezone, limits)
        return Upload(trips, options)
    if media_type == GEOJSON:
        sparse = _from_geojson(body, limits)
        return Upload(_to_trips(sparse, query.timezone, limits), query)
    trips, rejects = _read_file(_unpacked(body, limits), media_type, query.timezone)
    check_points(trips.n_fixes, limits)
    check_trips(len(trips), limits)
    if max(map(len, trips.traj_id.tolist())) > 200:
        raise ProblemError("invalid", "An id may have 200 signs.", field="traj_id")
    return Upload(trips, query, rejects)


def _validated(model: type[Request], body: bytes) -> Request:
    try:
        return model.model_validate_json(body, strict=True)
    except ValidationError as error:
        raise ProblemError.from_validation(
            error.errors(include_url=False, include_context=False, include_input=False)
        ) from error


def _to_trips(sparse: Sequence[SparseTrip], timezone: str | None, limits: Limits) -> Trips:
    points = [point for trip in sparse for point in trip.points]
    check_points(len(points), limits)
    check_trips(len(sparse), limits)
    offsets = np.concatenate([[0], np.cumsum([len(trip.points) for trip in sparse])]).astype(np.int64)
    return Trips(
        traj_id=as_text([trip.traj_id for trip in sparse]),
        offsets=offsets,
        time=_times([point.timestamp for point in points], offsets, timezone),
        lon=np.array([point.lon for point in points], np.float64),
        lat=np.array([point.lat for point in points], np.float64),
    )


def _times(values: Sequence[float | str], offsets: NDArray[np.int64], timezone: str | None) -> NDArray[np.int64]:
    """Return epoch seconds, fractions rounded as in files."""
    is_text = np.array([isinstance(value, str) for value in values])
    times = np.zeros(len(values), np.int64)
    times[~is_text] = np.floor(np.array([v for v in values if not isinstance(v, str)], np.float64) + 0.5)
    written = np.flatnonzero(is_text)
    try:
        reader = TimeReader(timezone)
    except TedtrajrecError as error:
        raise ProblemError.from_error(error, "timezone") from error
    if len(written) == 0:
        return times
    texts = pl.Series([v for v in values if isinstance(v, str)], dtype=pl.String)
    if texts.str.contains(r"^\s*[\d.eE+-]+\s*$").any() and not texts.str.contains("^[0-9]{4}-").all():
        first = int(np.flatnonzero(~texts.str.contains("^[0-9]{4}-").to_numpy())[0])
        raise ProblemError(
            "invalid", "An epoch time is a number, not a text.", field=_place(int(written[first]), offsets)
        )
    try:
        times[written], problems = reader.read(texts)
    except NaiveTimesError as error:
        raise ProblemError(
            "invalid",
            "The time has no offset from UTC. Write it as 2013-07-01T00:00:58Z, or give timezone.",
            field=_place(int(written[error.row]), offsets),
        ) from error
    if problems:
        faults = [
            Fault(field=_place(int(written[int(np.argmax(p.rows))]), offsets), detail=f"It {p.reason}. {p.remedy}")
            for p in problems
        ]
        raise ProblemError("invalid", faults[0].detail, field=faults[0].field, problems=faults[1:] and faults)
    return times


def _place(point: int, offsets: NDArray[np.int64]) -> str:
    trip = int(np.searchsorted(offsets, point, "right")) - 1
    return f"trips[{trip}].points[{point - int(offsets[trip])}].timestamp"


# ------------------------------------------------------------------ GeoJSON


class _Line(BaseModel):
    type: Literal["LineString"]
    coordinates: list[tuple[Lon, Lat] | tuple[Lon, Lat, float]] = Field(min_length=1)


class _PerPoint(BaseModel):
    times: list[Instant]


class _Properties(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    traj_id: TripId
    per_point: _PerPoint = Field(alias="coordinateProperties")


class _Feature(BaseModel):
    type: Literal["Feature"]
    geometry: _Line
    properties: _Properties


class TripCollection(BaseModel):
    """Trips as GeoJSON: a LineString a trip, with its id and, under coordinateProperties, the times of its points."""

    type: Literal["FeatureCollection"]
    features: list[_Feature] = Field(min_length=1)


_COLLECTION = TypeAdapter(TripCollection)


def _from_geojson(body: bytes, limits: Limits) -> list[SparseTrip]:
    check_trips(body.count(b'"traj_id":'), limits)
    check_points(body.count(b"],["), limits)
    try:
        collection = _COLLECTION.validate_json(body, strict=True)
    except ValidationError as error:
        raise ProblemError.from_validation(
            error.errors(include_url=False, include_context=False, include_input=False)
        ) from error
    return list(_sparse(collection.features))


def _sparse(features: Iterable[_Feature]) -> Iterable[SparseTrip]:
    for number, feature in enumerate(features):
        times = feature.properties.per_point.times
        if len(times) != len(feature.geometry.coordinates):
            raise ProblemError(
                "invalid",
                f"There are {len(times)} times for {len(feature.geometry.coordinates)} coordinates.",
                field=f"features[{number}].properties.coordinateProperties.times",
            )
        points: list[Any] = [
            {"lon": at[0], "lat": at[1], "timestamp": time}
            for at, time in zip(feature.geometry.coordinates, times, strict=True)
        ]
        yield SparseTrip(traj_id=feature.properties.traj_id, points=points)


# ------------------------------------------------------------------ files


def _unpacked(body: bytes, limits: Limits) -> bytes:
    """Return a file that may have come compressed; what it unpacks to has the limit of a body."""
    if not body.startswith(_GZIP):
        return body
    unpacker = zlib.decompressobj(31)
    try:
        content = unpacker.decompress(body, limits.body_bytes + 1)
    except zlib.error as error:
        raise ProblemError("invalid", "The compressed file is damaged.") from error
    if len(content) > limits.body_bytes:
        raise ProblemError("too-large", f"A file may unpack to {limits.body_bytes:,} bytes.")
    if not unpacker.eof:
        raise ProblemError("invalid", "The compressed file is cut off.")
    if unpacker.unused_data:
        raise ProblemError("invalid", "The compressed file has several members; send one.")
    return content


def _read_file(body: bytes, media_type: str, timezone: str | None) -> tuple[Trips, tuple[Reject, ...]]:
    """Read a file of trips that came as a body; rows that cannot be used are listed, not dropped."""
    if body.startswith((_PARQUET, _GZIP)):  # our readers would unpack it to any size
        raise ProblemError("media-type", f"This is not {media_type}; recover such files on the command line.")
    with tempfile.TemporaryDirectory(prefix="tedtrajrec-") as folder:
        path = Path(folder) / f"trips{_SUFFIX[media_type]}"
        path.write_bytes(body)
        rejected = RejectedRows()
        try:
            try:
                trips = read_trips(path, timezone=timezone, rejects=rejected)
            except InputError:
                if not len(rejected):
                    raise
                trips = read_trips(path, timezone=timezone)  # no row is usable: the first fault says why
        except TedtrajrecError as error:
            raise ProblemError.from_error(error) from error
    rows = rejected.to_frame().head(_MOST_REJECTS)
    return trips, tuple(
        Reject(traj_id=None, timestamp=None, row=row, reason=f"{column}: {value!r} {reason}" if value else reason)
        for row, column, value, reason in rows.iter_rows()
    )
