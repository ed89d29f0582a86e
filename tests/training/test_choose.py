"""The search that suits the validation trips, chosen when training ends: once, and not where it is given."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from tedtrajrec.cli import main
from tedtrajrec.data.batch import Batch
from tedtrajrec.data.dataset import Dataset, shards_of, write_dataset
from tedtrajrec.errors import InputError
from tedtrajrec.evaluation.export import export_model
from tedtrajrec.evaluation.metrics import evaluate_trips
from tedtrajrec.methods import calibration
from tedtrajrec.methods.base import Recovered, read_description
from tedtrajrec.methods.lookup import Lookup
from tedtrajrec.methods.parallel_config import ParallelConfig
from tedtrajrec.methods.registry import load_method
from tedtrajrec.methods.searches import SEARCHES, Search
from tedtrajrec.methods.tedtrajrec_parallel import TedTrajRecParallel
from tedtrajrec.training import choose, train
from tedtrajrec.training.choose import CHOICE, MOST_DRAWS, Scores, choose_search, read_choice, route_scores
from tedtrajrec.training.loop import validation_batches
from tedtrajrec.training.train import train_method
from tests.training.conftest import SHORT, files_of

TINY = [
    *("model.d=8", "model.heads=2", "model.width=8", "model.hidden=8", "model.most=16", "model.encoder_layers=1"),
    *("model.step_layers=1", "model.road_layers=1", "train.batch=10", "train.epochs=1"),
]
PLAIN, GOOD = SEARCHES[0], SEARCHES[2]


class Made:
    """Finds given segments with each search."""

    drivable = True

    def __init__(self, answers: Callable[[Batch], list[torch.Tensor]]) -> None:
        self.answers = answers

    def searched(self, batch: Batch, searches: Sequence[Search]) -> list[Recovered]:
        assert tuple(searches) == SEARCHES
        return [as_found(segment) for segment in self.answers(batch)]


def as_found(segment: torch.Tensor) -> Recovered:
    return Recovered(segment, torch.zeros(segment.shape), torch.zeros(segment.shape))


def batches_of(dataset: Dataset) -> list[Batch]:
    return list(validation_batches(dataset, SHORT, SHORT.keep))


def with_truth(batch: Batch, truth: torch.Tensor) -> Batch:
    return dataclasses.replace(batch, segment=truth)


def test_the_default_is_the_first_of_the_list() -> None:
    assert Search(ParallelConfig().error_m, ParallelConfig().margin) == PLAIN


class Past:
    """Stands for ``lookup``; remembers given segments."""

    def __init__(self, answer: Callable[[Batch], torch.Tensor]) -> None:
        self.answer = answer

    def recover(self, batch: Batch) -> Recovered:
        return as_found(self.answer(batch))


def every_third_wrong(batch: Batch) -> torch.Tensor:
    return torch.where(torch.arange(batch.segment.shape[1]) % 3 == 0, 0, batch.segment)


def chosen(
    answers: Callable[[Batch], list[torch.Tensor]],
    batches: list[Batch],
    past: Callable[[Batch], torch.Tensor] = every_third_wrong,
) -> choose.Choice | None:
    return choose_search(Made(answers), batches, cast("Lookup", Past(past)))


def test_the_search_furthest_ahead_of_lookup_is_chosen(small_dataset: Dataset) -> None:
    def answers(batch: Batch) -> list[torch.Tensor]:
        wrong = torch.arange(batch.segment.shape[1]) % 6
        return [torch.where(wrong < k, 0, batch.segment) for k in (3, 2, 1, *[2] * 3, *[3] * 6)]

    choice = chosen(answers, batches_of(small_dataset))
    assert choice is not None
    assert Search(**choice.settings) == GOOD
    assert choice.trips == 6
    assert [(one.error_m, one.margin, one.voted) for one in choice.tried] == list(SEARCHES)
    assert choice.tried[2].scores.f1 > choice.tried[1].scores.f1 > choice.tried[0].scores.f1
    default, lead = (
        min(
            getattr(one.scores, name) / getattr(choice.lookup, name) - 1 for name in ("accuracy", "recall", "precision")
        )
        for one in (choice.tried[0], choice.tried[2])
    )
    assert str(choice) == (
        "search chosen on 6 draws of validation trips: error_m 25, margin 6; least lead over lookup in accuracy, "
        f"recall and precision {lead:+.1%} (default, error_m 150, margin 3: {default:+.1%}; 11 others are in "
        "search.json)"
    )


@pytest.mark.parametrize(
    ("past", "best"),
    [
        (Scores(0.5, 0.7, 0.6, 0.65), 1),  # of the first, recall is behind; of the last, accuracy
        (Scores(0.5, 0.5, 0.5, 0.5), 0),  # all are far ahead, the first by most
        (Scores(0.3, 0.8, 0.5, 0.6), 2),  # recall is what counts
        (Scores(0.5, 0.0, 0.6, 0.0), 0),  # with nothing found there is nothing to be behind of
    ],
)
def test_no_figure_is_bought_with_one_that_falls_behind(past: Scores, best: int) -> None:
    tried = [Scores(0.62, 0.66, 0.72, 0.69), Scores(0.55, 0.72, 0.66, 0.69), Scores(0.45, 0.76, 0.6, 0.67)]
    leads = [one.ahead(past) for one in tried]
    assert np.argmax(leads) == best


def test_among_equal_ones_f1_decides_and_then_the_order(small_dataset: Dataset) -> None:
    batch = batches_of(small_dataset)[0]
    batch = dataclasses.replace(
        batch, segment=torch.tensor([[1, 2, 2, 2]]), step_mask=torch.ones(1, 4, dtype=torch.bool)
    )
    # All have half of the steps: accuracy .5 is least against a past that has all of them right.
    early, late = torch.tensor([[1, 2, 3, 3]]), torch.tensor([[1, 2, 1, 3]])
    answers = [late, *[early, early, late] * 3, late, early]
    choice = chosen(lambda _: answers, [batch], lambda found: found.segment)
    assert choice is not None
    assert [one.scores.accuracy for one in choice.tried] == [0.5] * len(SEARCHES)
    assert [one.scores.ahead(choice.lookup) for one in choice.tried] == [-0.5] * len(SEARCHES)
    assert choice.tried[0].scores.f1 < choice.tried[1].scores.f1
    assert Search(**choice.settings) == SEARCHES[1]


def test_scores_are_those_of_the_evaluation(small_dataset: Dataset) -> None:
    rng = np.random.default_rng(0)
    for batch in batches_of(small_dataset):
        mask = batch.step_mask.numpy()
        truth, answer = batch.segment.numpy().copy(), batch.segment.numpy().copy()
        answer[rng.random(mask.shape) < 0.3] = -1
        other = rng.random(mask.shape) < 0.3
        answer[other] = rng.integers(small_dataset.network.n_segments, size=other.sum())
        truth[rng.random(mask.shape) < 0.2] = -1
        truth[0] = -1  # a trip of which nothing is known
        offsets = np.append(0, np.cumsum(mask.sum(axis=1)))
        zero = np.zeros(int(offsets[-1]))
        expected = evaluate_trips(small_dataset.network, offsets, truth[mask], zero, answer[mask], zero)
        scores = route_scores(with_truth(batch, torch.from_numpy(truth)), as_found(torch.from_numpy(answer)))
        some = expected.n_steps > 0
        assert len(scores) == len(batch) - 1
        for column, name in zip(scores.T, ("accuracy", "recall", "precision", "f1"), strict=True):
            np.testing.assert_allclose(column, getattr(expected, name)[some])


def test_without_a_step_of_known_truth_there_is_no_choice(small_dataset: Dataset) -> None:
    unknown = [with_truth(batch, torch.full_like(batch.segment, -1)) for batch in batches_of(small_dataset)]
    for batches in ([], unknown):
        assert chosen(lambda batch: [batch.segment] * len(SEARCHES), batches) is None


# ---------------------------------------------------------------------- the end of training


@pytest.fixture
def good(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have one search find the truth, and the others nothing but the first segment; return the sizes of batches."""
    return only_good(monkeypatch, GOOD)


