"""Addresses, headers, keys, hosts and origins; health, models, version, the API's description."""

from __future__ import annotations

import pytest
from scripted_editor import MODEL_NAME, ScriptedEditor
from server_harness import BASE_URL, in_process
from starlette.testclient import TestClient

import lookahead_edit
from lookahead_edit.config import ServerConfig
from lookahead_edit.server import create_app
from lookahead_edit.server.middleware import canonical_path, is_loopback
from lookahead_edit.types import EngineUnavailable, ModelUnavailable

EDIT = {"input": "a", "instruction": "go"}


@pytest.fixture(scope="module")
def client():
    with in_process(ScriptedEditor()) as client:
        yield client


@pytest.mark.parametrize("path", ["/v1/edits", "/edits", "/v1/edits/", "/edits/", "/v1//edits", "//edits//"])
def test_path_may_lack_the_version_and_end_in_slashes(client, path):
    assert client.post(BASE_URL + path, json=EDIT).status_code == 200


@pytest.mark.parametrize(
    "path", ["/health", "/health/", "/v1/health", "/version", "/v1/version/", "/metrics", "/models"]
)
def test_service_paths_have_the_same_spellings(client, path):
    assert client.get(path).status_code == 200


@pytest.mark.parametrize(
    ("path", "canonical"),
    [
        ("/", "/"),
        ("", "/"),
        ("/v1", "/v1"),
        ("/v1/", "/v1"),
        ("/v1x", "/v1/v1x"),
        ("/models/a/b", "/v1/models/a/b"),
        ("/v1/openapi.json", "/openapi.json"),
    ],
)
def test_canonical_path(path, canonical):
    assert canonical_path(path) == canonical


def test_health_version_and_models(client):
    assert client.get("/health").json() == {"status": "ok", "model": MODEL_NAME}
    assert client.get("/version").json() == {"version": lookahead_edit.__version__}
    listed = client.get("/v1/models").json()
    assert listed["object"] == "list"
    (card,) = listed["data"]
    assert (card["id"], card["object"], card["max_model_len"]) == (MODEL_NAME, "model", 4096)
    assert client.get(f"/v1/models/{MODEL_NAME}").json() == card


def test_model_names_may_hold_slashes():
    editor = ScriptedEditor()
    editor.model_name = "owner/name"
    with in_process(editor) as client:
        assert client.get("/v1/models/owner/name").json()["id"] == "owner/name"
        assert client.get("/v1/models/owner%2Fname/").json()["id"] == "owner/name"


def test_metrics_are_prometheus_text(client):
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    assert "# TYPE lookahead:e2e_request_latency_seconds histogram" in response.text


@pytest.mark.parametrize("wanted", ["a", "A-b_c.9", "x" * 128])
def test_request_id_is_echoed(client, wanted):
    assert client.get("/health", headers={"x-request-id": wanted}).headers["x-request-id"] == wanted


@pytest.mark.parametrize("wanted", ["", "a b", "x" * 129, "a/b", "\xe9"])
def test_unfit_request_id_is_replaced(client, wanted):
    headers = {"x-request-id": wanted.encode("latin-1")}
    got = [client.get("/health", headers=headers).headers["x-request-id"] for _ in range(2)]
    assert wanted not in got
    assert got[0] != got[1]


def test_health_is_bad_where_the_engine_behind_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> None:
        raise EngineUnavailable("the engine at http://vllm:8000 can't be reached")

    editor = ScriptedEditor()
    with in_process(editor) as client:
        assert client.get("/health").status_code == 200
        monkeypatch.setattr(editor, "check_health", gone)
        response = client.get("/health")
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "model_loading"


@pytest.mark.parametrize("path", ["/health", "/nothing", "/v1/edits"])
def test_every_answer_has_id_and_time(client, path):
    headers = client.get(path).headers
    assert headers["x-request-id"]
    assert int(headers["openai-processing-ms"]) >= 0


KEY = "s3cret-é"


@pytest.fixture(scope="module")
def locked():
    with in_process(ScriptedEditor(), api_key=KEY) as client:
        yield client


@pytest.mark.parametrize(
    ("name", "value"),
    [("Authorization", f"Bearer {KEY}"), ("authorization", f"bearer  {KEY}"), ("x-api-key", KEY), ("api-key", KEY)],
)
def test_key_is_taken_from_three_headers(locked, name, value):
    assert locked.get("/v1/models", headers={name: value.encode()}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Basic s3cret"},
        {"x-api-key": "s3cret"},
        {"api-key": ""},
    ],
)
@pytest.mark.parametrize("path", ["/v1/models", "/version", "/openapi.json", "/nothing"])
def test_wrong_key_is_a_401(locked, headers, path):
    response = locked.get(path, headers=headers)
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert response.headers["www-authenticate"] == "Bearer"
    assert "s3cret" not in response.text


