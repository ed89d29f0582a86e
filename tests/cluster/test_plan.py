"""Cells of a plan as tasks of a Ray cluster: the rows of the local run, and faults told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tedtrajrec.cluster import plan as on_ray
from tedtrajrec.cluster.plan import RayProcess, run_plan_on_ray
from tedtrajrec.cluster.pool import RayPool
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.experiments.cells import run_cell
from tedtrajrec.experiments.plan import read_plan
from tests.training.conftest import small_dataset  # noqa: F401  (a fixture)

PLAN = """
[datasets.city]
path = "nowhere"

[[cells]]
group = "plain"
methods = ["linear_hmm"]
datasets = ["city"]
keeps = ["1/4"]
"""


def test_rows_are_those_of_the_local_run(
    pool: RayPool,
    small_dataset: Dataset,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Joined:
        """Stands for a connection that is there already."""

        def __enter__(self) -> RayPool:
            return pool

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(on_ray, "ray_pool", lambda *_, **__: Joined())
    file = tmp_path / "plan.toml"
    file.write_text(PLAN)
    plan = read_plan(file, {"city": str(small_dataset.path)})
    said: list[str] = []
    there = run_plan_on_ray(plan, tmp_path / "there", "anywhere", say=said.append)
    here, _ = run_cell(plan.cells[0], plan.datasets["city"], tmp_path / "run") or ({}, None)
    assert said[-1].endswith("linear_hmm-1of4-0: done")
    assert there[0]["draws"] == here["draws"]
    timeless = [{**row["metrics"]["test"], "recover_s": 0, "trips_per_s": 0} for row in (there[0], here)]
    assert timeless[0] == pytest.approx(timeless[1], rel=0, abs=0, nan_ok=True)


@pytest.mark.parametrize(
    ("work", "code"), [(lambda: None, 0), (lambda: sys.exit(2), 2), (lambda: sys.exit("why"), 1), (lambda: 1 / 0, 1)]
)
@pytest.mark.usefixtures("pool")
def test_how_it_ended(work: Callable[[], None], code: int) -> None:
    process = RayProcess(work, (), "a cell")
    while process.is_alive():
        pass
    assert process.exitcode == code
