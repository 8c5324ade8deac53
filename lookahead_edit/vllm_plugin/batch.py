"""The proposer's work in one step of the engine: recognise rows, hear how drafts fared, read prompts on, draft anew.

The engine's loop turns around it, so this is `Engine.step` seen from the other side of a verification. Knows arrays,
drafters and a policy; imports nothing of vLLM.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from lookahead_edit.drafters.vocabulary import Vocabulary
from lookahead_edit.engine import within_vocabulary
from lookahead_edit.speculation import make_drafter, make_policy
from lookahead_edit.types import Draft, DraftTerms, IntArray, Round, Source, Tokenizer
from lookahead_edit.vllm_plugin.drafting import READING, RowDrafting
from lookahead_edit.vllm_plugin.options import ProposerOptions
from lookahead_edit.vllm_plugin.pass_costs import PassCosts
from lookahead_edit.vllm_plugin.rows import Row, RowTracker, Seen
from lookahead_edit.vllm_plugin.wishes import Wishes


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What the engine knows of a row beyond its tokens."""

    name: Hashable
    num_prompt_tokens: int
    max_output_tokens: int | None
    num_verified_tokens: int  # of its draft, in the pass that is over
    num_scheduled_tokens: int  # in that pass
    read_wishes: Callable[[], Wishes]


@dataclass(frozen=True, slots=True)
class StepFacts:
    """The same for a step, where the engine lets us see it."""

    rows: Sequence[RequestFacts]
    names: Sequence[Hashable]  # of all requests that the engine knows, also those not in the batch


@dataclass(frozen=True, slots=True)
class Report:
    """What one pass did for one request, for whoever stands in front of the engine."""

    name: str
    round: Round
    num_scheduled_tokens: int


@dataclass(slots=True)
class BatchStats:
    """Counters since the start. Pure."""

    num_steps: int = 0
    num_rows: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_emitted_tokens: int = 0
    num_indexed_prompts: int = 0
    propose_seconds: float = 0.0
    max_propose_seconds: float = 0.0
    step_seconds: float = 0.0  # of the engine, without ours
    num_rows_by_reason: dict[str, int] = field(default_factory=dict)


