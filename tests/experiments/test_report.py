"""The report: every chapter from made rows, read as a browser reads it."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.errors import InputError, OutputError
from tedtrajrec.experiments.report import make_report
from tedtrajrec.experiments.reporting.page import Table
from tedtrajrec.experiments.reporting.paper import METRICS, TABLE
from tedtrajrec.experiments.reporting.performance import performance_section
from tedtrajrec.experiments.reporting.rows import read_results, slots
from tedtrajrec.experiments.reporting.tables import gain
from tests.experiments.report_rows import PLAN, write_row
from tests.training.conftest import small_dataset  # noqa: F401  (a fixture)

REPOSITORY = Path(__file__).parents[2]


def write_all(folder: Path) -> None:
    """Write rows for every chapter."""
    for seed, more in enumerate((-0.01, 0.0, 0.01)):
        write_row(folder / "a", "tedtrajrec", 0.7 + more, seed=seed)
        write_row(folder / "b", "rntrajrec", 0.65 + more, seed=seed)
    write_row(folder / "b", "linear_hmm", 0.4, learned=False)
    write_row(folder / "b", "route_hmm", 0.699, learned=False)
    write_row(folder / "b", "toy", 0.2, learned=False, trips=False)
    write_row(folder / "b", "tedtrajrec_parallel", 0.8, settings=("train.epochs=60",), finished=False)
    write_row(folder / "b", "tedtrajrec", 0.85, group="robustness", keep="1/4")
    for variant, setting, accuracy in (
        ("whole", (), 0.68),
        ("attention full", ("model.attention=full",), 0.6),
        ("without GNN", ("model.gnn=none",), 0.67),
        ("GNN gat", ("model.gnn=gat",), 0.69),
    ):
        write_row(folder / "b", "tedtrajrec", accuracy, group="ablation", variant=variant, settings=setting)
    for d, accuracy in ((64, 0.6), (512, 0.69)):
        write_row(
            folder / "b", "tedtrajrec", accuracy, group="sensitivity", variant=f"d {d}", settings=(f"model.d={d}",)
        )
    start = "simulated-x"
    write_row(folder / "b", "tedtrajrec_parallel", 0.5, group="never there", start=start, train=False, trips=False)
    for group, accuracy in (("with a start", 0.66), ("from nothing", 0.65)):
        few = ("train.most_train=100",)
        write_row(folder / "b", "tedtrajrec_parallel", accuracy, group=group, variant="100 trips", settings=few)
    write_row(folder / "b", "tedtrajrec", 0.41, group="scale", dataset="porto-sim")
    about = {"trips": 60, "draw": {"hash": "d", "mean_fixes": 4.3}, "settings": {"eps": [0.45, 0.55], "min_samples": 5}}
    cell = json.loads((folder / "b" / "performance-chengdu-rntrajrec-1of8-0.json").read_text())["cell"]
    (folder / "uses").mkdir()
    for method, seed, recall in (
        ("truth", 0, 1.0),
        ("raw", 0, 0.08),
        ("rntrajrec", 0, 0.256),
        ("tedtrajrec", 0, 0.28),
        ("tedtrajrec", 1, 0.3),
    ):
        of = {"method": method, "dataset": "chengdu", "keep": "1/8"}
        metrics = {"lcss": {"r_at_1": recall, "adjusted_rand": recall / 2}, "edr": {"r_at_1": 0.5}}
        row = {
            "kind": "uses",
            "cell": {**(cell if "traj" in method else {}), **of, "seed": seed},
            "metrics": metrics,
            **about,
        }
        (folder / "uses" / f"{method}-{seed}.json").write_text(json.dumps(row))
    growth = {"kind": "growth", "method": "tedtrajrec", "dataset": "chengdu", "seconds": {"n 32": 0.5, "n 64": 1.25}}
    (folder / "growth.json").write_text(json.dumps(growth))
    picture = {"kind": "picture", "title": "Case study", "file": "case.png", "caption": "One trip.", "alt": "A map."}
    (folder / "case.json").write_text(json.dumps(picture))
    Figure(figsize=(1, 1)).savefig(folder / "case.png")
    (folder / "speed.json").write_text("[1, 2]")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    write_all(folder / "rows")
    (folder / "plan.toml").write_text(PLAN)
    page = make_report(folder / "rows", folder / "report", plans=[folder / "plan.toml"])
    assert page == folder / "report" / "report.html"
    return folder / "report"


class Page(HTMLParser):
    """What a browser sees: elements with their attributes, and the texts of tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.tables: list[list[list[str]]] = []
        self.open = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self.open += 1
        elif tag == "strong" and self.open:
            self.tables[-1][-1][-1] += "*"

    def handle_endtag(self, tag: str) -> None:
        self.open -= tag in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.open:
            self.tables[-1][-1][-1] += data

    def line(self, table: int, head: str) -> list[str]:
        return next(line for line in self.tables[table] if line[0] == head)


