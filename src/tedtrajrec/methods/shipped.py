"""Trained models that come with tedtrajrec: folders of saved methods, each with a card, found by name.

In the repository they lie in ``models/``, in an installed package in ``tedtrajrec/_models``. A card is what
``tedtrajrec export`` writes: ``card.json`` for programs and ``README.md`` for readers, with the same facts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from tedtrajrec.errors import InputError
from tedtrajrec.files import read_json

PACKAGE = Path(__file__).parents[1]
CARD = "card.json"


class ModelLine(NamedTuple):
    """What the list of models says of one."""

    name: str
    method: str
    network: str  # source and hash
    step_s: int
    keep: str  # nominal share of observed steps it was trained for
    accuracy: float
    accuracy_of: str  # the trips it was measured on

    def __str__(self) -> str:
        return (
            f"{self.name:<14} {self.method:<20} {self.network}, {self.step_s} s, keep {self.keep}, "
            f"accuracy {self.accuracy:.3f} ({self.accuracy_of})"
        )


def shipped_models() -> dict[str, Path]:
    """Return the folders of the models that come with this copy of tedtrajrec, by name."""
    folder = PACKAGE / "_models"
    root = PACKAGE.parents[1]
    if not folder.is_dir() and (root / "pyproject.toml").is_file():  # not installed, or editable: the repository
        folder = root / "models"
    return {path.parent.name: path.parent for path in sorted(folder.glob(f"*/{CARD}"))}


def describe_models() -> list[ModelLine]:
    """Return a line for each model that comes with this copy of tedtrajrec."""
    return [_line(name, read_card(folder)) for name, folder in shipped_models().items()]


def read_card(folder: str | Path) -> dict[str, Any]:
    """Return what ``card.json`` in the folder of a model says."""
    file = Path(folder) / CARD
    card = read_json(file, "the card of a trained model")
    if not (isinstance(card, dict) and {"name", "method", "network", "data", "training", "evaluations"} <= card.keys()):
        raise InputError("this is not the card of a trained model", file=file, remedy="Export the model again.")
    return card


def network_of(folder: str | Path) -> str:
    """Return which network a saved method was made for, in words: those of its card, where it has one."""
    if not (Path(folder) / CARD).is_file():
        return "the network.npz of the dataset it was trained on"
    return f"the network of its card: {describe_network(read_card(folder)['network'])}"


def describe_network(network: dict[str, Any]) -> str:
    """Return what a card says of the network in one line."""
    if "segments" not in network:  # exported without the dataset
        return str(network["hash"])
    west, south, east, north = network["bbox"]
    return (
        f"{network['hash']}, made from {network['source'] or 'an unnamed source'}, {network['segments']:,} segments in "
        f"{west:.4f},{south:.4f},{east:.4f},{north:.4f}"
    )


def _line(name: str, card: dict[str, Any]) -> ModelLine:
    network = card["network"]
    accuracy, of = card["training"]["valid_accuracy"], "validation"
    for row in card["evaluations"]:
        if row["method"] == card["method"]:
            accuracy, of = row["metrics"]["accuracy"], f"{row['draw']['split']}, keep {row['draw']['keep']}"
            break
    return ModelLine(
        name,
        card["method"],
        f"{network.get('source') or 'network'} {network['hash']}",
        card["data"]["step_s"],
        "|".join(card["training"]["settings"]["keep"]),
        accuracy,
        of,
    )
