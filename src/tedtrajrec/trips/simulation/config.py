"""Every setting of the simulator; ``docs/simulator.md`` gives the equations they stand in."""

from __future__ import annotations

import datetime
import zoneinfo
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["home", "work", "leisure"]
KINDS: tuple[Kind, ...] = ("home", "work", "leisure")

LEVELS = ("fast", "main", "collecting", "local")
"""Road classes in four levels: motorway and trunk; primary and secondary; tertiary and unclassified; the rest."""

PerLevel = tuple[float, float, float, float]


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


@dataclass(frozen=True)
class Peak:
    """A daily wave: a bell around ``hour`` of local time, as high as ``weekday`` or ``weekend``."""

    hour: float
    width_h: float
    weekday: float
    weekend: float

    def __post_init__(self) -> None:
        _require(0 <= self.hour < 24, "hour must be 0 to 24")
        _require(0 < self.width_h <= 12, "width_h must be positive and at most 12")
        _require(min(self.weekday, self.weekend) >= 0, "weekday and weekend must not be negative")


# fmt: off
_WEEKDAY = (
    1.3, 0.9, 0.7, 0.6, 0.8, 1.2, 2.2, 4.2, 6.6, 6.4, 5.0, 4.6,
    4.8, 4.9, 4.7, 4.8, 5.2, 6.4, 6.8, 5.8, 4.2, 3.2, 2.6, 2.0,
)
_WEEKEND = (
    3.6, 3.4, 3.0, 2.6, 2.2, 1.8, 1.6, 1.8, 2.2, 2.8, 3.4, 3.8,
    4.2, 4.2, 4.0, 3.9, 3.9, 4.0, 4.2, 4.4, 4.0, 3.6, 3.8, 3.9,
)
# fmt: on


@dataclass(frozen=True)
class CalendarConfig:
    """When trips start, and the waves of the day that demand and traffic follow."""

    start: str = "2024-04-08"  # first day, a local date
    days: int = 28
    time_zone: str = "Europe/Lisbon"
    weekday: tuple[float, ...] = _WEEKDAY  # relative number of departures by local hour, Monday to Friday
    weekend: tuple[float, ...] = _WEEKEND
    morning: Peak = Peak(hour=8.6, width_h=1.1, weekday=1.0, weekend=0.1)
    midday: Peak = Peak(hour=13.5, width_h=3.2, weekday=0.6, weekend=0.5)
    evening: Peak = Peak(hour=18.2, width_h=1.3, weekday=1.15, weekend=0.4)
    night: Peak = Peak(hour=1.5, width_h=2.5, weekday=0.5, weekend=1.5)

    def __post_init__(self) -> None:
        try:
            datetime.date.fromisoformat(self.start)
        except ValueError:
            raise ValueError(f"start is '{self.start}'; it must be a date such as 2024-04-08") from None
        try:
            zoneinfo.ZoneInfo(self.time_zone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"time_zone '{self.time_zone}' is not an IANA name such as Europe/Lisbon") from None
        _require(1 <= self.days <= 3660, "days must be 1 to 3660")
        for name, profile in (("weekday", self.weekday), ("weekend", self.weekend)):
            _require(len(profile) == 24, f"{name} must have 24 values, one for each hour")
            _require(min(profile) >= 0 < sum(profile), f"{name} must not be negative, nor all zero")


@dataclass(frozen=True)
class Spot:
    """A hot spot that trips start from and go to."""

    lon: float
    lat: float
    kind: Kind
    radius_m: float = 500.0
    weight: float = 1.0

    def __post_init__(self) -> None:
        _require(-180 <= self.lon <= 180 and -90 <= self.lat <= 90, "lon and lat must be degrees, longitude first")
        _require(self.radius_m > 0 and self.weight > 0, "radius_m and weight must be positive")


