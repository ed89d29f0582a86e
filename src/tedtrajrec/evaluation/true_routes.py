"""Whether the true route of a trip is among the likeliest ones that a method names."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.evaluation.run import Draw, batches_of, truth_of
from tedtrajrec.methods.alternatives import WithAlternatives, route_keys
from tedtrajrec.methods.past.drives import TOP_SPEED_MPS
from tedtrajrec.network.routing import Router

Ints = NDArray[np.int64]

MOST = (1, 3, 5)
"""How many routes are looked at."""


def true_route_ranks(method: WithAlternatives, draw: Draw, most: int, *, batch_trips: int = 256) -> Ints:
    """Return the rank of the true route among the likeliest of each trip [T].

    Routes are told apart by their segments in order, with the shortest ways between steps filled in, whatever the
    timing. The rank is 0 for the likeliest, ``most`` where the true one is not among them, and -1 for trips of which
    the truth is not known at every step.

    Parameters
    ----------
    method
        It knows other routes.
    draw
        Trips and their observed steps.
    most
        Routes that are looked at.
    batch_trips
        Trips at a time.
    """
    router = Router(draw.dataset.network)
    reach = TOP_SPEED_MPS * draw.dataset.info.step_s
    out = np.full(len(draw), -1)
    for here, trips, batch in batches_of(draw, batch_trips):
        mask = batch.step_mask.numpy()
        truth = np.full(mask.shape, -1)
        truth[mask] = truth_of(trips)[0]
        named = method.alternatives(batch, most)
        exists = named.probability.numpy() > 0
        segment = np.concatenate([truth[:, None], named.segment.numpy()], axis=1)
        keys = route_keys(router, np.maximum(segment, 0), mask, reach)
        same = (keys[:, 1:] == keys[:, :1]) & exists
        rank = np.where(same.any(axis=1), same.argmax(axis=1), most)
        out[here] = np.where(((truth >= 0) | ~mask).all(axis=1), rank, -1)
    return out


def summarise_ranks(ranks: Ints) -> dict[str, float]:
    """Return the share of trips of known truth whose route is among the first ones, for each number of :data:`MOST`."""
    known = ranks[ranks >= 0]
    return {f"true_route_in_{k}": float((known < k).mean()) if len(known) else float("nan") for k in MOST}
