"""Plans of cells: read, run in processes, gone on with, and printed."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tedtrajrec.config import from_dict
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.evaluation.run import draw_steps, evaluate_draw
from tedtrajrec.experiments import cells
from tedtrajrec.experiments.cells import FailedCellsError, run_cell, run_plan
from tedtrajrec.experiments.plan import Cell, Plan, Source, read_plan, work_of
from tedtrajrec.experiments.provenance import benchmark_command, dataset_hash, settings_hash
from tedtrajrec.experiments.report import make_report
from tedtrajrec.experiments.table import format_rows
from tedtrajrec.experiments.trips import load_trips
from tedtrajrec.methods.registry import load_method, make_method
from tedtrajrec.methods.route_hmm import RouteHmm
from tedtrajrec.training import choose
from tests.training.conftest import small_dataset  # noqa: F401  (a fixture)
from tests.training.test_start import other_dataset  # noqa: F401  (a fixture)

PLAN = """
[datasets.city]
path = "nowhere"

[[cells]]
group = "plain"
methods = ["linear_hmm"]
datasets = ["city"]
keeps = ["1/4", "1/8"]

[[cells]]
group = "learned"
methods = ["tedtrajrec"]
datasets = ["city"]
seeds = [0, 3]
set = ["model.d=16", "model.heads=4", "model.width=16", "train.epochs=1"]
variants.small = []
variants."no GNN" = ["model.gnn=none"]
"""


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return path


def test_a_plan_is_all_combinations(plan_file: Path) -> None:
    plan = read_plan(plan_file, {"city": "elsewhere"})
    assert plan.datasets["city"].path == "elsewhere"
    assert [cell.name for cell in plan.cells] == [
        "plain-city-linear_hmm-1of4-0",
        "plain-city-linear_hmm-1of8-0",
        "learned-city-tedtrajrec-small-1of8-0",
        "learned-city-tedtrajrec-no_GNN-1of8-0",
        "learned-city-tedtrajrec-small-1of8-3",
        "learned-city-tedtrajrec-no_GNN-1of8-3",
    ]
    assert plan.cells[-1].settings[-3:] == ("model.gnn=none", "train.seed=3", 'train.keep=["1/8"]')
    assert plan.cells[0].settings == ()


def test_plans_that_cannot_be_run(plan_file: Path) -> None:
    with pytest.raises(ConfigError, match="no dataset 'town'"):
        read_plan(plan_file, {"town": "x"})
    for change, message in {
        ('["city"]\nkeeps', '["town"]\nkeeps'): "there is no dataset 'town'",
        ('["linear_hmm"]', '["linear"]'): "no method 'linear'",
        ("seeds = [0, 3]", "seed = [0, 3]"): "Unknown setting 'cells.seed'",
        ("[datasets.city]", "[data.city]"): "a plan has datasets and cells",
        ('group = "learned"', 'group = "learned'): "not valid TOML",
        ('"no GNN" = ["model.gnn=none"]', '"sm-all" = []\nvariants."sm all" = ["model.d=8"]'): "are named",
    }.items():
        plan_file.write_text(PLAN.replace(*change))
        with pytest.raises((ConfigError, InputError), match=message):
            read_plan(plan_file)


def test_cells_run_once_and_their_rows_say_what_they_are(
    plan_file: Path,
    small_dataset: Dataset,  # noqa: F811
    in_threads: None,  # noqa: ARG001
    tmp_path: Path,
) -> None:
    plan = read_plan(plan_file, {"city": str(small_dataset.path)})
    few = dataclasses.replace(plan, cells=plan.cells[:3])
    said: list[str] = []
    rows = run_plan(few, tmp_path / "rows", device="cpu", command="tedtrajrec benchmark x", say=said.append)
    assert [row["cell"]["method"] for row in rows] == ["linear_hmm", "linear_hmm", "tedtrajrec"]
    assert said[0] == "3 cells, 3 to do"
    direct = evaluate_draw(make_method("linear_hmm", small_dataset.network), draw_steps(small_dataset, keep="1/8"))
    assert rows[1]["metrics"]["test"]["accuracy"] == direct.summary["accuracy"]
    assert rows[2]["finished"]
    assert rows[2]["training"]["history"][0]["epoch"] == 0
    assert rows[2]["method"]["d"] == 16
    assert rows[2]["method"]["parameters"] > 1000
    assert rows[2]["efficiency"]["macs"] > rows[2]["method"]["parameters"]
    assert rows[2]["efficiency"]["trip_ms"] == 1000 / rows[2]["metrics"]["test"]["trips_per_s"]
    assert rows[2]["efficiency"]["epoch_s"] == rows[2]["training"]["history"][0]["seconds"]
    assert "efficiency" not in rows[0]
    assert {row["command"] for row in rows} == {"tedtrajrec benchmark x"}
    assert {row["step_s"] for row in rows} == {15}
    assert {row["dataset_hash"] for row in rows} == {dataset_hash(small_dataset)}
    assert rows[0]["config_hash"] == rows[1]["config_hash"] != rows[2]["config_hash"]  # it is evaluated otherwise, only
    trips = load_trips(tmp_path / "rows" / "trips" / "plain-city-linear_hmm-1of8-0.npz")
    assert trips.accuracy.mean() == pytest.approx(direct.summary["accuracy"], abs=1e-6)
    assert trips.traj_id.tolist() == direct.draw.traj_id.tolist()
    assert (trips.observed == direct.draw.observed).all()
    assert len(trips.segment) == trips.offsets[-1]

    again = run_plan(few, tmp_path / "rows", device="cpu", say=said.append)
    assert said[-1] == "3 cells, 0 to do"
    assert again == rows
    changed = read_plan(_edited(plan_file, "train.epochs=1", "train.epochs=2"), {"city": str(small_dataset.path)})
    run_plan(dataclasses.replace(changed, cells=changed.cells[:2]), tmp_path / "rows", device="cpu", say=said.append)
    assert said[-1] == "2 cells, 0 to do"  # other cells of the file do not matter

    table = format_rows(rows).splitlines()
    assert table[2].startswith("| plain | city | 1/4 | linear_hmm | 1 | ")
    assert len(table) == 5


def test_cells_that_fail_are_named_at_the_end(
    plan_file: Path,
    small_dataset: Dataset,  # noqa: F811
    tmp_path: Path,
) -> None:
    plan = read_plan(plan_file, {"city": str(small_dataset.path)})
    few = dataclasses.replace(plan, cells=plan.cells[:2])
    said: list[str] = []

    def begin(work: Callable[..., None], arguments: tuple[Any, ...], name: str) -> Any:
        if name.endswith("1of4-0"):
            work(*arguments)
        return SimpleNamespace(is_alive=lambda: False, exitcode=0 if name.endswith("1of4-0") else 2, terminate=None)

    with pytest.raises(
        FailedCellsError, match=r"1 cells failed, .*: plain-city-linear_hmm-1of8-0\. The same"
    ) as caught:
        run_plan(few, tmp_path / "rows", device="cpu", say=said.append, begin=begin)
    assert [row["cell"]["keep"] for row in caught.value.rows] == ["1/4"]
    assert said[-1].endswith("1of8-0: failed with exit code 2")


def test_a_broken_file_of_trips_is_named(tmp_path: Path) -> None:
    (tmp_path / "cell.npz").write_bytes(b"PK no archive")
    with pytest.raises(InputError, match="no recovered trips") as caught:
        load_trips(tmp_path / "cell.npz")
    assert "cell.npz" in str(caught.value)


STARTS = """
[datasets.city]
path = "nowhere"

