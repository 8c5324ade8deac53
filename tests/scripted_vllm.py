"""Calls a proposer as vLLM's model runner does, with recorded outputs in place of a model; rows move and leave."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np

from lookahead_edit.types import IntArray, num_agreeing
from lookahead_edit.vllm_plugin.batch import StepFacts
from lookahead_edit.vllm_plugin.runner_hook import step_facts


class Proposer(Protocol):
    def propose(
        self, sampled_token_ids: Any, num_tokens: Any, token_ids: IntArray, facts: StepFacts | None = None
    ) -> list[list[int]]: ...


END = 31  # a token that no text here has, so that no draft does


@dataclass(eq=False)
class Request:
    prompt: IntArray
    output: IntArray  # what the model says; END comes after it
    extra_args: dict[str, Any] | None = None
    num_emitted: int = 0
    num_read: int = 0  # of the prompt
    draft: list[int] = field(default_factory=list)
    drafts: list[list[int]] = field(default_factory=list)
    num_accepted: int = 0
    name: str = field(default_factory=itertools.count().__next__)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.output = np.append(self.output, np.int32(END))

    @property
    def tokens(self) -> IntArray:
        return np.concatenate([self.prompt, self.output[: self.num_emitted]])

    @property
    def is_finished(self) -> bool:
        return self.num_emitted == len(self.output)


class ScriptedRunner:
    """One engine with a batch of so many places.

    Args:
        max_draft_tokens: what the engine verifies at most; a longer draft fails the test, as it ends vLLM.
        chunk_tokens: of a prompt that are read in one step.
        tells_requests: whether the proposer is shown what the runner's hook shows.
        seed: of the places that rows take in each step.
    """

    def __init__(
        self,
        proposer: Proposer,
        *,
        max_draft_tokens: int,
        max_model_len: int = 4096,
        chunk_tokens: int = 4096,
        tells_requests: bool = False,
        max_rows: int = 16,
        seed: int | None = None,
    ) -> None:
        self.proposer = proposer
        self.num_steps = 0
        self.running: list[Request] = []
        self._max_draft_tokens = max_draft_tokens
        self._chunk_tokens = chunk_tokens
        self._tells_requests = tells_requests
        self._random = None if seed is None else np.random.default_rng(seed)
        self._token_ids = np.zeros((max_rows, max_model_len), dtype=np.int32)
        self._num_tokens = np.zeros(max_rows, dtype=np.int32)

    def run(self, requests: Sequence[Request], max_steps: int = 10_000) -> None:
        """All of them together, until they are finished."""
        self.running.extend(requests)
        while self.running:
            self.step()
            assert self.num_steps < max_steps

    def step(self, waiting: Sequence[Request] = ()) -> None:
        """One pass over all running requests but those that wait."""
        self.num_steps += 1
        batch = [request for request in self.running if request not in waiting]
        if self._random is not None:
            self._random.shuffle(batch)  # type: ignore[arg-type]
        sampled, verified, scheduled = [], {}, {}
        self._token_ids[:] = -7  # whoever reads what isn't a row's own finds no token
        for place, request in enumerate(batch):
            tokens = self._verify(request)
            if request.draft and tokens:
                verified[request.name] = request.draft
            scheduled[request.name] = max(1, len(request.draft) + 1 if tokens else self._chunk_tokens)
            request.draft = []
            sampled.append(tokens)
            self._num_tokens[place] = len(request.tokens)
            self._token_ids[place, : len(request.tokens)] = request.tokens
        facts = self._facts(batch, verified, scheduled) if self._tells_requests else None
        drafts = self.proposer.propose(sampled, self._num_tokens, self._token_ids, facts)
        assert len(drafts) == len(batch)
        for request, draft, tokens in zip(batch, drafts, sampled, strict=True):
            assert len(draft) <= self._max_draft_tokens
            assert not draft or len(request.tokens) + len(draft) < self._token_ids.shape[1]
            assert all(isinstance(token, int) for token in draft)
            if tokens:
                request.draft = draft
                request.drafts.append(draft)
        self.running = [request for request in self.running if not request.is_finished]

    def preempt(self, request: Request) -> None:
        """Its cache is lost: prompt and output are read again, and its draft is dropped."""
        request.num_read, request.draft = 0, []

    def _verify(self, request: Request) -> list[int]:
        num_known = len(request.tokens)
        if request.num_read < num_known - 1 or request.num_emitted == 0:
            request.num_read = min(num_known, request.num_read + self._chunk_tokens)
            if request.num_read < num_known:
                return []
        rest = request.output[request.num_emitted :]
        num_accepted = num_agreeing(np.asarray(request.draft, dtype=np.int32), rest)
        emitted = rest[: num_accepted + 1].tolist()
        request.num_accepted += num_accepted
        request.num_emitted += len(emitted)
        request.num_read = len(request.tokens) - 1
        return emitted

    def _facts(self, batch: Sequence[Request], verified: dict[Any, Any], scheduled: dict[Any, int]) -> StepFacts:
        def state(request: Request) -> SimpleNamespace:
            params = SimpleNamespace(extra_args=request.extra_args, max_tokens=len(request.output))
            return SimpleNamespace(num_prompt_tokens=len(request.prompt), sampling_params=params)

        runner = SimpleNamespace(
            input_batch=SimpleNamespace(req_ids=[request.name for request in batch]),
            requests={request.name: state(request) for request in self.running},
        )
        output = SimpleNamespace(scheduled_spec_decode_tokens=verified, num_scheduled_tokens=scheduled)
        return step_facts(runner, output, None)
