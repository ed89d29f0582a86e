"""The map page over the running service in a real browser."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import matplotlib.image
import numpy as np
import pytest

from tedtrajrec.data.sampling import thin_trips
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from tedtrajrec.network.synthetic import SIZES, synthetic_city
from tedtrajrec.recovery.recovered import RecoveredTrips
from tedtrajrec.trips.readers import read_trips
from tedtrajrec.trips.simulate import simulate_trips
from tedtrajrec.trips.table import Trips
from tedtrajrec.trips.writers import write_trips
from tests.e2e.conftest import Tab

OpenTab = Callable[..., Tab]

RUBBISH = {"name": "rubbish.csv", "mimeType": "text/csv", "buffer": b"hello,world\n1,2\n"}


@dataclass(frozen=True)
class Site:
    """A running service, and what it serves."""

    url: str
    client: httpx.Client
    city: RoadNetwork
    sparse: Path  # CSV of sparse trips
    gpx: Path  # the first of them
    served: Any  # what the service has loaded


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Serve a made-up city with two methods that need no training."""
    pytest.importorskip("fastapi", reason="the service is not installed")
    from tedtrajrec.server.loading import load_served
    from tedtrajrec.server.settings import ServerSettings
    from tests.server.running import running

    folder = tmp_path_factory.mktemp("site")
    city = synthetic_city(config=SIZES["small"])
    city.save(folder / "city.npz")
    dense = simulate_trips(city, trips=6, seed=3)
    thin = thin_trips(dense, "1/4")
    sparse = Trips(thin.traj_id, thin.offsets, thin.time, thin.lon, thin.lat)
    write_trips(dense, folder / "dense.parquet")
    write_trips(sparse, folder / "sparse.csv")
    write_trips(sparse.select([0]), folder / "one.gpx")
    settings = ServerSettings(
        network=folder / "city.npz",
        method="linear_hmm",
        examples=folder / "sparse.csv",
        truth=folder / "dense.parquet",
    )
    served = load_served(settings)  # before the service waits for it, as kernels may have to be compiled
    with running(settings, lambda _: served) as client:
        yield Site(str(client.base_url), client, city, folder / "sparse.csv", folder / "one.gpx", served)


@pytest.fixture(scope="module")
def opened(open_tab: OpenTab, site: Site) -> Tab:
    return open_tab(site.url)


@pytest.fixture
def tab(opened: Tab) -> Tab:
    """Return the page with its network loaded and the first method chosen; a trip may be shown already."""
    opened.until("globalThis.tedtrajrec?.network")
    opened.page.get_by_label("linear_hmm", exact=True).check()
    return opened


def give(tab: Tab, file: Path) -> None:
    """Choose a file and wait until it is drawn."""
    tab.page.evaluate("tedtrajrec.key = undefined")
    tab.page.set_input_files("#file", file)
    tab.drawn()


def answer_of(site: Site, method: str) -> list[dict[str, list[float]]]:
    answer = site.client.post(
        "/v1/recover",
        params={"method": method},
        content=site.sparse.read_bytes(),
        headers={"Content-Type": "text/csv"},
    )
    trips: list[dict[str, list[float]]] = answer.raise_for_status().json()["trips"]
    return trips


def blue_at(tab: Tab, point: tuple[float, float]) -> bool:
    """Return whether the line of a trip (blue or slate, with or without probability) is drawn at a place."""
    x, y = tab.pixel_of(point)
    picture = matplotlib.image.imread(io.BytesIO(tab.page.screenshot()), format="png")
    part = (picture[y - 4 : y + 5, x - 4 : x + 5, :3] * 255).round()
    wanted = np.array([[0x00, 0x4D, 0x8C], [0x2F, 0x9B, 0xD8], [0x45, 0x56, 0x6B], [0xE6, 0x9F, 0], [0xC4, 0x3C, 0]])
    return bool((np.abs(part[:, :, None] - wanted).max(axis=3) <= 12).any())


def test_a_chosen_file_is_recovered_and_drawn_on_the_road(tab: Tab, site: Site) -> None:
    page = tab.page
    give(tab, site.sparse)
    expected = answer_of(site, "linear_hmm")
    assert page.locator("#trips").get_by_role("option").count() == len(expected) == 6
    assert page.evaluate("tedtrajrec.timeline.trip.raw.lon") == expected[0]["lon"]
    fixes = page.evaluate("tedtrajrec.maps[0].data.fixes.features.map(({ geometry }) => geometry.coordinates)")
    given = read_trips(site.sparse).select([0])
    assert fixes == np.column_stack([given.lon, given.lat]).tolist()
    page.evaluate("tedtrajrec.maps[0].vehicle.remove()")
    middle = len(expected[0]["lon"]) // 2 + 1
    assert blue_at(tab, (expected[0]["lon"][middle], expected[0]["lat"][middle]))
    own = [url for url in tab.requests if not url.startswith((site.url, "blob:", "data:"))]
    assert own == []
    assert tab.errors == []  # nor anything that the policy of the page forbids


