import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
import rich.markup
import typer

from tedtrajrec import __version__
from tedtrajrec.cli import app, main
from tedtrajrec.cli.demo import demo_commands, rehearsal_commands, run_demo
from tedtrajrec.config import load_config
from tedtrajrec.data.prepare import PrepareConfig
from tedtrajrec.methods.registry import METHODS
from tedtrajrec.methods.route_hmm import RouteHmmConfig
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.clean import CleanConfig
from tedtrajrec.trips.readers import read_trips
from tedtrajrec.trips.simulation.config import SimulationConfig

EXAMPLES_FOR = {
    "simulate": SimulationConfig,
    "clean": CleanConfig,
    "prepare": PrepareConfig,
    "evaluate": RouteHmmConfig,
}


def commands_of(group):
    """Return all commands below a group."""
    return [
        command
        for entry in group.commands.values()
        for command in (commands_of(entry) if hasattr(entry, "commands") else [entry])
    ]


def run(words, capsys):
    """Run a command that succeeds and return what it printed."""
    with pytest.raises(SystemExit) as stop:
        main(words.split() if isinstance(words, str) else words)
    assert stop.value.code == 0
    return capsys.readouterr().out


def test_version_and_help(capsys):
    assert run("--version", capsys).strip() == f"tedtrajrec {__version__}"
    verbs = ("network build", "network info", "network plot", "simulate", "clean", "match", "thin", "plot", "demo")
    for verb in (
        *verbs,
        "prepare",
        "data info",
        "data pack",
        "data unpack",
        "methods",
        "models",
        "train",
        "export",
        "evaluate",
        "recover",
        "map",
        "serve",
        "benchmark",
        "report",
        "uses",
        "case-study",
    ):
        assert "Usage" in run(f"{verb} --help", capsys)


def test_unknown_options_and_values_are_errors():
    for words in ("simulate --bogus", "thin a.csv -o b.csv --rule never", "simulate --network n --trips 0 -o t.csv"):
        with pytest.raises(SystemExit) as stop:
            main(words.split())
        assert stop.value.code == 2


def accuracy_and_f1(demo):
    """Return both by method, from what an evaluation has written."""
    results = [json.loads((folder / "metrics.json").read_text()) for folder in (demo / "metrics").iterdir()]
    return {result["method"]: (result["metrics"]["accuracy"], result["metrics"]["f1"]) for result in results}


