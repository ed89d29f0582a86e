"""The addresses of the interface."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic_core import to_json

from tedtrajrec import __version__
from tedtrajrec.errors import InputError, TedtrajrecError
from tedtrajrec.maps.trips_json import fixes_json
from tedtrajrec.network.bbox import BBox, parse_bbox
from tedtrajrec.recovery.recoverer import Recoverer
from tedtrajrec.server import metrics
from tedtrajrec.server.answers import (
    choose_type,
    matched_content,
    recovered_content,
    respond,
    takes_gzip,
)
from tedtrajrec.server.batching import Result
from tedtrajrec.server.inputs import CSV, GEOJSON, JSON, Upload, parse
from tedtrajrec.server.loading import Decode, Served, ServedMethod
from tedtrajrec.server.openapi import answers, takes_trips
from tedtrajrec.server.problems import ProblemError, unavailable
from tedtrajrec.server.schemas import (
    ExamplesAnswer,
    Health,
    MatchAnswer,
    MatchRequest,
    MethodsAnswer,
    NetworkAnswer,
    Options,
    Reading,
    RecoverAnswer,
    RecoverRequest,
)
from tedtrajrec.server.service import Service
from tedtrajrec.server.work import Matching, Recovery

logger = logging.getLogger("tedtrajrec.server")

DECODINGS: tuple[Decode, ...] = ("feasible", "greedy")


def service_of(request: Request) -> Service:
    """Return the service of a request."""
    service: Service = request.app.state.service
    return service


def checked_service(request: Request) -> Service:
    """Return the service, if the request carries the token that it wants."""
    service = service_of(request)
    service.check_token(request)
    return service


Open = Annotated[Service, Depends(service_of)]
Checked = Annotated[Service, Depends(checked_service)]

router = APIRouter()
_FEW_ROWS = 500  # some 3 ms of work, no more than another thread costs
_BODY_PROBLEMS = ("token", "too-slow", "too-large", "media-type", "invalid", "busy", "unavailable")
_SECURED: dict[str, Any] = {"security": [{}, {"token": []}]}


@router.post(
    "/v1/recover",
    response_model=None,
    responses=answers({JSON: RecoverAnswer, GEOJSON: None, CSV: None}, *_BODY_PROBLEMS),
    openapi_extra=takes_trips(RecoverRequest),
    tags=["trips"],
)
async def recover(request: Request, options: Annotated[Options, Query()], service: Checked) -> Response:
    """Recover dense trips from sparse fixes.

    Options stand in the address for CSV, GPX and GeoJSON bodies; a JSON body has them as fields. The header Accept
    chooses JSON, GeoJSON or CSV for the answer; CSV holds the recovered steps alone, and the number of rejects is in
    the header Tedtrajrec-Rejects.
    """
    served = service.served
    upload = await _read(request, service, RecoverRequest, options)
    method = _method(served, upload.options.method)
    decode = upload.options.decode
    recoverer = method.loaded(decode) or await _loaded(method, decode)
    step_s = upload.options.step_s or recoverer.step_s
    alternatives = upload.options.alternatives
    service.check_steps(upload.trips, step_s, 1 + alternatives)
    recovered = await service.do(request, Recovery(recoverer, upload.options.step_s, alternatives), upload.trips)
    rejects = len(recovered.rejects) + len(upload.rejects)
    service.metrics.trips.labels("recover").inc(len(upload.trips))
    service.metrics.rejects.inc(rejects)
    media_type = choose_type(request.headers.get("accept"))
    gzip = takes_gzip(request.headers.get("accept-encoding"))

    def answer() -> Response:
        about: dict[str, Any] = {
            "notes": [*recoverer.notes, *recoverer.check(upload.trips)],
            "attribution": served.attribution,
            "method": method.name,
            "step_s": step_s,
        }
        if upload.options.fixes:
            about["fixes"] = fixes_json(upload.trips.replace(segment=None, ratio=None))
        content = recovered_content(recovered, media_type, upload.rejects, about)
        return respond(content, media_type, gzip=gzip, headers={"Tedtrajrec-Rejects": str(rejects)})

    return await _apart(answer, recovered.n_rows if media_type == JSON else None)


@router.post(
    "/v1/match",
    response_model=None,
    responses=answers({JSON: MatchAnswer}, *_BODY_PROBLEMS),
    openapi_extra=takes_trips(MatchRequest),
    tags=["trips"],
)
async def match(request: Request, reading: Annotated[Reading, Query()], service: Checked) -> Response:
    """Match fixes to the road network, and find the routes driven between them."""
    served = service.served
    upload = await _read(request, service, MatchRequest, Options(timezone=reading.timezone))
    part = await service.do(request, Matching(served.matcher), upload.trips)
    service.metrics.trips.labels("match").inc(len(upload.trips))
    service.metrics.rejects.inc(len(part.rejects) + len(upload.rejects))
    gzip = takes_gzip(request.headers.get("accept-encoding"))

    def answer() -> Response:
        about: dict[str, Any] = {"notes": [], "attribution": served.attribution}
        return respond(matched_content(part, served.network, upload.rejects, about), JSON, gzip=gzip)

    return await _apart(answer, part.trips.n_fixes)


@router.get(
    "/v1/network",
    response_model=None,
    responses=answers({GEOJSON: NetworkAnswer}, "token", "too-large", "invalid", "unavailable"),
    openapi_extra=_SECURED,
    tags=["city"],
)
async def network(
    request: Request,
    service: Checked,
    bbox: Annotated[
        str | None,
        Query(
            max_length=200,
            description="West, south, east, north in degrees, with commas between; everything if not given.",
            examples=["-8.69,41.12,-8.55,41.20"],
        ),
    ] = None,
) -> Response:
    """Return the road segments in a bounding box as GeoJSON; a two-way road is two segments."""
    served = service.served
    box = _box(bbox)
    gzip = takes_gzip(request.headers.get("accept-encoding"))
    west, south, east, north = served.network.bbox
    if box is not None and box[0] <= west and box[1] <= south and box[2] >= east and box[3] >= north:
        box = None
    headers = {"Cache-Control": "private, max-age=60"}

    def answer() -> Response:
        if box is None and gzip and served.network.n_segments <= served.map.most:
            packed = {**headers, "Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
            return Response(served.map.packed, headers=packed, media_type=GEOJSON)
        return respond(served.map.content(box), GEOJSON, gzip=gzip, headers=headers)

    return await asyncio.to_thread(answer)


@router.get(
    "/v1/methods",
    response_model=None,
    responses=answers({JSON: MethodsAnswer}, "token", "unavailable"),
    openapi_extra=_SECURED,
    tags=["city"],
)
async def methods(service: Checked) -> Response:
    """List the methods, the network and the limits of this service."""
    served = service.served
    limits = service.settings.limits
    names = ("body_bytes", "trips", "points", "steps", "seconds", "segments")
    answer = {
        "methods": [_about(method, method is served.default) for method in served.methods.values()],
        "bbox": served.network.bbox,
        "segments": served.network.n_segments,
        "network": served.network.hash,
        "attribution": served.attribution,
        "limits": {name: getattr(limits, name) for name in names},
    }
    return Response(to_json(answer), media_type=JSON)


@router.get(
    "/v1/examples",
    response_model=None,
    responses=answers({JSON: ExamplesAnswer}, "token", "unavailable"),
    openapi_extra=_SECURED,
    tags=["city"],
)
async def examples(request: Request, service: Checked) -> Response:
    """List sparse trips to try, with the truth where it is known."""
    content = to_json({"examples": service.served.examples}, inf_nan_mode="null")
    return respond(content, JSON, gzip=takes_gzip(request.headers.get("accept-encoding")))


@router.get("/healthz", response_model=None, responses=answers({JSON: Health}, "unavailable"), tags=["service"])
async def health(service: Open) -> Response:
    """Say whether the model is loaded and requests are answered."""
    _ = service.served
    return Response(to_json({"status": "ready", "version": __version__}), media_type=JSON)


@router.get(
    "/metrics",
    response_model=None,
    responses=answers({"text/plain": None}, "token"),
    openapi_extra=_SECURED,
    tags=["service"],
)
async def show_metrics(service: Checked) -> Response:
    """Return counts and times for Prometheus; of all workers together."""
    return Response(await asyncio.to_thread(service.metrics.text), headers={"Content-Type": metrics.CONTENT_TYPE})


async def _loaded(method: ServedMethod, decode: Decode | None) -> Recoverer:
    """Return what recovers trips in a way that is loaded when first asked for."""
    try:
        return await asyncio.to_thread(method.recoverer, decode)
    except TedtrajrecError as error:  # by now the files may be gone
        logger.exception("%s cannot be loaded", method.name)
        detail = "What decodes in this way cannot be loaded; the log of the service says why."
        raise unavailable(detail, retry_s=60) from error


async def _read(request: Request, service: Service, model: type[Reading], options: Options) -> Upload:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    async with service.bodies.read(request) as body:
        limits = service.settings.limits
        return await _apart(
            lambda: parse(body, media_type, model, options, limits), len(body) // 64 if media_type == JSON else None
        )


async def _apart(work: Callable[[], Result], rows: int | None) -> Result:
    """Return what some work returns; in another thread unless it has so few rows that it holds up nobody."""
    return work() if rows is not None and rows <= _FEW_ROWS else await asyncio.to_thread(work)


def _method(served: Served, name: str | None) -> ServedMethod:
    if name is None:
        return served.default
    if name not in served.methods:
        raise ProblemError(
            "invalid", f"There is no such method here; use {' or '.join(served.methods)}.", field="method"
        )
    return served.methods[name]


def _about(method: ServedMethod, default: bool) -> dict[str, Any]:
    recoverer = method.recoverer()
    return {
        "name": method.name,
        "description": method.description,
        "step_s": recoverer.step_s,
        "time_zone": recoverer.time_zone,
        "decode": DECODINGS,
        "default": default,
        "notes": recoverer.notes,
    }


def _box(text: str | None) -> BBox | None:
    if text is None:
        return None
    try:
        return parse_bbox(text)
    except InputError as error:
        raise ProblemError.from_error(error, "bbox") from error
