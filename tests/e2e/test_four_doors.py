"""The same fixes through all four doors: command line, Python, HTTP and page give the same rows, to the last digit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import polars as pl
import polars.testing
import pytest

from tedtrajrec.cli import main
from tedtrajrec.data.dataset import shards_of, write_dataset
from tedtrajrec.data.sampling import thin_trips
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.recovery.recoverer import Recoverer
from tedtrajrec.training.train import train_method
from tedtrajrec.trips.simulate import simulate_trips
from tedtrajrec.trips.table import Trips
from tedtrajrec.trips.writers import write_trips
from tests.e2e.conftest import Tab
from tests.evaluation.drive_checker import NetworkxGaps, check_trip
from tests.recovery.conftest import TINY

COLUMNS = ("traj_id", "timestamp", "lon", "lat", "segment", "ratio", "osm_way_id", "observed", "probability", "break")
STEP_S = 15


@dataclass(frozen=True)
class Fleet:
    """A trained model behind a running service, and fixes to recover."""

    city: RoadNetwork
    run: Path
    sparse: Path
    client: httpx.Client


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Train a small parallel model and serve it."""
    pytest.importorskip("fastapi", reason="the service is not installed")
    from tedtrajrec.server.settings import ServerSettings
    from tests.server.running import running

    folder = tmp_path_factory.mktemp("fleet")
    city = synthetic_city(size="small")
    trips = simulate_trips(city, trips=50, step_s=STEP_S, seed=5, workers=1)
    parts = {"train": np.arange(40), "valid": np.arange(40, 50)}
    splits = {name: shards_of(trips.select(which)) for name, which in parts.items()}
    dataset = write_dataset(folder / "dataset", city, splits, step_s=STEP_S, time_zone="Europe/Berlin")
    train_method("tedtrajrec_parallel", dataset, folder / "run", overrides=TINY, device="cpu")
    thin = thin_trips(simulate_trips(city, trips=12, step_s=STEP_S, seed=9, workers=1), "1/4")
    rng = np.random.default_rng(1)  # not on the grid of steps
    time = thin.time + rng.integers(0, 7, thin.n_fixes)
    write_trips(Trips(thin.traj_id, thin.offsets, time, thin.lon, thin.lat), folder / "sparse.csv")
    with running(ServerSettings(model=str(folder / "run"), device="cpu")) as client:
        yield Fleet(city, folder / "run", folder / "sparse.csv", client)


def rows(source: Path | bytes | pl.DataFrame) -> pl.DataFrame:
    """Return rows with times as epoch seconds."""
    table = source if isinstance(source, pl.DataFrame) else pl.read_csv(source)
    if not table["timestamp"].dtype.is_integer():
        table = table.with_columns(pl.col("timestamp").dt.epoch("s"))
    digits = pl.col("probability").cast(pl.Float64).round(4)  # 32 bits in memory, four digits in text
    return table.select(COLUMNS).with_columns(
        pl.col("traj_id").cast(pl.String), pl.col("ratio").cast(pl.Float64), digits
    )


def test_four_doors_one_answer(fleet: Fleet, open_tab: Callable[..., Tab], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["recover", str(fleet.sparse), "--model", str(fleet.run), "-o", str(tmp_path / "cli.csv")])
    assert stop.value.code == 0
    frame = Recoverer.load(fleet.run, device="cpu").recover(pl.read_csv(fleet.sparse))
    headers = {"Content-Type": "text/csv", "Accept": "text/csv"}
    answer = fleet.client.post("/v1/recover", content=fleet.sparse.read_bytes(), headers=headers).raise_for_status()
    tab = open_tab(str(fleet.client.base_url))
    tab.until("globalThis.tedtrajrec?.network")
    tab.page.set_input_files("#file", fleet.sparse)
    tab.drawn()
    with tab.page.expect_download() as waiting:
        tab.page.get_by_role("button", name="CSV").click()
    waiting.value.save_as(tmp_path / "page.csv")

    command = rows(tmp_path / "cli.csv")
    assert command["traj_id"].n_unique() == 12
    for other in (rows(frame), rows(answer.content), rows(tmp_path / "page.csv")):
        polars.testing.assert_frame_equal(other, command, check_exact=True, check_dtypes=False)
    check_drives(fleet.city, command)


def check_drives(city: RoadNetwork, table: pl.DataFrame) -> None:
    """Have the independent checker look at every trip; the last row is that of the last fix, a part of a step later."""
    gaps = NetworkxGaps(city)
    for trip in table.partition_by("traj_id"):
        segment, ratio = trip["segment"].to_list(), trip["ratio"].to_list()
        verdict = check_trip(city, gaps, segment, ratio, [None] * len(segment), step_s=STEP_S, top_speed_mps=40.0)
        assert verdict.drivable, verdict
        assert not trip["break"].any()
