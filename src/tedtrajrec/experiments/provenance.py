"""Where a figure comes from: settings, dataset, command, machine, versions and date."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import platform
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from tedtrajrec import __version__
from tedtrajrec.data.dataset import SPLITS, Dataset


def machine() -> dict[str, Any]:
    """Return where and when a figure was taken, and with what versions."""
    cuda = torch.cuda.is_available()
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {"gpu": torch.cuda.get_device_name() if cuda else None, "cores": os.cpu_count()},
        "versions": {"tedtrajrec": __version__, "python": platform.python_version(), "torch": torch.__version__},
    }


def settings_hash(settings: Mapping[str, Any]) -> str:
    """Return a name for settings of plain values."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def dataset_hash(dataset: Dataset) -> str:
    """Return a name for the trips of all splits, network, step and time zone, however they were prepared."""
    info = dataset.info
    digest = hashlib.sha256(f"{info.network_hash} {info.step_s} {info.time_zone}".encode())
    for split in SPLITS:
        for file in sorted((dataset.path / split).rglob("*.npy")):
            digest.update(f"{file.relative_to(dataset.path).as_posix()} {file.stat().st_size}".encode())
            with file.open("rb") as stream:
                while chunk := stream.read(1 << 20):
                    digest.update(chunk)
    return digest.hexdigest()[:16]


def benchmark_command(
    plan: Path, output: Path, datasets: Iterable[str], plugins: Iterable[Path] = (), known: Iterable[Path] = ()
) -> str:
    """Return the command that gives the rows of a plan anywhere.

    What holds for one machine only is left out: where datasets lie, the way from the root, time and cells side by side.
    """
    words = ["tedtrajrec", "benchmark", as_given(plan), "-o", as_given(output)]
    for option, files in (("--plugin", plugins), ("--known", known)):
        for file in files:
            words += [option, as_given(file)]
    return " ".join([shlex.join(words), *(f"--dataset {shlex.quote(name)}=..." for name in datasets)])


def as_given(path: Path) -> str:
    """Return a path as it was given, but of one from the root its name alone: the rest is only of this machine."""
    return path.resolve().name if path.is_absolute() or path == Path() else path.as_posix()