@pytest.fixture(scope="module")
def page(made: Path) -> Page:
    return Page((made / "report.html").read_text("utf-8"))


def test_the_main_table(page: Page) -> None:
    assert page.tables[0][0] == ["", "Recall", "Precision", "F1", "Accuracy", "MAE m", "RMSE m", "seeds"]
    heads = [line[0] for line in page.tables[0]]
    assert heads == [
        "", "Two-stage", "Linear + HMM", "End-to-end", "RNTrajRec", "MM-STGED (not computed)", "TedTrajRec",
        "Route search and memory", "route_hmm", "All steps at once",
        "tedtrajrec_parallel (unfinished: 5 of 60 epochs)", "Other methods", "toy", "Improvement",
        "TedTrajRec over the best other published",
    ]  # fmt: skip
    assert page.line(0, "TedTrajRec")[1:] == [
        "*.750 ± .010", "*.800 ± .010", "*.770 ± .010", "*.700 ± .010", "*300 ± 10", "*450 ± 15", "3",
    ]  # fmt: skip
    assert page.line(0, "MM-STGED (not computed)")[1:] == ["", "", "", "", "", "", "0 of 2"]
    assert page.line(0, "tedtrajrec_parallel (unfinished: 5 of 60 epochs)")[4] == ".800"  # the highest, but not marked
    gains = page.line(0, "TedTrajRec over the best other published")
    assert gains[4] == f"{100 * (0.7 - 0.65) / 0.65:+.1f} %"
    assert gains[5] == f"{100 * (350 - 300) / 350:+.1f} %"


def test_what_cannot_be_told_apart_is_marked(page: Page) -> None:
    assert page.line(0, "route_hmm")[4] == ".699 †"
    assert "†" not in page.line(0, "RNTrajRec")[4]
    assert "†" not in page.line(0, "toy")[4]  # its trips were not kept


def test_margins_have_spread_and_intervals(page: Page) -> None:
    assert page.tables[1][1] == ["TedTrajRec over the best other published"]
    head, over, margin, seeds, interval, p = page.tables[1][3]
    assert (head, over, margin, seeds, p) == ("Accuracy", "RNTrajRec", "+.050", ".014", "< .001")
    low, high = (float(text) for text in interval.split(" to "))
    assert 0.02 < low < 0.05 < high < 0.08


def test_our_order_beside_the_papers(page: Page) -> None:
    assert page.tables[2][0] == ["", "F1: paper", "ours", "Accuracy: paper", "ours", "MAE m: paper", "ours"]
    assert page.line(2, "RNTrajRec")[3:5] == [".663 (2)", ".650 (2)"]
    assert page.line(2, "Linear + HMM")[3:5] == [".492 (3)", ".400 (3)"]


def test_the_papers_improvements_follow_from_its_table() -> None:
    printed = {
        ("chengdu", "1/8"): (5.07, -0.26, 2.83, 9.30, 18.11, 13.31),
        ("chengdu", "1/16"): (3.67, 0.41, 2.24, 7.86, 9.18, 6.40),
        ("porto", "1/8"): (2.60, -0.31, 2.05, 8.85, 14.55, 10.57),
        ("shanghai", "1/8"): (5.33, 1.69, 3.84, 11.43, 18.82, 5.43),
    }
    others = []
    for place, expected in printed.items():
        for k, metric in enumerate(METRICS):
            values = [values[k] for method, values in TABLE[place].items() if method != "tedtrajrec"]
            found = gain(TABLE[place]["tedtrajrec"][k], max(values) if metric.higher else min(values), metric)
            if found != pytest.approx(expected[k], abs=0.03):
                others.append((*place, metric.name, round(found, 2)))
    # The paper leaves out TERI once, divides four errors by TedTrajRec's own, and has one that fits nothing.
    assert others == [
        ("chengdu", "1/16", "recall", 1.77),
        ("chengdu", "1/16", "mae_m", 8.41),
        ("chengdu", "1/16", "rmse_m", 6.02),
        ("porto", "1/8", "rmse_m", 9.56),
        ("shanghai", "1/8", "mae_m", 15.84),
        ("shanghai", "1/8", "rmse_m", 5.94),
    ]