[datasets.other]
path = "nowhere"

[[cells]]
group = "first"
methods = ["tedtrajrec_parallel"]
datasets = ["city"]
set = ["model.d=8", "model.heads=2", "model.width=8", "model.hidden=8", "model.most=16", "train.epochs=1"]

[[cells]]
group = "there"
methods = ["tedtrajrec_parallel"]
datasets = ["other"]
start = "first-city-tedtrajrec_parallel-{keep}-{seed}"
train = false

[[cells]]
group = "on"
methods = ["tedtrajrec_parallel"]
datasets = ["other"]
set = ["model.d=8", "model.heads=2", "model.width=8", "model.hidden=8", "model.most=16", "train.epochs=1"]
start = "first-city-tedtrajrec_parallel-{keep}-{seed}"
"""


def test_cells_that_start_from_others(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    in_threads: None,  # noqa: ARG001
    small_dataset: Dataset,  # noqa: F811
    other_dataset: Dataset,  # noqa: F811
) -> None:
    monkeypatch.setattr(cells, "count_macs", lambda *_: 1)  # torch's counter is not for threads side by side
    file = tmp_path / "plan.toml"
    file.write_text(STARTS)
    plan = read_plan(file, {"city": str(small_dataset.path), "other": str(other_dataset.path)})
    first = "first-city-tedtrajrec_parallel-1of8-0"
    assert [cell.start for cell in plan.cells] == ["", first, first]
    assert plan.cells[1].settings == ()
    said: list[str] = []
    alone = dataclasses.replace(plan, cells=plan.cells[1:])
    assert run_plan(alone, tmp_path / "rows", device="cpu", say=said.append) == []
    assert said[1].startswith("there-other-tedtrajrec_parallel-1of8-0: left out, there is no finished run")
    assert len(said) == 3

    rows = run_plan(plan, tmp_path / "rows", jobs=3, device="cpu", say=said.append)
    assert [row["cell"]["group"] for row in rows] == ["first", "there", "on"]
    assert said[4].endswith(f"{first}: done")  # the others have waited for it
    assert [bool(row["note"]) for row in rows] == [False, True, False]
    assert rows[1]["training"] == {}
    method = load_method(tmp_path / "rows" / "runs" / first, other_dataset.network)
    evaluation = evaluate_draw(method, draw_steps(other_dataset, keep="1/8"))
    assert rows[1]["metrics"]["test"]["accuracy"] == evaluation.summary["accuracy"]
    described = json.loads((tmp_path / "rows" / "runs" / plan.cells[2].name / "config.json").read_text())
    assert described["start"]["run"] == first


def test_a_search_is_chosen_only_where_the_plan_says_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    small_dataset: Dataset,  # noqa: F811
) -> None:
    scores = choose.Scores(0.5, 0.5, 0.5, 0.5)
    best = choose.Choice(18.0, 6.0, 6, (choose.Tried(18.0, 6.0, scores),), scores)
    monkeypatch.setattr(choose, "choose_search", lambda *_: best)
    file = tmp_path / "plan.toml"
    said = STARTS.partition('[[cells]]\ngroup = "there"')[0]
    given = (
        said.partition("[[cells]]")[2].replace('"first"', '"given"').replace('"train.ep', '"model.margin=4", "train.ep')
    )
    chosen = "\n[[cells]]" + said.partition("[[cells]]")[2].replace('"first"', '"chosen"\nchoose = true')
    file.write_text(f"{said}{chosen}\n[[cells]]\nchoose = true{given}")
    plan = read_plan(file)
    assert [cell.choose for cell in plan.cells] == [False, True, True]
    assert len({work_of(cell) for cell in plan.cells}) == 3
    found = []
    for cell in plan.cells:
        made = run_cell(cell, Source(str(small_dataset.path)), tmp_path / cell.name, device="cpu")
        assert made is not None
        found.append(made[0])
    assert [(row["method"]["error_m"], row["method"]["margin"]) for row in found] == [(150, 3), (18, 6), (150, 4)]
    assert [row["training"].get("search") for row in found] == [None, dataclasses.asdict(best), None]
    assert len({row["config_hash"] for row in found}) == 3
    file.write_text(said.replace('"first"', '"first"\nchoose = true\nstart = "x"\ntrain = false'))
    with pytest.raises((ConfigError, InputError), match="without training nothing is chosen"):
        read_plan(file)


def test_a_method_that_needs_no_trips_may_be_asked_for_what_it_knows_of_the_map_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    small_dataset: Dataset,  # noqa: F811
) -> None:
    file = tmp_path / "plan.toml"
    cells = '[[cells]]\ngroup = "{}"\nmethods = ["{}"]\ndatasets = ["city"]\n{}\n'
    begin = STARTS.partition("[[cells]]")[0]
    alone, taught = "train = false", ""
    file.write_text(begin + cells.format("alone", "route_hmm", alone) + cells.format("taught", "route_hmm", taught))
    plan = read_plan(file)
    assert len({work_of(cell) for cell in plan.cells}) == 2
    seen = []
    precompute = RouteHmm.precompute

    def watched(method: RouteHmm, dataset: Dataset) -> None:
        seen.append(len(dataset.split("train")))
        precompute(method, dataset)

    monkeypatch.setattr(RouteHmm, "precompute", watched)
    hashes = []
    for cell, times in zip(plan.cells, (0, 1), strict=True):
        made = run_cell(cell, Source(str(small_dataset.path)), tmp_path / cell.name, device="cpu")
        assert made is not None
        hashes.append(made[0]["config_hash"])
        assert len(seen) == times
    assert hashes[0] != hashes[1]
    file.write_text(begin + cells.format("alone", "lookup", alone))
    with pytest.raises((ConfigError, InputError), match="but for methods that need the map alone"):
        read_plan(file)


def test_starts_that_cannot_be(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    for change, message in {
        ('group = "first"', 'group = "first"\nstart = "on-other-tedtrajrec_parallel-1of8-0"'): "comes before its start",
        ('group = "first"', 'group = "first"\ntrain = false'): "without training there must be a start",
        ("train = false", 'train = false\nset = ["train.epochs=8"]'): "the settings are those of the start",
        ('"there"\nmethods = ["tedtrajrec_parallel"]', '"there"\nmethods = ["lookup"]'): "lookup is not trained",
    }.items():
        file.write_text(STARTS.replace(*change))
        with pytest.raises((ConfigError, InputError), match=message):
            read_plan(file)


def test_rows_of_old_are_known(plan_file: Path, tmp_path: Path) -> None:
    cell = read_plan(plan_file).cells[0]
    said = {name: value for name, value in dataclasses.asdict(cell).items() if name not in {"start", "train", "choose"}}
    (tmp_path / f"{cell.name}.json").write_text(json.dumps({"cell": said, "finished": True}))
    plan = Plan({"city": Source("nowhere")}, (cell,))
    assert run_plan(plan, tmp_path, say=lambda _: None)[0]["finished"]


def test_the_plans_of_the_repository_can_be_read() -> None:
    files = sorted((Path(__file__).parents[2] / "configs" / "experiments").glob("*.toml"))
    assert len(files) >= 4
    for file in files:
        assert read_plan(file).cells


def _edited(file: Path, old: str, new: str) -> Path:
    file.write_text(file.read_text().replace(old, new))
    return file


def test_no_time_for_an_epoch_gives_no_row(
    plan_file: Path,
    small_dataset: Dataset,  # noqa: F811
    tmp_path: Path,
) -> None:
    plan = read_plan(plan_file, {"city": str(small_dataset.path)})
    assert run_cell(plan.cells[2], plan.datasets["city"], tmp_path / "run", device="cpu", until=0.0) is None


def test_means_and_spreads() -> None:
    cell = {"group": "g", "dataset": "d", "keep": "1/8", "method": "m", "variant": ""}
    values = {"accuracy": 0.5, "recall": 0.5, "precision": 0.5, "f1": 0.5, "mae_m": 10.0, "rmse_m": 1000.0}
    rows = [
        {"cell": cell, "finished": True, "metrics": {"test": {name: k * value for name, value in values.items()}}}
        for k in (1.0, 1.2)
    ]
    line = format_rows(rows).splitlines()[-1]
    assert "| 2 | .550 ± .071 |" in line
    assert "| 11 ± 1 | 1,100 ± 141 |" in line
    assert len(format_rows(rows, "fixed").splitlines()) == 2
    assert "m (unfinished)" in format_rows([{**rows[0], "finished": False}])


EQUAL = """
[datasets.city]
path = "nowhere"

