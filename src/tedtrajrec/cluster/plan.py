"""The cells of a plan of experiments as tasks of a Ray cluster."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tedtrajrec.cluster.pool import RETRIES, ray_pool
from tedtrajrec.experiments.cells import run_plan
from tedtrajrec.experiments.plan import Plan, Source
from tedtrajrec.optional import load_optional


def run_plan_on_ray(
    plan: Plan,
    output: str | Path,
    address: str,
    *,
    runs: str | Path | None = None,
    gpus: float = 0.0,
    jobs: int | None = None,
    **options: Any,  # noqa: ANN401
) -> list[dict[str, Any]]:
    """Run the cells of a plan on a Ray cluster; see :func:`tedtrajrec.experiments.cells.run_plan`.

    Every cell is a task. One whose worker is lost is run again, and its training goes on where it was. Datasets, rows
    and runs must be the same files on all nodes.

    Parameters
    ----------
    plan, output, runs
        As for :func:`tedtrajrec.experiments.cells.run_plan`.
    address
        As for :func:`tedtrajrec.cluster.pool.ray_pool`.
    gpus
        Share of a GPU that each cell takes.
    jobs
        Cells run side by side; as many as the cluster has processors if not given.
    options
        Others of :func:`tedtrajrec.experiments.cells.run_plan`.
    """
    datasets = {name: _whole(source) for name, source in plan.datasets.items()}
    rows = Path(output).resolve()
    with ray_pool(address, show_output=True) as pool:
        return run_plan(
            dataclasses.replace(plan, datasets=datasets),
            rows,
            runs=rows / "runs" if runs is None else Path(runs).resolve(),
            jobs=jobs or pool.processors,
            begin=lambda work, arguments, name: RayProcess(work, arguments, name, gpus=gpus),
            **options,
        )


def _whole(source: Source) -> Source:
    """Return where a dataset lies by paths that hold in any folder."""
    draws = None if source.draws is None else str(Path(source.draws).resolve())
    return Source(str(Path(source.path).resolve()), draws)


class RayProcess:
    """A function at work as a task of the cluster; see :class:`tedtrajrec.experiments.cells.Begun`.

    Parameters
    ----------
    work, arguments, name
        The function, what it is given, and the name of the task.
    gpus
        Share of a GPU that it takes.
    """

    def __init__(self, work: Callable[..., None], arguments: tuple[Any, ...], name: str, *, gpus: float = 0.0) -> None:
        self._ray = load_optional("ray", "cluster")
        task = self._ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)(_exit_code)
        self._name, self._task = name, task.options(name=name).remote(work, arguments)

    def is_alive(self) -> bool:
        """Return whether it is still at work."""
        done, _ = self._ray.wait([self._task], timeout=0)
        return not done

    @property
    def exitcode(self) -> int | None:
        """How it ended: 0 for well; what went wrong is told on standard error."""
        if self.is_alive():
            return None
        try:
            code: int = self._ray.get(self._task)
        except self._ray.exceptions.RayError as error:
            print(f"{self._name}: {error}", file=sys.stderr)
            return 1
        return code

    def terminate(self) -> None:
        """End it."""
        self._ray.cancel(self._task, force=True)


def _exit_code(work: Callable[..., None], arguments: tuple[Any, ...]) -> int:
    """Call the function in a worker, which must not end where a process of its own would."""
    try:
        work(*arguments)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    return 0
