"""A linear-chain conditional random field over the candidates of the steps of a trip.

A path c = (c_1, ..., c_n) takes one candidate at each step. With the scores u of candidates and T of transitions,

    score(c) = sum_i u_i[c_i] + sum_i T_i[c_i, c_{i+1}],   p(c) = exp(score(c) - log Z),   Z = sum over all paths,

and log Z, the probabilities of candidates and the best paths are found step after step in O(n C^2).

**Sums of exponentials as products.** Many steps share a transition matrix, so each distinct one is exponentiated once,

    E[c, d] = exp(T[c, d] - m[d]),   m[d] = max_c T[c, d],

and a step of the forward pass is one product with the normalised weights of the step before,

    a_{i+1} = u_{i+1} + m + log(softmax(a_i) E),   log Z = sum_i logsumexp(a_i);

likewise backwards. Scores of candidates stay logarithms, so their range does not matter. That of transitions does: one
that is REACH below the best into the same candidate, or lower, counts as REACH below. So no entry of E is less than
exp(-60), some entry of the softmax is at least 1 / C, and each sum is at least exp(-60) / C. Terms that underflow are
below exp(-87), and all of them together change a sum by less than C^2 exp(-27), 1e-8 at C = 64: a path that has no
choice but a forbidden transition still has its score to the precision of float32.

The gradient of log Z is the marginal probability of each candidate, and for a matrix the expected number of times that
each of its transitions is taken. It is found by the backward pass, so that [n, B, C] is stored and not [n, B, C, C].

All loops are fixed, and nothing waits for the device: everything here can be recorded as a CUDA graph. On CUDA devices
with Triton, kernels of their own do the same (:mod:`tedtrajrec.nn.chain_cuda`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tedtrajrec.nn.best_paths import best_paths, kernels_of_chains

NO = -(2.0**20)
"""The score of a candidate that does not exist: a power of two, which bfloat16 holds exactly too."""
REACH = 60.0
"""In sums over paths a transition counts as at most so much worse than the best one into the same candidate."""


class Chain(NamedTuple):
    """The scores of a batch of trips; in float32 or better inside, whatever they come in.

    At each real step at least one candidate exists, and paths of candidates that exist score well above NO / 2. What
    stands at padding is never looked at. Transitions are finite; those of candidates that do not exist may be anything
    within the range of the others.
    """

    unary: Tensor  # [B, n, C] of the candidates of each step; NO for those that do not exist
    pair: Tensor  # [B, P, C, C] of transitions, the distinct matrices of a trip: from candidate c to candidate d
    which: Tensor  # [B, n - 1] int64, the matrix between a step and the next
    mask: Tensor  # [B, n] bool; real steps come first, and there is at least one


def log_partition(chain: Chain) -> Tensor:
    """Return log Z of each trip [B], with gradients for candidates and transitions."""
    chain = _at_least_float32(chain)
    return _totals(chain, chain.unary[:, None])[:, 0].to(chain.unary.dtype)


def constrained_log_partition(chain: Chain, truth: Tensor) -> Tensor:
    """Return the logarithm of the sum over all paths that agree with what is known [B], with gradients.

    Parameters
    ----------
    chain
        The scores.
    truth
        [B, n], a candidate that exists, or -1 where it is unknown.
    """
    return log_partition(chain._replace(unary=_pinned(chain, truth)))


def negative_log_likelihood(chain: Chain, truth: Tensor) -> Tensor:
    """Return -log of the probability of what is known [B], with gradients: the loss of a trip.

    Both sums are taken side by side, so that each matrix is read once for the two of them: with the truth known in part
    or in whole, this costs little more than :func:`log_partition` alone.

    Parameters
    ----------
    chain
        The scores.
    truth
        [B, n], a candidate that exists, or -1 where it is unknown.
    """
    chain = _at_least_float32(chain)
    free, pinned = _totals(chain, torch.stack([chain.unary, _pinned(chain, truth)], dim=1)).unbind(1)
    return (free - pinned).to(chain.unary.dtype)


def path_score(chain: Chain, path: Tensor) -> Tensor:
    """Return the score of one path of each trip [B], given by its candidates [B, n], with gradients."""
    chain = _at_least_float32(chain)
    c, real = chain.unary.shape[2], chain.mask[:, 1:]
    path = path.masked_fill(~chain.mask, 0)
    place = (chain.which.masked_fill(~real, 0) * c + path[:, :-1]) * c + path[:, 1:]
    taken = chain.unary.gather(2, path[..., None])[..., 0].masked_fill(~chain.mask, 0)
    return taken.sum(1) + chain.pair.flatten(1).gather(1, place).masked_fill(~real, 0).sum(1)


@torch.no_grad()
def marginals(chain: Chain) -> Tensor:
    """Return the probability of each candidate of each step [B, n, C], 0 at padding, without gradients."""
    chain = _at_least_float32(chain)
    kernels = kernels_of_chains(chain.unary)
    if kernels is not None:
        probability: Tensor = kernels.marginals(*chain, REACH)
        return probability
    with _full_precision(chain.unary.device):
        steps = _prepare(chain, chain.unary[:, None])
        ahead = _sweep_forward(steps)
        behind, _ = _sweep_backward(steps)
        return (torch.softmax(ahead + behind, dim=-1) * steps.real).squeeze(2).transpose(0, 1)


def viterbi(chain: Chain) -> tuple[Tensor, Tensor]:
    """Return the best path of each trip [B, n], 0 at padding, and its score [B].

    Of equally good candidates the lowest is taken, decided at the last step first.
    """
    paths, scores = best_paths(*_at_least_float32(chain), k=1)
    return paths[:, 0].masked_fill(~chain.mask, 0), scores[:, 0]


def k_best(chain: Chain, k: int) -> tuple[Tensor, Tensor]:
    """Return the k best paths of each trip [B, k, n], 0 at padding, and their scores in falling order [B, k].

    The first is that of :func:`viterbi`. All are different. Where a trip has fewer, the score is NO and the path 0.

    Parameters
    ----------
    chain
        The scores.
    k
        How many: time and memory grow with it.
    """
    paths, scores = best_paths(*_at_least_float32(chain), k=k)
    exists = scores > NO / 2
    return paths.masked_fill(~(exists[:, :, None] & chain.mask[:, None]), 0), scores.masked_fill(~exists, NO)


@torch.no_grad()
def draw_paths(chain: Chain, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Return k random paths of each trip [B, k, n], 0 at padding, as often as they are likely, and their scores [B, k].

    The last candidate is drawn from what leads to it, then each one before given the one after.

    Parameters
    ----------
    chain
        The scores.
    uniform
        Random numbers [n, k, C] between 0 and 1. All trips share them: the paths of one do not depend on the others.
    """
    chain = _at_least_float32(chain)
    with _full_precision(chain.unary.device):
        ahead = _sweep_forward(_prepare(chain, chain.unary[:, None])).squeeze(2).unbind(0)  # n times [B, C]
    noise = -(-uniform.to(chain.unary).clamp(1e-30, 1 - 1e-7).log()).log()  # Gumbel's: the highest sum is a draw
    trip, real = torch.arange(len(chain.mask), device=chain.mask.device), chain.mask.unbind(1)
    following = chain.unary.new_zeros(len(trip), uniform.shape[1], uniform.shape[2])  # what the next candidate adds
    path, score = [], chain.unary.new_zeros(len(trip), uniform.shape[1])
    for i in range(len(ahead) - 1, -1, -1):
        here = (ahead[i][:, None] + following + noise[i]).argmax(-1).masked_fill(~real[i][:, None], 0)
        path.append(here)
        local = (chain.unary[:, i, None] + following).gather(2, here[..., None]).squeeze(2)
        score = score + local.masked_fill(~real[i][:, None], 0)
        if i > 0:
            into = chain.pair[trip, chain.which[:, i - 1].masked_fill(~real[i], 0)].mT  # [B, to, from]
            following = into[trip[:, None], here].masked_fill(~real[i][:, None, None], 0)
    return torch.stack(path[::-1], dim=2), score