class DraftingBatch:
    """Drafts for all rows of an engine.

    Args:
        options: what drafts, and the bounds.
        max_draft_tokens: the engine's `num_speculative_tokens`; no draft is ever longer.
        max_model_len: no draft leads beyond it.
        vocab_size: drafted tokens are below it.
        tokenizer: None where the engine has none; then nothing is rewritten and no file is found.
        sources: texts that all rows may copy from, indexed once.
        is_on_cpu: whether passes cost what they do on a CPU, as long as nothing else is known.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        options: ProposerOptions,
        *,
        max_draft_tokens: int,
        max_model_len: int,
        vocab_size: int,
        tokenizer: Tokenizer | None,
        sources: Sequence[Source] = (),
        max_rows: int = 256,
        is_on_cpu: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.stats = BatchStats()
        self.cost_curve = options.cost_curve
        self.reports: list[Report] | None = None  # a list once somebody wants them
        self._options = options
        self._max_draft_tokens = max_draft_tokens
        self._max_model_len = max_model_len
        self._vocab_size = vocab_size
        self._tokenizer = tokenizer
        self._vocabulary = Vocabulary(tokenizer)
        self._sources = tuple(sources)
        self._clock = clock
        self._rows = RowTracker(max_rows)
        self._drafting: dict[int, RowDrafting] = {}  # by the row's key
        self._costs = PassCosts() if options.cost_curve is None else None
        self._speculation = replace(options.speculation, max_draft_tokens=max_draft_tokens)
        self._policy = make_policy(self._speculation, options.first_curve(is_on_cpu=is_on_cpu))
        self._ended = 0.0  # when the last step's drafts were ready
        self._drafted_keys: set[int] = set()
        make_drafter(self._speculation, tokenizer)  # compiles its kernels

    @property
    def num_rows(self) -> int:
        """Rows that are remembered, with their indices."""
        return len(self._drafting)

    @property
    def num_index_bytes(self) -> int:
        """Memory held for all rows, in bytes: a bound, and without the workspace, which they share."""
        return sum(drafting.num_index_bytes for drafting in self._drafting.values())

    def propose(
        self,
        sampled_token_ids: Sequence[Sequence[int]],
        num_tokens: NDArray[np.integer],
        token_ids: IntArray,
        facts: StepFacts | None = None,
    ) -> list[list[int]]:
        """A draft for each row, ``[]`` for none.

        Args:
            sampled_token_ids: what the pass emitted for each row; nothing where it only read a part of the prompt.
            num_tokens: integers[at least num_rows]: prompt and output, the emitted tokens included.
            token_ids: int32[at least num_rows, max_model_len].
            facts: see there.
        """
        began = self._clock()
        names = [None] * len(sampled_token_ids) if facts is None else [each.name for each in facts.rows]
        seen = [
            Seen(token_ids[index, : int(num_tokens[index])], len(sampled), names[index])
            for index, sampled in enumerate(sampled_token_ids)
        ]
        if facts is not None:
            self._rows.keep_only(facts.names)
        tracked = self._rows.track(seen)
        told: Sequence[RequestFacts | None] = [None] * len(seen) if facts is None else facts.rows
        for (row, is_new), each in zip(tracked, told, strict=True):
            if is_new:
                self._open(row, each)
        known = {row.key for row in self._rows}
        self._drafting = {key: drafting for key, drafting in self._drafting.items() if key in known}
        rows = [row for row, _ in tracked]
        rounds = self._commit(rows, seen, told)
        self._observe_pass(began, rows, rounds, told)
        self._read_prompts(rows)
        emitting = [index for index, each in enumerate(seen) if each.num_new_tokens]
        drafts = self._draft([rows[index] for index in emitting], [told[index] for index in emitting])
        answer: list[list[int]] = [[] for _ in seen]
        for index, draft in zip(emitting, drafts, strict=True):
            answer[index] = draft.tokens.tolist()
        self._ended = self._clock()
        self._count(rounds, drafts, self._ended - began)
        return answer

    def _open(self, row: Row, facts: RequestFacts | None) -> None:
        num_prompt_tokens = row.num_tokens if facts is None else min(facts.num_prompt_tokens, row.num_tokens)
        drafting = RowDrafting(
            row.tokens[:num_prompt_tokens],
            lambda: make_drafter(self._speculation, self._tokenizer),
            self._vocabulary,
            Wishes() if facts is None else facts.read_wishes(),
            self._sources,
        )
        if num_prompt_tokens < row.num_tokens:  # it was answered in part before we knew it
            drafting.commit(row.tokens[num_prompt_tokens:], 0)
        self._drafting[row.key] = drafting

    def _commit(
        self, rows: Sequence[Row], seen: Sequence[Seen], told: Sequence[RequestFacts | None]
    ) -> list[tuple[int, Round]]:
        """Each emitting row's key and round."""
        rounds = []
        for row, each, facts in zip(rows, seen, told, strict=True):
            tokens = each.tokens[row.num_tokens :].copy()
            drafting = self._drafting[row.key]
            if not len(tokens):
                self._report(drafting, facts, Round(tokens, Draft(reason=READING), 0))
                continue
            row.append(tokens)
            # Tokens of steps that nobody told us about are no answer to the draft.
            is_answer = len(tokens) == each.num_new_tokens
            num_verified_tokens = None if facts is None else facts.num_verified_tokens
            finished = drafting.commit(tokens, num_verified_tokens if is_answer else 0)
            rounds.append((row.key, finished))
            self._report(drafting, facts, finished)
        self._policy.observe([finished for _, finished in rounds], [key for key, _ in rounds])
        return rounds

    def _report(self, drafting: RowDrafting, facts: RequestFacts | None, finished: Round) -> None:
        if self.reports is not None and facts is not None and drafting.wishes.name is not None:
            self.reports.append(Report(drafting.wishes.name, finished, facts.num_scheduled_tokens))

    def _observe_pass(
        self,
        began: float,
        rows: Sequence[Row],
        rounds: Sequence[tuple[int, Round]],
        told: Sequence[RequestFacts | None],
    ) -> None:
        """Times the pass that is over, where it followed the last step at once and its size is known."""
        if not self._drafted_keys & {row.key for row in rows}:
            return  # nobody was waited for in between, so this was no pass but a pause
        seconds = began - self._ended
        self.stats.step_seconds += seconds
        if self._costs is None:
            return
        size = sum(facts.num_scheduled_tokens for facts in told if facts is not None)
        if None in told:
            if len(rounds) < len(rows) or any(key not in self._drafted_keys for key, _ in rounds):
                return  # a prompt was read besides
            size = sum(finished.num_draft_tokens + 1 for _, finished in rounds)
        curve = self._costs.observe(max(1, size), seconds)
        if curve is not None:
            self.cost_curve = curve
            self._policy = make_policy(self._speculation, curve)

    def _read_prompts(self, rows: Sequence[Row]) -> None:
        """Rows that wait for their first draft come first, for prompts are still read by the engine itself."""
        num_left = self._options.max_indexed_tokens_a_step
        waiting = [self._drafting[row.key] for row in rows if not self._drafting[row.key].is_ready]
        waiting.sort(key=lambda drafting: drafting.num_output_tokens == 0)
        for drafting in waiting:
            if not drafting.num_index_bytes and self.num_index_bytes >= self._options.max_index_bytes:
                continue  # until others leave
            while num_left > 0 and (num_read := drafting.read_on(num_left)):
                num_left -= num_read
            self.stats.num_indexed_prompts += drafting.is_ready

    def _draft(self, rows: Sequence[Row], told: Sequence[RequestFacts | None]) -> list[Draft]:
        limits = [self._limit(row, facts) for row, facts in zip(rows, told, strict=True)]
        guesses = [self._drafting[row.key].guess(limit).cut(limit) for row, limit in zip(rows, limits, strict=True)]
        terms = [DraftTerms(row.key, limit) for row, limit in zip(rows, limits, strict=True)]
        kept = self._policy.cut(guesses, terms) if rows else []
        drafts = [within_vocabulary(draft, self._vocab_size) for draft in kept]
        for row, draft in zip(rows, drafts, strict=True):
            self._drafting[row.key].draft = draft
        self._drafted_keys = {row.key for row in rows}
        return drafts

    def _limit(self, row: Row, facts: RequestFacts | None) -> int:
        """The longest draft that can be of use: the pass adds a token of its own."""
        limit = min(self._policy.max_draft_tokens, self._max_draft_tokens, self._max_model_len - row.num_tokens - 1)
        if facts is not None and facts.max_output_tokens is not None:
            limit = min(limit, facts.max_output_tokens - self._drafting[row.key].num_output_tokens - 1)
        return max(0, limit)

    def _count(self, rounds: Sequence[tuple[int, Round]], drafts: Sequence[Draft], seconds: float) -> None:
        stats = self.stats
        stats.num_steps += 1
        stats.num_rows += len(rounds)
        stats.propose_seconds += seconds
        stats.max_propose_seconds = max(stats.max_propose_seconds, seconds)
        for _, finished in rounds:
            stats.num_draft_tokens += finished.num_draft_tokens
            stats.num_accepted_tokens += finished.num_accepted_tokens
            stats.num_emitted_tokens += len(finished.tokens)
        for draft in drafts:
            if not len(draft):
                reason = draft.reason or "nothing drafted"
                stats.num_rows_by_reason[reason] = stats.num_rows_by_reason.get(reason, 0) + 1
