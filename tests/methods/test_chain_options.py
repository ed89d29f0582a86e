import numpy as np
import pytest
import torch

from tedtrajrec.methods.base import Choices
from tedtrajrec.methods.chain_options import BY_STEPS, Scored, ends_of, expected_error, options_of, votes_for, weighed
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.nn.chain import Chain, marginals


def test_expected_error_is_the_root_mean_square_distance():
    rng = np.random.default_rng(0)
    place, share = rng.normal(size=(3, 4, 5, 2)), rng.dirichlet(np.ones(5), size=(3, 4))
    literal = np.sqrt((((place[..., :, None, :] - place[..., None, :, :]) ** 2).sum(-1) * share[..., None, :]).sum(-1))
    np.testing.assert_allclose(expected_error(torch.from_numpy(place), torch.from_numpy(share)), literal)


def made(n: int = 4, c: int = 6) -> tuple[RoadNetwork, Chain, torch.Tensor, torch.Tensor]:
    """Return a city, and a chain of two trips over random segments of it."""
    network, rng = synthetic_city(seed=1), np.random.default_rng(0)
    draw = lambda *shape: torch.from_numpy(rng.normal(size=shape)).float()  # noqa: E731
    which, mask = torch.zeros(2, n - 1, dtype=torch.int64), torch.ones(2, n, dtype=torch.bool)
    segment = torch.from_numpy(rng.integers(network.n_segments, size=(2, n, c)))
    return (
        network,
        Chain(draw(2, n, c), draw(2, 1, c, c), which, mask),
        segment,
        torch.from_numpy(rng.random((2, n, c))),
    )


def test_scores_are_those_of_trip_and_steps_less_the_error():
    network, chain, segment, ratio = made()
    exists = torch.ones_like(segment, dtype=torch.bool)
    found = options_of(Scored(chain, ratio, segment, exists, torch.zeros_like(ratio)), ends_of(network))
    share = marginals(chain)
    place = share.argsort(dim=-1, descending=True)
    torch.testing.assert_close(found.segment, segment.gather(-1, place))
    torch.testing.assert_close(found.log_prob, share.gather(-1, place).log())
    x, y = network.plane.to_xy(network.node_lon, network.node_lat)
    at = np.stack([x, y], axis=1)
    start, end = at[network.seg_from[segment]], at[network.seg_to[segment]]
    where = torch.from_numpy(start + ratio[..., None].numpy() * (end - start))
    error = expected_error(where, share.double()).gather(-1, place)
    score = (1 - BY_STEPS) * chain.unary.gather(-1, place) + BY_STEPS * found.log_prob
    for error_m in (150.0, 12.0):
        expected = (score - error / error_m).float()
        torch.testing.assert_close(weighed(found, error_m), expected, rtol=1e-4, atol=1e-3)
    for step in range(1, 4):
        move = chain.pair[0, 0][place[0, step - 1]][:, place[0, step]]
        torch.testing.assert_close(found.move[0, step], (1 - BY_STEPS) * move)


def test_what_is_not_far_off_is_preferred_to_what_is_a_little_likelier():
    network, chain, segment, ratio = made(n=2, c=3)
    start = ends_of(network)[:, 0]
    one, far = 0, int((start - start[0]).norm(dim=-1).argmax())
    segment[:] = torch.tensor([far, one, one])  # two choices beside each other hold more together
    chain = chain._replace(
        unary=torch.tensor([0.3, 0.2, 0.2]).log().expand(2, 2, 3), pair=torch.zeros_like(chain.pair[..., :3, :3])
    )
    exists = torch.ones_like(segment, dtype=torch.bool)
    options = options_of(Scored(chain, ratio * 0, segment, exists, torch.zeros_like(ratio)), ends_of(network))
    first = {error_m: weighed(options, error_m)[0, 0].argmax().item() for error_m in (10.0, 1e9)}
    assert first[1e9] == 0
    assert first[10.0] != 0


