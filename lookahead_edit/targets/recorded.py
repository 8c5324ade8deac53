"""A target that replays a logged output, teacher-forced: replay, tests and server tests run without a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lookahead_edit.types import IntArray, Row, Verified, num_agreeing


class RecordedTarget:
    """Emits what was logged, whatever is drafted.

    Args:
        output_of: int32[num_prompt_tokens] -> int32[num_output_tokens], asked once a sequence.
        end_token_id: emitted past the logged output's end.
        vocab_size, max_context_tokens: what the target claims.

    Example:
        >>> target = RecordedTarget(lambda prompt: np.array([7, 8], np.int32), end_token_id=0)
    """

    def __init__(
        self,
        output_of: Callable[[IntArray], IntArray],
        *,
        end_token_id: int,
        vocab_size: int = 2**31 - 1,
        max_context_tokens: int = 2**31 - 1,
    ) -> None:
        self._output_of = output_of
        self._end_token_id = end_token_id
        self._vocab_size = vocab_size
        self._max_context_tokens = max_context_tokens
        self._outputs: dict[int, IntArray] = {}

    @property
    def max_context_tokens(self) -> int:
        return self._max_context_tokens

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    def verify(self, rows: Sequence[Row]) -> Verified:
        return Verified(tokens=[self._emit(row) for row in rows])

    def close(self, key: int) -> None:
        self._outputs.pop(key, None)

    def _emit(self, row: Row) -> IntArray:
        if row.is_cancelled():
            return np.zeros(0, dtype=np.int32)
        if row.key not in self._outputs:
            self._outputs[row.key] = self._output_of(row.tokens[: row.num_prompt_tokens])
        start = len(row.tokens) - row.num_prompt_tokens
        num_draft_tokens = len(row.draft)
        truth = np.full(num_draft_tokens + 1, self._end_token_id, dtype=np.int32)
        logged = self._outputs[row.key][start : start + num_draft_tokens + 1]
        truth[: len(logged)] = logged
        return truth[: num_agreeing(row.draft.tokens, truth) + 1]
