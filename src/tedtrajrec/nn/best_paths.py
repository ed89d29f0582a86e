"""The best paths through a chain: a compiled kernel on the CPU, tensors of the whole batch on other devices.

Both keep the k best ways to each candidate of a step, and both give the same paths, bit for bit: sums are taken in the
same order, and ties are broken in the same way, by the lowest candidate and then by the better way to it, at the last
step first. So does the kernel that finds the one best path on CUDA devices (:mod:`tedtrajrec.nn.chain_cuda`).
"""

from __future__ import annotations

from types import ModuleType

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from tedtrajrec.nn.kernels import kernels_for
from tedtrajrec.threads import map_parts

TRIPS_PER_PART = 64
NOTHING = -torch.inf


def kernels_of_chains(scores: Tensor) -> ModuleType | None:
    """Return :mod:`tedtrajrec.nn.chain_cuda` where it can do with such scores [..., C], else None."""
    kernels = kernels_for("chain_cuda", scores)
    return kernels if kernels is not None and scores.shape[-1] <= kernels.MOST else None


def best_paths(unary: Tensor, pair: Tensor, which: Tensor, mask: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k best paths of each trip [B, k, n] and their scores in falling order [B, k].

    Where a trip has fewer paths, the score is minus infinity. What a path holds there, and at padding, means nothing.

    Parameters
    ----------
    unary, pair, which, mask
        The parts of a :class:`~tedtrajrec.nn.chain.Chain`, with scores of one type.
    k
        How many paths.
    """
    kernels = kernels_of_chains(unary) if k == 1 else None
    if kernels is not None:
        path, score = kernels.best_path(unary.detach(), pair.detach(), which, mask)
        return path[:, None], score[:, None]
    search = by_kernel if unary.device.type == "cpu" else by_tensors
    return search(unary.detach(), pair.detach(), which, mask, k)


def by_kernel(unary: Tensor, pair: Tensor, which: Tensor, mask: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return what :func:`best_paths` returns, trip by trip."""
    scores_at, matrices, numbers, lengths = (part.contiguous().numpy() for part in (unary, pair, which, mask.sum(1)))

    def search(first: int) -> tuple[NDArray[np.int64], NDArray[np.floating]]:
        part = slice(first, first + TRIPS_PER_PART)
        return _search(scores_at[part], matrices[part], numbers[part], lengths[part], k)

    paths, scores = zip(*map_parts(search, range(0, len(unary), TRIPS_PER_PART), None), strict=True)
    return torch.from_numpy(np.concatenate(paths)), torch.from_numpy(np.concatenate(scores))


@njit(cache=True, nogil=True)
def _search(
    unary: NDArray[np.floating],
    pair: NDArray[np.floating],
    which: NDArray[np.int64],
    lengths: NDArray[np.int64],
    k: int,
) -> tuple[NDArray[np.int64], NDArray[np.floating]]:
    b, n, c = unary.shape
    paths = np.zeros((b, k, n), np.int64)
    scores = np.empty((b, k), unary.dtype)
    ways = np.empty((c, k), unary.dtype)  # to each candidate of a step, in falling order
    following = np.empty((c, k), unary.dtype)
    back = np.empty((n, c, k), np.int64)  # the candidate * k + rank before
    last = np.empty((1, k), unary.dtype)
    last_back = np.empty((1, k), np.int64)
    end = np.zeros((c, 1), unary.dtype)
    for trip in range(b):
        ways[:] = NOTHING
        ways[:, 0] = unary[trip, 0]
        for i in range(1, lengths[trip]):
            _extend(ways, pair[trip, which[trip, i - 1]], following, back[i])
            for d in range(c):
                for rank in range(k):
                    ways[d, rank] = following[d, rank] + unary[trip, i, d]
        _extend(ways, end, last, last_back)  # as if all led to one last state
        for j in range(k):
            scores[trip, j] = last[0, j]
            state = last_back[0, j]
            for i in range(lengths[trip] - 1, -1, -1):
                paths[trip, j, i] = state // k
                state = back[i, state // k, state % k] if i > 0 else 0
    return paths, scores


@njit(cache=True, nogil=True)
def _extend(
    ways: NDArray[np.floating], pair: NDArray[np.floating], following: NDArray[np.floating], back: NDArray[np.int64]
) -> None:
    """Write the k best ways into each of D states [D, k], given those to C candidates [C, k] and pair [C, D]."""
    c, k = ways.shape
    following[:] = NOTHING
    back[:] = 0
    for source in range(c):
        for d in range(pair.shape[1]):
            for rank in range(k):
                value = ways[source, rank] + pair[source, d]
                if value <= following[d, k - 1]:
                    break
                place = k - 1
                while place > 0 and following[d, place - 1] < value:
                    following[d, place] = following[d, place - 1]
                    back[d, place] = back[d, place - 1]
                    place -= 1
                following[d, place] = value
                back[d, place] = source * k + rank


def by_tensors(unary: Tensor, pair: Tensor, which: Tensor, mask: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return what :func:`best_paths` returns, step by step for all trips at once; nothing waits for the device."""
    trip = torch.arange(len(pair), device=pair.device) * pair.shape[1]
    row = (which.masked_fill(~mask[:, 1:], 0).t() + trip).unbind(0)  # of all matrices of the batch
    local, real = unary.transpose(0, 1).unbind(0), mask.unbind(1)
    matrices = pair.flatten(0, 1)
    ways = functional.pad(local[0][:, :, None], (0, k - 1), value=NOTHING)  # [B, C, k]
    back = []
    for i in range(1, len(local)):
        following, source = _merge(ways, matrices.index_select(0, row[i - 1]))
        ways = torch.where(real[i][:, None, None], following + local[i][:, :, None], ways)
        back.append(source.flatten(1))
    last, source = _merge(ways, ways.new_zeros(*ways.shape[:2], 1))  # as if all led to one last state
    state = source[:, 0]  # [B, k], a candidate * k + rank
    path = [state]
    for i in range(len(back), 0, -1):
        state = torch.where(real[i][:, None], back[i - 1].gather(1, state), state)
        path.append(state)
    return torch.stack(path[::-1], dim=2) // k, last[:, 0]


def _merge(ways: Tensor, pair: Tensor) -> tuple[Tensor, Tensor]:
    """Return the k best ways into each of D states and their sources, as candidate * k + rank, both [B, D, k].

    The ways to a candidate are in falling order, so only the next one of each can be the next best: k times the best of
    those is taken, and the one after it put in its place. That reads [B, C, D] k times, and never makes [B, C k, D].

    Parameters
    ----------
    ways
        [B, C, k], in falling order.
    pair
        [B, C, D].
    """
    k = ways.shape[2]
    front = pair + ways[:, :, :1]
    value, candidate = front.max(1, keepdim=True)  # [B, 1, D], the lowest candidate if several are best
    if k == 1:
        return value.mT, candidate.mT
    after = functional.pad(ways, (0, 1), value=NOTHING).flatten(1)  # [B, C * (k + 1)]
    values, candidates, ranks = value, candidate, torch.zeros_like(candidate)
    for _ in range(k - 1):
        place = candidates[:, -1:] * (k + 1) + ranks[:, -1:] + 1
        following = after.gather(1, place[:, 0])[:, None]
        front.scatter_(1, candidate, following + pair.gather(1, candidate))
        value, candidate = front.max(1, keepdim=True)
        rank = (candidates == candidate).sum(1, keepdim=True)  # how often the candidate has been taken before
        values, candidates, ranks = (
            torch.cat([values, value], 1),
            torch.cat([candidates, candidate], 1),
            torch.cat([ranks, rank], 1),
        )
    return values.mT, (candidates * k + ranks).mT
