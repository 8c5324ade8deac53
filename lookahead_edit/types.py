"""Nouns and seams. Imports nothing of ours, and no heavy package.

A *round* is one forward pass of the target: it verifies a *draft* and emits the accepted prefix plus one token of
its own. Everything that varies stands behind a small Protocol: `Drafter`, `Policy`, `Target`, `StopRule`, `Tokenizer`.

Errors, all under one root::

    LookaheadEditError
    ├── InvalidInput (ValueError)        what the caller gave can't be used; `code` and `param` name it
    │   └── ContextLengthExceeded        prompt (and output) don't fit the model's context
    ├── UnsupportedModel                 the model can't be verified exactly here, and why
    ├── ModelUnavailable                 no such model, no network, a broken file
    ├── RequestRefused                   no work is taken now: `QueueFull`, `ShuttingDown`, `ModelLoading`,
    │                                    `EngineUnavailable`
    └── RequestStopped                   a request ended early: `RequestCancelled`, `RequestSuperseded`,
                                         `DeadlineExceeded`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from lookahead_edit.config import SamplingConfig

IntArray: TypeAlias = NDArray[np.int32]
SourceArray: TypeAlias = NDArray[np.int8]
FloatArray: TypeAlias = NDArray[np.float32]

NO_TOKENS: IntArray = np.zeros(0, dtype=np.int32)
NO_SOURCES: SourceArray = np.zeros(0, dtype=np.int8)


class LookaheadEditError(Exception):
    """Root of everything this package raises on purpose."""


class InvalidInput(LookaheadEditError, ValueError):
    """A value that can't be used.

    Args:
        message: one line, "expected X, got Y".
        param: the field or option at fault, if there is one.
        code: a stable word for programs, one of those in the HTTP error table.
    """

    def __init__(self, message: str, *, param: str | None = None, code: str = "invalid_value") -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class ContextLengthExceeded(InvalidInput):
    """The prompt, or the prompt and the least output it needs, don't fit the model's context.

    With `num_characters`, the text's, its tokens were not all counted: there are at least `num_prompt_tokens`.
    Where the model would take more, its `model_context_tokens` are set, and `limited_by` says whose limit it is.
    """

    def __init__(
        self, num_prompt_tokens: int, max_context_tokens: int, num_output_tokens: int = 0, *, num_characters: int = 0
    ) -> None:
        got = f"{num_prompt_tokens} prompt tokens"
        if num_characters:
            got = f"at least {got} in a text of {num_characters} characters"
        output = f" and room for {num_output_tokens} output tokens" if num_output_tokens else ""
        message = f"expected a prompt that fits, got {got}{output}"
        super().__init__(message, param="input", code="context_length_exceeded")
        self.num_prompt_tokens = num_prompt_tokens
        self.num_output_tokens = num_output_tokens
        self.max_context_tokens = max_context_tokens
        self.model_context_tokens: int | None = None
        self.limited_by = "this request"

    def __str__(self) -> str:
        # These words, as they are, are how clients (litellm, and aider with it) tell this error from others.
        limit, words = self.max_context_tokens, "this model's maximum context length is"
        if self.model_context_tokens is not None:
            words = f"{self.limited_by} has a limit of {limit} tokens for prompt and answer together, where {words}"
        return f"{super().__str__()}: {words} {self.model_context_tokens or limit} tokens"


class UnsupportedModel(LookaheadEditError):
    """The model has no cache that can be rolled back, and no way around it is known."""


class ModelUnavailable(LookaheadEditError):
    """The model can't be loaded: unknown name, no network, broken file."""


class RequestRefused(LookaheadEditError):
    """The server takes no work now."""


class QueueFull(RequestRefused):
    """The bounded queue is full; try again in a second."""


class ShuttingDown(RequestRefused):
    """The server finishes what it has and takes nothing new."""


class ModelLoading(RequestRefused):
    """The model isn't ready yet."""


class EngineUnavailable(RequestRefused):
    """The engine that runs the model can't be reached, or has died."""


class RequestStopped(LookaheadEditError):
    """A request ended before its answer was whole."""


class RequestCancelled(RequestStopped):
    """The client asked for it, or went away."""


class RequestSuperseded(RequestStopped):
    """A newer request of the same session took its place."""


class DeadlineExceeded(RequestStopped):
    """The request's time ran out."""


class SourceKind(IntEnum):
    """Where a drafted token was copied from; stored as int8 beside each token."""

    FILE = 0
    PREDICTION = 1
    PROMPT = 2
    OUTPUT = 3
    CONTEXT = 4
    MODEL = 5

    @property
    def label(self) -> str:
        """Lower-case name for reports, e.g. ``"file"``."""
        return self.name.lower()


