"""The metrics of trajectory recovery, per trip; ``docs/metrics.md`` has the formulas and what was published with them.

Truth and prediction are positions at the same steps. A step whose true segment is -1 (unknown) is left out of
everything and counted; a predicted segment of -1 (no answer) is wrong and as far away as the cap.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tedtrajrec.errors import InputError
from tedtrajrec.network.connectivity import strong_components
from tedtrajrec.network.geodesy import short_distance_m
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from tedtrajrec.trips import sequences

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Segments = NDArray[np.int32]
Mask = NDArray[np.bool_]

CAP_M = 4000.0
"""The cap of the published network distances."""


@dataclass(frozen=True, eq=False)
class TripMetrics:
    """The metrics of T trips, one value each; NaN where a trip has no step of the kind.

    A trip without any step of known truth has NaN everywhere.
    """

    n_steps: Ints  # [T] steps of known truth: all below is about these
    n_unknown: Ints  # [T] steps of unknown truth, left out
    n_unanswered: Ints  # [T] steps without a prediction
    n_observed: Ints  # [T] observed steps; 0 where it was not said which are
    n_no_route: Ints  # [T] missing steps in gaps for which the map has no route; 0 where it was not said

    accuracy: Floats  # [T] share of steps on the true segment
    accuracy_observed: Floats  # [T] the same among observed steps
    accuracy_missing: Floats  # [T] among the others
    accuracy_no_route: Floats  # [T] among those in gaps for which the map has no route

    recall: Floats  # [T] longest common subsequence of the collapsed segments / length of the truth
    precision: Floats  # [T] ... / length of the prediction; 0 where nothing is predicted
    f1: Floats  # [T] harmonic mean of both
    set_recall: Floats  # [T] distinct segments in both / distinct true segments
    set_precision: Floats  # [T] ... / distinct predicted segments; 0 where nothing is predicted
    set_f1: Floats  # [T]

    mae_m: Floats  # [T] mean network distance, the lesser of both directions, capped
    rmse_m: Floats  # [T] root of the mean of its squares
    mae_uncapped_m: Floats  # [T] the same over the steps within the cap
    rmse_uncapped_m: Floats  # [T]
    capped_share: Floats  # [T] share of steps that are not
    straight_mae_m: Floats  # [T] mean straight-line distance; unanswered steps at the cap
    straight_rmse_m: Floats  # [T]

    def __len__(self) -> int:
        return len(self.n_steps)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return all arrays by name, counts first."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def counts(self) -> dict[str, Ints]:
        """Return the counts of steps by name."""
        return {name: column for name, column in self.columns().items() if name.startswith("n_")}

    def values(self) -> dict[str, Floats]:
        """Return the metrics by name, without the counts."""
        return {name: column for name, column in self.columns().items() if not name.startswith("n_")}


def evaluate_trips(
    roads: RoadNetwork | Router,
    offsets: ArrayLike,
    true_segment: ArrayLike,
    true_ratio: ArrayLike,
    segment: ArrayLike,
    ratio: ArrayLike,
    *,
    observed: ArrayLike | None = None,
    no_route: ArrayLike | None = None,
    cap_m: float = CAP_M,
    workers: int | None = None,
) -> TripMetrics:
    """Return the metrics of recovered trips.

    Parameters
    ----------
    roads
        The network the positions are on, or a router over its metres, which saves making one for each call.
    offsets
        Steps of trip ``i`` are ``offsets[i]:offsets[i + 1]`` [T+1].
    true_segment, true_ratio
        The true positions [F]; segment -1 where unknown. The ratio counts only where the segment is known.
    segment, ratio
        The predicted positions [F]; segment -1 where there is no answer.
    observed
        Which steps were given to the method [F]; None: not said, and accuracies by kind of step are NaN.
    no_route
        Which steps lie in gaps for which the map has no route [F]; None: :func:`gaps_without_route` where ``observed``
        is given. Give it when several methods are evaluated on the same steps.
    cap_m
        The longest distance that counts; farther or unreachable pairs count as this.
    workers
        Threads for the network distances; None: all cores. Results do not depend on it.

    Raises
    ------
    InputError
        If arrays do not fit together or positions are not on the network.
    """
    if not (np.isfinite(cap_m) and cap_m > 0):
        raise ValueError(f"the cap is {cap_m}; it must be a positive number of metres")
    router = _router(roads)
    network = router.network
    bounds = _offsets(offsets)
    n_trips, n_all = len(bounds) - 1, int(bounds[-1])
    truth, true_at = _positions(network, true_segment, true_ratio, n_all, "true_segment", "true_ratio")
    answer, at = _positions(network, segment, ratio, n_all, "segment", "ratio")
    seen = None if observed is None else _mask(observed, n_all, "observed")
    if no_route is not None:
        cut_off = _mask(no_route, n_all, "no_route")
    elif seen is not None:
        cut_off = gaps_without_route(router, bounds, truth, seen, workers=workers)
    else:
        cut_off = np.zeros(n_all, bool)

    # From here on only steps of known truth.
    known = truth >= 0
    answered = answer[known] >= 0
    trip = np.repeat(np.arange(n_trips), np.diff(bounds))[known]
    n_steps = np.bincount(trip, minlength=n_trips)
    right = truth[known] == answer[known]

    def share(which: Mask, among: Mask | None = None) -> Floats:
        return _means(trip, which.astype(np.float64), n_trips, among)

    distance, capped = np.full(len(trip), cap_m), np.ones(len(trip), bool)
    straight = np.full(len(trip), cap_m)
    both = known & (answer >= 0)
    distance[answered], capped[answered] = router.both_ways(
        answer[both], at[both], truth[both], true_at[both], cap_m=cap_m, workers=workers
    )
    straight[answered] = short_distance_m(
        *network.point_at(truth[both], true_at[both]), *network.point_at(answer[both], at[both])
    )

    true_part = sequences.collapse(bounds, truth, known)
    part = sequences.collapse(bounds, answer, both)
    lcs = sequences.common_subsequence(*true_part, *part)
    recall, precision, f1 = _overlap(lcs, np.diff(true_part[0]), np.diff(part[0]))
    in_truth, in_answer, in_both = sequences.distinct_counts(*true_part, *part, len(network))
    set_recall, set_precision, set_f1 = _overlap(in_both, in_truth, in_answer)

    in_gap = cut_off[known]
    given = np.zeros(len(trip), bool) if seen is None else seen[known]
    missing = np.zeros(len(trip), bool) if seen is None else ~given
    return TripMetrics(
        n_steps=n_steps,
        n_unknown=np.diff(bounds) - n_steps,
        n_unanswered=np.bincount(trip[~answered], minlength=n_trips),
        n_observed=np.bincount(trip[given], minlength=n_trips),
        n_no_route=np.bincount(trip[in_gap], minlength=n_trips),
        accuracy=share(right),
        accuracy_observed=share(right, given),
        accuracy_missing=share(right, missing),
        accuracy_no_route=share(right, in_gap),
        recall=recall,
        precision=precision,
        f1=f1,
        set_recall=set_recall,
        set_precision=set_precision,
        set_f1=set_f1,
        mae_m=_means(trip, distance, n_trips),
        rmse_m=np.sqrt(_means(trip, distance**2, n_trips)),
        mae_uncapped_m=_means(trip, distance, n_trips, ~capped),
        rmse_uncapped_m=np.sqrt(_means(trip, distance**2, n_trips, ~capped)),
        capped_share=share(capped),
        straight_mae_m=_means(trip, straight, n_trips),
        straight_rmse_m=np.sqrt(_means(trip, straight**2, n_trips)),
    )


def gaps_without_route(
    roads: RoadNetwork | Router,
    offsets: ArrayLike,
    true_segment: ArrayLike,
    observed: ArrayLike,
    *,
    workers: int | None = None,
) -> Mask:
    """Return which missing steps lie in gaps for which the map has no route [F].

    A gap is what lies between two consecutive observed steps of known truth; there is no route when the network leads
    in no way from the true segment before it to the one after it. On one and the same segment there always is one.
    Steps before the first or after the last observed one are in no gap.

    Parameters
    ----------
    roads
        The network, or a router over it.
    offsets
        Steps of trip ``i`` are ``offsets[i]:offsets[i + 1]`` [T+1].
    true_segment
        The true segments [F]; -1 where unknown.
    observed
        Which steps were given to the method [F].
    workers
        Threads to use; None: all cores.
    """
    router = _router(roads)
    bounds = _offsets(offsets)
    n_all = int(bounds[-1])
    truth = _segments(router.network, true_segment, n_all, "true_segment")
    seen = _mask(observed, n_all, "observed")

    trip = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    end = np.flatnonzero(seen & (truth >= 0))
    before, after = end[:-1], end[1:]
    is_gap = (trip[before] == trip[after]) & (after > before + 1)
    before, after = before[is_gap], after[is_gap]

    # Within a strong component there always is a route; only the few other pairs are searched, without a limit.
    component = strong_components(router.network)
    apart = component[truth[before]] != component[truth[after]]
    before, after = before[apart], after[apart]
    lost = np.isinf(router.distances(truth[before], 1.0, truth[after], 0.0, workers=workers))

    change = np.zeros(n_all + 1, np.int64)
    change[before[lost] + 1] += 1
    change[after[lost]] -= 1
    return (np.cumsum(change[:-1]) > 0) & ~seen


# ---------------------------------------------------------------------- parts of the metrics


def _means(trip: Ints, value: Floats, n_trips: int, among: Mask | None = None) -> Floats:
    """Return the mean of the values of each trip [T], NaN where it has none."""
    if among is not None:
        trip, value = trip[among], value[among]
    return _divide(np.bincount(trip, value, n_trips), np.bincount(trip, minlength=n_trips), np.nan)


def _overlap(common: Ints, n_true: Ints, n_predicted: Ints) -> tuple[Floats, Floats, Floats]:
    """Return recall, precision and F1 from counts of elements [T each]; NaN where there is no truth."""
    recall = _divide(common, n_true, np.nan)
    precision = np.where(n_true > 0, _divide(common, n_predicted, 0.0), np.nan)
    return recall, precision, _divide(2 * common, np.where(n_true > 0, n_true + n_predicted, 0), np.nan)


def _divide(numerator: NDArray[Any], denominator: NDArray[Any], where_zero: float) -> Floats:
    out = np.full(len(denominator), where_zero)
    np.divide(numerator, denominator, out=out, where=denominator > 0)
    return out


# ---------------------------------------------------------------------- checks of the input


def _router(roads: RoadNetwork | Router) -> Router:
    if isinstance(roads, RoadNetwork):
        return Router(roads)
    if roads.cost is not roads.network.length_m:
        raise ValueError("the router adds up another cost; errors are measured in metres")
    return roads


def _offsets(offsets: ArrayLike) -> Ints:
    bounds = np.asarray(offsets, np.int64)
    if bounds.ndim != 1 or len(bounds) == 0 or bounds[0] != 0 or (np.diff(bounds) < 0).any():
        raise InputError("offsets must start at 0 and never fall", field="offsets")
    return bounds


def _column(values: ArrayLike, n: int, name: str) -> NDArray[Any]:
    column = np.asarray(values)
    if column.shape != (n,):
        raise InputError(f"it has the shape {column.shape}, but the trips have {n} steps", field=name)
    return column


def _mask(values: ArrayLike, n: int, name: str) -> Mask:
    mask = _column(values, n, name)
    if n and mask.dtype != bool:
        raise InputError(f"it holds {mask.dtype}, not booleans", field=name)
    return mask.astype(bool, copy=False)


def _segments(network: RoadNetwork, values: ArrayLike, n: int, name: str) -> Segments:
    segment = _column(values, n, name)
    if n and not np.issubdtype(segment.dtype, np.integer):
        raise InputError(f"it holds {segment.dtype}, not integers", field=name)
    wrong = (segment < -1) | (segment >= network.n_segments)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(
            f"segment {segment[row]} is not on the network, which has 0 to {network.n_segments - 1}",
            row=row + 1,
            field=name,
            remedy="Use the network that the trips were matched on, and -1 for no segment.",
        )
    return segment.astype(np.int32, copy=False)


def _positions(
    network: RoadNetwork, segments: ArrayLike, ratios: ArrayLike, n: int, segment_name: str, ratio_name: str
) -> tuple[Segments, Floats]:
    segment = _segments(network, segments, n, segment_name)
    ratio = _column(ratios, n, ratio_name).astype(np.float64, copy=False)
    wrong = np.isnan(ratio) & (segment >= 0)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError("the ratio of a segment is not a number", row=row + 1, field=ratio_name)
    return segment, ratio