def only_good(monkeypatch: pytest.MonkeyPatch, good: Search) -> list[int]:
    seen: list[int] = []

    def searched(self: TedTrajRecParallel, batch: Batch, searches: Sequence[Search]) -> list[Recovered]:  # noqa: ARG001
        seen.append(len(batch))
        first = batch.segment[:, :1].expand_as(batch.segment)
        return [as_found(batch.segment if search == good else first) for search in searches]

    monkeypatch.setattr(TedTrajRecParallel, "searched", searched)
    return seen


def trained(dataset: Dataset, run: Path, *more: str, **options: Any) -> Search:
    """Train, and return the search that the run is saved with."""
    train_method("tedtrajrec_parallel", dataset, run, overrides=[*TINY, *more], device="cpu", **options)
    config = read_description(run)["config"]
    return Search(config["error_m"], config["margin"], config["voted"])


def test_what_is_chosen_is_saved_with_the_run(small_dataset: Dataset, tmp_path: Path, good: list[int]) -> None:
    run = tmp_path / "run"
    assert trained(small_dataset, run) == GOOD
    assert good == [6] * MOST_DRAWS
    choice = read_choice(run)
    assert choice is not None
    assert choice.settings == GOOD._asdict()
    assert [one.scores.f1 == 1 for one in choice.tried] == [search == GOOD for search in SEARCHES]
    assert json.loads((run / CHOICE).read_text("utf-8"))["tried"][0]["error_m"] == PLAIN.error_m
    method = TedTrajRecParallel.load(run, small_dataset.network)
    assert method.calibration is not None

    before = {name: (run / name).read_bytes() for name in files_of(run)}
    assert trained(small_dataset, run) == GOOD  # there is nothing to do
    assert good == [6] * MOST_DRAWS
    assert {name: (run / name).read_bytes() for name in files_of(run)} == before

    card = export_model(run, tmp_path / "model")
    assert card["model"]["error_m"] == GOOD.error_m
    assert card["search"]["tried"][2]["scores"]["f1"] == 1
    text = (tmp_path / "model" / "README.md").read_text("utf-8")
    assert "| 25.0 | 6.0 | 0.0 | 1.0000 | 1.0000 | 1.0000 | 1.0000 |" in text
    (run / CHOICE).unlink()
    with pytest.raises(InputError, match="not the settings of train"):
        export_model(run, tmp_path / "other")


