"""Metrics on the published Chengdu trips, whose network is broken in places."""

import json

import networkx
import numpy as np
import pytest

from tedtrajrec.evaluation.metrics import evaluate_trips, gaps_without_route
from tedtrajrec.network.routing import Router
from tedtrajrec.trips.readers import read_trips


@pytest.fixture(scope="module")
def trips(data_dir, peers_dir, chengdu):
    """Return the 828 fully matched test trips and the observed steps of their fixed draw at 1/8."""
    draw = json.loads((peers_dir / "chengdu828.json").read_text())["trips"]
    table = read_trips(data_dir / "chengdu" / "trips.csv.gz", timezone="Asia/Shanghai")
    number = {traj_id: i for i, traj_id in enumerate(table.traj_id.tolist())}
    table = table.select(np.array([number[traj_id] for traj_id in draw]))
    order = np.argsort(chengdu.source_id)
    segment = order[np.searchsorted(chengdu.source_id, np.ma.getdata(table.extra["edge_id"]), sorter=order)]
    observed = np.zeros(table.n_fixes, bool)
    for start, kept in zip(table.offsets.tolist(), draw.values(), strict=False):
        observed[start + np.array(kept["1/8"])] = True
    return table.replace(segment=segment.astype(np.int32)), observed


@pytest.mark.real
def test_gaps_without_route_are_those_of_networkx(chengdu, trips):
    table, observed = trips
    got = gaps_without_route(chengdu, table.offsets, table.segment, observed)
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(len(chengdu)))
    graph.add_edges_from(
        zip(np.repeat(np.arange(len(chengdu)), np.diff(chengdu.succ_offset)), chengdu.succ, strict=True)
    )
    end = np.flatnonzero(observed)
    is_gap = (np.diff(end) > 1) & (np.diff(table.trip_of_fix[end]) == 0)
    expected, n_lost = np.zeros(len(observed), bool), 0
    for before, after in zip(end[:-1][is_gap], end[1:][is_gap], strict=True):
        if not networkx.has_path(graph, table.segment[before], table.segment[after]):
            expected[before + 1 : after] = True
            n_lost += 1
    np.testing.assert_array_equal(got, expected)
    assert 0.04 < n_lost / is_gap.sum() < 0.06  # .047 was measured on other draws


@pytest.mark.real
def test_staying_at_the_last_fix_on_real_trips(chengdu, trips):
    table, observed = trips
    last = np.maximum.accumulate(np.where(observed, np.arange(len(observed)), 0))  # first steps are observed
    m = evaluate_trips(
        Router(chengdu),
        table.offsets,
        table.segment,
        table.ratio,
        table.segment[last],
        table.ratio[last],
        observed=observed,
    )
    assert (m.accuracy_observed == 1).all()
    assert (m.n_observed >= 2).all()
    assert 0.1 < m.accuracy_missing.mean() < m.accuracy.mean() < 0.5
    assert (m.precision > m.recall).mean() > 0.9  # the few segments it names are right, and most are not named
    assert 0 < m.capped_share.mean() < 0.2
    assert (m.straight_mae_m <= m.mae_m * 1.01)[m.capped_share == 0].all()
    has_lost = m.n_no_route > 0
    np.testing.assert_array_equal(np.isnan(m.accuracy_no_route), ~has_lost)
    assert 0.1 < has_lost.mean() < 0.2
