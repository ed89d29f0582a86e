"""The parallel method as a whole: it learns, its answers can be driven, and its probabilities are probabilities."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from tedtrajrec.data.batch import Batch, make_batch
from tedtrajrec.data.dataset import Dataset, shards_of, write_dataset
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.methods import parallel_inputs, tedtrajrec_parallel
from tedtrajrec.methods.base import Recovered
from tedtrajrec.methods.calibration import Calibration
from tedtrajrec.methods.lookup import Lookup
from tedtrajrec.methods.parallel_config import ParallelConfig
from tedtrajrec.methods.parallel_inputs import ParallelInputs
from tedtrajrec.methods.registry import load_method
from tedtrajrec.methods.searches import SEARCHES, Search
from tedtrajrec.methods.tedtrajrec_parallel import TedTrajRecParallel
from tedtrajrec.network.near import near_table
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.nn import kernels
from tedtrajrec.nn.chain import Chain
from tedtrajrec.nn.roads import Roads
from tedtrajrec.nn.sequences import rows
from tedtrajrec.trips.simulate import simulate_trips
from tests.evaluation.drive_checker import ScipyGaps, check_trip
from tests.methods.recordable import run_recordable

TINY = ParallelConfig(
    d=16, heads=2, width=16, hidden=16, encoder_layers=1, step_layers=1, road_layers=1, most=32, dropout=0.0
)
STEP_S = 15


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    city = synthetic_city(size="small")
    trips = simulate_trips(city, trips=90, step_s=STEP_S, seed=5, workers=1)
    order = np.argsort(trips.lengths, kind="stable")
    parts = {"train": order[:40], "valid": order[40:46], "test": order[46:54]}
    splits = {name: shards_of(trips.select(which)) for name, which in parts.items()}
    path = tmp_path_factory.mktemp("parallel") / "dataset"
    return write_dataset(path, city, splits, step_s=STEP_S, time_zone="Europe/Berlin")


def made(dataset: Dataset, config: ParallelConfig = TINY) -> TedTrajRecParallel:
    torch.manual_seed(1)
    method = TedTrajRecParallel(dataset.network, config)
    method.precompute(dataset)
    return method


def batch_of(dataset: Dataset, split: Any, which: list[int] | None = None) -> Batch:
    trips = dataset.split(split).trips(None if which is None else np.array(which))
    batch = make_batch(
        trips, draw_observed(trips, "1/8", seed=2), dataset.network, step_s=STEP_S, time_zone="Europe/Berlin"
    )
    number = np.arange(len(batch)) if which is None else np.array(which)
    return dataclasses.replace(batch, number=torch.from_numpy(number))


def training_inputs(method: TedTrajRecParallel, batch: Batch) -> ParallelInputs:
    return method.inputs(batch, torch.zeros_like(batch.step_mask))


def trained(method: TedTrajRecParallel, batch: Batch, steps: int) -> list[float]:
    inputs = training_inputs(method, batch)
    optimizer = torch.optim.Adam(method.parameters(), lr=0.02)
    losses = []
    method.train()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = method.loss(inputs).total
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    method.eval()
    return losses


@pytest.fixture(scope="module")
def method(dataset: Dataset) -> TedTrajRecParallel:
    """Trained a little with all training trips."""
    out = made(dataset)
    trained(out, batch_of(dataset, "train"), 30)
    return out


def test_overfits_eight_trips(dataset: Dataset) -> None:
    method = made(dataset)
    batch = batch_of(dataset, "train", [0, 5, 10, 15, 20, 25, 30, 35])
    inputs = training_inputs(method, batch)
    before = method.loss(inputs)
    trained(method, batch, 80)
    after = method.loss(inputs)
    exists = rows(inputs.list_exists, inputs.slot)
    listed = exists & (rows(inputs.list_segment, inputs.slot) == inputs.segment[..., None])
    known = listed.any(-1)
    assert known[batch.step_mask].float().mean() > 0.7  # else there is little to learn
    assert after.segment < 0.1 * before.segment
    assert after.ratio < 0.7 * before.ratio
    found = method.decode(inputs)
    assert torch.equal(found.segment[known], batch.segment[known])


def test_answers_can_be_driven(method: TedTrajRecParallel, dataset: Dataset) -> None:
    gaps = ScipyGaps(dataset.network)
    for split in ("test", "valid"):
        batch = batch_of(dataset, split)
        answer, broken = method.drive(batch)
        assert not broken.any()
        for one, other in zip(answer, method.recover(batch), strict=True):
            assert torch.equal(one[batch.step_mask], other[batch.step_mask])
        fixes = batch.fixes(dataset.network)
        for i in range(len(batch)):
            n = int(batch.step_mask[i].sum())
            seen: list[tuple[float, float] | None] = [None] * n
            for k, step in enumerate(batch.fix_step[i][batch.fix_mask[i]].tolist()):
                row = fixes.offsets[i] + k
                seen[step] = (float(fixes.lon[row]), float(fixes.lat[row]))
            verdict = check_trip(
                dataset.network, gaps, answer.segment[i, :n].tolist(), answer.ratio[i, :n].tolist(), seen,
                step_s=STEP_S, top_speed_mps=40.0,
            )  # fmt: skip
            assert verdict.drivable, verdict
            assert verdict.moves == n - 1


def test_a_break_is_told(method: TedTrajRecParallel, dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = batch_of(dataset, "test")
    options = method.options(method.inputs(batch))
    last = int(batch.step_mask[0].sum()) - 1
    segment = options.segment.clone()
    segment[...] = segment[:, :1, :1]  # all steps on the segment of the first, but for one that is far away from it
    metres, _ = near_table(dataset.network, 600.0).lookup(int(segment[0, 0, 0]), np.arange(len(dataset.network)))
    segment[0, last] = int(np.argmax(np.isinf(metres)))
    monkeypatch.setattr(method, "options", lambda _inputs: options._replace(segment=segment))
    assert not method.drive(batch)[1].any()  # in a whole map there is another way
    monkeypatch.setattr(method._driver, "_bridged", False)
    answer, broken = method.drive(batch)
    assert broken[0].nonzero()[:, 0].tolist() == [last]
    assert not broken[1:].any()
    assert answer.segment[0, last] == segment[0, last, 0]


def test_a_trip_does_not_depend_on_padding(method: TedTrajRecParallel, dataset: Dataset) -> None:
    batch = batch_of(dataset, "test")
    inputs = method.inputs(batch)
    more = inputs.rounded(fixes=7, steps=13)
    assert more.step_mask.shape[1] % 13 == more.fix_mask.shape[1] % 7 == 0
    n = inputs.step_mask.shape[1]
    for one, other in zip(method.options(inputs), method.options(more), strict=True):
        mask = batch.step_mask
        torch.testing.assert_close(one[mask], other[:, :n][mask], rtol=1e-4, atol=1e-4)
    few = [4, 2]
    apart = batch_of(dataset, "test", few)
    width = apart.step_mask.shape[1]
    for one, other in zip(method.alternatives(batch, 3), method.alternatives(apart, 3), strict=True):
        among = one[few] if one.ndim < 3 else one[few, :, :width]
        torch.testing.assert_close(among, other, rtol=0, atol=1e-4)


def test_probabilities_are_those_of_the_candidates(
    method: TedTrajRecParallel, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(method._driver, "_bridged", False)  # which may lead along other roads
    batch = batch_of(dataset, "test")
    everything = method.best(batch, TINY.most)
    share = everything.log_prob.exp()[batch.step_mask]
    torch.testing.assert_close(share.sum(-1), torch.ones(len(share)), rtol=0, atol=1e-4)
    assert (share[:, 1:] <= share[:, :-1]).all()
    found = method.recover(batch)
    same = everything.segment == found.segment[..., None]
    assert (same.sum(-1)[batch.step_mask] >= 1).all()
    chance = (everything.log_prob.exp() * same).amax(-1)
    torch.testing.assert_close(found.log_prob.exp()[batch.step_mask], chance[batch.step_mask], rtol=1e-3, atol=1e-5)


def test_readings_of_the_chain(method: TedTrajRecParallel, dataset: Dataset) -> None:
    batch = batch_of(dataset, "test")
    mask = batch.step_mask
    config, found = method.config, {}
    for decode in ("drivable", "viterbi", "marginal", "greedy"):
        method.config = dataclasses.replace(config, decode=decode)
        found[decode] = method.recover(batch)
    method.config = config
    inputs = method.inputs(batch)
    chain, _ = method.scores(inputs, method.roads())
    segment = rows(inputs.list_segment, inputs.slot)
    best = chain.unary.detach().argmax(-1, keepdim=True)
    assert torch.equal(found["greedy"].segment[mask], segment.gather(-1, best)[mask][:, 0])
    sure = {name: answer.log_prob[mask].exp().mean() for name, answer in found.items()}
    assert sure["marginal"] >= max(sure["viterbi"], sure["drivable"])
    assert torch.equal(found["marginal"].segment[mask], method.best(batch, 1).segment[mask][:, 0])


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows with each pass of a batch through the network."""
    seen: list[int] = []
    scores = TedTrajRecParallel.scores

    def counting(self: TedTrajRecParallel, inputs: ParallelInputs, roads: Roads) -> tuple[Chain, torch.Tensor]:
        seen.append(len(inputs.step_mask))
        return scores(self, inputs, roads)

    monkeypatch.setattr(TedTrajRecParallel, "scores", counting)
    return seen


