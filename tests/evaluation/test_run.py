import dataclasses
from fractions import Fraction

import numpy as np
import pytest

from tedtrajrec.data.sampling import draw_observed, effective_share
from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.evaluation.calibration import summarise_confidence, sureness
from tedtrajrec.evaluation.drivable import check_drives
from tedtrajrec.evaluation.metrics import evaluate_trips, gaps_without_route
from tedtrajrec.evaluation.run import draw_steps, evaluate_draw, evaluate_method
from tedtrajrec.network.routing import Router
from tests.conftest import make_grid
from tests.evaluation.walks import STEP_S, Nearest, Silent, Truth, walk_dataset, walk_trips

LENGTHS = np.random.default_rng(7).integers(2, 40, 50)


@pytest.fixture(scope="module")
def trips(tiny_city):
    return walk_trips(tiny_city, LENGTHS, without_fix=0.2, unknown=0.1)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory, tiny_city, trips):
    return walk_dataset(tmp_path_factory.mktemp("walks") / "dataset", tiny_city, trips)


def same(a, b):
    for name, column in a.columns().items():
        np.testing.assert_array_equal(column, b.columns()[name], err_msg=name)


def test_the_truth_is_right_everywhere(dataset, tiny_city):
    e = evaluate_method(Truth(tiny_city), dataset, keep="1/8")
    for name in ("accuracy", "accuracy_observed", "accuracy_missing", "recall", "precision", "f1"):
        assert e.summary[name] == 1.0
    assert e.summary["mae_m"] == e.summary["n_unanswered"] == 0
    assert (e.method, e.config, len(e.metrics)) == ("truth", {}, len(LENGTHS))
    assert e.draw.traj_id.tolist() == [f"trip {i}" for i in range(len(LENGTHS))]
    assert e.recover_s > 0
    assert e.trips_per_s == pytest.approx(len(LENGTHS) / e.recover_s)


def test_no_answer_is_wrong_and_counted(dataset, tiny_city, trips):
    e = evaluate_method(Silent(tiny_city), dataset, keep="1/8")
    assert e.summary["accuracy"] == e.summary["f1"] == 0
    assert e.summary["n_unanswered"] == e.summary["n_steps"] == (trips.segment >= 0).sum()
    assert e.summary["capped_share"] == 1
    assert e.summary["drivable"] == 0
    assert e.drives.unplaced.sum() == trips.n_fixes
    assert e.confidence == {}


@pytest.mark.parametrize("batch_trips", [1, 7, 1000])
def test_batches_change_nothing(dataset, tiny_city, trips, batch_trips):
    draw = draw_steps(dataset, keep="1/8", seed=3, rule="bernoulli")
    observed = draw_observed(trips, "1/8", seed=3, rule="bernoulli")
    np.testing.assert_array_equal(draw.observed, observed)
    np.testing.assert_array_equal(draw.no_route, gaps_without_route(tiny_city, trips.offsets, trips.segment, observed))
    method = Nearest(tiny_city)
    e = evaluate_draw(method, draw, batch_trips=batch_trips, keep_steps=True)
    first = np.maximum.accumulate(np.where(observed, np.arange(len(observed)), 0))
    found = method.finder.nearest(trips.lon[first], trips.lat[first])
    np.testing.assert_array_equal(e.steps.segment, found.segment)
    np.testing.assert_allclose(e.steps.ratio, found.ratio, atol=1e-4)  # fixes of a batch are 32-bit metres
    step = np.arange(trips.n_fixes) - np.repeat(trips.offsets[:-1], trips.lengths)
    np.testing.assert_array_equal(e.steps.log_prob, -step)
    whole = evaluate_trips(
        tiny_city, trips.offsets, trips.segment, trips.ratio, e.steps.segment, e.steps.ratio, observed=observed
    )
    same(e.metrics, whole)
    fixes = {"fix_lon": trips.lon, "fix_lat": trips.lat, "observed": observed}
    router = Router(tiny_city)
    same(e.drives, check_drives(router, trips.offsets, e.steps.segment, e.steps.ratio, step_s=STEP_S, **fixes))
    same(draw.true_drives, check_drives(router, trips.offsets, trips.segment, trips.ratio, step_s=STEP_S, **fixes))
    sure = sureness(e.steps.log_prob, e.steps.segment, trips.segment, observed)
    assert e.confidence == summarise_confidence(sure)
    assert e.summary["ece"] == e.confidence["ece"]
    assert e.summary["breaks_per_trip"] == e.drives.breaks.mean()
    sizes, widths = zip(*(batch.step_mask.shape for batch in method.seen[1:]), strict=True)  # the first call warms up
    assert sum(sizes) == len(LENGTHS)
    assert max(sizes) <= batch_trips
    assert list(widths) == sorted(widths)