def never() -> bool:
    """Answers `is_cancelled` for what nobody can cancel."""
    return False


def token_range(tokens: IntArray) -> tuple[int, int]:
    """The smallest and the largest of at least one token.

    Between forward passes any reduction of numpy's takes 8 µs, however few tokens there are; Python's own takes 2.
    """
    if len(tokens) > 64:
        return int(tokens.min()), int(tokens.max())
    numbers = tokens.tolist()
    return min(numbers), max(numbers)


def num_agreeing(draft_tokens: IntArray, chosen_tokens: IntArray) -> int:
    """Length of the common prefix: how many drafted tokens are accepted.

    Example:
        >>> num_agreeing(np.array([5, 6, 7], np.int32), np.array([5, 6, 9, 4], np.int32))
        2
    """
    length = min(len(draft_tokens), len(chosen_tokens))
    differs = np.flatnonzero(draft_tokens[:length] != chosen_tokens[:length])
    return int(differs[0]) if len(differs) else length


@dataclass(frozen=True, slots=True)
class Source:
    """A named token text that drafts may be copied from.

    `prompt_start` is set where the text also stands in the prompt, at that token: then
    ``prompt[prompt_start : prompt_start + len(tokens)] == tokens`` and a drafter need not index it twice.
    """

    kind: SourceKind
    tokens: IntArray  # int32[num_tokens]
    prompt_start: int | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True)
class ContextFile:
    """Another file of the workspace: drafts may be copied from it, it never enters the prompt."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Draft:
    """Guessed next tokens; empty with a `reason` where nothing was guessed.

    `match_length` is the number of tokens of the sequence's tail that agreed with the place copied from, or what other
    evidence is worth in agreeing tokens: the `suffix` drafter adds up to 3 for nearness to where it copied last, and
    gives 4 to the file's beginning at the answer's beginning.
    `probabilities[i]` is the estimated probability that the first i + 1 tokens are all accepted, so it never rises;
    None where the drafter makes no estimate.
    `distributions` is set by drafters that sample (a draft model): row i is the distribution token i was drawn from.
    """

    tokens: IntArray = field(default_factory=lambda: NO_TOKENS)  # int32[num_draft_tokens]
    sources: SourceArray = field(default_factory=lambda: NO_SOURCES)  # int8[num_draft_tokens], SourceKind
    match_length: int = 0
    probabilities: FloatArray | None = None  # float32[num_draft_tokens]
    distributions: FloatArray | None = None  # float32[num_draft_tokens, vocab_size]
    reason: str | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    def cut(self, num_draft_tokens: int, reason: str | None = None) -> Draft:
        """The first `num_draft_tokens` of this draft; `reason` is kept where that leaves nothing."""
        if num_draft_tokens >= len(self.tokens):
            return self
        return Draft(
            tokens=self.tokens[:num_draft_tokens],
            sources=self.sources[:num_draft_tokens],
            match_length=self.match_length,
            probabilities=None if self.probabilities is None else self.probabilities[:num_draft_tokens],
            distributions=None if self.distributions is None else self.distributions[:num_draft_tokens],
            reason=reason if num_draft_tokens == 0 else self.reason,
        )


@dataclass(frozen=True, slots=True)
class Round:
    """What one forward pass of the target did for one sequence.

    `tokens` are the committed ones: up to `num_accepted_tokens` of the draft, then one of the target's own unless a
    stop rule or the limit ended the sequence inside the accepted prefix. There are none, and no draft, where the step
    only read more of the sequence's prompt, or the sequence was cancelled.

    Draft and verify seconds are those of the whole step, shared by its `batch_size` rows. So is the sum of forward and
    prefill seconds, the time in the model; the prefill is the share of it that read this sequence's own prompt.
    """

    tokens: IntArray  # int32[num_emitted_tokens]
    draft: Draft
    num_accepted_tokens: int
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    forward_seconds: float = 0.0
    prefill_seconds: float = 0.0
    batch_size: int = 1
    num_cached_tokens: int = 0  # prompt tokens found in a cache: in the first round of a sequence, 0 in the others

    @property
    def num_draft_tokens(self) -> int:
        return len(self.draft)


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence's part of a round, as a target sees it."""

    key: int  # the live sequence; a target keeps its cache under this key until close(key)
    tokens: IntArray  # int32[num_tokens]: prompt and everything committed so far
    num_prompt_tokens: int
    draft: Draft
    sampling: SamplingConfig
    should_stop: Callable[[IntArray], bool]  # int32[num_tokens] ending in a candidate token -> does it end there?
    is_cancelled: Callable[[], bool]  # asked once a round, before anything is read
    cache_group: str | None = None  # rows of one group may reuse each other's caches; None: nobody's, and nobody its


