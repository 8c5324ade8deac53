"""The description that the server gives of itself."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from scripted_editor import ScriptedEditor
from server_harness import in_process

from lookahead_edit.server.errors import KINDS

PAGE = Path(__file__).parents[1] / "docs/api.md"
KEYLESS = ("/health", "/metrics")


@pytest.fixture(scope="module")
def description():
    with in_process(ScriptedEditor()) as client:
        return client.get("/openapi.json").json()


def operations(description):
    return {
        f"{method} {path}": operation
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    }


def test_every_reference_leads_to_a_schema(description):
    references = set(re.findall(r'"\$ref": "([^"]+)"', json.dumps(description)))
    assert len(references) > 20
    assert references <= {f"#/components/schemas/{name}" for name in description["components"]["schemas"]}


def test_every_route_has_a_name_of_its_own_and_tells_its_errors(description):
    found = operations(description)
    assert {"post /v1/edits", "post /v1/chat/completions", "post /v1/completions"} <= set(found)
    names = [operation["operationId"] for operation in found.values()]
    assert len(set(names)) == len(names)
    known = {str(kind.status) for kind in KINDS.values()}
    for name, operation in found.items():
        statuses = set(operation["responses"])
        assert {"200", "401", "403", "500", "default"} <= statuses, name
        assert statuses <= known | {"200", "default"}, name


@pytest.mark.parametrize("path", ["/v1/edits", "/v1/chat/completions", "/v1/completions"])
def test_routes_that_generate_tell_body_answer_and_events(description, path):
    operation = description["paths"][path]["post"]
    assert "$ref" in operation["requestBody"]["content"]["application/json"]["schema"]
    content = operation["responses"]["200"]["content"]
    assert "$ref" in content["application/json"]["schema"]
    assert content["text/event-stream"]["schema"]["x-events"]


@pytest.mark.parametrize("body", ["EditBody", "ChatBody", "CompletionBody"])
def test_page_about_the_api_names_every_field(description, body):
    named = set(re.findall(r"\w+", PAGE.read_text(encoding="utf-8")))
    assert set(description["components"]["schemas"][body]["properties"]) <= named


@pytest.mark.parametrize("code", sorted(KINDS))
def test_page_about_the_api_names_every_error(code):
    assert f"`{code}`" in PAGE.read_text(encoding="utf-8")


def test_without_a_key_none_is_described(description):
    assert "security" not in description
    assert "securitySchemes" not in description["components"]


def test_with_a_key_each_header_that_takes_it_is_described():
    with in_process(ScriptedEditor(), api_key="secret") as client:
        description = client.get("/openapi.json", headers={"api-key": "secret"}).json()
    schemes = description["components"]["securitySchemes"]
    assert {name for scheme in description["security"] for name in scheme} == set(schemes)
    assert set(schemes) == {"bearer", "x-api-key", "api-key"}
    for path in KEYLESS:
        assert description["paths"][path]["get"]["security"] == []
    assert "security" not in description["paths"]["/v1/edits"]["post"]
