"""How good inputs are damaged: as bytes, as text of a format, and within archives with good checksums."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

Mutate = Callable[[random.Random, list[bytes]], bytes]

NUMBERS = [
    b"0", b"-1", b"1e308", b"-1e999", b"nan", b"NaN", b"Infinity", b"9" * 30, b"1" * 400, b"0.1.2", b"-0", b"181",
    b"9223372036854775807", b"9223372036854775808", b"4294967296", b"1e-320", b"0x10", b"1_0", b"null", b"\xff",
]  # fmt: skip
TOKENS = {
    "text": [
        b",", b'"', b"\n", b"\r", b"\x00", b"'", b";", b"\t", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xf0\x9f\x9a\x95",
    ],
    "xml": [
        b"<", b">", b"&amp;", b"&lol;", b"<!DOCTYPE x [<!ENTITY lol 'x'>]>", b"<![CDATA[", b"]]>", b"<trk>", b"<way>",
    ],
    "json": [b"[", b"]", b"{", b"}", b":", b",", b'"', b"\\u0000", b"\\ud800", b"null", b"true", b"[" * 2000, b"{}"],
    "binary": [b"\x00" * 8, b"\xff" * 8, b"\x7f\xff\xff\xff", b"PAR1", b"PK\x03\x04", b"\x1f\x8b", b"\x80\x04\x95"],
    "toml": [
        b"[", b"]", b"=", b'"""', b"\n[[cells]]\n", b"1979-05-27", b"inf", b"{a=1}", b"'", b"set = 3\n", b"\\u0000",
    ],
}  # fmt: skip
"""What makes trouble in files of a kind."""


def damage(draw: random.Random, data: bytes, tokens: list[bytes], others: list[bytes]) -> bytes:
    """Return data with one to six random changes."""
    changed = bytearray(data)
    for _ in range(draw.choice([1, 1, 1, 2, 3, 6])):
        at = draw.randrange(len(changed) + 1)
        size = min(len(changed) - at, int(draw.expovariate(0.1)) + 1)
        kind = draw.randrange(8)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << draw.randrange(8)
        elif kind == 1 and at < len(changed):
            changed[at] = draw.randrange(256)
        elif kind == 2:
            del changed[at : at + size]
        elif kind == 3:
            changed[at:at] = changed[at : at + size] * draw.choice([1, 2, 50])
        elif kind == 4:
            changed[at:at] = draw.choice(tokens)
        elif kind == 5:
            del changed[at:]
        elif kind == 6:
            other = draw.choice(others)
            start = draw.randrange(len(other) + 1)
            changed[at : at + size] = other[start : start + draw.randrange(1, 200)]
        else:
            numbers = list(re.finditer(rb"-?\d+(\.\d+)?", bytes(changed[:20_000])))
            if numbers:
                found = draw.choice(numbers)
                changed[found.start() : found.end()] = draw.choice(NUMBERS)
    return bytes(changed)


def plain(kind: str) -> Mutate:
    """Return what damages bytes with the signs of a kind of file."""
    return lambda draw, seeds: damage(draw, draw.choice(seeds), TOKENS[kind], seeds)


def packed_again(kind: str) -> Mutate:
    """Return what damages the text within a gzip file, or now and then the file itself."""

    def mutate(draw: random.Random, seeds: list[bytes]) -> bytes:
        data = draw.choice(seeds)
        if draw.random() < 0.3:
            return damage(draw, data, TOKENS["binary"], seeds)
        text = gzip.decompress(data)
        return gzip.compress(damage(draw, text, TOKENS[kind], [text]), 1, mtime=0)

    return mutate


def archives(draw: random.Random, seeds: list[bytes]) -> bytes:
    """Return a damaged ZIP archive, or one with a damaged member."""
    if draw.random() < 0.2:
        return damage(draw, draw.choice(seeds), TOKENS["binary"], seeds)
    return members(draw, seeds)