def test_the_demo_runs_every_verb_and_leaves_what_it_says(tmp_path, capsys):
    demo = tmp_path / "demo"
    run_demo(app, demo, trips=400, epochs=1)
    out = capsys.readouterr().out
    for words in demo_commands(demo, trips=400, epochs=1):
        assert f"$ tedtrajrec {' '.join(words)}" in out
    assert {path.name for path in demo.iterdir()} == {
        "network.npz", "network.png", "trips.parquet", "sparse.csv", "matched.parquet", "routes.geojson", "dataset",
        "pictures", "run", "metrics", "trips.png", "new_trips.parquet", "new_sparse.csv", "recovered.parquet",
        "summary.csv", "map.html", "report",
    }  # fmt: skip
    dense, sparse = read_trips(demo / "trips.parquet"), read_trips(demo / "sparse.csv")
    assert dense.traj_id.tolist() == sparse.traj_id.tolist()
    assert (sparse.lengths == 2 + (dense.lengths - 2) // 8).all()
    found = accuracy_and_f1(demo)
    assert set(found) == {"linear_hmm", "route_hmm", "lookup", "tedtrajrec_parallel"}
    assert found["linear_hmm"] < min(found["route_hmm"], found["lookup"])
    table = (demo / "report" / "report.md").read_text("utf-8").split("## Performance")[1]
    for method in ("linear_hmm", "lookup", "tedtrajrec_parallel"):
        label = "Linear + HMM" if method == "linear_hmm" else method
        line = next(line for line in table.splitlines() if f"| {label} |" in line)
        assert f"{found[method][0]:.3f}".removeprefix("0") in line
    recovered = read_trips(demo / "recovered.parquet")
    assert len(recovered) == 200
    assert (demo / "map.html").read_text("utf-8").startswith("<!doctype html>")
    done, served = out.splitlines()[-2:]
    for name in re.findall(r"\S+\.png", done):
        assert Path(name.rstrip(",")).read_bytes().startswith(b"\x89PNG")
    assert done.count(".png") >= 2
    assert "tedtrajrec serve " in served


def test_the_rehearsal_of_the_demo_works(tmp_path):
    run_to = tmp_path / "demo"
    app(demo_commands(run_to)[0], standalone_mode=False)  # the network
    for words in rehearsal_commands(run_to, tmp_path):
        app(words, standalone_mode=False)
    assert {words[0] for words in rehearsal_commands(run_to, tmp_path)} >= {"match", "evaluate", "recover"}


@pytest.mark.slow
def test_after_the_demo_the_trained_model_is_ahead_and_can_be_driven(tmp_path):
    run_demo(app, tmp_path)
    found = accuracy_and_f1(tmp_path)
    best = found.pop("tedtrajrec_parallel")
    for other in found.values():
        assert best[0] > other[0]
        assert best[1] > other[1]
    drives = json.loads((tmp_path / "metrics" / "tedtrajrec_parallel-test-1of8-exact-0" / "metrics.json").read_text())
    assert drives["metrics"]["broken"] < 0.005


def test_settings_reach_the_simulator(tmp_path, capsys):
    network = tmp_path / "n.npz"
    run(f"network build synthetic -o {network}", capsys)
    command = f"simulate --network {network} --trips 20 --seed 3 --step 30 -o"
    run(f"{command} {tmp_path}/a.parquet", capsys)
    run(f"{command} {tmp_path}/b.parquet", capsys)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    (tmp_path / "sim.toml").write_text("[noise]\ndrift_m = 0.0\njitter_m = 0\n")
    run(f"{command} {tmp_path}/c.csv --config {tmp_path}/sim.toml --set noise.outlier_share=0", capsys)
    trips = read_trips(tmp_path / "c.csv")
    lon, lat = RoadNetwork.load(network).point_at(trips.segment, trips.ratio)
    assert abs(trips.lon - lon).max() < 1e-6
    assert abs(trips.lat - lat).max() < 1e-6
    assert set((trips.time[1:] - trips.time[:-1])[trips.trip_of_fix[1:] == trips.trip_of_fix[:-1]]) == {30}


def test_rows_that_cannot_be_read_are_listed_beside_what_cleaning_drops(tmp_path, capsys):
    rows = ["id,when,X,Y"]
    rows += [f"7,2013-07-01 10:{m:02}:00,{-8.62 + 0.002 * m:.4f},41.15" for m in range(10)]
    rows[4] = "7,2013-07-01 10:03:00,west,41.15"
    rows[6] = "7,2013-07-01 10:05:00,-8.0,41.15"  # 50 km away
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    out = run(
        f"clean {tmp_path}/t.csv --columns traj_id=id --columns timestamp=when --columns lon=X --columns lat=Y"
        f" --timezone Europe/Lisbon --rejects {tmp_path}/r.csv -o {tmp_path}/c.csv",
        capsys,
    )
    assert "rows that cannot be read" in out
    listed = pl.read_csv(tmp_path / "r.csv", infer_schema=False)
    assert listed["reason"].to_list()[0] == "jump"
    assert listed.filter(pl.col("row") == "4").select("column", "value").rows() == [("X", "west")]
    clean = read_trips(tmp_path / "c.csv")
    assert clean.n_fixes == 8
    assert clean.time[0] == 1372669200  # 10:00 in Lisbon's summer is 9:00 UTC


def test_trips_off_the_network_are_called_so(tmp_path, capsys):
    run(f"network build synthetic -o {tmp_path}/n.npz", capsys)
    rows = ["traj_id,timestamp,lon,lat", *(f"a,{1372636858 + 60 * i},{-30 + 0.005 * i},10" for i in range(9))]
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    with pytest.raises(SystemExit):
        main(f"clean {tmp_path}/t.csv --network {tmp_path}/n.npz -o {tmp_path}/c.csv".split())
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first.endswith(
        "'outside' (9 fixes). Is this the network of their city, and are lon and lat in the right columns?"
    )
    assert second.startswith("trips ")


def test_an_empty_column_leaves_a_name_alone(tmp_path, capsys):
    (tmp_path / "t.csv").write_text("traj_id,timestamp,lon,lat,segment\na,1372636858,-8.6,41.1,tram 22\n")
    run(f"thin {tmp_path}/t.csv --columns segment= -o {tmp_path}/s.parquet", capsys)
    assert read_trips(tmp_path / "s.parquet").extra["segment_in_file"].tolist() == ["tram 22"]


@pytest.mark.real
def test_real_porto_trips_are_cleaned_and_drawn(data_dir, tmp_path, capsys):
    network, trips = tmp_path / "porto.npz", data_dir / "porto" / "trips.csv.gz"
    out = run(f"network build {data_dir}/porto/porto.osm.pbf --largest-component -o {network}", capsys)
    assert "segments" in out
    assert "100.00% of length" in run(f"network info {network}", capsys)
    run(f"clean {trips} --network {network} --rejects {tmp_path}/r.csv -o {tmp_path}/clean.parquet", capsys)
    run(f"thin {tmp_path}/clean.parquet --keep 1/8 -o {tmp_path}/sparse.csv", capsys)
    run(f"plot {tmp_path}/clean.parquet --sparse {tmp_path}/sparse.csv --network {network} -o {tmp_path}/p.png", capsys)
    clean = read_trips(tmp_path / "clean.parquet")
    assert len(clean) > 1500
    assert "TAXI_ID" in {**clean.extra, **clean.trip_extra}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_second_process_is_interrupted_and_leaves_nothing(tmp_path, number, code):
    build = [sys.executable, "-m", "tedtrajrec", "network", "build", "synthetic", "-o", str(tmp_path / "n.npz")]
    subprocess.run(build, check=True, capture_output=True)
    command = [sys.executable, "-m", "tedtrajrec", "simulate", "--network", str(tmp_path / "n.npz")]
    command += ["--trips", "10000000", "-o", str(tmp_path / "out" / "t.parquet")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not any((tmp_path / "out").glob("*")) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert any((tmp_path / "out").glob(".*"))
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in said
    assert ("Interrupted." in said) == (number == signal.SIGINT)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("recover a.csv -o b.csv", "Interrupted; the same command goes on from here.\n"),
        ("thin a.csv -o b.csv", "Interrupted.\n"),
    ],
)
def test_an_interrupted_verb_says_whether_it_can_go_on(words, said, monkeypatch, capsys):
    from tedtrajrec import cli

    def interrupted(_):
        raise SystemExit(130)  # what Typer makes of Ctrl-C

    monkeypatch.setattr(cli, "app", interrupted)
    with pytest.raises(SystemExit) as stop:
        main(words.split())
    assert stop.value.code == 130
    assert capsys.readouterr().err == said


