"""Real trips: a plain CSV of fixes gives what an evaluation gives on the same fixes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tedtrajrec import Recoverer
from tedtrajrec.config import load_config
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.data.prepare import PrepareConfig, prepare_dataset
from tedtrajrec.evaluation.metrics import evaluate_trips
from tedtrajrec.evaluation.run import Draw, draw_steps, evaluate_draw, truth_of
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.recovery.recovered import RecoveredTrips
from tedtrajrec.trips.table import Trips
from tedtrajrec.trips.writers import write_trips
from tests.evaluation.drive_checker import ScipyGaps, check_trip
from tests.recovery.test_recoverer import assert_sound

pytestmark = pytest.mark.real

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture(scope="module")
def chengdu_draw(data_dir: Path, chengdu: RoadNetwork, tmp_path_factory: pytest.TempPathFactory) -> Draw:
    """Return 60 published test trips."""
    folder = tmp_path_factory.mktemp("chengdu")
    fixes = pl.read_csv(data_dir / "chengdu" / "trips.csv.gz").filter(pl.col("split") == "test")
    some = fixes["traj_id"].unique(maintain_order=True).head(60)
    fixes.filter(pl.col("traj_id").is_in(some.to_list())).write_csv(folder / "some.csv")
    prepare_dataset(folder / "some.csv", chengdu, folder / "ds", load_config(PrepareConfig, CONFIGS / "chengdu.toml"))
    return draw_steps(Dataset(folder / "ds"), keep="1/8")


@pytest.fixture(scope="module")
def porto_draw(data_dir: Path, porto: RoadNetwork, tmp_path_factory: pytest.TempPathFactory) -> Draw:
    """Return trips of Porto, of which 100 were prepared."""
    folder = tmp_path_factory.mktemp("porto")
    pl.scan_csv(data_dir / "porto" / "trips.csv.gz").head(100).collect().write_csv(folder / "some.csv")
    prepare_dataset(folder / "some.csv", porto, folder / "ds", load_config(PrepareConfig, CONFIGS / "porto.toml"))
    return draw_steps(Dataset(folder / "ds"), keep="1/8", split="train")


def written(draw: Draw, path: Path) -> Trips:
    """Write the fixes of a draw with nothing but id, time and place, and return them."""
    trips = draw.dataset.split(draw.split).trips(draw.number)
    sparse = trips.keep_fixes(draw.observed)
    plain = Trips(sparse.traj_id, sparse.offsets, sparse.time, sparse.lon, sparse.lat)
    write_trips(plain, path)
    assert path.read_text().startswith("traj_id,timestamp,lon,lat\n")
    return plain


def compare_with_evaluation(recoverer: Recoverer, draw: Draw, recovered: RecoveredTrips) -> None:
    """Check positions step by step and metrics, of all trips whose fixes were all used."""
    evaluation = evaluate_draw(recoverer.method, draw, keep_steps=True)
    steps = evaluation.steps
    assert steps is not None
    lost = set(recovered.rejects.traj_id.tolist())
    here = np.flatnonzero([traj_id not in lost for traj_id in draw.traj_id.tolist()])
    assert len(here) > 0.95 * len(draw)
    same = recovered.select([traj_id not in lost for traj_id in recovered.traj_id.tolist()])
    rows = draw.rows(here)
    np.testing.assert_array_equal(same.segment, steps.segment[rows])
    np.testing.assert_allclose(same.ratio, steps.ratio[rows], atol=2e-6)
    np.testing.assert_array_equal(same.observed, draw.observed[rows])
    trips = draw.dataset.split(draw.split).trips(draw.number[here])
    metrics = evaluate_trips(
        recoverer.network,
        trips.offsets,
        *truth_of(trips),
        same.segment,
        same.ratio,
        observed=draw.observed[rows],
        no_route=draw.no_route[rows],
    )
    assert metrics.accuracy.tolist() == evaluation.metrics.accuracy[here].tolist()
    assert metrics.f1.tolist() == evaluation.metrics.f1[here].tolist()
    np.testing.assert_allclose(metrics.mae_m, evaluation.metrics.mae_m[here], atol=0.01)


def check_drives(recoverer: Recoverer, recovered: RecoveredTrips) -> None:
    """Check that breaks are where the checker finds them, and nowhere else."""
    gaps = ScipyGaps(recoverer.network)
    for first, end in zip(recovered.offsets[:-1], recovered.offsets[1:], strict=True):
        segment, ratio = recovered.segment[first:end], recovered.ratio[first:end]
        verdict = check_trip(
            recoverer.network, gaps, segment, ratio, [None] * (end - first), step_s=15, top_speed_mps=40.0
        )
        assert verdict.breaks + verdict.backward == recovered.broken[first:end].sum()
        assert verdict.unplaced == 0


def test_the_shipped_model_in_chengdu(chengdu_draw: Draw, tmp_path: Path) -> None:
    recoverer = Recoverer.load("chengdu", device="cpu")
    assert recoverer.network.hash == chengdu_draw.dataset.network.hash
    sparse = written(chengdu_draw, tmp_path / "sparse.csv")
    recovered = recoverer.recover(tmp_path / "sparse.csv")
    compare_with_evaluation(recoverer, chengdu_draw, recovered)
    check_drives(recoverer, recovered)
    assert recoverer.check(sparse) == []
    assert recovered.probability.min() > 0


def test_without_a_model_in_porto(porto_draw: Draw, tmp_path: Path) -> None:
    recoverer = Recoverer.from_network(porto_draw.dataset.network, time_zone="Europe/Lisbon")
    sparse = written(porto_draw, tmp_path / "sparse.csv")
    recovered = recoverer.recover(tmp_path / "sparse.csv")
    compare_with_evaluation(recoverer, porto_draw, recovered)
    check_drives(recoverer, recovered.select(np.arange(20)))
    assert len(sparse) == len(recovered)
    later = sparse.replace(time=sparse.time + np.random.default_rng(0).integers(0, 8, sparse.n_fixes))
    moved = recoverer.recover_trips(later)
    used = later.keep_fixes(~np.isin(later.time, moved.rejects.time)).select(
        [traj_id in set(moved.traj_id.tolist()) for traj_id in later.traj_id.tolist()]
    )
    assert_sound(moved, used, recoverer, 15)
    assert moved.broken.mean() < 0.05