[[cells]]
group = "performance"
methods = ["linear_hmm"]
datasets = ["city"]

[[cells]]
group = "robustness"
methods = ["linear_hmm"]
datasets = ["city"]
keeps = ["1/8", "1/4"]
"""


def test_equal_cells_are_computed_once(
    tmp_path: Path,
    in_threads: None,  # noqa: ARG001
    no_pictures: None,  # noqa: ARG001
    small_dataset: Dataset,  # noqa: F811
) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(EQUAL)
    plan = read_plan(file, {"city": str(small_dataset.path)})
    said: list[str] = []
    rows = run_plan(plan, tmp_path / "rows", say=said.append)
    assert said[0] == "3 cells (1 equal to others), 2 to do"
    assert [(row["cell"]["group"], row["cell"]["keep"]) for row in rows] == [
        ("performance", "1/8"),
        ("robustness", "1/8"),
        ("robustness", "1/4"),
    ]
    assert rows[0]["metrics"] == rows[1]["metrics"] != rows[2]["metrics"]
    files = ["performance-city-linear_hmm-1of8-0.json", "robustness-city-linear_hmm-1of4-0.json"]
    assert sorted(path.name for path in (tmp_path / "rows").glob("*.json")) == files
    text = make_report(tmp_path / "rows", tmp_path / "report", plans=[file]).with_suffix(".md").read_text("utf-8")
    assert "3 of 3 cells computed" in text

    run_plan(plan, tmp_path / "other", known=[tmp_path / "rows"], say=said.append)
    assert said[-1] == "3 cells (1 equal to others), 0 to do"
    assert list((tmp_path / "other").iterdir()) == []
    row = json.loads((tmp_path / "rows" / files[0]).read_text())
    (tmp_path / "rows" / files[0]).write_text(json.dumps({**row, "finished": False}))
    (tmp_path / "rows" / files[1]).write_text("{")  # not whole
    again = run_plan(plan, tmp_path / "rows", say=said.append)
    assert "3 cells (1 equal to others), 2 to do" in said[-3:]
    assert [one["metrics"]["test"]["accuracy"] for one in again] == [one["metrics"]["test"]["accuracy"] for one in rows]


def test_one_of_equal_cells_that_is_unfinished_goes_on_under_its_name(
    tmp_path: Path,
    in_threads: None,  # noqa: ARG001
    small_dataset: Dataset,  # noqa: F811
) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(EQUAL)
    plan = read_plan(file, {"city": str(small_dataset.path)})
    later = plan.cells[1]
    old = tmp_path / f"{later.name}.json"
    old.write_text(json.dumps({"cell": dataclasses.asdict(later), "finished": False}))
    run_plan(dataclasses.replace(plan, cells=plan.cells[:2]), tmp_path, say=lambda _: None)
    assert [path.name for path in tmp_path.glob("*.json")] == [old.name]


KEYS = st.lists(st.sampled_from(["model.d", "train.lr", "train.epochs"]), unique=True)


@given(KEYS, st.randoms(use_true_random=False))
def test_work_is_what_the_settings_come_to(keys: list[str], random: object) -> None:
    settings = [f"{key}={k}" for k, key in enumerate(keys)]
    mixed = list(settings)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    cell = Cell("a", "tedtrajrec", "b", "city", "1/8", 0, tuple(settings))
    assert work_of(cell) == work_of(dataclasses.replace(cell, group="c", variant="", settings=tuple(mixed)))
    for key in keys:
        first = (f"{key}=7", *mixed)  # what comes later counts
        assert work_of(dataclasses.replace(cell, settings=first)) == work_of(cell)
        last = (*mixed, f"{key}=7")
        assert work_of(dataclasses.replace(cell, settings=last)) != work_of(cell)
    for other in (
        {"seed": 1},
        {"keep": "1/4"},
        {"dataset": "town"},
        {"method": "gts"},
        {"start": "x"},
        {"choose": True},
    ):
        assert work_of(dataclasses.replace(cell, **other)) != work_of(cell)


def test_commands_and_hashes_hold_anywhere(tmp_path: Path, small_dataset: Dataset) -> None:  # noqa: F811
    command = benchmark_command(tmp_path / "my plan.toml", Path("results/x"), ["city"], [Path("toy.py")], [tmp_path])
    assert command == (
        f"tedtrajrec benchmark 'my plan.toml' -o results/x --plugin toy.py --known {tmp_path.name} --dataset city=..."
    )
    copy = tmp_path / "copy"
    shutil.copytree(small_dataset.path, copy)
    described = json.loads((copy / "dataset.json").read_text())
    (copy / "dataset.json").write_text(json.dumps({**described, "source": "elsewhere.csv"}))
    assert dataset_hash(Dataset(copy)) == dataset_hash(small_dataset)
    ratio = copy / "train" / "00000" / "ratio.npy"
    data = bytearray(ratio.read_bytes())
    data[-1] ^= 1
    ratio.write_bytes(data)
    assert dataset_hash(Dataset(copy)) != dataset_hash(small_dataset)
    assert settings_hash({"a": 1, "b": 2}) == settings_hash({"b": 2, "a": 1}) != settings_hash({"a": 1, "b": 3})


def test_rows_of_the_repository_are_cells_of_its_plans() -> None:
    root = Path(__file__).parents[2]
    cells = {cell.name: cell for cell in read_plan(root / "configs" / "experiments" / "methods.toml").cells}
    rows = sorted((root / "results" / "methods").glob("*.json"))
    assert rows
    for file in rows:
        cell = from_dict(Cell, json.loads(file.read_text())["cell"])
        assert cells[file.stem] == cell


def test_rows_of_the_parallel_method_are_work_of_the_plans_of_the_repository() -> None:
    root = Path(__file__).parents[2]
    plans = [read_plan(file) for file in sorted((root / "configs" / "experiments").glob("*.toml"))]
    works = {work_of(cell) for plan in plans for cell in plan.cells}
    rows = [json.loads(file.read_text()) for file in sorted((root / "results").glob("*/*tedtrajrec_parallel*.json"))]
    rows = [row for row in rows if {"cell", "config_hash"} <= row.keys() and "kind" not in row]
    assert len(rows) > 40
    assert [row["cell"] for row in rows if work_of(from_dict(Cell, row["cell"])) not in works] == []
    for row in rows:  # what a plan does not say is the default, whatever was chosen for users meanwhile
        said = dict(text.removeprefix("model.").split("=") for text in row["cell"]["settings"] if "model." in text)
        for name, default in (("error_m", 150.0), ("margin", 3.0)):
            if name in row["method"] and not row["cell"]["start"]:
                assert row["method"][name] == float(said.get(name, default))
