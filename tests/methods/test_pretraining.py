"""Pre-training: the paths of training trips, and what is hidden of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from tedtrajrec.data.batch import make_batch
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.methods.mtrajrec import MTrajRec, MTrajRecConfig
from tedtrajrec.methods.pretraining import drawn_spans, first_on_segment, guess_loss, known_roads, path_batches
from tedtrajrec.trips.table import Trips
from tests.methods.few_trips import STEP_S, ZONE, write_few_trips


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_few_trips(tmp_path_factory.mktemp("pretraining"), trips=70)


def test_a_path_is_the_first_step_on_each_segment() -> None:
    segment = np.array([4, 4, -1, 4, 7, 7, 4, 4, 9, 9], np.int32)
    lon = np.zeros(10)
    lon[4] = np.nan  # no fix there, so the next step on 7 counts
    trips = Trips(
        traj_id=np.array(["a", "b"]),
        offsets=np.array([0, 7, 10]),
        time=np.arange(10, dtype=np.int64),
        lon=lon,
        lat=np.zeros(10),
        segment=segment,
        ratio=np.zeros(10),
    )
    assert np.flatnonzero(first_on_segment(trips)).tolist() == [0, 5, 6, 7, 8]


def test_the_only_candidate_is_the_true_segment(dataset: Dataset) -> None:
    trips = dataset.split("train").trips(np.arange(5))
    seen = first_on_segment(trips)
    batch = known_roads(make_batch(trips, seen, dataset.network, step_s=STEP_S, time_zone=ZONE))
    inputs = MTrajRec(dataset.network, MTrajRecConfig(d=4)).plain_inputs(batch)
    assert trips.segment is not None
    assert inputs.near_segment[..., 0][inputs.fix_mask].tolist() == trips.segment[seen].tolist()
    assert (inputs.near_distance.isfinite().sum(-1) == inputs.fix_mask).all()


def test_batches_hold_each_training_trip_once(dataset: Dataset) -> None:
    torch.manual_seed(1)
    batches = list(path_batches(dataset, dataset.network))
    assert len(batches) == 2
    train = dataset.split("train").trips()
    assert train.segment is not None
    expected = []
    for first, end in zip(train.offsets, train.offsets[1:], strict=False):
        path = train.segment[first:end]
        path = path[np.append(True, path[1:] != path[:-1])]
        if len(path) > 1:
            expected.append((int(train.time[first]), path.tolist()))
    found = [
        (int(start), batch.segment[i].gather(0, batch.fix_step[i])[batch.fix_mask[i]].tolist())
        for batch in batches
        for i, start in enumerate(batch.start)
    ]
    assert sorted(found) == sorted(expected)
    assert found != sorted(found)


def test_spans_are_hidden() -> None:
    torch.manual_seed(0)
    mask = torch.arange(40) < torch.tensor([40] * 500 + [3] * 500)[:, None]
    hidden = drawn_spans(mask, 0.2, 2)
    assert not hidden[~mask].any()
    assert 0.17 < hidden[:500].float().mean() < 0.21  # less than .2, since spans overlap
    inner = hidden[:500, 1:-1]
    alone = inner & ~hidden[:500, :-2] & ~hidden[:500, 2:]
    assert not alone.any()


def test_only_hidden_roads_are_guessed() -> None:
    torch.manual_seed(0)
    scores = nn.Linear(3, 5).double()
    states = torch.randn(2, 4, 3, dtype=torch.float64)
    segment = torch.tensor([[1, 2, 3, -1], [0, 4, -1, -1]])
    hidden = torch.tensor([[True, False, True, True], [False, True, False, False]])
    terms = [-torch.log_softmax(scores(states[i, j]), -1)[segment[i, j]] for i, j in [(0, 0), (0, 2), (1, 1)]]
    torch.testing.assert_close(guess_loss(scores, states, segment, hidden), sum(terms) / 3)
    assert guess_loss(scores, states, segment, torch.zeros_like(hidden)) == 0
