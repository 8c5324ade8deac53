"""vLLM in this process as a target: one `verify` is one step of its engine, which drafts by itself.

Knows requests by their sequences' keys, tokens and reports; the text, the stops and the queue are in front of it.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from lookahead_edit.failures import describe_failure
from lookahead_edit.types import NO_TOKENS, Draft, EngineUnavailable, IntArray, InvalidInput, Row, Verified
from lookahead_edit.vllm_plugin.batch import Report
from lookahead_edit.vllm_plugin.front import DRAFTED_BEHIND
from lookahead_edit.vllm_plugin.wishes import Wishes, to_extra_args

logger = logging.getLogger(__name__)

TAKE_REPORTS = "take_lookahead_reports"  # of `WorkerExtension`
# With drafts vLLM applies neither, without a word to the client (0.32: one line in its log).
IGNORED_SAMPLING = ("min_p", "logit_bias")


class LlmEngine(Protocol):
    """What is used of vLLM's `LLMEngine`."""

    def add_request(self, request_id: str, prompt: Any, params: Any) -> Any: ...

    def abort_request(self, request_ids: list[str]) -> None: ...

    def step(self) -> Sequence[Any]: ...

    def collective_rpc(self, method: str) -> list[Any]: ...


@dataclass(slots=True)
class _Live:
    """A request in the engine."""

    request_id: str
    pending: deque[tuple[IntArray, Draft]] = field(default_factory=deque)  # emitted and not asked for yet
    num_emitted_tokens: int = 0
    num_cached_tokens: int = 0
    ended: str | None = None


class VllmTarget:
    """One engine of vLLM, used by one thread.

    Args:
        engine: its `LLMEngine`.
        make_params: its `SamplingParams` for a row, with the given `extra_args`.
        max_context_tokens: its `max_model_len`.
        vocab_size: the model's.

    Errors: EngineUnavailable once the engine has failed, for it doesn't recover; InvalidInput for a request that it
    refuses.
    """

    ignored_sampling = IGNORED_SAMPLING

    def __init__(
        self,
        engine: LlmEngine,
        make_params: Callable[[Row, Mapping[str, Any], int], Any],
        *,
        max_context_tokens: int,
        vocab_size: int,
    ) -> None:
        self._engine = engine
        self._make_params = make_params
        self._max_context_tokens = max_context_tokens
        self._vocab_size = vocab_size
        self._wishes: dict[int, Wishes] = {}
        self._live: dict[int, _Live] = {}
        self._num_added = 0
        self._failure: str | None = None
        engine.collective_rpc(TAKE_REPORTS)  # from the first call on they are kept

    @property
    def max_context_tokens(self) -> int:
        return self._max_context_tokens

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    def check_health(self) -> None:
        """Raises EngineUnavailable once the engine has failed."""
        if self._failure is not None:
            raise EngineUnavailable(self._failure)

    def expect(self, key: int, wishes: Wishes) -> None:
        """Called from other threads than the engine's, so it only writes one entry."""
        self._wishes[key] = wishes

    def verify(self, rows: Sequence[Row]) -> Verified:
        self.check_health()
        active = [row for row in rows if not row.is_cancelled()]
        for row in active:
            if row.key not in self._live:
                self._add(row)
        started = time.perf_counter()
        reports = self._step() if active else {}
        seconds = time.perf_counter() - started
        verified = [self._take(row.key) for row in rows]
        tokens = [emitted for emitted, _ in verified]
        num_read = [self._num_read(reports.get(row.key), row.key) for row in rows]
        num_scheduled = sum(report.num_scheduled_tokens for report in reports.values())
        prefill_seconds = seconds * min(1.0, sum(num_read) / num_scheduled) if num_scheduled else 0.0
        return Verified(
            tokens=tokens,
            forward_seconds=seconds - prefill_seconds,
            prefill_seconds=prefill_seconds,
            num_read_tokens=num_read,
            num_cached_tokens=[self._take_cached(row.key, own) for row, own in zip(rows, tokens, strict=True)],
            drafts=[draft for _, draft in verified],
        )

    def close(self, key: int) -> None:
        self._wishes.pop(key, None)
        live = self._live.pop(key, None)
        if live is not None and live.ended is None and self._failure is None:
            self._engine.abort_request([live.request_id])

    def _add(self, row: Row) -> None:
        self._num_added += 1
        request_id = f"lookahead-{row.key}-{self._num_added}"  # a row that was closed may be opened again
        wishes = self._wishes.get(row.key, Wishes())
        named = Wishes(wishes.max_draft_tokens, wishes.file, wishes.sources, name=str(row.key))
        max_tokens = self._max_context_tokens - len(row.tokens)
        params = self._make_params(row, to_extra_args(named), max_tokens)
        try:
            self._engine.add_request(request_id, {"prompt_token_ids": row.tokens.tolist()}, params)
        except ValueError as error:
            raise InvalidInput(f"vLLM refuses the request: {str(error).partition(chr(10))[0]}") from error
        self._live[row.key] = _Live(request_id)

    def _step(self) -> dict[int, Report]:
        """One step of the engine; what it reports, by key."""
        try:
            outputs = self._engine.step()
            reports = {
                int(report.name): report for worker in self._engine.collective_rpc(TAKE_REPORTS) for report in worker
            }
        except Exception as error:
            self._failure = "the engine has died; the server has to be started again"
            logger.error("vLLM failed: %s", describe_failure(error))
            raise EngineUnavailable(self._failure) from error
        by_request_id = {live.request_id: (key, live) for key, live in self._live.items()}
        for output in outputs:
            key, live = by_request_id.get(output.request_id, (None, None))
            if live is None or key is None:
                continue
            tokens = np.asarray(output.outputs[0].token_ids, dtype=np.int32)
            if live.num_emitted_tokens == 0:
                live.num_cached_tokens = int(output.num_cached_tokens or 0)
            if len(tokens):
                draft = reports[key].round.draft if key in reports else Draft(reason=DRAFTED_BEHIND)
                live.pending.append((tokens, draft))
            if output.finished:
                live.ended = output.outputs[0].finish_reason or "unknown"
        return reports

    def _take(self, key: int) -> tuple[IntArray, Draft]:
        live = self._live.get(key)
        if live is None:  # cancelled before it began
            return NO_TOKENS, Draft()
        if live.pending:
            tokens, draft = live.pending.popleft()
            return tokens, draft
        if live.ended is not None:
            raise EngineUnavailable(f"the engine ended the request early ({live.ended})")
        return NO_TOKENS, Draft()

    def _num_read(self, report: Report | None, key: int) -> int:
        live = self._live.get(key)
        is_reading = live is not None and live.num_emitted_tokens == 0
        return report.num_scheduled_tokens if report is not None and is_reading else 0

    def _take_cached(self, key: int, tokens: IntArray) -> int:
        """Told once, with the first tokens."""
        live = self._live.get(key)
        if live is None or not len(tokens):
            return 0
        is_first = live.num_emitted_tokens == 0
        live.num_emitted_tokens += len(tokens)
        return live.num_cached_tokens if is_first else 0
