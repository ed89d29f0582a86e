"""Feeds every reader with damaged and made-up inputs, and looks for anything but a clear error.

    python faults/fuzz.py [--inputs 110000] [--seed 0] [--format NAME ...] [--processes 2] [-o results/faults]

A reader may accept an input or refuse it with one of our errors (a problem, for bodies of the service). Findings are:
any other exception, a process that dies, more than 20 s for one input, more than 2 GiB of memory on top of what the
process has, a warning, and a file that is opened by unpickling. Inputs follow from seed, format and number, so each can
be made again. Counts are kept in ``fuzz.json``: a second call goes on where the first one ended, up to ``--inputs``.
The first input of each kind of finding is kept in ``findings/``. Writes ``fuzz.json`` and ``fuzz.md``.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import json
import mmap
import os
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from fuzz_formats import FORMATS, Format  # lie beside this file
from fuzz_seeds import make_seeds

HANG_S = 20.0
LOADED = ("data.pack", "experiments.plan", "network.build", "network.osm", "recovery.recoverer", "server.inputs")
START_S = 300.0  # to load libraries
MEMORY = 2 << 30


@dataclass
class Count:
    """How far a format has come."""

    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    findings: dict[str, int] = field(default_factory=dict)


def try_input(form: Format, data: bytes, folder: Path) -> str:
    """Return 'accepted', 'refused', or what was found."""
    from tedtrajrec.errors import TedtrajrecError
    from tedtrajrec.server.problems import ProblemError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            form.read(data, folder)
    except (TedtrajrecError, ProblemError):
        return "refused"
    except Exception as error:  # noqa: BLE001  (that is what is looked for)
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "tedtrajrec" in f.filename]
        place = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "?"
        return f"{type(error).__name__} in {place}"
    return "accepted"


def _worker(form: Format, seeds: list[bytes], seed: int, first: int, end: int, shared: mmap.mmap, folder: Path) -> None:
    """Try inputs one after another; the parent sees the number of the current one and the counts."""
    os.setsid()
    shared[:8] = struct.pack("<q", -1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries, when they are loaded
        for data in seeds:
            form.read(data, folder)  # a good input, which must be accepted; libraries take their memory now
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
    found: collections.Counter[str] = collections.Counter()
    for number in range(first, end):
        shared[:8] = struct.pack("<q", number)
        data = form.mutate(random.Random(f"{seed} {form.name} {number}"), seeds)
        result = try_input(form, data, folder)
        found[result] += 1
        if result not in {"accepted", "refused"} and found[result] == 1:
            (folder / f"finding-{number}.bin").write_bytes(data)
        text = json.dumps(found).encode()
        shared[8 : 16 + len(text)] = struct.pack("<q", len(text)) + text
    os._exit(0)


class Run:
    """The inputs of one format, in a process that is started again when it dies or hangs."""

    def __init__(self, form: Format, seeds: list[bytes], seed: int, count: Count, end: int, keep: Path) -> None:
        self.form, self.seeds, self.seed, self.count, self.end, self.keep = form, seeds, seed, count, end, keep
        self.folder = Path(tempfile.mkdtemp(prefix="tedtrajrec-fuzz-", dir=_fast_place()))
        self.shared = mmap.mmap(-1, 1 << 16)
        self._start()

    def _start(self) -> None:
        self.first = self.count.inputs
        self.shared[:16] = struct.pack("<qq", -1, 0)
        self.seen, self.since = -1, time.monotonic()
        self.child = os.fork()
        if not self.child:
            try:
                _worker(self.form, self.seeds, self.seed, self.first, self.end, self.shared, self.folder)
            finally:
                os._exit(70)

    def poll(self) -> bool:
        """Return whether all is done."""
        done, status = os.waitpid(self.child, os.WNOHANG)
        number = struct.unpack("<q", self.shared[:8])[0]
        if number != self.seen:
            self.seen, self.since = number, time.monotonic()
        if not done:
            if time.monotonic() - self.since < (START_S if number < 0 else HANG_S):
                return False
            os.killpg(self.child, signal.SIGKILL)
            os.waitpid(self.child, 0)
            self._take(number, "hang")
        elif number < 0:
            self.count.findings["a good input is not accepted"] = 1
            return True
        elif code := os.waitstatus_to_exitcode(status):
            self._take(number, f"process died ({code})")
        else:
            self._take(self.end, None)
        if self.count.inputs < self.end:
            self._start()
            return False
        shutil.rmtree(self.folder)
        return True

    def _take(self, number: int, fate: str | None) -> None:
        size = struct.unpack("<q", self.shared[8:16])[0]
        found = json.loads(self.shared[16 : 16 + size]) if size else {}
        if fate is not None:
            found[fate] = found.get(fate, 0) + 1
            data = self.form.mutate(random.Random(f"{self.seed} {self.form.name} {number}"), self.seeds)
            (self.folder / f"finding-{number}.bin").write_bytes(data)
        for result, times in found.items():
            if result in {"accepted", "refused"}:
                setattr(self.count, result, getattr(self.count, result) + times)
            else:
                self.count.findings[result] = self.count.findings.get(result, 0) + times
        self.count.inputs = number + (fate is not None)
        for path in self.folder.glob("finding-*.bin"):
            self.keep.mkdir(parents=True, exist_ok=True)
            shutil.move(path, self.keep / f"{self.form.name.replace(' ', '-').replace('/', '-')}-{path.name}")


def _seeds_made_apart(place: Path) -> dict[str, list[bytes]]:
    """Make the good inputs in a process of its own: libraries that have started threads do not survive a fork."""
    child = os.fork()
    if not child:
        code = 1
        try:
            for number, (name, seeds) in enumerate(make_seeds(place).items()):
                for count, seed in enumerate(seeds):
                    (place / f"seed-{number}-{count}.bin").write_bytes(seed)
                (place / f"seed-{number}.name").write_text(name)
            code = 0
        finally:
            os._exit(code)
    if os.waitpid(child, 0)[1]:
        raise SystemExit("the good inputs cannot be made")
    names = {path.stem: path.read_text() for path in place.glob("seed-*.name")}
    return {name: [p.read_bytes() for p in sorted(place.glob(f"{stem}-*.bin"))] for stem, name in names.items()}


def _fast_place() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def table(counts: dict[str, Count]) -> str:
    """Return the counts as a table of Markdown."""
    lines = ["| format | inputs tried | accepted | refused with our error | findings |", "|---|---|---|---|---|"]
    for name, count in counts.items():
        said = "; ".join(f"{what} ({times})" for what, times in count.findings.items()) or "none"
        lines.append(f"| {name} | {count.inputs:,} | {count.accepted:,} | {count.refused:,} | {said} |")
    total = [sum(getattr(count, name) for count in counts.values()) for name in ("inputs", "accepted", "refused")]
    found = sum(sum(count.findings.values()) for count in counts.values())
    return "\n".join([*lines, f"| **all** | **{total[0]:,}** | {total[1]:,} | {total[2]:,} | {found} |"]) + "\n"


def fuzz(inputs: int, seed: int, names: list[str], processes: int, output: Path, say: Callable[[str], Any]) -> bool:
    """Try inputs of all formats and return whether nothing was found."""
    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # one input is small; threads only cost time
    state = output / "fuzz.json"
    stored = json.loads(state.read_text()) if state.exists() else {}
    counts = {name: Count(**stored.get(name, {})) for name in FORMATS if name in stored or name in names}
    for module in LOADED:  # once, for all processes
        importlib.import_module(f"tedtrajrec.{module}")
    with tempfile.TemporaryDirectory(prefix="tedtrajrec-seeds-") as place:
        seeds = _seeds_made_apart(Path(place))
        each = -(-inputs // len(names))
        waiting = [FORMATS[name] for name in names if counts[name].inputs < each]
        active: list[Run] = []
        while waiting or active:
            while waiting and len(active) < processes:
                form = waiting.pop(0)
                run = Run(form, seeds[form.name], seed, counts[form.name], each, output / "findings")
                active.append(run)
            time.sleep(0.05)
            for run in list(active):
                if run.poll():
                    active.remove(run)
                    say(f"{run.form.name}: {run.count}")
                    output.mkdir(parents=True, exist_ok=True)
                    state.write_text(json.dumps({name: vars(count) for name, count in counts.items()}, indent=1) + "\n")
                    (output / "fuzz.md").write_text(table(counts))
    say(table(counts))
    return not any(count.findings for count in counts.values())


def main() -> None:
    """Fuzz all formats and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--inputs", type=int, default=110_000, help="of all formats together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--format", nargs="*", choices=[*FORMATS], default=[*FORMATS])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path, default=Path("results/faults"))
    given = parser.parse_args()
    fine = fuzz(given.inputs, given.seed, given.format, given.processes, given.output, lambda t: print(t, flush=True))
    sys.exit(not fine)


if __name__ == "__main__":
    main()
