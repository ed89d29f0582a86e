"""Recoverers: any fixes in, trips on the road out, at the times that were asked for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec import Recoverer
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.evaluation.run import draw_steps, evaluate_draw
from tedtrajrec.methods.base import Method, Recovered
from tedtrajrec.methods.lookup import Lookup
from tedtrajrec.methods.tedtrajrec_parallel import TedTrajRecParallel
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.geodesy import short_distance_m
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.recovery import grid
from tedtrajrec.recovery.recovered import NO_TIME, RecoveredTrips
from tedtrajrec.trips.table import Trips
from tests.conftest import make_grid
from tests.evaluation.drive_checker import ScipyGaps, check_trip

ROWS = ("time", "lon", "lat", "segment", "ratio", "osm_way_id", "observed", "probability", "broken")


def sparse_trips(dataset: Dataset, *, keep: str = "1/8", jitter_s: int = 0, seed: int = 0) -> Trips:
    """Return thinned test trips; the times of their fixes are moved by up to so many seconds."""
    trips = dataset.split("test").trips()
    draw = draw_steps(dataset, keep=keep, seed=seed)
    sparse = trips.keep_fixes(draw.observed).replace(segment=None, ratio=None)
    moved = np.random.default_rng(seed).integers(-jitter_s, jitter_s + 1, sparse.n_fixes)
    return sparse.replace(time=sparse.time + moved)


def assert_same(one: RecoveredTrips, other: RecoveredTrips) -> None:
    assert one.traj_id.tolist() == other.traj_id.tolist()
    for name in (*ROWS, "offsets", "rank", "share"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def assert_sound(recovered: RecoveredTrips, sparse: Trips, recoverer: Recoverer, step_s: int) -> None:
    """Check all that holds for any recovered trips from fixes that can be used."""
    network = recoverer.network
    number = {traj_id: i for i, traj_id in enumerate(sparse.traj_id.tolist())}
    assert ((recovered.ratio >= 0) & (recovered.ratio <= 1)).all()
    lon, lat = network.point_at(recovered.segment, recovered.ratio)
    np.testing.assert_allclose(recovered.lon, lon, atol=6e-8)
    np.testing.assert_allclose(recovered.lat, lat, atol=6e-8)
    assert CandidateFinder(network).nearest(recovered.lon, recovered.lat).distance_m.max() < 0.02
    np.testing.assert_array_equal(recovered.osm_way_id, network.way_at(recovered.segment, recovered.ratio))
    known = recovered.probability[np.isfinite(recovered.probability)]
    assert ((known >= 0) & (known <= 1)).all()
    for i, traj_id in enumerate(recovered.traj_id.tolist()):
        trip = number[traj_id]
        fixes = sparse.time[sparse.offsets[trip] : sparse.offsets[trip + 1]]
        time = recovered.time[recovered.offsets[i] : recovered.offsets[i + 1]]
        expected = np.arange(fixes[0], fixes[-1] + 1, step_s)
        np.testing.assert_array_equal(time, np.union1d(expected, fixes[-1:]))
        if step_s == recoverer.step_s:
            assert recovered.observed[recovered.offsets[i] : recovered.offsets[i + 1]].sum() <= len(fixes)


@pytest.mark.parametrize("kind", ["model", "untrained"])
def test_fixes_on_steps_give_what_an_evaluation_gives(
    kind: str, recovery_dataset: Dataset, request: pytest.FixtureRequest
) -> None:
    recoverer: Recoverer = request.getfixturevalue(kind)
    draw = draw_steps(recovery_dataset, keep="1/8")
    steps = evaluate_draw(recoverer.method, draw, keep_steps=True).steps
    sparse = sparse_trips(recovery_dataset)
    recovered = recoverer.recover_trips(sparse)
    assert steps is not None
    assert recovered.traj_id.tolist() == draw.traj_id.tolist()
    np.testing.assert_array_equal(recovered.offsets, draw.offsets)
    np.testing.assert_array_equal(recovered.segment, steps.segment)
    np.testing.assert_allclose(recovered.ratio, steps.ratio, atol=2e-6)
    np.testing.assert_allclose(recovered.probability, np.exp(steps.log_prob), atol=1e-4)
    np.testing.assert_array_equal(recovered.observed, draw.observed)
    assert len(recovered.rejects) == 0
    assert_sound(recovered, sparse, recoverer, 15)


@pytest.mark.parametrize("kind", ["model", "untrained"])
@pytest.mark.parametrize("jitter_s", [0, 7])
def test_breaks_are_those_of_the_checker(
    kind: str, jitter_s: int, recovery_dataset: Dataset, request: pytest.FixtureRequest
) -> None:
    recoverer: Recoverer = request.getfixturevalue(kind)
    sparse = sparse_trips(recovery_dataset, jitter_s=jitter_s)
    recovered = recoverer.recover_trips(sparse)
    gaps = ScipyGaps(recoverer.network)
    checked = far = 0
    for i, (first, end) in enumerate(zip(recovered.offsets[:-1], recovered.offsets[1:], strict=True)):
        whole = bool((np.diff(recovered.time[first:end]) == 15).all())
        rows = slice(first, end if whole else end - 1)  # the checker knows only steps of one length
        fixes: list[Any] = [None] * (rows.stop - first)
        if jitter_s == 0:
            places = np.flatnonzero(recovered.observed[rows])
            points = slice(sparse.offsets[i], sparse.offsets[i + 1])
            for place, point in zip(places, zip(sparse.lon[points], sparse.lat[points], strict=True), strict=True):
                fixes[place] = point
        verdict = check_trip(
            *(recoverer.network, gaps, recovered.segment[rows], recovered.ratio[rows], fixes),
            step_s=15, top_speed_mps=40.0,
        )  # fmt: skip
        assert verdict.breaks + verdict.backward == recovered.broken[rows].sum()
        assert verdict.unplaced == 0
        far += verdict.far
        checked += verdict.moves
    assert checked > 300
    assert far <= (kind == "untrained")  # one fix lies so far off that the matcher leaves it out
    assert recovered.broken.mean() < 0.01


@st.composite
def any_drive(draw: st.DrawFn) -> tuple[list[int], list[float], list[int]]:
    """Return some segments of the grid, one after another, with where on them and how much later fixes were taken."""
    at = draw(st.integers(0, len(GRID.network) - 1))
    segments = [at]
    for _ in range(draw(st.integers(1, 12))):
        for _ in range(draw(st.integers(0, 3))):
            following = GRID.network.successors(at)
            at = int(following[draw(st.integers(0, len(following) - 1))])
        segments.append(at)
    n = len(segments)
    ratios = draw(st.lists(st.floats(0, 1), min_size=n, max_size=n))
    return segments, ratios, draw(st.lists(st.integers(15, 200), min_size=n, max_size=n))


GRID = Recoverer.from_network(make_grid())


@given(any_drive(), st.sampled_from([1, 7, 15, 60]))
@settings(max_examples=60)
def test_fixes_between_steps(drive: tuple[list[int], list[float], list[int]], step_s: int) -> None:
    segments, ratios, waits = drive
    lon, lat = GRID.network.point_at(segments, ratios)
    sparse = Trips.from_columns(["a"] * len(lon), 1_404_400_000 + np.cumsum(waits), lon, lat)
    recovered = GRID.recover_trips(sparse, step_s)
    shared = set(recovered.rejects.time.tolist())
    assert set(recovered.rejects.reason.tolist()) <= {"shares its step"}
    used = sparse.keep_fixes(~np.isin(sparse.time, list(shared)))
    assert_sound(recovered, used, GRID, step_s)
    at = np.searchsorted(recovered.time, used.time)
    there = recovered.time[at] == used.time
    away = short_distance_m(recovered.lon[at], recovered.lat[at], used.lon, used.lat)
    assert there[[0, -1]].all()
    assert (away[[0, -1]] < 101).all()


@pytest.mark.parametrize("kind", ["model", "untrained"])
@pytest.mark.parametrize("step_s", [5, 15, 40])
def test_any_step_and_any_time(
    kind: str, step_s: int, recovery_dataset: Dataset, request: pytest.FixtureRequest
) -> None:
    recoverer: Recoverer = request.getfixturevalue(kind)
    sparse = sparse_trips(recovery_dataset, jitter_s=7)
    recovered = recoverer.recover_trips(sparse, step_s)
    assert set(recovered.rejects.reason.tolist()) == {"shares its step"}
    sparse = sparse.keep_fixes(~np.isin(sparse.time, recovered.rejects.time))
    assert_sound(recovered, sparse, recoverer, step_s)
    # A vehicle is near its fixes when they were taken, as far as the rows tell.
    trip = np.repeat(np.arange(len(sparse)), sparse.lengths)
    row = np.array(
        [
            first + np.abs(recovered.time[first:end] - time).argmin()
            for time, first, end in zip(sparse.time, recovered.offsets[trip], recovered.offsets[trip + 1], strict=True)
        ]
    )
    exact = recovered.time[row] == sparse.time
    away = short_distance_m(recovered.lon[row], recovered.lat[row], sparse.lon, sparse.lat)
    assert exact.sum() >= 2 * len(sparse)
    assert (away[exact] > 100).sum() <= (kind == "untrained")  # see above


def test_steps_of_the_model_are_kept_at_other_steps(model: Recoverer, recovery_dataset: Dataset) -> None:
    sparse = sparse_trips(recovery_dataset)
    usual, fine = model.recover_trips(sparse), model.recover_trips(sparse, 5)
    same = (fine.time - np.repeat(fine.time[fine.offsets[:-1]], fine.lengths)) % 15 == 0
    for name in ("time", "segment", "ratio", "lon", "lat", "probability"):
        np.testing.assert_array_equal(getattr(fine, name)[same], getattr(usual, name))


@pytest.mark.parametrize("kind", ["model", "untrained"])
def test_the_order_of_trips_does_not_matter(
    kind: str, recovery_dataset: Dataset, request: pytest.FixtureRequest
) -> None:
    recoverer: Recoverer = request.getfixturevalue(kind)
    sparse = sparse_trips(recovery_dataset, jitter_s=5)
    order = np.random.default_rng(1).permutation(len(sparse))
    there = recoverer.recover_trips(sparse.select(order))
    assert_same(there.select(np.argsort(order)), recoverer.recover_trips(sparse))


def trip_with_a_gap(dataset: Dataset) -> Trips:
    """Return the trip of most fixes with a gap of more than an hour before the fourth one."""
    sparse = sparse_trips(dataset, keep="1/4")
    one = sparse.select([int(sparse.lengths.argmax())])
    assert one.n_fixes >= 5
    return one.replace(time=one.time + np.where(np.arange(one.n_fixes) >= 3, 4000, 0))


def test_a_gap_is_a_break_and_the_pieces_are_one_trip(untrained: Recoverer, recovery_dataset: Dataset) -> None:
    sparse = trip_with_a_gap(recovery_dataset)
    recovered = untrained.recover_trips(sparse)
    assert len(recovered) == 1
    gap = int(np.argmax(np.diff(recovered.time))) + 1
    assert recovered.time[gap] == sparse.time[3]
    assert recovered.broken[gap]
    assert recovered.time[gap - 1] == sparse.time[2]


def test_long_trips_are_recovered_in_pieces(
    model: Recoverer, recovery_dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    sparse = sparse_trips(recovery_dataset, jitter_s=6)
    whole = model.recover_trips(sparse)
    monkeypatch.setattr(grid, "MOST_STEPS", 20)
    parts = model.recover_trips(sparse)
    np.testing.assert_array_equal(parts.time, whole.time)
    assert_sound(parts, sparse, model, 15)
    assert (parts.segment == whole.segment).mean() > 0.5


def test_columns_of_the_input_are_kept(untrained: Recoverer, recovery_dataset: Dataset) -> None:
    sparse = sparse_trips(recovery_dataset).select([0, 1, 2])
    speed = np.arange(float(sparse.n_fixes))
    far = sparse.lat.copy()
    far[sparse.offsets[1] : sparse.offsets[2]] = 0.0
    more = sparse.replace(extra={"speed": speed}, trip_extra={"car": np.array([7, 8, 9])}, lat=far)
    recovered = untrained.recover_trips(more)
    assert recovered.traj_id.tolist() == sparse.traj_id[[0, 2]].tolist()
    assert recovered.trip_extra["car"].tolist() == [7, 9]
    assert recovered.trip_extra["speed"].tolist() == [0.0, sparse.offsets[2]]
    assert set(recovered.rejects.traj_id.tolist()) == {sparse.traj_id[1]}
    assert len(recovered.rejects) == 1 + sparse.lengths[1]


def test_alternatives_come_behind_their_trip(model: Recoverer, recovery_dataset: Dataset) -> None:
    sparse = sparse_trips(recovery_dataset)
    plain, more = model.recover_trips(sparse), model.recover_trips(sparse, alternatives=3)
    assert not plain.has_alternatives
    assert more.has_alternatives
    itself = more.rank == 0
    np.testing.assert_array_equal(more.select(itself).segment, plain.segment)
    assert (more.rank > 0).any()
    assert (np.diff(more.rank)[~itself[1:]] == 1).all()  # 0, 1, 2, ... and then the next trip
    others = more.select(~itself)
    assert np.isnan(others.probability).all()
    assert (others.share > 0).all()
    for i in np.flatnonzero(~itself):
        own = i - more.rank[i]
        assert more.traj_id[i] == more.traj_id[own]
        rows = [more.segment[more.offsets[k] : more.offsets[k + 1]] for k in (own, i)]
        assert not np.array_equal(*rows)
    total = np.bincount(np.cumsum(itself) - 1, more.share)
    assert (total <= 1.001).all()
    assert_sound(others, sparse, model, 15)


def test_alternatives_need_no_second_pass(
    model: Recoverer, recovery_dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    sparse = sparse_trips(recovery_dataset)
    passes: list[int] = []
    scores = TedTrajRecParallel.scores

    def counting(self: TedTrajRecParallel, inputs: Any, roads: Any) -> Any:
        passes.append(len(inputs.step_mask))
        return scores(self, inputs, roads)

    monkeypatch.setattr(TedTrajRecParallel, "scores", counting)
    plain = model.recover_trips(sparse)
    once = list(passes)
    more = model.recover_trips(sparse, alternatives=3)
    assert passes == 2 * once
    itself = more.select(more.rank == 0)
    for name in ("segment", "ratio", "probability"):
        np.testing.assert_array_equal(getattr(itself, name), getattr(plain, name))


def test_alternatives_of_pieces(model: Recoverer, recovery_dataset: Dataset) -> None:
    more = model.recover_trips(trip_with_a_gap(recovery_dataset), alternatives=2)
    assert len(more) > 1
    assert (more.lengths == more.lengths[0]).all()
    assert more.share.sum() <= 1.001


def test_methods_without_alternatives_say_so(untrained: Recoverer, recovery_dataset: Dataset) -> None:
    with pytest.raises(ConfigError, match="route_hmm gives one trip, and no alternatives"):
        untrained.recover_trips(sparse_trips(recovery_dataset), alternatives=2)


@pytest.mark.parametrize("step_s", [0, -15, 7.5, float("nan")])
def test_wrong_steps_are_told(untrained: Recoverer, recovery_dataset: Dataset, step_s: Any) -> None:
    with pytest.raises(ConfigError, match="whole number of seconds"):
        untrained.recover_trips(sparse_trips(recovery_dataset), step_s)


def test_a_model_needs_nothing_but_its_folder(run: Path, model: Recoverer, recovery_dataset: Dataset) -> None:
    assert model.network.hash == recovery_dataset.network.hash
    assert (model.step_s, model.time_zone, model.notes) == (15, "Europe/Berlin", [])
    assert model.method.name == "tedtrajrec_parallel"
    given = Recoverer.load(run, network=recovery_dataset.path / "network.npz", device="cpu")
    sparse = sparse_trips(recovery_dataset).select([0, 1])
    assert_same(given.recover_trips(sparse), model.recover_trips(sparse))


def test_what_a_folder_lacks_is_told(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "network.npz").unlink()
    with pytest.raises(InputError, match="comes without its road network"):
        Recoverer.load(tmp_path / "run")
    (tmp_path / "run" / "profile.json").write_text(json.dumps({"step_s": "often"}))
    with pytest.raises(InputError, match="not the profile of a model"):
        Recoverer.load(tmp_path / "run", network=run / "network.npz")
    (tmp_path / "run" / "profile.json").unlink()
    with pytest.raises(InputError, match="there is no profile"):
        Recoverer.load(tmp_path / "run", network=run / "network.npz")


def test_a_model_of_another_city_says_so(run: Path) -> None:
    elsewhere = Recoverer.load(run, network=synthetic_city(size="small", seed=9), device="cpu")
    assert any("trained on another network" in note for note in elsewhere.notes)


def test_greedy_answers_are_the_methods_own(run: Path, recovery_dataset: Dataset) -> None:
    greedy = Recoverer.load(run, device="cpu", decode="greedy")
    assert any("greedily" in note for note in greedy.notes)
    sparse = sparse_trips(recovery_dataset)
    recovered = greedy.recover_trips(sparse)
    assert_sound(recovered, sparse, greedy, 15)
    assert recovered.broken.sum() > Recoverer.load(run, device="cpu").recover_trips(sparse).broken.sum()
    with pytest.raises(ConfigError, match="no decoding 'best'"):
        Recoverer.load(run, decode="best")  # type: ignore[arg-type]


def test_without_a_model(untrained: Recoverer, recovery_dataset: Dataset) -> None:
    assert untrained.notes[0].startswith("No model: route_hmm")
    linear = Recoverer.from_network(recovery_dataset.path / "network.npz", method="linear_hmm")
    sparse = sparse_trips(recovery_dataset, jitter_s=7)
    assert_sound(linear.recover_trips(sparse), sparse, linear, 15)
    for name in ("tedtrajrec", "lookup"):
        with pytest.raises(ConfigError, match=f"{name} must be trained first"):
            Recoverer.from_network(recovery_dataset.network, method=name)
    with pytest.raises(ConfigError, match="no method 'magic'"):
        Recoverer.from_network(recovery_dataset.network, method="magic")


def test_any_method_that_is_ready_serves(recovery_dataset: Dataset) -> None:
    method = Lookup(recovery_dataset.network)
    method.precompute(recovery_dataset)
    recoverer = Recoverer(method, step_s=15, time_zone="Europe/Berlin")
    sparse = sparse_trips(recovery_dataset, jitter_s=7)
    assert_sound(recoverer.recover_trips(sparse), sparse, recoverer, 15)


class _Silent(Method[Any]):
    """A method that knows nothing of trips whose first fix is on the hour."""

    name = "silent"

    def __init__(self, method: Method[Any], start: int) -> None:
        super().__init__(method.network)
        self.method, self.silent = method, start

    def recover(self, batch: Any) -> Recovered:
        found = self.method.recover(batch)
        known = (batch.start != self.silent)[:, None] & (batch.fix_step.new_zeros(found.segment.shape) == 0)
        known[:, 5:8] = False
        return found._replace(segment=found.segment.masked_fill(~known, -1))


def test_steps_and_trips_without_an_answer(untrained: Recoverer, recovery_dataset: Dataset) -> None:
    sparse = sparse_trips(recovery_dataset).select([0, 1, 2])
    method = _Silent(untrained.method, int(sparse.time[sparse.offsets[1]]))
    recoverer = Recoverer(method, step_s=15, time_zone="UTC", decode="greedy")
    recovered = recoverer.recover_trips(sparse)
    assert recovered.traj_id.tolist() == sparse.traj_id[[0, 2]].tolist()
    assert_sound(recovered, sparse, recoverer, 15)
    assert set(recovered.rejects.reason.tolist()) == {"the method found no road"}
    assert (recovered.rejects.time == NO_TIME).sum() == 1
    assert len(recovered.rejects) == 1 + sparse.lengths[1]


def test_nothing_to_recover(untrained: Recoverer, recovery_dataset: Dataset) -> None:
    sparse = sparse_trips(recovery_dataset)
    assert len(untrained.recover_trips(sparse.select([]))) == 0
    ends = untrained.recover_trips(sparse.keep_fixes(np.zeros(sparse.n_fixes, bool)))
    assert (len(ends), len(ends.rejects)) == (0, len(sparse))
