import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.evaluation.drivable import MOTORWAY_MPS, check_drives
from tedtrajrec.network.routing import Router
from tedtrajrec.trips.readers import read_trips
from tests.conftest import make_grid
from tests.evaluation.drive_checker import NetworkxGaps, ScipyGaps, check_trip

CITY = make_grid()
ROUTER = Router(CITY)
SCIPY, NETWORKX = ScipyGaps(CITY), NetworkxGaps(CITY)
STEP_S = 15
COUNTS = ("moves", "breaks", "no_path", "backward", "far", "unplaced")


def both(network, router, gaps, offsets, segment, ratio, lon, lat, observed, **options):
    """Return the counts of every trip by the package and by the checker, and which are drivable by either."""
    drives = check_drives(
        router, offsets, segment, ratio, step_s=STEP_S, fix_lon=lon, fix_lat=lat, observed=observed, **options
    )
    speed = options.get("top_speed_mps", 40.0)
    verdicts = []
    for first, last in itertools.pairwise(offsets.tolist()):
        rows = range(first, last)
        fixes = [(float(lon[i]), float(lat[i])) if observed[i] else None for i in rows]
        verdicts.append(
            check_trip(network, gaps, segment[first:last], ratio[first:last], fixes, step_s=STEP_S, top_speed_mps=speed)
        )
    return drives, verdicts


def assert_same(drives, verdicts):
    for name in COUNTS:
        got, expected = getattr(drives, name), [getattr(verdict, name) for verdict in verdicts]
        np.testing.assert_array_equal(got, expected, err_msg=name)
    np.testing.assert_array_equal(drives.drivable, [verdict.drivable for verdict in verdicts])


@st.composite
def answers(draw):
    """Positions on the grid, mostly not far from the last, and fixes mostly near them."""
    n = draw(st.lists(st.integers(0, 8), min_size=1, max_size=4))
    offsets = np.concatenate([[0], np.cumsum(n)]).astype(np.int64)
    segment = np.full(offsets[-1], -1)
    here = 0
    for i in range(len(segment)):
        kind = draw(st.integers(0, 9))
        if kind == 0:
            continue
        if kind == 1:
            here = draw(st.integers(0, len(CITY) - 1))
        elif kind > 4:
            here = int(draw(st.sampled_from(CITY.successors(here).tolist())))
        segment[i] = here
    ratio = np.array(draw(st.lists(st.floats(0, 1, width=32), min_size=len(segment), max_size=len(segment))))
    away = st.floats(0, 99) | st.floats(101, 130)  # sphere and ellipsoid differ by a part in a thousand
    off_m = np.array(draw(st.lists(away, min_size=len(segment), max_size=len(segment))))
    lon, lat = CITY.point_at(np.maximum(segment, 0), ratio)
    observed = np.array(draw(st.lists(st.booleans(), min_size=len(segment), max_size=len(segment))), bool)
    return offsets, segment, ratio, lon, lat + off_m / 111_195, observed


@settings(max_examples=80)
@given(trips=answers(), top_speed_mps=st.sampled_from([3.0, 20.0, 40.0, 60.0]))
def test_the_checker_says_the_same_on_the_grid(trips, top_speed_mps):
    drives, verdicts = both(CITY, ROUTER, NETWORKX, *trips, top_speed_mps=top_speed_mps)
    assert_same(drives, verdicts)
    _, by_scipy = both(CITY, ROUTER, SCIPY, *trips, top_speed_mps=top_speed_mps)
    assert by_scipy == verdicts
    _, slow = both(CITY, ROUTER, NETWORKX, *trips, top_speed_mps=MOTORWAY_MPS)
    np.testing.assert_array_equal(drives.breaks_120kmh, [verdict.breaks for verdict in slow])
    np.testing.assert_array_equal(drives.drivable_120kmh, [verdict.drivable for verdict in slow])


def check(segment, ratio, **options):
    return check_drives(ROUTER, np.array([0, len(segment)]), np.array(segment), np.array(ratio), step_s=10, **options)


