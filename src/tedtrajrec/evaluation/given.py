"""Draws that a file prescribes, so that figures of different tools and days are taken on the same fixes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np

from tedtrajrec.data.dataset import Dataset, SplitName
from tedtrajrec.errors import InputError
from tedtrajrec.evaluation.run import Draw, draw_steps
from tedtrajrec.files import existing_file


def given_draw(dataset: Dataset, file: str | Path, keep: str, *, split: SplitName = "test") -> Draw:
    """Return the draw of a JSON file: ``{"trips": {traj_id: {"1/8": [0, 7, ...], ...}, ...}}``.

    Parameters
    ----------
    dataset, split
        Where the trips are; those of the file that are not there are an error.
    file
        The observed steps of each trip by share, in ascending order and with the last step of the trip.
    keep
        Which share.
    """
    path = existing_file(file, "a JSON file of observed steps")
    try:
        drawn = {
            traj_id: np.array(shares[keep], np.int64)
            for traj_id, shares in json.loads(path.read_text())["trips"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"this does not give observed steps of trips at {keep} ({error!r})", file=path) from error
    source = dataset.split(split)
    number = {traj_id: i for i, traj_id in enumerate(source.trips().traj_id.tolist())}
    missing = [traj_id for traj_id in drawn if traj_id not in number]
    if missing:
        raise InputError(f"{len(missing)} of {len(drawn)} trips, such as {missing[0]}, are not in '{split}'", file=path)
    trips = np.array([number[traj_id] for traj_id in drawn], np.int64)
    lengths = source.lengths[trips]
    first = np.cumsum(lengths) - lengths
    observed = np.zeros(lengths.sum(), np.bool_)
    for (traj_id, steps), start, length in zip(drawn.items(), first.tolist(), lengths.tolist(), strict=True):
        if not len(steps) or steps.min() < 0 or steps[-1] != length - 1:
            raise InputError(f"the steps of trip {traj_id} do not end with its last one, {length - 1}", file=path)
        observed[start + steps] = True
    return dataclasses.replace(
        draw_steps(dataset, keep=keep, split=split, trips=trips, observed=observed), rule="fixed"
    )