def test_votes_that_are_chosen_go_with_the_model(
    small_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_votes = SEARCHES[-1]
    only_good(monkeypatch, with_votes)
    run = tmp_path / "run"
    assert with_votes.voted > 0
    assert trained(small_dataset, run) == with_votes
    assert f": error_m 8, margin 6, votes {with_votes.voted:g}; " in str(read_choice(run))
    plain = load_method(run, small_dataset.network)
    cast("TedTrajRecParallel", plain).ask(None)
    card = export_model(run, tmp_path / "model")
    assert card["model"]["voted"] == with_votes.voted
    (batch,) = batches_of(small_dataset)
    for folder in (run, tmp_path / "model"):
        method = load_method(folder, small_dataset.network)
        assert any(name.startswith("past.lookup.") for name in method.state())
        assert not torch.equal(method.recover(batch).log_prob, plain.recover(batch).log_prob)
    assert trained(small_dataset, tmp_path / "on", "train.seed=5", start=run, choose=False) == PLAIN
    later = TedTrajRecParallel.load(tmp_path / "on", small_dataset.network)
    assert not any(name.startswith("past.lookup.") for name in later.state())


def test_many_past_trips_do_not_vote(
    small_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, good: list[int]
) -> None:
    for voters, tried in ((19, SEARCHES[:6]), (20, SEARCHES)):
        monkeypatch.setattr(choose, "MOST_VOTERS", voters)
        assert trained(small_dataset, tmp_path / str(voters)) == GOOD
        choice = read_choice(tmp_path / str(voters))
        assert choice is not None
        assert [(one.error_m, one.margin, one.voted) for one in choice.tried] == list(tried)
    assert good


def test_a_batch_is_scored_once(small_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[int] = []
    scores, choosing = TedTrajRecParallel.scores, choose.choose_search

    def counting(self: TedTrajRecParallel, inputs: Any, roads: Any) -> Any:
        passes.append(len(inputs.step_mask))
        return scores(self, inputs, roads)

    def counted(*given: Any) -> Any:
        passes.clear()
        choice = choosing(*given)
        assert passes == [6] * MOST_DRAWS
        return choice

    monkeypatch.setattr(TedTrajRecParallel, "scores", counting)
    monkeypatch.setattr(choose, "choose_search", counted)
    found = trained(small_dataset, tmp_path)
    choice = read_choice(tmp_path)
    assert choice is not None
    best = max(choice.tried, key=lambda one: (one.scores.ahead(choice.lookup), one.scores.f1))
    assert found == (best.error_m, best.margin, best.voted)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("model.error_m=40", Search(40, 3)),
        ("model.margin=5", Search(150, 5)),
        ("model.error_m=150", PLAIN),
        ("model.voted=0.2", Search(150, 3, 0.2)),
    ],
)
def test_what_is_given_is_taken(
    small_dataset: Dataset, tmp_path: Path, good: list[int], setting: str, expected: Search
) -> None:
    assert trained(small_dataset, tmp_path, setting) == expected
    assert not good
    assert read_choice(tmp_path) is None


