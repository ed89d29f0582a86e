"""What every learned method must do in training: learn eight trips by heart, and not depend on padding."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from tedtrajrec.data.batch import Batch
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.methods.learned import LearnedMethod
from tedtrajrec.methods.registry import METHODS, make_method, method_class
from tests.contract.conftest import batch_of

LEARNED = [name for name in METHODS if issubclass(method_class(name), LearnedMethod)]
SMALL = {"d": 32, "dropout": 0.0, "width": 64, "condition_width": 8, "condition_cells": 8, "flow_width": 16}
MOST_UPDATES = 200
LEAST_LOSS = 0.1  # of the first one


@pytest.fixture(scope="module")
def eight(dataset: Dataset) -> Batch:
    trips = dataset.split("train").trips()
    return batch_of(dataset, trips.select(np.argsort(trips.lengths, kind="stable")[8:16]))


@pytest.fixture(scope="module", params=LEARNED)
def method(request: pytest.FixtureRequest, dataset: Dataset) -> LearnedMethod[Any, Any]:
    torch.manual_seed(0)
    has = {field.name for field in dataclasses.fields(method_class(request.param).Config)}
    settings = [f"{name}={value}" for name, value in SMALL.items() if name in has]
    method: Any = make_method(request.param, dataset.network, settings)
    method.precompute(dataset)
    return method  # type: ignore[no-any-return]


def accuracy(method: LearnedMethod[Any, Any], batch: Batch) -> float:
    return float((method.recover(batch).segment == batch.segment)[batch.step_mask].float().mean())


def test_more_padding_changes_no_loss(method: LearnedMethod[Any, Any], eight: Batch) -> None:
    inputs = method.eval().inputs(eight, torch.ones_like(eight.step_mask))
    with torch.no_grad():
        for a, b in zip(method.loss(inputs), method.loss(inputs.rounded(16, 32)), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_eight_trips_are_learned_by_heart(method: LearnedMethod[Any, Any], eight: Batch) -> None:
    before = accuracy(method, eight)
    inputs = method.train().inputs(eight, torch.ones_like(eight.step_mask))
    optimizer = torch.optim.Adam(method.parameters(), lr=0.01)
    losses: list[float] = []
    while len(losses) < MOST_UPDATES and losses[-1:] >= [LEAST_LOSS * loss for loss in losses[:1]]:
        optimizer.zero_grad()
        loss = method.loss(inputs).total
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(method.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < LEAST_LOSS * losses[0]
    assert accuracy(method.eval(), eight) > before + 0.3
