"""vLLM with our proposer says what it says without; also where rows join, leave, wait and are read again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from benchmarks.edit_set import EDITS
from lookahead_edit.config import EditConfig
from lookahead_edit.prompts import PromptBuilder
from lookahead_edit.tasks import EditRequest
from lookahead_edit.tokenizer import HfTokenizer

pytest.importorskip("vllm", reason="needs vLLM in its own environment: make test-vllm")

MAX_TOKENS = 64
NUM_EDITS = 50
CONTEXT = 1024

MakeLlm = Callable[..., Any]


@pytest.fixture(scope="module")
def prompts(model_path: str) -> list[list[int]]:
    from transformers import AutoTokenizer

    builder = PromptBuilder(
        HfTokenizer(AutoTokenizer.from_pretrained(model_path)),
        max_context_tokens=CONTEXT,
        vocab_size=49152,
        config=EditConfig(),
    )
    requests = [EditRequest(edit.before, edit.instruction, path=edit.path) for edit in EDITS[:NUM_EDITS]]
    return [builder.for_edit(request).tokens.tolist() for request in requests]


def outputs(llm: Any, prompts: Sequence[Sequence[int]], max_tokens: int = MAX_TOKENS, **params: Any) -> list[list[int]]:
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0.0, max_tokens=max_tokens, **params)
    answers = llm.generate([{"prompt_token_ids": list(prompt)} for prompt in prompts], sampling, use_tqdm=False)
    return [list(answer.outputs[0].token_ids) for answer in answers]


def counter(llm: Any, name: str) -> float:
    """Since the process began: other engines' before it count too."""
    return float(sum(metric.value for metric in llm.get_metrics() if metric.name == f"vllm:{name}"))


def batch_of(llm: Any) -> Any:
    runner = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
    return runner.drafter.batch


@pytest.fixture(scope="module")
def plain(make_llm: MakeLlm, prompts: list[list[int]]) -> list[list[int]]:
    return outputs(make_llm(), prompts)


def test_greedy_text_of_50_edits_is_that_of_plain_decoding_in_a_batch_that_changes(
    make_llm: MakeLlm, prompts: list[list[int]], plain: list[list[int]]
) -> None:
    """More requests than places, so that rows join and leave; long prompts come in pieces, the same ones from cache."""
    llm = make_llm(32, max_num_batched_tokens=256, enable_prefix_caching=True)
    before = [counter(llm, f"spec_decode_num_{what}_tokens") for what in ("draft", "accepted")]
    assert outputs(llm, prompts) == plain
    drafted, accepted = (
        counter(llm, f"spec_decode_num_{what}_tokens") - past
        for what, past in zip(("draft", "accepted"), before, strict=True)
    )
    assert accepted > 0.5 * sum(map(len, plain))
    stats = batch_of(llm).stats
    # What we counted is what vLLM did: every pass is told to the proposer, also a request's last one.
    assert (stats.num_draft_tokens, stats.num_accepted_tokens) == (drafted, accepted)
    assert outputs(llm, prompts[:8]) == plain[:8]  # with prefixes cached
    assert counter(llm, "prefix_cache_hits") > 0


def test_rows_whose_cache_was_taken_go_on_with_the_same_text(
    make_llm: MakeLlm, prompts: list[list[int]], plain: list[list[int]]
) -> None:
    llm = make_llm(32, num_gpu_blocks_override=20, block_size=128, max_num_batched_tokens=1024)
    before = counter(llm, "num_preemptions")
    assert outputs(llm, prompts[:16]) == plain[:16]
    assert counter(llm, "num_preemptions") > before
    assert batch_of(llm).stats.num_accepted_tokens > 0.4 * sum(map(len, plain[:16]))


def test_up_to_the_contexts_end_with_the_longest_drafts_nothing_is_zero_filled(
    make_llm: MakeLlm, prompts: list[list[int]]
) -> None:
    """One row that comes near the end must not cost the others their drafts, nor itself."""
    near, far = prompts[0], prompts[1]
    context = len(near) + 100
    assert len(far) < len(near) + 60
    expected = outputs(make_llm(max_model_len=context), [near, far], context, ignore_eos=True)
    assert len(expected[0]) == 100
    llm = make_llm(128, max_model_len=context)
    before = counter(llm, "spec_decode_num_draft_tokens")
    assert outputs(llm, [near, far], context, ignore_eos=True) == expected
    drafted = counter(llm, "spec_decode_num_draft_tokens") - before
    assert drafted == batch_of(llm).stats.num_draft_tokens  # none that weren't ours


def test_requests_say_what_they_want_in_vllm_xargs(make_llm: MakeLlm, prompts: list[list[int]]) -> None:
    llm = make_llm(32)
    stats = batch_of(llm).stats
    said = outputs(llm, prompts[:2], extra_args={"lookahead_enabled": 0})
    assert stats.num_draft_tokens == 0
    assert stats.num_rows_by_reason == {"speculation is off for this request": stats.num_rows}
    assert outputs(llm, prompts[:2], extra_args={"lookahead_max_draft": 2}) == said
    assert 0 < stats.num_draft_tokens <= 2 * stats.num_rows
    story = llm.get_tokenizer().encode("Write a story about a fox and a lighthouse.\n")
    (told,) = outputs(llm, [story], 60)
    rows = stats.num_rows
    assert outputs(llm, [story], 60, extra_args={"lookahead_prediction": told}) == [told]
    assert stats.num_rows - rows < 20


@pytest.mark.parametrize(
    ("num_draft_tokens", "arguments", "message"),
    [
        (129, {}, "expected num_speculative_tokens between 1 and 128"),
        (64, {"max_model_len": 64}, "expected max_model_len to leave room"),
        (8, {"additional_config": {"lookahead_edit": {"drafters": 1}}}, "expected lookahead_edit to have only"),
    ],
)
def test_what_cant_work_is_refused_in_one_line(
    make_llm: MakeLlm, num_draft_tokens: int, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(Exception, match=message) as raised:
        make_llm(num_draft_tokens, **arguments)
    line = next(line for line in str(raised.value).splitlines() if message in line)
    assert len(line) < 400


def test_another_release_is_refused_by_name(make_llm: MakeLlm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vllm.__version__", "0.33.0")
    with pytest.raises(Exception, match=r"expected vLLM 0\.32\.x, .* got 0\.33\.0"):
        make_llm(8)


def test_without_a_tokenizer_text_is_the_same_and_drafts_come_from_the_tokens(
    make_llm: MakeLlm, prompts: list[list[int]], plain: list[list[int]]
) -> None:
    llm = make_llm(16, skip_tokenizer_init=True)
    assert [answer[:MAX_TOKENS] for answer in outputs(llm, prompts[:4], detokenize=False)] == plain[:4]
    assert batch_of(llm).stats.num_accepted_tokens > 0.4 * sum(map(len, plain[:4]))
