"""Size of every method at the size of Chengdu, beside what the paper's efficiency table says, as a Markdown table.

    python benchmarks/method_sizes.py [--network network.npz]

Without a network, a made-up city of some 9,000 segments serves. ``parameters`` are all that is learned, as the method
is by default (d 256). Of these, ``tables`` are vectors of segments, cells and the like, which grow with the map, and
``layers`` the rest, scores of segments included. Layers / 2^20 is most likely the unit of the paper's "MB": it leaves
out free-standing tables. It most likely counts the compared methods, but not TedTrajRec, at a width of 512, which is
the next column. ``authors`` are all parameters with the settings of the method's own authors.
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any, NamedTuple

from torch import nn

from parallel_speed import RADIUS_M, city_of
from tedtrajrec.methods.learned import LearnedMethod
from tedtrajrec.methods.registry import METHODS, method_class
from tedtrajrec.network.roadnet import RoadNetwork

PAPER_MB = {"mtrajrec": 8.56, "rntrajrec": 14.57, "mm_stged": 16.98, "tedtrajrec": 5.92}
MEBI = 1 << 20
LAYERS = (nn.Linear, nn.GRU, nn.GRUCell, nn.LSTM, nn.LSTMCell, nn.Conv1d, nn.Conv2d, nn.LayerNorm)


class Size(NamedTuple):
    """Numbers of weights."""

    layers: int
    tables: int

    @property
    def all(self) -> int:
        """Both."""
        return self.layers + self.tables


def size_of(method: LearnedMethod[Any, Any]) -> Size:
    """Return the size of a method; embeddings, and parameters that no layer owns, are tables if they are long."""
    tables = 0
    for module in method.modules():
        if not isinstance(module, LAYERS):
            longest = [p for p in module.parameters(recurse=False) if p.dim() == 2 and len(p) > max(512, p.shape[1])]
            tables += sum(p.numel() for p in longest)
    return Size(sum(p.numel() for p in method.parameters()) - tables, tables)


def sizes(network: RoadNetwork, name: str) -> tuple[Size, Size, Size | None]:
    """Return the size of a method by default, at twice the width, and with the settings of its authors."""
    cls: Any = method_class(name)
    config = cls.Config()
    authors = cls.PRESETS.get("authors")
    return (
        size_of(cls(network, config)),
        size_of(cls(network, dataclasses.replace(config, d=2 * config.d))),
        None if authors is None else size_of(cls(network, authors)),
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", help="a road network, such as that of Chengdu")
    given = parser.parse_args()
    network = RoadNetwork.load(given.network) if given.network else city_of(RADIUS_M["9k"])
    print(f"{network.n_segments:,} segments\n")
    print('| method | parameters | layers | tables | layers / 2^20 | at d 512 | paper\'s "MB" | authors |')
    print("|---|---|---|---|---|---|---|---|")
    for name in METHODS:
        if not issubclass(method_class(name), LearnedMethod):
            continue
        size, wide, authors = sizes(network, name)
        cells = [
            f"{size.all / 1e6:.2f} M",
            f"{size.layers / 1e6:.2f} M",
            f"{size.tables / 1e6:.2f} M",
            f"{size.layers / MEBI:.2f}",
            f"{wide.layers / MEBI:.2f}",
            f"{PAPER_MB[name]:.2f}" if name in PAPER_MB else "",
            "" if authors is None else f"{authors.all / 1e6:.2f} M",
        ]
        print(f"| `{name}` | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
