"""Files that are whole or absent: outputs are written beside their place and renamed into it.

What is being written is locked by its writer, and the system takes a lock back when a process ends, however it ends.
So the next writer of the same place knows which leftovers nobody is working on, and removes them.
"""

from __future__ import annotations

import contextlib
import json
import lzma
import os
import re
import secrets
import shutil
import stat
import sys
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.errors import InputError, OutputError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

DAMAGED = (
    OSError, ValueError, KeyError, IndexError, AttributeError, TypeError, EOFError, ArithmeticError, MemoryError,
    RuntimeError, SyntaxError, tokenize.TokenError, zipfile.BadZipFile, zlib.error, lzma.LZMAError,
)  # fmt: skip
"""What numpy, zipfile and json may raise about a damaged file."""

_UNPACKS_TO = 200  # times its size that an archive of ours may have unpacked; those that exist have up to 20
_ALWAYS_FINE = 64 << 20


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
    with contextlib.ExitStack() as held:
        try:
            if path.is_dir():
                raise OutputError(f"{path} is a folder; give the name of a file to write.")
            place = path.resolve() if path.is_symlink() else path
            place.parent.mkdir(parents=True, exist_ok=True)
            beside = held.enter_context(_beside(place, folder=False))
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
    with contextlib.ExitStack() as held:
        try:
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
            if path.exists():
                raise OutputError(f"{path} exists already; remove it or give another name.")
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = held.enter_context(_beside(path, folder=True))
        except OSError as error:
            raise OutputError(f"{path} cannot be written: {error.strerror or error}.") from error
        try:
            yield beside
            beside.rename(path)
        except OSError as error:
            raise OutputError(f"{path} cannot be written: {error.strerror or error}.") from error
        finally:
            shutil.rmtree(beside, ignore_errors=True)


@contextlib.contextmanager
def _beside(place: Path, *, folder: bool) -> Iterator[Path]:
    """Make an empty file or folder beside a place, and keep it locked while the block lasts."""
    _remove_leftovers(place)
    while True:
        beside = place.parent / f".{secrets.token_hex(4)}-{place.name}"
        if folder:
            beside.mkdir()
        else:
            beside.touch(exist_ok=False)
        if sys.platform == "win32":  # a lock there would keep out those who write to it
            yield beside
            return
        descriptor = os.open(beside, os.O_RDONLY)
        try:
            with contextlib.suppress(OSError):  # file systems without locks: nothing is taken for a leftover there
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if is_file_of(descriptor, beside):  # else it was taken for a leftover before it was locked
                yield beside
                return
        finally:
            os.close(descriptor)


def _remove_leftovers(place: Path) -> None:
    """Remove what killed processes left of this place."""
    if sys.platform == "win32":
        return
    pattern = re.compile(rf"\.[0-9a-f]{{8}}-{re.escape(place.name)}")
    for left in [entry for entry in place.parent.iterdir() if pattern.fullmatch(entry.name)]:
        with contextlib.suppress(OSError):  # another process was quicker, or it is not ours to remove
            descriptor = os.open(left, os.O_RDONLY)
            try:
                if try_lock(descriptor) and is_file_of(descriptor, left):
                    if left.is_dir():
                        shutil.rmtree(left)
                    else:
                        left.unlink()
            finally:
                os.close(descriptor)


def check_unpacked(path: Path) -> None:
    """Raise an error if a ZIP archive says that it unpacks to far more than its size, as one meant to do harm does."""
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(member.file_size for member in archive.infolist())
    if unpacked > max(_ALWAYS_FINE, _UNPACKS_TO * path.stat().st_size):
        raise InputError(f"the archive would unpack to {unpacked:,} bytes, far more than its size", file=path)


def open_array(path: Path) -> NDArray[Any]:
    """Return the array of an ``.npy`` file, mapped into memory; what is no such array raises one of ``DAMAGED``."""
    if path.stat().st_size <= 128:  # it may have no elements, which cannot be mapped
        with path.open("rb") as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    with np.errstate(over="raise"):  # a shape beyond all numbers
        return np.asarray(np.lib.format.open_memmap(path, mode="r"))  # slices of a plain array are much cheaper


def read_json(path: str | Path, what: str) -> Any:  # noqa: ANN401  (JSON may hold anything)
    """Return the content of a JSON file, or raise an error that says what was looked for."""
    try:
        return json.loads(existing_file(path, what).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"this is not {what} ({error})", file=path) from error


def try_lock(descriptor: int) -> bool:
    """Lock an open file until it is closed, or return False where another has it."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # the latter on Windows
        return False
    return True


def is_file_of(descriptor: int, path: Path) -> bool:
    """Return whether an open file is still the one of this name."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


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
    try:
        path.open("rb").close()
    except OSError as error:
        raise InputError(f"this cannot be read: {error.strerror or error} ({what})", file=path) from error
    return path
