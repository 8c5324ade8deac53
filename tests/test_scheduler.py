"""Many requests in one engine: joining, leaving, and failures that stay with whom they belong to."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from logged_editor import FILE, logged_editor
from scripted_editor import ScriptedEditor
from tiny_models import SHAPE
from tiny_tokenizers import byte_level_tokenizer

from lookahead_edit.config import SamplingConfig, SpeculationConfig
from lookahead_edit.drafters.guarded import FAILED
from lookahead_edit.editor import Editor, EditRequest, GenerateRequest, Progress
from lookahead_edit.engine import Engine
from lookahead_edit.failures import describe_failure, is_out_of_memory
from lookahead_edit.live import LiveRequest
from lookahead_edit.policy import FixedPolicy
from lookahead_edit.scheduler import ROUNDS_BEFORE_GROWTH, Scheduler
from lookahead_edit.speculation import cost_curve_of, make_policy
from lookahead_edit.targets.hf import HfTarget
from lookahead_edit.tokenizer import HfTokenizer
from lookahead_edit.types import Draft, IntArray, RequestCancelled, Source

Events = list[tuple[str, Any]]


def scheduler_of(editor: Editor, max_batch_size: int = 4) -> Scheduler[str]:
    policy = make_policy(SpeculationConfig(), cost_curve_of(editor.target))
    return Scheduler[str](Engine(editor.target, policy), max_batch_size)


def run(scheduler: Scheduler[str], max_rounds: int = 1000) -> Events:
    """Until nothing is left to do."""
    events: Events = []
    for _ in range(max_rounds):
        if scheduler.is_idle:
            return events
        events += [(name, "joined") for name in scheduler.join()]
        events += scheduler.step()
    raise AssertionError("the scheduler does not come to an end")


def ask(scheduler: Scheduler[str], editor: Editor, script: str, text: str = "banana", **options: Any) -> None:
    scheduler.add(script, editor.open(EditRequest(text, script), **options))


def endings(events: Events) -> dict[str, str]:
    """Each request's text, or the name of its error."""
    return {
        name: event.result().text if isinstance(event, LiveRequest) else type(event).__name__
        for name, event in events
        if event != "joined" and not isinstance(event, Progress)
    }


# The batch.


def test_requests_run_together_and_each_gets_its_own_text() -> None:
    editor = ScriptedEditor()
    scheduler = scheduler_of(editor)
    for number in range(6):
        ask(scheduler, editor, f"go {number}", text=f"banana {number}" * (number + 1))
    events = run(scheduler)
    assert endings(events) == {f"go {number}": f"bbnbnb {number}" * (number + 1) for number in range(6)}
    for number in range(6):
        deltas = [event.delta for name, event in events if name == f"go {number}" and isinstance(event, Progress)]
        assert "".join(deltas) == f"bbnbnb {number}" * (number + 1)


def test_a_place_that_comes_free_is_taken_in_the_next_round() -> None:
    editor = ScriptedEditor()
    scheduler = scheduler_of(editor, max_batch_size=2)
    for script, text in (("long", "a" * 40), ("first", "a"), ("second", "a"), ("third", "a")):
        ask(scheduler, editor, script, text)
    seen = []
    while not scheduler.is_idle:
        joined = scheduler.join()
        ended = list(endings(scheduler.step()))
        seen.append((joined, ended))
    assert seen[0] == (["long", "first"], ["first"])
    assert seen[1] == (["second"], ["second"])
    assert seen[2] == (["third"], ["third"])
    assert seen[-1] == ([], ["long"])


def test_one_that_waits_for_its_prompt_holds_nobody_up() -> None:
    editor = ScriptedEditor()
    scheduler = scheduler_of(editor)
    ask(scheduler, editor, "hold")
    ask(scheduler, editor, "go")
    scheduler.join()
    events: Events = []
    for _ in range(5):
        events += scheduler.step()
    assert endings(events) == {"go": "bbnbnb"}
    assert scheduler.num_live == 1
    editor.release()
    assert endings(run(scheduler)) == {"hold": "bbnbnb"}


