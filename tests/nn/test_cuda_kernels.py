"""Kernels for CUDA devices against their twins in tensor operations; without such a device, Triton interprets them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GATv2Conv

from tedtrajrec.nn import kernels, road_gnn, touched
from tedtrajrec.nn.best_paths import by_kernel
from tedtrajrec.nn.chain import Chain, log_partition, marginals, negative_log_likelihood, viterbi
from tedtrajrec.nn.kernels import kernels_for
from tedtrajrec.nn.parallel_decoder import CandidateScorer
from tedtrajrec.nn.road_gnn import RoadGnn
from tedtrajrec.nn.roads import Roads
from tedtrajrec.nn.time_attention import Kind, TimeAttention
from tedtrajrec.nn.touched import Part, rounded
from tedtrajrec.nn.transitions import Moves
from tedtrajrec.training.rows import TableRows
from tests.conftest import make_grid
from tests.nn.chains import made_chain, some_truth
from tests.nn.moves import made_moves, made_scorer

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
INTERPRETED = DEVICE.type == "cpu"
Answer = Sequence[Tensor]


def need_triton() -> None:
    """Skip without Triton, or fail where nothing may be missing (CI)."""
    if importlib.util.find_spec("triton") is None:
        reason = "triton is not installed"
        if os.environ.get("TEDTRAJREC_REQUIRE_DATA"):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture
def run_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have kernels do the work on the device of the tests, even if that is a processor; skip without Triton."""
    need_triton()
    if INTERPRETED:
        if os.environ.get("TRITON_INTERPRET") != "1":
            pytest.skip("there is no CUDA device, and TRITON_INTERPRET is not 1")
        monkeypatch.setattr(kernels, "DEVICES", {"cpu"})
        monkeypatch.setattr(kernels, "RECORDED", {"cpu"})  # so that the twins are those of CUDA devices
    with np.errstate(all="ignore"):  # what kernels make of padding means nothing
        yield


