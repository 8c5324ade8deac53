"""The drafter for edits: copies the file as the model will write it on, and says how likely that is.

Four things propose what comes next: a cursor in the file, found again at once after a change; the same for the last
copy from elsewhere; the longest suffix of the output that occurs before; other files of the workspace. What the output
replaced once (a name, an indentation) is replaced in the rest of the file before it's copied (`rewriting`). Each
proposal's chance is estimated (`acceptance`), the one that saves most is drafted, and the policy cuts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from lookahead_edit.acceptance import acceptance_model
from lookahead_edit.config import SpeculationConfig
from lookahead_edit.cost import CostCurve, run_costs
from lookahead_edit.drafters.rewriting import Replacement, Rewriter, Rewritten
from lookahead_edit.drafters.vocabulary import HAS_NEWLINE, Vocabulary
from lookahead_edit.kernels import alignment
from lookahead_edit.kernels import candidates as places
from lookahead_edit.kernels.acceptance import rate_bin
from lookahead_edit.kernels.choice import NUM_WEIGHED_TOKENS, choose
from lookahead_edit.suffix_index import SuffixIndex, enlarged
from lookahead_edit.types import NO_TOKENS, Draft, IntArray, Source, SourceKind, Tokenizer
from lookahead_edit.workspace_index import WorkspaceCache, WorkspaceIndex

NOMINAL_COST_RATIO = 0.01  # at which proposals are weighed against each other; lengths are the policy's business
MAX_OVERRUN_TOKENS = 4  # what closes the file in the prompt (a fence) mostly closes the answer too
MAX_REWRITTEN_TOKENS = 4096  # ahead of the cursor; the file is plain after that
MAX_INSTRUCTION_TOKENS = 4096
PRIOR_BREAKS = 4.0  # weigh as much as so many breaks of this request's copies
MAX_LINE_TOKENS = 60  # looked back over for a line's beginning
MAX_COUNTED_TOKENS = 1 << 20  # of the vocabulary; larger ones are copied as well, but not counted and not linked
NO_WORKSPACE: IntArray = np.zeros(0, dtype=np.int32)
NO_WORKSPACE.flags.writeable = False  # as a workspace's text is: one kernel serves both


class EditDrafter:
    """Drafts an edit of a file; without a file, from what was said before.

    Args:
        config: nothing of it is used so far.
        tokenizer: for the texts of tokens; without one nothing is rewritten.
    """

    def __init__(self, config: SpeculationConfig, tokenizer: Tokenizer | None = None, *, is_warm: bool = False) -> None:
        if not is_warm:
            warm_up()
        self._tokenizer = tokenizer
        self._vocabulary = Vocabulary(tokenizer)
        self._model = acceptance_model()
        self._costs, self._futures = _nominal_costs()
        self._break_factor = 1.0
        self._num_breaks = self._num_expected_breaks = 0.0
        self._state = np.zeros(alignment.NUM_FIELDS, dtype=np.int64)
        self._candidates = np.zeros((places.MAX_CANDIDATES, 4), dtype=np.int64)
        self._features = np.zeros((places.MAX_CANDIDATES, places.NUM_FEATURES), dtype=np.float32)
        self._recent = np.zeros((2, places.MAX_RECENT), dtype=np.int32)
        self._found = np.zeros(4, dtype=np.int64)
        self._tokens = np.zeros(0, dtype=np.int32)
        self._copied_classes = np.zeros(0, dtype=np.int8)
        self._probabilities = np.zeros(0, dtype=np.float32)
        self._index: SuffixIndex | None = None
        self._chosen = alignment.NONE

    def start(self, prompt: IntArray, sources: Sequence[Source]) -> None:
        others = [source for source in sources if source.kind == SourceKind.CONTEXT and source.prompt_start is None]
        own = [source for source in sources if not (source.kind == SourceKind.CONTEXT and source.prompt_start is None)]
        self._index = SuffixIndex(prompt, own)
        self._workspace: WorkspaceIndex | None = workspace_cache().index(others) if others else None
        self._workspace_text = NO_WORKSPACE if self._workspace is None else self._workspace.text
        self._output_start = self._index.num_tokens
        self._chosen = alignment.NONE
        self._break_factor, self._num_breaks, self._num_expected_breaks = 1.0, 0.0, 0.0
        self._start_tables()
        self._start_file(own)
        if self._file is not None and self._file.prompt_start is not None and self._tokenizer is not None:
            head = prompt[max(self._file.prompt_start - MAX_INSTRUCTION_TOKENS, 0) : self._file.prompt_start]
            tail = prompt[self._file.prompt_start + len(self._file.tokens) :][:MAX_INSTRUCTION_TOKENS]
            self._rewriter.learn_from_instruction(self._tokenizer.decode(head) + "\n" + self._tokenizer.decode(tail))
        elif self._file is not None and self._tokenizer is not None:
            self._rewriter.learn_from_instruction(self._tokenizer.decode(prompt[-MAX_INSTRUCTION_TOKENS:]))
        if self._rewriter.is_active:
            self._predict()

    def draft(self, max_draft_tokens: int) -> Draft:
        assert self._index is not None, "start() comes first"
        self._chosen = alignment.NONE
        if max_draft_tokens <= 0:
            return Draft(reason="no room for a draft")
        count = self.find_candidates()
        if count == 0:
            return Draft(reason="no earlier occurrence of the last token")
        num_buffered = max(max_draft_tokens, NUM_WEIGHED_TOKENS)
        if len(self._tokens) < num_buffered:
            self._tokens = np.zeros(num_buffered, dtype=np.int32)
            self._copied_classes = np.zeros(num_buffered, dtype=np.int8)
            self._probabilities = np.zeros(num_buffered, dtype=np.float32)
        text, state, model = self._index.text, self._state, self._model
        chosen, num_tokens, first = choose(
            count,
            self._candidates,
            self._features,
            text,
            len(text),
            self._classes,
            self._predicted,
            self._predicted_classes,
            self._factors,
            self._num_predicted,
            self._workspace_text,
            rate_bin(state[alignment.NUM_BREAKS], state[alignment.NUM_EMITTED_TOKENS]),
            self._break_factor,
            model.roots,
            model.splits,
            model.thresholds,
            model.children,
            model.tail_log_odds,
            self._costs,
            self._futures,
            self._tokens,
            self._copied_classes,
            self._probabilities,
        )
        if chosen == alignment.NONE:
            return Draft(reason=f"no guess is likely enough, the best is right {first:.0%} of the time")
        num_tokens = min(num_tokens, max_draft_tokens)
        self._chosen = chosen
        return Draft(
            tokens=self._tokens[:num_tokens].copy(),
            sources=self._sources_of(chosen, num_tokens),
            match_length=max(1, int(self._candidates[chosen, places.EVIDENCE])),
            probabilities=self._probabilities[:num_tokens].copy(),
        )

    def commit(self, tokens: IntArray, draft: Draft, num_accepted_tokens: int) -> None:
        assert self._index is not None, "start() comes first"
        first = self._index.num_tokens
        array, position, evidence = alignment.NONE, alignment.NONE, 0
        if len(draft) > 0 and self._chosen != alignment.NONE:
            _, array, position, evidence = (int(value) for value in self._candidates[self._chosen])
        rejected = int(draft.tokens[num_accepted_tokens]) if num_accepted_tokens < len(draft) else alignment.NONE
        if array == places.IN_PREDICTED and self._rewritten is not None:
            self._observe(position, len(draft), num_accepted_tokens, tokens)
        self._count_breaks(draft, num_accepted_tokens)
        self._chosen = alignment.NONE
        self._append(tokens)
        alignment.follow(
            self._index.text,
            first,
            self._predicted,
            self._num_predicted,
            len(draft),
            num_accepted_tokens,
            rejected,
            position if array == places.IN_TEXT else alignment.NONE,
            evidence,
            self._state,
        )
        if self._state[alignment.HUNK_ENDED]:
            self._learn()

    @property
    def num_index_bytes(self) -> int:
        if self._index is None:
            return 0
        arrays = (self._classes, self._previous, self._last_seen, self._token_counts, self._predicted, self._places)
        own = sum(array.nbytes for array in (*arrays, self._factors, self._predicted_classes))
        return self._index.num_bytes + own + (0 if self._workspace is None else self._workspace.num_bytes)

    def find_candidates(self) -> int:
        """Fills candidates and features for the next token; how many there are. `corpora.acceptance` calls this too."""
        assert self._index is not None
        text = self._index.text
        if len(text) == 0:
            return 0
        match = self._index.longest_match()
        self._recent[0, : len(match.ends)] = match.ends
        self._found[places.WORKSPACE_POSITION] = alignment.NONE
        if self._workspace is not None:
            found = self._workspace.longest_match(text)
            if found.length > 0:
                self._found[:] = found.position, found.length, found.num_looked_at, found.num_agreeing
        return int(
            places.find_candidates(
                text,
                self._classes,
                match.length,
                len(match.ends),
                self._previous,
                self._predicted,
                self._predicted_classes,
                self._places,
                self._num_predicted,
                self._file_start,
                0 if self._file is None else len(self._file.tokens),
                self._output_start,
                self._token_counts,
                self._workspace_text,
                self._found,
                self._state,
                self._recent,
                self._candidates,
                self._features,
            )
        )

    def _start_tables(self) -> None:
        assert self._index is not None
        text = self._index.text
        self._classes = self._vocabulary.token_classes(text)
        num_known = min(int(text.max(initial=0)) + 1, MAX_COUNTED_TOKENS)
        self._last_seen = np.full(num_known, alignment.NONE, dtype=np.int32)
        self._token_counts = np.zeros(num_known, dtype=np.int32)
        self._previous = np.zeros(len(text), dtype=np.int32)
        alignment.enter_tokens(text, 0, self._previous, self._last_seen, self._token_counts)

    def _start_file(self, sources: Sequence[Source]) -> None:
        """A prediction is closer to the answer than the file, so it is what's copied if there is one."""
        assert self._index is not None
        alignment.reset(self._state)
        self._file: Source | None = None
        self._file_start = 0
        for kind in (SourceKind.FILE, SourceKind.PREDICTION):
            for source, start in zip(sources, self._index.starts, strict=True):
                if source.kind == kind and len(source.tokens):
                    self._file, self._file_start = source, start
        file = NO_TOKENS if self._file is None else self._file.tokens
        self._rewriter = Rewriter(self._tokenizer, file)
        self._rewritten: Rewritten | None = None
        self._rewritten_start = 0
        after = NO_TOKENS
        if self._file is not None and self._file.prompt_start is not None:
            after = self._index.text[self._file_start + len(file) :][:MAX_OVERRUN_TOKENS].copy()
        self._after_file = after
        self._set_predicted(
            NO_TOKENS, NO_TOKENS, Rewritten(file, np.arange(1, len(file) + 1, dtype=np.int32), _ones(len(file))), 0
        )

    def _set_predicted(self, before: IntArray, places_before: IntArray, rewritten: Rewritten, place: int) -> None:
        """What was copied so far, then the rewritten file from token `place` on, then the rest as it stands."""
        file = NO_TOKENS if self._file is None else self._file.tokens
        end = int(rewritten.positions[-1]) if len(rewritten.tokens) else place
        rest = file[end:]
        own = np.concatenate([np.array([place], dtype=np.int32), rewritten.positions])[: len(rewritten.tokens)]
        later = np.arange(end, end + len(rest) + len(self._after_file), dtype=np.int32)
        self._predicted = np.concatenate([before, rewritten.tokens, rest, self._after_file])
        self._places = np.concatenate([places_before, own, later])
        self._num_predicted = len(self._predicted)
        self._predicted_classes = self._vocabulary.token_classes(self._predicted)
        self._factors = _ones(self._num_predicted)
        self._factors[len(before) : len(before) + len(rewritten.tokens)] = rewritten.factors

    def _predict(self) -> None:
        """The rest of the file, under what is known now."""
        cursor = int(self._state[alignment.CURSOR])
        place = int(self._places[cursor]) if cursor < len(self._places) else alignment.NONE
        if place == alignment.NONE or self._file is None or place >= len(self._file.tokens):
            return
        rewritten = _without_cut_replacement(self._rewriter.copy(place, MAX_REWRITTEN_TOKENS))
        self._rewritten = rewritten if self._rewriter.is_active else None
        self._rewritten_start = cursor
        self._set_predicted(self._predicted[:cursor], self._places[:cursor], rewritten, place)

    def _observe(self, position: int, num_draft_tokens: int, num_accepted_tokens: int, tokens: IntArray) -> None:
        """Tells the rewriter how its part of the draft fared."""
        assert self._rewritten is not None
        offset = position - self._rewritten_start
        if offset < 0:
            return
        part = slice(offset, offset + num_draft_tokens)
        replacements = [
            Replacement(start - offset, end - offset, rule)
            for start, end, rule in self._rewritten.replacements
            if offset <= start < offset + num_draft_tokens
        ]
        if not replacements:
            return
        whole = self._rewritten
        rewritten = Rewritten(whole.tokens[part], whole.positions[part], whole.factors[part], replacements)
        is_corrected = num_accepted_tokens < min(num_draft_tokens, len(tokens))
        self._rewriter.observe(
            rewritten, num_accepted_tokens, int(tokens[num_accepted_tokens]) if is_corrected else None
        )

    def _count_breaks(self, draft: Draft, num_accepted_tokens: int) -> None:
        """How often copies broke after their first token, against how often they were expected to."""
        num_reached = min(num_accepted_tokens + 1, len(draft))
        if num_reached < 2 or draft.probabilities is None:
            return
        reached = draft.probabilities[:num_reached]
        self._num_expected_breaks += float((1.0 - reached[1:] / reached[:-1]).sum()) / self._break_factor
        self._num_breaks += num_accepted_tokens < len(draft)
        self._break_factor = (self._num_breaks + PRIOR_BREAKS) / (self._num_expected_breaks + PRIOR_BREAKS)

    def _learn(self) -> None:
        """A hunk of the output has ended: what was replaced there may be replaced again, and lines be indented so."""
        assert self._index is not None
        state, text = self._state, self._index.text
        old_start, old_end = int(state[alignment.OLD_START]), int(state[alignment.OLD_END])
        new = text[state[alignment.NEW_START] : state[alignment.NEW_END]]
        if old_start < old_end < self._num_predicted:
            start, end = int(self._places[old_start]), int(self._places[old_end])
            if alignment.NONE not in (start, end):
                self._rewriter.learn_hunk(start, end, new.copy())
        place = int(self._places[state[alignment.FOUND_CURSOR] - 1])
        if self._file is not None and 0 <= place < len(self._file.tokens):
            line_start = self._line_start(int(state[alignment.FOUND_END]))
            if line_start is not None:
                self._rewriter.set_line(place, line_start)
        if self._rewritten is not None or self._rewriter.is_active:  # the last rule may just have fallen asleep
            self._predict()
            if state[alignment.CURSOR] < self._num_predicted:
                alignment.follow_again(text, self._predicted, self._num_predicted, state)

    def _line_start(self, end: int) -> str | None:
        """The blanks that the line of ``text[end - 1]`` begins with; None if they can't be told, or it is blank."""
        assert self._index is not None
        start = end - 1
        limit = max(self._output_start, end - MAX_LINE_TOKENS)
        while start > limit and self._classes[start] != HAS_NEWLINE:
            start -= 1
        if start < limit or (start == limit and self._classes[start] != HAS_NEWLINE and limit != self._output_start):
            return None
        line = b"".join(self._vocabulary.texts_of(self._index.text[start:end])).rpartition(b"\n")[2]
        blanks = line[: len(line) - len(line.lstrip(b" \t"))]
        return blanks.decode() if len(blanks) < len(line) else None

    def _append(self, tokens: IntArray) -> None:
        assert self._index is not None
        first = self._index.num_tokens
        self._index.append(tokens)
        text = self._index.text
        if len(text) > len(self._classes):
            self._classes = enlarged(self._classes, 2 * len(text))
            self._previous = enlarged(self._previous, 2 * len(text))
        self._classes[first : len(text)] = self._vocabulary.token_classes(tokens)
        largest, num_known = int(tokens.max(initial=-1)) + 1, len(self._token_counts)
        if largest > num_known and num_known < MAX_COUNTED_TOKENS:
            self._token_counts = enlarged(self._token_counts, min(2 * largest, MAX_COUNTED_TOKENS))
            self._last_seen = enlarged(self._last_seen, len(self._token_counts))
            self._token_counts[num_known:] = 0
            self._last_seen[num_known:] = alignment.NONE
        alignment.enter_tokens(text, first, self._previous, self._last_seen, self._token_counts)

    def _sources_of(self, chosen: int, num_tokens: int) -> NDArray[np.int8]:
        assert self._index is not None
        array, position = int(self._candidates[chosen, places.ARRAY]), int(self._candidates[chosen, places.POSITION])
        sources = np.full(num_tokens, SourceKind.OUTPUT, dtype=np.int8)
        if array == places.IN_PREDICTED:
            assert self._file is not None
            sources[:] = self._file.kind
            num_file_tokens = self._num_predicted - len(self._after_file) - position
            sources[max(num_file_tokens, 0) :] = SourceKind.PROMPT
        elif array == places.IN_WORKSPACE:
            sources[:] = SourceKind.CONTEXT
        else:
            kinds = self._index.kinds[position : position + num_tokens]
            sources[: len(kinds)] = kinds
        return sources