@pytest.mark.parametrize("is_live", [True, False])
def test_a_cancelled_request_leaves_at_once_and_gives_its_memory_back(is_live: bool) -> None:
    editor = ScriptedEditor()
    scheduler = scheduler_of(editor, max_batch_size=2)
    cancelled: list[bool] = []
    ask(scheduler, editor, "hold")
    if not is_live:
        ask(scheduler, editor, "hold too")
    ask(scheduler, editor, "hold me", is_cancelled=lambda: bool(cancelled))
    scheduler.join()
    scheduler.step()
    cancelled.append(True)
    assert endings(scheduler.step()) == {"hold me": "RequestCancelled"}
    assert ("cancelled hold me" in editor.log) == is_live
    assert scheduler.num_live == (1 if is_live else 2)
    editor.release()
    assert set(endings(run(scheduler)).values()) == {"bbnbnb"}


# Failures.


def test_what_fails_in_one_requests_text_ends_that_one_only() -> None:
    editor = ScriptedEditor()
    scheduler = scheduler_of(editor)
    for script in ("go", "fail"):
        ask(scheduler, editor, script)
    assert endings(run(scheduler)) == {"go": "bbnbnb", "fail": "ValueError"}


def test_a_pass_that_fails_ends_only_the_request_it_fails_with(caplog: pytest.LogCaptureFixture) -> None:
    editor = ScriptedEditor()
    scheduler = scheduler_of(editor)
    for script in ("before", "crash", "after"):
        ask(scheduler, editor, script, text="banana" * 10)
    ended = endings(run(scheduler))
    assert ended == {"before": "bbnbnb" * 10, "crash": "ValueError", "after": "bbnbnb" * 10}
    assert "a pass over 3 requests failed, trying them one by one: ValueError at" in caplog.text
    assert "secret" not in caplog.text


def test_a_lone_request_whose_pass_fails_is_not_tried_again() -> None:
    editor = ScriptedEditor()
    scheduler = scheduler_of(editor)
    ask(scheduler, editor, "crash")
    assert endings(run(scheduler, max_rounds=2)) == {"crash": "ValueError"}


def test_where_memory_runs_out_the_batch_gets_smaller_and_nobody_ends(caplog: pytest.LogCaptureFixture) -> None:
    editor = ScriptedEditor()
    scheduler = scheduler_of(editor)
    for script in ("hungry", "second", "third", "fourth"):
        ask(scheduler, editor, script, text="banana" * 10)
    events = run(scheduler)
    assert set(endings(events).values()) == {"bbnbnb" * 10}
    assert list(endings(events)) == ["hungry", "second", "third", "fourth"]
    assert "memory ran out in a batch of 4 requests: at most 2 run together from now on" in caplog.text
    assert "at most 1 run together" in caplog.text


def test_a_smaller_batch_grows_again_where_nothing_more_fails(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    editor = ScriptedEditor(rounds_of=1)
    scheduler = scheduler_of(editor, max_batch_size=2)
    ask(scheduler, editor, "hungry", text="a")
    ask(scheduler, editor, "long", text="a" * (ROUNDS_BEFORE_GROWTH + 50))
    events = run(scheduler)
    assert set(endings(events)) == {"hungry", "long"}
    assert "2 requests may run together again" in caplog.text


def test_a_request_that_runs_out_of_memory_alone_ends() -> None:
    class Hopeless(ScriptedEditor):
        def holds(self, script: object) -> bool:
            raise MemoryError

    editor = Hopeless()
    scheduler = scheduler_of(editor)
    ask(scheduler, editor, "go")
    assert endings(run(scheduler)) == {"go": "MemoryError"}


def test_what_is_kept_of_finished_requests_goes_before_a_request_ends(editor: Editor) -> None:
    assert isinstance(editor.target, HfTarget)
    target = editor.target
    request = REQUESTS["edit"]
    assert isinstance(request, EditRequest)
    expected = editor.edit(request).text
    scheduler = scheduler_of(editor)
    scheduler.add("first", editor.open(request, cache_group="somebody"))
    run(scheduler)
    assert target.prefix_cache.num_bytes > 0

    def fail_as_long_as_something_is_kept(*_: Any) -> None:
        if target.prefix_cache.num_bytes:
            raise MemoryError

    handle = target.model.register_forward_pre_hook(fail_as_long_as_something_is_kept)
    try:
        scheduler.add("second", editor.open(request, cache_group="another"))
        assert endings(run(scheduler)) == {"second": expected}
    finally:
        handle.remove()
        target.prefix_cache.clear()


def test_what_counts_as_out_of_memory() -> None:
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60)
    assert is_out_of_memory(caught.value)
    assert not is_out_of_memory(RuntimeError("shape mismatch"))


