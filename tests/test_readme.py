"""Every command of the README is run here, in its order, on real data; see also ``test_getting_started.py``."""

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
README = ROOT / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_readme_shows_commands():
    assert [block.split()[0] for block in blocks("sh")] == ["make", "tedtrajrec"]


@pytest.mark.slow
def test_make_demo(tmp_path):
    (command,) = blocks("sh")[0].splitlines()
    words = [*shlex.split(command), f"DEMO={tmp_path / 'demo'}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "demo" / "trips.png").exists()


@pytest.fixture(scope="module")
def own_city(data_dir, tmp_path_factory):
    """Return a folder with what a user brings along: an extract and a CSV of fixes, here of a few short trips."""
    folder = tmp_path_factory.mktemp("city")
    (folder / "city.osm.pbf").symlink_to(data_dir / "porto" / "porto.osm.pbf")
    trips = read_trips(data_dir / "porto" / "trips.csv.gz")
    short = np.flatnonzero((trips.lengths > 10) & (trips.lengths <= 40))[:40]
    write_trips(trips.select(short), folder / "past.csv")
    write_trips(trips.select(short), folder / "fixes.csv")
    return folder


def run_all(lines: list[str], folder: Path) -> None:
    for line in lines:
        words = [sys.executable, "-m", *shlex.split(line)]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        if "-o" in words:
            assert (folder / words[words.index("-o") + 1]).stat().st_size > 0


@pytest.mark.real
def test_readme_commands_and_python(own_city):
    run_all(blocks("sh")[1].splitlines(), own_city)
    (code,) = blocks("python")
    done = subprocess.run([sys.executable, "-c", code], cwd=own_city, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "page", [README, *sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md"], ids=lambda p: p.name
)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert "://" in target or (page.parent / target).exists(), target
