"""The Kalman filter against the textbook's steps and against the conditional mean of one large normal distribution."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from tedtrajrec.nn.kalman import inverse, kalman_filter, moments

Floats = NDArray[np.float64]
START = 3.0


def drawn(seed: int, steps: int, trips: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    z = torch.randn(trips, steps, 2, generator=random, dtype=torch.float64).cumsum(1)
    root = torch.randn(trips, steps, 2, 2, generator=random, dtype=torch.float64)
    noise = root @ root.mT + 0.05 * torch.eye(2, dtype=torch.float64)
    return z, noise, torch.rand(4, generator=random, dtype=torch.float64) + 0.01


def textbook(z: Floats, noise: Floats, process: Floats) -> Floats:
    """Return the places of one trip, with general inverses and the covariance in Joseph's form."""
    phi = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1.0]])
    psi = np.array([[1, 0, 0, 0], [0, 1, 0, 0.0]])
    g, h = np.array([*z[0], 0, 0]), np.diag([0.0, 0, START, START])
    h[:2, :2] = noise[0]
    places = [psi @ g]
    for k in range(1, len(z)):
        g, h = phi @ g, phi @ h @ phi.T + np.diag(process)
        gain = h @ psi.T @ np.linalg.inv(psi @ h @ psi.T + noise[k])
        g = g + gain @ (z[k] - psi @ g)
        keep = np.eye(4) - gain @ psi
        h = keep @ h @ keep.T + gain @ noise[k] @ gain.T
        places.append(psi @ g)
    return np.array(places)


def conditional(z: Floats, noise: Floats, process: Floats, last: int) -> Floats:
    """Return the mean of the place at a step given the observations up to it: no recursion, one joint normal."""
    phi = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1.0]])
    # States as linear functions of the sources: the errors of the first state, then those of every move.
    first = np.zeros((4, 4))
    first[:2, :2], first[2:, 2:] = noise[0], START * np.eye(2)
    sources = 4 * (last + 1)
    covariance = np.zeros((sources, sources))
    covariance[:4, :4] = first
    state = np.zeros((4, sources))
    state[:, :4] = np.eye(4)
    seen = []
    for k in range(1, last + 1):
        state = phi @ state
        state[:, 4 * k : 4 * k + 4] += np.eye(4)
        covariance[4 * k : 4 * k + 4, 4 * k : 4 * k + 4] = np.diag(process)
        seen.append(state[:2])
    mean = z[0]  # the first speed is expected to be 0, so all places are expected to be the first
    if not seen:
        return mean
    c = np.concatenate(seen)
    errors = np.zeros((len(c), len(c)))
    for k in range(last):
        errors[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = noise[k + 1]
    away = (z[1 : last + 1] - mean).ravel()
    expected: Floats = mean + state[:2] @ covariance @ c.T @ np.linalg.solve(c @ covariance @ c.T + errors, away)
    return expected


@settings(max_examples=25)
@given(seed=st.integers(0, 2**31), steps=st.integers(1, 7))
def test_places_are_those_of_the_textbook_and_of_the_joint_normal(seed: int, steps: int) -> None:
    z, noise, process = drawn(seed, steps)
    found = kalman_filter(z, noise, process, START).numpy()
    for trip in range(len(z)):
        expected = textbook(z[trip].numpy(), noise[trip].numpy(), process.numpy())
        np.testing.assert_allclose(found[trip], expected, rtol=1e-7, atol=1e-9)
        for k in range(steps):
            joint = conditional(z[trip].numpy(), noise[trip].numpy(), process.numpy(), k)
            np.testing.assert_allclose(found[trip, k], joint, rtol=1e-6, atol=1e-8)


def test_gradients_pass_through_the_filter() -> None:
    z, noise, process = drawn(5, 4)
    parts = [part.requires_grad_() for part in (z, noise, process)]
    assert torch.autograd.gradcheck(lambda *each: kalman_filter(*each, START), parts)


def test_later_observations_do_not_change_earlier_places() -> None:
    z, noise, process = drawn(8, 6)
    whole = kalman_filter(z, noise, process, START)
    torch.testing.assert_close(kalman_filter(z[:, :4], noise[:, :4], process, START), whole[:, :4])


def test_sure_observations_are_believed_and_unsure_ones_are_not() -> None:
    z, _, process = drawn(2, 5)
    eye = torch.eye(2, dtype=torch.float64).expand(2, 5, 2, 2)
    torch.testing.assert_close(kalman_filter(z, 1e-12 * eye, process, START), z)
    unsure = eye.clone() * 1e-12
    unsure[:, 3:] *= 1e18
    found = kalman_filter(z, unsure, torch.full((4,), 1e-9, dtype=torch.float64), START)
    speed = found[:, 3] - found[:, 2]
    torch.testing.assert_close(found[:, 4] - found[:, 3], speed, rtol=1e-4, atol=1e-4)


def test_inverse_and_moments() -> None:
    _, noise, _ = drawn(3, 4)
    torch.testing.assert_close(inverse(noise), torch.linalg.inv(noise))
    random = np.random.default_rng(4)
    places, weight = random.normal(size=(7, 2)), random.dirichlet(np.ones(7), 3)
    mean, spread = moments(torch.from_numpy(weight), torch.from_numpy(places))
    for k in range(3):
        np.testing.assert_allclose(mean[k], np.average(places, axis=0, weights=weight[k]))
        np.testing.assert_allclose(spread[k], np.cov(places.T, aweights=weight[k], ddof=0))
