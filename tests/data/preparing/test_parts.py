"""The folder of parts: what is kept comes back, what is of another input goes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tedtrajrec.data.preparing.parts import Account, Part, Work
from tedtrajrec.errors import OutputError
from tedtrajrec.trips.cleaning.rejects import CleanSummary
from tedtrajrec.trips.table import Trips, as_text

RECIPE = {"source": "abc", "shares": (0.7, 0.3)}


def part_of(*names: str) -> Part:
    n = len(names)
    steps = Trips(
        as_text(np.array(names, str)),
        np.arange(n + 1) * 2,
        np.arange(2 * n) * 10,
        np.full(2 * n, -8.6),
        np.full(2 * n, 41.1),
        np.arange(2 * n, dtype=np.int32),
        np.full(2 * n, 0.5),
    )
    account = Account(CleanSummary(trips_in=n + 1, trips_dropped={"jump": 1}), {"no_truth": 2})
    return Part(
        steps, np.zeros(n, np.int8), np.arange(2 * n, dtype=np.uint64), np.arange(n + 1) * 2, account, f"{names}\n"
    )


def test_parts_come_back_in_order(tmp_path: Path) -> None:
    work = Work(tmp_path / "x.work", RECIPE)
    work.save(1, part_of("c", "é"))
    work.save(2, part_of())
    work.save(0, part_of("a", "b"))
    assert [ids.tolist() for (ids,) in work.columns("traj_id")] == [["a", "b"], ["c", "é"], []]
    assert "".join(work.texts("rejects")) == "('a', 'b')\n('c', 'é')\n()\n"
    assert work.account().dropped == {"no_truth": 6}
    assert work.account().cleaned == CleanSummary(trips_in=7, trips_dropped={"jump": 3})


@pytest.mark.parametrize("size", [1, 2, 3, 10])
def test_shards_hold_the_chosen_trips(tmp_path: Path, size: int) -> None:
    work = Work(tmp_path / "x.work", RECIPE)
    for number, names in enumerate([("a", "b", "c"), (), ("d",), ("e", "f")]):
        work.save(number, part_of(*names))
    shards = list(work.shards(np.array([True, False, True, True, True, True]), size))
    names = [name for shard in shards for name in shard.traj_id.tolist()]
    assert names == ["a", "c", "d", "e", "f"]
    assert all(len(shard) == size for shard in shards[:-1])
    assert np.concatenate([np.asarray(shard.segment) for shard in shards]).tolist() == [0, 1, 4, 5, 0, 1, 0, 1, 2, 3]
    assert list(work.shards(np.zeros(6, bool), size)) == []


def test_work_goes_on_only_from_the_same_recipe(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "x.work"
    first = Work(folder, RECIPE)
    first.save(0, part_of("a"))
    first.note_all_read({"unreadable": "x"})
    again = Work(folder, RECIPE)
    assert (again.is_new, again.was_other) == (False, False)
    assert len(again.files()) == 1
    assert again.all_read == {"unreadable": "x"}
    other = Work(folder, {**RECIPE, "source": "abd"})
    assert (other.is_new, other.was_other) == (True, True)
    assert other.files() == []
    assert other.all_read is None


def test_a_folder_without_recipe_is_started_over(tmp_path: Path) -> None:
    work = Work(tmp_path / "x.work", RECIPE)
    work.save(0, part_of("a"))
    (work.folder / "recipe.json").write_text('{"sour')
    assert Work(work.folder, RECIPE).files() == []


def test_what_is_left_of_a_removed_folder_is_not_gone_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(tmp_path / "x.work", RECIPE)
    work.save(0, part_of("a"))
    work.note_all_read({})
    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", lambda _: None)  # as if killed there
        work.remove()
    again = Work(work.folder, RECIPE)
    assert again.files() == []
    assert again.all_read is None


def test_foreign_files_are_never_removed(tmp_path: Path) -> None:
    (tmp_path / "x.work").mkdir()
    (tmp_path / "x.work" / "thesis.txt").write_text("mine")
    with pytest.raises(OutputError, match="not ours"):
        Work(tmp_path / "x.work", RECIPE)
    assert (tmp_path / "x.work" / "thesis.txt").read_text() == "mine"


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        Work(tmp_path / "file" / "x.work", RECIPE)
