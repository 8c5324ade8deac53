"""An engine as a target: scripted in place of vLLM's, and a small HTTP server in place of a running one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_vllm_server import FakeServer

from lookahead_edit.config import SamplingConfig, SpeculationConfig
from lookahead_edit.engine import Engine
from lookahead_edit.live import LiveRequest
from lookahead_edit.scheduler import Scheduler
from lookahead_edit.speculation import make_policy
from lookahead_edit.tasks import EditRequest, EditResult, GenerateRequest, GenerateResult
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.types import ContextFile, Draft, EngineUnavailable, InvalidInput, Round, Row, SourceKind
from lookahead_edit.vllm_plugin import remote_target
from lookahead_edit.vllm_plugin.batch import Report
from lookahead_edit.vllm_plugin.engine_target import VllmTarget
from lookahead_edit.vllm_plugin.front import EngineEditor
from lookahead_edit.vllm_plugin.loading import connect_engine_editor
from lookahead_edit.vllm_plugin.remote_target import RemoteVllmTarget, ServedModel, served_model, speculates

BYTES = ByteTokenizer()
BEFORE, AFTER = "total = 1\nprint(total)\n", "price = 1\nprint(price)\n"
ANSWER = AFTER + "```<|im_end|>"


class ScriptedEngine:
    """Answers every request with ANSWER, five tokens a step, of which it drafted four, and reports so."""

    def __init__(self, answer: str = ANSWER) -> None:
        self.answer = BYTES.encode(answer)
        self.requests: dict[str, Any] = {}
        self.aborted: list[str] = []
        self.num_steps = 0
        self.dies_at: int | None = None
        self.ends_early = False
        self._reports: list[Report] = []

    def add_request(self, request_id: str, prompt: Any, params: Any) -> None:
        if params["max_tokens"] < 1:
            raise ValueError("too long\nand more")
        self.requests[request_id] = SimpleNamespace(prompt=prompt["prompt_token_ids"], params=params, num_emitted=-1)

    def abort_request(self, request_ids: list[str]) -> None:
        self.aborted += request_ids
        for request_id in request_ids:
            self.requests.pop(request_id)

    def step(self) -> list[Any]:
        self.num_steps += 1
        if self.num_steps == self.dies_at:
            raise RuntimeError("secret contents of a prompt")
        return [self._output(request_id, request) for request_id, request in self.requests.items()]

    def collective_rpc(self, method: str) -> list[Any]:
        assert method == "take_lookahead_reports"
        reports, self._reports = self._reports, []
        return [reports, []]

    def _output(self, request_id: str, request: Any) -> Any:
        name = request.params["extra_args"]["lookahead_name"]
        if request.num_emitted < 0:  # the first step reads the prompt
            request.num_emitted = 0
            tokens, num_scheduled = np.zeros(0, dtype=np.int32), len(request.prompt)
        else:
            tokens, num_scheduled = self.answer[request.num_emitted :][:5], 5
            request.num_emitted += len(tokens)
        kinds = np.full(len(tokens[:-1]), int(SourceKind.FILE), dtype=np.int8)
        finished = Round(tokens, Draft(tokens[:-1], kinds, match_length=3), len(tokens[:-1]))
        self._reports.append(Report(name, finished, num_scheduled))
        output = SimpleNamespace(token_ids=tokens.tolist(), finish_reason="abort" if self.ends_early else None)
        return SimpleNamespace(request_id=request_id, outputs=[output], finished=self.ends_early, num_cached_tokens=16)


def make_params(row: Row, extra_args: Mapping[str, Any], max_tokens: int) -> dict[str, Any]:
    return {"sampling": row.sampling, "extra_args": dict(extra_args), "max_tokens": max_tokens}


def make_editor(engine: ScriptedEngine) -> EngineEditor:
    target = VllmTarget(engine, make_params, max_context_tokens=2048, vocab_size=258)
    return EngineEditor(target, BYTES, model_name="scripted")


REQUEST = EditRequest(BEFORE, "Rename total to price.", path="a.py")


def test_an_edit_on_an_engine_is_whole_counted_and_freed() -> None:
    engine = ScriptedEngine()
    result = make_editor(engine).edit(REQUEST)
    assert result.text == AFTER
    assert result.metrics.num_cached_tokens == 16
    assert result.metrics.tokens_per_round == pytest.approx(len(result.metrics.num_accepted_by_position) + 1, rel=0.1)
    assert result.metrics.num_draft_tokens == result.metrics.num_drafted_by_source["file"] > 10
    assert result.metrics.prefill_seconds > 0.0
    assert engine.requests == {}
    assert len(engine.aborted) == 1


def test_the_engine_is_told_what_to_copy_and_how_far() -> None:
    engine = ScriptedEngine()
    editor = make_editor(engine)
    speculation = SpeculationConfig(max_draft_tokens=9)
    request = EditRequest(
        BEFORE, "Rename.", prediction="guess", context=(ContextFile("b.py", "b = 2\n"),), speculation=speculation
    )
    for _ in editor.stream(request):
        (live,) = engine.requests.values() if engine.requests else [live]  # noqa: F821
    extra_args = live.params["extra_args"]
    start, end = extra_args["lookahead_file"]
    assert BYTES.decode(np.asarray(live.prompt[start:end], dtype=np.int32)) == BEFORE
    assert BYTES.decode(np.asarray(extra_args["lookahead_prediction"], dtype=np.int32)) == "guess\n"
    assert BYTES.decode(np.asarray(extra_args["lookahead_context"], dtype=np.int32)) == "b = 2\n"
    assert extra_args["lookahead_max_draft"] == 9


@pytest.mark.parametrize("speculation", [SpeculationConfig(enabled=False), SpeculationConfig(drafter="none")])
def test_drafts_can_be_switched_off(speculation: SpeculationConfig) -> None:
    engine = ScriptedEngine()
    stream = make_editor(engine).stream(EditRequest(BEFORE, "Rename.", speculation=speculation))
    next(stream)
    (live,) = engine.requests.values()
    assert live.params["extra_args"]["lookahead_max_draft"] == 0
    stream.close()
    assert engine.requests == {}


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        (EditRequest(BEFORE, "x", sampling=SamplingConfig(min_p=0.1)), "min_p"),
        (GenerateRequest(prompt="x", sampling=SamplingConfig(logit_bias={1: 2.0})), "logit_bias"),
        (EditRequest(BEFORE, "x", speculation=SpeculationConfig(drafter="ngram")), "speculation.drafter"),
    ],
)
def test_what_the_engine_would_leave_out_silently_is_refused(request_: Any, param: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        make_editor(ScriptedEngine()).check(request_)
    assert (raised.value.param, raised.value.code) == (param, "unsupported_parameter")


def scheduler_of(editor: EngineEditor) -> Scheduler[str]:
    return Scheduler(Engine(editor.target, make_policy(SpeculationConfig())), max_batch_size=8)


def finish(scheduler: Scheduler[str], seconds: float = 20.0) -> dict[str, Any]:
    ended = {}
    deadline = time.monotonic() + seconds
    while not scheduler.is_idle:
        assert time.monotonic() < deadline
        scheduler.join()
        ended.update(dict(scheduler.step()))
    return {name: event.result() if isinstance(event, LiveRequest) else event for name, event in ended.items()}


def test_many_requests_run_in_one_engine_and_one_that_is_cancelled_leaves_it() -> None:
    engine = ScriptedEngine()
    editor = make_editor(engine)
    scheduler = scheduler_of(editor)
    gone: list[bool] = []
    for name in "abc":
        scheduler.add(name, editor.open(REQUEST, (lambda: bool(gone)) if name == "b" else (lambda: False)))
    for _ in range(3):
        scheduler.join()
        scheduler.step()
    gone.append(True)
    ended = finish(scheduler)
    assert [ended[name].text for name in "ac"] == [AFTER, AFTER]
    assert not isinstance(ended["b"], EditResult)
    assert engine.requests == {}


def test_an_engine_that_dies_ends_its_requests_with_a_clear_error_and_tells_no_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = ScriptedEngine()
    engine.dies_at = 3
    editor = make_editor(engine)
    scheduler = scheduler_of(editor)
    for name in "ab":
        scheduler.add(name, editor.open(REQUEST))
    ended = finish(scheduler)
    assert all(isinstance(error, EngineUnavailable) for error in ended.values())
    with pytest.raises(EngineUnavailable, match="died"):
        editor.edit(REQUEST)
    assert engine.num_steps == 3
    assert "secret" not in caplog.text + "".join(map(str, ended.values()))


def test_a_request_that_the_engine_gives_up_or_refuses_ends_in_an_error() -> None:
    engine = ScriptedEngine()
    engine.ends_early = True
    with pytest.raises(EngineUnavailable, match=r"ended the request early \(abort\)"):
        make_editor(engine).edit(REQUEST)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer(BYTES.encode(ANSWER))
    thread = threading.Thread(target=fake.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield fake
    fake.gate.set()
    fake.shutdown()
    thread.join()
    fake.server_close()


@pytest.fixture
def remote_editor() -> Iterator[Callable[[FakeServer], EngineEditor]]:
    targets: list[RemoteVllmTarget] = []

    def make(server: FakeServer) -> EngineEditor:
        targets.append(RemoteVllmTarget(server.url, ServedModel("served", "default", 2048), api_key="key"))
        return EngineEditor(targets[-1], BYTES, model_name="served")

    yield make
    for target in targets:
        target.stop()


RemoteEditor = Callable[[FakeServer], EngineEditor]


def test_a_running_server_is_asked_and_answers_whole(server: FakeServer, remote_editor: RemoteEditor) -> None:
    assert served_model(server.url) == ServedModel("served", "default", 2048)
    result = remote_editor(server).edit(REQUEST)
    assert result.text == AFTER
    assert result.metrics.tokens_per_round == pytest.approx(5.0, rel=0.15)
    assert result.metrics.num_draft_tokens == 0  # nobody says
    (body,) = server.bodies
    assert body["stream"]
    assert body["ignore_eos"]
    assert body["max_tokens"] + len(body["prompt"]) == 2048
    assert "lookahead_file" in body["vllm_xargs"]


def test_several_streams_run_together(server: FakeServer, remote_editor: RemoteEditor) -> None:
    editor = remote_editor(server)
    scheduler = scheduler_of(editor)
    for number in range(6):
        scheduler.add(str(number), editor.open(REQUEST))
    assert [result.text for result in finish(scheduler).values()] == [AFTER] * 6


@pytest.mark.parametrize(
    ("mode", "error", "message"),
    [
        ("dies", EngineUnavailable, "can't be reached|ended the request early"),
        ("fails", EngineUnavailable, "out of memory"),
        ("refuses", InvalidInput, "no such thing"),
    ],
)
def test_a_server_that_fails_is_named_in_one_line(
    server: FakeServer, remote_editor: RemoteEditor, mode: str, error: type[Exception], message: str
) -> None:
    server.mode = mode
    editor = remote_editor(server)
    with pytest.raises(error, match=message) as raised:
        editor.edit(REQUEST)
    assert "\n" not in str(raised.value)
    server.mode = "well"  # started again
    assert editor.edit(REQUEST).text == AFTER


def test_a_server_that_comes_back_with_another_context_is_told_from_a_bad_request(
    server: FakeServer, remote_editor: RemoteEditor
) -> None:
    editor = remote_editor(server)
    server.card["max_model_len"] = 1024
    with pytest.raises(EngineUnavailable, match="started anew, with a context of 1024 tokens"):
        editor.edit(REQUEST)
    assert editor.edit(REQUEST).text == AFTER
    assert editor.target.max_context_tokens == 1024
    server.card |= {"id": "coder", "root": "elsewhere", "max_model_len": 64}
    with pytest.raises(EngineUnavailable, match="has another model now, coder: start this server anew"):
        editor.edit(REQUEST)


def test_health_is_that_of_the_server_behind(server: FakeServer, remote_editor: RemoteEditor) -> None:
    editor = remote_editor(server)
    editor.check_health()
    server.mode = "dead"
    with pytest.raises(EngineUnavailable, match="status 503"):
        editor.check_health()
    server.shutdown()
    server.server_close()
    with pytest.raises(EngineUnavailable, match="can't be reached"):
        editor.check_health()


def test_a_server_that_does_not_speculate_is_noticed(server: FakeServer) -> None:
    assert speculates(server.url)
    server.counters = ""
    assert not speculates(server.url)
    server.shutdown()
    server.server_close()
    assert speculates(server.url)  # nobody knows


def test_a_server_that_falls_silent_is_left_and_so_is_one_that_nobody_waits_for(
    server: FakeServer, remote_editor: RemoteEditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.mode = "hangs"
    gone: list[bool] = []
    editor = remote_editor(server)
    scheduler = scheduler_of(editor)
    scheduler.add("a", editor.open(REQUEST, lambda: bool(gone)))
    threading.Timer(0.5, gone.append, [True]).start()
    assert not isinstance(finish(scheduler)["a"], EditResult)
    monkeypatch.setattr(remote_target, "MAX_SILENT_SECONDS", 0.3)
    with pytest.raises(EngineUnavailable, match="fallen silent"):
        remote_editor(server).edit(REQUEST)


def test_an_address_where_nothing_answers_as_vllm_does_is_refused(server: FakeServer) -> None:
    server.mode = "other"
    with pytest.raises(EngineUnavailable, match=r"no vLLM"):
        connect_engine_editor(server.url + "/v1/")
    with pytest.raises(EngineUnavailable, match="can't be reached"):
        connect_engine_editor("http://127.0.0.1:9")
    with pytest.raises(InvalidInput, match="expected an address"):
        connect_engine_editor("localhost:8000")


def test_plain_generation_runs_on_an_engine_too() -> None:
    result = make_editor(ScriptedEngine("one two<|im_end|>")).generate(GenerateRequest(prompt="count"))
    assert isinstance(result, GenerateResult)
    assert result.text == "one two"