def test_post_without_the_key_is_a_401(locked):
    assert locked.post("/v1/edits", json=EDIT).status_code == 401
    assert locked.post("/v1/requests/x/cancel").status_code == 401


@pytest.mark.parametrize("path", ["/health", "/v1/health/", "/metrics"])
def test_health_and_metrics_stay_open(locked, path):
    assert locked.get(path).status_code == 200


def test_without_a_key_any_key_passes(client):
    assert client.get("/v1/models", headers={"authorization": "Bearer anything"}).status_code == 200


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:99", "127.0.0.1:1", "[::1]:8000", "127.9.9.9", "a.localhost."]
)
def test_hosts_that_mean_this_machine(client, host):
    assert client.get("/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1:8000", "localhost.evil", "[::2]", ""]
)
@pytest.mark.parametrize("path", ["/health", "/v1/models"])
def test_other_hosts_are_refused_on_loopback(client, host, path):
    response = client.get(path, headers={"host": host})
    assert response.status_code == 403
    assert response.json()["error"]["code"] == "host_not_allowed"


def test_hosts_are_free_where_the_server_is_public():
    with in_process(ScriptedEditor(), host="0.0.0.0") as client:
        assert client.get("/health", headers={"host": "edits.example"}).status_code == 200
        # Not even one that is no name at all does harm.
        assert client.get("/nothing", headers={"host": "["}).status_code == 404


def test_is_loopback():
    assert all(map(is_loopback, ["127.0.0.1", "127.1.2.3", "::1", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "192.168.0.1", "example"]))


ORIGIN = "http://editor.example"
PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}


@pytest.fixture(scope="module")
def shared():
    with in_process(ScriptedEditor(), cors_origins=(ORIGIN,), api_key="k") as client:
        yield client


def test_cors_is_off_by_default(client):
    assert "access-control-allow-origin" not in client.get("/health", headers={"origin": ORIGIN}).headers
    assert client.options("/v1/edits", headers={"origin": ORIGIN, **PREFLIGHT}).status_code == 405


def test_named_origin_may_ask_before_it_has_a_key(shared):
    response = shared.options("/v1/edits", headers={"origin": ORIGIN, **PREFLIGHT})
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == ORIGIN


def test_errors_can_be_read_by_the_named_origin(shared):
    response = shared.get("/v1/models", headers={"origin": ORIGIN})
    assert response.status_code == 401
    assert response.headers["access-control-allow-origin"] == ORIGIN
    assert "x-request-id" in response.headers["access-control-expose-headers"]


def test_other_origins_get_no_permission(shared):
    response = shared.options("/v1/edits", headers={"origin": "http://evil.example", **PREFLIGHT})
    assert response.status_code == 400
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert "access-control-allow-origin" not in response.headers
    assert "access-control-allow-origin" not in shared.get("/health", headers={"origin": "http://evil.example"}).headers


def test_description_lists_the_routes_with_their_models(client):
    description = client.get("/openapi.json").json()
    assert set(description["paths"]) == {
        "/",
        "/health",
        "/version",
        "/metrics",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/edits",
        "/v1/models",
        "/v1/models/{model_id}",
        "/v1/requests/{request_id}/cancel",
        "/v1/stats",
    }
    edits = description["paths"]["/v1/edits"]["post"]
    assert edits["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/EditBody"}
    assert set(edits["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}
    schemas = description["components"]["schemas"]
    assert set(schemas["EditBody"]["required"]) == {"input"}
    for operations in description["paths"].values():
        for operation in operations.values():
            assert "422" not in operation["responses"]
            assert {"401", "403", "500"} <= set(operation["responses"])


def test_description_has_no_dangling_references(client):
    description = client.get("/openapi.json")
    schemas = description.json()["components"]["schemas"]
    for piece in description.text.split('"$ref":"#/components/schemas/')[1:]:
        assert piece.partition('"')[0] in schemas
    assert "#/$defs" not in description.text


def test_no_work_is_taken_while_the_model_loads():
    import threading

    ready = threading.Event()

    def load():
        ready.wait(5)
        return ScriptedEditor()

    app = create_app(load, ServerConfig())
    with TestClient(app, base_url=BASE_URL) as client:
        for response in (client.get("/health"), client.get("/v1/models"), client.post("/v1/edits", json=EDIT)):
            assert response.status_code == 503
            assert response.json()["error"]["code"] == "model_loading"
            assert int(response.headers["retry-after"]) > 0
        assert client.get("/version").status_code == 200
        assert client.get("/metrics").status_code == 200
        ready.set()
        while client.get("/health").status_code != 200:
            pass
        assert client.post("/v1/edits", json=EDIT).status_code == 200


def test_model_that_cannot_be_loaded_is_told_by_health():
    def load():
        raise ModelUnavailable("no such model: nowhere")

    app = create_app(load, ServerConfig())
    with TestClient(app, base_url=BASE_URL) as client:
        while "no such model" not in (response := client.get("/health")).text:
            pass
        assert response.status_code == 503
