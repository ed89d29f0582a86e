"""The description of the interface is complete, and the service keeps to it whatever is sent."""

from __future__ import annotations

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import checks

from tedtrajrec.server.problems import KINDS

CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
]


def test_every_status_is_described(http: httpx.Client) -> None:
    description = http.get("/openapi.json").json()
    assert set(description["paths"]) == {
        "/v1/recover", "/v1/match", "/v1/network", "/v1/methods", "/v1/examples", "/healthz", "/metrics",
    }  # fmt: skip
    trips = {"200", "401", "403", "408", "413", "415", "422", "429", "500", "503"}
    assert set(description["paths"]["/v1/recover"]["post"]["responses"]) == trips
    assert set(description["paths"]["/v1/match"]["post"]["responses"]) == trips
    for path in description["paths"].values():
        for operation in path.values():
            for status, answer in operation["responses"].items():
                if status != "200":
                    assert list(answer["content"]) == ["application/problem+json"]


def test_docs_list_all_addresses_and_problems(http: httpx.Client) -> None:
    page = http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "<script" not in page.text
    for word in (*KINDS, "/v1/recover", "/v1/network", "RecoverRequest"):
        assert word in page.text


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
def test_the_service_keeps_to_its_description(http: httpx.Client, mode: schemathesis.GenerationMode) -> None:
    schema = schemathesis.openapi.from_dict(http.get("/openapi.json").json())
    seen: dict[str, set[int]] = {}
    for result in schema.get_all_operations():
        operation = result.ok()
        if mode is schemathesis.GenerationMode.NEGATIVE and not (operation.body or operation.query):
            continue  # there is nothing to get wrong
        check_operation(operation, mode, str(http.base_url), seen.setdefault(operation.path, set()))
    assert (200 if mode is schemathesis.GenerationMode.POSITIVE else 422) in seen["/v1/match"]


def check_operation(
    operation: schemathesis.APIOperation, mode: schemathesis.GenerationMode, url: str, seen: set[int]
) -> None:
    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True)
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: schemathesis.Case) -> None:
        answer = case.call(base_url=url)
        seen.add(answer.status_code)
        case.validate_response(answer, checks=CHECKS)

    check()
