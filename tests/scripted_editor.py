"""An Editor without a model, whose pace the test decides; the fake of the server tests.

The instruction, or the prompt or last message of a plain generation, is its script: words, carried out in order.

- ``upper``: the answer is the text in capitals (otherwise the text with every ``a`` turned into ``b``)
- ``ponder``: check the request until `release` is called
- ``hold``: read the prompt until `release` is called
- ``pause``: emit one round, then wait for `release`
- ``slow``: 50 ms a round
- ``length``: stop at the token limit; ``fail``: raise what nobody foresaw; ``empty``: end without a result
- ``crash``: the target fails in every pass that this request is part of; ``hungry``: it runs out of memory in every
  pass with another request
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from lookahead_edit.editor import Editor, EditRequest, EditResult, GenerateRequest, GenerateResult, Progress
from lookahead_edit.live import LiveRequest
from lookahead_edit.metrics import SpeculationMetrics
from lookahead_edit.sequence import Sequence as TokenSequence
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.types import (
    NO_TOKENS,
    ContextLengthExceeded,
    Draft,
    IntArray,
    RequestCancelled,
    Round,
    Row,
    Source,
    SourceKind,
    Verified,
)

MAX_CONTEXT_TOKENS = 4096
MODEL_NAME = "scripted"
NUM_PROMPT_TOKENS = 7
OWN_TOKEN = 99  # what the target says where a draft is refused


class Script:
    """One request's words and answer; the drafter, the target and the answer's text all read it."""

    def __init__(self, request: EditRequest | GenerateRequest, characters_a_round: int) -> None:
        self.request = request
        self.name = name_of(request)
        self.words = self.name.split()
        text = text_of(request)
        answer = text.upper() if "upper" in self.words else text.replace("a", "b")
        self.finish_reason: Literal["stop", "length"] = "length" if "length" in self.words else "stop"
        self.answer = answer[: len(answer) // 2] if self.finish_reason == "length" else answer
        starts = range(0, max(1, len(self.answer)), characters_a_round)
        self.pieces = [self.answer[start : start + characters_a_round] for start in starts]
        self.num_done = 0  # pieces that were given out
        self.has_started = False
        self.has_ended = False

    @property
    def num_tokens(self) -> int:
        """Tokens of all pieces: one a character, at most 64 a piece."""
        return sum(tokens_of(piece) for piece in self.pieces)

    @property
    def kind(self) -> SourceKind:
        return SourceKind.FILE if self.request.prediction is None else SourceKind.PREDICTION


def name_of(request: EditRequest | GenerateRequest) -> str:
    return request.instruction or "" if isinstance(request, EditRequest) else text_of(request)


def text_of(request: EditRequest | GenerateRequest) -> str:
    if isinstance(request, EditRequest):
        return request.text
    if request.prompt_tokens is not None:
        return ByteTokenizer().decode(np.asarray(request.prompt_tokens, dtype=np.int32))
    return str(request.messages[-1]["content"]) if request.messages else request.prompt or request.prefill


def tokens_of(piece: str) -> int:
    return max(1, min(64, len(piece)))


class ScriptedDrafter:
    """Drafts every token of the next piece but the last, and one more that is refused."""

    num_index_bytes = 0

    def __init__(self, script: Script) -> None:
        self.script = script

    def start(self, prompt: IntArray, sources: Sequence[Source]) -> None:
        pass

    def draft(self, max_draft_tokens: int) -> Draft:
        if not self.script.request.speculation.enabled or self.script.num_done == len(self.script.pieces):
            return Draft(reason="nothing to draft")
        num_tokens = tokens_of(self.script.pieces[self.script.num_done])
        return Draft(
            tokens=np.arange(num_tokens, dtype=np.int32),
            sources=np.full(num_tokens, self.script.kind, dtype=np.int8),
            probabilities=np.ones(num_tokens, dtype=np.float32),
        ).cut(max_draft_tokens, "no room")

    def commit(self, tokens: IntArray, draft: Draft, num_accepted_tokens: int) -> None:
        pass


class ScriptedTarget:
    """Gives a piece a round; a row that holds is one whose prompt is still being read."""

    vocab_size = 256

    def __init__(self, editor: ScriptedEditor, max_context_tokens: int) -> None:
        self.editor = editor
        self.max_context_tokens = max_context_tokens
        self.scripts: dict[int, Script] = {}

    def verify(self, rows: Sequence[Row]) -> Verified:
        scripts = [self.scripts[row.key] for row in rows]
        for script in scripts:
            if not script.has_started:
                script.has_started = True
                self.editor.log.append(f"start {script.name}")
        if any("crash" in script.words for script in scripts):
            raise ValueError("a secret of the target")
        if len(rows) > 1 and any("hungry" in script.words for script in scripts):
            raise MemoryError
        emitted = [self._emit(row, script) for row, script in zip(rows, scripts, strict=True)]
        if not any(map(len, emitted)):
            time.sleep(0.002)
        return Verified(tokens=emitted, forward_seconds=0.001)

    def close(self, key: int) -> None:
        script = self.scripts.get(key)
        if script is not None and script.has_started and not script.has_ended and self.is_over(script):
            script.has_ended = True
            self.editor.log.append(f"cancelled {script.name}")

    def is_over(self, script: Script) -> bool:
        """A row is also closed to be read again, which ends nothing."""
        return self.editor.is_cancelled[script]()

    def _emit(self, row: Row, script: Script) -> IntArray:
        if row.is_cancelled() or self.editor.holds(script):
            return NO_TOKENS
        if "slow" in script.words:
            time.sleep(0.05)
        piece = script.pieces[script.num_done]
        script.num_done += 1
        if not len(row.draft):
            return np.full(tokens_of(piece), OWN_TOKEN, dtype=np.int32)
        return np.append(np.arange(tokens_of(piece) - 1, dtype=np.int32), np.int32(OWN_TOKEN))


class ScriptedLive(LiveRequest[Any]):
    """Counts its rounds, and gives out the script's pieces."""

    def __init__(self, editor: ScriptedEditor, script: Script, sequence: TokenSequence) -> None:
        self.editor = editor
        self.script = script
        self.sequence = sequence
        self.metrics = SpeculationMetrics(num_prompt_tokens=NUM_PROMPT_TOKENS)
        self.num_taken = 0  # pieces
        self.num_given_characters = 0

    def take(self, finished: Round) -> Progress:
        self.metrics.add(finished)
        if "fail" in self.script.words:
            raise ValueError("a secret of the program")
        if self.sequence.finish_reason == "cancelled":
            raise RequestCancelled("the request was cancelled")
        delta = "".join(self.script.pieces[self.num_taken : self.script.num_done])
        self.num_taken = self.script.num_done
        # A token a character; the last one has the rest of a long piece.
        num_own = max(0, len(finished.tokens) - 1)
        token_texts = (*delta[:num_own], delta[num_own:]) if len(finished.tokens) else ()
        progress = Progress(delta, self.num_given_characters, finished, self.metrics, token_texts)
        self.num_given_characters += len(delta)
        return progress

    def result(self) -> EditResult | GenerateResult:
        if "empty" in self.script.words:
            raise RuntimeError("no result")
        self.script.has_ended = True
        self.editor.log.append(f"finish {self.script.name}")
        if isinstance(self.script.request, GenerateRequest):
            return GenerateResult(self.script.answer, self.script.finish_reason, self.metrics)
        return EditResult(
            before=self.script.request.text,
            text=self.script.answer,
            finish_reason=self.script.finish_reason,
            metrics=self.metrics,
            path=self.script.request.path,
            final_newline=self.script.answer.endswith("\n"),
        )


