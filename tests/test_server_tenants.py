"""What clients can't learn of each other: drafts, caches, logs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from logged_editor import logged_editor
from scripted_editor import ScriptedEditor
from server_harness import events, in_process
from starlette.testclient import TestClient
from tiny_models import SHAPE
from tiny_tokenizers import byte_level_tokenizer

from lookahead_edit.drafters.edit import workspace_cache
from lookahead_edit.editor import Editor
from lookahead_edit.targets.hf import HfTarget
from lookahead_edit.tokenizer import HfTokenizer

SECRET = "def launch_codes():\n    return [4711, 815, 31337, 90210, 65536, 27182]\n"
OWN = "value = 1\n"


def as_client(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}"}


# Drafts.


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("given_as", ["input", "prediction", "context"])
def test_one_tenants_text_is_never_a_draft_source_for_another(given_as: str, stream: bool) -> None:
    """The model writes the first client's secret for the second one, too: nobody drafts it for them.

    Round for round the second client is served as on a server that never saw the first.
    """
    fields: dict[str, Any] = {
        "input": {"input": SECRET},
        "prediction": {"input": OWN, "prediction": SECRET},
        "context": {"input": OWN, "context": [{"path": "codes.py", "text": SECRET}]},
    }[given_as]
    served = []
    for is_first_there in (True, False):
        workspace_cache.cache_clear()
        with in_process(logged_editor(SECRET + "```")) as client:
            if is_first_there:
                first = client.post("/v1/edits", json={"instruction": "Go.", **fields}, headers=as_client("first"))
                assert figures(first.json())["num_accepted_draft_tokens"] > 40  # it has drafts of its own text
            body = {"instruction": "Go.", "input": OWN, "stream": stream}
            response = client.post("/v1/edits", json=body, headers=as_client("second"))
            answer = events(response.text)[-1] if stream else response.json()
        assert answer["choices"][0]["text"] == SECRET
        served.append(answer)
    for name in ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens", "tokens_per_forward"):
        assert figures(served[0])[name] == figures(served[1])[name]
    assert figures(served[0])["drafts_by_source"] == figures(served[1])["drafts_by_source"]
    assert figures(served[0])["tokens_per_forward"] < 3


def figures(answer: Any) -> Any:
    return answer["metrics"]["speculative_decoding"]


def test_the_shared_index_of_files_is_found_only_by_who_sends_the_very_same_files() -> None:
    """It is kept by its whole content, so that it tells nothing that wasn't known already."""
    workspace_cache.cache_clear()
    with in_process(logged_editor(SECRET + "```")) as client:
        for name, path, text in (
            ("first", "codes.py", SECRET),
            ("second", "codes.py", SECRET[:-1]),
            ("second", "other.py", SECRET),
            ("second", "codes.py", SECRET),
        ):
            body = {"instruction": "Go.", "input": OWN, "context": [{"path": path, "text": text}]}
            assert client.post("/v1/edits", json=body, headers=as_client(name)).status_code == 200
        assert len(workspace_cache()) == 3


# Caches of prompts.


@pytest.fixture(scope="module")
def editor() -> Editor:
    import transformers as hf

    torch.manual_seed(0)
    config = hf.LlamaConfig(**(SHAPE | {"vocab_size": 300, "pad_token_id": None}), max_position_embeddings=2048)
    model = hf.LlamaForCausalLM(config)
    torch.nn.init.normal_(model.get_output_embeddings().weight, std=1.0)
    model.generation_config = hf.GenerationConfig(bos_token_id=1, pad_token_id=0)
    return Editor(HfTarget(model.eval()), HfTokenizer(byte_level_tokenizer()))


@pytest.fixture
def client(editor: Editor) -> Iterator[TestClient]:
    assert isinstance(editor.target, HfTarget)
    editor.target.prefix_cache.clear()
    with in_process(editor) as client:
        yield client


