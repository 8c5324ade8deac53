"""A request while it is answered: its sequence, its counters and its text. Whoever steps the engine owns it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from lookahead_edit.metrics import SpeculationMetrics
from lookahead_edit.sequence import Sequence
from lookahead_edit.tasks import FinishReason, Progress
from lookahead_edit.tokenizer import TextDecoder
from lookahead_edit.types import IntArray, RequestCancelled, Round, Source

Result = TypeVar("Result", covariant=True)


class AnswerText(Protocol):
    """Takes the answer's text piece by piece, and says where it ends."""

    @property
    def is_finished(self) -> bool:
        """Whether the answer is closed, so that nothing behind it counts."""

    def push(self, text: str) -> str:
        """Takes the next piece and returns what can be given out, possibly nothing."""

    def finish(self) -> str:
        """The text is over: returns what was held back."""


class LiveRequest(Generic[Result]):
    """One request between its first round and its result.

    Step the engine with `sequence`, hand each finished Round to `take`, ask for `result` once the sequence is finished,
    and close the sequence's key in the target, whatever happened.

    Args:
        sequence: stops where `text` says so, so `text` must be one of its stop rules.
        text: cleans the answer.
        metrics: hears of every round.
        conclude: makes the result, once.
        sources: what may be copied from, besides the prompt.

    Example::

        live = editor.open(EditRequest(text, instruction="Rename total to price."))
        for finished in engine.generate(live.sequence):
            print(live.take(finished).delta, end="")
        print(live.result().diff())
    """

    def __init__(
        self,
        sequence: Sequence,
        text: AnswerRule,
        metrics: SpeculationMetrics,
        conclude: Callable[[FinishReason, SpeculationMetrics], Result],
        sources: tuple[Source, ...] = (),
    ) -> None:
        self.sequence = sequence
        self.sources = sources
        self.metrics = metrics
        self._text = text
        self._conclude = conclude
        self._num_given_characters = 0

    def take(self, finished: Round) -> Progress:
        """Counts a round of the sequence and gives out the text it added.

        Raises:
            RequestCancelled: the round ended the sequence because nobody waits for it.
            Exception: what a stop rule raised while the round was committed.
        """
        self.metrics.add(finished)
        if self.sequence.finish_reason == "cancelled":
            raise RequestCancelled("the request was cancelled")
        if self.sequence.is_finished:
            self._text.finish()
        self.metrics.max_index_bytes = max(self.metrics.max_index_bytes, self.sequence.drafter.num_index_bytes)
        delta, token_texts = self._text.take()
        progress = Progress(delta, self._num_given_characters, finished, self.metrics, token_texts)
        self._num_given_characters += len(delta)
        return progress

    def result(self) -> Result:
        """What became of it; the sequence must be finished, and not cancelled."""
        assert self.sequence.finish_reason in ("stop", "length")
        return self._conclude("length" if self.sequence.finish_reason == "length" else "stop", self.metrics)


class AnswerRule:
    """The stop rule that feeds committed tokens to the answer's text, and stops where that is finished.

    It never raises inside a round, which rows of other requests share: what went wrong ends the sequence, and `take`
    raises it.
    """

    def __init__(self, decoder: TextDecoder, answer: AnswerText) -> None:
        self._decoder = decoder
        self._answer = answer
        self._pending: list[str] = []
        self._token_texts: list[str] = []
        self._error: Exception | None = None

    def should_stop(self, tokens: IntArray, num_prompt_tokens: int) -> bool:
        """Hears the token that was just committed."""
        try:
            self._token_texts.append(self._decoder.push(int(tokens[-1])))
            self._pending.append(self._answer.push(self._token_texts[-1]))
        except Exception as error:
            self._error = error
            return True
        return self._answer.is_finished

    def finish(self) -> None:
        """Nothing more comes."""
        rest = self._decoder.finish()
        if self._token_texts:
            self._token_texts[-1] += rest
        self._pending.append(self._answer.push(rest))
        self._pending.append(self._answer.finish())

    def take(self) -> tuple[str, tuple[str, ...]]:
        """The text that came since the last call, and what each token since then was decoded to."""
        if self._error is not None:
            raise self._error
        text, token_texts = "".join(self._pending), tuple(self._token_texts)
        self._pending, self._token_texts = [], []
        return text, token_texts