def test_chapters_and_what_a_plan_borrows(page: Page, made: Path) -> None:
    titles = [attributes["id"] for tag, attributes in page.elements if tag == "section"]
    assert titles == [
        "performance", "robustness", "efficiency", "ablations", "sensitivity", "another-city",
        "confidence-and-drivable-trips", "training", "other-cells", "use-of-recovered-trips", "case-study", "growth",
        "datasets", "commands-and-versions", "rows",
    ]  # fmt: skip
    captions = [line for line in (made / "report.md").read_text("utf-8").splitlines() if line.startswith("**")]
    assert sum("Attention: TedTrajRec" in line for line in captions) == 1
    assert sum("Graph neural network: TedTrajRec" in line for line in captions) == 1
    sensitivity = next(
        table for table in page.tables if [line[0] for line in table][1:] == ["32 (not computed)", "64", "256", "512"]
    )
    assert sensitivity[3][4] == "*.700"  # of the performance row with seed 1, the same work
    robustness = [table for table in page.tables if len(table) == 3 and table[2][0] == "TedTrajRec"]
    assert robustness[0][2][4] == ".850"
    uses = next(table for table in page.tables if table[0] == ["", "R@1", "adjusted Rand", "seeds"])
    assert uses[1:] == [
        ["Sparse"], ["Raw data, matched", ".080", ".040", "1"],
        ["End-to-end"], ["RNTrajRec", ".256", ".128", "1"], ["TedTrajRec", "*.290 ± .014", "*.145 ± .007", "2"],
        ["True"], ["The truth", "1.000", ".500", "1"],
    ]  # fmt: skip
    growth = next(table for table in page.tables if table[0] == ["", "seconds n 32", "seconds n 64"])
    assert growth[1] == ["TedTrajRec", ".500", "1.25"]


def test_every_number_leads_to_its_row(page: Page, made: Path) -> None:
    links = [a for tag, a in page.elements if tag == "a" and a.get("href", "").startswith("#row-")]
    ids = {a["id"] for _, a in page.elements if "id" in a}
    assert len(links) > 200
    assert {a["href"][1:] for a in links} <= ids
    title = next(a["title"] for a in links if "tedtrajrec-1of8-0.json" in a["title"] and "seed 1" in a["title"])
    assert re.search(
        r"performance-chengdu-tedtrajrec-1of8-0.json, 2026-11-16, H200, 16 cores, settings \w{12}, seed 0;", title
    )
    text = (made / "report.md").read_text("utf-8")
    numbers = set(re.findall(r"\(#row-(\d+)\)", text))
    assert numbers <= set(re.findall(r'id="row-(\d+)"', text))
    unread = re.findall(r"\d+ files are no rows[^.]*: (\S+)\.", text)
    assert unread == ["rows/speed.json"]


def test_the_page_needs_nothing_else_and_can_be_heard(page: Page, made: Path) -> None:
    text = (made / "report.html").read_text("utf-8")
    assert "<script" not in text
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', text)
    images = [a for tag, a in page.elements if tag == "img"]
    assert len(images) == 8
    assert all(a["src"].startswith("data:image/") and len(a["alt"]) > 5 for a in images)
    assert sum(tag == "caption" for tag, _ in page.elements) == len(page.tables)
    for tag, attributes in page.elements:
        if tag == "th":
            assert attributes["scope"] in {"col", "row", "rowgroup"}
    names = sorted(path.name for path in (made / "figures").iterdir())
    drawn = {path.stem for path in (made / "figures").glob("*.svg")}
    assert drawn | {"case"} == {Path(name).stem for name in names}
    for path in (made / "figures").glob("*.svg"):
        assert ET.parse(path).getroot().tag.endswith("svg")
    for line in (made / "report.md").read_text("utf-8").splitlines():
        if found := re.match(r"!\[(.+)\]\((.+)\)", line):
            assert (made / found[2]).exists()


def test_made_again_it_is_the_same_and_leaves_other_files(tmp_path: Path) -> None:
    write_row(tmp_path / "rows", "linear_hmm", 0.4, learned=False)
    write_row(tmp_path / "rows", "route_hmm", 0.6, learned=False)
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "notes.md").write_text("mine")
    first = make_report(tmp_path / "rows", tmp_path / "report").read_bytes()
    assert make_report(tmp_path / "rows", tmp_path / "report").read_bytes() == first
    assert (tmp_path / "report" / "notes.md").read_text() == "mine"
    assert not [path.name for path in (tmp_path / "report").rglob(".*")]


