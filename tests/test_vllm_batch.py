"""The proposer's work behind a scripted engine: text never changes, bounds hold, rows come and go."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scripted_vllm import Request, ScriptedRunner

from lookahead_edit.cost import CostCurve
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.types import Draft, IntArray, Source, SourceKind
from lookahead_edit.vllm_plugin import drafting
from lookahead_edit.vllm_plugin.batch import DraftingBatch
from lookahead_edit.vllm_plugin.options import ProposerOptions

BYTES = ByteTokenizer()
FILE = "".join(f"def function_{number}(value):\n    return value * {number * 7919}\n\n\n" for number in range(12))
FREE = ProposerOptions(cost_curve=CostCurve.linear(0.0))


def make_batch(options: ProposerOptions = FREE, **changes: Any) -> DraftingBatch:
    settings: dict[str, Any] = {"max_draft_tokens": 32, "max_model_len": 4096, "vocab_size": 258, "tokenizer": BYTES}
    return DraftingBatch(options, **(settings | changes))


def edit(name: str, extra_args: dict[str, Any] | None = None) -> Request:
    """Asks for another name in place of "function", and gets it."""
    prompt = BYTES.encode(f"Name them {name}.\n```python\n{FILE}```<|im_end|>\n")
    return Request(prompt, BYTES.encode(FILE.replace("function", name) + "```<|im_end|>"), extra_args)


@pytest.mark.parametrize("tells_requests", [False, True])
@pytest.mark.parametrize("chunk_tokens", [64, 4096])
def test_many_rows_that_change_places_are_all_drafted_well(tells_requests: bool, chunk_tokens: int) -> None:
    batch = make_batch()
    runner = ScriptedRunner(
        batch, max_draft_tokens=32, chunk_tokens=chunk_tokens, tells_requests=tells_requests, seed=1
    )
    requests = [edit(name) for name in ("load", "compute_total", "f", "walk")]
    runner.run(requests)
    for request in requests:
        assert request.num_accepted > 0.75 * len(request.output)
    assert batch.stats.num_accepted_tokens == sum(request.num_accepted for request in requests)
    assert batch.stats.num_indexed_prompts == len(requests)


def test_rows_that_join_wait_and_are_preempted_go_on_where_they_were() -> None:
    batch = make_batch()
    runner = ScriptedRunner(batch, max_draft_tokens=32, chunk_tokens=256, seed=2)
    early, late = edit("load"), edit("walk")
    runner.running.append(early)
    for _ in range(8):
        runner.step()
    runner.running.append(late)
    for _ in range(6):
        runner.step(waiting=[early])
    runner.preempt(early)
    runner.run([])
    assert batch.stats.num_indexed_prompts == 2
    assert min(early.num_accepted, late.num_accepted) > 0.75 * len(early.output)


def test_what_leaves_is_freed() -> None:
    batch = make_batch()
    runner = ScriptedRunner(batch, max_draft_tokens=32, tells_requests=True)
    for name in ("load", "walk", "jump"):
        runner.run([edit(name), edit(name + "_all")])
    assert batch.num_rows == 2  # those of the last step, until the next one
    assert batch.num_index_bytes < 2 * drafting.BYTES_A_TOKEN * 3000


@pytest.mark.parametrize("tells_requests", [False, True])
def test_no_draft_is_longer_than_the_engine_takes_nor_leads_beyond_the_context(tells_requests: bool) -> None:
    prompt = BYTES.encode(f"```\n{FILE}```\n")
    num_tokens = len(prompt) + 200
    batch = make_batch(max_draft_tokens=128, max_model_len=num_tokens)
    runner = ScriptedRunner(batch, max_draft_tokens=128, max_model_len=num_tokens, tells_requests=tells_requests)
    request = Request(prompt, BYTES.encode(FILE)[:199])
    runner.run([request])
    assert max(len(draft) for draft in request.drafts) == 128
    if tells_requests:  # the answer's limit is known, and the last token is the target's own
        assert sum(map(len, request.drafts)) - request.num_accepted <= 32


@pytest.mark.parametrize("max_draft_tokens", [1, 2, 128])
def test_any_limit_is_kept_also_by_a_drafter_that_says_more(
    max_draft_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Boaster:
        num_index_bytes = 0

        def start(self, prompt: IntArray, sources: Any) -> None: ...

        def commit(self, tokens: IntArray, draft: Draft, num_accepted_tokens: int) -> None: ...

        def draft(self, max_draft_tokens: int) -> Draft:
            return Draft(np.full(999, 97, dtype=np.int32), np.zeros(999, dtype=np.int8), match_length=999)

    monkeypatch.setattr("lookahead_edit.vllm_plugin.batch.make_drafter", lambda *args: Boaster())
    batch = make_batch(ProposerOptions(policy="fixed"), max_draft_tokens=max_draft_tokens, max_model_len=64)
    request = Request(BYTES.encode("ab"), BYTES.encode("b" * 50))
    ScriptedRunner(batch, max_draft_tokens=max_draft_tokens, max_model_len=64).run([request])
    assert max(map(len, request.drafts)) == min(max_draft_tokens, 64 - 3 - 1)


def test_tokens_outside_the_vocabulary_are_never_drafted() -> None:
    tokens = BYTES.encode("abcdefghij" * 9)
    tokens[5::10] = 300  # as of an image in the prompt
    request = Request(tokens, BYTES.encode("abcde" * 8))
    ScriptedRunner(make_batch(), max_draft_tokens=32).run([request])
    assert all(token < 258 for draft in request.drafts for token in draft)


@pytest.mark.parametrize("tells_requests", [False, True])
def test_a_draft_that_the_engine_cuts_is_not_held_against_the_drafter(tells_requests: bool) -> None:
    batch = make_batch()
    runner = ScriptedRunner(batch, max_draft_tokens=32, tells_requests=tells_requests)
    request = edit("load")
    runner.running.append(request)
    while runner.running:
        runner.step()
        request.draft = request.draft[:5]  # no room in the pass for more
    if tells_requests:
        assert batch.stats.num_draft_tokens - batch.stats.num_accepted_tokens <= 40
    assert batch.stats.num_accepted_tokens == request.num_accepted


def test_prompts_are_indexed_in_bounded_pieces_while_the_engine_reads_them() -> None:
    batch = make_batch(ProposerOptions(cost_curve=CostCurve.linear(0.0), max_indexed_tokens_a_step=128))
    runner = ScriptedRunner(batch, max_draft_tokens=32, chunk_tokens=64)
    request = edit("load")
    runner.running.append(request)
    num_reading_steps = 0
    while not request.num_emitted:
        runner.step()
        num_reading_steps += 1
        assert sum(each.num_prompt_tokens for each in batch._drafting.values()) == len(request.prompt)
    runner.run([])
    assert num_reading_steps > 2 * len(request.prompt) / 128  # twice: once for the fences, once for the index
    assert request.num_accepted > 0.75 * len(request.output)


def test_a_row_that_is_answered_before_its_prompt_is_indexed_drafts_from_then_on() -> None:
    batch = make_batch(ProposerOptions(cost_curve=CostCurve.linear(0.0), max_indexed_tokens_a_step=50))
    request = edit("load")
    ScriptedRunner(batch, max_draft_tokens=32).run([request])
    waiting = batch.stats.num_rows_by_reason[drafting.READING]
    assert waiting >= 2 * len(request.prompt) // 50 - 2
    assert all(not draft for draft in request.drafts[:waiting])
    assert request.num_accepted > 0.7 * (len(request.output) - waiting)


def test_where_memory_is_short_rows_wait_for_it_and_are_answered_all_the_same() -> None:
    one = drafting.BYTES_A_TOKEN * 2 * len(edit("load").prompt)
    batch = make_batch(ProposerOptions(cost_curve=CostCurve.linear(0.0), max_index_bytes=one))
    runner = ScriptedRunner(batch, max_draft_tokens=32, tells_requests=True)
    requests = [edit(name) for name in ("load", "walk", "jump", "swim")]
    runner.run(requests)
    drafted = sorted(request.num_accepted > 0 for request in requests)
    assert drafted[-1]
    assert batch.stats.num_rows_by_reason[drafting.READING] > 50


def test_requests_can_switch_drafts_off_and_bring_a_prediction() -> None:
    batch = make_batch()
    runner = ScriptedRunner(batch, max_draft_tokens=32, tells_requests=True)
    answer = BYTES.encode("entirely new text, which no prompt holds, written down once more" + "<|im_end|>")
    prompt = BYTES.encode("Say something.")
    off = edit("load", {"lookahead_enabled": 0})
    few = edit("walk", {"lookahead_max_draft": 3})
    predicted = Request(prompt, answer, {"lookahead_prediction": answer[:-1].tolist()})
    plain = Request(prompt, answer, {"somebody_elses": "option"})
    runner.run([off, few, predicted, plain])
    assert off.num_accepted == 0
    assert max(map(len, few.drafts)) == 3
    assert predicted.num_accepted > 0.8 * len(answer)
    assert plain.num_accepted < 0.2 * len(answer)


def test_all_rows_copy_from_one_workspace() -> None:
    other = BYTES.encode(FILE.replace("value", "number"))
    batch = make_batch(sources=[Source(SourceKind.CONTEXT, other, path="other.py")])
    requests = [
        Request(BYTES.encode(f"Write function {number}."), BYTES.encode(FILE.replace("value", "number")[:400]))
        for number in range(3)
    ]
    ScriptedRunner(batch, max_draft_tokens=32).run(requests)
    assert all(request.num_accepted > 250 for request in requests)
    indices = {id(each._drafter._workspace) for each in batch._drafting.values()}  # type: ignore[union-attr]
    assert len(indices) == 1


def test_a_drafter_that_fails_takes_drafts_from_its_own_row_only(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = make_batch()
    runner = ScriptedRunner(batch, max_draft_tokens=32)
    healthy, sick = edit("load"), edit("walk")
    sick.prompt[:] = np.where(sick.prompt == 33, 33, sick.prompt)
    sick.prompt[3] = -5  # as where a prompt comes as embeddings
    runner.run([healthy, sick])
    assert sick.num_accepted == 0
    assert healthy.num_accepted > 0.75 * len(healthy.output)


class Clock:
    """Seconds of a machine on which a pass takes `base + slope * tokens`."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("tells_requests", [False, True])
