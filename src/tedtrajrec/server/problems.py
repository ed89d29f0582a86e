"""Errors as ``application/problem+json`` (RFC 9457): a sentence for people, a type for programs, and the field."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from pydantic_core import ErrorDetails, to_json
from starlette.exceptions import HTTPException

from tedtrajrec.errors import InputError, OutputError, TedtrajrecError
from tedtrajrec.trips.files.times import SET_ASIDE

logger = logging.getLogger("tedtrajrec.server")

MEDIA_TYPE = "application/problem+json"
MOST_LISTED = 20  # faults of one request in its answer

KINDS: dict[str, tuple[int, str]] = {
    "not-understood": (400, "The request is not HTTP that can be understood"),
    "token": (401, "A token is needed"),
    "wrong-host": (403, "This host name is not served"),
    "not-found": (404, "There is nothing here"),
    "wrong-verb": (405, "This address does not take this verb"),
    "too-slow": (408, "The body came too slowly"),
    "too-large": (413, "The request is larger than allowed"),
    "media-type": (415, "The body has a type that is not read here"),
    "invalid": (422, "The request is not valid"),
    "busy": (429, "Too many requests are waiting"),
    "internal": (500, "The service has a fault"),
    "unavailable": (503, "The service cannot answer now"),
}
"""Kinds of problems: status and title. ``/docs`` lists them; the type of a problem leads there."""


class Fault(BaseModel):
    """One fault of a request."""

    field: str | None = Field(default=None, description="Where it is, such as trips[0].points[3].lat.")
    detail: str


class ProblemAnswer(BaseModel):
    """An error."""

    type: str
    title: str
    status: int
    detail: str
    field: str | None = Field(default=None, description="The field of the request concerned.")
    row: int | None = Field(
        default=None, description="The data row of an uploaded file concerned; the header does not count."
    )
    problems: list[Fault] = Field(default=[], description="All faults, where there are several (the first 20).")


class ProblemError(Exception):
    """A request cannot be answered."""

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        field: str | None = None,
        row: int | None = None,
        problems: Sequence[Fault] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.status, title = KINDS[kind]
        self.answer = ProblemAnswer(
            type=f"/docs#{kind}",
            title=title,
            status=self.status,
            detail=detail,
            field=field,
            row=row,
            problems=list(problems),
        )
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """Return the answer to the client."""
        return Response(self.content(), self.status, self.headers, MEDIA_TYPE)

    def content(self) -> bytes:
        """Return the body of the answer."""
        return to_json(self.answer.model_dump(exclude_defaults=True))

    @classmethod
    def from_error(cls, error: TedtrajrecError, field: str | None = None) -> ProblemError:
        """Return a user's error; the names of our own temporary files are left out."""
        if isinstance(error, OutputError):  # no user's: the disk of the service is full, say
            logger.error("%s", error)
            return internal()
        if isinstance(error, InputError):
            detail = _sentence(error.problem)
            if error.remedy:
                detail = f"{detail} {_over_http(error.remedy)}"
            return cls("invalid", detail, field=error.field or field, row=error.row)
        return cls("invalid", str(error), field=field)

    @classmethod
    def from_validation(cls, errors: Sequence[ErrorDetails | Mapping[str, Any]]) -> ProblemError:
        """Return what pydantic found."""
        faults = [Fault(field=_path(error["loc"]), detail=_words(error)) for error in errors[:MOST_LISTED]]
        first = faults[0]
        detail = first.detail if len(errors) == 1 else f"{first.detail} And {len(errors) - 1} more."
        return cls("invalid", detail, field=first.field, problems=faults if len(faults) > 1 else ())


def busy(detail: str, *, retry_s: int) -> ProblemError:
    """Return the problem of a client that must come back later, because others are before it."""
    return ProblemError("busy", detail, headers={"Retry-After": str(retry_s)})


def unavailable(detail: str, *, retry_s: int) -> ProblemError:
    """Return the problem of a client that must come back later, because the service cannot answer now."""
    return ProblemError("unavailable", detail, headers={"Retry-After": str(retry_s)})


def internal() -> ProblemError:
    """Return the problem that is our own fault; what it was is in the log alone."""
    return ProblemError("internal", "This is a fault of the service; its log says more.")


def install(app: FastAPI) -> None:
    """Make every error of the app a problem."""

    @app.exception_handler(ProblemError)
    async def problem(_: Request, error: ProblemError) -> Response:
        return error.response()

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return ProblemError.from_validation(error.errors()).response()

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> Response:
        kind = {404: "not-found", 405: "wrong-verb"}.get(error.status_code, "invalid")
        detail = {
            404: "There is nothing at this address; /docs lists what there is.",
            405: f"This address takes {(error.headers or {}).get('Allow', 'other verbs')}.",
        }.get(error.status_code, HTTPStatus(error.status_code).phrase)
        return ProblemError(kind, detail, headers=error.headers).response()


def _over_http(remedy: str) -> str:
    """Return a remedy as a client can follow it, who has neither our options nor Python."""
    remedy = re.sub(r"--columns \w+= keeps", "another name keeps", remedy.replace(SET_ASIDE, ""))
    return " ".join(map(_without_options, re.split(r"(?<=[.?])\s+", remedy)))


def _without_options(sentence: str) -> str:
    if "--timezone" in sentence:
        return "Give the zone of such times in the address, for example ?timezone=Europe/Lisbon."
    names = re.findall(r"--columns (\w+)=(\S.*?)(?= --columns| \(in Python|\.?$)", sentence)
    if not names:
        return sentence
    *others, last = (f"{'a column' if name == 'X' else repr(name)} to {role}" for role, name in names)
    return f"Rename {', '.join(others)}{' and ' if others else ''}{last}."


def _path(location: Sequence[int | str]) -> str | None:
    """Return a place such as ``trips[0].points[3].lat``."""
    parts = [part for part in location if part not in {"query", "body", *_UNION_BRANCHES}]
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).removeprefix(".")
    return path[:200] or None


_UNION_BRANCHES = {"constrained-int", "constrained-float", "constrained-str", "int", "float", "str"}


def _words(error: ErrorDetails | Mapping[str, Any]) -> str:
    name = _path(error["loc"])
    if error["type"] == "json_invalid":
        return f"The body is not JSON: {error['msg'].removeprefix('Invalid JSON: ')}."
    return f"{name}: {_sentence(error['msg'])}" if name else _sentence(error["msg"])


def _sentence(text: str) -> str:
    text = text.removeprefix("Value error, ").rstrip(".")
    return f"{text[:1].upper()}{text[1:]}." if text else "It cannot be used."
