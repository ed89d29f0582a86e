"""The report of experiments: every table and figure from rows, as HTML and as Markdown.

    make_report("results", "report")

writes ``report.html``, one file that needs nothing else, ``report.md``, and the figures of both in ``figures/``.

Rows are the files of JSON that ``benchmark`` writes, one a cell; the group of a cell says which chapter it is for
(``performance``, ``robustness``, ``efficiency``, ``ablation``, ``sensitivity``, those of the transfer experiment), and
cells of any other group get a table of their own. Rows with a ``kind`` are of something else: a ``picture`` is shown,
of others all numbers become a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.errors import OutputError
from tedtrajrec.experiments.plan import read_plan
from tedtrajrec.experiments.provenance import as_given
from tedtrajrec.experiments.reporting import appendix, studies
from tedtrajrec.experiments.reporting.efficiency import efficiency_section
from tedtrajrec.experiments.reporting.html import html_text
from tedtrajrec.experiments.reporting.markdown import markdown_text
from tedtrajrec.experiments.reporting.page import Report, Section
from tedtrajrec.experiments.reporting.performance import Facts, beside_paper, by_place, performance_section, place
from tedtrajrec.experiments.reporting.rows import Slot, read_results, slots
from tedtrajrec.experiments.reporting.tables import results_table
from tedtrajrec.files import replacing

TITLE = "Recovering trips: experiments"

_OWN_CHAPTER = {"performance", "robustness", "efficiency", "ablation", "sensitivity", *studies.TRANSFER}


def make_report(
    results: str | Path | Sequence[str | Path],
    output: str | Path,
    *,
    plans: Sequence[str | Path] = (),
    datasets: Mapping[str, str | Path] | None = None,
    title: str = TITLE,
) -> Path:
    """Write a report of all rows below some folders and return its HTML file.

    Parameters
    ----------
    results
        A folder of rows or several; rows of one cell from several machines are merged.
    output
        The folder to write to; other files in it stay.
    plans
        Plans whose cells are shown empty where they have no row.
    datasets
        Prepared datasets by the names that cells have for them, for the table of datasets and for captions.
    title
        Of the report.
    """
    folders = [Path(results)] if isinstance(results, str | Path) else [Path(folder) for folder in results]
    folder = Path(output)
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file; give a folder to write to.")
    found = read_results(folders)
    given = [(as_given(Path(plan)), read_plan(plan)) for plan in plans]
    places = slots(found, [plan for _, plan in given])
    facts = {name: _facts(Dataset(path)) for name, path in (datasets or {}).items()}
    sections = [
        *_sections(places, facts, folder),
        *appendix.other_sections(found, folder),
        appendix.datasets_section(places, facts),
        appendix.commands_section(found, places, given, [as_given(path) for path in folders]),
    ]
    intro = (
        f"{appendix.counted(places)} Means over test trips, then over seeds, ± the standard deviation over seeds. "
        "Every number names the row that it was computed from."
    )
    report = Report(title, intro, tuple(sections), found.rows)
    with replacing(folder / "report.md") as path:
        path.write_text(markdown_text(report), "utf-8")
    with replacing(folder / "report.html") as path:
        path.write_text(html_text(report, folder), "utf-8")
    return folder / "report.html"


def _sections(places: Sequence[Slot], facts: Mapping[str, Facts], folder: Path) -> list[Section]:
    groups: dict[str, list[Slot]] = {}
    for slot in places:
        groups.setdefault(slot.cell.group, []).append(slot)
    performance = groups.get("performance", [])
    transfer = [slot for group in studies.TRANSFER for slot in groups.get(group, [])]
    sections = [performance_section(performance, facts)]
    if "robustness" in groups:
        sections.append(studies.robustness_section(groups["robustness"], performance, facts, folder))
    sections.append(efficiency_section(groups.get("efficiency", performance), performance, facts, folder))
    if "ablation" in groups:
        sections.append(studies.ablation_section(groups["ablation"], facts, folder))
    if "sensitivity" in groups:
        sections.append(studies.sensitivity_section(groups["sensitivity"], facts, folder))
    if transfer:
        sections.append(studies.transfer_section(transfer, folder))
    sections.append(studies.confidence_section(performance, folder))
    sections.append(studies.training_section(performance, folder))
    rest = {group: found for group, found in groups.items() if group not in _OWN_CHAPTER}
    if rest:
        sections.append(_other_cells(rest, facts))
    return [section for section in sections if section is not None]


def _other_cells(groups: Mapping[str, Sequence[Slot]], facts: Mapping[str, Facts]) -> Section:
    parts = [
        results_table(found, f"{group}: {place(dataset, keep, found)}. {beside_paper(dataset, facts)}")
        for group, cells in groups.items()
        for (dataset, keep), found in by_place(cells).items()
    ]
    return Section("Other cells", parts)


def _facts(dataset: Dataset) -> Facts:
    info = dataset.info
    trips = {split: size.trips for split, size in info.splits.items()}
    return Facts(info.step_s, dataset.network.n_segments, info.time_zone, info.source, trips)
