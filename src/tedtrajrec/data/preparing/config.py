"""Every setting of ``prepare``; ``docs/datasets.md`` describes them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from tedtrajrec.trips.clean import CleanConfig
from tedtrajrec.trips.matching.config import MatchConfig

TruthFrom = Literal["auto", "given", "match"]
SplitBy = Literal["trip", "day", "column"]


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


@dataclass(frozen=True)
class TruthConfig:
    """Where true positions come from, and when a step counts as known."""

    source: TruthFrom = "auto"  # given: columns of the file; match: the matcher; auto: given where there are columns
    edge_column: str = ""  # a column with ids of the network's edge table; empty: the column segment
    rematch: bool = False  # positions that are not given are taken from the matcher
    max_gap_s: float = 60.0  # matched: steps between two matched fixes farther apart are unknown
    max_distance_m: float = 100.0  # matched: so are those beside a matched fix farther from its position

    def __post_init__(self) -> None:
        for name in ("max_gap_s", "max_distance_m"):
            _require(getattr(self, name) > 0, f"{name} is {getattr(self, name)}; it must be positive")

    @property
    def may_match(self) -> bool:
        """Whether the matcher may be asked, which "auto" leaves to the columns of the file."""
        return self.rematch or self.source != "given"


@dataclass(frozen=True)
class DropConfig:
    """Which trips are left out because they cannot be trusted or do not serve; 0 means off."""

    min_steps: int = 5
    min_duration_s: float = 0.0  # of the steps that are left; the paper's trips last 600 to 1,200 s
    max_duration_s: float = 0.0
    max_unknown: float = 0.2  # share of steps whose true position is not known
    max_median_m: float = 50.0  # median distance from the fixes to the true positions
    shared_fixes: int = 5  # a training trip that shares so many fixes with one trip of another split goes

    def __post_init__(self) -> None:
        for name in ("min_steps", "min_duration_s", "max_duration_s", "max_median_m", "shared_fixes"):
            value = getattr(self, name)
            _require(0 <= value < math.inf, f"{name} is {value}; it must be a number of at least 0")
        _require(0 <= self.max_unknown <= 1, f"max_unknown is {self.max_unknown}; it is a share from 0 to 1")
        if self.max_duration_s:
            _require(self.max_duration_s >= self.min_duration_s, "max_duration_s is below min_duration_s")


@dataclass(frozen=True)
class SplitConfig:
    """How trips are divided into training, validation and test."""

    by: SplitBy = "trip"
    column: str = "split"  # for by = "column": holds train, valid (val, validation) or test; trips without go
    shares: tuple[float, float, float] = (0.7, 0.1, 0.2)  # train, valid, test
    seed: int = 0

    def __post_init__(self) -> None:
        _require(min(self.shares) >= 0 and abs(sum(self.shares) - 1) < 1e-9, "the shares must add up to 1")


@dataclass(frozen=True)
class PrepareConfig:
    """How a dataset is prepared."""

    step_s: int = 15
    time_zone: str = ""  # IANA name; must be given
    columns: dict[str, str] = field(default_factory=dict)  # our name -> name in the file, see read_trips
    fix_gap_s: float | None = None  # fixes off the grid: two at most so far apart give one between; None: 1.5 steps
    clean: CleanConfig = field(default_factory=CleanConfig)
    # Every fix is a knot: with fixes left out that are near others, .01 to .03 fewer steps get the right segment.
    match: MatchConfig = field(default_factory=lambda: MatchConfig(thin=0.0))
    truth: TruthConfig = field(default_factory=TruthConfig)
    drop: DropConfig = field(default_factory=DropConfig)
    split: SplitConfig = field(default_factory=SplitConfig)

    def __post_init__(self) -> None:
        _require(self.step_s >= 1, f"step_s is {self.step_s}; it must be at least 1")
        _require(self.fix_gap_s is None or self.fix_gap_s >= 0, "fix_gap_s must not be negative")

    @property
    def largest_fix_gap_s(self) -> float:
        """Seconds between two fixes up to which one between them is interpolated.

        Regular fixes lie on the grid and one that is missing leaves a gap of two steps, so by default nothing is made
        up there; fixes that come a little early or late have gaps of little more than a step.
        """
        return 1.5 * self.step_s if self.fix_gap_s is None else self.fix_gap_s
