"""What all encoders before MTrajRec's decoder must do in training, on trips of a simulated city."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch._subclasses.fake_tensor import FakeTensorMode

from tedtrajrec.data.batch import Batch, make_batch
from tedtrajrec.data.dataset import Dataset, shards_of, write_dataset
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.methods.gru_decoded import GruDecodedMethod
from tedtrajrec.methods.registry import make_method
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.training.config import TrainConfig
from tedtrajrec.training.loop import fit
from tedtrajrec.trips.simulate import simulate_trips

SETTINGS = {
    "neutraj": (),
    "trajformer": ("heads=2",),
    "gts": ("poi_d=8", "walks=1"),
    "trajgat": ("heads=2", "tree_d=8", "walks=1", "leaf_fixes=10"),
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    city = synthetic_city(size="small")
    trips = simulate_trips(city, trips=8, step_s=15, seed=6, workers=1)
    path = tmp_path_factory.mktemp("encoders") / "city"
    return write_dataset(path, city, {"train": shards_of(trips)}, step_s=15, time_zone="Europe/Berlin")


@pytest.fixture(scope="module")
def batch(dataset: Dataset) -> Batch:
    trips = dataset.split("train").trips()
    return make_batch(trips, draw_observed(trips, "1/4"), dataset.network, step_s=15, time_zone="Europe/Berlin")


@pytest.fixture(params=list(SETTINGS))
def method(request: pytest.FixtureRequest, dataset: Dataset) -> GruDecodedMethod[Any, Any]:
    torch.manual_seed(0)
    found = make_method(request.param, dataset.network, ("d=16", "dropout=0.0", *SETTINGS[request.param]))
    assert isinstance(found, GruDecodedMethod)
    found.precompute(dataset)
    return found


def test_every_weight_is_learned(method: GruDecodedMethod[Any, Any], batch: Batch) -> None:
    inputs = method.train().inputs(batch)
    method.loss(inputs)  # a memory is empty before
    weights = dict(method.named_parameters())
    gradients = torch.autograd.grad(method.loss(inputs).total, list(weights.values()))
    for name, gradient in zip(weights, gradients, strict=True):
        assert gradient.isfinite().all(), name
        assert gradient.abs().max() > 0, name


def test_more_padding_changes_neither_states_nor_loss(method: GruDecodedMethod[Any, Any], batch: Batch) -> None:
    inputs = method.eval().inputs(batch)
    padded = inputs.rounded(16, 40)
    assert padded.step_mask.shape[1] > inputs.step_mask.shape[1]
    roads = method.roads()
    plain, wide = method.encode(inputs, roads), method.encode(padded, roads)
    m = plain.states.shape[1]
    assert wide.states.shape[1] > m
    torch.testing.assert_close(wide.states[:, :m], plain.states)
    assert not wide.states[:, m:].any()
    torch.testing.assert_close(wide.start, plain.start)
    torch.testing.assert_close(method.loss(padded).total, method.loss(inputs).total)
    # In training too: norms and memories do not count padding.
    seen = [copy.state() for copy in (_trained_once(method, inputs), _trained_once(method, padded))]
    for name, array in seen[0].items():
        np.testing.assert_allclose(array, seen[1][name], rtol=1e-4, atol=1e-6, err_msg=name)


def _trained_once(method: GruDecodedMethod[Any, Any], inputs: Any) -> GruDecodedMethod[Any, Any]:
    """Return a copy that has seen a batch in training."""
    copy = type(method)(method.network, method.config)
    copy.restore(method.state())
    torch.manual_seed(3)
    copy.train().loss(inputs)
    return copy


def test_a_saved_method_keeps_all_that_training_left(
    method: GruDecodedMethod[Any, Any], batch: Batch, tmp_path: Path
) -> None:
    method.train().loss(method.inputs(batch))
    before = method.recover(batch)
    method.save(tmp_path)
    after = type(method).load(tmp_path, method.network).recover(batch)
    for a, b in zip(before, after, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_a_run_that_was_stopped_ends_with_the_same_weights(
    method: GruDecodedMethod[Any, Any], dataset: Dataset, tmp_path: Path
) -> None:
    start = {name: array.copy() for name, array in method.state().items()}
    config = TrainConfig(epochs=2, batch=4)
    fit(method, dataset, tmp_path / "whole", config, device="cpu")
    calls = 0
    finished = False
    while not finished:
        again = type(method)(method.network, method.config)
        again.restore(start)
        finished = fit(again, dataset, tmp_path / "parts", config, device="cpu", max_minutes=0).finished
        calls += 1
    assert calls > 2
    whole, parts = (load_file(tmp_path / run / "model.safetensors") for run in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    for name, array in whole.items():
        np.testing.assert_array_equal(array, parts[name], err_msg=name)


def test_nothing_waits_for_the_values_of_tensors(method: GruDecodedMethod[Any, Any], batch: Batch) -> None:
    inputs = method.train().inputs(batch).rounded()
    m = inputs[0].shape[1]
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:  # tensors without values, as if recorded on a device
        shapes = type(inputs)(*(mode.from_tensor(part) for part in inputs))
        encoded = method.encode(shapes, method.roads())
        total = encoded.states.sum() + encoded.start.sum()
        gradients = torch.autograd.grad(total, list(method.parameters()), materialize_grads=True)
    assert encoded.states.shape == (8, m, 16)
    assert [gradient.shape for gradient in gradients] == [weight.shape for weight in method.parameters()]