class ScriptedEditor(Editor):
    """`log` tells what happened, e.g. ``["start hold", "cancelled hold"]``; `cache_groups` what requests may share."""

    def __init__(self, *, rounds_of: int = 5, max_context_tokens: int = MAX_CONTEXT_TOKENS) -> None:
        self.scripted_target = ScriptedTarget(self, max_context_tokens)
        super().__init__(self.scripted_target, ByteTokenizer(), model_name=MODEL_NAME)
        self.rounds_of = rounds_of  # characters a round
        self.reset()

    def reset(self) -> None:
        """Forgets everything; the next ``hold`` holds again."""
        self.released = threading.Event()
        self.log: list[str] = []
        self.requests: list[EditRequest | GenerateRequest] = []
        self.cache_groups: list[str | None] = []
        self.is_cancelled: dict[Script, Callable[[], bool]] = {}

    def release(self) -> None:
        self.released.set()

    def wait_for(self, entry: str, seconds: float = 60.0) -> None:
        """Until the log has this entry."""
        deadline = time.monotonic() + seconds
        while entry not in self.log:
            assert time.monotonic() < deadline, f"no {entry!r} in {self.log}"
            time.sleep(0.002)

    def holds(self, script: Script) -> bool:
        """Whether the request waits for `release`, while the others go on."""
        is_waiting = "hold" in script.words or ("pause" in script.words and script.num_done == 1)
        return is_waiting and not self.released.is_set()

    def check(self, request: EditRequest | GenerateRequest, is_cancelled: Callable[[], bool] = lambda: False) -> None:
        if "ponder" in name_of(request).split():
            self.log.append("ponder")
            self.released.wait()
        limit = min(self.target.max_context_tokens, request.max_context_tokens or self.target.max_context_tokens)
        if len(text_of(request)) >= limit:
            raise ContextLengthExceeded(len(text_of(request)), limit)

    def open(
        self,
        request: EditRequest | GenerateRequest,
        is_cancelled: Callable[[], bool] = lambda: False,
        *,
        cache_group: str | None = None,
    ) -> LiveRequest[Any]:
        script = Script(request, self.rounds_of)
        self.requests.append(request)
        self.cache_groups.append(cache_group)
        self.is_cancelled[script] = is_cancelled
        has_limit = script.finish_reason == "length"
        sequence = TokenSequence(
            np.zeros(NUM_PROMPT_TOKENS, dtype=np.int32),
            drafter=ScriptedDrafter(script),
            sampling=request.sampling,
            max_tokens=script.num_tokens if has_limit else script.num_tokens + 2**20,
            max_context_tokens=2**30,
            stop_rules=() if has_limit else [_StopAfter(script.num_tokens)],
            is_cancelled=is_cancelled,
        )
        self.scripted_target.scripts[sequence.key] = script
        return ScriptedLive(self, script, sequence)


class _StopAfter:
    def __init__(self, num_tokens: int) -> None:
        self.num_tokens = num_tokens

    def should_stop(self, tokens: IntArray, num_prompt_tokens: int) -> bool:
        return len(tokens) - num_prompt_tokens == self.num_tokens
