"""What recovered trips are good for: similarity search and clustering (the paper's table on upstream tasks).

For each trip the most similar other one among the true trips is sought again among the recovered trips: R@k is the
share of trips for which it is among the k nearest. Clusters of the recovered trips are compared with those of the true
ones. Both with LCSS and EDR (:mod:`tedtrajrec.evaluation.similarity`). Beside what methods recovered stand

truth
    the true trips, which find and cluster themselves,
raw
    the observed fixes alone, matched to the map as a sparse trip,
raw_nearest
    the observed fixes alone, each on its nearest segment,

once for each draw of observed steps.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.data.sampling import effective_share, mean_fixes
from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.evaluation.clustering import EPS, MIN_SAMPLES, Labels, cluster_trips, compare_clusters
from tedtrajrec.evaluation.run import truth_of
from tedtrajrec.evaluation.similarity import MEASURES, Measure, Sequences, find_neighbours, recall_at
from tedtrajrec.experiments.provenance import machine
from tedtrajrec.experiments.trips import CellTrips, load_trips
from tedtrajrec.files import replacing
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.training.loop import choose_device
from tedtrajrec.trips.match import match
from tedtrajrec.trips.table import Trips
from tedtrajrec.work import read_json

KS = (1, 10, 50)
"""Of R@k."""

FIGURES = (*(f"r_at_{k}" for k in KS), "homogeneity", "completeness", "adjusted_rand")
"""The columns of the paper's table, for each measure."""


@dataclass(frozen=True, eq=False)
class _Task:
    """Trips that are searched and clustered, for one row."""

    name: str
    cell: dict[str, Any]  # what they are of: method, dataset, keep, ...
    finished: bool  # whether training was
    sequences: Sequences
    draw: dict[str, Any]  # the observed steps


@dataclass(frozen=True, eq=False)
class _Truth:
    """The true trips of a set, and what was found among them by measure."""

    trips: Trips
    sequences: Sequences
    name: str  # hash of which trips they are
    nearest: dict[Measure, NDArray[np.int64]] = field(default_factory=dict)
    labels: dict[Measure, list[Labels]] = field(default_factory=dict)


def run_uses(
    dataset: str | Path | Dataset,
    results: str | Path,
    output: str | Path,
    *,
    cells: Sequence[str] = ("*",),
    min_samples: int = MIN_SAMPLES,
    device: str = "auto",
    workers: int | None = None,
    show_progress: bool = True,
    say: Callable[[str], None] = print,
) -> list[dict[str, Any]]:
    """Search and cluster what cells recovered, write a row of JSON for each, and return all rows.

    A row that is there and was made from the same trips of the same cell with the same settings is not made again.

    Parameters
    ----------
    dataset
        The prepared dataset whose test trips were recovered.
    results
        Folder of the rows of a benchmark, with the recovered trips in ``trips``. Cells of other datasets are left out,
        and that is said.
    output
        Folder for the rows.
    cells
        Names of cells, ``*`` standing for anything in them; those that fit one are taken.
    min_samples
        Of DBSCAN, see :data:`~tedtrajrec.evaluation.clustering.MIN_SAMPLES`.
    device
        Where distances are computed; ``auto`` is CUDA where there is one.
    workers
        Number of threads on the CPU; all processors if not given.
    show_progress
        Whether to show a bar.
    say
        Told what happens.

    Raises
    ------
    InputError
        If there are no such cells, or their trips are not those of the dataset.
    """
    if min_samples < 1:
        raise ConfigError(f"min_samples is {min_samples}; it must be at least 1.")
    prepared = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
    settings = {"k": list(KS), "eps": list(EPS), "min_samples": min_samples}
    files = _files(Path(results), cells)
    compute = {"device": choose_device(device), "workers": workers, "show_progress": show_progress}
    rows = []
    for task, truth in _tasks(prepared, Path(results), files, say):
        path = Path(output) / f"{task.name}.json"
        made_from = _hash(task.sequences, truth.sequences, json.dumps([settings, task.cell, task.finished]))
        row = read_json(path)
        if not isinstance(row, dict) or row.get("made_from") != made_from:
            started = time.time()
            row = {
                "kind": "uses",
                "name": task.name,
                "cell": task.cell,
                "finished": task.finished,
                "metrics": {},
                "details": {},
                "trips": len(task.sequences),
                "steps": len(task.sequences.values),
                "draw": task.draw,
                "settings": settings,
                "network": prepared.info.network_hash,
                "made_from": made_from,
            }
            for measure in MEASURES:
                found = _measure(task.sequences, truth, measure, min_samples, compute)
                row["metrics"][measure] = {name: found.pop(name) for name in FIGURES}
                row["details"][measure] = found
            row |= {"seconds": round(time.time() - started, 2), **machine()}
            with replacing(path) as beside:
                beside.write_text(json.dumps(row) + "\n", "utf-8")
            say(f"{task.name}: done in {row['seconds']:.1f} s")
        rows.append(row)
    return rows


