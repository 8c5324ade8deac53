"""Where each token of a replayed output came from: rounds to labelled spans of text. Pure; shows nothing.

Text is decoded in runs, never token by token: a character whose bytes are split over tokens appears with the token
that completes it. Special tokens, such as the end, have no text, and are named.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from lookahead_edit.replay_figures import TraceReplay, cost_of
from lookahead_edit.tokenizer import TextDecoder, special_token_names
from lookahead_edit.types import IntArray, Round, SourceKind, Tokenizer

CORRECTED = "corrected"  # the target's own token, right after a rejected draft
BONUS = "bonus"  # the target's own token, after a draft that was accepted whole
PLAIN = "plain"  # the token of a round without a draft
ORIGINS = (*(kind.label for kind in SourceKind), CORRECTED, BONUS, PLAIN)
NUM_TAIL_TOKENS = 8  # read before a draft's text, so that it may begin inside a character


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens of one round and one origin, and the text that they complete: none where that comes with a later one.

    A special token ends a span, and `special` is its name.
    """

    round_number: int  # from 1
    origin: str  # one of ORIGINS
    num_tokens: int
    text: str
    special: str | None = None


@dataclass(frozen=True, slots=True)
class ExplainedRound:
    """One round: what was drafted against what came. In its texts special tokens stand as `special_sign` has them."""

    number: int  # from 1
    num_tokens_before: int  # of the output
    num_tokens: int
    num_draft_tokens: int
    num_accepted_tokens: int
    match_length: int
    draft_origin: str | None  # of the draft's first token
    accepted_text: str
    rejected_text: str
    came_text: str  # what came in place of the rejected text, as many tokens
    reason: str | None  # why nothing was drafted

    def cost_per_token(self, cost: float) -> float:
        """Cost of the round over its tokens, where a further token costs `cost`; 1 + cost without a draft."""
        return cost_of(1, self.num_draft_tokens, cost) / self.num_tokens


@dataclass(frozen=True, slots=True)
class Explanation:
    """One replayed output; the texts of the spans, one after the other, are the output."""

    id: str
    num_tokens: int  # the end token included
    spans: tuple[Span, ...]
    rounds: tuple[ExplainedRound, ...]
    num_tokens_by_origin: dict[str, int]  # those that occur, in the order of ORIGINS

    @property
    def text(self) -> str:
        """The output as its tokens decode."""
        return "".join(span.text for span in self.spans)

    def costliest_rounds(self, cost: float, num_rounds: int = 10) -> list[ExplainedRound]:
        """Rounds with a rejected draft, those that paid most for a token first."""
        rejected = [
            explained for explained in self.rounds if explained.num_accepted_tokens < explained.num_draft_tokens
        ]
        ranked = sorted(rejected, key=lambda explained: (-explained.cost_per_token(cost), explained.number))
        return ranked[:num_rounds]


def special_sign(name: str) -> str:
    """How a special token is shown, unlike the text of its name; spans tell them apart in any case.

    >>> special_sign("<|im_end|>")
    '⟨<|im_end|>⟩'
    """
    return f"⟨{name}⟩"


def explain(replayed: TraceReplay, tokenizer: Tokenizer) -> Explanation:
    """Labels every token of the output.

    Args:
        replayed: one trace's rounds, to the end.
        tokenizer: which the trace's tokens are of.

    Example: a round drafted three tokens from the file and two were accepted: its spans are ``file`` with two tokens
    and ``corrected`` with one.
    """
    speller = _Speller(tokenizer, replayed.trace.end_token_id)
    decoder = TextDecoder(speller.decode)
    spans: list[Span] = []
    counts: Counter[str] = Counter()
    for number, finished in enumerate(replayed.rounds, start=1):
        run: list[Span] = []
        for origin, token in zip(_origins(finished), map(int, finished.tokens), strict=True):
            special = speller.names.get(token)
            text = decoder.push(token) if special is None else decoder.finish()
            run.append(Span(number, origin, 1, text, special))
            counts[origin] += 1
        spans.extend(_merge(run))
    assert not decoder.finish(), "the last token is the end"
    return Explanation(
        id=replayed.trace.id,
        num_tokens=counts.total(),
        spans=tuple(spans),
        rounds=tuple(_explain_rounds(replayed, speller)),
        num_tokens_by_origin={origin: counts[origin] for origin in ORIGINS if counts[origin]},
    )


