"""The case study: which trip is drawn, where methods differ on it, and what is written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.errors import InputError
from tedtrajrec.evaluation.run import Draw, draw_steps
from tedtrajrec.experiments.case_study import case_study
from tedtrajrec.experiments.case_study_choice import areas_of, on_true_routes, rank_trips
from tedtrajrec.experiments.case_study_plot import step_lines
from tedtrajrec.experiments.plan import Cell
from tedtrajrec.experiments.report import make_report
from tedtrajrec.experiments.trips import CellTrips
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from tests.conftest import make_grid
from tests.evaluation.walks import walk_dataset, walk_trips

STEPS = 17


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Return trips that drive at most 200 m in 15 s, all of the same length but for the last two."""
    network = make_grid(8, 8, spacing_m=90.0, one_way_row=None)
    trips = walk_trips(network, [STEPS] * 12 + [9, 9], seed=4, noise_m=1.0)
    ratio = trips.ratio.copy()
    same = np.flatnonzero(np.diff(trips.segment) == 0) + 1
    for step in same.tolist():  # nobody reverses
        ratio[step] = max(ratio[step], ratio[step - 1])
    trips = trips.replace(ratio=ratio)
    lon, lat = network.point_at(trips.segment, ratio)
    return walk_dataset(tmp_path_factory.mktemp("case") / "city", network, trips.replace(lon=lon, lat=lat))


@pytest.fixture(scope="module")
def draw(city: Dataset) -> Draw:
    return draw_steps(city, keep="1/4")


def cell_of(city: Dataset, draw: Draw, wrong: dict[int, slice], *, observed: np.ndarray | None = None) -> CellTrips:
    """Return the truth, but in some steps of some trips another segment that the trip never drives on."""
    trips = city.split("test").trips()
    segment = trips.segment.copy()
    for trip, steps in wrong.items():
        rows = np.arange(trips.offsets[trip], trips.offsets[trip + 1])
        route = set(on_route_of(city, trip))
        segment[rows[steps]] = next(s for s in range(city.network.n_segments) if s not in route)
    accuracy = np.array(
        [(segment[a:b] == trips.segment[a:b]).mean() for a, b in zip(trips.offsets, trips.offsets[1:], strict=False)]
    ).astype(np.float32)
    seen = draw.observed if observed is None else observed
    metrics = (accuracy, *(np.zeros_like(accuracy) for _ in range(5)))
    ids = np.array(trips.traj_id.tolist(), np.str_)
    return CellTrips(ids, draw.offsets, seen, segment, trips.ratio.astype(np.float16), *metrics)


def on_route_of(city: Dataset, trip: int) -> list[int]:
    """Return the segments of one true trip by following its routes one after another."""
    trips = city.split("test").trips([trip])
    router, found = Router(city.network), []
    for k in range(len(trips.segment) - 1):
        routes = router.routes(trips.segment[k], trips.ratio[k], trips.segment[k + 1], trips.ratio[k + 1])
        found += routes[0].tolist()
    return found


def unseen(draw: Draw, trip: int) -> np.ndarray:
    """Return the steps of a trip that were not given."""
    return np.flatnonzero(~draw.observed[draw.offsets[trip] : draw.offsets[trip + 1]])


def write(folder: Path, city: Dataset, method: str, cell: CellTrips, **changed) -> None:
    """Write what a method recovered, with its row."""
    of = {"group": "performance", "variant": "", "dataset": "city", "keep": "1/4", "seed": 0, "settings": ()}
    made = Cell(method=method, **{**of, **{name: value for name, value in changed.items() if name in of}})
    (folder / "trips").mkdir(parents=True, exist_ok=True)
    with (folder / "trips" / f"{made.name}.npz").open("wb") as stream:
        np.savez_compressed(stream, **cell._asdict())
    network = changed.get("network", city.info.network_hash)
    row = {
        "cell": {**vars(made), "settings": []},
        "finished": True,
        "metrics": {"test": {"accuracy": float(cell.accuracy.mean())}},
        "network": network,
    }
    (folder / f"{made.name}.json").write_text(json.dumps(row))