def _without_cut_replacement(rewritten: Rewritten) -> Rewritten:
    """Up to the last token that a place in the file follows: the copy's end may cut a replacement in two."""
    whole = np.flatnonzero(rewritten.positions != alignment.NONE)
    end = int(whole[-1]) + 1 if len(whole) else 0
    replacements = [replacement for replacement in rewritten.replacements if replacement.end <= end]
    return Rewritten(rewritten.tokens[:end], rewritten.positions[:end], rewritten.factors[:end], replacements)


def _ones(number: int) -> NDArray[np.float32]:
    return np.ones(number, dtype=np.float32)


@cache
def _nominal_costs() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    costs = CostCurve.linear(NOMINAL_COST_RATIO).values(1, 512)
    return costs, run_costs(costs)


@cache
def workspace_cache() -> WorkspaceCache:
    """Indices of workspaces that were used lately, for all drafters of the process."""
    return WorkspaceCache()


@cache
def warm_up() -> None:
    """Compiles all kernels, or loads them from the disk cache."""
    drafter = EditDrafter(SpeculationConfig(), is_warm=True)
    tokens = np.array([1, 2, 3, 1, 2], dtype=np.int32)
    drafter.start(tokens, [Source(SourceKind.FILE, tokens[:3], prompt_start=0), Source(SourceKind.CONTEXT, tokens)])
    draft = drafter.draft(4)
    drafter.commit(np.array([9], dtype=np.int32), draft, 0)
