"""The exceptions that users meet; everything else that escapes is a bug in tedtrajrec."""

from __future__ import annotations

from pathlib import Path


class TedtrajrecError(Exception):
    """Base of all errors that a user can put right; the command line prints it and exits with code 2."""


class ConfigError(TedtrajrecError):
    """A setting has an unknown name, a wrong type or an impossible value."""


class InputError(TedtrajrecError):
    """An input file or frame cannot be used; the message names the file, the row, the field and the remedy.

    Parameters
    ----------
    problem
        What is wrong, as a clause without a full stop.
    file
        The file it was found in.
    row
        1-based number of the data row (the header does not count).
    field
        The column or tag concerned.
    remedy
        What the user can do about it, as a sentence.
    """

    def __init__(
        self,
        problem: str,
        *,
        file: str | Path | None = None,
        row: int | None = None,
        field: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.problem = problem
        self.file = None if file is None else str(file)
        self.row = row
        self.field = field
        self.remedy = remedy
        places = []
        if file is not None:
            places.append(str(file))
        if row is not None:
            places.append(f"row {row}")
        if field is not None:
            places.append(f"column '{field}'")
        message = f"{', '.join(places)}: {problem}" if places else problem
        if remedy is not None:
            message = f"{message.rstrip('.')}. {remedy}"
        super().__init__(message)


class OutputError(TedtrajrecError):
    """An output cannot be written where the user asked for it."""
