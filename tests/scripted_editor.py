"""An Editor without a model, whose pace the test decides; the fake of the server tests.

The instruction is its script: words, carried out in order.

- ``upper``: the answer is the text in capitals (otherwise the text with every ``a`` turned into ``b``)
- ``ponder``: check the request until `release` is called
- ``hold``: read the prompt until `release` is called
- ``pause``: emit one round, then wait for `release`
- ``slow``: 50 ms a round
- ``length``: stop at the token limit; ``fail``: raise what nobody foresaw; ``empty``: end without a result
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np

from lookahead_edit.editor import Editor, EditRequest, EditResult, GenerateRequest, Progress
from lookahead_edit.metrics import SpeculationMetrics
from lookahead_edit.targets.recorded import RecordedTarget
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.types import ContextLengthExceeded, Draft, RequestCancelled, Round, SourceKind

MAX_CONTEXT_TOKENS = 4096
MODEL_NAME = "scripted"


class ScriptedEditor(Editor):
    """`log` tells what happened, e.g. ``["start hold", "cancelled hold"]``."""

    def __init__(self, *, rounds_of: int = 5, max_context_tokens: int = MAX_CONTEXT_TOKENS) -> None:
        target = RecordedTarget(lambda prompt: prompt, end_token_id=0, max_context_tokens=max_context_tokens)
        super().__init__(target, ByteTokenizer(), model_name=MODEL_NAME)
        self.rounds_of = rounds_of  # characters a round
        self.reset()

    def reset(self) -> None:
        """Forgets everything; the next ``hold`` holds again."""
        self.released = threading.Event()
        self.log: list[str] = []
        self.requests: list[EditRequest] = []

    def release(self) -> None:
        self.released.set()

    def wait_for(self, entry: str, seconds: float = 5.0) -> None:
        """Until the log has this entry."""
        deadline = time.monotonic() + seconds
        while entry not in self.log:
            assert time.monotonic() < deadline, f"no {entry!r} in {self.log}"
            time.sleep(0.002)

    def check(self, request: EditRequest | GenerateRequest) -> None:
        assert isinstance(request, EditRequest)
        if "ponder" in (request.instruction or "").split():
            self.log.append("ponder")
            self._wait(lambda: False)
        if len(request.text) >= self.target.max_context_tokens:
            raise ContextLengthExceeded(len(request.text), self.target.max_context_tokens)

    def stream(
        self, request: EditRequest, is_cancelled: Callable[[], bool] = lambda: False
    ) -> Iterator[Progress | EditResult]:
        name = request.instruction or ""
        script = name.split()
        self.requests.append(request)
        self.log.append(f"start {name}")
        try:
            if "hold" in script:
                self._wait(is_cancelled)
            if "fail" in script:
                raise ValueError("a secret of the program")
            if "empty" in script:
                return
            yield from self._rounds(request, script, is_cancelled)
            self.log.append(f"finish {name}")
        except (RequestCancelled, GeneratorExit):
            self.log.append(f"cancelled {name}")
            raise

    def _rounds(
        self, request: EditRequest, script: list[str], is_cancelled: Callable[[], bool]
    ) -> Iterator[Progress | EditResult]:
        answer = request.text.upper() if "upper" in script else request.text.replace("a", "b")
        finish_reason: Literal["stop", "length"] = "length" if "length" in script else "stop"
        if finish_reason == "length":
            answer = answer[: len(answer) // 2]
        metrics = SpeculationMetrics(num_prompt_tokens=7)
        for start in range(0, max(1, len(answer)), self.rounds_of):
            if is_cancelled():
                raise RequestCancelled("the request was cancelled")
            if "slow" in script:
                time.sleep(0.05)
            delta = answer[start : start + self.rounds_of]
            round_ = _round_of(min(64, len(delta)), request.prediction is not None)
            metrics.add(round_)
            yield Progress(delta, start, round_, metrics)
            if "pause" in script and start == 0:
                self._wait(is_cancelled)
        yield EditResult(
            before=request.text,
            text=answer,
            finish_reason=finish_reason,
            metrics=metrics,
            path=request.path,
            final_newline=answer.endswith("\n"),
        )

    def _wait(self, is_cancelled: Callable[[], bool]) -> None:
        while not self.released.wait(0.005):
            if is_cancelled():
                raise RequestCancelled("the request was cancelled")


def _round_of(num_tokens: int, has_prediction: bool) -> Round:
    """All tokens but the last were drafted, and one more that was refused."""
    kind = SourceKind.PREDICTION if has_prediction else SourceKind.FILE
    draft = Draft(np.arange(num_tokens, dtype=np.int32), np.full(num_tokens, kind, dtype=np.int8))
    return Round(
        tokens=np.zeros(num_tokens, dtype=np.int32),
        draft=draft,
        num_accepted_tokens=max(0, num_tokens - 1),
        verify_seconds=0.001,
        forward_seconds=0.001,
    )
