"""Training steps on parts of a network as on a device that this machine lacks: where tensors lie, what is replayed."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.optim import adam as torch_adam
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tedtrajrec.methods.learned import Losses
from tedtrajrec.nn.segment_table import SegmentTable
from tedtrajrec.nn.touched import Part, no_part, rounded
from tedtrajrec.training import rows as rows_module
from tedtrajrec.training import trainer as trainer_module
from tedtrajrec.training.checkpoint import Progress
from tedtrajrec.training.config import TrainConfig
from tedtrajrec.training.distributed import ALONE, Ranks
from tedtrajrec.training.rows import LAST
from tedtrajrec.training.trainer import Trainer

THERE = torch.device("meta")  # has no memory, but any build of torch can plan work there, gradients included
S, D = 3000, 4


class Seen(NamedTuple):
    """A batch."""

    goal: Tensor
    part_asked: Tensor
    part_around: Tensor
    part_to_asked: Tensor
    part_to_others: Tensor

    @property
    def part(self):
        return Part(*self[1:]) if self.part_asked.numel() else None


class Mean(SegmentTable):
    """A method that asks for a mean of vectors."""

    def __init__(self):
        torch.manual_seed(0)
        super().__init__(S, D)
        self.linear = nn.Linear(D, D)

    device = property(lambda self: self.table.device)

    def loss(self, inputs):
        x = self.linear(self.vectors(inputs.part)).tanh()
        exists = torch.arange(len(x), device=x.device)[:, None] < inputs.goal[0]
        miss = ((x - inputs.goal[1]) ** 2 * exists).sum() / inputs.goal[0]
        return Losses(miss, miss.detach(), miss.detach(), exists.sum())


def batches(count=12):
    """Return batches of parts of two sizes, and some of the whole."""
    rng = np.random.default_rng(0)
    for k in range(count):
        size = S if k % 5 == 2 else int(rng.integers(300, 1500))
        segment = torch.from_numpy(rng.permutation(S)[:size])
        part = no_part()._replace(asked=segment[: size // 2], around=segment[size // 2 :])
        goal = torch.tensor([size, rng.uniform()], dtype=torch.float32)
        yield Seen(goal, *(rounded(part) if size < S else no_part()))


@dataclasses.dataclass(frozen=True)
class Two(Ranks):
    """Ranks of which the other one reads some rows more, or all."""

    count: int = 2
    all_rows: bool = False

    def union(self, mine):
        return None if mine is None or self.all_rows else np.union1d(mine, np.arange(3))

    def average(self, tensors, weight):
        assert {tensor.device for tensor in [*tensors, weight]} == {THERE}


@pytest.mark.parametrize("ranks", [ALONE, Two(), Two(all_rows=True)])
def test_all_work_is_where_the_weights_are(monkeypatch, ranks):
    calls = []

    def adam(*lists, **settings):
        calls.append({tensor.device for tensor in tree_leaves(lists)})  # a planned one takes any
        torch_adam.adam(*lists, **settings)

    def unfilled(part, found=trainer_module.unfilled):
        with unset_fake_temporarily():  # numbers of a batch are real
            return found(part)

    monkeypatch.setattr(rows_module, "adam", adam)
    monkeypatch.setattr(trainer_module, "unfilled", unfilled)
    monkeypatch.setattr(torch_adam, "_device_dtype_check_for_fused", lambda _: None)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    seen = list(batches(6))
    with FakeTensorMode(allow_non_fake_inputs=True):
        with THERE:
            method = Mean()
        trainer = Trainer(method, TrainConfig(), 10, ranks)
        trainer._recorded = lambda inputs: trainer._backward(Seen(*(part.to(THERE) for part in inputs)))
        for step, inputs in enumerate(seen):
            assert trainer(inputs, Progress(0, step)).total.device == THERE
        state = trainer.optimizer.state[method.table]
        assert (LAST in state) == (ranks != Two(all_rows=True))
        trainer.catch_up()
    assert {tensor.device for tensor in [method.table, *state.values()]} == {THERE}
    assert calls == ([] if ranks == Two(all_rows=True) else [{THERE}] * 5)


class Played(TorchDispatchMode):
    """Recorded work, as CUDA graphs are: Python runs once a shape, and a graph spoils what others gave."""

    def __init__(self, function):
        super().__init__()
        self.function, self.graphs, self.work = function, {}, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.work.append((func, args, kwargs or {}, out))
        return out

    def __call__(self, inputs):
        """Return what the function gives, from work that is recorded or was before."""
        key = tuple(part.shape for part in inputs)
        if key not in self.graphs:
            static = Seen(*(part.clone() for part in inputs))
            self.function(static)
            self.work = []
            with self:
                out = self.function(static)
            self.graphs[key] = static, self.work, out
        for _, _, out in self.graphs.values():
            for part in out:
                part.fill_(-1e9)
        static, work, out = self.graphs[key]
        for place, value in zip(static, inputs, strict=True):
            place.copy_(value)
        with torch.no_grad():
            for func, args, kwargs, old in work:
                for to, value in zip(tree_leaves(old), tree_leaves(func(*args, **kwargs)), strict=True):
                    if to.data_ptr() != value.data_ptr():
                        to.copy_(value)
        return out


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_replayed_steps_are_those_of_python(kind):
    found = []
    for played in (False, True):
        method = Mean()
        config = TrainConfig(optimizer=kind, weight_decay=0.1 * (kind == "adamw"), lr=0.01)
        trainer = Trainer(method, config, 10)
        trainer._recorded = Played(trainer._backward) if played else None
        losses = [trainer(inputs, Progress(0, step)).total for step, inputs in enumerate(batches())]
        trainer.catch_up()
        found.append(torch.cat([torch.stack(losses), method.table.detach().flatten()]))
    assert len(trainer._recorded.graphs) == 3
    assert torch.equal(*found)