def test_captions_say_how_a_dataset_differs_from_the_papers(
    tmp_path: Path,
    small_dataset: Dataset,  # noqa: F811
) -> None:
    write_row(tmp_path / "rows", "linear_hmm", 0.4, learned=False)
    write_row(tmp_path / "rows", "linear_hmm", 0.4, dataset="other", learned=False)
    names = {"chengdu": small_dataset.path}
    page = Page(make_report(tmp_path / "rows", tmp_path / "report", datasets=names).read_text("utf-8"))
    info = small_dataset.info
    ours = f"{info.step_s} s steps, {small_dataset.network.n_segments:,} segments and {info.splits['train'].trips:,}"
    text = (tmp_path / "report" / "report.md").read_text("utf-8")
    assert f"Our Chengdu has {ours} training trips; the paper's has 12 s steps, 8,781 segments" in text
    assert "other at keep 1/8 (60 trips, 4.3 fixes a trip, 17.8% of the steps). The paper has no such dataset." in text
    table = next(table for table in page.tables if table[0][:2] == ["dataset", "step, s"])
    assert table[1][:4] == [
        "chengdu",
        str(info.step_s),
        f"{small_dataset.network.n_segments:,}",
        str(info.splits["train"].trips),
    ]
    assert ["Porto of the paper", "15", "12,613", "110,261", "15,751", "31,504", "6.8 x 7.2 km"] in table


def test_what_cannot_be_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such folder"):
        make_report(tmp_path / "nowhere", tmp_path / "report")
    (tmp_path / "rows").mkdir()
    with pytest.raises(InputError, match="there are no rows"):
        make_report(tmp_path / "rows", tmp_path / "report")
    path = write_row(tmp_path / "rows", "linear_hmm", 0.4, learned=False)
    with pytest.raises(OutputError, match="is a file"):
        make_report(tmp_path / "rows", path)
    whole = path.read_text()
    path.write_text(whole[:50])
    with pytest.raises(InputError, match=f"{path.name}: this row cannot be read"):
        make_report(tmp_path / "rows", tmp_path / "report")
    path.write_text(whole.replace('"seed"', '"sead"'))
    with pytest.raises(InputError, match="its cell is not one of a plan"):
        make_report(tmp_path / "rows", tmp_path / "report")
    path.write_text(json.dumps({"kind": "picture", "file": "gone.png"}))
    with pytest.raises(InputError, match=r"gone\.png: there is no such file"):
        make_report(tmp_path / "rows", tmp_path / "report")
    assert not (tmp_path / "report" / "report.html").exists()


def test_the_committed_rows() -> None:
    """The figures of docs/results/model.md, from the rows they were typed from."""
    section = performance_section(slots(read_results(REPOSITORY / "results" / "tedtrajrec")), {})
    assert section is not None
    tables = {part.caption.split(" (")[0]: part for part in section.parts if isinstance(part, Table)}
    chengdu = tables["Recovery of chengdu at keep 1/8"].blocks[0].lines
    line = next(line for line in chengdu if line.head == "TedTrajRec")
    assert [value.text for value in line.values[2:6]] == [".792 ± .002", ".701 ± .001", "365 ± 9", "574 ± 9"]


def test_a_method_without_costs_of_its_own_shows_those_that_no_machine_changes(tmp_path: Path) -> None:
    rows, plan = tmp_path / "rows", tmp_path / "plan.toml"
    for method, accuracy in (("mtrajrec", 0.5), ("tedtrajrec", 0.6)):
        write_row(rows, method, accuracy, efficiency={"macs": 2.5e9})
    write_row(rows, "mtrajrec", 0.4, group="efficiency", settings=("train.epochs=3",), efficiency={"macs": 3e9})
    cells = '[[cells]]\ngroup = "{}"\nmethods = ["mtrajrec", "tedtrajrec"]\ndatasets = ["chengdu"]\n{}'
    epochs = 'set = ["train.epochs=3"]\n'
    plan.write_text(
        '[datasets.chengdu]\npath = "x"\n' + cells.format("performance", "") + cells.format("efficiency", epochs)
    )
    make_report([rows], tmp_path / "report", plans=[plan])
    text = (tmp_path / "report" / "report.md").read_text("utf-8").split("## Efficiency")[1].split("\n## ")[0]
    lines = [line.split(" | ") for line in text.splitlines() if "TrajRec" in line and line.startswith("|")]
    assert [line[1:8] for line in lines] == [
        ["MTrajRec", "4.00", "3.00", "2.00", "4.0", ".3", "2.00"],
        ["TedTrajRec (not computed)", "4.00", "2.50", "", "", "", ""],
    ]