def test_help_prints_brackets_and_examples_that_the_verb_takes(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "300")
    said = run("serve --help", capsys)
    for default in ("route_hmm", "auto", "feasible"):
        assert f"(default: {default})" in said
    for verb, config in EXAMPLES_FOR.items():
        (examples,) = re.findall(r"One setting, such as (\S+?);", run(f"{verb} --help", capsys))
        load_config(config, None, [examples])


@pytest.mark.parametrize("command", commands_of(typer.main.get_command(app)), ids=lambda command: command.name)
def test_no_help_is_taken_for_markup(command):
    for text in (command.help, *(getattr(option, "help", None) for option in command.params)):
        assert text is None or rich.markup.render(text).plain == text


def test_kernels_find_room_where_neither_package_nor_home_can_be_written(monkeypatch):
    from tedtrajrec import cli

    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    cli._make_room_for_kernels()
    assert "NUMBA_CACHE_DIR" not in os.environ
    monkeypatch.setattr(os, "access", lambda *_: False)
    removals = []
    monkeypatch.setattr(cli.atexit, "register", lambda function, folder, **_: removals.append((function, folder)))
    monkeypatch.setenv("NUMBA_CACHE_DIR", "given")
    cli._make_room_for_kernels()
    assert os.environ["NUMBA_CACHE_DIR"] == "given"
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    cli._make_room_for_kernels()
    ((remove, folder),) = removals
    assert os.environ["NUMBA_CACHE_DIR"] == folder
    remove(folder)
    assert not Path(folder).exists()


def test_a_dataset_is_packed_and_unpacked(tmp_path, capsys):
    run(f"network build synthetic -o {tmp_path}/n.npz", capsys)
    run(f"simulate --network {tmp_path}/n.npz --trips 40 --seed 3 -o {tmp_path}/t.parquet", capsys)
    prepare = f"prepare {tmp_path}/t.parquet --network {tmp_path}/n.npz --timezone Europe/Lisbon -o {tmp_path}/d"
    assert "train" in run(f"{prepare} --set split.seed=2", capsys)
    assert "MB" in run(f"data pack {tmp_path}/d -o {tmp_path}/d.pack", capsys)
    assert "Dataset" in run(f"data unpack {tmp_path}/d.pack -o {tmp_path}/again", capsys)
    figures = run(f"data info {tmp_path}/again", capsys)
    assert figures == run(f"data info {tmp_path}/d", capsys)
    with pytest.raises(SystemExit) as stop:
        main(f"evaluate tedtrajrec {tmp_path}/d".split())
    assert stop.value.code == 2
    assert "must be trained first" in capsys.readouterr().err


def test_methods_are_listed(capsys):
    lines = run("methods", capsys).splitlines()
    assert [line.split()[0] for line in lines[::2]] == list(METHODS)
    for first, second, (name, entry) in zip(lines[::2], lines[1::2], METHODS.items(), strict=True):
        assert first.endswith(".")
        assert second.split(" · ") == [
            f"{'':<21}{entry.family}",
            f"needs {entry.needs}",
            entry.paper,
            f"docs/methods.md#{name}",
        ]


def test_the_verbs_of_experiments_name_what_is_wrong(tmp_path, capsys):
    (tmp_path / "rows").mkdir()
    for words, said in {
        f"report {tmp_path}/rows -o {tmp_path}/report": "there are no rows of experiments",
        f"report {tmp_path}/rows -o {tmp_path}/report --dataset chengdu": "A dataset is given as NAME=FOLDER",
        f"report {tmp_path}/nothing -o {tmp_path}/report": "there is no such folder",
        f"uses {tmp_path}/nothing {tmp_path}/rows -o {tmp_path}/uses": "there is no such folder (a prepared dataset)",
        f"benchmark {tmp_path}/plan.toml -o {tmp_path}/rows": "plan.toml",
    }.items():
        with pytest.raises(SystemExit) as stop:
            main(words.split())
        assert stop.value.code == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "report").exists()
