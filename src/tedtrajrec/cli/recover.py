"""The verb that recovers trips."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tedtrajrec.cli.options import Columns, Output, Ray, TimeZone, mapping
from tedtrajrec.errors import ConfigError

if TYPE_CHECKING:
    from tedtrajrec.recovery.recoverer import Recoverer

app = typer.Typer()


@app.command()
def recover(
    trips: Annotated[Path, typer.Argument(help="Trips: CSV, Parquet, GeoParquet, GPX, or a folder of Parquet parts.")],
    output: Output,
    model: Annotated[
        str | None, typer.Option("--model", help="Run directory of 'train', or a model that 'models' lists.")
    ] = None,
    method: Annotated[
        str | None, typer.Option("--method", help="Method without a trained model (default: route_hmm); see 'methods'.")
    ] = None,
    network: Annotated[
        Path | None, typer.Option("--network", help="Road network; a model brings the one it was trained on.")
    ] = None,
    step: Annotated[
        int | None, typer.Option("--step", help="Seconds between recovered steps (default: the model's, or 15).", min=1)
    ] = None,
    decode: Annotated[
        Literal["feasible", "greedy"],
        typer.Option("--decode", help="The most likely trip that can be driven, or the method's own answer."),
    ] = "feasible",
    alternatives: Annotated[
        int, typer.Option("--alternatives", help="Add so many next best trips to each.", min=0)
    ] = 0,
    summary: Annotated[
        Path | None, typer.Option("--summary", help="CSV or Parquet with a row for each trip: km, minutes, speed, ...")
    ] = None,
    rejects: Annotated[
        Path | None,
        typer.Option("--rejects", help="CSV of all that was not used, with the reason (default: beside the output)."),
    ] = None,
    trim_ends: Annotated[
        str | None, typer.Option("--trim-ends", help="Leave out what is so near to the ends of a trip, such as 200m.")
    ] = None,
    hash_ids: Annotated[
        bool, typer.Option("--hash-ids", help="Write keyed hashes of trip ids, and no extra columns but those named.")
    ] = False,
    hash_key_file: Annotated[
        Path | None,
        typer.Option("--hash-key-file", help="Key of the hashes (default: TEDTRAJREC_HASH_KEY, else a fresh one)."),
    ] = None,
    extra: Annotated[
        list[str] | None, typer.Option("--extra", help="Extra column to keep (default: all); repeat for more.")
    ] = None,
    columns: Columns = None,
    timezone: TimeZone = None,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda or auto.")] = "auto",
    ray: Ray = None,
) -> None:
    """Recover sparse trips: a position on the road for every few seconds, with its probability.

    Of a folder of Parquet parts, another one is made, with the same parts.

    Interrupted work goes on where it was when the same command is given again.
    """
    from tedtrajrec.cluster.parts import recover_parts
    from tedtrajrec.cluster.pool import over_chunks
    from tedtrajrec.recovery.privacy import find_key, metres
    from tedtrajrec.recovery.stream import recover_file

    distance = 0.0 if trim_ends is None else metres(trim_ends)
    key = find_key(hash_key_file) if hash_ids or hash_key_file is not None else None
    if ray is not None and device not in ("auto", "cpu"):
        raise ConfigError("On Ray, trips are recovered on processors; leave out --device, or --ray to use a GPU here.")
    if trips.is_dir() and (summary is not None or rejects is not None):
        raise ConfigError(
            f"--summary and --rejects are single files, but {trips} is a folder of parts; rejects are listed beside "
            "each part."
        )
    where = device if ray is None else "cpu"
    recoverer = _load(model, method, network, step=step, decode=decode, timezone=timezone, device=where)
    for note in recoverer.notes:
        _tell(note)
    hash_key, names = None if key is None else key.text, mapping(columns)
    with over_chunks(ray) as over:
        if trips.is_dir():
            done = recover_parts(
                trips,
                output,
                recoverer,
                step_s=step,
                alternatives=alternatives,
                trim_ends_m=distance,
                hash_key=hash_key,
                extras=extra or None,
                columns=names,
                timezone=timezone,
                over=over,
            )
        else:
            done = recover_file(
                trips,
                output,
                recoverer,
                step_s=step,
                alternatives=alternatives,
                rejects=rejects,
                summary=summary,
                trim_ends_m=distance,
                hash_key=hash_key,
                extras=extra or None,
                columns=names,
                timezone=timezone,
                tell=_tell,
                over=over,
                show_progress=True,
            )
    typer.echo(f"{output}: {done}")
    if key is not None and key.is_fresh:
        _tell(
            f"Ids are hashed with the key {key.text}, which is kept nowhere: keep it and set TEDTRAJREC_HASH_KEY to it "
            "if other files shall get the same ids."
        )


def _load(
    model: str | None,
    method: str | None,
    network: Path | None,
    *,
    step: int | None,
    decode: Literal["feasible", "greedy"],
    timezone: str | None,
    device: str,
) -> Recoverer:
    from tedtrajrec.recovery.recoverer import Recoverer

    if model is not None:
        if method is not None:
            raise ConfigError("Give --model or --method, not both: a model is of one method.")
        return Recoverer.load(model, network=network, device=device, decode=decode)
    if network is None:
        raise ConfigError(
            "There is nothing to recover with: give --model RUN for a trained model, or --network FILE for route_hmm, "
            "which needs no training."
        )
    return Recoverer.from_network(
        network, method=method or "route_hmm", time_zone=timezone or "UTC", step_s=step or 15, decode=decode
    )


def _tell(note: str) -> None:
    typer.echo(note, err=True)
