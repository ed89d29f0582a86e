import numpy as np
import pytest

from tedtrajrec import stages
from tedtrajrec.data.sampling import thin_trips
from tedtrajrec.errors import ConfigError, InputError, OutputError
from tedtrajrec.trips.clean import clean_trips
from tedtrajrec.trips.readers import iter_trips, read_trips
from tedtrajrec.trips.simulate import simulate_trips
from tedtrajrec.trips.writers import write_trips


@pytest.fixture(scope="module")
def city(tmp_path_factory):
    """Return a folder with a network and simulated trips."""
    from tedtrajrec.network.synthetic import synthetic_city

    folder = tmp_path_factory.mktemp("city")
    network = synthetic_city()
    network.save(folder / "network.npz")
    write_trips(simulate_trips(network, trips=60, seed=2), folder / "trips.parquet")
    return folder


@pytest.fixture
def small_chunks(monkeypatch):
    """Make every stage read in chunks of about three trips."""
    monkeypatch.setattr(stages, "iter_trips", lambda path, **options: iter_trips(path, chunk_fixes=70, **options))


def assert_same(one, other):
    assert one.traj_id.tolist() == other.traj_id.tolist()
    for name in ("offsets", "time", "lon", "lat", "segment", "ratio"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_simulating_to_a_file_is_simulating(city, tmp_path):
    written = stages.simulate_file(city / "network.npz", tmp_path / "t.parquet", trips=60, seed=2)
    assert_same(read_trips(tmp_path / "t.parquet"), read_trips(city / "trips.parquet"))
    assert written.trips == 60


@pytest.mark.usefixtures("small_chunks")
def test_cleaning_in_chunks_is_cleaning(city, tmp_path):
    trips = read_trips(city / "trips.parquet")
    broken = trips.replace(lon=np.where(np.arange(trips.n_fixes) % 17 == 5, trips.lon + 1, trips.lon))
    write_trips(broken, tmp_path / "broken.parquet")
    whole = clean_trips(broken)
    summary = stages.clean_file(tmp_path / "broken.parquet", tmp_path / "c.parquet", rejects=tmp_path / "r.csv")
    assert summary == whole.summary
    assert_same(read_trips(tmp_path / "c.parquet"), whole.trips)
    assert len((tmp_path / "r.csv").read_text().splitlines()) == 1 + len(whole.rejects)
    assert summary.fixes_dropped["jump"] > 10


@pytest.mark.usefixtures("small_chunks")
def test_thinning_in_chunks_is_thinning(city, tmp_path):
    thinned = stages.thin_file(city / "trips.parquet", tmp_path / "s.parquet", keep="1/4", seed=9)
    expected = thin_trips(read_trips(city / "trips.parquet"), "1/4", seed=9)
    assert_same(read_trips(tmp_path / "s.parquet"), expected)
    assert (thinned.trips, thinned.fixes_out) == (60, expected.n_fixes)


def test_an_unreadable_row_is_an_error_unless_rejects_are_listed(tmp_path):
    rows = [f"a,{1372636858 + 15 * i},{-8.6 + 0.001 * i:.4f},41.1" for i in range(12)]
    rows[5] = "a,1372636933,,41.1"
    (tmp_path / "t.csv").write_text("traj_id,timestamp,lon,lat\n" + "\n".join(rows))
    with pytest.raises(InputError, match="row 6, column 'lon'"):
        stages.clean_file(tmp_path / "t.csv", tmp_path / "c.csv")
    assert not (tmp_path / "c.csv").exists()
    summary = stages.clean_file(tmp_path / "t.csv", tmp_path / "c.csv", rejects=tmp_path / "r.csv")
    assert (summary.rows_unreadable, summary.fixes_in, summary.fixes_out) == (1, 11, 11)


@pytest.mark.parametrize("rejects", ["t.parquet", "out/../c.parquet"])
def test_rejects_never_take_the_place_of_trips(city, tmp_path, rejects):
    (tmp_path / "out").mkdir()
    raw = (city / "trips.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(raw)
    with pytest.raises(OutputError, match="a file of their own"):
        stages.clean_file(tmp_path / "t.parquet", tmp_path / "c.parquet", rejects=tmp_path / rejects)
    assert (tmp_path / "t.parquet").read_bytes() == raw
    assert not (tmp_path / "c.parquet").exists()


@pytest.mark.usefixtures("small_chunks")
def test_matching_a_file_finds_where_simulated_trips_drove(city, tmp_path):
    truth = read_trips(city / "trips.parquet")
    summary = stages.match_file(city / "trips.parquet", tmp_path / "m.parquet", network=city / "network.npz")
    matched = read_trips(tmp_path / "m.parquet")
    assert matched.traj_id.tolist() == truth.traj_id.tolist()
    found = matched.segment >= 0
    assert sum(summary.status.values()) == truth.n_fixes
    assert (matched.segment == truth.segment).mean() > 0.8
    assert not np.ma.getmaskarray(matched.extra["matched_lon"])[found].any()
    assert ((matched.extra["probability"] >= 0) & (matched.extra["probability"] <= 1)).all()
    assert set(matched.extra["match_status"]) <= {"matched", "followed", "off_map", "no_route", "too_fast"}


def test_matching_names_an_unknown_preset_and_a_wrong_noise(city, tmp_path):
    with pytest.raises(ConfigError, match="no preset 'best'"):
        stages.match_file(city / "trips.parquet", tmp_path / "m.csv", network=city / "network.npz", preset="best")
    with pytest.raises(ConfigError, match="noise_m"):
        stages.match_file(city / "trips.parquet", tmp_path / "m.csv", network=city / "network.npz", noise_m=-1.0)
