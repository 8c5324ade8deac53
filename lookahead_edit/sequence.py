"""One request's state: its tokens, drafter, stop rules and how it ended. Knows no text and no model."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from typing import Literal

import numpy as np

from lookahead_edit.config import SamplingConfig
from lookahead_edit.types import (
    ContextLengthExceeded,
    Draft,
    Drafter,
    DraftTerms,
    IntArray,
    InvalidInput,
    Round,
    Row,
    Source,
    StopRule,
    never,
    num_agreeing,
)

FinishReason = Literal["stop", "length", "cancelled"]
READING = "the prompt is still being read"
_next_key = itertools.count(1)


class EndTokenRule:
    """Stops after one of the given tokens; `has_stopped` tells whether it did."""

    def __init__(self, end_token_ids: frozenset[int]) -> None:
        self._end_token_ids = end_token_ids
        self.has_stopped = False

    def should_stop(self, tokens: IntArray, num_prompt_tokens: int) -> bool:
        self.has_stopped = int(tokens[-1]) in self._end_token_ids
        return self.has_stopped


class StopStringRule:
    """Stops once the generated text contains one of the strings.

    Only a tail of tokens is decoded: four for each character of the longest string, as no character takes more than
    four tokens (one for each UTF-8 byte), and a margin for strings that begin inside a token.
    """

    def __init__(self, decode: Callable[[IntArray], str], strings: SequenceOf[str]) -> None:
        self._decode = decode
        self._strings = tuple(strings)
        self._num_tail_tokens = 4 * max(len(string) for string in self._strings) + 8

    def should_stop(self, tokens: IntArray, num_prompt_tokens: int) -> bool:
        text = self._decode(tokens[max(num_prompt_tokens, len(tokens) - self._num_tail_tokens) :])
        return any(string in text for string in self._strings)


class Sequence:
    """A prompt being continued.

    Args:
        prompt: int32[num_prompt_tokens], at least one token.
        drafter: a fresh one, for this sequence alone; it is started here.
        sampling: how the target chooses tokens.
        max_tokens: the most that may be generated; less where the context ends before.
        max_context_tokens: the target's limit for prompt and output together.
        stop_rules: asked in order for every committed token.
        sources: texts the drafter may copy from, besides the prompt.
        is_cancelled: asked once a round; once it said so, it must keep saying so.
        cache_group: sequences of one group may reuse what the target keeps of each other; None: of nobody.
        max_draft_tokens: the most that is asked of the drafter; None: what the policy says.
        is_draft_forced: whether drafts go in whole, also where the policy finds that they don't pay.

    Raises:
        InvalidInput: empty prompt or max_tokens below one.
        ContextLengthExceeded: the prompt leaves no room for a single token.
    """

    def __init__(
        self,
        prompt: IntArray,
        *,
        drafter: Drafter,
        sampling: SamplingConfig,
        max_tokens: int,
        max_context_tokens: int,
        stop_rules: SequenceOf[StopRule] = (),
        sources: SequenceOf[Source] = (),
        is_cancelled: Callable[[], bool] = never,
        cache_group: str | None = None,
        max_draft_tokens: int | None = None,
        is_draft_forced: bool = False,
    ) -> None:
        if prompt.dtype != np.int32 or prompt.ndim != 1 or len(prompt) == 0:
            raise InvalidInput(
                f"expected a prompt of shape (n,) with n >= 1 and dtype int32, got {prompt.shape} {prompt.dtype}",
                param="prompt",
            )
        if max_tokens < 1:
            raise InvalidInput(f"expected max_tokens of at least 1, got {max_tokens}", param="max_tokens")
        if len(prompt) >= max_context_tokens:
            raise ContextLengthExceeded(len(prompt), max_context_tokens)
        self.key = next(_next_key)
        self.num_prompt_tokens = len(prompt)
        self.drafter = drafter
        self.sampling = sampling
        self.stop_rules = tuple(stop_rules)
        self.is_cancelled = is_cancelled
        self.cache_group = cache_group
        self.max_draft_tokens = max_draft_tokens
        self.is_draft_forced = is_draft_forced
        self.finish_reason: FinishReason | None = None
        self._max_length = self.num_prompt_tokens + min(max_tokens, max_context_tokens - len(prompt))
        self._buffer = np.zeros(self._max_length, dtype=np.int32)
        self._buffer[: len(prompt)] = prompt
        self._length = len(prompt)
        self._num_checked = len(prompt)
        self._is_stopped_at_checked = False
        self._guess: Draft | None = None  # made after the latest commit
        drafter.start(prompt, sources)

    @property
    def tokens(self) -> IntArray:
        """int32[num_tokens], prompt and output; a view."""
        return self._buffer[: self._length]

    @property
    def output(self) -> IntArray:
        """int32[num_output_tokens]; a view."""
        return self._buffer[self.num_prompt_tokens : self._length]

    @property
    def num_remaining_tokens(self) -> int:
        return self._max_length - self._length

    @property
    def is_finished(self) -> bool:
        return self.finish_reason is not None

    def guess(self, max_draft_tokens: int) -> Draft:
        """The drafter's guess of what follows; asked once, however many rounds go by until something is committed.

        `max_draft_tokens` is what `draft_terms` allows.
        """
        if self._guess is None:
            self._guess = self.drafter.draft(max(0, min(max_draft_tokens, self.num_remaining_tokens - 1)))
        return self._guess

    def draft_terms(self, max_draft_tokens: int) -> DraftTerms:
        """What the policy gets to know."""
        own = self.max_draft_tokens
        if own is None:
            own = max_draft_tokens
        elif not self.is_draft_forced:  # forced ones go in, however little the policy thinks of them
            own = min(own, max_draft_tokens)
        return DraftTerms(self.key, own, self.is_draft_forced)

    def row(self, draft: Draft) -> Row:
        """What the target gets to see."""
        return Row(
            key=self.key,
            tokens=self.tokens,
            num_prompt_tokens=self.num_prompt_tokens,
            draft=draft,
            sampling=self.sampling,
            should_stop=self.should_stop,
            is_cancelled=self.is_cancelled,
            cache_group=self.cache_group,
        )

    def should_stop(self, tokens: IntArray) -> bool:
        """Whether the sequence ends in the last of `tokens`; every rule hears every token once, in order.

        A sampler may ask before the tokens are committed; the answer for the latest length is kept for `commit`.
        """
        if len(tokens) == self._num_checked:
            return self._is_stopped_at_checked
        assert len(tokens) == self._num_checked + 1
        self._num_checked = len(tokens)
        is_stopped = False
        for rule in self.stop_rules:  # each is asked, whatever the others say
            is_stopped = rule.should_stop(tokens, self.num_prompt_tokens) or is_stopped
        self._is_stopped_at_checked = is_stopped
        return is_stopped

    def commit(self, emitted: IntArray, draft: Draft) -> Round:
        """Takes over emitted tokens up to the first stop or the limit, and tells the drafter.

        Without any, the sequence was cancelled, or the target is still reading its prompt.
        """
        assert not self.is_finished
        if len(emitted) == 0:
            is_cancelled = self.is_cancelled()
            if is_cancelled:
                self.finish_reason = "cancelled"
            return Round(
                tokens=emitted, draft=Draft(reason="cancelled" if is_cancelled else READING), num_accepted_tokens=0
            )
        self._guess = None
        start, end = self._length, min(self._length + len(emitted), self._max_length)
        self._buffer[start:end] = emitted[: end - start]
        for length in range(start + 1, end + 1):
            self._length = length
            if length >= self._num_checked and self.should_stop(self._buffer[:length]):
                self.finish_reason = "stop"
                break
        if self.finish_reason is None and self.num_remaining_tokens == 0:
            self.finish_reason = "length"
        committed = self._buffer[start : self._length].copy()
        num_accepted_tokens = num_agreeing(draft.tokens, committed)
        self.drafter.commit(committed, draft, num_accepted_tokens)
        return Round(tokens=committed, draft=draft, num_accepted_tokens=num_accepted_tokens)
