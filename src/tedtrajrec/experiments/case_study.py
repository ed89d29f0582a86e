"""The case study: one test trip, chosen by rule, as several methods recover it, on the map.

:mod:`~tedtrajrec.experiments.case_study_choice` has the rule. The row beside the picture names the next candidates too,
and the caption says how accurate each method is on all test trips.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.data.sampling import keep_share
from tedtrajrec.errors import InputError
from tedtrajrec.experiments.case_study_choice import Case, Ranking, make_case, rank_trips
from tedtrajrec.experiments.case_study_plot import plot_case
from tedtrajrec.experiments.reporting.paper import label_of, order_of
from tedtrajrec.experiments.reporting.results import Result, main_results, number, results_of
from tedtrajrec.experiments.reporting.rows import read_results, slots
from tedtrajrec.experiments.trips import CellTrips, load_trips
from tedtrajrec.files import replacing
from tedtrajrec.trips.table import Trips

METHODS = ("rntrajrec", "start", "jgrm", "mm_stged", "tedtrajrec", "tedtrajrec_parallel")
"""Those of the paper's case study, and tedtrajrec_parallel."""

CANDIDATES = 10  # listed in the row


def case_study(
    dataset: str | Path | Dataset,
    results: str | Path | Sequence[str | Path],
    output: str | Path,
    *,
    methods: Sequence[str] = METHODS,
    keep: str = "1/8",
) -> Path:
    """Draw one trip as methods recovered it, write the row that shows it in the report, and return the picture.

    Writes ``case-study-<dataset>-<keep>.png``, the same as ``.svg``, and the row as ``.json``.

    Parameters
    ----------
    dataset
        The prepared dataset whose test trips were recovered.
    results
        Folders of the rows of benchmarks, with the recovered trips in ``trips``. Cells of the group ``performance`` are
        looked at; of several seeds of a method the first finished one.
    output
        Folder for the picture and its row.
    methods
        Which are drawn; those that have no recovered trips are left out, and the caption says so.
    keep
        Share of steps that methods were given.

    Raises
    ------
    InputError
        If there are recovered trips of fewer than two of the methods, or they are not of this dataset, or no trip
        takes part.
    """
    prepared = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
    folders = [Path(results)] if isinstance(results, str | Path) else [Path(folder) for folder in results]
    found = _cells(prepared, folders, keep)
    files = {method: found[method] for method in sorted(set(methods), key=order_of) if method in found}
    if len(files) < 2:
        raise InputError(
            f"at keep {keep} there are recovered trips of {len(files)} of these methods: {', '.join(methods)}",
            file=folders[0],
            remedy=f"Name at least two of those that are there: {', '.join(found) or 'none'}.",
        )
    cells = {method: load_trips(file) for method, (_, file) in files.items()}
    trips = _same_trips(prepared, cells, {method: file for method, (_, file) in files.items()})
    ranking = rank_trips(prepared, trips, cells)
    if not len(ranking.order):
        raise InputError(
            f"of {len(trips):,} test trips there is none that is long enough, known and drivable, and that all methods "
            "answer at every step, on its route at every fix",
            file=prepared.path,
            remedy="Leave out the method that errs most.",
        )
    case = make_case(prepared, trips, cells, ranking)
    name = next(iter(files.values()))[0].dataset
    stem = f"case-study-{name}-{keep.replace('/', 'of')}"
    picture = Path(output) / f"{stem}.png"
    plot_case(prepared.network, case, [picture, Path(output) / f"{stem}.svg"])
    missing = [label_of(method) for method in methods if method not in files]
    row = {
        "kind": "picture",
        "title": "Case study",
        "file": picture.name,
        "caption": _caption(case, name, keep, len(trips), ranking, missing),
        "alt": _alt(case),
        "trip": str(case.trip.traj_id[0]),
        "areas": {area.letter: [area.first, area.last] for area in case.areas},
        "rows": [result.rows[0].path.name for result, _ in files.values()],
        "candidates": [
            {
                "trip": str(trips.traj_id[i]),
                "difference": round(float(ranking.difference[i]), 4),
                "accuracy": {method: round(float(cell.accuracy[i]), 4) for method, cell in cells.items()},
            }
            for i in ranking.order[:CANDIDATES].tolist()
        ],
        "network": prepared.info.network_hash,
    }
    with replacing(Path(output) / f"{stem}.json") as path:
        path.write_text(json.dumps(row, ensure_ascii=False) + "\n", "utf-8")
    return picture


