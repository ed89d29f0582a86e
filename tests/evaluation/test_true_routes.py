"""The rank of the true route among those that a method names."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tedtrajrec.data.batch import Batch
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.evaluation.run import draw_steps
from tedtrajrec.evaluation.true_routes import summarise_ranks, true_route_ranks
from tedtrajrec.methods.alternatives import Alternatives
from tedtrajrec.methods.base import Recovered
from tests.training.conftest import small_dataset  # noqa: F401  (a fixture)


class Names:
    """Names the truth at a place that its first segment decides, and other routes before and after it."""

    def alternatives(self, batch: Batch, k: int, *, own: torch.Tensor | None = None) -> Alternatives:
        assert own is None
        segment = batch.segment[:, None].repeat(1, k, 1)
        segment[..., 0] += 1 + torch.arange(k)  # other routes begin elsewhere
        for i, place in enumerate(batch.segment[:, 0] % 7):
            if place < k:
                segment[i, place] = batch.segment[i]
        return Alternatives(
            segment, torch.zeros(segment.shape), torch.full((len(segment), k), 1 / k), torch.zeros(len(segment))
        )

    def recover_with_alternatives(self, batch: Batch, k: int) -> tuple[Recovered, Alternatives]:
        raise NotImplementedError


def test_ranks_and_their_summary(small_dataset: Dataset) -> None:  # noqa: F811
    draw = draw_steps(small_dataset, keep="1/8")
    trips = draw.dataset.split(draw.split).trips(draw.number)
    places = np.asarray(trips.segment)[trips.offsets[:-1]] % 7
    ranks = true_route_ranks(Names(), draw, 5, batch_trips=3)
    known = ranks >= 0
    assert known.any()
    assert np.array_equal(ranks[known], np.minimum(places, 5)[known])
    found = summarise_ranks(ranks)
    assert found["true_route_in_3"] == pytest.approx((places[known] < 3).mean())
    assert found["true_route_in_1"] <= found["true_route_in_3"] <= found["true_route_in_5"]
    assert np.isnan(summarise_ranks(np.array([-1]))["true_route_in_1"])
