import matplotlib.image
import numpy as np
import pytest

from tedtrajrec.data.dataset import write_dataset
from tedtrajrec.data.describe import tally_splits
from tedtrajrec.data.plot import plot_dataset
from tedtrajrec.errors import InputError
from tests.conftest import make_grid
from tests.data.made_trips import STEP_S, made_trips

GRID = make_grid()


def written(folder, lengths, **gaps):
    trips = made_trips(GRID, lengths, **gaps)
    return write_dataset(folder, GRID, {"train": [trips]}, step_s=STEP_S, time_zone="Europe/Lisbon", source="made")


def test_two_pictures_that_show_something(tmp_path):
    dataset = written(tmp_path / "a", [40, 60, 1, 25])
    files = plot_dataset(dataset, tmp_path / "pictures")
    assert [file.name for file in files] == ["map.png", "trips.png"]
    for file in files:
        picture = matplotlib.image.imread(file)
        assert picture.shape[1] == 1600
        background = (np.abs(picture - picture[0, 0]) < 0.02).all(axis=2)
        assert 0.02 < 1 - background.mean() < 0.9
    again = plot_dataset(dataset, tmp_path / "again", tallies=tally_splits(dataset))
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(files, again, strict=True))


@pytest.mark.parametrize(
    ("lengths", "gaps"),
    [([1], {"unknown": 1.0}), ([1, 1], {"missing": 1.0}), ([5], {"missing": 1.0, "unknown": 1.0}), ([30] * 3, {})],
)
def test_datasets_with_little_in_them(tmp_path, lengths, gaps):
    files = plot_dataset(written(tmp_path / "a", lengths, **gaps), tmp_path, width_px=800)
    assert all(file.stat().st_size > 5000 for file in files)


def test_no_trips_to_draw(tmp_path):
    with pytest.raises(InputError, match="no trips to draw"):
        plot_dataset(written(tmp_path / "a", []), tmp_path)