@dataclass(frozen=True, slots=True)
class Verified:
    """What a target answers: emitted tokens a row (accepted prefix + one).

    They are empty for a row whose prompt is still being read, and for one that was cancelled. The lists are as long as
    there are rows; an empty one stands for zeros.
    """

    tokens: list[IntArray]
    forward_seconds: float = 0.0  # in the model, without the part that read prompts
    prefill_seconds: float = 0.0  # the part that read prompts
    num_read_tokens: list[int] = field(default_factory=list)  # of each row's prompt, in this round
    num_cached_tokens: list[int] = field(default_factory=list)  # of a new row's prompt, found in a cache
    # Of a target that drafts by itself, as an engine of its own does: what it verified, in place of what it was given.
    drafts: list[Draft] = field(default_factory=list)


class Drafter(Protocol):
    """Guesses the next tokens of one sequence. Made anew for each sequence by a plain factory."""

    def start(self, prompt: IntArray, sources: Sequence[Source]) -> None:
        """Reads the prompt, int32[num_prompt_tokens], and the other texts that may be copied from."""

    def draft(self, max_draft_tokens: int) -> Draft:
        """Guesses at most `max_draft_tokens` tokens that follow what was committed so far."""

    def commit(self, tokens: IntArray, draft: Draft, num_accepted_tokens: int) -> None:
        """Hears what was emitted, int32[num_emitted_tokens], and how the verified part of its draft fared."""

    @property
    def num_index_bytes(self) -> int:
        """Memory held by the drafter's index, in bytes."""


@dataclass(frozen=True, slots=True)
class DraftTerms:
    """What a policy must know of the row that a draft is for."""

    key: int  # the live sequence: accounts are kept under it
    max_draft_tokens: int  # a draft of so many was cut there, and would go on
    is_forced: bool = False  # the whole draft is verified, whether it pays or not


class Policy(Protocol):
    """Decides how many of the guessed tokens are worth verifying."""

    @property
    def max_draft_tokens(self) -> int:
        """The most it will ever keep; drafters are asked for no more."""

    def cut(self, drafts: Sequence[Draft], terms: Sequence[DraftTerms] | None = None) -> list[Draft]:
        """Cuts each row's draft, knowing that all rows share one forward pass.

        Without `terms` the rows are known by their places.
        """

    def observe(self, rounds: Sequence[Round], keys: Sequence[int] | None = None) -> None:
        """Hears the outcome for the rows that emitted something; `keys` are those of their terms."""


class Target(Protocol):
    """Verifies drafts exactly. Knows no strings, no sources and no policy."""

    @property
    def max_context_tokens(self) -> int:
        """Prompt and output together never exceed this."""

    @property
    def vocab_size(self) -> int:
        """Drafted tokens are below this; a draft is cut before the first that isn't."""

    def verify(self, rows: Sequence[Row]) -> Verified:
        """One round for all rows; a row with an unknown key is new, and its prompt is read first.

        A long prompt may take several calls, in which the other rows go on; its row emits nothing until then.
        """

    def close(self, key: int) -> None:
        """Frees what is kept for the row; an unknown key is no error."""


class StopRule(Protocol):
    """Ends a sequence. Asked once for every committed token, in order."""

    def should_stop(self, tokens: IntArray, num_prompt_tokens: int) -> bool:
        """`tokens`, int32[num_tokens], ends in the token just committed."""


class Tokenizer(Protocol):
    """Text to tokens and back."""

    def encode(self, text: str, *, parse_special: bool = True) -> IntArray:
        """int32[num_tokens]; nothing is added. With `parse_special`, text such as ``<|im_end|>`` becomes its token."""

    def encode_with_offsets(self, text: str, *, parse_special: bool = True) -> tuple[IntArray, NDArray[np.int64]]:
        """Also int64[num_tokens, 2]: each token's first character and the one after its last."""

    def decode(self, tokens: IntArray) -> str:
        """Text without special tokens; an incomplete UTF-8 sequence becomes U+FFFD."""

    def token_bytes(self, token: int) -> bytes | None:
        """What the token stands for inside a text, in UTF-8; None for special tokens and where it can't be told."""

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], prefill: str, tools: Sequence[Mapping[str, Any]] = ()
    ) -> str:
        """The chat template with the assistant's turn opened by `prefill`; a template may know no tools.

        Raises InvalidInput where the template refuses the messages.
        """

    def prepare_for_threads(self) -> None:
        """From now on, calls from several threads don't wait for each other; may take a second, and memory."""

    @property
    def start_token_ids(self) -> tuple[int, ...]:
        """What the model expects before a text that begins its context; chat templates write it themselves."""

    @property
    def special_texts(self) -> tuple[str, ...]:
        """What `parse_special` would turn into special tokens."""

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Tokens that end an answer; may be empty."""
