"""The verb ``recover`` with a real method on a made-up city."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tedtrajrec.cli import main
from tedtrajrec.data.sampling import thin_trips
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.recovery.privacy import KEY_VARIABLE, hash_ids
from tedtrajrec.recovery.recoverer import Recoverer
from tedtrajrec.trips.readers import read_trips
from tedtrajrec.trips.simulate import simulate_trips
from tedtrajrec.trips.table import as_text
from tedtrajrec.trips.writers import write_trips
from tests.trips.trip_files import assert_same_trips


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a city and sparse trips, the third of which is at sea."""
    folder = tmp_path_factory.mktemp("recover")
    city = synthetic_city(size="small")
    city.save(folder / "city.npz")
    sparse = thin_trips(simulate_trips(city, trips=20, step_s=15, seed=2, workers=1), "1/8", seed=1)
    at_sea = (sparse.trip_of_fix == 2) | (np.arange(sparse.n_fixes) == sparse.offsets[5] + 1)
    driver = as_text([f"driver {i % 3}" for i in range(len(sparse))])
    sparse = sparse.replace(
        lat=np.where(at_sea, 80.0, sparse.lat), segment=None, ratio=None, extra={}, trip_extra={"driver": driver}
    )
    write_trips(sparse, folder / "sparse.csv")
    return folder


def run(words: str, folder: Path, capsys: pytest.CaptureFixture[str], code: int = 0) -> tuple[str, str]:
    with pytest.raises(SystemExit) as stop:
        main([word.format(folder) for word in words.split()])
    said = capsys.readouterr()
    assert stop.value.code == code, said.err
    return said.out, said.err


def test_without_a_model_it_works_and_says_what_training_would_add(folder: Path, capsys) -> None:
    words = "recover {0}/sparse.csv --network {0}/city.npz --summary {0}/s.csv -o {0}/r.parquet"
    out, err = run(words, folder, capsys)
    assert "No model: route_hmm" in err
    assert "trained on past trips" in err
    assert "19 of 20 trips recovered" in out
    fixes = read_trips(folder / "sparse.csv")
    rejects = pl.read_csv(folder / "r.rejects.csv")
    assert rejects.filter(pl.col("timestamp").is_not_null()).height == fixes.lengths[2] + 1
    rows = pl.read_parquet(folder / "r.parquet")
    assert rows["observed"].sum() + fixes.lengths[2] + 1 == fixes.n_fixes  # every row of the input is accounted for
    assert rows["driver"].n_unique() == 3
    steps = rows.group_by("traj_id", maintain_order=True).agg(pl.col("timestamp").diff().drop_nulls().unique())
    assert steps["timestamp"].explode().unique().dt.total_seconds().to_list() == [15]
    assert pl.read_csv(folder / "s.csv")["km"].min() > 0
    # The same as in Python, to the last digit.
    python = Recoverer.from_network(folder / "city.npz").recover(folder / "sparse.csv").to_trips()
    assert_same_trips(read_trips(folder / "r.parquet"), python)


def test_another_step_and_another_method(folder: Path, capsys) -> None:
    run("recover {0}/sparse.csv --method linear_hmm --network {0}/city.npz --step 5 -o {0}/l.csv", folder, capsys)
    times = pl.read_csv(folder / "l.csv").group_by("traj_id").agg(pl.col("timestamp").diff().drop_nulls().min())
    assert times["timestamp"].unique().to_list() == [5]
    _, err = run("recover {0}/sparse.csv --network {0}/city.npz --decode greedy -o {0}/g.csv", folder, capsys)
    assert "greedily" in err


def test_privacy(folder: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    command = "recover {0}/sparse.csv --network {0}/city.npz --trim-ends 100m --hash-ids -o {0}/p.csv"
    _, err = run(command, folder, capsys)
    (key,) = re.findall(r"hashed with the key ([0-9a-f]{64}),", err)
    names = set(hash_ids(read_trips(folder / "sparse.csv").traj_id, key).tolist())
    rows, rejects = pl.read_csv(folder / "p.csv"), pl.read_csv(folder / "p.rejects.csv")
    assert set(rows["traj_id"]) | set(rejects["traj_id"]) == names
    assert "driver" not in rows.columns
    assert key not in "".join(path.read_text() for path in folder.glob("p*"))  # told, not stored
    (folder / "key").write_text(key)
    _, err = run(f"{command} --hash-key-file {{0}}/key --extra driver", folder, capsys)
    assert key not in err
    again = pl.read_csv(folder / "p.csv")
    assert again.drop("driver").equals(rows)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("-o {0}/e.csv", "give --model RUN for a trained model, or --network FILE"),
        ("--model a --method b -o {0}/e.csv", "not both"),
        ("--method tedtrajrec --network {0}/city.npz -o {0}/e.csv", "must be trained first"),
        ("--method magic --network {0}/city.npz -o {0}/e.csv", "magic"),
        ("--network {0}/city.npz --trim-ends far -o {0}/e.csv", "'far' is not a distance"),
        ("--network {0}/city.npz --alternatives 2 -o {0}/e.csv", "lternatives"),
        ("--network {0}/city.npz --extra nobody -o {0}/e.csv", "no extra column 'nobody'"),
        ("--network {0}/no.npz -o {0}/e.csv", "no such file"),
        ("--model {0}/no -o {0}/e.csv", "no"),
    ],
)
def test_errors_are_one_sentence(words: str, told: str, folder: Path, capsys) -> None:
    _, err = run(f"recover {{0}}/sparse.csv {words}", folder, capsys, code=2)
    assert told in err
    assert "Traceback" not in err
    assert not list(folder.glob("e.*"))