def _measure(
    sequences: Sequences, truth: _Truth, measure: Measure, min_samples: int, compute: dict[str, Any]
) -> dict[str, Any]:
    """Return the figures of one measure."""
    if measure not in truth.nearest:
        found = find_neighbours(truth.sequences, measure, radius=max(EPS), **compute)
        truth.nearest[measure] = found.nearest
        truth.labels[measure] = cluster_trips(found.graph, min_samples=min_samples)
    found = find_neighbours(sequences, measure, radius=max(EPS), target=truth.nearest[measure], **compute)
    assert found.rank is not None  # noqa: S101  (there was a target)
    labels = cluster_trips(found.graph, min_samples=min_samples)
    by_eps = [compare_clusters(*both) for both in zip(truth.labels[measure], labels, strict=True)]
    return {
        **{f"r_at_{k}": recall_at(found.rank, k) for k in KS},
        **{name: float(np.mean([scores[name] for scores in by_eps])) for name in by_eps[0]},
        "alone": int((found.distance == 1).sum()),
        "tied": int(found.tied.sum()),
        "by_eps": [{"eps": radius, **scores} for radius, scores in zip(EPS, by_eps, strict=True)],
    }


def _files(results: Path, cells: Sequence[str]) -> list[Path]:
    files = sorted((results / "trips").glob("*.npz"))
    chosen = [file for file in files if any(fnmatch.fnmatchcase(file.stem, pattern) for pattern in cells)]
    if not chosen:
        raise InputError(
            f"there are {len(files)} files of recovered trips, and none is of the cells {', '.join(cells)}",
            file=results / "trips",
            remedy="Run 'tedtrajrec benchmark' into this folder first, or name other cells.",
        )
    return chosen


def _tasks(
    dataset: Dataset, results: Path, files: list[Path], say: Callable[[str], None]
) -> Iterator[tuple[_Task, _Truth]]:
    """Yield what is to be searched: the truth and the raw fixes of each draw, and every cell."""
    truths: dict[str, _Truth] = {}
    begun: set[str] = set()  # draws that have come
    number = {traj_id: i for i, traj_id in enumerate(dataset.split("test").trips().traj_id.tolist())}
    for file in files:
        row = read_json(results / f"{file.stem}.json")
        if isinstance(row, dict) and row.get("network", dataset.info.network_hash) != dataset.info.network_hash:
            say(f"{file.stem}: left out, it is of another dataset")
            continue
        found = load_trips(file)
        truth = _truth_of(dataset, found, number, file, truths)
        cell = row["cell"] if isinstance(row, dict) and isinstance(row.get("cell"), dict) else {}
        finished = not isinstance(row, dict) or bool(row.get("finished", True))
        hashed = hashlib.sha256(truth.name.encode() + np.packbits(found.observed).tobytes()).hexdigest()[:12]
        draw = {
            "hash": hashed,
            "effective_share": effective_share(found.observed, found.offsets),
            "mean_fixes": mean_fixes(found.observed, found.offsets),
        }
        if hashed not in begun:
            begun.add(hashed)
            of = {"dataset": cell.get("dataset", dataset.path.resolve().name), "keep": cell.get("keep", "")}
            for method, sequences in _references(dataset, truth, found):
                words = method, of["dataset"], of["keep"].replace("/", "of"), hashed
                name = "-".join(word for word in words if word)
                yield _Task(name, {"method": method, **of}, True, sequences, draw), truth
        sequences = Sequences.of(found.offsets, found.segment)
        yield _Task(file.stem, cell or {"method": file.stem}, finished, sequences, draw), truth


