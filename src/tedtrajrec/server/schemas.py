"""What requests and answers look like; the OpenAPI description is made of these."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from tedtrajrec.trips.files.times import EARLIEST, LATEST

Lon = Annotated[float, Field(ge=-180, le=180, allow_inf_nan=False)]
Lat = Annotated[float, Field(ge=-90, le=90, allow_inf_nan=False)]
Instant = (
    Annotated[int, Field(ge=EARLIEST, lt=LATEST)]
    | Annotated[float, Field(ge=EARLIEST, lt=LATEST, allow_inf_nan=False)]
    | Annotated[str, StringConstraints(min_length=10, max_length=40), Field(json_schema_extra={"format": "date-time"})]
)
TripId = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class Point(BaseModel):
    """A fix."""

    model_config = ConfigDict(extra="forbid")

    lon: Lon
    lat: Lat
    timestamp: Instant = Field(
        description="Epoch seconds, or ISO 8601 with offset such as 2013-07-01T00:00:58Z (without one, give timezone)."
    )


class SparseTrip(BaseModel):
    """A trip with some fixes in order of time."""

    model_config = ConfigDict(extra="forbid")

    traj_id: TripId
    points: list[Point] = Field(min_length=1)


class Reading(BaseModel):
    """How the times of a request are read."""

    model_config = ConfigDict(extra="forbid")

    timezone: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = Field(
        default=None, description="IANA time zone of times without offset, such as Europe/Lisbon."
    )


class Options(Reading):
    """How trips are recovered."""

    step_s: int | None = Field(
        default=None, ge=1, le=3600, description="Seconds between steps; the method's own by default."
    )
    alternatives: int = Field(default=0, ge=0, le=10, description="How many next best trips to add to each.")
    method: Annotated[str, StringConstraints(min_length=1, max_length=100)] | None = Field(
        default=None, description="One of /v1/methods; the first by default."
    )
    decode: Literal["feasible", "greedy"] | None = Field(
        default=None, description="The most likely trip that can be driven, or the method's own answer."
    )
    fixes: bool = Field(default=False, description="Whether the answer (JSON, GeoJSON) also lists the fixes as read.")


class MatchRequest(Reading):
    """Trips to match."""

    trips: list[SparseTrip] = Field(min_length=1)


class RecoverRequest(Options):
    """Trips to recover."""

    trips: list[SparseTrip] = Field(min_length=1)


class DenseTrip(BaseModel):
    """A recovered trip: one value for each step in every list."""

    traj_id: str
    rank: int = Field(description="0: the trip itself; 1, 2, ...: the next best ones.")
    share: float | None = Field(description="Probability of the trip among those drawn, where alternatives were asked.")
    timestamp: list[int] = Field(description="Epoch seconds.")
    lon: list[float]
    lat: list[float]
    segment: list[int]
    ratio: list[float] = Field(description="0 to 1 along the segment.")
    osm_way_id: list[int] = Field(description="0: unknown.")
    observed: list[bool] = Field(description="Whether a fix belongs to the step.")
    probability: list[float | None] = Field(description="Of the position; null where the method gives none.")
    broken: list[bool] = Field(alias="break", description="No drivable way leads here from the step before in time.")


class Reject(BaseModel):
    """A fix or trip that could not be used."""

    traj_id: str | None
    timestamp: int | None
    reason: str
    row: int | None = Field(default=None, description="Data row of an uploaded file.")


class ReadTrip(BaseModel):
    """The fixes of a trip as they were read: one value for each in every list."""

    traj_id: str
    timestamp: list[int]
    lon: list[float]
    lat: list[float]


class RecoverAnswer(BaseModel):
    """Recovered trips, what could not be used, and what to know about the answer."""

    trips: list[DenseTrip]
    rejects: list[Reject]
    notes: list[str]
    attribution: str | None
    method: str
    step_s: int
    fixes: list[ReadTrip] | None = Field(default=None, description="Where they were asked for.")


class Route(BaseModel):
    """Segments driven without a break."""

    segment: list[int]
    enter: list[float] = Field(description="Epoch seconds when each segment is entered.")
    leave: list[float]
    ends: Literal["end_of_trip", "off_map", "no_route", "too_fast", "long_gap"]


class MatchedTrip(BaseModel):
    """A matched trip: one value for each fix in every list; null where a fix is unmatched."""

    traj_id: str
    timestamp: list[int]
    lon: list[float | None]
    lat: list[float | None]
    segment: list[int | None]
    ratio: list[float | None]
    osm_way_id: list[int | None]
    distance_m: list[float | None] = Field(description="From the fix to its position.")
    probability: list[float]
    status: list[Literal["matched", "followed", "off_map", "no_route", "too_fast"]]
    routes: list[Route]


class MatchAnswer(BaseModel):
    """Matched trips and what could not be used."""

    trips: list[MatchedTrip]
    rejects: list[Reject]
    notes: list[str]
    attribution: str | None


class MethodAnswer(BaseModel):
    """A method that this service can recover with."""

    name: str
    description: str
    step_s: int
    time_zone: str
    decode: list[Literal["feasible", "greedy"]]
    default: bool
    notes: list[str]


class MethodsAnswer(BaseModel):
    """The methods, the network and the limits of this service."""

    methods: list[MethodAnswer]
    bbox: tuple[float, float, float, float] = Field(description="West, south, east, north of the network.")
    segments: int
    network: str = Field(description="Hash that names the network.")
    attribution: str | None
    limits: dict[str, float]


class ExampleTruth(BaseModel):
    """The whole trip, where it is known."""

    timestamp: list[int]
    lon: list[float]
    lat: list[float]
    segment: list[int | None] | None
    ratio: list[float | None] | None


class Example(BaseModel):
    """A sparse trip to try."""

    traj_id: str
    points: list[Point]
    truth: ExampleTruth | None


class ExamplesAnswer(BaseModel):
    """Trips to try."""

    examples: list[Example]


class Health(BaseModel):
    """Whether the service can answer."""

    status: Literal["ready"]
    version: str


class LineString(BaseModel):
    """A GeoJSON line."""

    type: Literal["LineString"]
    coordinates: list[tuple[float, float]]


class SegmentProperties(BaseModel):
    """What is known of a segment."""

    segment: int
    road_class: str = Field(alias="class")
    osm_way_id: int
    length_m: float
    speed_kmh: float
    successors: list[int] = Field(description="Segments that may follow.")


class SegmentFeature(BaseModel):
    """A directed road segment."""

    type: Literal["Feature"]
    geometry: LineString
    properties: SegmentProperties


class NetworkAnswer(BaseModel):
    """Road segments as GeoJSON."""

    type: Literal["FeatureCollection"]
    features: list[SegmentFeature]
    attribution: str | None
