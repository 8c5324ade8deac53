"""`trace_log`: what was asked and answered can be replayed, and nothing is written unless asked for."""

from __future__ import annotations

import logging
import stat
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from server_harness import in_process, wait_until
from tiny_tokenizers import byte_level_tokenizer

from lookahead_edit.config import RouteConfig, ServerConfig, SpeculationConfig
from lookahead_edit.editor import Editor, EditRequest
from lookahead_edit.engine import Engine
from lookahead_edit.replay_tokens import tokenize_trace
from lookahead_edit.server import create_app
from lookahead_edit.server.trace_log import TraceLog
from lookahead_edit.speculation import make_policy
from lookahead_edit.targets.recorded import RecordedTarget
from lookahead_edit.tokenizer import ByteTokenizer, HfTokenizer
from lookahead_edit.traces import Trace, read_traces
from lookahead_edit.types import InvalidInput, SourceKind, Tokenizer

TEXT = "total = 1\nprint(total)\n"
EDITED = "price = 1\nprint(price)\n"


def editor_with(tokenizer: Tokenizer) -> Editor:
    answer = tokenizer.encode(f"{EDITED}```\n", parse_special=False)
    return Editor(RecordedTarget(lambda prompt: answer, end_token_id=min(tokenizer.eos_token_ids)), tokenizer)


def traces_in(path: Path) -> list[Trace]:
    with path.open("rb") as file:
        return [trace for _, trace in read_traces(file)]


def logged(path: Path, number: int) -> list[Trace]:
    """They are written after the answer has gone out."""
    wait_until(lambda: path.read_bytes().count(b"\n") == number)
    return traces_in(path)


@pytest.mark.parametrize("make", [ByteTokenizer, lambda: HfTokenizer(byte_level_tokenizer())])
def test_an_edit_is_replayed_as_it_was_served(tmp_path: Path, make: Any) -> None:
    tokenizer, path = make(), tmp_path / "traces.jsonl"
    editor = editor_with(tokenizer)
    body = {
        "input": TEXT,
        "instruction": "Rename <|im_end|> total to price: é→😀.",
        "context": [{"path": "other.py", "text": "price = 2\n"}],
        "prediction": {"type": "content", "content": EDITED},
    }
    with in_process(editor, trace_log=str(path)) as client:
        assert client.post("/v1/edits", json=body).status_code == 200
        answer = client.post("/v1/edits", json={**body, "stream": True})
        assert answer.status_code == 200
        first, second = logged(path, 2)
    assert first.id != second.id
    assert first.source == TEXT
    assert first.output == f"{EDITED}```\n"
    assert [(file.path, file.text) for file in first.context] == [("other.py", "price = 2\n")]
    assert first.prediction == EDITED
    kinds = [source.kind for source in tokenize_trace(first, tokenizer).sources]
    assert kinds == [SourceKind.FILE, SourceKind.PREDICTION, SourceKind.CONTEXT]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    plain = {**body, "instruction": "Rename total to price."}
    request = EditRequest(TEXT, instruction=plain["instruction"])
    with in_process(editor, trace_log=str(path)) as client:
        assert client.post("/v1/edits", json=plain).status_code == 200
        trace = tokenize_trace(logged(path, 3)[2], tokenizer)
    prompt = editor.prompt(request)
    assert np.array_equal(trace.prompt, prompt.tokens)
    assert trace.sources[0].prompt_start == prompt.sources[0].prompt_start
    assert np.array_equal(trace.sources[0].tokens, prompt.sources[0].tokens)


def test_chats_and_completions_are_logged_too_and_cancelled_ones_are_not(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    with in_process(editor_with(ByteTokenizer()), trace_log=str(path)) as client:
        messages = [{"role": "user", "content": "hello"}]
        client.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 5, "prediction": None})
        client.post("/v1/completions", json={"prompt": "once", "max_tokens": 5})
        client.post("/v1/edits", json={"input": TEXT, "instruction": "x", "timeout_ms": 0.001})
        chat, completion = logged(path, 2)
    assert "hello" in chat.prompt
    assert "<|im_start|>" in chat.prompt
    assert (chat.output, chat.source) == (EDITED[:5], None)
    assert (completion.prompt, completion.output) == ("once", EDITED[:5])


def test_nothing_is_written_unless_a_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with in_process(editor_with(ByteTokenizer())) as client:
        assert client.post("/v1/edits", json={"input": TEXT, "instruction": "x"}).status_code == 200
        time.sleep(0.05)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "no/such/folder/traces.jsonl", "a\0b"])
def test_a_file_that_cannot_be_opened_is_told_before_anything_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match="can't write"):
        create_app(lambda: editor_with(ByteTokenizer()), ServerConfig(trace_log=name))


def test_a_configuration_that_cannot_be_served_makes_no_file(tmp_path: Path) -> None:
    config = ServerConfig(trace_log=str(tmp_path / "traces.jsonl"), routes=(RouteConfig("lost", paths=("/nowhere",)),))
    with pytest.raises(InvalidInput, match="route lost"):
        create_app(lambda: editor_with(ByteTokenizer()), config)
    assert list(tmp_path.iterdir()) == []


def test_a_full_log_ends_with_one_line_and_requests_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "traces.jsonl"
    body = {"input": TEXT, "instruction": "secret words"}
    with (
        caplog.at_level(logging.WARNING),
        in_process(editor_with(ByteTokenizer()), trace_log=str(path), max_trace_log_bytes=1500) as client,
    ):
        for _ in range(6):
            assert client.post("/v1/edits", json=body).status_code == 200
        wait_until(lambda: "no more traces" in caplog.text)
    assert 0 < path.stat().st_size <= 1500
    assert caplog.text.count("no more traces") == 1
    assert "secret words" not in caplog.text
    assert len(traces_in(path)) >= 1


def test_a_log_that_was_moved_away_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    with in_process(editor_with(ByteTokenizer()), trace_log=str(path)) as client:
        for number in range(2):
            assert client.post("/v1/edits", json={"input": TEXT, "instruction": "x"}).status_code == 200
            logged(path, 1)
            path.rename(tmp_path / f"old{number}")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["old0", "old1"]


def test_a_disk_that_is_full_ends_the_log_alone(caplog: pytest.LogCaptureFixture) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    log, editor = TraceLog("/dev/full", 1 << 20), editor_with(ByteTokenizer())
    live = editor.open(EditRequest(TEXT, instruction="x"))
    for finished in Engine(editor.target, make_policy(SpeculationConfig())).generate(live.sequence):
        live.take(finished)
    for _ in range(2):
        log.add("answered", live, editor.tokenizer)
    assert caplog.text.count("no more traces: No space left on device") == 1
