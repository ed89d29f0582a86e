"""Probabilities one can trust: after training, validation trips tell what those of a method are worth."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tedtrajrec.data.batch import Batch
from tedtrajrec.methods.calibration import Calibration
from tedtrajrec.methods.learned import LearnedMethod


def calibrate_run(method: LearnedMethod[Any, Any], run: str | Path, batches: Iterable[Batch]) -> None:
    """Learn the calibration of the weights that a run has saved and save it with them, if that is not done.

    Parameters
    ----------
    method
        One of the kind, on the device to be used; it is left as it is.
    run
        The run directory.
    batches
        Validation trips, which are looked at only if they are needed.
    """
    best = type(method).load(run, method.network)
    if best.calibration is None:
        best.to(method.device)
        best.calibration = learn_calibration(best, batches)
        if best.calibration is not None:
            best.save(run)


@torch.no_grad()
def learn_calibration(method: LearnedMethod[Any, Any], batches: Iterable[Batch]) -> Calibration | None:
    """Return what makes the probabilities of a method true on these trips, for observed and missing steps apart.

    Without a step of known truth there is none.
    """
    method.eval()
    parts = []
    for batch in batches:
        answer = method.recover(batch)
        segment, said = answer.segment.cpu(), answer.log_prob.cpu().double().exp().clamp(max=1)
        known = (batch.segment >= 0) & (segment >= 0) & ~said.isnan()
        parts.append([part[known].numpy() for part in (said, segment == batch.segment, batch.observed)])
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return Calibration.fit(*columns) if columns and len(columns[0]) else None
