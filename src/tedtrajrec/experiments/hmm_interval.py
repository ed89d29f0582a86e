"""The paper's first table: how well a hidden Markov model matches fixes that are further and further apart.

    python -m tedtrajrec.experiments.hmm_interval DATASET -o FOLDER

Of every trip each k-th step is kept, from the first one on, and matched alone; the accuracy is the share of kept fixes
that come out on the true segment, per trip, then the mean. A fix that is not matched is wrong. The paper has one curve,
Song et al. 2012 on Shanghai; here it stands beside Newson and Krumm 2009 and our own matcher.

The truth of a dataset that was prepared from raw fixes is the answer of our own matcher at the dense step. There
accuracies say how far a matcher agrees with it, and ``default`` is favoured: at the dense step it is compared with
itself. The truth of simulated trips and of the published Chengdu trips is independent.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.data.dataset import SPLITS, Dataset, SplitName
from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.evaluation.run import truth_of
from tedtrajrec.files import replacing
from tedtrajrec.network.polylines import ranges
from tedtrajrec.progress import progress
from tedtrajrec.trips.match import MatchConfig, Matcher
from tedtrajrec.trips.table import Trips

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

PAPER = {10: 0.9301, 20: 0.8889, 40: 0.7791, 80: 0.5731, 160: 0.3490}
"""Accuracy by interval in seconds that the paper prints for Shanghai."""

PRESETS = ("song12", "nk09", "default")
MULTIPLES = (1, 2, 4, 8, 16)  # of the step, where no intervals are asked for

_NOTE = (
    "The truth of a dataset prepared from raw fixes is the default matcher's own answer at the dense step: there, "
    "accuracy is agreement with it. The truth of simulated trips and of published positions is independent."
)
_CHUNK = 4096  # trips matched at a time


@dataclass(frozen=True)
class Row:
    """One preset at one interval."""

    preset: str
    interval_s: int
    trips: int
    fixes: int  # kept ones of known truth
    mean_fixes: float  # of a trip
    accuracy: float  # mean over trips
    accuracy_se: float
    unmatched: float  # share of these fixes
    fixes_per_s: float


def run(
    dataset: Dataset,
    intervals: Sequence[int] = (),
    presets: Sequence[str] = PRESETS,
    *,
    split: SplitName = "test",
    most_trips: int | None = None,
    seed: int = 0,
    show_progress: bool = False,
) -> list[Row]:
    """Match the trips of a split at several intervals with several presets.

    Parameters
    ----------
    dataset, split
        Where the trips are from.
    intervals
        Seconds between kept fixes, multiples of the dataset's step; 1, 2, 4, 8 and 16 times the step if not given.
    presets
        Settings of the matcher; see :meth:`MatchConfig.preset`.
    most_trips, seed
        Where the split has more trips than this, so many are drawn.
    show_progress
        Whether to show a bar.
    """
    step_s = dataset.info.step_s
    intervals = list(intervals) or [step_s * k for k in MULTIPLES]
    for interval in intervals:
        if interval < step_s or interval % step_s:
            raise ConfigError(
                f"An interval is {interval} s; it must be a multiple of the dataset's step of {step_s} s."
            )
    matchers = {name: Matcher(dataset.network, MatchConfig.preset(name)) for name in presets}
    trips = dataset.split(split)
    number = np.arange(len(trips))
    if most_trips is not None and len(trips) > most_trips:
        number = np.sort(np.random.default_rng(seed).choice(len(trips), most_trips, replace=False))
    if not len(number):
        raise InputError(f"there are no trips in '{split}'", file=dataset.path)
    tasks = [(interval, preset) for interval in intervals for preset in presets]
    rows = []
    for interval, preset in progress(tasks, "match") if show_progress else tasks:
        parts = []
        for first in range(0, len(number), _CHUNK):
            kept = keep_every(trips.trips(number[first : first + _CHUNK]), interval // step_s)
            parts.append(_match(matchers[preset], kept))
        rows.append(_row(preset, interval, parts))
    return rows


def keep_every(trips: Trips, k: int) -> Trips:
    """Return trips with the fixes of every k-th step, from the first one on; steps without a fix stay away."""
    count = -(-trips.lengths // k)
    at = ranges(np.zeros(len(trips), np.int64), count) * k + np.repeat(trips.offsets[:-1], count)
    mask = np.zeros(trips.n_fixes, np.bool_)
    mask[at] = True
    return trips.keep_fixes(mask & ~np.isnan(trips.lon))


@dataclass(frozen=True)
class _Part:
    """Counts of the fixes of known truth of some trips [T each]."""

    fixes: Ints
    right: Ints
    unmatched: Ints
    seconds: float


def _match(matcher: Matcher, kept: Trips) -> _Part:
    start = time.perf_counter()
    found = matcher.match(kept)
    seconds = time.perf_counter() - start
    truth, _ = truth_of(kept)
    known = truth >= 0
    trip = kept.trip_of_fix

    def count(which: NDArray[np.bool_]) -> Ints:
        return np.bincount(trip[known & which], minlength=len(kept))

    return _Part(count(known), count(found.segment == truth), count(found.segment < 0), seconds)


def _row(preset: str, interval: int, parts: Sequence[_Part]) -> Row:
    fixes = np.concatenate([part.fixes for part in parts])
    right = np.concatenate([part.right for part in parts])
    has = fixes > 0
    accuracy: Floats = right[has] / fixes[has]
    n = len(accuracy)
    if n == 0:
        raise InputError(f"no fix {interval} s apart has a known true segment")
    return Row(
        preset=preset,
        interval_s=interval,
        trips=n,
        fixes=int(fixes.sum()),
        mean_fixes=float(fixes[has].mean()),
        accuracy=float(accuracy.mean()),
        accuracy_se=float(accuracy.std(ddof=1) / np.sqrt(n)) if n > 1 else 0.0,
        unmatched=float(sum(part.unmatched.sum() for part in parts) / fixes.sum()),
        fixes_per_s=float(fixes.sum() / max(sum(part.seconds for part in parts), 1e-9)),
    )


def format_rows(rows: Sequence[Row]) -> str:
    """Return rows as a table, presets by intervals, with standard errors, and the paper's own figures below."""
    intervals = sorted({row.interval_s for row in rows})
    found = {(row.preset, row.interval_s): row for row in rows}
    presets = list(dict.fromkeys(row.preset for row in rows))
    fixes = [found[presets[0], interval].mean_fixes for interval in intervals]
    lines = [
        _line("interval, s", (str(interval) for interval in intervals)),
        _line("fixes a trip", (f"{mean:.1f}" for mean in fixes)),
        *(
            _line(name, (f"{found[name, s].accuracy:.4f} ± {found[name, s].accuracy_se:.4f}" for s in intervals))
            for name in presets
        ),
    ]
    published = ", ".join(f"{value:.4f} at {interval} s" for interval, value in PAPER.items())
    return "\n".join([*lines, f"The paper (Song et al. 2012, Shanghai): {published}"])