@pytest.fixture
def exact_products() -> Iterator[None]:
    """Keep TF32 out of the products around the kernels."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


def both_ways(monkeypatch: pytest.MonkeyPatch, work: Callable[[], Answer]) -> tuple[Answer, Answer]:
    """Return what the kernels and what tensor operations give, on the same device."""
    load, asked = kernels._module, []

    def watched(name: str) -> ModuleType | None:
        asked.append(load(name))
        return asked[-1]

    with monkeypatch.context() as patch:
        patch.setattr(kernels, "_module", watched)
        found = work()
        assert asked
        assert None not in asked
        patch.setattr(kernels, "_module", lambda _: None)
        return found, work()


def agree(found: Answer, expected: Answer) -> None:
    """Check that two answers are the same but for rounding."""
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * max(1.0, float(other.abs().max())))


def gradients(outputs: Tensor, variables: Sequence[Tensor]) -> list[Tensor]:
    """Return the outputs, and the gradients of a random sum of them."""
    toward = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(5)).to(outputs)
    return [outputs.detach(), *torch.autograd.grad((outputs * toward).sum(), variables, materialize_grads=True)]


def test_there_are_none_for_other_devices_and_types() -> None:
    assert kernels_for("chain_cuda", torch.zeros(3)) is None
    if torch.cuda.is_available():
        assert kernels_for("chain_cuda", torch.zeros(3, device=DEVICE)) is not None
        assert kernels_for("chain_cuda", torch.zeros(3, device=DEVICE).double()) is None


def test_without_triton_there_are_none_but_other_faults_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def importing(missing: str) -> Callable[[str], Any]:
        def load(_: str) -> None:
            raise ModuleNotFoundError(name=missing)

        return load

    monkeypatch.setattr(kernels.importlib, "import_module", importing("triton"))
    assert kernels._module.__wrapped__("chain_cuda") is None
    monkeypatch.setattr(kernels.importlib, "import_module", importing("tedtrajrec.nn.chain_cuda"))
    with pytest.raises(ModuleNotFoundError):
        kernels._module.__wrapped__("chain_cuda")


@pytest.mark.parametrize("kind", ["ted", "exp_decay", "full"])
def test_reading_at_once_is_reading_in_two_steps(kind: Kind) -> None:
    torch.manual_seed(1)
    layer = TimeAttention(8, 2, kind=kind)
    query, memory, mask = torch.randn(5, 3, 8), torch.randn(3, 4, 8), torch.ones(3, 4, dtype=torch.bool)
    memory_time, query_time = torch.rand(3, 4), torch.rand(3, 5)
    expected = layer.attend(query, layer.evolve(memory, memory_time, query_time, mask))
    assert torch.equal(layer.read(query, query_time, memory, memory_time, mask), expected)


def moves_on(device: torch.device) -> Moves:
    """Return ways between 5 lists of 10 candidates."""
    moves = made_moves(torch.full((2, 5), 10))
    return Moves(*(part.to(device) if isinstance(part, Tensor) else part for part in moves))


def test_moves_are_scored_as_their_candidates_say() -> None:
    moves, ways = moves_on(torch.device("cpu")), made_scorer()
    found = ways.between(moves)
    for b, p, c, d in [(0, 0, 0, 0), (1, 5, 9, 2), (0, 3, 4, 4), (1, 2, 7, 8), (1, 1, 3, 6)]:
        i, j = moves.source[b, p], moves.target[b, p]
        same = moves.segment[b, i, c] == moves.segment[b, j, d]
        rest, enter, between = moves.rest[b, i, c], moves.enter[b, j, d], moves.way[b, p, c, d].float() / moves.unit
        whole = torch.minimum(rest, enter) if same else rest + enter + between
        one = [torch.as_tensor(part).reshape(1, 1, 1, 1) for part in (between, whole, between >= 0, same)]
        torch.testing.assert_close(found[b, p, c, d], ways(torch.tensor([p % 3]), *one).squeeze())


@pytest.mark.usefixtures("run_kernels")
@pytest.mark.parametrize("c", [1, 5, 16, 48, 70, 128, 130])
def test_chains(c: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = made_chain(c, (30, 1, 7, 2), c, 5, whole=c == 48, dtype=torch.float32)
    truth = some_truth(plain, c).where(plain.mask, -1).to(DEVICE)
    unary, pair = (part.to(DEVICE, copy=True).requires_grad_(True) for part in plain[:2])
    chain = Chain(unary, pair, plain.which.to(DEVICE), plain.mask.to(DEVICE))

    def work() -> Answer:
        sums = [
            gradients(log_partition(chain), (unary, pair)),
            gradients(negative_log_likelihood(chain, truth), (unary, pair)),
        ]
        return [*sums[0], *sums[1], marginals(chain)]

    agree(*both_ways(monkeypatch, work))
    path, score = viterbi(chain)
    expected, best = (part[:, 0] for part in by_kernel(*plain, 1))
    assert torch.equal(path.cpu(), expected.where(plain.mask, 0))
    assert torch.equal(score.detach().cpu(), best)


@pytest.mark.usefixtures("exact_products", "run_kernels")
@pytest.mark.parametrize(("d", "heads", "k"), [(8, 2, 1), (24, 2, 4), (256, 8, 10)])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_attention(d: int, heads: int, k: int, dropout: float, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    b, q = 3, 7
    layer = TimeAttention(d, heads, dropout=dropout).to(DEVICE)
    query = torch.randn(q, b, d, device=DEVICE, requires_grad=True)
    memory = torch.randn(b, k, d, device=DEVICE, requires_grad=True)
    times = 10 * torch.rand(b, k, device=DEVICE), 10 * torch.rand(b, q, device=DEVICE)
    mask = torch.rand(b, k, device=DEVICE) > 0.3
    if dropout:
        draw = (torch.rand(q, b, heads, k, device=DEVICE) > dropout).float() / (1 - dropout)
        layer.dropout.forward = lambda weight: weight * draw  # type: ignore[method-assign]

    def work() -> Answer:
        return gradients(layer.read(query, times[1], memory, times[0], mask), [query, memory, *layer.parameters()])

    agree(*both_ways(monkeypatch, work))


@pytest.mark.usefixtures("run_kernels")
@pytest.mark.parametrize("d", [1, 20, 256])
def test_roads(d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    tables = [torch.randn(*shape, device=DEVICE, requires_grad=True) for shape in ((30, d), (30, d), (d,))]
    segment = torch.randint(30, (3, 101), device=DEVICE)
    minute = 1440 * torch.rand(3, 1, device=DEVICE).expand(3, 101)
    agree(*both_ways(monkeypatch, lambda: gradients(Roads(*tables).at(segment, minute), tables)))


@pytest.mark.usefixtures("run_kernels")
def test_transitions(monkeypatch: pytest.MonkeyPatch) -> None:
    moves, ways = moves_on(DEVICE), made_scorer().to(DEVICE)
    agree(*both_ways(monkeypatch, lambda: gradients(ways.between(moves), list(ways.parameters()))))


@pytest.mark.usefixtures("exact_products", "run_kernels")
@pytest.mark.parametrize(("hidden", "candidates"), [(128, 48), (20, 7)])
def test_scores_of_candidates(monkeypatch: pytest.MonkeyPatch, hidden: int, candidates: int) -> None:
    torch.manual_seed(6)
    b, n, lists, d, static, moving = 3, 11, 5, 16, 4, 9
    scorer = CandidateScorer(d, hidden, static, moving).to(DEVICE).eval()
    features = torch.randn(moving, b, n, candidates, device=DEVICE).movedim(0, -1)
    inputs = (
        torch.randn(b, n, d, device=DEVICE),
        torch.randn(b, lists, candidates, d, device=DEVICE),
        torch.randint(lists, (b, n), device=DEVICE),
        torch.randn(b, lists, candidates, static, device=DEVICE),
    )
    guess = torch.rand(b, n, candidates, device=DEVICE)
    with torch.no_grad():
        for layout in (features, features.contiguous()):
            agree(*both_ways(monkeypatch, lambda layout=layout: scorer(*inputs, layout, guess)))  # type: ignore[misc]
    scorer.train()
    assert scorer(*inputs, features, guess)[0].requires_grad


def made_layer(heads: int, c: int, slope: float = 0.2) -> GATv2Conv:
    """Return a layer from 6 channels, none of whose weights are 0."""
    torch.manual_seed(7)
    layer = GATv2Conv(6, c, heads, add_self_loops=False, negative_slope=slope)
    for weight in layer.parameters():
        torch.nn.init.normal_(weight)
    return layer.to(DEVICE)


@pytest.mark.usefixtures("exact_products", "run_kernels")
@pytest.mark.parametrize(
    ("heads", "c", "u", "e"),
    [(1, 1, 1, 3), (2, 4, 7, 20), (3, 5, 8, 30), (1, 16, 9, 12), (5, 20, 21, 90), (8, 32, 30, 60), (4, 3, 5, 0)],
)
@pytest.mark.parametrize("slope", [0.2, 0.01])
def test_graph_attention(heads: int, c: int, u: int, e: int, slope: float) -> None:
    layer, random = made_layer(heads, c, slope), torch.Generator().manual_seed(e)
    module = kernels._module("gatv2_cuda")
    assert module is not None
    assert module.fits(layer)
    x = torch.randn(u, 6, generator=random).to(DEVICE).requires_grad_(True)
    # Targets rise; some have no edge, the first and the last among them where there is more than one.
    target = torch.randint(u // 4, u - u // 4, (e,), generator=random).sort().values
    edges = torch.stack([torch.randint(u, (e,), generator=random), target]).to(DEVICE)
    weights = [x, *layer.parameters()]
    agree(gradients(module.convolve(layer, x, edges), weights), gradients(layer(x, edges), weights))


@pytest.mark.usefixtures("exact_products", "run_kernels")
def test_graph_attention_to_what_scores_far_apart() -> None:
    layer, x = made_layer(2, 4), torch.randn(9, 6, generator=torch.Generator().manual_seed(8)).to(DEVICE)
    edges = torch.stack([torch.arange(81) % 9, torch.arange(81) // 9]).to(DEVICE)
    with torch.no_grad():
        layer.att *= 1e3  # exponents of such scores are neither finite nor more than 0
        agree([kernels._module("gatv2_cuda").convolve(layer, x, edges)], [layer(x, edges)])  # type: ignore[union-attr]


@pytest.mark.usefixtures("run_kernels")
def test_layers_too_wide_are_left_to_tensor_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    module = kernels._module("gatv2_cuda")
    assert module is not None
    assert module.fits(made_layer(8, 256))
    assert not module.fits(made_layer(8, 257))
    assert not module.fits(made_layer(9, 200))
    gnn = RoadGnn(make_grid(2, 2), 4, heads=2).to(DEVICE)
    monkeypatch.setattr(module, "MOST", 16)
    monkeypatch.setattr(module, "convolve", None)
    assert gnn().static.isfinite().all()


def made_gnn(columns: int, layers: int) -> RoadGnn:
    """Return the representation of a grid of streets, none of whose weights are 0."""
    torch.manual_seed(9)
    gnn = RoadGnn(make_grid(columns, columns), 12, layers=layers, heads=3)
    for weight in gnn.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    return gnn.to(DEVICE)


def placed(part: Part) -> Part:
    """Return a part on the device."""
    return Part(*(tensor.to(DEVICE) for tensor in part))


@pytest.mark.usefixtures("exact_products", "run_kernels")
@pytest.mark.parametrize("seen", ["whole", "part", "rounded part"])
def test_roads_of_a_network(seen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touched, "_size", lambda count: -(-count // 64) * 64)  # thousands are slow to interpret
    gnn = made_gnn(5, 2)
    asked = np.array([[70, 3], [3, 11]])
    part, number = gnn.parts.around(asked, gnn.hops)
    assert len(part.segment) < min(len(gnn.table), len(rounded(part).segment))
    if seen == "whole":
        used, place = None, torch.from_numpy(asked).to(DEVICE)
    else:
        used = placed(rounded(part) if seen == "rounded part" else part)
        place = torch.from_numpy(number).to(DEVICE)

    def work() -> Answer:
        roads = gnn(part=used)
        assert roads.omega is not None
        return gradients(torch.cat([roads.static[place], roads.omega[place]]), list(gnn.parameters()))

    found, expected = both_ways(monkeypatch, work)
    agree(found, expected)
    assert expected[1].count_nonzero() > 0  # the gradient of the table


@pytest.mark.usefixtures("exact_products", "run_kernels")
def test_roads_of_a_large_network_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(road_gnn, "LARGE", 10)
    monkeypatch.setattr(road_gnn, "CHUNK", 20)
    gnn = made_gnn(3, 2)
    with torch.no_grad():
        agree(*both_ways(monkeypatch, lambda: [part for part in gnn() if part is not None]))


@pytest.mark.parametrize("hops", [0, 1, 2, 3])
def test_targets_of_edges_rise(hops: int) -> None:
    gnn = RoadGnn(make_grid(9, 9), 4, heads=2)
    random = np.random.default_rng(hops)
    seen = [gnn.edges]
    for asked in (np.array([200]), np.array([[5, 5], [279, 5]]), random.permutation(280)[:60]):
        part, _ = gnn.parts.around(asked, hops)
        seen += [part.edges, rounded(part).edges]
    for edges in seen:
        assert (edges[1].diff() >= 0).all()


@pytest.mark.usefixtures("run_kernels")
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("d", [1, 6, 128, 300])
def test_rows_of_a_table_moved_in_place(kind: type[torch.optim.Adam], d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    start = torch.randn(12, d, generator=torch.Generator().manual_seed(d)).to(DEVICE)
    decay = 0.5 if kind is torch.optim.AdamW else 0.0

    def work() -> Answer:
        table, random = torch.nn.Parameter(start.clone()), np.random.default_rng(d)
        optimizer = kind([table], lr=0.02, weight_decay=decay, fused=True)
        rows, seen = TableRows(table, optimizer, lambda _: 0.02), []
        for _ in range(30):
            touched = random.permutation(12)[: random.integers(1, 6)]
            rows.catch_up(touched)
            seen.append(table.detach()[torch.from_numpy(touched).to(DEVICE)])
            gradient = torch.from_numpy(random.normal(size=(len(touched), d))).to(start)
            rows.step(rows.taken(touched, gradient))
        rows.catch_up()
        state = optimizer.state[table]
        return [*seen, table.detach(), state["exp_avg"], state["exp_avg_sq"], state["step"].cpu()]

    found, expected = both_ways(monkeypatch, work)
    assert float(found[-1]) == 30
    assert (found[-4] != start).any(1).all()
    agree(found, expected)


def test_kernels_compile_for_a_device_that_is_not_here(tmp_path: Path) -> None:
    need_triton()
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    script = Path(__file__).with_name("compile_kernels.py")
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
