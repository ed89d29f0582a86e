"""The path of a researcher: the method of docs/reproducing.md, in a file of its own, benchmarked and reported."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tedtrajrec.cli import main
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.evaluation.run import draw_steps, evaluate_draw
from tedtrajrec.methods import plugins, registry
from tedtrajrec.methods.registry import make_method
from tests.training.conftest import small_dataset  # noqa: F401  (a fixture)

DOCS = Path(__file__).parents[2] / "docs" / "reproducing.md"
PLAN = """
[datasets.city]
path = "nowhere"

[[cells]]
group = "performance"
methods = ["nearest_road"]
datasets = ["city"]
"""


def run(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 0
    return capsys.readouterr().out


def test_a_method_in_one_file_is_benchmarked_and_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    no_pictures: None,  # noqa: ARG001
    small_dataset: Dataset,  # noqa: F811
) -> None:
    monkeypatch.setattr(registry, "_added", {})  # nothing is left behind for other tests
    monkeypatch.setattr(plugins, "_loaded", {})
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(from tedtrajrec.methods.base.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    Path("mine.py").write_text(code)
    Path("plan.toml").write_text(PLAN)
    words = ["benchmark", "plan.toml", "-o", "rows", "--device", "cpu", "--plugin", "mine.py", "--dataset"]
    out = run([*words, f"city={small_dataset.path}"], capsys)  # in processes, which load the file too
    assert "| performance | city | 1/8 | nearest_road | 1 | " in out
    row = json.loads(Path("rows/performance-city-nearest_road-1of8-0.json").read_text())
    assert row["command"] == "tedtrajrec benchmark plan.toml -o rows --plugin mine.py --dataset city=..."
    method = make_method("nearest_road", small_dataset.network)
    evaluation = evaluate_draw(method, draw_steps(small_dataset, keep="1/8"))
    assert row["metrics"]["test"]["accuracy"] == evaluation.summary["accuracy"]

    run(["report", "rows", "-o", "report", "--plan", "plan.toml", "--plugin", "mine.py"], capsys)
    text = Path("report/report.md").read_text("utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("| Other methods | nearest_road |")][:1]
    assert f"{evaluation.summary['accuracy']:.3f}".removeprefix("0") in line
    assert row["command"] in text

    out = run(f"evaluate nearest_road,linear_hmm {small_dataset.path} --plugin mine.py -o metrics".split(), capsys)
    assert "nearest_road" in out
    run(["report", "metrics", "-o", "again"], capsys)  # rows of methods that are not known here are shown as well
    assert "| Other methods | nearest_road |" in Path("again/report.md").read_text("utf-8")


def test_without_its_file_a_method_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    with pytest.raises(SystemExit) as stop:
        main(["benchmark", str(tmp_path / "plan.toml"), "-o", str(tmp_path / "rows")])
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert "There is no method 'nearest_road'" in said
    assert "--plugin FILE" in said