def _truth_of(
    dataset: Dataset, cell: CellTrips, number: dict[str, int], file: Path, known: dict[str, _Truth]
) -> _Truth:
    """Return the true trips of a cell, those of an earlier one where they are the same."""
    ids = cell.traj_id.tolist()
    if len(cell.offsets) != len(ids) + 1 or not cell.offsets[-1] == len(cell.segment) == len(cell.observed):
        raise InputError("the arrays do not fit together", file=file, remedy="Run the cell again.")
    if len(ids) < 2:
        raise InputError("there is no other trip to find", file=file, remedy="Recover at least two trips.")
    missing = next((i for i, traj_id in enumerate(ids) if traj_id not in number), None)
    if missing is not None:
        raise InputError(
            f"trip '{ids[missing]}' is not among the test trips of {dataset.path}",
            file=file,
            row=missing + 1,
            field="traj_id",
            remedy="Give the dataset that the benchmark was run on.",
        )
    which = np.array([number[traj_id] for traj_id in ids], np.int64)
    name = hashlib.sha256(which.tobytes()).hexdigest()[:12]
    if name not in known:
        trips = dataset.split("test").trips(which)
        known[name] = _Truth(trips, Sequences.of(trips.offsets, truth_of(trips)[0]), name)
    truth = known[name]
    other = np.flatnonzero(np.diff(cell.offsets) != truth.trips.lengths)
    if len(other):
        raise InputError(
            f"trip '{ids[other[0]]}' has {np.diff(cell.offsets)[other[0]]} steps, and {truth.trips.lengths[other[0]]} "
            f"in {dataset.path}",
            file=file,
            row=int(other[0]) + 1,
            remedy="Give the dataset that the benchmark was run on.",
        )
    return truth


def _references(dataset: Dataset, truth: _Truth, cell: CellTrips) -> Iterator[tuple[str, Sequences]]:
    """Yield the truth, and the observed fixes alone, matched to the map and on their nearest segments."""
    yield "truth", truth.sequences
    sparse = truth.trips.keep_fixes(cell.observed)
    yield "raw", Sequences.of(sparse.offsets, match(sparse, dataset.network).segment)
    nearest = CandidateFinder(dataset.network).nearest(sparse.lon, sparse.lat)
    yield "raw_nearest", Sequences.of(sparse.offsets, nearest.segment)


def _hash(found: Sequences, truth: Sequences, settings: str) -> str:
    """Return a name for all that a row depends on."""
    digest = hashlib.sha256(settings.encode())
    for array in (found.offsets, found.values, truth.offsets, truth.values):
        digest.update(f"{len(array)};".encode() + array.tobytes())
    return digest.hexdigest()[:16]


def format_uses(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as a Markdown table with both measures beside each other."""
    heads = [f"{measure} {name.replace('r_at_', 'R@').replace('_', ' ')}" for measure in MEASURES for name in FIGURES]
    lines = ["| dataset | keep | fixes | method | " + " | ".join(heads) + " |", "|---" * (4 + len(heads)) + "|"]
    for row in rows:
        cell = row["cell"]
        method = " ".join(
            filter(None, (cell["method"], cell.get("variant"), "" if row["finished"] else "(unfinished)"))
        )
        names = cell.get("dataset", ""), cell.get("keep", ""), f"{row['draw']['mean_fixes']:.1f}", method
        figures = (f"{row['metrics'][measure][name]:.4f}" for measure in MEASURES for name in FIGURES)
        lines.append("| " + " | ".join((*names, *figures)) + " |")
    return "\n".join(lines)
