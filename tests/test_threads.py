"""Parts are done in order on any number of threads, and no more of them than needed."""

import threading

import pytest

from tedtrajrec.threads import iter_parts, map_parts


@pytest.mark.parametrize("workers", [None, 1, 2, 5])
@pytest.mark.parametrize("n", [0, 1, 2, 40])
def test_results_come_in_order(workers, n):
    expected = [number * number for number in range(n)]
    assert map_parts(lambda number: number * number, range(n), workers) == expected
    assert list(iter_parts(lambda number: number * number, range(n), workers)) == expected


def test_one_worker_or_one_part_starts_no_thread():
    def where(_):
        return threading.current_thread()

    here = threading.current_thread()
    assert map_parts(where, range(3), 1) == list(iter_parts(where, range(3), 1)) == [here] * 3
    assert map_parts(where, range(1), 4) == list(iter_parts(where, range(1), 4)) == [here]
    assert here not in map_parts(where, range(3), 2)


def test_few_parts_are_under_way_and_the_rest_is_left_when_nobody_waits():
    started = []
    results = iter_parts(lambda part: started.append(part) or part, range(1000), 2)
    assert next(results) == 0
    assert len(started) <= 5  # twice the workers wait, and one was taken
    results.close()
    assert len(started) <= 5


@pytest.mark.parametrize("run", [map_parts, lambda *given: list(iter_parts(*given))])
@pytest.mark.parametrize("workers", [1, 3])
def test_errors_reach_the_caller(run, workers):
    with pytest.raises(ZeroDivisionError):
        run(lambda part: 1 // (7 - part), range(20), workers)
