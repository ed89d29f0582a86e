"""A Kalman filter of places: a vehicle that keeps its speed, seen by observations of unlike noise, one a step.

    g = (x, y, vx, vy),   g' = Phi g,   H' = Phi H Phi^T + M                what is expected, Phi: constant velocity
    K = H' Psi^T (Psi H' Psi^T + N)^-1,   Psi = [I 0]                       N: noise of the observation z
    g = g' + K (z - Psi g'),   H = H' - K Psi H'                            what is known with it

Gradients pass through all of it.
"""

from __future__ import annotations

import torch
from torch import Tensor


def kalman_filter(z: Tensor, noise: Tensor, process: Tensor, start_speed: float) -> Tensor:
    """Return the place at each step from the observations up to it [B, n, 2].

    Parameters
    ----------
    z, noise
        Observations [B, n, 2] and the covariance N of their errors [B, n, 2, 2].
    process
        Diagonal of M [4]: how much place and speed may change in a step, as variances.
    start_speed
        Variance of each component of the first speed, whose mean is 0.
    """
    steady = torch.eye(4, dtype=z.dtype, device=z.device)
    moves = steady + torch.diag(steady.new_ones(2), 2)  # Phi; time is in steps
    more = torch.diag(process)
    state = torch.cat([z[:, 0], torch.zeros_like(z[:, 0])], dim=-1)  # g [B, 4]
    empty = torch.zeros_like(noise[:, 0])
    speed = start_speed * steady[:2, :2]
    spread = torch.cat(
        [torch.cat([noise[:, 0], empty], dim=-1), torch.cat([empty, speed.expand_as(empty)], dim=-1)], dim=-2
    )  # H [B, 4, 4]
    places = [state[:, :2]]
    for seen, error in zip(z[:, 1:].unbind(1), noise[:, 1:].unbind(1), strict=True):
        state = state @ moves.t()
        spread = moves @ spread @ moves.t() + more
        gain = spread[..., :2] @ inverse(spread[:, :2, :2] + error)  # K [B, 4, 2]
        state = state + (gain @ (seen - state[:, :2])[..., None]).squeeze(-1)
        spread = spread - gain @ spread[:, :2]
        places.append(state[:, :2])
    return torch.stack(places, dim=1)


def inverse(matrix: Tensor) -> Tensor:
    """Return the inverse of matrices of 2 by 2 [..., 2, 2]; torch's own waits for the device."""
    (a, b), (c, d) = (row.unbind(-1) for row in matrix.unbind(-2))
    turned = torch.stack([torch.stack([d, -b], dim=-1), torch.stack([-c, a], dim=-1)], dim=-2)
    return turned / (a * d - b * c)[..., None, None]


def moments(weight: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean [..., 2] and covariance [..., 2, 2] of places [C, 2] with weights [..., C] that add up to 1."""
    x, y = places.unbind(-1)
    table = torch.stack([x, y, x * x, x * y, y * y], dim=-1)
    mean_x, mean_y, xx, xy, yy = (weight @ table).unbind(-1)
    across = xy - mean_x * mean_y
    spread = torch.stack([xx - mean_x**2, across, across, yy - mean_y**2], dim=-1)
    return torch.stack([mean_x, mean_y], dim=-1), spread.view(*spread.shape[:-1], 2, 2)