def test_a_draw_serves_several_methods_and_names_what_was_tested(dataset, tiny_city):
    draw = draw_steps(dataset, keep=0.125, seed=1)
    same(
        evaluate_draw(Nearest(tiny_city), draw).metrics,
        evaluate_method(Nearest(tiny_city), dataset, keep="1/8", seed=1).metrics,
    )
    assert (draw.keep, draw.rule, draw.seed, len(draw)) == (Fraction(1, 8), "exact", 1, len(LENGTHS))
    assert draw.effective_share == effective_share(draw.observed, draw.offsets)
    assert draw.mean_fixes == draw.observed.sum() / len(LENGTHS)
    assert draw.hash == draw_steps(dataset, keep="1/8", seed=1).hash
    others = [
        draw_steps(dataset, keep="1/8", seed=2),
        draw_steps(dataset, keep="1/4", seed=1),
        draw_steps(dataset, keep="1/8", seed=1, trips=np.arange(len(LENGTHS) - 1)),
    ]
    assert len({draw.hash, *(other.hash for other in others)}) == 4
    assert evaluate_draw(Silent(tiny_city), draw).name == "silent-test-1of8-exact-1"


def test_chosen_trips_are_thinned_as_among_all(dataset, tiny_city):
    chosen = np.array([31, 4, 17, 4])
    every = evaluate_method(Nearest(tiny_city), dataset, keep="1/4", seed=5)
    some = evaluate_method(Nearest(tiny_city), dataset, keep="1/4", seed=5, trips=chosen, batch_trips=2)
    assert some.draw.traj_id.tolist() == [f"trip {i}" for i in chosen]
    for name, column in some.metrics.columns().items():
        np.testing.assert_array_equal(column, every.metrics.columns()[name][chosen])


def test_chunks_of_a_draw_do_not_matter(dataset, monkeypatch):
    whole = draw_steps(dataset, keep="1/8")
    assert len(whole.true_drives) == len(LENGTHS)
    monkeypatch.setattr("tedtrajrec.evaluation.run._CHUNK", 11)
    parts = draw_steps(dataset, keep="1/8")
    for name in ("observed", "no_route", "offsets"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))
    same(parts.true_drives, whole.true_drives)
    assert parts.traj_id.tolist() == whole.traj_id.tolist()
    assert parts.hash == whole.hash


def test_own_observed_steps(dataset, tiny_city, trips):
    chosen = np.array([3, 8])
    part = trips.select(chosen)
    observed = ~np.isnan(part.lon)
    e = evaluate_method(Nearest(tiny_city), dataset, keep="1/2", trips=chosen, observed=observed)
    assert e.draw.rule == "given"
    np.testing.assert_array_equal(e.draw.observed, observed)
    known = part.segment >= 0
    assert e.summary["n_observed"] == (observed & known).sum()


def test_own_observed_steps_must_have_fixes(dataset, trips):
    lost = np.flatnonzero(np.isnan(trips.lon))[0]
    trip = trips.trip_of_fix[lost]
    part = trips.select([trip])
    with pytest.raises(InputError, match=rf"step {lost - trips.offsets[trip]} of trip trip {trip} has no fix"):
        draw_steps(dataset, keep="1/8", trips=[trip], observed=np.ones(part.n_fixes, bool))
    with pytest.raises(InputError, match="has no observed step"):
        draw_steps(dataset, keep="1/8", observed=np.zeros(trips.n_fixes, bool))
    with pytest.raises(InputError, match=f"have {trips.n_fixes} steps"):
        draw_steps(dataset, keep="1/8", observed=np.ones(3, bool))
    with pytest.raises(InputError, match="int64"):
        draw_steps(dataset, keep="1/8", observed=np.ones(trips.n_fixes, np.int64))


def test_what_cannot_be_evaluated(dataset, tiny_city, trips):
    with pytest.raises(ConfigError, match="one of exact"):
        draw_steps(dataset, keep="1/8", rule="some", observed=~np.isnan(trips.lon))
    with pytest.raises(ConfigError, match="share to keep"):
        draw_steps(dataset, keep="9/8")
    with pytest.raises(InputError, match="no trips to evaluate in 'valid'"):
        draw_steps(dataset, keep="1/8", split="valid")
    with pytest.raises(IndexError):
        draw_steps(dataset, keep="1/8", trips=[len(LENGTHS)])
    draw = draw_steps(dataset, keep="1/8")
    with pytest.raises(InputError, match="made for network"):
        evaluate_draw(Silent(make_grid(5, 5)), draw)
    with pytest.raises(ValueError, match="at least one trip"):
        evaluate_draw(Silent(tiny_city), draw, batch_trips=0)


def test_a_method_that_returns_other_shapes_is_told_so(dataset, tiny_city):
    class Short(Silent):
        def recover(self, batch):
            answer = super().recover(batch)
            return answer._replace(ratio=answer.ratio[:, :-1])

    with pytest.raises(ValueError, match="ratio of shape"):
        evaluate_method(Short(tiny_city), dataset, keep="1/8")


@dataclasses.dataclass(frozen=True)
class Noise:
    noise_m: float = 3.0


def test_settings_of_the_method_are_kept(dataset, tiny_city):
    class Tuned(Silent):
        Config = Noise

    e = evaluate_method(Tuned(tiny_city, Noise(4.0)), dataset, keep="1/8", show_progress=True)
    assert e.config == {"noise_m": 4.0}
