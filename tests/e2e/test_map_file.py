"""The self-contained HTML map in a real browser."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from numpy.typing import NDArray

from tedtrajrec.maps.html import map_file
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.recovery.recovered import RecoveredTrips
from tedtrajrec.trips.readers import read_trips
from tedtrajrec.trips.table import TEXT
from tedtrajrec.trips.writers import write_trips
from tests.e2e.conftest import Tab
from tests.maps.made import START, STEP, drives, recovered, write_files

OpenTab = Callable[..., Tab]

LEVEL = {4: (0x00, 0x4D, 0x8C), 3: (0x2F, 0x9B, 0xD8), 2: (0xE6, 0x9F, 0x00), 1: (0xC4, 0x3C, 0x00)}
UNKNOWN = (0x45, 0x56, 0x6B)


@pytest.fixture(scope="module")
def files(tiny_city: RoadNetwork, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_files(tiny_city, tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def html(files: dict[str, Path]) -> str:
    output = files["network.npz"].parent / "trip.html"
    given = {name: files[file] for name, file in (("sparse", "sparse.csv"), ("truth", "truth.csv"))}
    map_file([files["model.parquet"], files["other.parquet"]], output, network=files["network.npz"], **given)
    return output.as_uri()


@pytest.fixture(scope="module")
def model(files: dict[str, Path]) -> RecoveredTrips:
    return RecoveredTrips.from_trips(read_trips(files["model.parquet"]))


@pytest.fixture(scope="module")
def opened(open_tab: OpenTab, html: str) -> Tab:
    return open_tab(html)


@pytest.fixture
def tab(opened: Tab) -> Tab:
    """Return the map as it opens: the first method and the first trip, from the start."""
    opened.until("globalThis.tedtrajrec?.key !== undefined")
    opened.page.get_by_label("model", exact=True).check()
    opened.page.evaluate("tedtrajrec.select(tedtrajrec.results.get('model').trips.keys().next().value)")
    opened.page.mouse.move(5, 5)
    opened.drawn()
    return opened


def screen(tab: Tab) -> NDArray[np.int64]:
    """Return the screen as red, green and blue of each pixel."""
    picture = matplotlib.image.imread(io.BytesIO(tab.page.screenshot()), format="png")
    return (picture[..., :3] * 255).round().astype(np.int64)


def shows(picture: NDArray[np.int64], at: tuple[int, int], colour: tuple[int, int, int]) -> bool:
    """Return whether a pixel within 5 of a place has a colour."""
    x, y = at
    part = picture[max(y - 5, 0) : y + 6, max(x - 5, 0) : x + 6]
    return bool((np.abs(part - np.array(colour)).max(axis=2) <= 12).any())


def test_steps_are_drawn_where_they_are_in_the_colour_of_their_probability(tab: Tab, model: RecoveredTrips) -> None:
    tab.page.evaluate("tedtrajrec.maps[0].vehicle.remove()")
    picture = screen(tab)
    # Half way to a step on the same segment, where neither dots nor corners are.
    for step in range(1, 14, 2):
        level = [4, 3, 2, 1][step % 4]
        middle = ((model.lon[step - 1] + model.lon[step]) / 2, (model.lat[step - 1] + model.lat[step]) / 2)
        assert shows(picture, tab.pixel_of(middle), LEVEL[level]), step
    assert tab.errors == []


def test_the_line_turns_at_corners_with_the_road(tab: Tab, tiny_city: RoadNetwork) -> None:
    corner = [tiny_city.node_lon[4], tiny_city.node_lat[4]]  # from the bottom street up, between two steps
    lines = tab.page.evaluate("tedtrajrec.maps[0].data.trip.features.map((one) => one.geometry.coordinates)")
    assert any(np.allclose(point, corner, atol=2e-6) for line in lines for point in line)
    metres = tab.page.evaluate("tedtrajrec.timeline.trip.metres")
    assert metres == pytest.approx(650, rel=0.01)  # 7 segments of 100 m, less a quarter at both ends


def test_nothing_is_asked_of_any_machine(tab: Tab) -> None:
    assert tab.requests
    assert [url for url in tab.requests if not url.startswith(("file:", "blob:", "data:"))] == []


def test_the_slider_drives_the_vehicle(tab: Tab, model: RecoveredTrips) -> None:
    where = "(() => { const { lng, lat } = tedtrajrec.maps[0].vehicle.getLngLat(); return [lng, lat]; })()"
    assert tab.page.evaluate(where) == pytest.approx([model.lon[0], model.lat[0]], abs=2e-6)

    slider = tab.page.get_by_role("slider", name="Time in the trip")
    slider.fill(str(int(2.5 * STEP)))  # half a step into the second segment
    halfway = [(model.lon[2] + model.lon[3]) / 2, (model.lat[2] + model.lat[3]) / 2]
    assert tab.page.evaluate(where) == pytest.approx(halfway, abs=3e-5)

    slider.focus()
    tab.page.keyboard.press("ArrowRight")
    assert slider.input_value() == str(3 * STEP)
    assert tab.page.evaluate(where) == pytest.approx([model.lon[3], model.lat[3]], abs=2e-6)
    assert slider.get_attribute("aria-valuetext") == "10:00:45, step 4 of 14"
    tab.page.keyboard.press("ArrowLeft")
    tab.page.keyboard.press("ArrowLeft")
    assert slider.input_value() == str(STEP)
    tab.page.keyboard.press("End")
    assert tab.page.evaluate(where) == pytest.approx([model.lon[13], model.lat[13]], abs=2e-6)
    here = tab.page.locator("#here-facts").inner_text()
    assert f"{model.segment[13]}" in here
    assert f"{700 + model.segment[13]}" in here
    assert "24 km/h" in here or "12 km/h" in here


def test_play_moves_on_by_itself_and_pause_stops_it(tab: Tab) -> None:
    tab.page.get_by_label("Speed").select_option("10")
    button = tab.page.get_by_role("button", name="Play")
    button.focus()
    tab.page.keyboard.press("Enter")
    tab.until("Number(document.getElementById('slider').value) >= 5")
    tab.page.get_by_role("button", name="Pause").click()
    stopped = tab.page.evaluate("tedtrajrec.timeline.time")
    tab.page.wait_for_timeout(300)
    assert tab.page.evaluate("tedtrajrec.timeline.time") == stopped
    assert START < stopped < START + 13 * STEP


def test_pointing_at_the_line_says_what_is_there(tab: Tab, model: RecoveredTrips) -> None:
    tab.page.mouse.move(*tab.pixel_of(((model.lon[2] + model.lon[3]) / 2, (model.lat[2] + model.lat[3]) / 2)))
    popup = tab.page.locator(".step-popup")
    popup.wait_for()
    text = popup.inner_text()
    for part in (f"{model.segment[3]} (residential)", f"{700 + model.segment[3]}", "10:00:45", "12 km/h", "30.0 %"):
        assert part in text, text
    tab.page.mouse.move(5, 5)
    popup.wait_for(state="detached")


def test_trips_are_chosen_by_keys_and_breaks_are_dashed(tab: Tab, model: RecoveredTrips) -> None:
    first = tab.page.get_by_role("option", name="drive 1")
    first.focus()
    tab.page.keyboard.press("ArrowDown")
    tab.page.keyboard.press("ArrowDown")
    tab.drawn()
    assert tab.page.locator("#trips").get_by_role("option", selected=True).inner_text().startswith("drive 3")
    assert tab.page.locator("#trip-name").inner_text() == "drive 3"
    assert "break: no drivable way" in tab.page.locator("#legend").inner_text()
    found = tab.until("tedtrajrec.maps[0].view.queryRenderedFeatures({ layers: ['break'] }).length")
    assert found == 1
    assert tab.page.evaluate("tedtrajrec.maps[0].view.queryRenderedFeatures({ layers: ['truth'] }).length") > 0
    third = slice(model.offsets[2], model.offsets[3])
    driven = np.diff(model.time[third])[~model.broken[third][1:]].sum()
    assert driven < model.time[third][-1] - model.time[third][0]
    assert tab.page.evaluate("tedtrajrec.results.get('model').trips.get(tedtrajrec.key).drivenSeconds") == driven


def test_alternatives_are_listed_but_not_counted(open_tab: OpenTab, tiny_city: RoadNetwork, tmp_path: Path) -> None:
    first, second, _ = drives(tiny_city)
    rank = np.array([0, 1, 2, 0], np.int16)
    trips = recovered(
        tiny_city,
        [first, second, first, second],
        traj_id=np.array(["a", "a", "a", "b"], TEXT),
        rank=rank,
        share=np.full(4, 0.5, np.float32),
    )
    write_trips(trips.to_trips(), tmp_path / "more.parquet")
    map_file([tmp_path / "more.parquet"], tmp_path / "more.html")
    tab = open_tab((tmp_path / "more.html").as_uri())
    tab.until("globalThis.tedtrajrec?.key !== undefined")
    assert tab.page.locator("#trips").get_by_role("option").count() == 4
    assert tab.page.inner_text("#list-name") == "Trips (2)"
    assert tab.page.inner_text("#status") == "2 trips"


def test_two_methods_side_by_side_show_the_same_place(tab: Tab, tiny_city: RoadNetwork) -> None:
    tab.page.get_by_label("Side by side").check()
    tab.drawn()
    assert [pane.inner_text() for pane in tab.page.locator(".pane-name").all()] == ["model", "other"]
    tab.page.evaluate("for (const map of tedtrajrec.maps) map.vehicle.remove()")
    picture = screen(tab)
    on_right = (tiny_city.node_lon[6], (tiny_city.node_lat[6] + tiny_city.node_lat[12]) / 2)  # only "other" goes here
    assert shows(picture, tab.pixel_of(on_right, 1), UNKNOWN)
    assert not shows(picture, tab.pixel_of(on_right, 0), UNKNOWN)

    tab.page.evaluate("tedtrajrec.maps[0].view.jumpTo({ center: [-8.618, 41.152], zoom: 15.5 })")
    centres = "tedtrajrec.maps.map(({ view }) => [view.getCenter().lng, view.getCenter().lat, view.getZoom()])"
    left, right = tab.page.evaluate(centres)
    assert left == pytest.approx(right)
    assert "same as other" in tab.page.locator("#trip-facts").inner_text()

    tab.page.get_by_label("other", exact=True).check()
    tab.drawn()
    assert not tab.page.locator("#map-b").is_visible()
    assert "less than 50 %" not in tab.page.locator("#legend").inner_text()


def test_downloads_hold_what_was_in_the_file(tab: Tab, model: RecoveredTrips, tmp_path: Path) -> None:
    with tab.page.expect_download() as waiting:
        tab.page.get_by_role("button", name="CSV").click()
    path = tmp_path / waiting.value.suggested_filename
    waiting.value.save_as(path)
    assert path.name == "recovered-model.csv"
    loaded = RecoveredTrips.from_trips(read_trips(path))
    for name in ("traj_id", "offsets", "time", "lon", "lat", "segment", "ratio", "osm_way_id", "observed", "broken"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name), err_msg=name)
    np.testing.assert_allclose(loaded.probability, model.probability, atol=1e-6)

    with tab.page.expect_download() as waiting:
        tab.page.get_by_role("button", name="GeoJSON").click()
    collection = json.loads(waiting.value.path().read_text())
    assert [one["properties"]["traj_id"] for one in collection["features"]] == model.traj_id.tolist()
    line = np.array(collection["features"][0]["geometry"]["coordinates"])
    np.testing.assert_array_equal(line[:, 0], model.lon[:14])


def test_all_controls_are_reached_by_tab_and_show_it(open_tab: OpenTab, html: str) -> None:
    tab = open_tab(html)
    tab.drawn()
    reached = []
    for _ in range(25):
        tab.page.keyboard.press("Tab")
        name, ring = tab.page.evaluate("""() => {
            const here = document.activeElement;
            const shown = [here, here.nextElementSibling].filter(Boolean);
            const ring = shown.some((one) => {
                const style = getComputedStyle(one);
                return style.outlineStyle !== "none" || style.boxShadow !== "none";
            });
            const name = here.id || here.value || here.ariaLabel || here.textContent;
            return [name.trim().slice(0, 40), ring];
        }""")
        if "Play" in name or name in ("play", "slider", "csv", "geojson", "rate", "model"):
            assert ring, name
        reached.append(name)
    wanted = ["model", "Zoom in", "play", "slider", "rate", "csv", "geojson"]
    assert [name for name in reached if name in wanted][: len(wanted)] == wanted
    order = [next(i for i, name in enumerate(reached) if name.startswith(part)) for part in ("rate", "drive 1", "csv")]
    assert order == sorted(order)


def test_no_sideways_scrolling_at_any_width(open_tab: OpenTab, html: str) -> None:
    tab = open_tab(html, width=390, height=740)
    tab.drawn()
    for side_by_side in (False, True):
        if side_by_side:
            tab.page.get_by_label("Side by side").check()
        for width in (320, 390, 768):
            tab.page.set_viewport_size({"width": width, "height": 740})
            tab.drawn()
            assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
            outside = tab.page.evaluate("""() => [...document.querySelectorAll("button, select, input, h2, dd, li")]
                .filter((one) => one.checkVisibility() && one.getBoundingClientRect().right > innerWidth + 1)
                .map((one) => one.outerHTML.slice(0, 80))""")
            assert outside == []


def test_dark_and_light_follow_the_system(tab: Tab) -> None:
    corner = (390, 500)  # ground beside the tiny city
    light = screen(tab)[corner[1], corner[0]]
    tab.page.emulate_media(color_scheme="dark")
    tab.drawn()
    tab.until("tedtrajrec.maps[0].view.queryRenderedFeatures({ layers: ['trip'] }).length")
    dark = screen(tab)[corner[1], corner[0]]
    tab.page.emulate_media(color_scheme="light")
    assert light.min() > 200
    assert dark.max() < 60
