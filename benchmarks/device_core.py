"""Runs the core on a machine without geo libraries, for example a GPU machine, and checks that its parts agree there.

    python benchmarks/device_core.py NETWORK.npz

imports every core module, checks the torch candidate search on the GPU against the compiled one, and prints rates. It
needs only numpy, scipy, numba, torch and tqdm. Not part of ``make bench``: it takes a network file.
"""

from __future__ import annotations

import importlib
import platform
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))


def main() -> None:
    """Run the checks and print what was seen."""
    from tedtrajrec.network.candidates import CandidateFinder
    from tedtrajrec.network.candidates_torch import TorchCandidateFinder
    from tedtrajrec.network.roadnet import RoadNetwork
    from tedtrajrec.network.routing import Router
    from tedtrajrec.trips.simulate import simulate_trips

    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    core = next(c["source_modules"] for c in contracts if c["type"] == "forbidden")
    for module in core:
        importlib.import_module(module)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name() if device.type == "cuda" else "no GPU"
    print(f"Python {platform.python_version()}, torch {torch.__version__}, {name}; {len(core)} core modules import")

    network = RoadNetwork.load(sys.argv[1])
    print(network)
    trips = simulate_trips(network, trips=2000, seed=1)
    start = time.perf_counter()
    trips = simulate_trips(network, trips=10_000, seed=1)
    print(f"simulate: {10_000 / (time.perf_counter() - start):,.0f} trips/s, {trips.n_fixes:,} fixes")

    finder, on_device = CandidateFinder(network), TorchCandidateFinder(network, device)
    lon, lat = (torch.as_tensor(a, device=device) for a in (trips.lon, trips.lat))
    for radius in (50.0, 100.0, 400.0):
        n = trips.n_fixes if radius < 400 else 100_000
        expected = finder.within(trips.lon[:n], trips.lat[:n], radius)
        start = time.perf_counter()
        expected = finder.within(trips.lon[:n], trips.lat[:n], radius)
        compiled_s = time.perf_counter() - start
        found = on_device.within(lon[:n], lat[:n], radius)
        synchronise(device)
        start = time.perf_counter()
        found = on_device.within(lon[:n], lat[:n], radius)
        synchronise(device)
        torch_s = time.perf_counter() - start
        assert np.array_equal(found.offsets.cpu().numpy(), expected.offsets)
        assert np.array_equal(found.segment.cpu().numpy(), expected.segment)
        gap = float(np.abs(found.distance_m.cpu().numpy() - expected.distance_m).max())
        print(
            f"candidates at {radius:.0f} m: compiled {n / compiled_s:,.0f} fixes/s, {device} {n / torch_s:,.0f}; "
            f"same {len(expected.segment):,} candidates, distances differ by at most {gap:.1e} m"
        )

    router = Router(network)
    a = np.flatnonzero(np.diff(trips.trip_of_fix) == 0)[:20_000]
    b = a + 1
    start = time.perf_counter()
    metres = router.distances(trips.segment[a], trips.ratio[a], trips.segment[b], trips.ratio[b], limit_m=3000)
    print(
        f"routes between steps: {len(a) / (time.perf_counter() - start):,.0f}/s, {np.isfinite(metres).mean():.4f} found"
    )


def synchronise(device: torch.device) -> None:
    """Wait for the GPU, if there is one."""
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
