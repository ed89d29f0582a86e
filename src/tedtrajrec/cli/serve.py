"""The verb that serves recovery over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

app = typer.Typer()


@app.command()
def serve(
    model: Annotated[
        str | None, typer.Argument(help="Run directory of 'train', or the name of a model; see 'models'.")
    ] = None,
    network: Annotated[
        Path | None, typer.Option("--network", help="Road network: without a model, or other than the model's.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option("--method", help="Method that needs no training, without a model (default: route_hmm)."),
    ] = None,
    port: Annotated[int | None, typer.Option("--port", help="Port to listen at (default: 8000).")] = None,
    host: Annotated[
        str | None,
        typer.Option("--host", help="Address to listen at; 0.0.0.0 lets other machines in (default: 127.0.0.1)."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help="File with the token that clients must send; or set TEDTRAJREC_TOKEN."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", help="Processes that answer; each loads the model (default: 1).")
    ] = None,
    examples: Annotated[
        Path | None, typer.Option("--examples", help="Sparse trips that the page offers to look at.")
    ] = None,
    truth: Annotated[Path | None, typer.Option("--truth", help="The same trips, dense.")] = None,
    timezone: Annotated[
        str | None, typer.Option("--timezone", help="IANA time zone of the city, without a model (default: UTC).")
    ] = None,
    step: Annotated[
        int | None, typer.Option("--step", help="Usual seconds between steps, without a model (default: 15).")
    ] = None,
    device: Annotated[str | None, typer.Option("--device", help="cpu, cuda or auto (default: auto).")] = None,
    decode: Annotated[
        Literal["feasible", "greedy"] | None,
        typer.Option(
            "--decode", help="The most likely trip that can be driven, or the method's own answer (default: feasible)."
        ),
    ] = None,
) -> None:
    """Serve recovery over HTTP, with a map page; limits are set by TEDTRAJREC_LIMITS__POINTS and the like."""
    from tedtrajrec.optional import load_optional

    for library in ("fastapi", "uvicorn", "prometheus_client", "pydantic_settings"):
        load_optional(library, "serve")
    from tedtrajrec.server.run import run_server
    from tedtrajrec.server.settings import make_settings

    run_server(
        make_settings(
            model=model,
            network=network,
            method=method,
            port=port,
            host=host,
            token_file=token_file,
            workers=workers,
            examples=examples,
            truth=truth,
            timezone=timezone,
            step_s=step,
            device=device,
            decode=decode,
        )
    )