def test_the_lines_between_steps_are_the_routes_of_the_router(tab: Tab, site: Site) -> None:
    give(tab, site.sparse)
    shown = tab.page.evaluate("""() => [...tedtrajrec.results.get("linear_hmm").trips.values()].map(
        ({ raw, ways }) => ({ segment: raw.segment, ratio: raw.ratio, metres: ways.map(({ metres }) => metres),
                              broken: ways.map(({ broken }) => broken) }))""")
    router = Router(site.city)
    checked = 0
    for trip in shown:
        segment, ratio = np.array(trip["segment"]), np.array(trip["ratio"])
        metres = router.distances(segment[:-1], ratio[:-1], segment[1:], ratio[1:])
        forwards = ~np.array(trip["broken"]) & np.isfinite(metres) & (metres < 2_000)
        np.testing.assert_allclose(np.array(trip["metres"])[forwards], metres[forwards], rtol=2e-3, atol=1.0)
        checked += int(forwards.sum())
    assert checked > 100


def test_a_dropped_gpx_file_is_recovered(tab: Tab, site: Site) -> None:
    tab.page.evaluate("tedtrajrec.key = undefined")
    content = site.gpx.read_text()
    tab.page.evaluate(
        """(content) => {
            const files = new DataTransfer();
            files.items.add(new File([content], "one.gpx"));
            const about = { dataTransfer: files, bubbles: true, cancelable: true };
            for (const kind of ["dragover", "drop"]) document.body.dispatchEvent(new DragEvent(kind, about));
        }""",
        content,
    )
    tab.drawn()
    assert tab.page.locator("#trips").get_by_role("option").count() == 1


def test_an_example_shows_its_truth_and_another_method_another_trip(tab: Tab, site: Site) -> None:
    page = tab.page
    page.evaluate("tedtrajrec.key = undefined")
    page.get_by_label("or look at").select_option(index=1)
    tab.drawn()
    assert "match the truth" in page.locator("#trip-facts").inner_text()
    assert page.evaluate("tedtrajrec.maps[0].view.queryRenderedFeatures({ layers: ['truth'] }).length") > 0
    before = page.evaluate("tedtrajrec.timeline.trip.raw.segment")
    page.get_by_label("route_hmm", exact=True).check()
    tab.until("tedtrajrec.results.has('route_hmm') && document.querySelector('#trip-facts').textContent")
    tab.drawn()
    after = page.evaluate("tedtrajrec.timeline.trip.raw.segment")
    assert after == answer_of(site, "route_hmm")[0]["segment"]
    assert before == answer_of(site, "linear_hmm")[0]["segment"]
    page.get_by_label("Side by side").check()
    tab.drawn()
    assert page.locator("#map-b").is_visible()

    slider = page.get_by_role("slider", name="Time in the trip")
    slider.focus()
    places = "tedtrajrec.maps.map(({ vehicle }) => [vehicle.getLngLat().lng, vehicle.getLngLat().lat])"
    at_start = page.evaluate(places)
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    moved = page.evaluate(places)
    assert all(a != b for a, b in zip(at_start, moved, strict=True))


