"""Road networks on disk: one compressed ``.npz`` file, or a ``.network`` folder that is mapped into memory.

The file is the form to keep and to send: it is read as a whole, unpacked and compared with its hash. The folder holds
one ``.npy`` for each array. It is three times as large, but opens some forty times faster, takes no memory of its own,
and all processes of a machine share its pages. To open it is to trust its hash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.errors import InputError
from tedtrajrec.files import DAMAGED, check_unpacked, existing_file, open_array, replacing, replacing_folder

FORMAT = "tedtrajrec-network"
FORMAT_VERSION = 1
FILE, FOLDER = ".npz", ".network"
HEADER = "header.json"
REMEDY = "Build it again with 'tedtrajrec network build'."

Arrays = Mapping[str, NDArray[Any]]


class Stored(NamedTuple):
    """A network as it was found."""

    arrays: dict[str, NDArray[Any]]
    meta: dict[str, Any]
    hash: str
    mapped: bool  # whether the arrays are still on the disk


def write(path: str | Path, arrays: Arrays, meta: Mapping[str, Any], name: str) -> None:
    """Write a network to a file or, by the suffix of the path, to a folder.

    Parameters
    ----------
    path
        Ends in ``.npz`` or in ``.network``.
    arrays, meta
        Of the network.
    name
        Its hash.
    """
    header = json.dumps({"format": FORMAT, "version": FORMAT_VERSION, "hash": name, "meta": dict(meta)})
    if Path(path).suffix == FILE:
        with replacing(path) as beside:
            text = np.frombuffer(header.encode(), np.uint8)
            np.savez_compressed(beside, allow_pickle=False, header=text, **arrays)
    elif Path(path).suffix == FOLDER:
        with replacing_folder(path) as beside:
            for key, array in arrays.items():
                np.save(beside / f"{key}.npy", array, allow_pickle=False)
            (beside / HEADER).write_text(header, "utf-8")
    else:
        raise InputError(
            "a road network is saved as .npz, or as a .network folder to be mapped into memory",
            file=path,
            remedy="Give a name that ends in .npz.",
        )


def read(path: str | Path, names: Sequence[str]) -> Stored:
    """Read the arrays of these names of a network written by :func:`write`; :class:`InputError` if it is none."""
    folder = Path(path)
    mapped = folder.is_dir() and (folder / HEADER).is_file()
    if not mapped:
        path = existing_file(path, "a road network made by 'tedtrajrec network build'")
    try:
        header, arrays = _read_folder(folder, names) if mapped else _read_file(Path(path), names)
        return Stored(arrays, header["meta"], str(header["hash"]), mapped)
    except DAMAGED as error:
        what = "folder" if mapped else "file"
        raise InputError(f"the {what} is damaged or is not a road network", file=path, remedy=REMEDY) from error


def _read_file(path: Path, names: Sequence[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    check_unpacked(path)
    # opened here, because numpy leaves the file open when the archive is broken
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
        if "header" not in file:
            raise InputError("this .npz is not a road network of tedtrajrec", file=path, remedy=REMEDY)
        header = _checked(path, json.loads(file["header"].tobytes()))
        arrays = {name: file[name] for name in names}
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):  # members that are no arrays come as bytes
        raise TypeError("not all of these are arrays")
    return header, arrays


def _read_folder(path: Path, names: Sequence[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    header = _checked(path, json.loads((path / HEADER).read_text("utf-8")))
    return header, {name: open_array(path / f"{name}.npy") for name in names}


def _checked(path: Path, header: dict[str, Any]) -> dict[str, Any]:
    if header.get("format") != FORMAT or header.get("version") != FORMAT_VERSION:
        found = f"{header.get('format')} version {header.get('version')}"
        raise InputError(f"the format is {found}, expected {FORMAT} version {FORMAT_VERSION}", file=path, remedy=REMEDY)
    if not isinstance(header["meta"], dict):
        raise TypeError("the description of the network is none")
    return header