def scored_and_votes(b: int = 3, n: int = 7, c: int = 9, k: int = 4) -> tuple[Scored, Choices]:
    """Return candidates of which some do not exist, and votes of which some are for none of them or are none."""
    rng = np.random.default_rng(4)
    segment = torch.from_numpy(np.array([rng.permutation(14)[:c] for _ in range(b * n)]).reshape(b, n, c))
    exists = torch.from_numpy(rng.random((b, n, c)) < 0.7)
    voted = np.array([rng.permutation(14)[:k] for _ in range(b * n)]).reshape(b, n, k)
    share = rng.dirichlet(np.ones(k), size=(b, n))
    none = rng.random((b, n, k)) < 0.3
    voted[none], share[none] = -1, np.nan
    share[0] = np.nan  # no votes at all, only a guess, or not even this
    voted[0, :, 0] = [segment[0, 0, 0], -1, *segment[0, 2:, 1]]
    chain = Chain(
        torch.zeros(b, n, c), torch.zeros(b, 1, c, c), torch.zeros(b, n - 1, dtype=torch.int64), exists.any(-1)
    )
    scored = Scored(chain, torch.zeros(b, n, c), segment, exists, torch.zeros(b, n, c))
    return scored, Choices(torch.from_numpy(voted), torch.zeros(b, n, k), torch.from_numpy(share).log())


def test_votes_are_given_to_the_candidates_they_are_for():
    scored, votes = scored_and_votes()
    found = votes_for(scored.segment, scored.exists, votes)
    expected = torch.zeros(scored.segment.shape)
    for i, step in np.ndindex(*scored.segment.shape[:2]):
        shares = {
            int(segment): float(log_prob.exp())
            for segment, log_prob in zip(votes.segment[i, step], votes.log_prob[i, step], strict=True)
            if segment >= 0 and not log_prob.isnan()
        }
        if not shares and votes.segment[i, step, 0] >= 0:
            shares = {int(votes.segment[i, step, 0]): 1.0}
        for j, segment in enumerate(scored.segment[i, step].tolist()):
            if scored.exists[i, step, j]:
                expected[i, step, j] = shares.get(segment, 0.0)
    torch.testing.assert_close(found, expected)
    assert (found[0] == 1).any()
    assert (found[0, 1] == 0).all()
    assert ((found[1:] > 0) & (found[1:] < 1)).any()


def test_votes_have_their_share_in_the_probabilities_and_the_error():
    network, chain, segment, ratio = made()
    exists = torch.ones_like(segment, dtype=torch.bool)
    scored, ends = Scored(chain, ratio, segment, exists, torch.zeros_like(ratio)), ends_of(network)
    votes = torch.from_numpy(np.random.default_rng(2).dirichlet(np.ones(6), size=(2, 4))).float()
    votes[1, 2] = 0  # all are for segments that are no candidates
    found = options_of(scored, ends, votes, 0.3)
    share = 0.7 * marginals(chain) + 0.3 * votes
    share[1, 2] /= 0.7
    place = share.argsort(dim=-1, descending=True)
    torch.testing.assert_close(found.segment, segment.gather(-1, place))
    torch.testing.assert_close(found.log_prob.exp(), share.gather(-1, place))
    score = (1 - BY_STEPS) * chain.unary.gather(-1, place) + BY_STEPS * found.log_prob
    torch.testing.assert_close(found.score, score)
    where = torch.lerp(*ends[segment].unbind(-2), ratio.float()[..., None])
    torch.testing.assert_close(found.error, expected_error(where, share).gather(-1, place))


@pytest.mark.parametrize("votes", [None, torch.full((2, 4, 6), 1 / 6)])
def test_without_a_share_votes_do_not_count(votes: torch.Tensor | None):
    network, chain, segment, ratio = made()
    scored = Scored(chain, ratio, segment, torch.ones_like(segment, dtype=torch.bool), torch.zeros_like(ratio))
    plain = options_of(scored, ends_of(network))
    for one, other in zip(plain, options_of(scored, ends_of(network), votes, 0.0), strict=True):
        torch.testing.assert_close(one, other)