def test_costs_are_measured_on_the_passes_and_make_drafts_short_where_tokens_are_dear(tells_requests: bool) -> None:
    longest = {}
    for slope in (0.0001, 0.01):
        clock = Clock()
        batch = make_batch(ProposerOptions(), clock=clock)
        runner = ScriptedRunner(batch, max_draft_tokens=32, tells_requests=tells_requests)
        for name in itertools.islice(itertools.cycle(["load", "walk", "jump"]), 12):
            request = edit(name)
            runner.running.append(request)
            while runner.running:
                clock.now += 0.01 + slope * (len(request.draft) + 1)
                runner.step()
        assert batch.cost_curve is not None
        costs = batch.cost_curve.values(1, 17)
        assert costs[16] / costs[0] == pytest.approx((0.01 + 17 * slope) / (0.01 + slope), rel=0.2)
        longest[slope] = max(map(len, request.drafts))
    assert longest[0.01] < longest[0.0001]


def test_until_passes_are_measured_a_cpu_counts_as_one_and_what_was_given_counts_first() -> None:
    curve = CostCurve(widths=(1, 9), costs=((1.0, 3.0),))
    assert ProposerOptions().first_curve(is_on_cpu=False) is None
    assert ProposerOptions(cost_ratio=0.02).first_curve(is_on_cpu=True) is None
    assert ProposerOptions(cost_curve=curve).first_curve(is_on_cpu=True) is curve
    on_cpu = ProposerOptions().first_curve(is_on_cpu=True)
    assert on_cpu is not None
    assert on_cpu.shares_passes
    assert on_cpu.values(1, 65)[64] > 3.0 * on_cpu.values(1, 1)[0]