def test_where_there_is_no_search_or_no_wish_nothing_is_chosen(
    small_dataset: Dataset, tmp_path: Path, good: list[int]
) -> None:
    assert trained(small_dataset, tmp_path / "one", "model.decode=viterbi") == PLAIN
    assert trained(small_dataset, tmp_path / "two", choose=False) == PLAIN
    assert not good


def test_without_validation_trips_the_default_stays(small_dataset: Dataset, tmp_path: Path) -> None:
    few = small_dataset.split("train").trips(np.arange(8))
    dataset = write_dataset(
        tmp_path / "few", small_dataset.network, {"train": shards_of(few)}, step_s=15, time_zone="Europe/Berlin"
    )
    assert trained(dataset, tmp_path / "run") == PLAIN
    assert read_choice(tmp_path / "run") is None


class KilledError(Exception):
    """Stands for a kill."""


@pytest.mark.parametrize("moment", ["before", "while saving", "before calibration"])
def test_a_run_that_was_killed_chooses_when_the_command_is_given_again(
    small_dataset: Dataset, tmp_path: Path, good: list[int], monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    assert trained(small_dataset, tmp_path / "whole") == GOOD

    def killed(*_: Any, **__: Any) -> None:
        raise KilledError

    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        where: dict[str, tuple[Any, str]] = {
            "before": (choose, "choose_search"),
            "while saving": (choose, "to_dict"),
            "before calibration": (train, "calibrate_run"),
        }
        patch.setattr(*where[moment], killed)
        with pytest.raises(KilledError):
            trained(small_dataset, run)
    assert (read_choice(run) is None) == (moment != "before calibration")
    good.clear()
    assert trained(small_dataset, run) == GOOD
    assert bool(good) == (moment != "before calibration")
    for name in ("config.json", "model.safetensors", CHOICE):
        assert (run / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_run_of_old_is_calibrated_for_what_it_is_given(
    small_dataset: Dataset, tmp_path: Path, good: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "STEPS_PER_BIN", 5)
    assert trained(small_dataset, tmp_path, choose=False) == PLAIN
    before = (tmp_path / "model.safetensors").read_bytes()
    assert trained(small_dataset, tmp_path / "whole") == trained(small_dataset, tmp_path) == GOOD
    after = (tmp_path / "model.safetensors").read_bytes()
    assert after == (tmp_path / "whole" / "model.safetensors").read_bytes()
    assert before != after
    assert len(good) == 2 * MOST_DRAWS


@pytest.mark.parametrize(("most", "expected"), [(5, [2] * 2), (11, [5] * 2), (12, [6] * 2), (26, [6] * 4)])
def test_few_trips_are_enough_and_fewer_are_drawn_again(
    small_dataset: Dataset,
    tmp_path: Path,
    good: list[int],
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    expected: list[int],
) -> None:
    monkeypatch.setattr(train, "MOST_TRIPS", most)
    trained(small_dataset, tmp_path, 'train.keep=["1/8", "1/4"]')
    assert good == expected


def test_a_damaged_choice_is_told(tmp_path: Path) -> None:
    (tmp_path / CHOICE).write_text('{"error_m": 1}')
    with pytest.raises(InputError, match="not the choice of a search"):
        read_choice(tmp_path)


@pytest.mark.usefixtures("good")
def test_the_command_says_what_was_chosen(
    small_dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "tedtrajrec_parallel", str(small_dataset.path), "-o", str(tmp_path / "run"), "--device", "cpu"]
    for setting in TINY:
        words += ["--set", setting]
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("search chosen on 24 draws of validation trips: error_m 25, margin 6; least lead")
