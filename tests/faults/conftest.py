"""A small city with trips, a dataset and recovered trips, on which every stage can run in a moment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tedtrajrec.cli import main
from tedtrajrec.data.dataset import write_dataset
from tedtrajrec.data.pack import pack_dataset
from tedtrajrec.data.sampling import thin_trips
from tedtrajrec.trips.simulate import simulate_trips
from tedtrajrec.trips.writers import write_trips
from tests.conftest import make_grid

STAGES = {
    "network build": ("network build synthetic -o {1}/city.npz", "city.npz"),
    "simulate": (
        (
            "simulate --network {0}/city.npz --trips 300 --set demand.least_m=100 --set demand.least_minutes=0.5 "
            "-o {1}/trips.parquet"
        ),
        "trips.parquet",
    ),
    "clean": ("clean {0}/trips.csv --rejects {1}/rejects.csv -o {1}/clean.csv.gz", "clean.csv.gz"),
    "match": ("match {0}/trips.csv --network {0}/city.npz --routes {1}/r.geojson -o {1}/matched.csv", "matched.csv"),
    "thin": ("thin {0}/trips.csv -o {1}/sparse.gpx", "sparse.gpx"),
    "prepare": ("prepare {0}/trips.csv --network {0}/city.npz --timezone UTC -o {1}/dataset", "dataset"),
    "data pack": ("data pack {0}/dataset -o {1}/packed.zip", "packed.zip"),
    "data unpack": ("data unpack {0}/packed.zip -o {1}/dataset", "dataset"),
    "train": ("train trimpute_hmm {0}/dataset -o {1}/run", "run"),
    "evaluate": ("evaluate linear_hmm {0}/dataset -o {1}/metrics", "metrics/linear_hmm-test-1of8-exact-0"),
    "recover": ("recover {0}/sparse.csv --network {0}/city.npz -o {1}/recovered.parquet", "recovered.parquet"),
    "benchmark": ("benchmark {0}/plan.toml -o {1}/rows", "rows"),
}


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of inputs for all stages."""
    folder = tmp_path_factory.mktemp("inputs")
    city = make_grid()
    city.save(folder / "city.npz")
    trips = simulate_trips(city, trips=40, step_s=15, seed=1, workers=1)
    write_trips(trips, folder / "trips.csv")
    write_trips(thin_trips(trips, "1/8"), folder / "sparse.csv")
    parts = {"train": np.arange(30), "valid": np.arange(30, 34), "test": np.arange(34, 40)}
    splits = {name: [trips.select(which)] for name, which in parts.items()}
    pack_dataset(write_dataset(folder / "dataset", city, splits, step_s=15, time_zone="UTC"), folder / "packed.zip")
    (folder / "plan.toml").write_text(
        f'[datasets.city]\npath = "{folder}/dataset"\n'
        '[[cells]]\ngroup = "g"\nmethods = ["linear_hmm"]\ndatasets = ["city"]\n'
    )
    return folder


def words_of(stage: str, inputs: Path, output: Path) -> list[str]:
    """Return the command of a stage."""
    return [word.format(inputs, output) for word in STAGES[stage][0].split()]


def told(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that must fail with one clear sentence, and return it."""
    with pytest.raises(SystemExit) as stop:
        main(words)
    said = capsys.readouterr()
    assert stop.value.code == 2, said.err
    assert "Error: " in said.err
    assert "Traceback" not in said.err
    return said.err[said.err.index("Error: ") :]


def files_below(folder: Path) -> list[str]:
    """Return all files, hidden ones included."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
