"""The 828 Chengdu trips and the fixed draw on which the figures of other tools were taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tedtrajrec.data.batch import make_batch
from tedtrajrec.data.dataset import shards_of, write_dataset
from tedtrajrec.evaluation.metrics import TripMetrics, evaluate_trips
from tedtrajrec.methods.base import Method
from tedtrajrec.trips.table import Trips


def metrics_on_peers_trips(method: Method[Any], data_dir: Path, peers_dir: Path, folder: Path) -> TripMetrics:
    """Train on the published training trips, without those that share fixes with test trips, and recover the 828."""
    network = method.network
    rows = pd.read_csv(data_dir / "chengdu" / "trips.csv.gz")
    number = {key: k for k, key in enumerate(network.source_id.tolist())}
    segment = np.array([number.get(key, -1) for key in rows["edge_id"].fillna(-1).astype(int)], np.int32)
    trips = Trips.from_columns(
        rows["traj_id"].to_numpy(str),
        rows["timestamp"],
        rows["lon"],
        rows["lat"],
        segment=segment,
        ratio=np.where(segment >= 0, rows["ratio"], np.nan),
    )
    split = rows.groupby("traj_id", sort=False)["split"].first()
    assert split.index.tolist() == trips.traj_id.tolist()
    is_training = split.to_numpy() == "train"
    fix = rows[["timestamp", "lon", "lat"]].apply(tuple, axis=1)
    shared = fix.isin(set(fix[rows["split"] == "test"])).groupby(rows["traj_id"], sort=False).sum().to_numpy()
    training = trips.select(is_training & (shared < 5))
    assert len(training) == is_training.sum() - 4
    splits = {"train": shards_of(training)}
    method.precompute(write_dataset(folder / "ds", network, splits, step_s=15, time_zone="Asia/Shanghai"))

    draw = json.loads((peers_dir / "chengdu828.json").read_text())["trips"]
    place = {name: k for k, name in enumerate(trips.traj_id.tolist())}
    tested = trips.select([place[name] for name in draw])
    observed = np.zeros(tested.n_fixes, bool)
    observed[np.concatenate([tested.offsets[k] + np.array(kept["1/8"]) for k, kept in enumerate(draw.values())])] = True
    batch = make_batch(tested, observed, network, step_s=15, time_zone="Asia/Shanghai")
    found = method.recover(batch)
    real = batch.step_mask
    return evaluate_trips(
        network,
        tested.offsets,
        tested.segment,
        tested.ratio,
        found.segment[real].numpy(),
        found.ratio[real].numpy(),
        observed=observed,
    )