@dataclass(frozen=True)
class DemandConfig:
    """Where trips start and end, and how long they are."""

    spots: tuple[Spot, ...] = ()  # given hot spots; without any they are drawn on the network
    home_spots: int = 14  # number drawn of each kind
    work_spots: int = 6
    leisure_spots: int = 7
    radius_m: float = 450.0  # typical radius of a drawn spot
    everywhere: float = 0.25  # share of ends that ignore hot spots
    flow: float = 3.0  # how far the waves of the day turn flows: home to work, work to home, leisure at night
    by_level: PerLevel = (0.0, 0.6, 1.0, 1.0)  # how readily a trip starts or ends on a road
    distance_m: float = 1050.0  # straight distance that is never turned down
    distance_sigma: float = 0.9  # how fast others lose appeal, of the logarithm
    least_m: float = 400.0
    most_m: float = 14_000.0
    least_minutes: float = 3.0
    most_minutes: float = 30.0

    def __post_init__(self) -> None:
        _require(min(self.home_spots, self.work_spots, self.leisure_spots) >= 1, "each kind needs at least one spot")
        _require(
            not self.spots or {s.kind for s in self.spots} == set(KINDS),
            "spots must name at least one of each kind: home, work, leisure",
        )
        _require(0 <= self.everywhere <= 1, "everywhere must be 0 to 1")
        _require(self.flow >= 0 and self.radius_m > 0, "flow must not be negative, radius_m positive")
        _require(min(self.by_level) >= 0 < max(self.by_level), "by_level must not be negative, nor all zero")
        _require(self.distance_m > 0 and self.distance_sigma > 0, "distance_m and distance_sigma must be positive")
        _require(0 <= self.least_m < self.most_m, "least_m must be less than most_m")
        _require(
            0 <= self.least_minutes < self.most_minutes <= 600,
            "least_minutes must be less than most_minutes, and that at most 600",
        )


@dataclass(frozen=True)
class TrafficConfig:
    """How fast roads are driven without traffic, and where and when they fill up."""

    slot_minutes: int = 15  # how often speeds change
    speed_share: PerLevel = (1.2, 1.35, 1.3, 1.25)  # speed of an empty road as a share of its limit
    exposure: PerLevel = (2.3, 1.0, 0.7, 0.4)  # how much traffic a level attracts
    strength: float = 1.5  # extra travel time at the height of a wave, as a share of free travel time
    outskirts: float = 0.3  # strength far from all centres, as a share of that in the centre
    centre_radius_m: float = 1500.0  # how far the congestion of a centre reaches
    direction: float = 0.65  # morning: so much more inbound and less outbound; evening: the reverse
    patch_m: float = 600.0  # size of the areas that differ at random
    patch_sigma: float = 0.5  # how much areas differ
    segment_sigma: float = 0.35  # how much segments differ
    day_sigma: float = 0.2  # how much days differ

    def __post_init__(self) -> None:
        _require(
            self.slot_minutes > 0 and 60 % self.slot_minutes == 0, "slot_minutes must divide an hour, for example 15"
        )
        _require(
            min(self.speed_share) > 0 and max(self.speed_share) <= 1.5, "speed_share must be positive, at most 1.5"
        )
        _require(min(self.exposure) >= 0 and self.strength >= 0, "exposure and strength must not be negative")
        _require(0 <= self.outskirts <= 1 and 0 <= self.direction <= 1, "outskirts and direction must be 0 to 1")
        _require(self.centre_radius_m > 0 and self.patch_m > 0, "centre_radius_m and patch_m must be positive")
        _require(
            min(self.patch_sigma, self.segment_sigma, self.day_sigma) >= 0
            and max(self.patch_sigma, self.segment_sigma, self.day_sigma) <= 2,
            "sigmas must be 0 to 2",
        )


@dataclass(frozen=True)
class RouteConfig:
    """How drivers choose: the least travel time as each of them sees it."""

    segment_sigma: float = 0.2  # a driver's error about one segment, of the logarithm of its time
    area_sigma: float = 0.2  # about a whole area (``traffic.patch_m`` wide)
    level_sigma: float = 0.15  # liking or dislike of a level of road
    turn_s: float = 10.0  # what a U-turn costs; other turns less, by their angle

    def __post_init__(self) -> None:
        sigmas = (self.segment_sigma, self.area_sigma, self.level_sigma)
        _require(min(sigmas) >= 0 and max(sigmas) <= 2, "sigmas must be 0 to 2")
        _require(self.turn_s >= 0, "turn_s must not be negative")


