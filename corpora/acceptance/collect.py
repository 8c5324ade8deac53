"""What every candidate was worth: replays traces and keeps features and outcomes. The recorded output is the truth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lookahead_edit.config import SpeculationConfig
from lookahead_edit.cost import CostCurve
from lookahead_edit.drafters.edit import EditDrafter
from lookahead_edit.kernels import alignment
from lookahead_edit.kernels import candidates as places
from lookahead_edit.kernels.acceptance import NUM_FIRST_BINS, NUM_TAIL_PARTS, first_probability, rate_bin, tail_entries
from lookahead_edit.kernels.choice import copy_candidate
from lookahead_edit.policy_cost import CostPolicy
from lookahead_edit.replay import TokenTrace, replay_trace
from lookahead_edit.types import Draft, IntArray, Tokenizer

NUM_LOOKED_AT = 256  # tokens of each candidate
# Deep inside long copies nothing changes from token to token: every fourth one is enough.
NUM_DENSE_TOKENS = 8
SPARSE_STEP = 4
COST_RATIO = 0.01


@dataclass(frozen=True, slots=True)
class Samples:
    """One row for each candidate; of those that were drafted, one for each later token that its predecessors led to.

    Only those: that a candidate was chosen for how far it may go says something about how far it goes.
    """

    features: NDArray[np.float32]  # (num_candidates, NUM_FEATURES)
    is_accepted: NDArray[np.int8]  # (num_candidates,): its first token
    tail_entries: NDArray[np.int32]  # (num_tail_tokens, NUM_TAIL_PARTS)
    is_tail_accepted: NDArray[np.int8]  # (num_tail_tokens,)

    @staticmethod
    def joined(parts: Iterable[Samples]) -> Samples:
        """All rows, in order."""
        listed = list(parts)
        return Samples(
            np.concatenate([part.features for part in listed]),
            np.concatenate([part.is_accepted for part in listed]),
            np.concatenate([part.tail_entries for part in listed]),
            np.concatenate([part.is_tail_accepted for part in listed]),
        )


@njit(cache=True)
def fill_tail(  # type: ignore[no-untyped-def]
    kind, follows_file, evidence, first, classes, num_right, limit, rate, rows, outcomes, entries
):
    """Rows of the tokens after a candidate's first, up to the first wrong one; how many."""
    count = 0
    tenth = min(NUM_FIRST_BINS - 1, int(first * NUM_FIRST_BINS))
    for offset in range(1, min(num_right + 1, limit)):
        if offset > NUM_DENSE_TOKENS and offset % SPARSE_STEP:
            continue
        tail_entries(kind, follows_file, evidence, offset, classes[offset - 1], classes[offset], tenth, rate, entries)
        for part in range(NUM_TAIL_PARTS):
            rows[count, part] = entries[part]
        outcomes[count] = 1 if offset < num_right else 0
        count += 1
    return count


class CollectingDrafter(EditDrafter):
    """Drafts as usual, and looks at what every candidate would have been worth."""

    def __init__(self, tokenizer: Tokenizer, output: IntArray, end_token_id: int) -> None:
        super().__init__(SpeculationConfig(), tokenizer)
        self._truth = np.append(output, np.int32(end_token_id))
        self._num_committed = 0
        self._rows: list[NDArray[np.float32]] = []
        self._outcomes: list[int] = []
        self._tails: list[tuple[NDArray[np.int32], NDArray[np.int8]]] = []

    def draft(self, max_draft_tokens: int) -> Draft:
        draft = super().draft(max_draft_tokens)
        if max_draft_tokens > 0:
            self._look(self._num_candidates)
        return draft

    def commit(self, tokens: IntArray, draft: Draft, num_accepted_tokens: int) -> None:
        self._num_committed += len(tokens)
        super().commit(tokens, draft, num_accepted_tokens)

    @property
    def samples(self) -> Samples:
        """All that was seen."""
        return Samples(
            np.array(self._rows, dtype=np.float32).reshape(-1, places.NUM_FEATURES),
            np.array(self._outcomes, dtype=np.int8),
            np.concatenate([rows for rows, _ in self._tails] or [np.zeros((0, NUM_TAIL_PARTS), np.int32)]),
            np.concatenate([outcomes for _, outcomes in self._tails] or [np.zeros(0, np.int8)]),
        )

    def _look(self, count: int) -> None:
        assert self._index is not None
        text, state, model = self._index.text, self._state, self._model
        truth = self._truth[self._num_committed : self._num_committed + NUM_LOOKED_AT]
        rate = rate_bin(state[alignment.NUM_BREAKS], state[alignment.NUM_EMITTED_TOKENS])
        follows_file = alignment.is_following(len(self._file.tokens), state)
        tokens, classes = np.zeros(NUM_LOOKED_AT, np.int32), np.zeros(NUM_LOOKED_AT, np.int8)
        entries = np.zeros(8, np.int32)
        for index in range(count):
            token = places.first_token(self._candidates, index, text, self._file.tokens, self._workspace_text)
            self._rows.append(self._features[index].copy())
            self._outcomes.append(int(len(truth) > 0 and token == truth[0]))
        if self._chosen == alignment.NONE:
            return
        index = self._chosen
        first = first_probability(self._features[index], model.columns, model.thresholds, model.leaves)
        num_copied = copy_candidate(
            self._candidates,
            index,
            text,
            len(text),
            self._classes,
            self._file.tokens,
            self._file.classes,
            len(self._file.tokens),
            self._workspace_text,
            self._workspace_classes,
            tokens,
            classes,
        )
        limit = min(num_copied, len(truth))
        wrong = np.flatnonzero(tokens[:limit] != truth[:limit])
        num_right = int(wrong[0]) if len(wrong) else limit
        rows, outcomes = np.zeros((NUM_LOOKED_AT, NUM_TAIL_PARTS), np.int32), np.zeros(NUM_LOOKED_AT, np.int8)
        kind, evidence = int(self._candidates[index, places.TYPE]), int(self._candidates[index, places.EVIDENCE])
        number = fill_tail(
            kind, follows_file, evidence, first, classes, num_right, limit, rate, rows, outcomes, entries
        )
        self._tails.append((rows[:number].copy(), outcomes[:number].copy()))


def collect(traces: Iterable[TokenTrace], tokenizer: Tokenizer) -> Iterator[Samples]:
    """Samples of each trace, from the rounds that the present model and the cost policy lead to."""
    for trace in traces:
        drafter = CollectingDrafter(tokenizer, trace.output, trace.end_token_id)
        replay_trace(trace, drafter, CostPolicy(CostCurve.linear(COST_RATIO), 512))
        yield drafter.samples
