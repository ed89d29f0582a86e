"""Files that are whole or absent: outputs are written beside their place and renamed into it."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from tedtrajrec.errors import InputError, OutputError


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success it takes the place of ``path``, on failure it is removed.

    The temporary name keeps all suffixes, so that writers that choose a format by suffix work on it.

    Parameters
    ----------
    path
        The file to be made. Missing parent folders are created. Of a link, the file it leads to is made.

    Raises
    ------
    OutputError
        If the place cannot be written to.
    """
    path = Path(path)
    try:
        if path.is_dir():
            raise OutputError(f"{path} is a folder; give the name of a file to write.")
        place = path.resolve() if path.is_symlink() else path
        beside = place.parent / f".{secrets.token_hex(4)}-{place.name}"
        place.parent.mkdir(parents=True, exist_ok=True)
        beside.touch()
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}.") from error
    try:
        yield beside
        with beside.open("rb+") as file:
            os.fsync(file.fileno())
        beside.replace(place)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        beside.unlink(missing_ok=True)


@contextlib.contextmanager
def replacing_folder(path: str | Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``path``; on success it takes that name, on failure it is removed.

    Parameters
    ----------
    path
        The folder to be made; it must not exist, or be empty. Missing parent folders are created.

    Raises
    ------
    OutputError
        If the place is taken or cannot be written to.
    """
    path = Path(path)
    beside = path.parent / f".{secrets.token_hex(4)}-{path.name}"
    try:
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
        if path.exists():
            raise OutputError(f"{path} exists already; remove it or give another name.")
        beside.mkdir(parents=True)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}.") from error
    try:
        yield beside
        beside.rename(path)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def existing_file(path: str | Path, what: str) -> Path:
    """Return ``path`` if it is a non-empty file, or raise an error that says what was looked for."""
    path = Path(path)
    try:
        found = path.stat()
    except FileNotFoundError as error:
        raise InputError(f"there is no such file ({what})", file=path, remedy="Check the path.") from error
    except OSError as error:
        raise InputError(f"this cannot be read: {error.strerror or error} ({what})", file=path) from error
    if stat.S_ISDIR(found.st_mode):
        raise InputError(f"this is a folder, but {what} is a file", file=path)
    if not stat.S_ISREG(found.st_mode):  # a pipe ends when it has been read, and most files are read twice
        raise InputError(
            f"this is a pipe or a device, but {what} is a file", file=path, remedy="Save it to a file first."
        )
    if found.st_size == 0:
        raise InputError(f"the file is empty ({what})", file=path)
    return path