class _Steps(NamedTuple):
    """A chain made ready for the two passes: time comes first, and K sets of unary scores share the transitions."""

    local: Tensor  # [n, B, K, C] u, from the second step on u + m
    weight: Tensor  # [B * P, C, C] E
    row: Tensor  # [n - 1, B] int64, the row of weight between a step and the next
    real: Tensor  # [n, B, 1, 1] 1 or 0


def _at_least_float32(chain: Chain) -> Chain:
    """Return the chain with scores of one type."""
    precision = torch.promote_types(torch.promote_types(chain.unary.dtype, chain.pair.dtype), torch.float32)
    return chain._replace(unary=chain.unary.to(precision), pair=chain.pair.to(precision))


@contextmanager
def _full_precision(device: torch.device) -> Iterator[None]:
    """Keep bfloat16 (autocast) and TF32 out of the products: their errors would add up over the steps."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def _pinned(chain: Chain, truth: Tensor) -> Tensor:
    """Return the unary scores with NO for all candidates but the true one where it is known."""
    others = torch.arange(chain.unary.shape[2], device=truth.device) != truth[..., None]
    return chain.unary.masked_fill(others & (truth >= 0)[..., None], NO)


def _prepare(chain: Chain, unary: Tensor) -> _Steps:
    """Return the chain made ready, with several sets of unary scores [B, K, n, C]."""
    b, n_matrices = chain.pair.shape[:2]
    row = chain.which.masked_fill(~chain.mask[:, 1:], 0).t() + torch.arange(b, device=chain.which.device) * n_matrices
    highest = chain.pair.amax(2)  # [B, P, C]
    weight = (chain.pair - highest[:, :, None]).clamp_(min=-REACH).exp_()
    local = unary.permute(2, 0, 1, 3).masked_fill(~chain.mask.t()[..., None, None], 0)
    into = highest.flatten(0, 1)[row]  # [n - 1, B, C]
    local = torch.cat([local[:1], local[1:] + into[:, :, None]])
    return _Steps(local, weight.flatten(0, 1), row, chain.mask.t()[..., None, None].to(weight.dtype))


def _sweep_forward(steps: _Steps) -> Tensor:
    """Return a [n, B, K, C]; past the last real step it means nothing."""
    local, row = steps.local.unbind(0), steps.row.unbind(0)
    ahead = [local[0]]
    for here, matrix in zip(local[1:], row, strict=True):
        total = torch.bmm(torch.softmax(ahead[-1], dim=-1), steps.weight.index_select(0, matrix))
        ahead.append(total.log_().add_(here))
    return torch.stack(ahead)


def _sweep_backward(steps: _Steps) -> tuple[Tensor, Tensor]:
    """Return log of the sums over what follows each step [n, B, K, C], and the weights they were taken with.

    The first is up to a constant for each step, the second [n - 1, B, K, C] is the softmax of what the next candidates
    and all after them add.
    """
    local, row, real = steps.local.unbind(0), steps.row.unbind(0), steps.real.unbind(0)
    reached, sums, weights = local[-1], [torch.zeros_like(local[-1])], []
    for i in range(len(row) - 1, -1, -1):
        weights.append(torch.softmax(reached, dim=-1))
        sums.append(torch.bmm(weights[-1], steps.weight.index_select(0, row[i]).mT).log_())
        reached = torch.addcmul(local[i], sums[-1], real[i + 1])  # nothing follows the last real step
    behind = torch.stack(sums[::-1]) * steps.real.roll(-1, 0)
    return behind, torch.stack(weights[::-1]) if weights else steps.local[:0]


def _totals(chain: Chain, unary: Tensor) -> Tensor:
    """Return log Z [B, K] in float64 for several sets of unary scores [B, K, n, C], with gradients."""
    kernels, parts = kernels_of_chains(unary), (unary, chain.pair, chain.which, chain.mask)
    if kernels is not None:
        total: Tensor = kernels.totals(*parts, REACH)
    else:
        total = _LogPartition.apply(*parts)  # type: ignore[no-untyped-call]
    return total


class _LogPartition(torch.autograd.Function):
    """The forward pass, with the backward pass as its gradient."""

    @staticmethod
    def forward(ctx: Any, unary: Tensor, pair: Tensor, which: Tensor, mask: Tensor) -> Tensor:  # noqa: ANN401
        """Return log Z [B, K] of unary scores [B, K, n, C]; in float64, as differences of large numbers are wanted."""
        with _full_precision(unary.device):
            steps = _prepare(Chain(unary, pair, which, mask), unary)
            ahead = _sweep_forward(steps)
        ctx.n_matrices = pair.shape[1]
        ctx.save_for_backward(*steps, which, ahead)
        return (torch.logsumexp(ahead, dim=-1).double() * steps.real[..., 0]).sum(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None]:  # noqa: ANN401
        """Return the marginals and the expected numbers of transitions, times the gradient [B, K]."""
        *parts, which, ahead = ctx.saved_tensors
        steps = _Steps(*parts)
        n, b, k, c = ahead.shape
        with _full_precision(ahead.device):
            behind, weight = _sweep_backward(steps)
        scale = grad.to(ahead.dtype)[None, ..., None] * steps.real  # [n, B, K, 1]
        marginal = torch.softmax(ahead + behind, dim=-1)
        grad_unary = (marginal * scale).permute(1, 2, 0, 3)
        if not ctx.needs_input_grad[1]:
            return grad_unary, None, None, None
        # From c the next candidate is d with the probability E[c, d] weight[d] / exp(behind[c]). So the transitions of
        # all steps that share a matrix are summed up as one product [C, steps] [steps, C], and E comes in at the end.
        source = marginal[:-1] * scale[1:] * torch.exp(-behind[:-1])
        uses = which[:, None] == torch.arange(ctx.n_matrices, device=which.device)[:, None]  # [B, P, n - 1]
        left = uses[:, :, None, None] * source.permute(1, 3, 2, 0)[:, None]  # [B, P, C, K, n - 1]
        left = left.reshape(b, ctx.n_matrices * c, k * (n - 1))
        right = weight.permute(1, 2, 0, 3).reshape(b, k * (n - 1), c)
        with torch.autocast(ahead.device.type, enabled=False):
            count = (left @ right).view(b, ctx.n_matrices, c, c)
        return grad_unary, count.mul_(steps.weight.view_as(count)), None, None