def _origins(finished: Round) -> list[str]:
    """One of ORIGINS for each token of the round."""
    num_accepted = finished.num_accepted_tokens
    origins = [SourceKind(int(kind)).label for kind in finished.draft.sources[:num_accepted]]
    if len(finished.tokens) > num_accepted:
        is_whole = num_accepted == finished.num_draft_tokens
        origins.append(PLAIN if finished.num_draft_tokens == 0 else BONUS if is_whole else CORRECTED)
    return origins


def _merge(run: list[Span]) -> list[Span]:
    """Spans of one round and one token each, with neighbours of the same origin as one."""
    spans: list[Span] = []
    for span in run:
        if spans and spans[-1].origin == span.origin and spans[-1].special is None:
            last = spans.pop()
            num_tokens = last.num_tokens + span.num_tokens
            spans.append(Span(span.round_number, span.origin, num_tokens, last.text + span.text, span.special))
        else:
            spans.append(span)
    return spans


class _Speller:
    """Tokens to text, special ones by their names."""

    def __init__(self, tokenizer: Tokenizer, end_token_id: int) -> None:
        self.names = {end_token_id: "end"} | special_token_names(tokenizer)  # it may have no end token
        self._tokenizer = tokenizer
        self._end_token_id = end_token_id

    def decode(self, tokens: IntArray) -> str:
        """The text alone."""
        return self._tokenizer.decode(tokens[tokens != self._end_token_id])

    def text_after(self, before: IntArray, tokens: IntArray) -> str:
        """What `tokens` add to the text; where they begin inside a character, with the whole of it."""
        known = np.concatenate([before, tokens])
        pieces: list[str] = []
        start = len(before)
        for index, token in enumerate(map(int, tokens), start=len(before)):
            if name := self.names.get(token):
                pieces += [self._run_after(known[:start], known[start:index]), special_sign(name)]
                start = index + 1
        return "".join([*pieces, self._run_after(known[:start], known[start:])])

    def _run_after(self, before: IntArray, tokens: IntArray) -> str:
        if not len(tokens):
            return ""
        tail = before[-NUM_TAIL_TOKENS:]
        known = self.decode(tail).rstrip("\ufffd")
        return self.decode(np.concatenate([tail, tokens]))[len(known) :]


def _explain_rounds(replayed: TraceReplay, speller: _Speller) -> list[ExplainedRound]:
    output = np.append(replayed.trace.output, np.int32(replayed.trace.end_token_id))
    explained: list[ExplainedRound] = []
    start = 0
    for number, finished in enumerate(replayed.rounds, start=1):
        num_drafted, num_accepted = finished.num_draft_tokens, finished.num_accepted_tokens
        accepted_end = start + num_accepted
        rejected = finished.draft.tokens[num_accepted:]
        explained.append(
            ExplainedRound(
                number=number,
                num_tokens_before=start,
                num_tokens=len(finished.tokens),
                num_draft_tokens=num_drafted,
                num_accepted_tokens=num_accepted,
                match_length=finished.draft.match_length,
                draft_origin=SourceKind(int(finished.draft.sources[0])).label if num_drafted else None,
                accepted_text=speller.text_after(output[:start], output[start:accepted_end]),
                rejected_text=speller.text_after(output[:accepted_end], rejected),
                came_text=speller.text_after(
                    output[:accepted_end], output[accepted_end : accepted_end + len(rejected)]
                ),
                reason=finished.draft.reason,
            )
        )
        start += len(finished.tokens)
    return explained