def assert_same(batch: Batch, one: Recovered, other: Recovered) -> None:
    for part, same in zip(one, other, strict=True):
        assert torch.equal(part[batch.step_mask], same[batch.step_mask])


def test_several_searches_score_once_and_find_what_each_finds(
    method: TedTrajRecParallel, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = batch_of(dataset, "test")
    method.save(tmp_path)
    expected = [
        load_method(tmp_path, dataset.network, [f"error_m={search.error_m}", f"margin={search.margin}"]).recover(batch)
        for search in SEARCHES
    ]
    passes = counted(monkeypatch)
    found = method.searched(batch, SEARCHES)
    assert passes == [len(batch)]
    for one, other in zip(found, expected, strict=True):
        assert_same(batch, one, other)  # no past trips were asked to vote
    assert len({tuple(one.segment[batch.step_mask].tolist()) for one in found}) > 1
    assert Search(method.config.error_m, method.config.margin, method.config.voted) == SEARCHES[0]


@pytest.fixture
def voting(method: TedTrajRecParallel, dataset: Dataset, tmp_path: Path) -> TedTrajRecParallel:
    """The same, with votes of past trips."""
    method.save(tmp_path / "plain")
    out = TedTrajRecParallel.load(tmp_path / "plain", dataset.network)
    out.config = dataclasses.replace(out.config, voted=0.3, margin=6.0)
    lookup = Lookup(dataset.network)
    lookup.precompute(dataset)
    out.ask(lookup)
    return out


def test_votes_are_saved_and_count_wherever_a_trip_is_searched(
    method: TedTrajRecParallel, voting: TedTrajRecParallel, dataset: Dataset, tmp_path: Path
) -> None:
    batch = batch_of(dataset, "test")
    found = voting.recover(batch)
    search = Search(voting.config.error_m, voting.config.margin, voting.config.voted)
    plain, voted = voting.searched(batch, [search._replace(voted=0.0), search])
    assert not torch.equal(found.log_prob, plain.log_prob)
    assert_same(batch, plain, method.searched(batch, [search])[0])  # nobody there to ask
    voting.save(tmp_path / "voting")
    loaded = TedTrajRecParallel.load(tmp_path / "voting", dataset.network)
    for same in (voted, voting.recover_with_alternatives(batch, 2)[0], loaded.recover(batch)):
        assert_same(batch, found, same)
    with_votes, without = (load_file(tmp_path / run / "model.safetensors").keys() for run in ("voting", "plain"))
    assert with_votes > without
    assert all(name.startswith("past.lookup.") for name in with_votes - without)


def test_who_votes_belongs_to_the_trips_and_the_city(voting: TedTrajRecParallel, dataset: Dataset) -> None:
    batch = batch_of(dataset, "test")
    again = TedTrajRecParallel(dataset.network, voting.config)
    again.restore(voting.state())
    again.precompute(dataset)
    assert_same(batch, voting.recover(batch), again.recover(batch))
    again.config = dataclasses.replace(again.config, voted=0.0)
    again.precompute(dataset)
    assert not any("lookup" in name for name in again.state())
    city = synthetic_city(seed=3)
    there = TedTrajRecParallel(city, voting.config)
    there.ask(Lookup(city))
    there.adopt(voting.state(), "another")
    assert not any("lookup" in name for name in there.state())


@pytest.mark.parametrize("decode", ["drivable", "viterbi", "greedy"])
def test_a_trip_and_its_alternatives_score_once(
    method: TedTrajRecParallel, dataset: Dataset, monkeypatch: pytest.MonkeyPatch, decode: Any
) -> None:
    batch = batch_of(dataset, "test")
    monkeypatch.setattr(method, "config", dataclasses.replace(method.config, decode=decode))
    alone = method.recover(batch)
    apart = (*alone, *method.alternatives(batch, 3, own=alone.segment))
    passes = counted(monkeypatch)
    found, others = method.recover_with_alternatives(batch, 3)
    assert passes == [len(batch)]
    for k, (one, other) in enumerate(zip((*found, *others), apart, strict=True)):
        assert torch.equal(one[batch.step_mask], other[batch.step_mask]) if k < 3 else torch.equal(one, other)


def test_alternatives_are_different_routes(method: TedTrajRecParallel, dataset: Dataset) -> None:
    batch = batch_of(dataset, "test")
    found = method.alternatives(batch, 4)
    b, n = batch.step_mask.shape
    assert found.segment.shape == found.ratio.shape == (b, 4, n)
    assert (found.probability[:, 0] > 0).all()
    assert (found.probability.diff(dim=1) <= 0).all()
    assert (found.probability.sum(1) <= 1 + 1e-6).all()
    exists = found.probability > 0
    there = exists[..., None] & batch.step_mask[:, None]
    assert torch.equal(found.segment >= 0, there)
    assert ((found.ratio >= 0) & (found.ratio <= 1)).all()
    for i in range(b):
        trips = {tuple(found.segment[i, j].tolist()) for j in range(4) if exists[i, j]}
        assert len(trips) == int(exists[i].sum())
    everything = method.alternatives(batch, 64, draws=64, own=found.segment[:, 0])
    torch.testing.assert_close(everything.probability.sum(1), torch.ones(b))
    assert not found.own.any()
    second = method.alternatives(batch, 1, own=found.segment[:, 1])  # whether it is among the likeliest or not
    torch.testing.assert_close(second.own[exists[:, 1]], found.probability[exists[:, 1], 1])


@pytest.mark.parametrize(
    "switch",
    [{"geometry": False}, {"among": False}, {"chain": False}, {"table": False}, {"decode": "greedy"}, {"gnn": "none"}],
    ids=str,
)
def test_what_can_be_left_out_trains(dataset: Dataset, switch: dict[str, Any]) -> None:
    method = made(dataset, dataclasses.replace(TINY, **switch))
    batch = batch_of(dataset, "train", [1, 2, 3, 4])
    losses = trained(method, batch, 8)
    assert losses[-1] < losses[0]
    found = method.recover(batch)
    assert torch.isfinite(found.log_prob[batch.step_mask]).all()
    assert (found.segment[batch.step_mask] >= 0).all()


def test_without_geometry_features_do_not_matter(dataset: Dataset) -> None:
    method = made(dataset, dataclasses.replace(TINY, geometry=False)).eval()
    inputs = method.inputs(batch_of(dataset, "test"))
    other = inputs._replace(list_static=inputs.list_static + 1, votes=inputs.votes + 1)
    for one, two in zip(method.scores(inputs, method.roads())[0], method.scores(other, method.roads())[0], strict=True):
        assert torch.equal(one, two)


def test_training_trips_are_left_out_of_the_past(method: TedTrajRecParallel, dataset: Dataset) -> None:
    batch = batch_of(dataset, "train", [1, 2])
    kept, left_out = method.inputs(batch), training_inputs(method, batch)
    assert torch.equal(kept.list_segment[:, 0], left_out.list_segment[:, 0])
    assert kept.list_static.sum() > left_out.list_static.sum()  # its own drives count as votes


def test_saved_with_its_calibration(method: TedTrajRecParallel, dataset: Dataset, tmp_path: Path) -> None:
    batch = batch_of(dataset, "test")
    plain = method.recover(batch)
    method.calibration = Calibration([[0.0, 1.0], [0.0, 1.0]], [[0.1, 0.5], [0.2, 0.9]])
    method.save(tmp_path)
    found = method.recover(batch)
    method.calibration = None
    loaded = TedTrajRecParallel.load(tmp_path, dataset.network)
    assert_same(batch, found, loaded.recover(batch))
    assert torch.equal(found.segment, plain.segment)
    said = plain.log_prob.exp()
    expected = torch.where(batch.observed, 0.2 + 0.7 * said, 0.1 + 0.4 * said)
    torch.testing.assert_close(found.log_prob.exp()[batch.step_mask], expected[batch.step_mask])


def test_what_does_not_fit_is_told(method: TedTrajRecParallel, dataset: Dataset, tmp_path: Path) -> None:
    method.save(tmp_path)
    file = tmp_path / "model.safetensors"
    whole = load_file(file)
    for name in ("past.pace", "past.links.source", "past.passing.enter", "scorer.score.weight"):
        save_file({key: array for key, array in whole.items() if key != name}, file)
        with pytest.raises(InputError, match="does not hold the tables"):
            TedTrajRecParallel.load(tmp_path, dataset.network)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"d": 10, "heads": 4}, "do not divide"), ({"most": 0}, "most must be"), ({"step_layers": -1}, "fewer than 0"),
     ({"unknown": 1.0}, "below 1"), ({"margin": 0.0}, "margin must be"),
     ({"voted": -0.1}, "voted must be at least 0"), ({"voted": 1.0}, "voted must be at least 0 and below 1")],
)  # fmt: skip
def test_wrong_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ParallelConfig(**settings)


