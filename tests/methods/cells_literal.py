"""A made-up batch in cells, for methods that make cells of steps."""

from __future__ import annotations

import torch
from torch import Tensor

from tedtrajrec.methods.cell_stage import CellInputs, CellMethod


def made_cells(
    method: CellMethod, seed: int, *, fixes: tuple[int, ...] = (3, 2, 4), steps: tuple[int, ...] = (9, 5, 12)
) -> CellInputs:
    """Return a batch of trips of unlike length in double precision; some steps have no known truth."""
    random = torch.Generator().manual_seed(seed)
    b, m, n, c = len(fixes), max(fixes), max(steps), len(method.centres)
    fix_mask = torch.arange(m) < torch.tensor(fixes)[:, None]
    step_mask = torch.arange(n) < torch.tensor(steps)[:, None]
    fix_step = torch.zeros(b, m, dtype=torch.int64)
    observed = torch.zeros(b, n, dtype=torch.bool)
    before, after = (torch.zeros(b, n, dtype=torch.int64) for _ in range(2))
    for i in range(b):
        inner = torch.randperm(steps[i] - 2, generator=random)[: fixes[i] - 2].sort().values + 1
        at = torch.tensor([0, *inner.tolist(), steps[i] - 1])
        fix_step[i, : fixes[i]] = at
        observed[i, at] = True
        for k in range(steps[i]):
            before[i, k] = int((at <= k).sum()) - 1
            after[i, k] = int((at < k).sum())
    known = step_mask & (torch.rand(b, n, generator=random) < 0.9)
    cell = torch.where(known, torch.randint(c, (b, n), generator=random), -1)
    fix_cell = torch.randint(c, (b, m), generator=random) * fix_mask
    centres = method.centres.double()

    def noise(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=random).double() - 0.5

    return CellInputs(
        fix_mask=fix_mask,
        fix_place=(centres[fix_cell] + noise(b, m, 2)) * fix_mask[..., None],
        fix_cell=fix_cell,
        fix_step=fix_step,
        step_mask=step_mask,
        observed=observed,
        before=before,
        after=after,
        cell=cell,
        place=(centres[cell] + noise(b, n, 2)) * known[..., None],
        forced=(torch.rand(b, n, generator=random) < 0.4) & known,
    )


def trip_of(inputs: CellInputs, i: int) -> CellInputs:
    """Return one trip of a batch without padding."""
    m, n = int(inputs.fix_mask[i].sum()), int(inputs.step_mask[i].sum())
    parts = {name: value[i : i + 1, : m if name.startswith("fix") else n] for name, value in inputs._asdict().items()}
    return CellInputs(**parts)
