"""What the tests of trip files share: comparing trips, and strategies that make them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tedtrajrec.trips.table import NULLABLE_TEXT, TEXT, Trips

START = 1_500_000_000


def assert_same_trips(one: Trips, other: Trips) -> None:
    """Fail unless all columns are the same, with types and missing values."""
    assert one.traj_id.tolist() == other.traj_id.tolist()
    for name in ("offsets", "time", "lon", "lat", "segment", "ratio"):
        assert_same_column(getattr(one, name), getattr(other, name), name)
    for kind in ("extra", "trip_extra"):
        columns, others = getattr(one, kind), getattr(other, kind)
        assert list(columns) == list(others)
        for name in columns:
            assert_same_column(columns[name], others[name], name)


def assert_same_column(one: NDArray[Any] | None, other: NDArray[Any] | None, name: str) -> None:
    if one is None or other is None:
        assert one is other, name
        return
    if one.dtype.kind == "T":
        assert other.dtype.kind == "T", name
        assert one.tolist() == other.tolist(), name
        return
    assert one.dtype == other.dtype, name
    missing = np.ma.getmaskarray(one)
    np.testing.assert_array_equal(missing, np.ma.getmaskarray(other), name)
    np.testing.assert_array_equal(np.ma.getdata(one)[~missing], np.ma.getdata(other)[~missing], name)


# Text as users have it: any script, quotes, delimiters and line ends, but no control characters.
texts = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs", "Cc", "Co", "Cn"]),
        st.sampled_from(['"', ",", ";", "\n", "\r", "&", "<"]),
    ),
    max_size=6,
)
ids = texts.filter(lambda text: text.strip() == text and text != "")


@st.composite
def trips(draw: st.DrawFn, *, typed: bool = True, empty: bool = False) -> Trips:
    """Make trips with extra columns; without ``typed`` only of kinds that text files tell apart."""
    n = draw(st.integers(1, 5))
    lengths = draw(st.lists(st.integers(0 if empty else 1, 4), min_size=n, max_size=n).filter(any))
    fixes = sum(lengths)
    degrees = {"allow_nan": False, "allow_infinity": False}
    column = _column_maker(draw, fixes)
    matched = draw(st.booleans())
    segment = column(st.integers(-1, 2**31 - 1), np.int32)
    ratio = np.where(segment < 0, np.nan, column(st.floats(0, 1), np.float64))
    names = draw(st.lists(texts, min_size=2, max_size=6, unique=True).filter(_are_free))
    kinds = draw(st.lists(st.sampled_from(_TYPED if typed else _PLAIN), min_size=len(names), max_size=len(names)))
    return Trips(
        traj_id=np.array(draw(st.lists(ids, min_size=n, max_size=n, unique=True)), TEXT),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        time=column(st.integers(START, START + 10**6), np.int64),
        lon=column(st.floats(-180, 180, **degrees), np.float64),
        lat=column(st.floats(-90, 90, **degrees), np.float64),
        segment=segment if matched else None,
        ratio=ratio if matched else None,
        extra={name: _extra(draw, kind, fixes) for name, kind in list(zip(names, kinds, strict=True))[1:]},
        trip_extra={names[0]: _extra(draw, kinds[0], n)},
    )


_PLAIN = ("int", "float", "bool", "text")
_TYPED = (*_PLAIN, "uint8", "float32", "time", "date", "gaps")


def _are_free(names: list[str]) -> bool:
    ours = {"traj_id", "timestamp", "lon", "lat", "segment", "ratio"}
    return not {"".join(sign for sign in name.lower() if sign.isalnum()) for name in names} & (ours | {"trajid"})


def _column_maker(draw: st.DrawFn, rows: int) -> Any:
    return lambda values, dtype: np.array(draw(st.lists(values, min_size=rows, max_size=rows)), dtype)


def _extra(draw: st.DrawFn, kind: str, rows: int) -> NDArray[Any]:
    column = _column_maker(draw, rows)
    if kind == "text":
        return column(st.none() | texts, NULLABLE_TEXT)
    if kind == "time":
        return column(st.integers(0, 2**50), np.int64).astype("M8[us]")
    if kind == "date":
        return column(st.integers(0, 20_000), np.int64).astype("M8[D]")
    if kind == "uint8":
        return column(st.integers(0, 255), np.uint8)
    if kind == "float32":
        return column(st.floats(width=32, allow_nan=False), np.float32)
    if kind == "gaps":
        mask = column(st.booleans(), bool)
        values = np.ma.MaskedArray(column(st.integers(-5, 5), np.int64), mask)
        return values if mask.any() else np.ma.getdata(values)
    if kind == "int":
        return column(st.integers(-(2**63), 2**63 - 1), np.int64)
    if kind == "bool":
        return column(st.booleans(), bool)
    return column(st.floats(allow_nan=False), np.float64) + 0.0