def test_a_request_can_fail_on_trial_while_its_prompt_is_still_read() -> None:
    editor = ScriptedEditor()
    scheduler = scheduler_of(editor)
    ask(scheduler, editor, "crash")
    ask(scheduler, editor, "hold")
    scheduler.join()
    events = [event for _ in range(4) for event in scheduler.step()]
    assert endings(events) == {"crash": "ValueError"}
    editor.release()
    assert endings(run(scheduler)) == {"hold": "bbnbnb"}


def test_everything_can_be_ended_at_once() -> None:
    editor = ScriptedEditor()
    scheduler = scheduler_of(editor, max_batch_size=1)
    for script in ("hold", "waiting"):
        ask(scheduler, editor, script)
    scheduler.join()
    scheduler.step()
    assert endings(scheduler.end_all(RequestCancelled("over"))) == dict.fromkeys(
        ("hold", "waiting"), "RequestCancelled"
    )
    assert scheduler.is_idle


@pytest.mark.parametrize("method", ["draft", "commit"])
def test_a_drafter_that_fails_takes_its_drafts_away_and_nothing_else(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        num_index_bytes = 0

        def start(self, prompt: IntArray, sources: Sequence[Source]) -> None:
            pass

        def draft(self, max_draft_tokens: int) -> Draft:
            if method == "draft":
                raise KeyError("a secret of the prompt")
            return Draft(np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int8))

        def commit(self, tokens: IntArray, draft: Draft, num_accepted_tokens: int) -> None:
            raise IndexError("a secret of the prompt")

    editor = logged_editor(FILE.replace("line_20", "total") + "```")
    scheduler = Scheduler[str](Engine(editor.target, FixedPolicy(8)), 2)
    live = editor.open(EditRequest(FILE, "Do it."))
    live.sequence.drafter = Broken()
    scheduler.add("broken", live)
    scheduler.add("other", editor.open(EditRequest(FILE, "Do it.")))
    events = run(scheduler)
    texts = endings(events)
    assert texts["broken"] == texts["other"] == FILE.replace("line_20", "total")
    broken = next(event for name, event in events if name == "broken" and isinstance(event, LiveRequest))
    assert broken.metrics.num_rounds_by_reason[FAILED] > 10
    assert caplog.text.count("a drafter failed, its request goes on without drafts") == 1
    assert "secret" not in caplog.text


def test_a_failure_is_described_by_places_never_by_its_message() -> None:
    def inner() -> None:
        raise KeyError("text of a client")

    try:
        try:
            inner()
        except KeyError as error:
            raise ValueError("and more of it") from error
    except ValueError as error:
        described = describe_failure(error)
    assert described.startswith("ValueError at test_scheduler.py:")
    assert ", caused by KeyError at test_scheduler.py:" in described
    assert "in inner" in described
    assert "text" not in described.replace("test", "")
    assert "more" not in described


# With a real model.


