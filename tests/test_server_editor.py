"""The server with the real editor: on a recorded output, and once with the default model."""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from server_harness import events, in_process, on_socket, raw_post, wait_until

from lookahead_edit.editor import Editor
from lookahead_edit.targets.recorded import RecordedTarget
from lookahead_edit.text_lines import range_to_offsets
from lookahead_edit.tokenizer import ByteTokenizer

BEFORE = "\ufeffalpha = 1\r\nkept\nbeta = '\U0001f600'; gamma = 3\r\nlast"
AFTER = "\ufeffalpha = 2\r\nkept\nbeta = '\U0001f600'; delta = 4\r\nnew\r\nlast"


def recorded(answer, *, max_context_tokens=4096):
    """An editor whose model has always one answer."""
    tokenizer = ByteTokenizer()
    tokens = tokenizer.encode(answer)
    (end_token_id,) = tokenizer.eos_token_ids
    target = RecordedTarget(lambda prompt: tokens, end_token_id=end_token_id, max_context_tokens=max_context_tokens)
    return Editor(target, tokenizer, model_name="recorded")


@pytest.fixture
def client():
    answer = AFTER.lstrip("\ufeff").replace("\r\n", "\n") + "\n```"
    with in_process(recorded(answer)) as client:
        yield client


def apply(edits, text, encoding):
    for edit in reversed(edits):
        start, end = range_to_offsets(text, edit["range"], encoding)
        text = text[:start] + edit["newText"] + text[end:]
    return text


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8", "utf-32"])
def test_edits_applied_to_the_input_give_the_text(client, encoding):
    body = {"input": BEFORE, "instruction": "Change it.", "position_encoding": encoding}
    answer = client.post("/v1/edits", json=body).json()
    (choice,) = answer["choices"]
    assert choice["text"] == AFTER
    assert choice["finish_reason"] == "stop"
    assert len(choice["edits"]) > 1
    assert apply(choice["edits"], BEFORE, encoding) == AFTER
    assert answer["edit"]["eol"] == "\r\n"
    assert answer["edit"]["final_newline"] is False
    assert answer["usage"]["prompt_tokens"] > len(BEFORE)
    assert answer["metrics"]["speculative_decoding"]["tokens_per_forward"] > 2


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_applies_the_diff(client, tmp_path):
    body = {"input": BEFORE, "instruction": "Change it.", "output": ["diff"], "path": "src/a b.py"}
    diff = client.post("/v1/edits", json=body).json()["choices"][0]["diff"]
    file = tmp_path / "src/a b.py"
    file.parent.mkdir()
    file.write_bytes(BEFORE.encode())
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=diff.encode(), check=True)
    assert file.read_bytes() == AFTER.encode()


def test_stream_tells_the_same_as_the_plain_answer(client):
    body = {"input": BEFORE, "instruction": "Change it."}
    plain = client.post("/v1/edits", json=body).json()
    _, *deltas, completed = events(client.post("/v1/edits", json={**body, "stream": True}).text)
    assert completed["choices"] == plain["choices"]
    assert completed["usage"] == plain["usage"]
    text = "".join(delta["text"] for delta in deltas)
    assert text.rstrip("\n") == AFTER.lstrip("\ufeff").replace("\r\n", "\n")
    assert [delta["offset"] for delta in deltas] == [
        sum(len(before["text"]) for before in deltas[:number]) for number in range(len(deltas))
    ]


def test_speculation_on_or_off_is_the_same_text(client):
    bodies = [{"input": BEFORE, "instruction": "Change it.", "speculation": {"enabled": on}} for on in (True, False)]
    on, off = (client.post("/v1/edits", json=body).json() for body in bodies)
    assert on["choices"] == off["choices"]
    assert off["metrics"]["speculative_decoding"]["tokens_per_forward"] == 1
    assert off["metrics"]["speculative_decoding"]["mean_acceptance_length"] is None


def test_only_the_range_is_rewritten():
    text = "keep\r\nold\r\nkeep, too\n"
    middle = {"start": {"line": 1, "character": 0}, "end": {"line": 2, "character": 0}}
    with in_process(recorded("new\nnewer\n```")) as client:
        answer = client.post("/v1/edits", json={"input": text, "instruction": "Change it.", "range": middle}).json()
    assert answer["choices"][0]["text"] == "keep\r\nnew\r\nnewer\r\nkeep, too\n"


def test_max_tokens_cuts_the_answer_off(client):
    body = {"input": BEFORE, "instruction": "Change it.", "max_tokens": 5, "output": ["text", "edits", "diff"]}
    answer = client.post("/v1/edits", json=body).json()
    choice = answer["choices"][0]
    assert (choice["finish_reason"], choice["edits"], choice["diff"]) == ("length", None, None)
    assert answer["edit"]["truncated"] is True
    assert answer["usage"]["completion_tokens"] == 5


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"instruction": "  "}, "missing_field"),
        ({"language": "two words"}, "invalid_value"),
        ({"input": "x" * 9000}, "context_length_exceeded"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_the_editor_refuses_is_refused_before_it_runs(client, fields, code, stream):
    body = {"input": "a", "instruction": "go", "stream": stream, **fields}
    response = client.post("/v1/edits", json=body)
    assert (response.status_code, response.json()["error"]["code"]) == (400, code)


@pytest.mark.slow
def test_default_model_edits_over_a_socket():
    from lookahead_edit.targets.loading import load_editor

    editor = load_editor(None)
    text = "def total(prices):\n    result = 0\n    for price in prices:\n        result += price\n    return result\n"
    body = {"input": text, "instruction": "Rename result to amount.", "path": "shop.py"}
    with on_socket(editor) as client:
        client.timeout = 120.0
        answer = client.post("/v1/edits", json=body).json()
        choice = answer["choices"][0]
        assert choice["finish_reason"] == "stop"
        assert apply(choice["edits"], text, "utf-16") == choice["text"]
        assert "amount" in choice["text"]
        assert answer["metrics"]["speculative_decoding"]["tokens_per_forward"] > 2
        completed = events(client.post("/v1/edits", json={**body, "stream": True}).text)[-1]
        assert completed["choices"][0]["text"] == choice["text"]
        # A client that leaves while its long prompt is read.
        connection = raw_post(client, {**body, "input": text * 40})
        wait_until(lambda: "num_requests_running 1" in client.get("/metrics").text)
        connection.close()
        wait_until(lambda: "num_requests_running 0" in client.get("/metrics").text, seconds=30)
        assert client.post("/v1/edits", json=body).json()["choices"][0]["text"] == choice["text"]


@pytest.mark.slow
def test_default_model_serves_eight_edits_at_once_as_it_does_one_by_one():
    from lookahead_edit.targets.loading import load_editor

    texts = [f"def add_{name}(first, second):\n    {name} = first + second\n    return {name}\n" for name in "abcd"]
    bodies = [
        {"input": text, "instruction": f"Rename first to {word}.", "path": "add.py", "max_tokens": 16, "seed": 1}
        for text in texts
        for word in ("left", "number")
    ]
    bodies[3]["speculation"] = {"enabled": False}
    bodies[5]["temperature"] = 0.7
    bodies[6]["speculation"] = {"max_draft": 3}
    with on_socket(load_editor(None), max_batch_size=8) as client, ThreadPoolExecutor(8) as pool:
        client.timeout = 600.0

        def ask(body):
            answer = client.post("/v1/edits", json=body).json()
            return answer["choices"][0]["text"], answer["choices"][0]["finish_reason"]

        one_by_one = [ask(body) for body in bodies]
        assert list(pool.map(ask, bodies)) == one_by_one
