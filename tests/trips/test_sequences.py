import functools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tedtrajrec.trips.sequences import collapse, common_subsequence, distinct_counts

texts = st.lists(st.integers(0, 4), max_size=12)


def ragged(rows):
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return offsets, np.array([value for row in rows for value in row], np.int32)


def lcs_by_definition(a, b):
    @functools.cache
    def longest(i, j):
        if i == len(a) or j == len(b):
            return 0
        if a[i] == b[j]:
            return 1 + longest(i + 1, j + 1)
        return max(longest(i + 1, j), longest(i, j + 1))

    return longest(0, 0)


def is_subsequence(part, whole):
    rest = iter(whole)
    return all(value in rest for value in part)


def lcs_by_all_subsets(a, b):
    parts = ([v for i, v in enumerate(a) if chosen >> i & 1] for chosen in range(2 ** len(a)))
    return max(len(part) for part in parts if is_subsequence(part, b))


def lcs(rows_a, rows_b):
    return common_subsequence(*ragged(rows_a), *ragged(rows_b)).tolist()


def test_textbook_examples():
    pairs = [("ABCBDAB", "BDCABA", 4), ("AGGTAB", "GXTXAYB", 4), ("XMJYAUZ", "MZJAWXU", 4), ("ABC", "XYZ", 0)]
    a, b = [[*map(ord, p[0])] for p in pairs], [[*map(ord, p[1])] for p in pairs]
    assert lcs(a, b) == [p[2] for p in pairs]


@given(st.lists(st.tuples(texts, texts), max_size=5))
def test_common_subsequence_is_the_recursive_definition(pairs):
    a, b = [p[0] for p in pairs], [p[1] for p in pairs]
    assert lcs(a, b) == [lcs_by_definition(tuple(x), tuple(y)) for x, y in pairs]


@given(st.lists(st.integers(0, 2), max_size=7), st.lists(st.integers(0, 2), max_size=7))
def test_no_subset_of_one_is_a_longer_subsequence_of_the_other(a, b):
    assert lcs([a], [b]) == [lcs_by_all_subsets(a, b)]


@given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=8), max_size=5))
def test_collapse_drops_the_excluded_first_and_then_repeats(rows):
    expected = []
    for row in rows:
        kept = [value for value, keep in row if keep]
        expected.append([v for i, v in enumerate(kept) if i == 0 or v != kept[i - 1]])
    offsets, values = ragged([[value for value, _ in row] for row in rows])
    keep = np.array([keep for row in rows for _, keep in row], bool)
    got = collapse(offsets, values, keep)
    for mine, wanted in zip(got, ragged(expected), strict=True):
        np.testing.assert_array_equal(mine, wanted)


@given(st.lists(st.tuples(texts, texts), max_size=5))
def test_distinct_counts_are_those_of_sets(pairs):
    a, b = [p[0] for p in pairs], [p[1] for p in pairs]
    got = distinct_counts(*ragged(a), *ragged(b), 5)
    expected = [(len(set(x)), len(set(y)), len(set(x) & set(y))) for x, y in pairs]
    assert [*zip(*(column.tolist() for column in got), strict=True)] == expected