def num_cached(client: TestClient, name: str, session: str | None = None, text: str = SECRET * 4) -> int:
    body = {"input": text, "instruction": "Do it.", "max_tokens": 12, "session": session}
    answer = client.post("/v1/edits", json=body, headers=as_client(name)).json()
    cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert answer["timings"]["cache_n"] == cached
    assert answer["timings"]["prompt_n"] == answer["usage"]["prompt_tokens"] - cached
    return int(cached)


def test_the_second_edit_of_a_file_skips_what_was_read_and_says_so(client: TestClient) -> None:
    assert num_cached(client, "a", "tab") == 0
    assert num_cached(client, "a", "tab") > 100
    changed = SECRET * 3 + SECRET.replace("31337", "31338")
    assert num_cached(client, "a", "tab", changed) > 100


def test_nobody_finds_what_another_client_or_session_left(client: TestClient) -> None:
    assert num_cached(client, "a") == 0
    assert num_cached(client, "a", "tab") == 0
    assert num_cached(client, "a", "other tab") == 0
    assert num_cached(client, "b") == 0
    assert num_cached(client, "b", "tab") == 0
    assert num_cached(client, "a") > 100


def test_a_text_found_in_a_cache_is_answered_with_the_same_text(client: TestClient) -> None:
    body = {"input": SECRET * 4, "instruction": "Do it.", "max_tokens": 40, "session": "tab"}
    answers = [client.post("/v1/edits", json=body).json() for _ in range(3)]
    assert len({answer["choices"][0]["text"] for answer in answers}) == 1
    cached = [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers]
    assert cached[0] == 0
    assert cached[1] > 100


# Logs.

CANARY = "canary_4711"
KEY = "key_0815"
PATHS = {
    "/v1/edits": {"input": CANARY},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": CANARY}]},
    "/v1/completions": {"prompt": CANARY},
}


def test_neither_texts_nor_keys_are_ever_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Over everything that can happen to a request, at the most talkative level."""
    caplog.set_level(logging.DEBUG)
    headers = {"authorization": f"Bearer {KEY}", "x-request-id": "request-1"}
    scripts = ["go", "fail", "empty", "crash", "length", "hold"]
    with in_process(ScriptedEditor(), api_key=KEY, max_queued_requests=0) as client:
        for path, fields in PATHS.items():
            for script in scripts:
                words = f"{script} {CANARY}"
                asked = {**fields, "instruction": words} if path == "/v1/edits" else dict(fields)
                if path == "/v1/completions":
                    asked["prompt"] = words
                if path == "/v1/chat/completions":
                    asked["messages"] = [{"role": "user", "content": words}]
                for stream in (False, True):
                    body = {**asked, "stream": stream, "session": CANARY, "timeout_ms": 200, "user": CANARY}
                    client.post(path, json=body, headers=headers)
            for bad in ({"model": CANARY}, {"speculation": {"drafter": CANARY}}, {"max_tokens": CANARY}, {CANARY: 1}):
                client.post(path, json={**fields, "instruction": "go", **bad}, headers=headers)
            client.post(path, content=f'{{"{CANARY}'.encode(), headers={**headers, "content-type": "application/json"})
            client.post(path, json=fields, headers={"x-api-key": f"wrong {KEY}"})
            client.post(path, json=fields, headers={**headers, "x-lookahead-route": CANARY})
            client.post(f"{path}/{CANARY}", json=fields, headers=headers)
    logged = [
        record.getMessage() for record in caplog.records if not record.name.startswith("http")
    ]  # not the client's
    assert any(line.startswith("request request-1 failed: ") for line in logged)
    assert CANARY not in "".join(logged)
    assert KEY not in "".join(logged)


def test_a_model_that_cannot_be_loaded_says_why_without_a_clients_help(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> Editor:
        raise RuntimeError("the weights are broken")

    from lookahead_edit.config import ServerConfig
    from lookahead_edit.server import create_app

    with TestClient(create_app(fail, ServerConfig()), base_url="http://127.0.0.1:8000") as client:
        for _ in range(500):
            error = client.get("/health").json()["error"]
            if "could not be loaded" in error["message"]:
                break
        assert (error["code"], "the weights are broken" in error["message"]) == ("model_loading", True)
    assert "the weights are broken" in caplog.text