def _cells(dataset: Dataset, folders: Sequence[Path], keep: str) -> dict[str, tuple[Result, Path]]:
    """Return by method its result on this dataset, and the file of its recovered trips."""
    chosen = [
        slot
        for slot in slots(read_results(folders))
        if slot.row is not None
        and slot.cell.group == "performance"
        and keep_share(slot.cell.keep) == keep_share(keep)
        and slot.row.content.get("network") == dataset.info.network_hash
    ]
    found = {}
    for method, result in main_results(results_of(chosen)).items():
        row = result.rows[0]
        file = row.path.parent / "trips" / f"{row.path.stem}.npz"
        if file.exists():
            found[method] = result, file
    return found


def _same_trips(dataset: Dataset, cells: Mapping[str, CellTrips], files: Mapping[str, Path]) -> Trips:
    """Return the trips that all methods recovered from the same fixes."""
    (first, one), *others = cells.items()
    for method, cell in others:
        if not all(np.array_equal(a, b) for a, b in zip(one[:3], cell[:3], strict=True)):
            raise InputError(
                f"these are other trips or other fixes than those of {files[first].name}",
                file=files[method],
                remedy="Run both cells on the same dataset.",
            )
    test = dataset.split("test")
    number_of = {str(traj_id): i for i, traj_id in enumerate(test.trips().traj_id.tolist())}
    which = [number_of.get(traj_id, -1) for traj_id in one.traj_id.tolist()]
    if -1 in which:
        raise InputError(
            f"trip '{one.traj_id[which.index(-1)]}' is not among the test trips of {dataset.path}",
            file=files[first],
            row=which.index(-1) + 1,
            field="traj_id",
            remedy="Give the dataset that the benchmark was run on.",
        )
    trips = test.trips(np.array(which, np.int64))
    if not np.array_equal(trips.offsets, one.offsets):
        raise InputError(
            f"its trips have other numbers of steps than in {dataset.path}",
            file=files[first],
            remedy="Give the dataset that the benchmark was run on.",
        )
    return trips


def _caption(case: Case, name: str, keep: str, trips: int, ranking: Ranking, missing: Sequence[str]) -> str:
    steps, fixes = case.right.shape[1], int(case.observed.sum())
    difference = number(float(ranking.difference[ranking.order[0]]), 2)
    accuracies = ", ".join(
        f"{label_of(method)} {number(right.mean(), 2)} ({number(overall, 3)})"
        for method, right, overall in zip(case.methods, case.right, case.accuracy, strict=True)
    )
    text = (
        f"{name} at keep {keep}, trip {case.trip.traj_id[0]}: {steps} steps of {case.step_s} s, {fixes} fixes. Of the "
        f"{len(ranking.order):,} of {trips:,} test trips that are no shorter than the median, known and drivable at "
        "every step, answered by all methods, and on whose route these are at every fix, it is the one on which they "
        f"differ most: at {difference} of its steps, in the mean over pairs of methods, one is on the true route and "
        f"the other is not. It is not a typical one. Accuracy on it, and on all test trips: {accuracies}."
    )
    for area in case.areas:
        off = ", ".join(
            f"{label_of(method)} {wrong}"
            for method, on_route in zip(case.methods, case.on_route, strict=True)
            if (wrong := int((~on_route[area.steps]).sum()))
        )
        place = f"steps {area.first + 1} to {area.last + 1}" if area.last > area.first else f"step {area.first + 1}"
        text += f" {area.letter}, {place}: number of steps off the true route: {off}."
    if missing:
        text += f" Not drawn, for want of recovered trips: {', '.join(missing)}."
    return text


def _alt(case: Case) -> str:
    parts = ", ".join(
        f"{label_of(method)} with {int(right.sum())} of {len(right)} steps right"
        for method, right in zip(case.methods, case.right, strict=True)
    )
    return f"Maps of one trip with its truth, its fixes and what was recovered, one for each method: {parts}."
