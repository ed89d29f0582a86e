"""The card of a trained model: what it was made from, how well it works, and where it does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tedtrajrec.methods.shipped import describe_network

Card = Mapping[str, Any]

_COLUMNS = {
    # heading: name in the metrics, format
    "accuracy": ("accuracy", ".3f"),
    "±": ("accuracy_se", ".3f"),
    "observed": ("accuracy_observed", ".3f"),
    "missing": ("accuracy_missing", ".3f"),
    "no route": ("accuracy_no_route", ".3f"),
    "recall": ("recall", ".3f"),
    "precision": ("precision", ".3f"),
    "F1": ("f1", ".3f"),
    "MAE m": ("mae_m", ".0f"),
    "RMSE m": ("rmse_m", ".0f"),
    "at cap": ("capped_share", ".3f"),
}

_TRUTH = {
    "given": "came with the trips",
    "match": "were found by matching all fixes",
    "auto": "came with the trips, or were found by matching all fixes if these have none",
}


_ELSEWHERE = {
    "any city": "On a newer extract of the same city it knows new roads only by what the map says of them, and in "
    "another city all roads; both are told.",
    "newer map": "On a newer extract of the same city it knows new roads only by what the map says of them; any other "
    "network is refused.",
    "nowhere": "Any other network, also a newer extract of the same city, is refused.",
}


def limits(card: Card) -> list[str]:
    """Return where a model does not work or was not tested, as sentences that follow from the other facts."""
    network, data, settings = card["network"], card["data"], card["training"]["settings"]
    said = _Sentences()
    said(f"It was trained on network {network['hash']}.", _ELSEWHERE[card["elsewhere"]])
    said(
        f"It was trained with steps of {data['step_s']} s, {_shares(settings['keep'])} of them observed (rule",
        f"{settings['rule']}). Other steps, and sparser or denser fixes, are not refused;",
        "how well they are recovered is known only where the results say so.",
    )
    said(f"Times of day are local times of {data['time_zone']}.")
    if "train_steps" in data:
        shortest, longest = data["train_steps"]
        said(
            f"Training trips have {shortest} to {longest} steps and are from {' to '.join(data['train_days'])},",
            f"from {data['train_hours']} of the 24 hours of the day; nothing is known of trips and times beyond these.",
        )
        said(
            f"Training trips are on {data['train_segments']:,} of {network['segments']:,} segments;",
            "the others are hardly ever predicted.",
        )
    if data.get("truth"):
        origin = _TRUTH[data["truth"]["source"]]
        if data["truth"].get("rematch"):
            origin += ", and were found by matching where they were not given"
        said(f"True positions {origin}; the metrics measure agreement with them, errors of theirs included.")
    said("A fix far from every road constrains nothing.")
    if card.get("taught"):
        said(
            "Beside its weights it holds what past trips taught it, which may be their very drives, segment by segment",
            "with times, though without names: hand it on only where those trips could be handed on.",
        )
    if card["model"].get("decode") == "drivable":
        said(
            "Consecutive positions are connected by a route that can be driven in the time,",
            "but for moves that are marked as breaks, where the map has none or fixes lie too far apart.",
        )
    else:
        said("Two consecutive positions need not be connected by a route that can be driven.")
    own = [row for row in card["evaluations"] if row["method"] == card["method"] and _decoding(row) == "own"]
    for row in own:
        draw = row["draw"]
        observed, missing, no_route = (
            _number(row["metrics"].get(f"accuracy_{kind}"), ".3f") for kind in ("observed", "missing", "no_route")
        )
        said(
            f"At keep {draw['keep']} ({draw['rule']}, {draw['trips']:,} {draw['split']} trips) its accuracy is",
            f"{observed} on observed steps, {missing} on missing ones,",
            f"and {no_route} in gaps for which the map has no route.",
        )
    if not own:
        said("It was not evaluated on test trips.")
    return said


class _Sentences(list[str]):
    """Sentences, each given in the parts that fit a line of code."""

    def __call__(self, *parts: str) -> None:
        self.append(" ".join(parts))


def card_text(card: Card) -> str:
    """Return the card as Markdown."""
    parts = [
        f"# {card['name']}",
        f"A trained `{card['method']}` for trips on the road network {describe_network(card['network'])}.",
        _usage(card),
        "## Data\n\n" + _table(_data(card)),
        "## Training\n\n" + _table(_training(card)),
        "## Settings of the model\n\n" + _table({f"`{name}`": value for name, value in card["model"].items()}),
        *(["## Search\n\n" + _search(card["search"])] if "search" in card else []),
        "## Results\n\n" + _results(card),
        "## Half precision\n\n" + _half(card),
        "## Limits\n\n" + "\n".join(f"- {sentence}" for sentence in card["limits"]),
    ]
    if card["note"]:
        parts.append(f"## Note\n\n{card['note']}")
    versions = ", ".join(f"{name} {version}" for name, version in card["versions"].items())
    parts.append(
        f"Written by `tedtrajrec export` on {card['exported']} with {versions}; `card.json` holds the same as data."
    )
    return "\n\n".join(parts) + "\n"


def _usage(card: Card) -> str:
    name, keep = card["name"], card["training"]["settings"]["keep"][0]
    return (
        f"    tedtrajrec evaluate {name} DATASET --keep {keep}\n"
        f'    load_method("{name}", network).recover(batch)\n\n'
        "By its name where it comes with tedtrajrec, by its folder else."
    )


def _data(card: Card) -> dict[str, Any]:
    network, data = card["network"], card["data"]
    rows = {
        "trips": data["source"] or "not named",
        "licence of the trips": "not recorded in the dataset",
        "map": network.get("source") or "not named",
        "licence of the map": network.get("attribution") or "not recorded in the network",
        "network": network["hash"],
    }
    rows |= {f"{name} trips": f"{size['trips']:,} ({size['steps']:,} steps)" for name, size in data["splits"].items()}
    rows |= {"step_s": data["step_s"], "time zone": data["time_zone"]}
    if data.get("dropped"):
        reasons = ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in data["dropped"].items())
        rows["trips dropped"] = reasons
    return rows


def _training(card: Card) -> dict[str, Any]:
    training, settings = card["training"], card["training"]["settings"]
    rows = {
        "parameters": f"{card['parameters']:,}",
        "epochs": f"{training['epochs']} of {settings['epochs']} done; the weights are those after epoch "
        f"{training['best_epoch']}, the best by validation accuracy",
        "validation accuracy": f"{training['valid_accuracy']:.4f} at keep {settings['keep'][0]}",
        "time": f"{training['seconds'] / 60:.1f} minutes",
        "thinning": f"keep {_shares(settings['keep'])}, rule {settings['rule']}, "
        + ("drawn anew each epoch" if settings["redraw"] else "drawn once"),
        "seed": settings["seed"],
    }
    shown = ("epochs", "keep", "rule", "redraw", "seed")
    return rows | {f"`{name}`": value for name, value in settings.items() if name not in shown}


def _search(search: Card) -> str:
    """Return what the search for drivable trips was chosen from."""
    head = ["`error_m`", "`margin`", "`voted`", "accuracy", "recall", "precision", "F1"]
    lines = [_cells(head), _cells(["---"] * len(head))]
    rows = [(one["error_m"], one["margin"], one["voted"], one["scores"]) for one in search["tried"]]
    for *settings, scores in [*rows, ("`lookup`", "", "", search["lookup"])]:
        figures = (f"{scores[name]:.4f}" for name in ("accuracy", "recall", "precision", "f1"))
        lines.append(_cells([*settings, *figures]))
    return "\n".join(lines) + (
        f"\n\nMeans over {search['trips']:,} draws of validation trips; `error_m` {search['error_m']:g}, `margin` "
        f"{search['margin']:g} and `voted` {search['voted']:g} were chosen: of the leads over `lookup` in accuracy, "
        "recall and precision, the least is largest with them."
    )


def _results(card: Card) -> str:
    if not card["evaluations"]:
        return "None were given."
    head = ["method", "trips", "keep", "rule", "seed", "fixes", *_COLUMNS]
    lines = [_cells(head), _cells(["---"] * len(head))]
    for row in card["evaluations"]:
        draw, metrics = row["draw"], row["metrics"]
        method = row["method"] if _decoding(row) == "own" else f"{row['method']}, {_decoding(row)}"
        given = [method, f"{draw['trips']:,} {draw['split']}", draw["keep"], draw["rule"], draw["seed"]]
        values = [_number(metrics.get(name), form) for name, form in _COLUMNS.values()]
        lines.append(_cells([*given, f"{draw['mean_fixes']:.1f}", *values]))
    meaning = (
        "Means over trips; ± is the standard error of the accuracy, *no route* the accuracy in gaps for which the map "
        "has no route, MAE and RMSE are network distances, *at cap* the share of steps at their cap."
    )
    return "\n".join(lines) + f"\n\n{meaning}"


def _decoding(row: Card) -> str:
    """Return how answers were found; rows of before this was said have the method's own."""
    decoding: str = row.get("decoding", "own")
    return decoding


def _half(card: Card) -> str:
    half = card["half_precision"]
    kept = ", ".join(half["kept_whole"])
    text = (
        f"Weights are stored in half precision ({card['bytes'] / 1e6:.1f} MB) and used in single precision; rounding "
        f"changed no array by more than {half['largest_error']:.1e} of its norm."
    )
    if kept:
        text += f" Stored whole, because more would have been lost: {kept}."
    if "same_segment" in half:
        text += (
            f" On {half['trips']:,} validation trips {half['same_segment']:.3%} of {half['steps']:,} steps get the "
            f"same segment as before; accuracy {half['accuracy_before']:.4f} became {half['accuracy']:.4f}."
        )
    return text


def _shares(keep: Sequence[str]) -> str:
    return " or ".join(keep)


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _table(rows: Mapping[str, Any]) -> str:
    lines = [["", ""], ["---", "---"], *rows.items()]
    return "\n".join(map(_cells, lines))


def _cells(values: Sequence[Any]) -> str:
    return f"| {' | '.join(str(value).replace('|', '/') for value in values)} |"