def test_each_fault_by_hand():
    assert check([0, 0, 2], [0.2, 0.2, 0.1]).drivable.all()
    assert check([0, 0], [0.5, 0.495]).drivable.all()  # half a metre back is standing
    assert check([0, 0], [0.5, 0.48]).backward.tolist() == [1]
    assert check([0, 0], [0.5, 0.48]).breaks.tolist() == [0]  # and nothing else, though a loop would do
    assert check([0, 6], [0.0, 0.5]).breaks.tolist() == [0]  # 350 m in 10 s
    assert check([0, 6], [0.0, 0.5]).breaks_120kmh.tolist() == [1]
    assert check([0, 6], [0.0, 0.5], top_speed_mps=30).breaks.tolist() == [1]
    assert check([0, -1, 6], [0.0, 0.0, 0.5]).breaks_120kmh.tolist() == [0]  # 20 s
    nowhere = check([0, -1, 6], [0.0, 0.0, 0.5])
    assert (nowhere.moves.tolist(), nowhere.unplaced.tolist(), nowhere.drivable.tolist()) == ([1], [1], [False])
    lon, lat = CITY.point_at([0, 0], [0.2, 0.2])
    for metres, far in ((99, 0), (101, 1)):
        fix = {"fix_lon": lon, "fix_lat": lat + metres / 111_195, "observed": np.array([False, True])}
        assert check([0, 0], [0.2, 0.2], **fix).far.tolist() == [far]


def test_a_network_in_two_pieces():
    """The last street of a grid without U-turns leads out of a dead end nowhere: one way only."""
    street = make_grid(4, 1, one_way_row=0)
    router = Router(street)
    drives = check_drives(
        router, np.array([0, 2, 4]), np.array([0, 2, 2, 0]), np.array([0.5, 0.5, 0.5, 0.5]), step_s=STEP_S
    )
    assert drives.breaks.tolist() == drives.no_path.tolist() == [0, 1]
    assert drives.summary()["without_path"] == drives.summary()["broken"] == 0.5


def test_the_summary():
    drives = check_drives(ROUTER, np.array([0, 2, 2, 4]), np.array([0, 0, 0, 6]), np.array([0.5, 0.1, 0, 1]), step_s=5)
    summary = drives.summary()
    assert summary["drivable"] == pytest.approx(1 / 3)
    assert summary["breaks_per_trip"] == summary["backward_per_trip"] == pytest.approx(1 / 3)
    assert summary["no_path_per_trip"] == 0
    none = check_drives(ROUTER, np.array([0]), np.zeros(0, int), np.zeros(0), step_s=5)
    assert len(none) == 0
    assert np.isnan(none.summary()["drivable"])


def test_what_cannot_be_checked():
    with pytest.raises(ValueError, match="metres"):
        check_drives(Router(CITY, cost=np.ones(len(CITY))), np.array([0]), np.zeros(0, int), np.zeros(0), step_s=5)
    with pytest.raises(ValueError, match="positive"):
        check([0], [0.5], top_speed_mps=0)


@pytest.mark.real
def test_the_truth_of_chengdu_cannot_all_be_driven(data_dir, peers_dir, chengdu):
    """The map lacks roads: 39 % of the fully matched test trips cannot be driven at 120 km/h, as the checker says."""
    table = read_trips(data_dir / "chengdu" / "trips.csv.gz", timezone="Asia/Shanghai")
    number = {traj_id: i for i, traj_id in enumerate(table.traj_id.tolist())}
    trips = table.select(
        np.array([number[x] for x in json.loads((peers_dir / "chengdu828.json").read_text())["trips"]])
    )
    order = np.argsort(chengdu.source_id)
    segment = order[np.searchsorted(chengdu.source_id, np.ma.getdata(trips.extra["edge_id"]), sorter=order)]
    observed = np.ones(trips.n_fixes, bool)
    places = trips.offsets, segment, trips.ratio, trips.lon, trips.lat, observed
    drives, verdicts = both(chengdu, Router(chengdu), ScipyGaps(chengdu), *places, top_speed_mps=MOTORWAY_MPS)
    assert_same(drives, verdicts)
    np.testing.assert_array_equal(drives.breaks, drives.breaks_120kmh)
    assert round(1 - drives.drivable.mean(), 2) == 0.39
    assert (drives.no_path > 0).sum() == 142
