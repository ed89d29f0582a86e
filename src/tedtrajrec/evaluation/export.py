"""From a training run to a model that can be handed on: half the size, with a card that says what it is.

Nothing of the card is typed in but a note: it is gathered from the run, its dataset and its evaluations.
"""

from __future__ import annotations

import datetime
import json
import platform
import shutil
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save

import tedtrajrec
from tedtrajrec.config import completed, to_dict
from tedtrajrec.data.clock import load_zone
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.data.describe import tally_splits
from tedtrajrec.errors import InputError
from tedtrajrec.evaluation.card import card_text, limits
from tedtrajrec.evaluation.run import Evaluation, draw_steps, evaluate_draw
from tedtrajrec.files import existing_file, replacing_folder
from tedtrajrec.methods.base import Arrays, Method, read_description
from tedtrajrec.methods.learned import CALIBRATION, TABLE, LearnedMethod
from tedtrajrec.methods.registry import load_method, method_class
from tedtrajrec.methods.shipped import CARD
from tedtrajrec.methods.taught import PAST
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.training.choose import read_choice
from tedtrajrec.training.loop import choose_device
from tedtrajrec.training.profile import NETWORK, PROFILE
from tedtrajrec.work import only_run

SCHEMA = 1
MOST_ERROR = 1e-3  # of an array, relative to its norm: twice what rounding to half precision costs at most


def export_model(
    run: str | Path,
    output: str | Path,
    *,
    dataset: str | Path | Dataset | None = None,
    metrics: Sequence[str | Path] = (),
    note: str = "",
) -> dict[str, Any]:
    """Write the best weights of a run in half precision, with a model card, and return the facts of the card.

    The folder holds ``config.json`` and ``model.safetensors``, which :func:`load_method` reads, the run's
    ``network.npz`` and ``profile.json``, ``card.json`` and ``README.md``. An array that half precision would change by
    more than rounding stays as it is.

    Parameters
    ----------
    run
        The run directory of :func:`tedtrajrec.training.loop.fit`.
    output
        The folder to make; its name becomes the name of the model.
    dataset
        What it was trained on. With it the card describes trips and network, and says how many steps of the validation
        trips get the same segment from the written weights as from those of the run.
    metrics
        Evaluations of the run: folders that ``tedtrajrec evaluate -o`` wrote, or files with a row of the same JSON on
        each line. Those of other methods are quoted beside it.
    note
        Free text for the card.
    """
    run = Path(run)
    described = read_description(run)
    training, data = _read_training(run)
    choice = read_choice(run)
    settings = method_class(described["method"]).Config
    chosen = {} if choice is None else choice.settings
    if completed(settings, described["config"]) != completed(settings, training.pop("model") | chosen):
        raise InputError("these are not the settings of train.json", file=run / "config.json")
    rows = [row for path in metrics for row in _read_evaluations(Path(path))]
    _check_evaluations(rows, described)
    prepared = dataset if isinstance(dataset, Dataset) or dataset is None else Dataset(dataset)
    arrays = _read_weights(run)
    names = _names_of_weights(run, prepared, arrays)
    weights = {name: array for name, array in arrays.items() if name in names}
    halved = {name: halve(array) for name, array in weights.items()}
    card: dict[str, Any] = {
        "schema": SCHEMA,
        "name": Path(output).resolve().name,
        "method": described["method"],
        "exported": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "parameters": sum(array.size for array in weights.values()),
        "network": {"hash": described["network"]},
        "data": data,
        "model": described["config"],
        "training": training,
        **({} if choice is None else {"search": to_dict(choice)}),
        "evaluations": rows,
        "elsewhere": _elsewhere(method_class(described["method"]), weights),
        "taught": sorted(name for name in arrays if name not in names and not name.startswith(CALIBRATION)),
        "half_precision": {
            "largest_error": max(_error(weights[name], array) for name, array in halved.items()),
            "kept_whole": [name for name, array in halved.items() if array.dtype != np.float16],
        },
        "versions": _versions(),
        "note": note,
    }
    if prepared is not None:
        _check_dataset(prepared, card)
        card["network"] |= _network_facts(prepared)
        card["data"] |= _data_facts(prepared)
    with only_run(output), replacing_folder(output) as folder:
        # Not save_file, which would make it private to its owner.
        (folder / "model.safetensors").write_bytes(save(arrays | halved))
        _write_json(folder / "config.json", described)
        for name in (NETWORK, PROFILE):  # runs of before have none
            if (run / name).is_file():
                shutil.copyfile(run / name, folder / name)
        if prepared is not None:
            card["half_precision"] |= _compare(run, folder, prepared, training["settings"])
        card["bytes"] = (folder / "model.safetensors").stat().st_size
        card["limits"] = limits(card)
        _write_json(folder / CARD, card)
        (folder / "README.md").write_text(card_text(card), "utf-8")
    return card


