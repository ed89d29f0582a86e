"""Norms over real elements against torch's batch norm and a plain loop."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tedtrajrec.nn.masked_norm import MaskedNorm

D = 5


@pytest.fixture
def elements() -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(3)
    x = torch.randn(4, 6, D, generator=random, dtype=torch.float64) * 3 + 1
    return x, torch.rand(4, 6, generator=random) < 0.6


def test_without_graphs_it_is_a_batch_norm_of_real_elements(elements: tuple[Tensor, Tensor]) -> None:
    x, mask = elements
    ours, theirs = MaskedNorm(D).double(), nn.BatchNorm1d(D).double()
    nn.init.normal_(ours.gain)
    nn.init.normal_(ours.bias)
    theirs.load_state_dict({"weight": ours.gain, "bias": ours.bias}, strict=False)
    for _ in range(3):
        found = ours(x, mask)
        torch.testing.assert_close(found[mask], theirs(x[mask]))
        assert (found[~mask] == 0).all()
    torch.testing.assert_close(ours.mean, theirs.running_mean)
    n = int(mask.sum())  # torch's running variance is that of a sample
    assert theirs.running_var is not None
    torch.testing.assert_close((ours.var - 0.9**3) * n / (n - 1), theirs.running_var - 0.9**3)
    ours.eval()
    torch.testing.assert_close(
        ours(x, mask)[mask], (x[mask] - ours.mean) / (ours.var + 1e-5).sqrt() * ours.gain + ours.bias
    )


def test_with_graphs_the_mean_is_over_the_means_of_graphs(elements: tuple[Tensor, Tensor]) -> None:
    x, mask = elements
    mask[2] = False  # a graph of nothing
    norm = MaskedNorm(D).double()
    found = norm(x, mask, mask / mask.sum(1, keepdim=True).clamp_min(1))
    graphs = [x[b, mask[b]] for b in range(4) if mask[b].any()]
    mean = torch.stack([graph.mean(0) for graph in graphs]).mean(0)
    var = ((torch.cat(graphs) - mean) ** 2).mean(0)
    torch.testing.assert_close(found[mask], (x[mask] - mean) / (var + 1e-5).sqrt())
    torch.testing.assert_close(norm.mean, 0.1 * mean)
    torch.testing.assert_close(norm.var, 0.9 + 0.1 * var)


def test_nothing_but_padding_teaches_nothing(elements: tuple[Tensor, Tensor]) -> None:
    x, mask = elements
    norm = MaskedNorm(D).double()
    assert (norm(x, torch.zeros_like(mask)) == 0).all()
    assert (norm.mean == 0).all()
    assert (norm.var == 1).all()
