import os

import pytest

from tedtrajrec.errors import InputError, OutputError
from tedtrajrec.files import existing_file, replacing


def test_a_file_appears_whole_and_keeps_its_suffixes(tmp_path):
    path = tmp_path / "new" / "trips.csv.gz"
    with replacing(path) as beside:
        assert beside.name.endswith("trips.csv.gz")
        assert beside.parent == path.parent
        beside.write_text("all of it")
        assert not path.exists()
    assert path.read_text() == "all of it"
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fail():
        with replacing(path) as beside:
            beside.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutputError, match="is a folder"), replacing(tmp_path):
        pass
    with pytest.raises(OutputError, match="cannot be written"), replacing(tmp_path / "file" / "below"):
        pass
    with pytest.raises(OutputError, match="cannot be written"), replacing(tmp_path / ("x" * 300)):
        pass


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path):
    (tmp_path / "far").mkdir()
    link = tmp_path / "latest.csv"
    link.symlink_to(tmp_path / "far" / "today.csv")
    for text in ("made", "made again"):
        with replacing(link) as beside:
            assert beside.parent == tmp_path / "far"
            beside.write_text(text)
        assert link.is_symlink()
        assert (tmp_path / "far" / "today.csv").read_text() == text


def test_existing_file(tmp_path):
    with pytest.raises(InputError, match=r"gone\.csv: there is no such file \(trips\)"):
        existing_file(tmp_path / "gone.csv", "trips")
    with pytest.raises(InputError, match="is a folder"):
        existing_file(tmp_path, "trips")
    (tmp_path / "empty").touch()
    with pytest.raises(InputError, match="is empty"):
        existing_file(tmp_path / "empty", "trips")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is a pipe"):
        existing_file(tmp_path / "pipe", "trips")
    with pytest.raises(InputError, match="cannot be read"):
        existing_file(tmp_path / ("x" * 300), "trips")
