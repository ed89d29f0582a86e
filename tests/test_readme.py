"""Every command of the README is run here, in its order, on real data."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tedtrajrec.trips.readers import read_trips
from tedtrajrec.trips.writers import write_trips

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_readme_shows_commands():
    assert [block.split()[0] for block in blocks("sh")] == ["make", "tedtrajrec"]


def test_make_demo(tmp_path):
    (command,) = blocks("sh")[0].splitlines()
    words = [*shlex.split(command), f"DEMO={tmp_path / 'demo'}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "demo" / "trips.png").exists()


@pytest.mark.real
def test_commands_for_ones_own_city_and_python(data_dir, tmp_path):
    (tmp_path / "city.osm.pbf").symlink_to(data_dir / "porto" / "porto.osm.pbf")
    fixes = read_trips(data_dir / "porto" / "trips.csv.gz").select(np.arange(200))
    write_trips(fixes, tmp_path / "fixes.csv")
    for line in blocks("sh")[1].splitlines():
        words = [sys.executable, "-m", *shlex.split(line)]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    for name in (
        "network.npz",
        "city.png",
        "trips.parquet",
        "rejects.csv",
        "sparse.csv",
        "trips.png",
        "simulated.parquet",
    ):
        assert (tmp_path / name).stat().st_size > 0
    (code,) = blocks("python")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / target).exists(), target
