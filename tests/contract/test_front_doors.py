"""Every method from the command line and over HTTP, by its name or, where it learns, by the run that ``train`` made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np
import polars as pl
import polars.testing
import pytest

from tedtrajrec.cli import main
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.data.sampling import thin_trips
from tedtrajrec.methods.learned import LearnedMethod
from tedtrajrec.methods.registry import METHODS, Needs, method_class
from tedtrajrec.training.train import train_method
from tedtrajrec.trips.table import Trips
from tedtrajrec.trips.writers import write_trips
from tests.contract.conftest import STEP_S, ZONE, write_trips_of

COLUMNS = ("traj_id", "timestamp", "lon", "lat", "segment", "ratio")
SMALL = ("train.epochs=1", "train.batch=16", "model.d=16")  # the last for learned methods only


class Door(NamedTuple):
    """How a method is asked for."""

    name: str
    run: Path | None  # None: by its name


def settings_of(name: str) -> tuple[str, ...]:
    return SMALL if issubclass(method_class(name), LearnedMethod) else SMALL[:2]


def run_command(*words: str | Path) -> None:
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    assert not stop.value.code


@pytest.fixture(scope="module")
def sparse(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of the trips to test with, thinned and without the truth."""
    thinned = thin_trips(dataset.split("test").trips(), "1/4")
    file = tmp_path_factory.mktemp("sparse") / "sparse.csv"
    write_trips(Trips(thinned.traj_id, thinned.offsets, thinned.time, thinned.lon, thinned.lat), file)
    return file


@pytest.fixture(scope="module", params=METHODS)
def door(request: pytest.FixtureRequest, dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """Train the method by its name alone, unless it learns nothing."""
    name = request.param
    if METHODS[name].needs is Needs.NOTHING:
        yield Door(name, None)
        return
    run = tmp_path_factory.mktemp("runs") / name
    settings = [word for setting in settings_of(name) for word in ("--set", setting)]
    run_command("train", name, dataset.path, "-o", run, "--device", "cpu", *settings)
    yield Door(name, run)


def test_training_is_repeatable_and_never_sees_test_trips(door: Door, dataset: Dataset, tmp_path: Path) -> None:
    if door.run is None:
        pytest.skip("it learns nothing")
    without = write_trips_of(tmp_path / "without_test", dataset, "train", "valid")
    assert len(without.split("test")) == 0
    train_method(door.name, without, tmp_path / "run", device="cpu", overrides=settings_of(door.name))
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (door.run / "model.safetensors").read_bytes()


def test_evaluate(door: Door, dataset: Dataset, tmp_path: Path) -> None:
    run_command("evaluate", door.run or door.name, dataset.path, "--keep", "1/8", "-o", tmp_path)
    (file,) = tmp_path.rglob("metrics.json")
    found = json.loads(file.read_text())
    assert found["method"] == door.name
    assert 0 < found["metrics"]["accuracy"] <= 1


def test_recover_and_service_agree(door: Door, dataset: Dataset, sparse: Path, tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="the service is not installed")
    from tedtrajrec.server.settings import ServerSettings
    from tests.server.running import running

    network = dataset.path / "network.npz"
    out = tmp_path / "recovered.csv"
    if door.run is None:
        asked = ["--method", door.name, "--network", str(network), "--timezone", ZONE, "--step", str(STEP_S)]
        settings = ServerSettings(network=network, method=door.name, timezone=ZONE, step_s=STEP_S, device="cpu")
    else:
        asked = ["--model", str(door.run), "--device", "cpu"]
        settings = ServerSettings(model=str(door.run), device="cpu")
    run_command("recover", sparse, "-o", out, *asked)
    rows = pl.read_csv(out)
    check_on_network(dataset, rows)

    with running(settings) as client:
        assert client.get("/v1/methods").json()["methods"][0]["name"] == door.name
        headers = {"Content-Type": "text/csv", "Accept": "text/csv"}
        answer: httpx.Response = client.post("/v1/recover", content=sparse.read_bytes(), headers=headers)
        answer.raise_for_status()
    polars.testing.assert_frame_equal(pl.read_csv(answer.content).select(COLUMNS), rows.select(COLUMNS))


def check_on_network(dataset: Dataset, rows: pl.DataFrame) -> None:
    """Check that every trip has a row for each step, on the road that it names."""
    trips = dataset.split("test").trips()
    assert rows["traj_id"].n_unique() == len(trips)
    assert len(rows) == trips.lengths.sum()
    segment, ratio = rows["segment"].to_numpy(), rows["ratio"].to_numpy()
    assert ((segment >= 0) & (segment < dataset.network.n_segments)).all()
    assert ((ratio >= 0) & (ratio <= 1)).all()
    lon, lat = dataset.network.point_at(segment, ratio)
    np.testing.assert_allclose(rows["lon"], lon, atol=1e-5)
    np.testing.assert_allclose(rows["lat"], lat, atol=1e-5)


def test_a_process_serves_a_method_by_name(dataset: Dataset, sparse: Path, tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="the service is not installed")
    from tests.server.running import until
    from tests.server.test_running import command, ready

    asked = ["--method", "linear_hmm", "--network", str(dataset.path / "network.npz"), "--step", str(STEP_S)]
    with command(tmp_path / "log", *asked) as (_, client):
        until(lambda: ready(client), 120)
        assert client.get("/v1/methods").json()["methods"][0]["name"] == "linear_hmm"
        answer = client.post("/v1/recover", content=sparse.read_bytes(), headers={"Content-Type": "text/csv"})
        assert answer.raise_for_status().json()["trips"]
