"""The segments that a trip may have used, so that a step-by-step method need not score all of a network.

They are the segments that the method sees around its fixes and, of each gap between two fixes, those on the best ways
from one to the other (:mod:`tedtrajrec.network.reach`), with the map's speeds. In training the true ones are added,
since a truth without a score has no likelihood. A trip has its own, so that the others of a batch do not matter to it.
"""

from __future__ import annotations

from typing import Self

import numpy as np
import torch
from torch import Tensor

from tedtrajrec.data.batch import Batch
from tedtrajrec.methods.lattices.ends import find_ends, gaps_between
from tedtrajrec.methods.learned import Inputs
from tedtrajrec.methods.more_inputs import MoreInputs
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.reach import Band, GapSearch
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.road_gnn import RoadGnn
from tedtrajrec.nn.touched import LARGE, SHARE, Part, no_part, rounded

PART = len(Part._fields)
UNIT = 64  # choices of a trip are padded to multiples of this
NEAR_M, MOST_NEAR = 150.0, 12  # where the ways of a gap may begin and end

WIDE = Band(band_s=600.0, band_share=2.0, horizon_s=1200.0, horizon_share=12.0, slack_m=2000.0, reach_share=6.0)
"""What belongs to a gap. A segment left out cannot be answered, however likely the model holds it, so it is much wider
than the band of a method that ranks candidates by their ways."""


class ReachableInputs(MoreInputs):
    """A batch with the segments of each trip; in training on a large network numbers count in the part it touches."""

    along_fixes = (0,) * (1 + PART)

    @property
    def choice(self) -> Tensor:
        """The segments that each trip may use [B, C], rising; padding has the largest number there is."""
        return self[-1 - PART]

    @property
    def part(self) -> Part | None:
        """The part of the network whose segments are meant; None for the whole."""
        part = Part(*self[-PART:])
        return part if part.asked.numel() else None

    def rounded(self, fixes: int = 4, steps: int = 8) -> Self:
        """Return the batch with more padding, up to multiples of these, so that few shapes occur."""
        part = no_part() if self.part is None else rounded(self.part)
        count = self.choice.shape[1]
        # Some 30 numbers of choices would make as many shapes as there are batches.
        unit = max(UNIT, 1 << max(count.bit_length() - 3, 0))
        more = self.choice.new_full((len(self.choice), -count % unit), torch.iinfo(torch.int64).max)
        choice = torch.cat([self.choice, more], dim=1)
        return type(self)(*self.plain.rounded(fixes, steps), choice, *part)


class ReachableSearch:
    """Finds the segments that trips may have used.

    Parameters
    ----------
    network
        The road network.
    most
        Segments of a gap at most, those of the best ways.
    """

    def __init__(self, network: RoadNetwork, most: int) -> None:
        self.network, self.most = network, most
        self._finder = CandidateFinder(network)
        self._search = GapSearch(network, network.length_m / network.speed_mps)

    def choices(self, batch: Batch, inputs: Inputs) -> Tensor:
        """Return the segments of each trip [B, C], rising, with S as padding; the truth is not looked at."""
        fixes = batch.fixes(self.network)
        ends = find_ends(self._finder, fixes, NEAR_M, MOST_NEAR, None)
        first, gaps = gaps_between(fixes, ends)
        reached = self._search.search(gaps, most=self.most, band=WIDE)
        gap = np.repeat(np.arange(len(first)), np.diff(reached.offset))
        fix = np.repeat(np.arange(fixes.n_fixes), np.diff(ends.offset))
        trip = fixes.trip_of_fix
        near = inputs.near_distance.isfinite().cpu()
        return sets_of(
            np.concatenate([trip[first[gap]], trip[fix], near.nonzero()[:, 0].numpy()]),
            np.concatenate([reached.segment, ends.segment, inputs.near_segment.cpu()[near].numpy()]),
            len(batch),
            self.network.n_segments,
        )


def sets_of(trip: np.ndarray, segment: np.ndarray, trips: int, n_segments: int) -> Tensor:
    """Return pairs of trip and segment as one row a trip [B, C], each segment once, rising, with S as padding."""
    key = np.sort(trip.astype(np.int64) * (n_segments + 1) + segment)
    key = key[np.diff(key, prepend=-1) > 0]  # np.unique makes a table of hashes, in ten times as long
    trip, segment = np.divmod(key, n_segments + 1)
    count = np.bincount(trip, minlength=trips)
    first = np.cumsum(count) - count
    width = -(-int(count.max(initial=1)) // UNIT) * UNIT
    rows = np.full((trips, width), n_segments)
    rows[trip, np.arange(len(trip)) - first[trip]] = segment
    return torch.from_numpy(rows)


def with_truth(choice: Tensor, truth: Tensor, n_segments: int) -> Tensor:
    """Return the choices of trips [B, C] and their true segments [B, n], where these are known."""
    both = torch.cat([choice, truth], dim=1).numpy()
    real = (both >= 0) & (both < n_segments)
    return sets_of(np.nonzero(real)[0], both[real], len(both), n_segments)


def touching(inputs: Inputs, choice: Tensor, gnn: RoadGnn) -> ReachableInputs:
    """Return a batch with the part of a large network that it touches, where that is not most of it."""
    n = len(gnn.table)
    if n <= LARGE:
        return ReachableInputs(*inputs, choice, *no_part())
    asked = torch.cat([inputs.near_segment.flatten(), choice.clamp(max=n - 1).flatten()]).numpy()
    part, number = gnn.parts.around(asked, gnn.hops)
    if len(part.segment) > SHARE * n:
        return ReachableInputs(*inputs, choice, *no_part())
    near, chosen = map(torch.from_numpy, np.split(number, [inputs.near_segment.numel()]))
    named = chosen.view_as(choice)
    place = torch.searchsorted(choice, inputs.segment)  # the truth is among the choices of its trip
    truth = named.gather(1, place).masked_fill(inputs.segment < 0, -1)
    named = named.masked_fill(choice >= n, torch.iinfo(torch.int64).max).sort(dim=1).values
    plain = inputs._replace(near_segment=near.view_as(inputs.near_segment), segment=truth)
    return ReachableInputs(*plain, named, *part)