def test_what_is_recorded_and_what_is_not_are_the_same(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    method = made(dataset)
    inputs = training_inputs(method, batch_of(dataset, "train", [3, 4, 5]))
    weights = list(method.parameters())
    answers = []
    for devices in ({"cuda"}, {"cpu", "cuda"}):
        monkeypatch.setattr(kernels, "RECORDED", devices)
        losses = method.loss(inputs)
        answers.append([*losses, *torch.autograd.grad(losses.total, weights, materialize_grads=True)])
    for found, expected in zip(*answers, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("lot", [None, 0.0])
def test_training_on_the_touched_part_is_training_on_the_whole(
    dataset: Dataset, lot: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = made(dataset, dataclasses.replace(TINY, road_layers=2))
    batch = dataclasses.replace(batch_of(dataset, "train", [3, 4]), lot=lot)
    whole = training_inputs(method, batch)
    monkeypatch.setattr(parallel_inputs, "LARGE_CPU", 0)
    monkeypatch.setattr(parallel_inputs, "SHARE", 0.9)
    part = training_inputs(method, batch)
    assert whole.part is None
    assert part.part is not None
    assert len(part.part.segment) < 0.9 * dataset.network.n_segments
    assert len(part.part.around) > 0
    assert torch.equal(part.part_asked[part.list_segment], whole.list_segment)
    in_use = method.inputs(batch)
    assert in_use.part is None  # what is kept for use is of the whole network
    weights = list(method.parameters())
    expected = method.loss(whole)
    gradients = torch.autograd.grad(expected.total, weights, materialize_grads=True)
    for seen in (part, part.rounded()):
        found = method.loss(seen)
        torch.testing.assert_close(found, expected)
        ours = torch.autograd.grad(found.total, weights, materialize_grads=True)
        torch.testing.assert_close(ours, gradients, rtol=1e-4, atol=1e-6)
    work = run_recordable(lambda: torch.autograd.grad(method.loss(part.rounded()).total, weights))
    assert len(work) == len(weights)


def test_a_batch_that_touches_most_of_a_network_sees_the_whole(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = made(dataset)
    monkeypatch.setattr(parallel_inputs, "LARGE_CPU", 0)
    assert training_inputs(method, batch_of(dataset, "train")).part is None


def test_settings_that_can_be_changed_after_training(method: TedTrajRecParallel, tmp_path: Path) -> None:
    method.save(tmp_path)
    changed = load_method(tmp_path, method.network, ["margin=7", "bridged=false", "decode=viterbi"])
    assert (changed.config.margin, changed.config.bridged, changed.config.decode) == (7.0, False, "viterbi")
    assert not changed._driver._bridged
    assert dataclasses.replace(changed.config, margin=3.0, bridged=True, decode="drivable") == method.config
    with pytest.raises(ConfigError, match="'d' cannot be set for a saved tedtrajrec_parallel; what can: bridged, deco"):
        load_method(tmp_path, method.network, ["d=8"])


def test_a_map_that_lacks_roads_is_driven_only_where_that_is_enforced(
    method: TedTrajRecParallel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method.save(tmp_path)
    assert method._driver._bridged
    monkeypatch.setattr(tedtrajrec_parallel, "is_whole", lambda _network: False)
    assert not load_method(tmp_path, method.network)._driver._bridged
    assert load_method(tmp_path, method.network, ["enforced=true"])._driver._bridged
    assert not load_method(tmp_path, method.network, ["enforced=true", "bridged=false"])._driver._bridged
