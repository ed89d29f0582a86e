"""Rows of a report: merged, told apart and counted before they become tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from tedtrajrec.errors import InputError
from tedtrajrec.experiments.plan import read_plan
from tedtrajrec.experiments.reporting.results import Spread, number, number_with_spread, results_of
from tedtrajrec.experiments.reporting.rows import read_results, slots
from tedtrajrec.experiments.reporting.studies import changes
from tedtrajrec.experiments.reporting.tables import results_table
from tests.experiments.report_rows import PLAN, write_row
from tests.training.conftest import small_dataset  # noqa: F401  (a fixture)


def test_rows_of_two_places_are_merged(tmp_path: Path) -> None:
    write_row(tmp_path / "one", "tedtrajrec", 0.5, finished=False, date="2026-11-17")
    write_row(tmp_path / "two", "tedtrajrec", 0.6)
    write_row(tmp_path / "two", "tedtrajrec", 0.7, seed=1, finished=False)
    found = read_results([tmp_path / "one", tmp_path / "two"])
    assert [row.metric("accuracy") for row in found.cells] == [0.6, 0.7]
    assert found.replaced == ("one/performance-chengdu-tedtrajrec-1of8-0.json",)
    (result,) = results_of(slots(found))
    assert result.metric("accuracy") == (0.6, pytest.approx(float("nan"), nan_ok=True), 1)
    assert result.seeds == "1 of 2"  # the unfinished one does not count beside it
    whole = read_results(tmp_path)
    assert [row.metric("accuracy") for row in whole.cells] == [0.6, 0.7]


def test_rows_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_row(tmp_path / "long", "tedtrajrec", 0.7, seed=seed, settings=("train.epochs=110", "model.d=64"))
    write_row(tmp_path / "short", "tedtrajrec", 0.6, settings=("train.epochs=60", "model.d=64"))
    write_row(tmp_path / "short", "mtrajrec", 0.5, settings=("train.epochs=60",))
    found = results_of(slots(read_results(tmp_path)))
    assert [(one.label, one.seeds) for one in found] == [
        ("MTrajRec", "1"),
        ("TedTrajRec, train.epochs=110", "2"),
        ("TedTrajRec, train.epochs=60", "1"),
    ]
    (improvement,) = results_table(found, "x", improvements=True).blocks[-1].lines
    assert improvement.values[3].text == "+40.0 %"  # of the one with more seeds


def test_other_draws_are_told(tmp_path: Path) -> None:
    write_row(tmp_path, "linear_hmm", 0.4, learned=False)
    write_row(tmp_path, "lookup", 0.6, learned=False, draws={"test": "other"})
    table = results_table(results_of(slots(read_results(tmp_path))), "x")
    assert any("other: lookup" in note for note in table.notes)


def test_a_cell_of_a_plan_takes_the_row_of_an_equal_one(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    write_row(tmp_path / "rows", "tedtrajrec", 0.7, seed=1)
    places = slots(read_results(tmp_path / "rows"), [read_plan(tmp_path / "plan.toml")])
    assert [(slot.cell.group, slot.cell.variant, slot.row is not None) for slot in places] == [
        ("performance", "", False),
        ("performance", "", False),
        ("sensitivity", "as it is", True),
        ("sensitivity", "d 32", False),
        ("performance", "", True),
    ]
    sensitivity = results_of(slot for slot in places if slot.cell.group == "sensitivity")
    assert list(changes(sensitivity).values()) == [{}, {"model.d": "32"}]


def test_numbers_as_tables_have_them() -> None:
    assert number(0.7014, 3) == ".701"
    assert number(-0.05, 3) == "-.050"
    assert number(0.05, 3, sign=True) == "+.050"
    assert number(1.0, 3) == "1.000"
    assert number(10.05, 2) == "10.05"
    assert number(1234.4, 0) == "1,234"
    assert number_with_spread(Spread(0.5, float("nan"), 1), 3) == ".500"
    assert number_with_spread(Spread(0.5, 0.01, 3), 3) == ".500 ± .010"


def test_trips_of_other_seeds_must_be_the_same(tmp_path: Path) -> None:
    write_row(tmp_path, "tedtrajrec", 0.7)
    write_row(tmp_path, "tedtrajrec", 0.7, seed=1)
    write_row(tmp_path, "route_hmm", 0.6, learned=False)
    (tmp_path / "trips" / "performance-chengdu-tedtrajrec-1of8-1.npz").write_bytes(b"no")
    with pytest.raises(InputError, match="no recovered trips"):
        results_table(results_of(slots(read_results(tmp_path))), "x")