def test_downloads_are_what_the_service_answers(tab: Tab, site: Site, tmp_path: Path) -> None:
    give(tab, site.sparse)
    with tab.page.expect_download() as waiting:
        tab.page.get_by_role("button", name="CSV").click()
    ours = tmp_path / "page.csv"
    waiting.value.save_as(ours)
    theirs = tmp_path / "service.csv"
    headers = {"Content-Type": "text/csv", "Accept": "text/csv"}
    theirs.write_bytes(site.client.post("/v1/recover", content=site.sparse.read_bytes(), headers=headers).content)
    a, b = (RecoveredTrips.from_trips(read_trips(path)) for path in (ours, theirs))
    for name in ("traj_id", "offsets", "time", "lon", "lat", "segment", "ratio", "osm_way_id", "observed", "broken"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    with tab.page.expect_download() as waiting:
        tab.page.get_by_role("button", name="GeoJSON").click()
    assert len(json.loads(waiting.value.path().read_text())["features"]) == 6


def test_rubbish_is_answered_in_words_and_leaves_the_trips_alone(tab: Tab, site: Site) -> None:
    page = tab.page
    give(tab, site.sparse)
    page.set_input_files("#file", RUBBISH)
    tab.until("document.querySelector('#error').textContent.startsWith('No column')")
    alert = page.get_by_role("alert")
    assert alert.inner_text() == (
        "No column for traj_id, timestamp, lon and lat; found: hello, world. Rename a column to traj_id, a column to "
        "timestamp, a column to lon and a column to lat. For a single vehicle, add a column with one value."
    )
    page.set_input_files("#file", {"name": "holiday.jpg", "mimeType": "image/jpeg", "buffer": b"\xff\xd8"})
    tab.until("document.querySelector('#error').textContent.startsWith('holiday.jpg is not a kind of file')")
    page.set_input_files("#file", {"name": "broken.gpx", "mimeType": "", "buffer": b"<gpx><trk>"})
    tab.until("document.querySelector('#error').textContent.startsWith('The XML is broken')")
    naive = b"traj_id,timestamp,lon,lat\na,2013-07-01 10:00:00,-8.6,41.1\na,2013-07-01 10:01:00,-8.6,41.1\n"
    page.set_input_files("#file", {"name": "naive.csv", "mimeType": "text/csv", "buffer": naive})
    tab.until("document.querySelector('#error').textContent.includes('under Options')")
    assert "?timezone" not in alert.inner_text()
    assert page.locator("#trips").get_by_role("option").count() == 6
    page.set_input_files("#file", site.gpx)
    alert.wait_for(state="hidden")


def test_a_service_that_is_gone_is_said_to_be_gone(tab: Tab, site: Site) -> None:
    tab.page.route("**/v1/recover*", lambda route: route.abort())
    tab.page.set_input_files("#file", site.sparse)
    tab.page.get_by_text("The service does not answer.").wait_for()
    tab.page.unroute("**/v1/recover*")


def test_options_go_to_the_service(tab: Tab, site: Site) -> None:
    page = tab.page
    give(tab, site.gpx)
    steps = page.evaluate("tedtrajrec.timeline.trip.length")
    page.get_by_text("Options", exact=True).click()
    page.get_by_label("Seconds between steps").fill("5")
    page.keyboard.press("Tab")
    tab.until(f"tedtrajrec.timeline.trip.length > {2 * steps}")
    page.get_by_label("Seconds between steps").fill("")
    page.keyboard.press("Tab")
    tab.until(f"tedtrajrec.timeline.trip.length === {steps}")


def test_nothing_recoverable_is_said_with_the_reason(tab: Tab) -> None:
    ocean = b"traj_id,timestamp,lon,lat\nship,1372672800,-30,41\nship,1372672900,-30.01,41\n"
    tab.page.set_input_files("#file", {"name": "ocean.csv", "mimeType": "text/csv", "buffer": ocean})
    said = tab.until("document.querySelector('#error').textContent.match(/^None of the trips.*/)?.[0]")
    assert said.startswith("None of the trips could be recovered. Why: fewer than two fixes that can be used; no road")
    assert said.endswith(": is this the network of their city?")


def test_a_token_is_asked_for_where_one_is_wanted(open_tab: OpenTab, site: Site) -> None:
    from tedtrajrec.server.settings import ServerSettings
    from tests.server.running import running

    settings = ServerSettings(network=site.sparse.parent / "city.npz", token="a-secret-of-some-length")
    with running(settings, lambda _: site.served) as client:
        tab = open_tab(str(client.base_url))
        page = tab.page
        page.get_by_label("This service wants a token").fill("wrong")
        page.get_by_role("button", name="Go on").click()
        page.get_by_role("alert").wait_for()
        page.get_by_label("This service wants a token").fill("a-secret-of-some-length")
        page.keyboard.press("Enter")
        page.get_by_text("Drop a file of sparse GPS fixes").wait_for()
        page.set_input_files("#file", site.gpx)
        tab.drawn()
        assert not page.get_by_role("alert").is_visible()


def test_the_empty_page_fits_a_phone(open_tab: OpenTab, site: Site) -> None:
    tab = open_tab(site.url, width=360, height=740)
    tab.page.get_by_text("Drop a file of sparse GPS fixes").wait_for()
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 360
    assert not tab.page.locator("#side").is_visible()