@dataclass(frozen=True)
class Crossing:
    """How often a car stops before a kind of junction, and for how long."""

    stop_share: float
    wait_s: float  # mean

    def __post_init__(self) -> None:
        _require(0 <= self.stop_share <= 1 and self.wait_s >= 0, "stop_share must be 0 to 1, wait_s not negative")


@dataclass(frozen=True)
class DrivingConfig:
    """How a car moves along its route, second by second."""

    driver_sigma: float = 0.12  # drivers differ in speed, of the logarithm
    speed_sigma: float = 0.15  # speed varies under way, as a share
    speed_tau_s: float = 25.0  # for about so long
    accelerate_mps2: float = 1.8
    brake_mps2: float = 2.4
    u_turn_mps: float = 4.0  # speed in a U-turn; other turns are faster, by their angle
    signals: Crossing = Crossing(0.3, 32.0)  # main roads cross
    give_way: Crossing = Crossing(0.5, 8.0)  # a lesser road meets a greater
    priority: Crossing = Crossing(0.05, 6.0)  # a greater road meets a lesser
    equal: Crossing = Crossing(0.12, 4.0)  # two lesser roads of a level meet
    wait_load: float = 0.5  # how much traffic lengthens waits
    queue_m: float = 8.0  # mean distance before the junction at which a car stops
    halts_per_km: float = 0.5  # short halts for no reason of the map
    halt_s: float = 30.0  # mean
    longest_wait_s: float = 240.0

    def __post_init__(self) -> None:
        _require(
            min(self.driver_sigma, self.speed_sigma) >= 0 and max(self.driver_sigma, self.speed_sigma) <= 0.5,
            "driver_sigma and speed_sigma must be 0 to 0.5",
        )
        _require(
            min(self.speed_tau_s, self.accelerate_mps2, self.brake_mps2, self.u_turn_mps) > 0,
            "speed_tau_s, accelerate_mps2, brake_mps2 and u_turn_mps must be positive",
        )
        _require(
            min(self.wait_load, self.queue_m, self.halts_per_km, self.halt_s, self.longest_wait_s) >= 0,
            "waits, queues and halts must not be negative",
        )


@dataclass(frozen=True)
class NoiseConfig:
    """How GPS errs: a drifting error and a jitter, both scaled by how well the sky is seen, and rare jumps."""

    drift_m: float = 5.7  # standard deviation along each axis
    drift_tau_s: float = 240.0
    jitter_m: float = 0.7
    sky_sigma: float = 0.9  # spread of the scale, of its logarithm: the heavy tail
    sky_tau_s: float = 300.0
    outlier_share: float = 0.02  # of fixes
    outlier_m: float = 60.0  # mean size of a jump

    def __post_init__(self) -> None:
        _require(
            min(self.drift_m, self.jitter_m, self.sky_sigma, self.outlier_m) >= 0,
            "drift_m, jitter_m, sky_sigma and outlier_m must not be negative",
        )
        _require(min(self.drift_tau_s, self.sky_tau_s) > 0, "drift_tau_s and sky_tau_s must be positive")
        _require(0 <= self.outlier_share <= 1, "outlier_share must be 0 to 1")


@dataclass(frozen=True)
class SimulationConfig:
    """All settings of the simulator.

    ``world_seed`` fixes the city's life (hot spots, jams, good and bad days): simulations with the same world and
    another ``seed`` give other trips of the same city.
    """

    world_seed: int = 0
    calendar: CalendarConfig = field(default_factory=CalendarConfig)
    demand: DemandConfig = field(default_factory=DemandConfig)
    traffic: TrafficConfig = field(default_factory=TrafficConfig)
    route: RouteConfig = field(default_factory=RouteConfig)
    driving: DrivingConfig = field(default_factory=DrivingConfig)
    noise: NoiseConfig = field(default_factory=NoiseConfig)