def _elsewhere(cls: type[Method[Any]], weights: Mapping[str, NDArray[Any]]) -> str:
    """Return on which other networks a model can be used."""
    if cls.adopt is not Method.adopt:
        return "any city"
    return "newer map" if TABLE in weights else "nowhere"


def _names_of_weights(run: Path, dataset: Dataset | None, arrays: Mapping[str, NDArray[Any]]) -> set[str]:
    """Return which arrays of a run are weights; others are what past trips taught, and are kept as they are."""
    if dataset is None and not (run / NETWORK).is_file():  # a run of before these were saved with it
        return {name for name in arrays if not name.startswith((PAST, CALIBRATION))}
    method = load_method(run, RoadNetwork.load(run / NETWORK) if dataset is None else dataset.network)
    return set(method.state_dict()) if isinstance(method, LearnedMethod) else set()


def halve(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array in half precision, or as it is where more than rounding would be lost: large or tiny values."""
    if array.dtype.kind != "f":
        return array
    with np.errstate(over="ignore"):
        half = array.astype(np.float16)
    return half if _error(array, half) <= MOST_ERROR else array


def _error(array: NDArray[Any], written: NDArray[Any]) -> float:
    """Return the norm of what writing changed, relative to that of the array."""
    whole = array.astype(np.float64)
    size = float(np.linalg.norm(whole))
    return float(np.linalg.norm(whole - written.astype(np.float64))) / size if size else 0.0


# ---------------------------------------------------------------------- the run


def _read_training(run: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a run says of its training and of its data."""
    file = existing_file(run / "train.json", "the settings of a training run")
    history = existing_file(run / "metrics.jsonl", "the metrics of a training run")
    try:
        said = json.loads(file.read_text("utf-8"))
        model = {name: value for name, value in said["method"].items() if name != "name"}
        settings, data = said["train"], dict(said["dataset"])
        data.pop("network")
        data["splits"] = {
            name: {"trips": size["trips"], "steps": size["steps"]} for name, size in data["splits"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"this does not describe a training run ({error!r})", file=file) from error
    try:
        epochs = [json.loads(line) for line in history.read_text("utf-8").splitlines()]
        best = [row for row in epochs if row["best"]][-1]
        training = {
            "epochs": len(epochs),
            "best_epoch": best["epoch"] + 1,
            "valid_accuracy": best["valid_accuracy"],
            "seconds": round(sum(row["seconds"] for row in epochs), 1),
            "settings": settings,
            "model": model,
        }
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(f"these are not the metrics of a training run ({error!r})", file=history) from error
    return training, data


def _read_weights(run: Path) -> Arrays:
    file = existing_file(run / "model.safetensors", "the weights of a training run")
    try:
        weights = load_file(file)
    except safetensors.SafetensorError as error:
        raise InputError(f"this does not hold weights ({error})", file=file) from error
    for name, array in weights.items():
        if not np.isfinite(array).all():
            raise InputError(f"{name} holds values that are not finite", file=file, remedy="Train it again.")
    return weights


# ---------------------------------------------------------------------- its evaluations


def _read_evaluations(path: Path) -> list[dict[str, Any]]:
    """Return the evaluations of a folder, or those of a file, one a line."""
    files = sorted(path.rglob("metrics.json")) if path.is_dir() else [existing_file(path, "evaluations of a run")]
    if not files:
        raise InputError("there is no metrics.json in it", file=path, remedy="Make some with 'tedtrajrec evaluate -o'.")
    rows = []
    for file in files:
        text = file.read_text("utf-8")
        try:
            for said in [json.loads(text)] if file.name == "metrics.json" else map(json.loads, text.splitlines()):
                row = {name: said[name] for name in ("method", "config", "draw", "dataset", "metrics", "versions")}
                rows.append(row | {"file": file})
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"this does not hold evaluations ({error!r})", file=file) from error
    return rows


def _check_evaluations(rows: list[dict[str, Any]], described: dict[str, Any]) -> None:
    """Refuse evaluations that are not of this model, or twice of the same; those of others may stand beside it."""
    seen: dict[tuple[str, str], Path] = {}
    for row in rows:
        file, config = row.pop("file"), row.pop("config")
        if row["dataset"]["network_hash"] != described["network"]:
            raise InputError(f"this was evaluated on network {row['dataset']['network_hash']}", file=file)
        settings = method_class(described["method"]).Config if row["method"] == described["method"] else None
        if settings and completed(settings, config) != completed(settings, described["config"]):
            raise InputError(f"this is {row['method']} with other settings than those of the run", file=file)
        key = row["method"], row["draw"]["hash"]
        if key in seen:
            raise InputError(f"{row['method']} was evaluated on the same steps in {seen[key]}", file=file)
        seen[key] = file
    if rows and not any(row["method"] == described["method"] for row in rows):
        raise InputError(f"there is no evaluation of {described['method']}", file=file)
    rows.sort(key=lambda row: _order(row, described["method"]))


def _order(row: dict[str, Any], own: str) -> tuple[Any, ...]:
    """Return what sorts evaluations: the densest first, those of the same steps together, the model before others."""
    draw = row["draw"]
    return -Fraction(draw["keep"]), draw["rule"], draw["hash"], row["method"] != own, row["method"]


# ---------------------------------------------------------------------- its dataset


def _check_dataset(dataset: Dataset, card: dict[str, Any]) -> None:
    info, data = dataset.info, card["data"]
    sizes = {name: {"trips": size.trips, "steps": size.steps} for name, size in info.splits.items()}
    here = info.network_hash, info.step_s, info.time_zone, sizes
    if here != (card["network"]["hash"], data["step_s"], data["time_zone"], data["splits"]):
        raise InputError("this is not the dataset of the run", file=dataset.path)


def _network_facts(dataset: Dataset) -> dict[str, Any]:
    network = dataset.network
    return {
        "source": network.meta.get("source", ""),
        "attribution": network.meta.get("attribution", ""),
        "segments": network.n_segments,
        "bbox": [round(float(degrees), 5) for degrees in network.bbox],
    }


def _data_facts(dataset: Dataset) -> dict[str, Any]:
    """Return what the training trips of a dataset are like, and where their truth is from."""
    train = tally_splits(dataset)["train"]
    zone = load_zone(dataset.info.time_zone)
    ends = [time for time in (train.first, train.last) if time is not None]
    days = [datetime.datetime.fromtimestamp(time, zone).date().isoformat() for time in ends]
    return {
        "dropped": dict(dataset.info.dropped),
        "truth": dict(dataset.info.config).get("truth", {}),
        "train_days": days,
        "train_steps": [int(train.steps.min()), int(train.steps.max())],
        "train_segments": int((train.on_segment > 0).sum()),
        "train_hours": int((train.hours.reshape(7, 24).sum(0) > 0).sum()),
    }


def _compare(run: Path, folder: Path, dataset: Dataset, settings: dict[str, Any]) -> dict[str, Any]:
    """Return how the written weights differ from those of the run on the validation trips."""
    if not dataset.info.splits["valid"].trips:
        return {}
    draw = draw_steps(dataset, keep=settings["keep"][0], rule=settings["rule"], split="valid")

    def evaluate(saved: Path) -> Evaluation:
        method = load_method(saved, dataset.network)
        if isinstance(method, LearnedMethod):
            method.to(choose_device("auto"))
        return evaluate_draw(method, draw, keep_steps=True, show_progress=True)

    whole, half = evaluate(run), evaluate(folder)
    assert whole.steps is not None  # noqa: S101  (asked for)
    assert half.steps is not None  # noqa: S101
    return {
        "trips": len(draw),
        "steps": int(draw.offsets[-1]),
        "same_segment": float((whole.steps.segment == half.steps.segment).mean()),
        "accuracy_before": whole.summary["accuracy"],
        "accuracy": half.summary["accuracy"],
    }


def _versions() -> dict[str, str]:
    return {
        "tedtrajrec": tedtrajrec.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": str(torch.__version__),
    }


def _write_json(file: Path, values: dict[str, Any]) -> None:
    file.write_text(json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n", "utf-8")
