"""Pictures of networks: their size, shape and content, looked at by pixels."""

from __future__ import annotations

import dataclasses

import matplotlib.image
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from tedtrajrec.errors import OutputError
from tedtrajrec.network.plot import ROAD_STYLES, draw_roads, extent, new_map, plot_network, round_length, save_figure
from tests.conftest import make_grid

COLOURS = {label: np.array(to_rgb(colour)) for label, colour, _, _ in ROAD_STYLES}


def pixels_of(picture: np.ndarray, colour: np.ndarray) -> np.ndarray:
    """Return where a picture has a colour."""
    return np.abs(picture[..., :3] - colour).max(axis=-1) < 0.02


def test_picture_has_the_width_asked_for_and_the_shape_of_the_city(tmp_path):
    network = make_grid(9, 5)
    plot_network(network, tmp_path / "n.png", width_px=700)
    assert matplotlib.image.imread(tmp_path / "n.png").shape[1] == 700
    figure, axes, box = new_map(extent(network), width_px=700)
    assert draw_roads(axes, network, box) == {"residential"}
    save_figure(figure, tmp_path / "roads.png")
    rows, columns = np.nonzero(pixels_of(matplotlib.image.imread(tmp_path / "roads.png"), COLOURS["residential"]))
    assert np.ptp(columns) > 600
    assert np.ptp(rows) / np.ptp(columns) == pytest.approx(400 / 800, abs=0.01)


def test_one_scale_for_east_and_north(tiny_city):
    for width, rows in ((400, 2), (1000, 12)):
        _, axes, (left, bottom, right, top) = new_map(extent(make_grid(6, rows)), width_px=width)
        window = axes.get_window_extent()
        assert (right - left) / window.width == pytest.approx((top - bottom) / window.height)
    left, bottom, right, top = extent(tiny_city)
    x, y = tiny_city.geom_xy
    assert left < x.min() < x.max() < right
    assert bottom < y.min() < y.max() < top


def test_a_single_straight_road_can_be_drawn(tmp_path, tiny_city):
    plot_network(tiny_city.subset([0]), tmp_path / "n.png", width_px=300)
    assert matplotlib.image.imread(tmp_path / "n.png").shape[1] == 300


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_same_network_gives_the_same_file(tmp_path, tiny_city, suffix):
    for name in ("a", "b"):
        plot_network(tiny_city, tmp_path / f"{name}.{suffix}", width_px=300)
    assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()
    assert len(list(tmp_path.iterdir())) == 2


def test_svg_names_counts_source_and_attribution(tmp_path, tiny_city):
    network = dataclasses.replace(tiny_city, meta={**tiny_city.meta, "attribution": "(c) OpenStreetMap contributors"})
    plot_network(network, tmp_path / "n.svg")
    text = (tmp_path / "n.svg").read_text(encoding="utf-8")
    # matplotlib draws letters as shapes and leaves the text in comments
    for part in ("115 segments, 36 nodes", "a grid made by the tests", "(c) OpenStreetMap contributors", "residential"):
        assert f"<!-- {part}" in text, part
    plot_network(tiny_city, tmp_path / "n.svg")
    assert "OpenStreetMap" not in (tmp_path / "n.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(("width_m", "length_m"), [(600, 100), (1300, 200), (15_500, 2000), (31_000, 5000), (60, 10)])
def test_scale_bar_is_round(width_m, length_m):
    assert round_length(width_m) == length_m


def test_an_unknown_format_is_refused_and_leaves_nothing(tmp_path, tiny_city):
    with pytest.raises(OutputError, match=r"a picture is written as \.png, \.svg, \.pdf"):
        plot_network(tiny_city, tmp_path / "n.bmp")
    assert not list(tmp_path.iterdir())


@pytest.mark.real
def test_chengdu_shows_its_classes_and_no_others(tmp_path, chengdu):
    plot_network(chengdu, tmp_path / "c.svg")
    text = (tmp_path / "c.svg").read_text(encoding="utf-8")
    named = {label for label in COLOURS if f"<!-- {label} -->" in text}
    drawn = {label for label, colour, _, _ in ROAD_STYLES if f"stroke: {colour}" in text}
    assert named == drawn == {"trunk", "primary", "secondary", "tertiary"}
