"""What Adam does to a row that has no gradient for some steps, in closed form.

Such a row still decays, and still moves by its running means, which fade. From step s to step t > s, with m and v its
means after s, l_q the rate of step q, d_q = 1 - l_q * weight_decay, and D(q, t) the product of d over q+1 .. t:

    m_t = b1^(t-s) m                v_t = b2^(t-s) v
    p_t = D(s, t) p - m sum_q  w_q / (a_q sqrt(v) + eps)                                       q = s+1 .. t
    w_q = D(q, t) l_q b1^(q-s) / (1 - b1^q)         a_q = b2^((q-s)/2) / sqrt(1 - b2^q)

The sum depends on the row only by sqrt(v). It is the integral of x -> x / (x sqrt(v) + eps) over a measure that has
mass w_q / a_q at a_q, and is replaced by its Gauss quadrature of two nodes, which is exact where eps does not matter
(large v), where nothing else does (v near 0), and where all a_q are alike. These fall by b2^(1/2) from step to step
while the mass falls by b1 / b2^(1/2), so that they differ little where the mass is; most at the first steps of a run,
where 1 - b2^q grows fast. With betas of 0.9 and 0.999 the sum is off by less than 5e-3 of itself for rows left alone
since step 1, 5e-4 since step 10, 2e-6 since step 100 and 2e-9 since step 1,000, at the worst v there is, where eps is
about as large as the rest of the denominator.

The four moments of the measure are geometric sums over q with known beginnings and ends, and these are differences of
sums to infinity. Such sums are made once for each step s, from the rates, which are a function of the step alone: so
what a row needs is found in a time that depends neither on how long it was left alone, nor on the size of the network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

BLOCK = 4096  # steps whose sums are made at a time
TAIL = 1024  # steps beyond these: what comes later has a share below 1e-40
POWERS = (-1, 0, 1, 2)  # of a_q in the moments
ALIKE = 1e-12  # share of the squared mean below which a variance is what rounding leaves
MOST_DECAY = 0.05  # of weights in a step: far more than anyone uses, and sums to infinity are finite


class Coasting(NamedTuple):
    """What becomes of rows: p * keep - m * (weight / (sqrt(v) + floor)).sum(), m * first, v * second."""

    keep: Floats  # [N]
    first: Floats  # [N]
    second: Floats  # [N]
    weight: Floats  # [2, N]
    floor: Floats  # [2, N]


class Drift:
    """Finds what steps without a gradient do.

    Parameters
    ----------
    rate
        The learning rate of a step; the first has number 1.
    betas, eps, decay
        Of Adam; the decay of weights is that of AdamW, and times the rate it must be below :data:`MOST_DECAY`.
    """

    def __init__(self, rate: Callable[[int], float], betas: tuple[float, float], eps: float, decay: float) -> None:
        self._rate, self._betas, self._eps, self._decay = rate, betas, eps, decay
        self._ratio = np.array([betas[0] * betas[1] ** (power / 2) for power in POWERS])
        self._sums = np.zeros((len(POWERS), 0))  # over all q > s, of w_q a_q^power / D(s, t), for s of 0, 1, ..
        self._log_decay = np.zeros(1)  # log of D(0, s), for one s more

    def between(self, since: Ints, now: int) -> Coasting:
        """Return what becomes of rows that had a gradient last at given steps [N], all of them before now."""
        while self._sums.shape[1] <= now:
            self._extend()
        first, second = self._betas
        steps = (now - since).astype(np.float64)
        keep = np.exp(self._log_decay[now] - self._log_decay[since])
        moments = keep * self._sums[:, since] - self._ratio[:, None] ** steps * self._sums[:, [now]]
        weight, node = _quadrature(moments)
        return Coasting(keep, first**steps, second**steps, weight, self._eps / node)

    def _extend(self) -> None:
        """Make the sums of the next steps."""
        known = self._sums.shape[1]
        step = np.arange(known + 1, known + BLOCK + TAIL + 1)
        rate = np.array([self._rate(int(q)) for q in step])
        first, second = self._betas
        left = 1 - rate * self._decay
        sums = np.empty((len(POWERS), len(step)))
        for k, power in enumerate(POWERS):
            term = rate / (1 - first**step) * (1 - second**step) ** (-power / 2)
            total = 0.0
            for j in reversed(range(len(step))):
                sums[k, j] = total = self._ratio[k] * (term[j] + total) / left[j]
        self._sums = np.concatenate([self._sums, sums[:, :BLOCK]], axis=1)
        decay = self._log_decay[-1] + np.cumsum(np.log(left[:BLOCK]))
        self._log_decay = np.concatenate([self._log_decay, decay])


def _quadrature(moments: Floats) -> tuple[Floats, Floats]:
    """Return weights and nodes [2, N] that have the same moments, of powers 0 to 3, as measures on positive numbers."""
    mass = moments[0]
    mean, square, cube = moments[1:] / mass
    variance = square / mean**2 - 1
    skew = cube / mean**3 - 3 * square / mean**2 + 2
    alike = variance < ALIKE
    variance = np.where(alike, 1, variance)
    middle = np.where(alike, 0, skew / variance) / 2
    half = np.sqrt(middle**2 + variance)
    low, high = middle - half, middle + half  # nodes, as shares of the mean beside it
    share = np.where(alike, 1, high / (high - low))
    node = np.where(alike, 1, 1 + np.stack([low, high]))
    return mass * np.stack([share, 1 - share]), mean * node
