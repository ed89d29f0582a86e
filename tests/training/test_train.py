"""From the name of a method and a dataset to a run, from Python and from the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from tedtrajrec.cli import main
from tedtrajrec.data.dataset import Dataset, shards_of, write_dataset
from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.methods.registry import load_method, make_method
from tedtrajrec.training.train import NARROW, _threads_for, train_method

TINY = ["model.d=8", "model.heads=2", "model.width=8", "model.encoder_layers=1", "train.batch=10", "train.epochs=1"]


def test_settings_reach_the_run(small_dataset: Dataset, tmp_path: Path) -> None:
    fitted = train_method(
        "tedtrajrec", small_dataset.path, tmp_path / "run", preset="paper", device="cpu",
        overrides=[*TINY, "model.gnn=none", 'train.keep=["1/8", "1/16"]', "train.seed=4"],
    )  # fmt: skip
    assert fitted.finished
    settings = json.loads((tmp_path / "run" / "train.json").read_text())
    assert settings["method"]["name"] == "tedtrajrec"
    assert (settings["method"]["d"], settings["method"]["gnn"]) == (8, "none")
    assert settings["method"]["coordinates"] is False  # of the preset
    assert (settings["train"]["optimizer"], settings["train"]["keep"]) == ("adam", ["1/8", "1/16"])
    assert settings["dataset"]["network"] == small_dataset.network.hash
    config = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    assert config == {name: value for name, value in settings["method"].items() if name != "name"}


def test_seeds_give_other_weights(small_dataset: Dataset, tmp_path: Path) -> None:
    weights = []
    for run, seed in (("a", 1), ("b", 1), ("c", 2)):
        train_method("tedtrajrec", small_dataset, tmp_path / run, overrides=[*TINY, f"train.seed={seed}"], device="cpu")
        weights.append((tmp_path / run / "model.safetensors").read_bytes())
    assert weights[0] == weights[1] != weights[2]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.width_m=3"], "Unknown setting 'width_m'"),
        (["train.rate=3"], "Unknown setting 'rate'"),
        (["d=3"], "must start with model. or train."),
        (["other.d=3"], "must start with model. or train."),
        (["model.d"], "key=value"),
        (["model.d=wide"], "'d' is 'wide'"),
        (["model.gnn=tree"], "must be one of"),
        (["model.d=100", "model.heads=8"], "8 heads do not divide"),
        (["train.epochs=0"], "epochs must be positive"),
        (['train.keep=["no"]'], "share to keep"),
    ],
)
def test_wrong_settings_are_told(small_dataset: Dataset, tmp_path: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        train_method("tedtrajrec", small_dataset, tmp_path / "run", overrides=overrides)
    assert not (tmp_path / "run").exists()


def test_what_cannot_be_trained(small_dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to train"):
        train_method("linear_hmm", small_dataset, tmp_path / "run")
    with pytest.raises(ConfigError, match="no method 'nothing'"):
        train_method("nothing", small_dataset, tmp_path / "run")
    with pytest.raises(ConfigError, match="no preset 'fast'"):
        train_method("tedtrajrec", small_dataset, tmp_path / "run", preset="fast")
    with pytest.raises(InputError, match="no such folder"):
        train_method("tedtrajrec", tmp_path / "nowhere", tmp_path / "run")


@pytest.mark.parametrize("name", ["lookup", "route_hmm", "trimpute_hmm"])
def test_what_past_trips_teach_is_a_run(
    name: str, small_dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    with pytest.raises(SystemExit) as stop:
        main(["train", name, str(small_dataset.path), "-o", str(run), "--set", "train.most_train=12"])
    assert not stop.value.code
    assert "learned from past trips" in capsys.readouterr().out
    assert json.loads((run / "profile.json").read_text())["trips"] == 12
    saved = load_method(run, small_dataset.network)
    whole = make_method(name, small_dataset.network)
    whole.precompute(small_dataset)
    assert saved.state().keys() == whole.state().keys()
    assert any(not np.array_equal(saved.state()[key], array) for key, array in whole.state().items())
    with pytest.raises(ConfigError, match="has no weights"):
        train_method(name, small_dataset, run, start=run)


def test_authors_settings_without_weights(small_dataset: Dataset, tmp_path: Path) -> None:
    train_method("trimpute_hmm", small_dataset, tmp_path / "run", preset="authors")
    assert load_method(tmp_path / "run", small_dataset.network).config.crowd == "sparse"
    with pytest.raises(ConfigError, match="no settings of its own authors"):
        train_method("lookup", small_dataset, tmp_path / "other", preset="authors")


def test_overfits_eight_trips(small_dataset: Dataset, tmp_path: Path) -> None:
    few = small_dataset.split("train").trips(np.arange(8))
    dataset = write_dataset(
        tmp_path / "eight", small_dataset.network, {"train": shards_of(few), "valid": shards_of(few)},
        step_s=15, time_zone="Europe/Berlin",
    )  # fmt: skip
    fitted = train_method(
        "tedtrajrec", dataset, tmp_path / "run", device="cpu",
        overrides=[
            "model.d=64", "model.heads=4", "model.width=128", "model.dropout=0.0", "model.encoder_layers=1",
            "model.road_layers=1", "train.epochs=60", "train.batch=8", "train.lr=0.01", "train.weight_decay=0.0",
            "train.forcing_decay=0.97", "train.redraw=false",
        ],
    )  # fmt: skip
    assert fitted.best_accuracy == 1.0
    method = load_method(tmp_path / "run", dataset.network)
    from tedtrajrec.evaluation.run import draw_steps, evaluate_draw

    evaluation = evaluate_draw(method, draw_steps(dataset, keep="1/8", split="train"))
    assert evaluation.summary["accuracy"] == 1.0


def run(words: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    with pytest.raises(SystemExit) as stop:
        main(words)
    out = capsys.readouterr()
    assert (stop.value.code or 0) == code, out.err
    return out.out + out.err


def test_command_line(small_dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset, target = str(small_dataset.path), tmp_path / "runs" / "x"
    settings = [word for setting in TINY for word in ("--set", setting)]
    command = ["train", "tedtrajrec", dataset, "-o", str(target), "--device", "cpu", *settings]
    stopped = run([*command, "--max-minutes", "0"], capsys)
    assert "0 epochs" in stopped
    assert "to be gone on with" in stopped
    assert not (target / "curves.png").exists()
    done = run(command, capsys)
    assert "1 epochs" in done
    assert "finished; best validation accuracy" in done
    assert (target / "curves.png").read_bytes().startswith(b"\x89PNG")
    table = run(["evaluate", f"{target},linear_hmm", dataset, "--keep", "1/8", "-o", str(tmp_path / "metrics")], capsys)
    assert "tedtrajrec" in table
    assert "linear_hmm" in table
    assert list((tmp_path / "metrics").rglob("metrics.json"))
    for words, message in (
        ([*command, "--set", "train.lr=0.5"], "other settings"),
        (["train", "linear_hmm", dataset, "-o", str(tmp_path / "no")], "nothing to train"),
        (["evaluate", "tedtrajrec", dataset], "must be trained first"),
    ):
        text = run(words, capsys, code=2)
        assert message in " ".join(text.split())
        assert "Traceback" not in text


def test_the_state_of_the_generator_does_not_matter(small_dataset: Dataset, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 2)):
        torch.manual_seed(seed)
        train_method("tedtrajrec", small_dataset, tmp_path / name, overrides=TINY, device="cpu")
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == (tmp_path / "b" / "model.safetensors").read_bytes()


@pytest.mark.parametrize(("d", "expected"), [(NARROW, 3), (NARROW + 1, 4)])
def test_narrow_models_leave_a_processor_to_the_thread_that_makes_batches(
    d: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        with _threads_for(d):
            assert torch.get_num_threads() == expected
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)