def _line(head: str, cells: Iterable[str]) -> str:
    return head.ljust(12) + "".join(cell.rjust(18) for cell in cells)


def write_rows(rows: Sequence[Row], dataset: Dataset, path: str | Path) -> None:
    """Write rows, what they were measured on and the paper's figures as JSON."""
    content = {
        "experiment": "hmm-interval",
        "dataset": dataset.path.resolve().name,
        "source": dataset.info.source,
        "network_hash": dataset.info.network_hash,
        "truth": dataset.info.config.get("truth"),
        "note": _NOTE,
        "paper": {"dataset": "Shanghai", "preset": "song12", "accuracy": {str(s): value for s, value in PAPER.items()}},
        "rows": [asdict(row) for row in rows],
    }
    with replacing(path) as beside:
        beside.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the experiment from the command line: a table, ``hmm_interval.json`` and ``hmm_interval.png``."""
    from tedtrajrec.experiments.hmm_interval_plot import plot_rows  # noqa: PLC0415  (matplotlib only when drawing)

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for the rows and the picture")
    parser.add_argument("--intervals", type=int, nargs="+", default=(), help="seconds, multiples of the step")
    parser.add_argument("--presets", nargs="+", default=PRESETS)
    parser.add_argument("--split", choices=SPLITS, default="test")
    parser.add_argument("--most-trips", type=int)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    dataset = Dataset(given.dataset)
    rows = run(
        dataset,
        given.intervals,
        given.presets,
        split=given.split,
        most_trips=given.most_trips,
        seed=given.seed,
        show_progress=True,
    )
    write_rows(rows, dataset, given.output / "hmm_interval.json")
    plot_rows(rows, given.output / "hmm_interval.png", title=dataset.path.resolve().name)
    print(format_rows(rows))


if __name__ == "__main__":
    main()
