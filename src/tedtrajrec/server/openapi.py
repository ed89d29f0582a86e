"""The description of the interface: every status of every address, made of the schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from tedtrajrec.server import schemas
from tedtrajrec.server.inputs import CSV, GEOJSON, GPX, JSON, TSV, TripCollection
from tedtrajrec.server.problems import KINDS, MEDIA_TYPE, ProblemAnswer

_ANYWHERE = ("wrong-host", "internal")
_LATER = {429, 503}
_REFERENCE = "#/components/schemas/{model}"

_MODELS: tuple[type[BaseModel], ...] = (
    ProblemAnswer,
    TripCollection,
    schemas.RecoverRequest,
    schemas.MatchRequest,
    schemas.RecoverAnswer,
    schemas.MatchAnswer,
    schemas.MethodsAnswer,
    schemas.ExamplesAnswer,
    schemas.NetworkAnswer,
    schemas.Health,
)


def answers(content: Mapping[str, Any], *kinds: str) -> dict[int | str, dict[str, Any]]:
    """Return the answers of an address: its content by type, and the kinds of problems it may have.

    Parameters
    ----------
    content
        Media type -> schema model, or None for anything.
    """
    found: dict[int | str, dict[str, Any]] = {
        200: {"description": "Done", "content": {name: _schema(model) for name, model in content.items()}}
    }
    for kind in (*_ANYWHERE, *kinds):
        status, title = KINDS[kind]
        found[status] = {"description": title, "content": {MEDIA_TYPE: _schema(ProblemAnswer)}}
        if status in _LATER:
            found[status]["headers"] = {
                "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}, "required": True}
            }
    return dict(sorted(found.items(), key=lambda item: str(item[0])))


def takes_trips(model: type[BaseModel]) -> dict[str, Any]:
    """Return what an address says about the body it takes."""
    text = {"schema": {"type": "string"}}
    return {
        "requestBody": {
            "required": True,
            "content": {JSON: _schema(model), CSV: text, TSV: text, GPX: text, GEOJSON: _schema(TripCollection)},
        },
        "security": [{}, {"token": []}],
    }


def install(app: FastAPI) -> None:
    """Make the app describe itself with these schemas."""

    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            description = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )
            _, definitions = models_json_schema([(model, "validation") for model in _MODELS], ref_template=_REFERENCE)
            components = description.setdefault("components", {})
            components.setdefault("schemas", {}).update(definitions["$defs"])
            components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            app.openapi_schema = description
        return app.openapi_schema

    app.openapi = describe  # type: ignore[method-assign]


def _schema(model: type[BaseModel] | None) -> dict[str, Any]:
    return {"schema": {} if model is None else {"$ref": _REFERENCE.format(model=model.__name__)}}
