"""How the cost of methods grows: exponents of time and of products, beside the paper's table of complexities.

    python benchmarks/complexity.py [--device cuda] [-o results/complexity]

One size is varied at a time, the others stay: fixes m, steps n, width d (feed-forward networks are twice as wide),
segments |V| of the network, and segments K looked at around a fix, of which the paper's ||G|| is m K. What is measured:

encoder
    from features of fixes to the states that the decoder attends to,
decoder
    all n steps, without the encoder,
recover
    both, as a user waits for it; road representations are kept between batches,
train
    a step of training with its optimizer, road representations included.

``tedtrajrec_parallel`` decodes all steps at once, so it has no encoder of its own; its ``candidates`` are the part on
the processor that finds what can be driven. For each, log cost = a + b log size is fitted by least squares: b, with
half of its 95 % confidence interval, of time and of ``work``, which is free of noise: multiply-accumulates of products
and numbers that operations read and write, counted on the CPU. Time on the CPU is that of the processor with one
thread, so that others on the machine matter little.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import gc
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from model_speed import Work
from parallel_speed import STEP_S, drives, method_for, seconds
from tedtrajrec.data.batch import Batch, make_batch
from tedtrajrec.experiments.provenance import machine
from tedtrajrec.files import replacing
from tedtrajrec.methods.learned import BatchTensors, DecodingMethod
from tedtrajrec.methods.registry import method_class
from tedtrajrec.methods.stepwise import StepwiseMethod
from tedtrajrec.methods.tedtrajrec_parallel import TedTrajRecParallel
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.synthetic import CityConfig, synthetic_city
from tedtrajrec.nn.recorded import Recorded
from tedtrajrec.training.checkpoint import Progress
from tedtrajrec.training.config import TrainConfig
from tedtrajrec.training.loop import choose_device
from tedtrajrec.training.trainer import Trainer

CPU = torch.device("cpu")
REPEATS = 3
METHODS = ("mtrajrec", "rntrajrec", "tedtrajrec", "tedtrajrec_parallel")
RADIUS_M = {1000: 1240.0, 2000: 1710.0, 4000: 2360.0, 8000: 3300.0, 16_000: 4640.0}
"""Of made-up cities of about so many segments."""


@dataclass(frozen=True)
class Sizes:
    """The size of a problem."""

    m: int = 16
    n: int = 64
    d: int = 64
    segments: int = 4000
    near: int = 32
    trips: int = 4


VARIED: dict[str, tuple[Sizes, Sequence[int]]] = {
    "m": (Sizes(), (8, 16, 32, 64)),
    "n": (Sizes(), (16, 32, 64, 128)),
    "d": (Sizes(), (32, 64, 128, 256)),
    "segments": (Sizes(), tuple(RADIUS_M)),
    "near": (Sizes(), (8, 16, 32, 64)),
}
"""What is varied, the other sizes, and its values."""

AROUND = ("rntrajrec", "tedtrajrec")  # see the segments around fixes
PARTS = ("candidates", "encoder", "decoder", "recover", "train")
LABELS = {"m": "m", "n": "n", "d": "d", "segments": "V", "near": "K"}


class Power(NamedTuple):
    """An exponent and half of its confidence interval of 95 %."""

    exponent: float
    margin: float


class Cost(NamedTuple):
    """Of one piece of work."""

    ms: float
    work: float  # millions of multiply-accumulates of products, and of numbers read and written


def fit_power(size: Sequence[float], cost: Sequence[float]) -> Power | None:
    """Return b of cost = a size^b; None where some cost is 0 or there are fewer than three."""
    if len(size) < 3 or min(cost) <= 0:
        return None
    fit = stats.linregress(np.log(size), np.log(cost))
    margin = stats.t.ppf(0.975, len(size) - 2) * np.nan_to_num(fit.stderr)  # not a number where all costs are equal
    return Power(float(fit.slope), float(margin))


@functools.cache
def city_of(segments: int) -> RoadNetwork:
    """Return a made-up city of about so many segments."""
    return synthetic_city(config=CityConfig(radius_m=RADIUS_M[segments], block_m=115.0, river_m=100.0, radials=9))


def method_of(name: str, network: RoadNetwork, sizes: Sizes) -> DecodingMethod[Any, Any]:
    """Return a method of some size with random weights on the CPU."""
    cls: Any = method_class(name)
    wide = {"width": 2 * sizes.d} if hasattr(cls.Config, "width") else {}
    config = dataclasses.replace(cls.Config(), d=sizes.d, most_candidates=sizes.near, **wide)
    if cls is TedTrajRecParallel:
        return method_for(network, CPU, dataclasses.replace(config, decode="viterbi")).to(CPU)
    method: DecodingMethod[Any, Any] = cls(network, config)
    return method


def batch_of(network: RoadNetwork, sizes: Sizes) -> Batch:
    """Return drives of n steps with m fixes, spread evenly and both ends among them."""
    observed = np.zeros(sizes.n, np.bool_)
    observed[np.linspace(0, sizes.n - 1, sizes.m).round().astype(np.int64)] = True
    trips = drives(network, sizes.trips, 2, sizes.n)
    return make_batch(trips, np.tile(observed, sizes.trips), network, step_s=STEP_S, time_zone="UTC")


def measure(name: str, network: RoadNetwork, sizes: Sizes, device: torch.device) -> dict[str, Cost]:
    """Return what each part of a method costs."""
    gc.collect()
    torch.manual_seed(0)
    batch = batch_of(network, sizes)
    method = method_of(name, network, sizes)
    here = method.inputs(batch)
    work: dict[str, float] = {}
    parts = _parts(method, here)
    for part, run in parts.items():
        run()  # what is kept for later calls does not count
        with Work() as counted:
            run()
        work[part] = _amount(counted)
    method.train()
    with Work() as counted:
        torch.autograd.grad(method.loss(here).total, list(method.parameters()), materialize_grads=True)
    work["train"] = _amount(counted)

    method.to(device)
    there = (here.rounded() if device.type == "cuda" else here).to(device)
    times = {part: _ms(run, device) for part, run in _parts(method, there, record=True).items()}
    trainer, progress = Trainer(method.train(), TrainConfig(batch=sizes.trips), 1000), Progress()
    times["train"] = _ms(lambda: trainer(there, progress), device)
    if "encoder" in parts:
        times["decoder"], work["decoder"] = (of["recover"] - of["encoder"] for of in (times, work))
    else:
        times["candidates"], work["candidates"] = _ms(lambda: method.inputs(batch), CPU), 0.0
    return {part: Cost(times[part], work[part]) for part in PARTS if part in times}


def _amount(counted: Work) -> float:
    return (counted.flops / 2 + counted.bytes / 4) / 1e6


def _parts(
    method: DecodingMethod[Any, Any], inputs: BatchTensors, *, record: bool = False
) -> dict[str, Callable[[], object]]:
    """Return what is run at use: whole and, of methods that decode step by step, the encoder."""
    method.eval()
    cuda = record and method.device.type == "cuda"
    decode = Recorded(method.decode, method.device) if cuda else method.decode
    parts: dict[str, Callable[[], object]] = {"recover": lambda: decode(inputs)}
    if isinstance(method, StepwiseMethod):
        with torch.no_grad():
            roads = method.roads()

        def states(given: BatchTensors) -> tuple[Tensor]:
            with torch.no_grad():
                return (method.encode(given, roads).states,)

        encode = Recorded(states, method.device) if cuda else states
        parts["encoder"] = lambda: encode(inputs)
    return parts


def _ms(work: Callable[[], object], device: torch.device) -> float:
    wall, processor = seconds(work, device, REPEATS)
    return 1e3 * (wall if device.type == "cuda" else processor)


def rows_of(name: str, device: torch.device, varied: Mapping[str, tuple[Sizes, Sequence[int]]]) -> list[dict[str, Any]]:
    """Return a row for each part of a method: exponents under ``metrics``, and all that was measured."""
    found: dict[str, dict[str, Any]] = {}
    metrics: dict[str, dict[str, float]] = {}
    for what, (base, values) in varied.items():
        if what == "near" and name not in AROUND:
            continue
        costs: dict[str, list[Cost]] = {}
        given: list[int] = []
        for value in values:
            sizes = dataclasses.replace(base, **{what: value})
            network = city_of(sizes.segments)
            for part, cost in measure(name, network, sizes, device).items():
                costs.setdefault(part, []).append(cost)
            given.append(network.n_segments if what == "segments" else value)
        for part, of_part in costs.items():
            ms, work = ([getattr(cost, item) for cost in of_part] for item in Cost._fields)
            base_of = dataclasses.asdict(base)
            found.setdefault(part, {})[what] = {"sizes": given, "ms": ms, "work": work, "others": base_of}
            of_row = metrics.setdefault(part, {})
            for label, power in (
                (LABELS[what], fit_power(given, ms)),
                (f"{LABELS[what]} work", fit_power(given, work)),
            ):
                if power is not None:
                    of_row[label] = round(power.exponent, 3)
                    of_row[f"{label} ±"] = round(power.margin, 3)
        print(
            f"{name}, {what}: " + "; ".join(f"{p} {[round(c.ms, 1) for c in of]}" for p, of in costs.items()),
            flush=True,
        )
    return [
        {
            "kind": "complexity",
            "method": name,
            "variant": part,
            "metrics": metrics[part],
            "measured": measured,
            "device": str(device),
            "threads": torch.get_num_threads(),
            **machine(),
        }
        for part, measured in found.items()
    ]


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return exponents as Markdown: those of time and, after a stroke, of work."""
    lines = ["| method | part | " + " | ".join(LABELS.values()) + " |", "|---" * (2 + len(LABELS)) + "|"]
    for row in rows:
        cells = []
        for label in LABELS.values():
            texts = [
                f"{row['metrics'][key]:.2f} ± {row['metrics'][f'{key} ±']:.2f}" if key in row["metrics"] else "-"
                for key in (label, f"{label} work")
            ]
            cells.append(" / ".join(texts))
        lines.append(f"| `{row['method']}` | {row['variant']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, write a row of JSON for each part of each method, and print all as a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--varied", nargs="+", choices=list(VARIED), default=list(VARIED))
    parser.add_argument("-o", "--output", type=Path, help="folder for rows")
    arguments = parser.parse_args()
    device = choose_device(arguments.device)
    torch.set_float32_matmul_precision("high")
    if device.type == "cpu":
        torch.set_num_threads(1)
    rows = []
    for name in arguments.methods:
        for row in rows_of(name, device, {what: VARIED[what] for what in arguments.varied}):
            rows.append(row)
            if arguments.output is not None:
                file = arguments.output / f"complexity-{device.type}-{name}-{row['variant']}.json"
                with replacing(file) as path:
                    path.write_text(json.dumps(row) + "\n", "utf-8")
    print("\n" + table(rows))


if __name__ == "__main__":
    main()
