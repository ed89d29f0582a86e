"""The state of a training run on disk: one file, whole or absent, from which training goes on bit for bit."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import save
from torch import Tensor, nn

from tedtrajrec.errors import InputError
from tedtrajrec.files import replacing

FILE = Path("last") / "state.safetensors"


@dataclass
class Progress:
    """Where a run stands; random numbers are drawn from seed, epoch and step, so they need not be kept."""

    epoch: int = 0  # counts from 0
    step: int = 0  # batches done in this epoch
    best: float = -1.0  # validation accuracy
    best_epoch: int = -1
    sums: dict[str, float] = field(default_factory=dict)  # of the losses of this epoch
    history: list[dict[str, Any]] = field(default_factory=list)  # one row for each epoch done
    finished: bool = False


def save_checkpoint(run: Path, model: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
    """Write the state of a run."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for number, values in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": torch.as_tensor(value) for name, value in values.items()}
    with replacing(run / FILE) as path:
        whole = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
        path.write_bytes(save(whole, {"progress": json.dumps(asdict(progress))}))  # save_file hides that a disk is full


def remove_leftovers(run: Path) -> None:
    """Remove what a killed process was writing beside the files of a run (see :func:`replacing`)."""
    for folder in (run, run / FILE.parent):
        for pattern in (".????????-*", ".tmp??????"):  # safetensors writes beside what it is told to write, too
            for path in folder.glob(pattern):
                path.unlink(missing_ok=True)


def load_checkpoint(run: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> Progress | None:
    """Put model and optimizer into the state of a run and return where it stands, or None if there is none."""
    path = run / FILE
    if not path.exists():
        return None
    try:
        with safetensors.safe_open(path, "pt") as file:
            progress = Progress(**json.loads(file.metadata()["progress"]))
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        model.load_state_dict(
            {name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")}
        )
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            if name.startswith("optimizer."):
                _, number, key = name.split(".", 2)
                state.setdefault(int(number), {})[key] = value
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    except (safetensors.SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise InputError(
            f"training cannot go on from this ({error})", file=path, remedy="Start a new run in another folder."
        ) from error
    return progress
