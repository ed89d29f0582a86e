"""Speed of ``recover`` from file to file: trips a second, without loading and the first use.

    python benchmarks/recover_speed.py SPARSE.csv (--model RUN | --network FILE) [--repeat 4] [-o rows.jsonl]

The trips of the file are taken several times over under other names, written to a file of their own, and recovered to
Parquet with a summary and probabilities; a small part of them comes first and does not count.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import polars as pl

from tedtrajrec.experiments.provenance import machine
from tedtrajrec.recovery.recoverer import Recoverer
from tedtrajrec.recovery.stream import recover_file


def main() -> None:
    """Print a row of JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("sparse", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--network", type=Path)
    parser.add_argument("--timezone", default="UTC")
    parser.add_argument("--repeat", type=int, default=4)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    frame = pl.read_csv(arguments.sparse)
    copies = [frame.with_columns(pl.col("traj_id") + f"-{k}") for k in range(arguments.repeat)]
    if arguments.model is not None:
        recoverer = Recoverer.load(arguments.model)
    else:
        recoverer = Recoverer.from_network(arguments.network, time_zone=arguments.timezone)
    with tempfile.TemporaryDirectory() as folder:
        few, many = Path(folder) / "few.csv", Path(folder) / "many.csv"
        names = frame["traj_id"].unique(maintain_order=True)[:64]
        frame.filter(pl.col("traj_id").is_in(names)).write_csv(few)
        pl.concat(copies).write_csv(many)
        seconds = {}
        for file in (few, many):
            start = time.perf_counter()
            recover_file(file, file.with_suffix(".parquet"), recoverer, summary=file.with_name("summary.csv"))
            seconds[file.stem] = time.perf_counter() - start
        steps = pl.scan_parquet(many.with_suffix(".parquet")).select(pl.len()).collect().item()
    trips = frame["traj_id"].n_unique() * arguments.repeat
    row = {"what": "recover", "method": recoverer.method.name, "trips": trips, "steps": steps, "s": seconds["many"]}
    row |= {"trips_per_s": trips / seconds["many"], "steps_per_s": steps / seconds["many"], **machine()}
    print(json.dumps(row))
    if arguments.output is not None:
        with arguments.output.open("a") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
