"""Feasible decoding: trips that can be driven, out of choices that hold one, by the independent checker."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tedtrajrec.cli import app
from tedtrajrec.data.batch import make_batch
from tedtrajrec.data.dataset import shards_of, write_dataset
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.evaluation.evaluate import evaluate_methods
from tedtrajrec.evaluation.report import format_table
from tedtrajrec.evaluation.run import draw_steps, evaluate_draw
from tedtrajrec.methods.base import Choices, Method, Recovered
from tedtrajrec.methods.feasible import Feasible
from tedtrajrec.methods.lookup import Lookup
from tedtrajrec.methods.registry import load_method
from tedtrajrec.methods.tedtrajrec import TedTrajRec, TedTrajRecConfig
from tedtrajrec.trips.simulate import simulate_trips
from tedtrajrec.trips.table import Trips, as_text
from tests.conftest import make_grid
from tests.evaluation.drive_checker import NetworkxGaps, check_trip

CITY = make_grid()
GAPS = NetworkxGaps(CITY)
STEP_S = 15
FARTHEST_M = 300.0  # in a step: too little to come round to the same segment again


class Given(Method):
    """Answers with choices that were made beforehand."""

    name = "given"

    def __init__(self, network, choices):
        super().__init__(network)
        self.given = choices

    def recover(self, batch):
        return Recovered(*(part[..., 0] for part in self.best(batch, 1)))

    def best(self, batch, k):
        return Choices(*(part[: len(batch), :, :k] for part in self.given))


@st.composite
def drives(draw, most_trips=3, most_steps=10):
    """Trips that are driven on the grid, their observed steps, and choices with the truth among them."""
    lengths = draw(st.lists(st.integers(1, most_steps), min_size=1, max_size=most_trips))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    segment, ratio = [], []
    for length in lengths:
        here, at = int(rng.integers(len(CITY))), float(rng.random())
        for i in range(length):
            left = rng.choice([0.0, 30.0, 0.97 * FARTHEST_M]) * rng.random() if i else 0.0
            while left > (1 - at) * CITY.length_m[here]:
                left -= (1 - at) * CITY.length_m[here]
                here, at = int(rng.choice(CITY.successors(here))), 0.0
            at = min(at + left / CITY.length_m[here], 1.0)
            segment.append(here)
            ratio.append(at)
    n = len(segment)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    x, y = CITY.plane.to_xy(*CITY.point_at(segment, ratio))
    lon, lat = CITY.plane.to_lonlat(x + rng.uniform(-60, 60, n), y + rng.uniform(-60, 60, n))
    step = np.arange(n) - np.repeat(offsets[:-1], lengths)
    trips = Trips(as_text(range(len(lengths))), offsets, 1_700_000_000 + step * STEP_S, lon, lat)
    observed = rng.random(n) < 0.4
    observed[offsets[:-1]] = observed[offsets[1:] - 1] = True
    batch = make_batch(trips, observed, CITY, step_s=STEP_S, time_zone="UTC")

    k = draw(st.integers(1, 5))
    shape = (*batch.step_mask.shape, k)
    choices = Choices(torch.full(shape, -1), torch.rand(shape), torch.full(shape, torch.nan))
    mask = batch.step_mask.numpy()
    rows = np.stack([rng.permutation(len(CITY))[:k] for _ in range(n)])
    missing = ~(rows == np.array(segment)[:, None]).any(axis=1)
    rows[missing, rng.integers(0, k, n)[missing]] = np.array(segment)[missing]
    logit = rng.normal(0, draw(st.sampled_from([0.0, 0.5])), (n, k))
    choices.segment[mask] = torch.from_numpy(rows)
    choices.log_prob[mask] = torch.from_numpy(np.log(0.9 * np.exp(logit) / np.exp(logit).sum(1, keepdims=True))).float()
    choices.ratio[mask] = torch.from_numpy(rng.random((n, k))).float()
    return trips, observed, batch, choices, np.array(segment), np.array(ratio)


def verdicts(trips, observed, segment, ratio):
    """Yield what the checker says of each trip."""
    for trip in range(len(trips)):
        rows = range(trips.offsets[trip], trips.offsets[trip + 1])
        fixes = [(trips.lon[i], trips.lat[i]) if observed[i] else None for i in rows]
        positions = [int(segment[i]) for i in rows], [float(ratio[i]) for i in rows]
        yield check_trip(CITY, GAPS, *positions, fixes, step_s=STEP_S, top_speed_mps=FARTHEST_M / STEP_S)


def decoded(batch, choices, **settings):
    method = Feasible(Given(CITY, choices), choices=8, margin=99.0, top_speed_mps=FARTHEST_M / STEP_S, **settings)
    recovered = method.recover(batch)
    return [part[batch.step_mask].numpy() for part in recovered]


@settings(max_examples=60)
@given(case=drives())
def test_what_can_be_driven_is_driven(case):
    trips, observed, batch, choices, segment, ratio = case
    assert all(verdict.drivable for verdict in verdicts(trips, observed, segment, ratio))
    found, at, log_prob = decoded(batch, choices)
    for verdict in verdicts(trips, observed, found, at):
        assert verdict.drivable, verdict
    taken = found[:, None] == choices.segment[batch.step_mask].numpy()
    assert (taken.sum(axis=1) == 1).all()
    np.testing.assert_array_equal(log_prob, choices.log_prob[batch.step_mask].numpy()[taken])


@settings(max_examples=30)
@given(case=drives())
def test_with_one_choice_segments_change_only_where_it_breaks(case):
    trips, observed, batch, choices, *_ = case
    first = Choices(*(part[..., :1] for part in choices))
    found, at, log_prob = decoded(batch, first)
    before, was, own = (part[batch.step_mask].numpy()[:, 0] for part in first)
    kept = found == before
    np.testing.assert_allclose(log_prob[kept], own[kept], atol=1e-5)
    worse = zip(verdicts(trips, observed, before, was), verdicts(trips, observed, found, at), strict=True)
    for trip, (old, new) in enumerate(worse):
        assert new.backward == 0
        assert new.no_path <= old.no_path
        if old.drivable:
            assert kept[trips.offsets[trip] : trips.offsets[trip + 1]].all()


@settings(max_examples=30)
@given(case=drives(), more=st.integers(0, 3))
def test_neither_padding_nor_other_trips_matter(case, more):
    trips, observed, batch, choices, *_ = case
    together = decoded(batch, choices)
    for trip in range(len(trips)):
        rows = slice(trips.offsets[trip], trips.offsets[trip + 1])
        alone = make_batch(trips.select([trip]), observed[rows], CITY, step_s=STEP_S, time_zone="UTC")
        n = alone.step_mask.shape[1]
        own = Choices(*(part[[trip], :n] for part in choices))
        none = Choices(
            *(
                torch.full((1, n, more), fill, dtype=part.dtype)
                for part, fill in zip(own, (-1, 0, torch.nan), strict=True)
            )
        )
        own = Choices(*(torch.cat(parts, dim=-1) for parts in zip(own, none, strict=True)))
        for a, b in zip(together, decoded(alone, own), strict=True):
            np.testing.assert_allclose(a[rows], b, atol=1e-5)


def test_steps_without_choices_and_choices_without_probability():
    segment = [0, 0, 2, 2]
    lon, lat = CITY.point_at(segment, [0.2, 0.5, 0.1, 0.9])
    trips = Trips(as_text(["a"]), np.array([0, 4]), 1_700_000_000 + np.arange(4) * STEP_S, lon, lat)
    batch = make_batch(trips, np.ones(4, bool), CITY, step_s=STEP_S, time_zone="UTC")
    choices = Choices(
        torch.tensor([[[0, 1], [-1, -1], [2, -1], [2, -1]]]),
        torch.tensor([[[0.2, 0.2], [0.3, 0.3], [0.1, 0.0], [0.9, 0.0]]]),
        torch.tensor([[[0.6, 0.3], [torch.nan, torch.nan], [torch.nan, torch.nan], [0.5, torch.nan]]]).log(),
    )
    recovered = Feasible(Given(CITY, choices)).recover(batch)
    assert recovered.segment[0, 1:].tolist() == [-1, 2, 2]
    assert torch.isnan(recovered.log_prob[0]).tolist() == [False, True, True, False]
    assert float(recovered.log_prob[0, 3].exp()) == pytest.approx(0.5, abs=1e-6)
    nothing = Choices(torch.full((1, 4, 2), -1), torch.zeros(1, 4, 2), torch.full((1, 4, 2), torch.nan))
    assert (Feasible(Given(CITY, nothing)).recover(batch).segment == -1).all()


def test_unlikely_segments_are_no_choices():
    segment = torch.tensor([[[0, 1], [40, 0]]])
    log_prob = torch.tensor([[[-0.1, -2.4], [-0.1, -5.0]]])
    lon, lat = CITY.point_at([0, 40], [0.5, 0.5])
    trips = Trips(as_text(["a"]), np.array([0, 2]), 1_700_000_000 + np.arange(2) * STEP_S, lon, lat)
    batch = make_batch(trips, np.zeros(2, bool), CITY, step_s=STEP_S, time_zone="UTC")
    choices = Choices(segment, torch.full(segment.shape, 0.5), log_prob)
    method = Feasible(Given(CITY, choices), top_speed_mps=1.0)
    broken = method.drive(batch, choices)
    assert broken.segment.tolist() == [0, 40]
    assert broken.broken.tolist() == [False, True]
    whole = Feasible(Given(CITY, choices), margin=10.0, top_speed_mps=1.0).drive(batch, choices)
    assert whole.segment.tolist() == [0, 0]
    assert not whole.broken.any()


# ---------------------------------------------------------------------- over methods


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    trips = simulate_trips(CITY, trips=60, step_s=STEP_S, seed=3)
    splits = {"train": shards_of(trips.select(np.arange(45))), "test": shards_of(trips.select(np.arange(45, 60)))}
    folder = tmp_path_factory.mktemp("feasible") / "grid"
    return write_dataset(folder, CITY, splits, step_s=STEP_S, time_zone="Europe/Lisbon")


def batch_of(dataset):
    trips = dataset.split("test").trips()
    return make_batch(trips, draw_observed(trips, "1/8"), CITY, step_s=STEP_S, time_zone="Europe/Lisbon")


@pytest.fixture(scope="module", params=["lookup", "tedtrajrec"])
def method(request, dataset):
    if request.param == "lookup":
        made = Lookup(CITY)
        made.precompute(dataset)
        return made
    torch.manual_seed(0)
    return TedTrajRec(CITY, TedTrajRecConfig(d=16, heads=2, width=24)).eval()


def test_the_best_choices(method, dataset):
    batch = batch_of(dataset)
    own, choices = method.recover(batch), method.best(batch, 4)
    mask = batch.step_mask
    assert all(part.shape == (*mask.shape, 4) for part in choices)
    assert torch.equal(choices.segment[..., 0][mask], own.segment[mask])
    torch.testing.assert_close(choices.log_prob[..., 0][mask], own.log_prob[mask], equal_nan=True)
    torch.testing.assert_close(choices.ratio[..., 0][mask], own.ratio[mask])
    for segment, log_prob in zip(choices.segment[mask].tolist(), choices.log_prob[mask], strict=True):
        some = [s for s in segment if s >= 0]
        assert len(set(some)) == len(some)
        assert segment == some + [-1] * (4 - len(some))
        known = log_prob[: len(some)]
        assert (known.diff() <= 0).all()
        assert float(known.exp().sum()) <= 1 + 1e-5


def test_a_feasible_method_is_the_method(method, dataset, tmp_path):
    feasible = Feasible(method)
    assert feasible.name == method.name
    assert feasible.decoding == "feasible"
    assert method.decoding == "own"
    feasible.save(tmp_path / "saved")
    batch = batch_of(dataset)
    again = load_method(tmp_path / "saved", CITY)
    assert type(again) is type(method)
    expected, found = feasible.recover(batch), Feasible(again).recover(batch)
    assert torch.equal(found.segment[batch.step_mask], expected.segment[batch.step_mask])


def test_evaluations_say_how_was_decoded(dataset, tmp_path):
    methods = ["lookup", "route_hmm"]
    own = evaluate_methods(methods, dataset.path, output=tmp_path)
    feasible = evaluate_methods(methods, dataset.path, decode="feasible", output=tmp_path)
    assert [e.decoding for e in own + feasible] == ["own", "own", "feasible", "feasible ratios"]
    assert len({e.name for e in own + feasible}) == 4
    for evaluation in own + feasible:
        written = json.loads((tmp_path / evaluation.name / "metrics.json").read_text("utf-8"))
        assert (written["method"], written["decoding"]) == (evaluation.method, evaluation.decoding)
        label = evaluation.method if evaluation.decoding == "own" else f"{evaluation.method}, {evaluation.decoding}"
        assert f"\n{label}  " in format_table([evaluation])
    for before, after in zip(own, feasible, strict=True):
        assert after.drives.breaks.sum() <= before.drives.breaks.sum()
        assert after.drives.backward.sum() == 0
    np.testing.assert_array_equal(own[1].metrics.accuracy, feasible[1].metrics.accuracy)


def test_the_command(dataset):
    command = ["evaluate", "linear_hmm", str(dataset.path), "--decode"]
    ran = CliRunner().invoke(app, [*command, "feasible"])
    assert ran.exit_code == 0, ran.output
    assert "linear_hmm, feasible ratios" in ran.output
    assert CliRunner().invoke(app, [*command, "magic"]).exit_code == 2


@pytest.mark.real
def test_the_shipped_model_on_real_trips(chengdu, data_dir, tmp_path):
    """On trips of the validation split breaks fall and accuracy does not; 100 of them, thinned to 1/8."""
    rows = pd.read_csv(data_dir / "chengdu" / "trips.csv.gz")
    rows = rows[rows["split"] == "valid"]
    number = pd.Series(np.arange(len(chengdu)), chengdu.source_id)
    segment = number.reindex(rows["edge_id"]).fillna(-1).to_numpy(np.int32)
    trips = Trips.from_columns(
        rows["traj_id"].to_numpy(str),
        rows["timestamp"],
        rows["lon"],
        rows["lat"],
        segment=segment,
        ratio=np.where(segment >= 0, rows["ratio"], np.nan),
    )
    splits = {"valid": shards_of(trips.select(np.arange(100)))}
    dataset = write_dataset(tmp_path / "ds", chengdu, splits, step_s=STEP_S, time_zone="Asia/Shanghai")
    draw = draw_steps(dataset, keep="1/8", split="valid")
    method = load_method("chengdu", chengdu)
    own, feasible = evaluate_draw(method, draw), evaluate_draw(Feasible(method), draw)
    assert feasible.summary["broken"] < own.summary["broken"] - 0.05
    assert feasible.summary["breaks_per_trip"] < 0.75 * own.summary["breaks_per_trip"]
    assert feasible.summary["broken"] <= draw.true_drives.summary()["broken"]
    assert feasible.summary["accuracy"] >= own.summary["accuracy"]
    assert feasible.summary["f1"] >= own.summary["f1"]
