"""The state of a run on disk."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from tedtrajrec.errors import InputError
from tedtrajrec.training.checkpoint import FILE, Progress, load_checkpoint, remove_leftovers, save_checkpoint


def made(seed: int, width: int = 4) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width), nn.Linear(width, 1))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, seed: int) -> None:
    torch.manual_seed(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(5, 3)).square().sum().backward()
        optimizer.step()


PROGRESS = Progress(3, 7, 0.1 + 0.2, 2, {"total": 1 / 3}, [{"epoch": 0, "valid_accuracy": 0.7, "best": True}])


def test_goes_on_bit_for_bit(tmp_path: Path) -> None:
    model, optimizer = made(0)
    train(model, optimizer, 3, seed=1)
    save_checkpoint(tmp_path, model, optimizer, PROGRESS)
    other, its_optimizer = made(9)
    assert load_checkpoint(tmp_path, other, its_optimizer) == PROGRESS
    for a, b in ((model, optimizer), (other, its_optimizer)):
        train(a, b, 4, seed=2)
    for x, y in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(x, y)
    assert_equal(optimizer.state_dict(), its_optimizer.state_dict())


def assert_equal(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert a["param_groups"] == b["param_groups"]
    assert a["state"].keys() == b["state"].keys()
    for number, values in a["state"].items():
        for name, value in values.items():
            assert torch.equal(value, b["state"][number][name])


def test_before_the_first_step(tmp_path: Path) -> None:
    model, optimizer = made(0)
    assert load_checkpoint(tmp_path, model, optimizer) is None
    save_checkpoint(tmp_path, model, optimizer, Progress())
    before = copy.deepcopy(model.state_dict())
    assert load_checkpoint(tmp_path, model, optimizer) == Progress()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def damaged(kind: str, path: Path) -> None:
    whole = path.read_bytes()
    tensors = load_file(path)
    if kind == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif kind == "text":
        path.write_text("not a state")
    elif kind == "no progress":
        save_file(tensors, path)
    elif kind == "bad progress":
        save_file(tensors, path, {"progress": '{"epochs": 1}'})
    elif kind == "no weights":
        kept = {name: value for name, value in tensors.items() if not name.startswith("model.0")}
        save_file(kept, path, {"progress": "{}"})


@pytest.mark.parametrize("kind", ["cut", "text", "no progress", "bad progress", "no weights"])
def test_a_damaged_state_is_told(tmp_path: Path, kind: str) -> None:
    model, optimizer = made(0)
    train(model, optimizer, 1, seed=1)
    save_checkpoint(tmp_path, model, optimizer, PROGRESS)
    damaged(kind, tmp_path / FILE)
    with pytest.raises(InputError, match="cannot go on") as caught:
        load_checkpoint(tmp_path, *made(0))
    assert str(tmp_path / FILE) in str(caught.value)


def test_the_state_of_another_model_is_told(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, *made(0), Progress())
    with pytest.raises(InputError, match="cannot go on"):
        load_checkpoint(tmp_path, *made(0, width=5))


def test_leftovers_of_killed_writers_go(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, *made(0), Progress())
    for name in (".0123abcd-model.safetensors", "last/.89ef0123-state.safetensors", ".tmpyGZpJN", "last/.tmp9MhhYf"):
        (tmp_path / name).write_bytes(b"half")
    (tmp_path / ".gitignore").write_text("*")
    remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*")) == [".gitignore", "last", "state.safetensors"]
    remove_leftovers(tmp_path / "nowhere")