@pytest.fixture
def results(city: Dataset, draw: Draw, tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    one, two = unseen(draw, 3), unseen(draw, 5)
    write(folder, city, "start", cell_of(city, draw, {3: one[:3], 5: two[:6]}))
    write(folder, city, "jgrm", cell_of(city, draw, {3: one[:1]}))
    write(folder, city, "tedtrajrec_parallel", cell_of(city, draw, {}))
    return folder


def test_the_trip_on_which_methods_differ_most(city, draw, results, tmp_path) -> None:
    picture = case_study(city, results, tmp_path / "out", keep="1/4")
    row = json.loads(picture.with_suffix(".json").read_text("utf-8"))
    assert picture.name == "case-study-city-1of4.png"
    assert {"kind": row["kind"], "title": row["title"], "file": row["file"]} == {
        "kind": "picture", "title": "Case study", "file": picture.name,
    }  # fmt: skip
    assert row["trip"] == "trip 5"
    best, second = row["candidates"][:2]
    # Six of its steps are off the route by one method of three, so two of three pairs differ there.
    assert best["trip"] == "trip 5"
    assert best["difference"] == pytest.approx(6 / STEPS * 2 / 3, abs=1e-4)
    assert second["trip"] == "trip 3"
    assert second["difference"] == pytest.approx(3 / STEPS * 2 / 3, abs=1e-4)
    assert best["accuracy"] == pytest.approx(
        {"start": 1 - 6 / STEPS, "jgrm": 1.0, "tedtrajrec_parallel": 1.0}, abs=1e-4
    )
    steps = unseen(draw, 5)[:6]
    assert min(area[0] for area in row["areas"].values()) == steps[0]
    assert f"START + Decoder {number(1 - 6 / STEPS)}" in row["caption"]
    assert "Not drawn, for want of recovered trips: RNTrajRec, MM-STGED, TedTrajRec." in row["caption"]
    assert "START + Decoder with 11 of 17 steps right" in row["alt"]
    with Image.open(picture) as image:
        assert image.width == 1500
    assert picture.with_suffix(".svg").read_text("utf-8").startswith("<?xml")


def number(value: float) -> str:
    return f"{value:.2f}".removeprefix("0")


def test_the_same_files_each_time(city, results, tmp_path) -> None:
    first, second = (case_study(city.path, [results], tmp_path / name, keep="1/4") for name in ("one", "two"))
    for suffix in (".png", ".svg", ".json"):
        assert first.with_suffix(suffix).read_bytes() == second.with_suffix(suffix).read_bytes()


def test_the_report_shows_it(city, results, tmp_path) -> None:
    case_study(city, results, results, keep="1/4", methods=["jgrm", "start"])
    page = make_report(results, tmp_path / "report")
    text = page.with_suffix(".md").read_text("utf-8")
    assert "## Case study" in text
    assert "figures/case-study-city-1of4.png" in text


def test_methods_that_were_asked_for_and_folders_are_joined(city, draw, results, tmp_path) -> None:
    other = tmp_path / "other"
    write(other, city, "lookup", cell_of(city, draw, {2: unseen(draw, 2)[:4]}))
    write(other, city, "rntrajrec", cell_of(city, draw, {}), group="ablation")
    write(other, city, "mm_stged", cell_of(city, draw, {}), network="another")
    write(other, city, "tedtrajrec", cell_of(city, draw, {}), keep="1/8")
    picture = case_study(
        city, [results, other], tmp_path / "out", methods=["rntrajrec", "mm_stged", "tedtrajrec", "lookup", "jgrm"],
        keep="1/4",
    )  # fmt: skip
    row = json.loads(picture.with_suffix(".json").read_text("utf-8"))
    assert row["trip"] == "trip 2"
    assert row["rows"] == ["performance-city-jgrm-1of4-0.json", "performance-city-lookup-1of4-0.json"]
    assert "RNTrajRec, MM-STGED, TedTrajRec." in row["caption"]
    with Image.open(picture) as image:
        assert image.width == 1000


def test_trips_take_no_part(city, draw) -> None:
    trips = city.split("test").trips()
    seen = np.flatnonzero(draw.observed[draw.offsets[1] : draw.offsets[2]])
    # Trip 1 is off the route at a fix, trip 12 is short, and trip 4 has no answer at a step.
    wrong = {1: np.append(unseen(draw, 1), seen[1]), 12: unseen(draw, 12), 6: unseen(draw, 6)[:1]}
    other = cell_of(city, draw, wrong)
    other.segment[draw.offsets[4] + unseen(draw, 4)[0]] = -1
    cells = {"a": cell_of(city, draw, {}), "b": other}
    ranking = rank_trips(city, trips, cells)
    assert ranking.order[0] == 6
    assert not {1, 4, 12, 13} & set(ranking.order.tolist())
    assert ranking.difference[1] > ranking.difference[6]
    assert ranking.difference[12] > ranking.difference[6]
    # Where methods do not differ, ids decide: trip 10 comes before trip 2.
    rest = [f"trip {i}" for i in ranking.order[1:].tolist()]
    assert rest == sorted(rest)
    assert len(rest) >= 4

    dark = trips.replace(segment=np.where(np.arange(trips.n_fixes) == draw.offsets[6] + 2, -1, trips.segment))
    assert 6 not in rank_trips(city, dark, cells).order


def test_answers_on_the_true_routes(city) -> None:
    trips = city.split("test").trips()
    n = city.network.n_segments
    rng = np.random.default_rng(0)
    segment = rng.integers(-1, n, (3, trips.n_fixes)).astype(np.int32)
    segment[0, ::2] = trips.segment[::2]
    found = on_true_routes(Router(city.network), trips, segment)
    for trip in range(len(trips)):
        rows = slice(trips.offsets[trip], trips.offsets[trip + 1])
        route = on_route_of(city, trip)
        assert found[:, rows].tolist() == np.isin(segment[:, rows], route).tolist()


def test_areas_are_stretches_between_fixes() -> None:
    observed = np.isin(np.arange(16), [0, 4, 8, 12, 15])
    on_route = np.ones((2, 16), bool)
    assert areas_of(on_route, observed) == ()
    on_route[0, [1, 3]] = False
    on_route[1, [5, 6, 7, 13]] = False
    on_route[:, [9, 10]] = False  # both are off: they do not differ
    assert areas_of(on_route, observed) == (("A", 1, 3), ("B", 5, 7), ("C", 13, 13))


def test_of_many_areas_the_worst_are_kept() -> None:
    observed = np.arange(24) % 4 == 0
    on_route = np.ones((3, 24), bool)
    on_route[0, [1, 5, 9, 13, 17, 21]] = False
    on_route[1, [9, 21]] = False
    areas = areas_of(on_route, observed)
    assert [area.letter for area in areas] == ["A", "B", "C", "D"]
    assert [area.first for area in areas] == [1, 5, 9, 21]


def test_lines_between_steps() -> None:
    network: RoadNetwork = make_grid(3, 1, spacing_m=100.0, one_way_row=None, u_turns=True)
    east = [s for s in range(4) if network.node_lon[network.seg_from[s]] < network.node_lon[network.seg_to[s]]]
    segment = np.array([east[0], east[1], east[1], east[0]], np.int32)
    ratio = np.array([0.5, 0.5, 0.2, 0.0])
    lines, driven = step_lines(network, segment, ratio, reach_m=150.0)
    assert driven.tolist() == [True, True, False]  # forwards; back a little on one segment; too far in a step
    x = network.plane.to_xy(*network.point_at(segment, ratio))[0]
    for k, line in enumerate(lines):
        assert line[[0, -1], 0] == pytest.approx(x[k : k + 2])
    assert np.abs(np.diff(lines[0][:, 0])).sum() == pytest.approx(100, abs=0.1)
    assert len(lines[0]) == 3  # along the road, past the node
    assert len(lines[2]) == 2


def test_what_does_not_fit_is_told(city, draw, results, tmp_path) -> None:
    with pytest.raises(InputError, match=r"recovered trips of 0 of these methods: lookup, start"):
        case_study(city, results, tmp_path, methods=["lookup", "start"], keep="1/8")
    with pytest.raises(
        InputError, match=r"trips of 1 of these.*those that are there: start, jgrm, tedtrajrec_parallel"
    ):
        case_study(city, results, tmp_path, methods=["lookup", "start"], keep="1/4")
    write(results, city, "lookup", cell_of(city, draw, {}, observed=~draw.observed))
    with pytest.raises(InputError, match=r"lookup-1of4-0\.npz: these are other trips or other fixes"):
        case_study(city, results, tmp_path, methods=["lookup", "start"], keep="1/4")
    strange = cell_of(city, draw, {})
    strange = strange._replace(traj_id=np.where(np.arange(14) == 2, "stranger", strange.traj_id))
    for method in ("rntrajrec", "mm_stged"):
        write(results, city, method, strange)
    with pytest.raises(InputError, match=r"row 3, column 'traj_id': trip 'stranger' is not among"):
        case_study(city, results, tmp_path, methods=["rntrajrec", "mm_stged"], keep="1/4")
    for method in ("rntrajrec", "mm_stged"):
        cell = cell_of(city, draw, {})
        write(results, city, method, cell._replace(offsets=cell.offsets + (np.arange(15) == 1)))
    with pytest.raises(InputError, match="other numbers of steps"):
        case_study(city, results, tmp_path, methods=["rntrajrec", "mm_stged"], keep="1/4")
    lost = {trip: slice(None) for trip in range(14)}
    write(results, city, "lookup", cell_of(city, draw, lost))
    with pytest.raises(InputError, match=r"of 14 test trips there is none"):
        case_study(city, results, tmp_path, methods=["lookup", "start"], keep="1/4")
    assert not list(tmp_path.glob("case-study*"))
