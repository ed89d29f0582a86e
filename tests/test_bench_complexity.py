"""The pieces of benchmarks/complexity.py: exponents of known laws, and work that can be counted by hand."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
complexity = importlib.import_module("complexity")

SMALL = complexity.Sizes(m=4, n=8, d=16, segments=1000, near=8, trips=2)
MANY = complexity.Sizes(m=4, n=32, d=16, segments=1000, near=8, trips=2)
CPU = torch.device("cpu")


def test_exponents_of_known_laws() -> None:
    size = [8, 16, 32, 64]
    assert complexity.fit_power(size, [3.0 * x**1.5 for x in size]) == pytest.approx((1.5, 0.0), abs=1e-9)
    assert complexity.fit_power(size, [7.0] * 4) == pytest.approx((0.0, 0.0), abs=1e-9)
    assert complexity.fit_power(size, [0.0, 1.0, 2.0, 3.0]) is None
    assert complexity.fit_power(size[:2], [1.0, 2.0]) is None
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(300):
        power = complexity.fit_power(size, [x**2 * np.exp(rng.normal(0, 0.1)) for x in size])
        inside += abs(power.exponent - 2) <= power.margin
    assert 0.91 < inside / 300 < 0.985  # an interval of 95 %


def test_products_of_a_gru_by_hand() -> None:
    network = complexity.city_of(1000)
    method = complexity.method_of("mtrajrec", network, SMALL)
    with complexity.Work() as counted, torch.no_grad():
        method.encoder(torch.zeros(SMALL.trips, SMALL.m, 3))
    gru = SMALL.trips * SMALL.m * 3 * SMALL.d * (3 + SMALL.d)  # three gates hear three inputs and the state
    assert counted.flops / 2 == gru
    found = complexity.measure("mtrajrec", network, SMALL, CPU)
    assert list(found) == ["encoder", "decoder", "recover", "train"]
    assert found["encoder"].work > gru / 1e6
    assert found["decoder"].work == pytest.approx(found["recover"].work - found["encoder"].work)
    scores = SMALL.trips * SMALL.n * SMALL.d * network.n_segments / 1e6
    assert scores < found["decoder"].work < found["train"].work
    assert min(cost.ms for cost in found.values()) > 0


def test_rows_and_their_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(complexity, "REPEATS", 1)
    rows = complexity.rows_of("tedtrajrec", CPU, {"m": (MANY, (8, 16, 32)), "n": (SMALL, (8, 16, 32))})
    by_part = {row["variant"]: row for row in rows}
    assert list(by_part) == ["encoder", "decoder", "recover", "train"]
    assert {row["kind"] for row in rows} == {"complexity"}
    encoder = by_part["encoder"]["metrics"]
    # Keys of pairs of fixes cost m^2 d, what they are made of m d^2; nothing of it depends on n.
    assert 1.05 < encoder["m work"] < 2
    assert encoder["n work"] == 0
    assert by_part["decoder"]["metrics"]["n work"] == pytest.approx(1, abs=0.05)
    measured = by_part["train"]["measured"]["m"]
    assert measured["sizes"] == [8, 16, 32]
    assert len(measured["ms"]) == len(measured["work"]) == 3
    lines = complexity.table(rows).splitlines()
    assert lines[0] == "| method | part | m | n | d | V | K |"
    assert lines[2].startswith("| `tedtrajrec` | encoder | ")
    assert lines[2].endswith("| - / - | - / - | - / - |")


def test_all_steps_at_once_has_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(complexity, "REPEATS", 1)
    found = complexity.measure("tedtrajrec_parallel", complexity.city_of(1000), SMALL, CPU)
    assert list(found) == ["candidates", "recover", "train"]
    assert found["candidates"].work == 0 < found["recover"].work < found["train"].work
