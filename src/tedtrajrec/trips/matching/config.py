"""Every setting of the map matcher; ``docs/matching.md`` gives the equations they stand in."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

from tedtrajrec.errors import ConfigError

Backwards = Literal["stand", "free", "never"]


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


@dataclass(frozen=True)
class MatchConfig:
    """How fixes are matched; the defaults serve all intervals from 1 s to 5 minutes."""

    # Fixes and their candidates
    noise_m: float | None = None  # standard deviation of a fix across the road; None: estimated for each trip
    least_noise_m: float = 4.0  # bounds of the estimate
    most_noise_m: float = 30.0
    radius_m: float | None = None  # candidates lie within this distance; None: 5 x noise, at least 50 m
    radius_limit_m: float = 200.0  # where there is none, the radius grows up to this
    most_candidates: int = 24  # of one fix; the nearest are kept
    tail: float = 3.0  # beyond this many noise_m the log-likelihood falls no longer as a square but as a line
    outlier: float = 10.0  # nats; no candidate is less likely than this: a fix may simply be wrong
    drift_s: float = 10.0  # errors drift: after so many seconds 1/e of them is left, and fixes closer in time tell less
    thin: float = 3.0  # fixes within this many noise_m of the last one used are matched to the route afterwards

    # From fix to fix
    detour_m: float = 12.0  # scale of detours (route length minus straight distance): detour_m plus the lesser of
    detour_mps: float = 1.2  # this x elapsed seconds and
    detour_share: float = 0.3  # this x straight distance
    speed_power: float = 1.0  # routes are the cheapest, where a metre costs 1 / speed ^ speed_power
    u_turn_m: float = 200.0  # what a U-turn adds to the length of a route, where the network has U-turns
    backwards: Backwards = "stand"  # backwards on one segment: standing still if within noise, free, or never
    stand: float = 6.0  # how far back counts as standing still, in noise_m
    fast: float = 0.8  # free-flow time over elapsed time from where on a route becomes improbable
    fast_weight: float = 8.0  # nats x (excess over fast)²
    slow_weight: float = 0.5  # nats for each e-fold that it is slower, up to two
    too_fast: float = 3.0  # from where on it is barred
    top_speed_mps: float = 70.0  # barred beyond, whatever the network says

    # Where the chain breaks
    break_cost: float = 20.0  # nats; for this no known route may lead from one fix to the next
    skip_cost: float = 24.0  # nats; for this a fix may be left out: more than a break, less than one there and one back
    most_skipped: int = 5  # fixes in a row that may be left out because they do not fit
    longest_gap_s: float = 1800.0  # no route is sought over longer gaps
    longest_detour_m: float = 3000.0  # where no likely route leads on: routes of twice the distance and this are tried
    reach: float = 10.0  # nats; routes that are less likely than the best by more are not sought

    def __post_init__(self) -> None:
        positive = (
            "least_noise_m",
            "radius_limit_m",
            "tail",
            "outlier",
            "detour_m",
            "too_fast",
            "top_speed_mps",
            "reach",
            "break_cost",
            "skip_cost",
        )
        for name in (*positive, "longest_gap_s", "most_candidates"):
            _require(getattr(self, name) > 0, f"{name} must be positive")
        for name in ("noise_m", "radius_m"):
            value = getattr(self, name)
            _require(value is None or 0 < value < math.inf, f"{name} must be positive and finite, or left out")
        not_negative = (
            "drift_s",
            "thin",
            "detour_mps",
            "detour_share",
            "u_turn_m",
            "stand",
            "fast",
            "fast_weight",
            "slow_weight",
        )
        for name in (*not_negative, "most_skipped", "longest_detour_m"):
            _require(getattr(self, name) >= 0, f"{name} must not be negative")
        _require(self.most_noise_m >= self.least_noise_m, "most_noise_m must not be below least_noise_m")

    @classmethod
    def preset(cls, name: str) -> MatchConfig:
        """Return the settings of a published matcher, ``nk09`` or ``song12``, or ``default``."""
        try:
            return PRESETS[name]
        except KeyError:
            raise ConfigError(f"There is no preset '{name}'. Known: {', '.join(PRESETS)}.") from None


_NK09 = MatchConfig(
    noise_m=5.0,
    radius_m=50.0,
    radius_limit_m=50.0,
    most_candidates=1000,
    tail=math.inf,
    outlier=math.inf,
    drift_s=0.0,
    thin=0.0,
    detour_m=2.0,
    detour_mps=0.0,
    detour_share=0.0,
    speed_power=0.0,
    u_turn_m=0.0,
    backwards="never",
    fast_weight=0.0,
    slow_weight=0.0,
    too_fast=math.inf,
    top_speed_mps=math.inf,
    break_cost=math.inf,
    skip_cost=math.inf,
    most_skipped=0,
    longest_gap_s=math.inf,
    longest_detour_m=0.0,
    reach=1000.0,
)

PRESETS = {
    "default": MatchConfig(),
    "nk09": _NK09,
    "song12": dataclasses.replace(
        _NK09, noise_m=13.0, radius_m=75.0, radius_limit_m=75.0, detour_m=1.0, backwards="free", reach=2000.0
    ),
}
"""``nk09``: Newson and Krumm 2009 as MTrajRec sets it. ``song12``: Song et al. 2012 as RNTrajRec's preprocessing has
it; its 3 x 3 block of 50 m cells reaches 50 to 100 m, here 75 m."""
