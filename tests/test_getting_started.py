"""docs/getting-started.md, followed word for word on Porto: from an extract and a CSV to recovered trips and a map."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tedtrajrec.data.sampling import thin_trips
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from tedtrajrec.recovery.recovered import RecoveredTrips
from tedtrajrec.recovery.summary import summarise_trips
from tedtrajrec.trips.readers import read_trips
from tedtrajrec.trips.writers import write_trips

GUIDE = Path(__file__).parents[1] / "docs" / "getting-started.md"


def blocks(kind: str) -> list[str]:
    """Return the commands of the guide; the slow ones are marked."""
    return re.findall(rf"^```{kind}\n(.*?)^```", GUIDE.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def own_city(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with what a user brings along: an extract, and a CSV of sparse fixes."""
    folder = tmp_path_factory.mktemp("porto")
    (folder / "city.osm.pbf").symlink_to(data_dir / "porto" / "porto.osm.pbf")
    fixes = read_trips(data_dir / "porto" / "trips.csv.gz").select(np.arange(200))
    write_trips(thin_trips(fixes, "1/8", seed=1), folder / "fixes.csv")
    return folder


def follow(kind: str, folder: Path) -> str:
    """Give the commands to a shell as they stand in the guide, and return what they print."""
    # The program of this very environment, whatever else is installed.
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    script = "set -e\n" + "".join(blocks(kind))
    done = subprocess.run(
        ["sh", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def outputs(kind: str) -> list[str]:
    lines = [shlex.split(line) for block in blocks(kind) for line in block.splitlines()]
    return [words[words.index("-o") + 1] for words in lines if "-o" in words]


def test_every_command_is_a_line_of_ours():
    for kind in ("sh", "sh slow"):
        lines = [line for block in blocks(kind) for line in block.splitlines()]
        assert len(lines) >= 3
        assert all(line.startswith("tedtrajrec ") for line in lines)


@pytest.mark.real
def test_the_guide_can_be_followed(own_city: Path) -> None:
    said = follow("sh", own_city)
    for name in outputs("sh"):
        path = own_city / name
        assert path.stat().st_size > 0 if path.is_file() else any(path.iterdir()), name
    assert "No model: route_hmm" in said

    # What the guide promises of the recovered file is so.
    network = RoadNetwork.load(own_city / "network.npz")
    recovered = RecoveredTrips.from_trips(read_trips(own_city / "recovered.parquet"))
    trips = read_trips(own_city / "trips.parquet")
    assert set(recovered.traj_id.tolist()) <= set(trips.traj_id.tolist())
    assert len(recovered) > 0.9 * len(trips)
    inside = np.diff(recovered.trip_of_row) == 0
    assert set(np.diff(recovered.time)[inside].tolist()) == {15}
    lon, lat = network.point_at(recovered.segment, recovered.ratio)
    np.testing.assert_allclose(np.column_stack([recovered.lon, recovered.lat]), np.column_stack([lon, lat]), atol=1e-6)
    summary = pl.read_csv(own_city / "summary.csv")
    assert summary["km"].to_list() == summarise_trips(recovered, Router(network))["km"].to_list()
    rejects = own_city / "recovered.rejects.csv"
    rejected = pl.read_csv(rejects)["timestamp"].count() if rejects.exists() else 0
    assert trips.n_fixes == recovered.observed.sum() + rejected

    # The maps show trips, and ask for nothing from elsewhere; tests/e2e opens such a file in a browser.
    assert re.search(r"recovered\.html: the first 20 trips of the file, [1-9][\d,]* segments", said)
    page = (own_city / "recovered.html").read_text("utf-8")
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=[\"']?(https?:)?//", page)


@pytest.mark.real
def test_recovering_in_python(own_city: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the example of docs/recovering.md, on what the guide has left."""
    if not (own_city / "network.npz").exists():
        RoadNetwork.from_osm(own_city / "city.osm.pbf").save(own_city / "network.npz")
    page = (GUIDE.parent / "recovering.md").read_text("utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(own_city)
    exec(compile(code, "recovering.md", "exec"), {})
    assert (own_city / "trips.csv").exists()


@pytest.mark.real
@pytest.mark.slow
def test_the_slow_part_can_be_followed_too(own_city: Path) -> None:
    if not (own_city / "simulated.parquet").exists():
        follow("sh", own_city)
    follow("sh slow", own_city)
    for name in outputs("sh slow"):
        assert (own_city / name).exists()
    assert RecoveredTrips.from_trips(read_trips(own_city / "better.parquet")).probability.max() <= 1
