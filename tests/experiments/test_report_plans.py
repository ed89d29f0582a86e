"""The plans that come with the repository."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from tedtrajrec.config import load_config
from tedtrajrec.experiments.plan import read_plan, work_of
from tedtrajrec.experiments.reporting.paper import FAMILIES
from tedtrajrec.methods.learned import LearnedMethod
from tedtrajrec.methods.registry import method_class
from tedtrajrec.training.config import PRESETS, TrainConfig

CONFIGS = Path(__file__).parents[2] / "configs"
PLANS = [*sorted(CONFIGS.glob("experiments/*.toml")), CONFIGS / "paper.toml"]
PAPER_METHODS = {*FAMILIES["Two-stage"], *FAMILIES["End-to-end"]}


@pytest.mark.parametrize("plan", PLANS, ids=lambda path: path.stem)
def test_every_setting_of_every_plan_exists(plan: Path) -> None:
    seen = set()
    for cell in read_plan(plan).cells:
        key = cell.method, tuple(text for text in cell.settings if "seed" not in text)
        if key in seen:
            continue
        seen.add(key)
        parts = [text.partition(".") for text in cell.settings]
        cls = method_class(cell.method)
        if issubclass(cls, LearnedMethod):
            load_config(TrainConfig, None, [rest for part, _, rest in parts if part == "train"])
            load_config(cls.Config, None, [rest for part, _, rest in parts if part == "model"])
        else:
            assert not cell.settings


def test_the_paper_plan_is_the_preset_of_that_name() -> None:
    plan = read_plan(CONFIGS / "paper.toml")
    table = [cell for cell in plan.cells if cell.group == "performance"]
    assert {cell.method for cell in table} == PAPER_METHODS
    for dataset in ("chengdu", "porto", "shanghai"):
        for keep in ("1/8", "1/16"):
            assert {c.method for c in table if (c.dataset, c.keep) == (dataset, keep)} == PAPER_METHODS
    for cell in table:
        cls = method_class(cell.method)
        if not issubclass(cls, LearnedMethod):
            continue
        train = load_config(TrainConfig, None, [s[6:] for s in cell.settings if s.startswith("train.")])
        assert train == replace(PRESETS["paper"], keep=(cell.keep,), seed=cell.seed), cell.name
        model = load_config(cls.Config, None, [s[6:] for s in cell.settings if s.startswith("model.")])
        expected = cls.PRESETS["paper"]
        if cell.dataset == "porto":
            expected = replace(expected, mask_radius_m=50.0)
        assert model == expected, cell.name


def test_the_studies_have_the_cells_of_the_paper() -> None:
    robustness = read_plan(CONFIGS / "experiments/robustness.toml").cells
    methods = {"tedtrajrec", "tedtrajrec_parallel", "mtrajrec", "rntrajrec", "mm_stged", "linear_hmm", "route_hmm"}
    for dataset in ("chengdu", "porto"):
        for part in (2, 4, 8, 16):
            here = [c for c in robustness if c.dataset == dataset and Fraction(c.keep) == Fraction(1, part)]
            assert {c.method for c in here} == methods
    for name in ("ablations", "sensitivity"):
        cells = read_plan(CONFIGS / f"experiments/{name}.toml").cells
        assert {c.dataset for c in cells} == {"chengdu", "porto"}
        assert {c.variant for c in cells if c.dataset == "chengdu"} == {
            c.variant for c in cells if c.dataset == "porto"
        }
    changed = {text.partition("=")[0] for cell in cells for text in cell.settings if text.startswith("model.")}
    assert changed == {f"model.{s}" for s in ("d", "encoder_layers", "activation", "eta_m", "gamma_m", "ratio_weight")}


def test_cells_at_the_ratios_of_the_main_table_are_its_own_work() -> None:
    methods = {work_of(c) for c in read_plan(CONFIGS / "experiments/methods.toml").cells if c.group == "performance"}
    methods |= {work_of(c) for c in read_plan(CONFIGS / "experiments/parallel.toml").cells if c.group == "performance"}
    cells = read_plan(CONFIGS / "experiments/robustness.toml").cells
    shared = [c for c in cells if c.dataset == "chengdu" and c.keep == "1/8"]
    assert [c.method for c in shared if work_of(c) not in methods] == []