@pytest.fixture(scope="module")
def editor() -> Editor:
    import transformers as hf

    torch.manual_seed(0)
    config = hf.LlamaConfig(**(SHAPE | {"vocab_size": 300, "pad_token_id": None}), max_position_embeddings=4096)
    model = hf.LlamaForCausalLM(config)
    torch.nn.init.normal_(model.get_output_embeddings().weight, std=1.0)
    model.generation_config = hf.GenerationConfig(bos_token_id=1, pad_token_id=0)
    return Editor(HfTarget(model.eval()), HfTokenizer(byte_level_tokenizer()))


REQUESTS: dict[str, EditRequest | GenerateRequest] = {
    "edit": EditRequest(FILE[:300], "Do it.", max_tokens=60),
    "long prompt": EditRequest(FILE + FILE, "Do it.", max_tokens=40),
    "sampled": EditRequest(FILE[:200], "Do it.", max_tokens=50, sampling=SamplingConfig(temperature=1.0, seed=5)),
    "plain": EditRequest(FILE[:250], "Do it.", max_tokens=50, speculation=SpeculationConfig(enabled=False)),
    "short drafts": EditRequest(FILE[:250], "Do it.", max_tokens=50, speculation=SpeculationConfig(max_draft_tokens=2)),
    "forced": EditRequest(FILE[:350], "Do it.", max_tokens=50, speculation=SpeculationConfig(policy="fixed")),
    "chat": GenerateRequest(messages=({"role": "user", "content": "Hello, hello."},), max_tokens=45),
    "completion": GenerateRequest(prompt="one two one two one", max_tokens=30, stop=("q",)),
}


@pytest.mark.parametrize("max_batch_size", [2, 3, 8])
def test_texts_are_those_of_the_requests_served_alone(editor: Editor, max_batch_size: int) -> None:
    scheduler = scheduler_of(editor, max_batch_size)
    for name, request in REQUESTS.items():
        scheduler.add(name, editor.open(request))
    events = run(scheduler)
    assert endings(events) == {
        name: (editor.edit(request) if isinstance(request, EditRequest) else editor.generate(request)).text
        for name, request in REQUESTS.items()
    }
    results = {name: event for name, event in events if isinstance(event, LiveRequest)}
    assert results["plain"].metrics.num_draft_tokens == 0
    assert results["short drafts"].metrics.num_drafted_by_position[2:] == []
    assert results["edit"].metrics.num_draft_tokens > 0
    assert not editor.target._rows  # type: ignore[attr-defined]


def test_a_failing_model_ends_what_it_ran_and_the_next_request_is_served(editor: Editor) -> None:
    scheduler = scheduler_of(editor)
    request = REQUESTS["edit"]
    assert isinstance(editor.target, HfTarget)
    handle = editor.target.model.register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(RuntimeError("broken")))
    for name in ("first", "second"):
        scheduler.add(name, editor.open(request))
    assert endings(run(scheduler)) == {"first": "RuntimeError", "second": "RuntimeError"}
    handle.remove()
    assert not editor.target._rows
    scheduler.add("third", editor.open(request))
    assert isinstance(request, EditRequest)
    assert endings(run(scheduler)) == {"third": editor.edit(request).text}


def test_a_model_that_runs_out_of_memory_in_a_batch_loses_no_token(editor: Editor) -> None:
    assert isinstance(editor.target, HfTarget)
    calls = iter(range(10**6))

    def fail_sometimes(module: Any, arguments: Any, keywords: Any) -> None:
        if keywords["input_ids"].shape[1] > 1 and next(calls) in (7, 20):
            raise torch.OutOfMemoryError("CUDA out of memory")

    names = ("edit", "long prompt", "sampled", "chat")
    expected = {
        name: (editor.edit(request) if isinstance(request, EditRequest) else editor.generate(request)).text
        for name, request in REQUESTS.items()
        if name in names
    }
    scheduler = scheduler_of(editor)
    handle = editor.target.model.register_forward_pre_hook(fail_sometimes, with_kwargs=True)
    try:
        for name in names:
            scheduler.add(name, editor.open(REQUESTS[name]))
        assert endings(run(scheduler)) == expected
    finally:
        handle.remove()
    assert next(calls) > 20
