"""Bounding boxes: west, south, east, north in degrees."""

from __future__ import annotations

from tedtrajrec.errors import InputError

BBox = tuple[float, float, float, float]

_REMEDY = "Give west,south,east,north in degrees, for example -8.69,41.12,-8.55,41.20."


def parse_bbox(text: str) -> BBox:
    """Return the box of a text such as ``-8.69,41.12,-8.55,41.20``."""
    try:
        west, south, east, north = (float(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"'{text}' is not a bounding box", remedy=_REMEDY) from error
    return check_bbox((west, south, east, north))


def check_bbox(bbox: BBox) -> BBox:
    """Return the box, or raise :class:`InputError` if it is empty or not in degrees."""
    west, south, east, north = bbox
    if not (-180 <= west < east <= 180 and -90 <= south < north <= 90):
        raise InputError(f"the bounding box {bbox} is empty or not in degrees", remedy=_REMEDY)
    return bbox
