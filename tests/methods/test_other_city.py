"""The parallel method where it has never been: in training for it, and with the weights of another city."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from tedtrajrec.data.batch import Batch, make_batch
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.methods import tedtrajrec_parallel
from tedtrajrec.methods.calibration import Calibration
from tedtrajrec.methods.chain_options import probability_of
from tedtrajrec.methods.feasible import Feasible
from tedtrajrec.methods.lookup import Lookup
from tedtrajrec.methods.parallel_config import ParallelConfig
from tedtrajrec.methods.parallel_inputs import ParallelInputs
from tedtrajrec.methods.registry import load_method
from tedtrajrec.methods.route_hmm import RouteHmm
from tedtrajrec.methods.tedtrajrec_parallel import TedTrajRecParallel
from tedtrajrec.training.batches import training_batch
from tedtrajrec.training.config import TrainConfig
from tests.training.conftest import small_dataset  # noqa: F401  (a fixture)
from tests.training.test_start import other_dataset  # noqa: F401  (a fixture)

TINY = ParallelConfig(
    d=8, heads=2, width=8, hidden=8, encoder_layers=1, step_layers=1, road_layers=1, most=16, dropout=0.0, unknown=0.4
)


@pytest.fixture(scope="module")
def home(small_dataset: Dataset) -> TedTrajRecParallel:  # noqa: F811
    torch.manual_seed(1)
    method = TedTrajRecParallel(small_dataset.network, TINY)
    method.precompute(small_dataset)
    method.calibration = Calibration([[0.0, 1.0], [0.0, 1.0]], [[0.1, 0.5], [0.2, 0.9]])
    return method


@pytest.fixture
def away(home: TedTrajRecParallel, other_dataset: Dataset, tmp_path: Path) -> TedTrajRecParallel:  # noqa: F811
    home.save(tmp_path / "home")
    method = load_method(tmp_path / "home", other_dataset.network)
    assert isinstance(method, TedTrajRecParallel)
    return method


def batch_of(dataset: Dataset, lot: float | None = None) -> Batch:
    trips = dataset.split("train").trips(np.arange(6))
    batch = make_batch(
        trips, draw_observed(trips, "1/8", seed=2), dataset.network, step_s=15, time_zone="Europe/Berlin"
    )
    return dataclasses.replace(batch, number=torch.arange(6), lot=lot)


def training_inputs(method: TedTrajRecParallel, batch: Batch) -> ParallelInputs:
    return method.inputs(batch, torch.zeros_like(batch.step_mask))


def drive_of_map(dataset: Dataset, inputs: ParallelInputs) -> torch.Tensor:
    """Return what Route+HMM, which knows the map alone, says of the candidates of each step: nearly 1 or 0."""
    segment, exists = inputs.candidates
    found = Lookup(dataset.network).best(batch_of(dataset), 40, at_fixes=True)
    share = torch.where(found.segment >= 0, found.log_prob.exp().nan_to_num(0.0), 0.0)
    share[..., 0] = torch.where((share.sum(-1) == 0) & (found.segment[..., 0] >= 0), 1.0, share[..., 0])
    same = (segment[..., None] == found.segment[..., None, :]) & exists[..., None]
    driven = RouteHmm(dataset.network).recover(batch_of(dataset)).segment
    votes = (same * share[..., None, :]).sum(-1)
    assert (votes[segment == driven[..., None]] > 0.5)[exists[segment == driven[..., None]]].all()
    return votes


def test_lots_are_drawn_by_seed_and_epoch(small_dataset: Dataset) -> None:  # noqa: F811
    split = small_dataset.split("train")

    def lot(first: int, epoch: int, seed: int = 0) -> float:
        which = np.arange(first, first + 4)
        drawn = training_batch(small_dataset, split, which, TrainConfig(seed=seed), epoch)[0].lot
        assert drawn is not None
        return drawn

    lots = [lot(first, epoch) for first in range(0, 16, 4) for epoch in range(60)]
    assert lot(4, 7) == lots[67]
    assert len(set(lots) | {lot(4, 7, seed=1)}) == 241
    assert 0 <= min(lots) < max(lots) < 1
    assert abs(np.mean(np.array(lots) < 0.1) - 0.1) < 0.06


def test_some_batches_see_a_new_city(home: TedTrajRecParallel, small_dataset: Dataset) -> None:  # noqa: F811
    never = TedTrajRecParallel(small_dataset.network, TINY)  # without any past
    never.load_state_dict(home.state_dict())
    with torch.no_grad():
        never.road_gnn.table.zero_()
    hidden = training_inputs(home, batch_of(small_dataset, lot=0.39))
    plain = training_inputs(never, batch_of(small_dataset))
    assert hidden.unknown.tolist() == [[1]] * 6
    assert not hidden.fix_xy.any()
    for name, value in hidden._asdict().items():
        if name not in {"unknown", "fix_xy", "votes"}:
            assert torch.equal(value, getattr(plain, name)), name
    assert not plain.votes.any()
    assert torch.equal(hidden.votes, drive_of_map(small_dataset, hidden))
    assert hidden.votes.any()
    expected = never.train().loss(plain._replace(fix_xy=torch.zeros_like(plain.fix_xy), votes=hidden.votes))
    for one, two in zip(home.train().loss(hidden), expected, strict=True):
        assert torch.equal(one, two)


def test_the_others_see_all(home: TedTrajRecParallel, small_dataset: Dataset) -> None:  # noqa: F811
    known = training_inputs(home, batch_of(small_dataset))
    assert not known.unknown.any()
    assert known.fix_xy.any()
    assert known.votes.any()
    for one, two in zip(known, training_inputs(home, batch_of(small_dataset, lot=0.4)), strict=True):
        assert torch.equal(one, two)
    in_use = home.inputs(batch_of(small_dataset, lot=0.0))  # lots are for training alone
    assert not in_use.unknown.any()
    hidden = known._replace(unknown=torch.ones_like(known.unknown))
    assert not torch.equal(home.loss(known).total, home.loss(hidden).total)


def test_the_table_learns_nothing_from_a_new_city(home: TedTrajRecParallel, small_dataset: Dataset) -> None:  # noqa: F811
    table = home.road_gnn.table
    for lot, learns in ((0.0, False), (0.9, True)):
        loss = home.train().loss(training_inputs(home, batch_of(small_dataset, lot=lot))).total
        (gradient,) = torch.autograd.grad(loss, [table])
        assert bool(gradient.any()) == learns


def test_more_padding_changes_nothing(home: TedTrajRecParallel, small_dataset: Dataset) -> None:  # noqa: F811
    inputs = training_inputs(home, batch_of(small_dataset, lot=0.0))
    rounded = inputs.rounded(fixes=7, steps=13)
    assert rounded.unknown.shape == (6, 1)
    assert rounded.step_mask.shape[1] % 13 == 0
    for one, two in zip(home.loss(inputs), home.loss(rounded), strict=True):
        torch.testing.assert_close(one, two)


def test_weights_of_another_city(
    home: TedTrajRecParallel,
    away: TedTrajRecParallel,
    other_dataset: Dataset,  # noqa: F811
) -> None:
    assert away.origin == (home.network.hash, home.network.n_segments)
    assert home.note == ""
    assert away.note == (
        f"This model was trained on another network ({home.network.n_segments:,} segments, {home.network.hash}): "
        "it uses roads, routes and the matcher's drive, without the memory of streets or past trips."
    )
    assert Feasible(away).note == away.note
    for name, value in home.state_dict().items():
        assert name == "road_gnn.table" or torch.equal(away.state_dict()[name], value)
    assert not away.road_gnn.table.any()
    assert away.calibration is not None
    batch = batch_of(other_dataset)
    found = away.recover(batch)
    assert (found.segment[batch.step_mask] >= 0).all()
    assert (found.segment < other_dataset.network.n_segments).all()
    assert not away.inputs(batch).fix_xy.any()


def test_saved_away_it_still_says_so(
    away: TedTrajRecParallel,
    other_dataset: Dataset,  # noqa: F811
    small_dataset: Dataset,  # noqa: F811
    tmp_path: Path,
) -> None:
    batch = batch_of(other_dataset)
    found = away.recover(batch)
    away.save(tmp_path / "away")
    loaded = load_method(tmp_path / "away", other_dataset.network)
    assert loaded.note == away.note
    for one, two in zip(found, loaded.recover(batch), strict=True):
        assert torch.equal(one[batch.step_mask], two[batch.step_mask])
    further = load_method(tmp_path / "away", small_dataset.network)  # where it came from, but that is forgotten
    assert further.note == away.note


def test_the_drive_of_the_map_alone_has_a_share_where_no_trip_was_seen(
    away: TedTrajRecParallel,
    other_dataset: Dataset,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batch = batch_of(other_dataset)
    mask = batch.step_mask
    away.calibration = None

    def agreeing(share: float) -> tuple[torch.Tensor, float]:
        monkeypatch.setattr(tedtrajrec_parallel, "BY_MAP", share)
        found = away.recover(batch)
        own = probability_of(away.scored(away.inputs(batch)), found.segment)
        expected = (0.8 * own + 0.2 * (found.segment == of_map))[mask]
        at = (found.segment == of_map)[mask]
        told = found.log_prob.exp()[mask]
        torch.testing.assert_close(told[at], expected[at])
        assert (told[~at] >= expected[~at] - 1e-5).all()  # where the map's drive is no candidate, it has no share
        assert torch.equal(found.segment, away.recover_with_alternatives(batch, 2)[0].segment)
        return found.segment, (found.segment == of_map)[mask].float().mean().item()

    of_map = RouteHmm(other_dataset.network).recover(batch).segment
    (alone, less), _, (_, more) = agreeing(0.2), agreeing(0.5), agreeing(0.9)
    assert less < more
    away.precompute(other_dataset)  # from now on it has seen trips
    with monkeypatch.context() as patch:
        patch.setattr(Lookup, "best", None)
        assert not torch.equal(away.recover(batch).segment, alone)


def test_it_may_learn_the_past_of_the_new_city(away: TedTrajRecParallel, other_dataset: Dataset) -> None:  # noqa: F811
    batch = batch_of(other_dataset)
    before = away.inputs(batch)
    assert torch.equal(before.votes, drive_of_map(other_dataset, before))
    away.precompute(other_dataset)
    inputs = away.inputs(batch)
    assert inputs.votes.any()
    assert not torch.equal(inputs.votes, drive_of_map(other_dataset, inputs))
    assert not inputs.fix_xy.any()  # places still mean nothing to the weights
    assert away.note.endswith("it uses roads, routes and past trips, without the memory of streets.")
    assert (away.recover(batch).segment[batch.step_mask] >= 0).all()