def members(draw: random.Random, seeds: list[bytes]) -> bytes:
    """Return a ZIP archive with one member damaged, left out or replaced, and good checksums."""
    data = draw.choice(seeds)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    name = draw.choice([*held, *(n for n in held if n.endswith(("json", "header.npy")) for _ in range(4))])
    kind = draw.randrange(6)
    if kind == 0:
        del held[name]
    elif kind == 1 and name.endswith(".npy"):
        held[name] = _other_array(draw, held[name])
    elif kind == 2 and name.endswith((".json", "header.npy")):
        held[name] = _other_json(draw, held[name])
    elif kind == 3:
        held[name] = held[draw.choice([*held])]
    else:
        held[name] = damage(draw, held[name], TOKENS["json" if name.endswith("json") else "binary"], [*held.values()])
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for member, content in held.items():
            archive.writestr(member, content, draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
    return out.getvalue()


def _other_array(draw: random.Random, data: bytes) -> bytes:
    """Return an array with other values, another type or another shape, which may claim far more than is there."""
    array = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    kind = draw.randrange(5)
    if kind == 0 and array.size:
        array = array.copy()
        array.flat[draw.randrange(array.size)] = draw.choice([0, 1, 127])
    elif kind == 1:
        with np.errstate(all="ignore"):
            array = array.astype(draw.choice(["f8", "i8", "i4", "u1", "U4", "?", "c8", "f2", "M8[s]"]))
    elif kind == 2:
        array = array[: draw.randrange(array.shape[0] + 1)] if array.ndim else array
    elif kind == 3:
        array = array.reshape(1, -1)
    out = io.BytesIO()
    np.lib.format.write_array(out, array, allow_pickle=False)
    text = out.getvalue()
    if kind == 4:
        text = re.sub(rb"'shape': \([^)]*\)", b"'shape': (%d,)" % draw.choice([10**6, 10**10, 10**18, -1]), text)
        if draw.random() < 0.2:
            text = text.replace(b"'<", b"'O", 1)
    return text


def _other_json(draw: random.Random, data: bytes) -> bytes:
    """Return JSON (or the header of a network, which is JSON as an array) with one value replaced."""
    as_array = data.startswith(b"\x93NUMPY")
    text = np.lib.format.read_array(io.BytesIO(data)).tobytes() if as_array else data
    changed = json.dumps(other_value(draw, json.loads(text))).encode()
    if not as_array:
        return changed
    out = io.BytesIO()
    np.lib.format.write_array(out, np.frombuffer(changed, np.uint8))
    return out.getvalue()


def other_value(draw: random.Random, value: Any) -> Any:
    """Return plain values with one of them replaced by a surprising one."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = draw.choice([*value])
        if draw.random() < 0.1:
            return {name: item for name, item in value.items() if name != key}
        return {**value, key: other_value(draw, value[key])}
    if isinstance(value, list) and value and draw.random() < 0.9:
        at = draw.randrange(len(value))
        return [*value[:at], other_value(draw, value[at]), *value[at + 1 :]]
    deep: Any = []
    for _ in range(draw.choice([1, 500])):
        deep = [deep]
    choices = [None, True, -1, 0, 1, 10**9, 10**12, 10**30, 1e308, float("nan"), "", "x", "../../etc/passwd", "\ud800"]
    return draw.choice([*choices, [], {}, deep, {"a": value}, [value] * 3, "a" * 10_000, "os:system", [1, 2, 3]])


def json_values(draw: random.Random, seeds: list[bytes]) -> bytes:
    """Return JSON with one value replaced, or with damaged bytes."""
    data = draw.choice(seeds)
    if draw.random() < 0.5:
        return damage(draw, data, TOKENS["json"], seeds)
    return json.dumps(other_value(draw, json.loads(data))).encode("utf-8", "surrogatepass")


def run_files(draw: random.Random, seeds: list[bytes]) -> bytes:
    """Return the files of a run or model, packed into one, with one of them damaged."""
    with zipfile.ZipFile(io.BytesIO(draw.choice(seeds))) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    name = draw.choice([n for n in held if not n.endswith(".npz")])
    if name.endswith(".json"):
        held[name] = json_values(draw, [held[name]])
    elif draw.random() < 0.7:
        size = struct.unpack("<Q", held[name][:8])[0]
        header = json_values(draw, [held[name][8 : 8 + size]])
        length = len(header) if draw.random() < 0.9 else draw.choice([0, 2**63, 10**9])
        held[name] = struct.pack("<Q", length) + header + held[name][8 + size :]
    else:
        held[name] = damage(draw, held[name], TOKENS["binary"], [held[name]])
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for member, content in held.items():
            archive.writestr(member, content)
    return out.getvalue()
