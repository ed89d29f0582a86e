"""Answers of a real service with a real recoverer on a small city."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.recovery.recoverer import Recoverer
from tedtrajrec.server import schemas
from tedtrajrec.server.loading import Served, _read_examples
from tedtrajrec.server.network_map import NetworkMap
from tedtrajrec.server.settings import Limits, ServerSettings
from tedtrajrec.trips.match import match
from tedtrajrec.trips.table import Trips
from tedtrajrec.trips.writers import write_trips
from tests.server.running import as_request, client_of, running, until

COLUMNS = ("lon", "lat", "segment", "ratio", "osm_way_id", "observed")


def post(http: httpx.Client, body: dict[str, Any], path: str = "/v1/recover", **options: Any) -> httpx.Response:
    return http.post(path, json=body, **options)


def assert_same(answer: dict[str, Any], recoverer: Recoverer, trips: Trips, **options: Any) -> None:
    """Check that an answer is what the recoverer gives, to the last digit."""
    expected = recoverer.recover_trips(trips, **options)
    assert [trip["traj_id"] for trip in answer["trips"]] == expected.traj_id.tolist()
    for number, trip in enumerate(answer["trips"]):
        rows = slice(expected.offsets[number], expected.offsets[number + 1])
        assert trip["timestamp"] == expected.time[rows].tolist()
        assert trip["break"] == expected.broken[rows].tolist()
        for name in COLUMNS:
            assert trip[name] == getattr(expected, name)[rows].tolist(), name
        probability = [np.nan if p is None else p for p in trip["probability"]]
        np.testing.assert_array_equal(np.float32(probability), expected.probability[rows])
    assert len(answer["rejects"]) == len(expected.rejects)


def test_recover(http: httpx.Client, sparse: Trips, recoverer: Recoverer) -> None:
    trips = sparse.select(np.arange(5))
    answer = post(http, as_request(trips))
    assert answer.status_code == 200
    schemas.RecoverAnswer.model_validate_json(answer.content, strict=True)
    assert_same(answer.json(), recoverer, trips)
    assert any("No model" in note for note in answer.json()["notes"])


@pytest.mark.parametrize("step_s", [1, 15, 40])
def test_another_step(http: httpx.Client, one: Trips, recoverer: Recoverer, step_s: int) -> None:
    assert_same(post(http, as_request(one, step_s=step_s)).json(), recoverer, one, step_s=step_s)


def test_32_clients_get_what_one_would_get(http: httpx.Client, sparse: Trips, recoverer: Recoverer) -> None:
    before = http.get("/metrics").text

    def ask(number: int) -> None:
        with client_of(str(http.base_url)) as client:
            for turn in range(3):
                chosen = sparse.select((np.arange(1 + number % 3) + 7 * number + turn) % len(sparse))
                answer = client.post("/v1/recover", json=as_request(chosen))
                assert answer.status_code == 200
                assert_same(answer.json(), recoverer, chosen)

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(ask, range(32)))
    after = http.get("/metrics").text
    requests, calls = (value(after, name) - value(before, name) for name in (_REQUESTS, _CALLS))
    assert requests == 96
    assert calls < requests  # some were done together


_REQUESTS, _CALLS = "tedtrajrec_batch_requests_sum", "tedtrajrec_batch_requests_count"


def value(metrics: str, name: str) -> float:
    lines = [line for line in metrics.splitlines() if line.startswith(f"{name} ")]
    assert len(lines) == 1
    return float(lines[0].split()[-1])


def test_files_give_the_same_as_json(http: httpx.Client, sparse: Trips, tmp_path: Path) -> None:
    trips = sparse.select(np.arange(3))
    expected = post(http, as_request(trips)).json()
    types = {"csv": "text/csv", "tsv": "text/tab-separated-values", "gpx": "application/gpx+xml"}
    types |= {"csv.gz": "text/csv", "geojson": "application/geo+json"}
    for suffix, media_type in types.items():
        path = tmp_path / f"trips.{suffix}"
        write_trips(trips, path)
        answer = http.post("/v1/recover", content=path.read_bytes(), headers={"Content-Type": media_type})
        assert answer.status_code == 200, (suffix, answer.text)
        assert answer.json() == expected, suffix


def test_answers_in_other_formats(http: httpx.Client, one: Trips) -> None:
    expected = post(http, as_request(one)).json()["trips"][0]
    text = post(http, as_request(one), headers={"Accept": "text/csv"})
    assert text.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(text.text)))
    assert [float(row["lon"]) for row in rows] == expected["lon"]
    assert [int(row["segment"]) for row in rows] == expected["segment"]
    assert text.headers["tedtrajrec-rejects"] == "0"
    geo = post(http, as_request(one), headers={"Accept": "application/geo+json, */*;q=0.1"})
    assert geo.headers["content-type"] == "application/geo+json"
    assert geo.json()["features"][0]["geometry"]["coordinates"][0] == [expected["lon"][0], expected["lat"][0]]
    assert geo.json()["notes"]


def test_extra_columns_stay_with_their_trip(http: httpx.Client, one: Trips, tmp_path: Path) -> None:
    write_trips(one.replace(extra={"driver": np.full(one.n_fixes, 7)}), tmp_path / "t.csv")
    headers = {"Content-Type": "text/csv", "Accept": "text/csv"}
    answer = http.post("/v1/recover", content=(tmp_path / "t.csv").read_bytes(), headers=headers)
    assert {row["driver"] for row in csv.DictReader(io.StringIO(answer.text))} == {"7"}


def test_rejects_say_why_and_do_not_hold_up_the_rest(http: httpx.Client, one: Trips) -> None:
    body = as_request(one)
    far = [{"lon": 0, "lat": 0, "timestamp": 1_500_000_000 + 60 * i} for i in range(2)]
    body["trips"].append({"traj_id": "at sea", "points": far})
    answer = post(http, body).json()
    assert [trip["traj_id"] for trip in answer["trips"]] == one.traj_id.tolist()
    assert {reject["traj_id"] for reject in answer["rejects"]} == {"at sea"}
    assert any("road" in reject["reason"] for reject in answer["rejects"])


def test_unreadable_rows_of_a_file_are_listed(http: httpx.Client, one: Trips, tmp_path: Path) -> None:
    write_trips(one, tmp_path / "t.csv")
    content = (tmp_path / "t.csv").read_text() + "x,noon,10,50\n"
    answer = http.post("/v1/recover", content=content, headers={"Content-Type": "text/csv"})
    assert answer.status_code == 200
    (reject,) = answer.json()["rejects"]
    assert reject["row"] == one.n_fixes + 1
    assert "noon" in reject["reason"]


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        (
            "a,b,lat\n1,2,3\n",
            (
                "No column for traj_id, timestamp and lon; found: a, b, lat. Rename a column to traj_id, a column to "
                "timestamp and a column to lon. For a single vehicle, add a column with one value."
            ),
        ),
        (
            "traj_id,timestamp,lng,longitude,lat\na,1500000000,1,1,3\n",
            "Columns 'lng' and 'longitude' could each be lon. Rename 'lng' to lon.",
        ),
        (
            "traj_id,timestamp,x,y\na,1500000000,30,104\n",
            "Lon and lat look swapped: column 'y' has 104. Rename 'y' to lon and 'x' to lat.",
        ),
        (
            "traj_id,timestamp,lon,lat\na,2013-07-01 10:00:00,1,1\n",
            (
                "'2013-07-01 10:00:00' has no time zone. Give the zone of such times in the address, for example "
                "?timezone=Europe/Lisbon."
            ),
        ),
        ("traj_id,timestamp,lon,lat\na,1500000000,west,1\n", "'west' is not a number. Correct or remove the row."),
        (
            "traj_id,timestamp,lon,lat,segment\na,1500000000,1,1,tram\n",
            (
                "'tram' is not a segment number. A segment is a whole number from 0, or empty; another name keeps the "
                "column as an extra."
            ),
        ),
    ],
)
def test_remedies_are_those_of_a_client(http: httpx.Client, content: str, detail: str) -> None:
    answer = http.post("/v1/recover", content=content, headers={"Content-Type": "text/csv"})
    assert answer.status_code == 422
    assert answer.json()["detail"] == detail


def test_times_as_text(http: httpx.Client, one: Trips) -> None:
    expected = post(http, as_request(one)).json()
    body = as_request(one)
    for point in body["trips"][0]["points"]:
        point["timestamp"] = np.datetime64(point["timestamp"], "s").item().isoformat()
    naive = post(http, body)
    assert naive.status_code == 422
    assert naive.json()["field"] == "trips[0].points[0].timestamp"
    assert post(http, {**body, "timezone": "UTC"}).json() == expected
    for point in body["trips"][0]["points"]:
        point["timestamp"] += ".4Z"
    assert post(http, body).json() == expected


def test_fixes_as_they_were_read(http: httpx.Client, one: Trips) -> None:
    assert post(http, as_request(one)).json().get("fixes") is None
    answer = post(http, as_request(one, fixes=True))
    schemas.RecoverAnswer.model_validate_json(answer.content, strict=True)
    (read,) = answer.json()["fixes"]
    assert (read["lon"], read["timestamp"]) == (one.lon.tolist(), one.time.tolist())


def test_match(http: httpx.Client, sparse: Trips, city: RoadNetwork) -> None:
    trips = sparse.select(np.arange(4))
    answer = post(http, as_request(trips), "/v1/match")
    schemas.MatchAnswer.model_validate_json(answer.content, strict=True)
    expected = match(trips, city)
    found = answer.json()["trips"]
    segments = [s if s is not None else -1 for trip in found for s in trip["segment"]]
    assert segments == expected.segment.tolist()
    routes = [s for trip in found for route in trip["routes"] for s in route["segment"]]
    assert routes == expected.route_segment.tolist()


def test_a_trip_that_cannot_be_matched_is_a_reject(http: httpx.Client, sparse: Trips) -> None:
    body = as_request(sparse.select(np.arange(3)))
    body["trips"][1]["points"].reverse()
    answer = post(http, body, "/v1/match").json()
    assert [trip["traj_id"] for trip in answer["trips"]] == [str(sparse.traj_id[0]), str(sparse.traj_id[2])]
    assert [reject["traj_id"] for reject in answer["rejects"]] == [str(sparse.traj_id[1])]


def test_greedy(http: httpx.Client, one: Trips, network_file: Path) -> None:
    greedy = Recoverer.from_network(network_file, decode="greedy")
    answer = post(http, as_request(one, decode="greedy")).json()
    assert_same(answer, greedy, one)
    assert any("greedily" in note for note in answer["notes"])


def test_alternatives_of_a_method_without(http: httpx.Client, one: Trips) -> None:
    answer = post(http, as_request(one, alternatives=2))
    assert answer.status_code == 422
    assert "alternatives" in answer.json()["detail"]


def test_an_unknown_method_names_the_field(http: httpx.Client, one: Trips) -> None:
    answer = post(http, as_request(one, method="../../etc/passwd"))
    assert answer.status_code == 422
    assert answer.json()["field"] == "method"
    assert "route_hmm" in answer.json()["detail"]


def test_network_by_bbox(http: httpx.Client, city: RoadNetwork) -> None:
    everything = http.get("/v1/network")
    assert everything.headers["content-encoding"] == "gzip"
    schemas.NetworkAnswer.model_validate_json(everything.content, strict=True)
    features = everything.json()["features"]
    assert [feature["properties"]["segment"] for feature in features] == list(range(city.n_segments))
    np.testing.assert_allclose(features[7]["geometry"]["coordinates"], np.column_stack(city.geometry(7)), atol=1e-6)
    plain = http.get("/v1/network", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.json() == everything.json()

    west, south, east, north = city.bbox
    box = (west, south, (west + east) / 2, (south + north) / 2)
    part = http.get("/v1/network", params={"bbox": ",".join(map(str, box))}).json()["features"]
    inside = {
        segment
        for segment in range(city.n_segments)
        for lon, lat in [city.geometry(segment)]
        if ((lon >= box[0]) & (lon <= box[2]) & (lat >= box[1]) & (lat <= box[3])).any()
    }
    found = {feature["properties"]["segment"] for feature in part}
    assert inside <= found
    assert len(found) < city.n_segments / 2
    assert http.get("/v1/network", params={"bbox": "0,0,1,1"}).json()["features"] == []
    whole = http.get("/v1/network", params={"bbox": f"{west},{south},{east},{north}"})
    assert whole.json() == everything.json()


@pytest.mark.parametrize("bbox", ["", "1,2,3", "a,b,c,d", "2,2,1,1", "nan,0,1,1", "0,0,inf,1", "-190,0,0,1"])
def test_a_wrong_bbox_is_named(http: httpx.Client, bbox: str) -> None:
    answer = http.get("/v1/network", params={"bbox": bbox})
    assert answer.status_code == 422
    assert answer.json()["field"] == "bbox"


def test_methods(http: httpx.Client, city: RoadNetwork) -> None:
    answer = schemas.MethodsAnswer.model_validate_json(http.get("/v1/methods").content)
    assert [method.name for method in answer.methods] == ["route_hmm"]
    assert answer.network == city.hash


def test_examples_with_truth(settings: ServerSettings, sparse: Trips, dense: Trips, tmp_path: Path) -> None:
    write_trips(sparse.select(np.arange(3)), tmp_path / "sparse.csv")
    write_trips(dense.select(np.arange(1, 64)), tmp_path / "truth.parquet")
    files = {"examples": tmp_path / "sparse.csv", "truth": tmp_path / "truth.parquet"}
    examples = _read_examples(settings.model_copy(update=files))
    answer = schemas.ExamplesAnswer.model_validate({"examples": examples})
    assert [example.traj_id for example in answer.examples] == sparse.traj_id[:3].tolist()
    assert [example.truth is None for example in answer.examples] == [True, False, False]
    assert answer.examples[1].truth is not None
    rows = slice(dense.offsets[1], dense.offsets[2])
    assert answer.examples[1].truth.segment == dense.segment[rows].tolist()


def test_not_ready_until_loaded(settings: ServerSettings, served: Served, one: Trips) -> None:
    go = threading.Event()

    def load(_: ServerSettings) -> Served:
        assert go.wait(30)
        return served

    with running(settings, load, wait=False) as http:
        for answer in (http.get("/healthz"), post(http, as_request(one)), http.get("/v1/network")):
            assert answer.status_code == 503
            assert answer.headers["content-type"] == "application/problem+json"
            assert int(answer.headers["retry-after"]) > 0
        assert http.get("/docs").status_code == 200
        go.set()
        until(lambda: http.get("/healthz").status_code == 200)
        assert post(http, as_request(one)).status_code == 200


def test_token(settings: ServerSettings, served: Served, one: Trips, tmp_path: Path) -> None:
    secret = "0123456789abcdef0123"
    (tmp_path / "token").write_text(secret + "\n")
    with running(settings.model_copy(update={"token_file": tmp_path / "token"}), lambda _: served) as http:
        for path in ("/v1/methods", "/v1/network", "/v1/examples", "/metrics"):
            answer = http.get(path)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert answer.headers["content-type"] == "application/problem+json"
            assert http.get(path, headers={"Authorization": f"Bearer {secret}"}).status_code == 200
        for header in (f"Bearer {secret[:-1]}", f"Basic {secret}", "Bearer", secret, "Bearer é"):
            sent = {"Authorization": header.encode()}
            assert http.post("/v1/recover", content=b"{}", headers=sent).status_code == 401
        assert post(http, as_request(one), headers={"Authorization": f"bearer {secret}"}).status_code == 200
        assert http.get("/healthz").status_code == 200  # for who watches over the service


def test_limits_of_a_request(settings: ServerSettings, served: Served, sparse: Trips) -> None:
    limits = Limits(points=30, trips=3, steps=2_000, body_bytes=10_000)
    small_map = dataclasses.replace(served, map=NetworkMap(served.network, None, most=100))
    with running(settings.model_copy(update={"limits": limits}), lambda _: small_map) as http:
        few = sparse.select(np.flatnonzero(sparse.lengths < 8)[:2])
        assert post(http, as_request(few)).status_code == 200
        long = np.argsort(sparse.lengths)[-3:]
        assert "points" in too_large(post(http, as_request(sparse.select(long))))
        tiny = as_request(few.select(np.arange(1)))["trips"][0]
        tiny["points"] = tiny["points"][:2]
        assert "trips" in too_large(post(http, {"trips": [tiny] * 4}))
        assert "steps" in too_large(post(http, as_request(few, step_s=1, alternatives=10)))
        assert "bytes" in too_large(post(http, {"trips": [tiny] * 100}))
        assert "segments" in too_large(http.get("/v1/network"))


def too_large(answer: httpx.Response) -> str:
    assert answer.status_code == 413, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    return str(answer.json()["detail"])


def test_headers_protect_the_browser(http: httpx.Client) -> None:
    for path in ("/healthz", "/v1/methods", "/nothing", "/docs", "/openapi.json"):
        headers = http.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "server" not in headers


def test_page(http: httpx.Client) -> None:
    page = http.get("/")
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "connect-src 'self'" in policy
    for name in re.findall(r'(?:src|href)="(static/[^"]+)"', page.text):
        file = http.get(f"/{name}")
        assert file.status_code == 200, name
        assert file.headers["content-type"].split(";")[0] in {"text/javascript", "application/javascript", "text/css"}


def test_other_names_of_this_machine_are_not_answered(http: httpx.Client) -> None:
    answer = http.get("/v1/methods", headers={"Host": "evil.example"})
    assert answer.status_code == 403
    assert answer.headers["content-type"] == "application/problem+json"
    assert http.get("/healthz", headers={"Host": "localhost:1"}).status_code == 200
