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
from lookahead_edit.drafters.predicted_file import PredictedFile
from lookahead_edit.drafters.track_record import TrackRecord
from lookahead_edit.drafters.vocabulary import HAS_NEWLINE, ClassArray, Vocabulary
from lookahead_edit.kernels import alignment
from lookahead_edit.kernels import candidates as places
from lookahead_edit.kernels import drafting as kernels
from lookahead_edit.kernels.choice import NUM_WEIGHED_TOKENS
from lookahead_edit.suffix_index import SuffixIndex, enlarged
from lookahead_edit.types import NO_TOKENS, Draft, IntArray, Source, SourceKind, Tokenizer, token_range
from lookahead_edit.workspace_index import WorkspaceCache, WorkspaceIndex

NOMINAL_COST_RATIO = 0.01  # at which proposals are weighed against each other; lengths are the policy's business
MAX_OVERRUN_TOKENS = 4  # what closes the file in the prompt (a fence) mostly closes the answer too
MAX_INSTRUCTION_TOKENS = 4096
PRIOR_BREAKS = 4.0  # weigh as much as so many breaks of this request's copies
MAX_LINE_TOKENS = 60  # looked back over for a line's beginning
MAX_COUNTED_TOKENS = 1 << 20  # of the vocabulary; larger ones are copied as well, but not counted and not linked
NO_WORKSPACE: IntArray = np.zeros(0, dtype=np.int32)
NO_WORKSPACE.flags.writeable = False  # as a workspace's text is: one kernel serves both
NO_CLASSES: ClassArray = np.zeros(0, dtype=np.int8)


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
        self._state = np.zeros(alignment.NUM_FIELDS, dtype=np.int64)
        self._candidates = np.zeros((places.MAX_CANDIDATES, 4), dtype=np.int64)
        self._features = np.zeros((places.MAX_CANDIDATES, places.NUM_FEATURES), dtype=np.float32)
        self._recent = np.zeros((2, places.MAX_RECENT), dtype=np.int32)
        self._found = np.zeros(4, dtype=np.int64)
        self._num_candidates = 0
        self._make_buffers(0)
        self._index: SuffixIndex | None = None
        self._chosen = alignment.NONE

    def start(self, prompt: IntArray, sources: Sequence[Source]) -> None:
        self.begin(prompt, sources)
        while not self.read_on(len(prompt) + 1):
            pass

    def begin(self, prompt: IntArray, sources: Sequence[Source]) -> None:
        """`start` in pieces: nothing but `read_on` until that says that all is read."""
        others = [source for source in sources if source.kind == SourceKind.CONTEXT and source.prompt_start is None]
        own = [source for source in sources if not (source.kind == SourceKind.CONTEXT and source.prompt_start is None)]
        self._index = SuffixIndex(prompt, own, is_read=False)
        self._unread = prompt, own
        self._workspace: WorkspaceIndex | None = workspace_cache().index(others) if others else None
        self._workspace_text, self._workspace_classes = NO_WORKSPACE, NO_CLASSES
        if self._workspace is not None:
            self._workspace_text = self._workspace.text
            self._workspace_classes = self._vocabulary.classes_of(self._workspace, self._workspace.text)
        self._chosen = alignment.NONE
        self._record = TrackRecord(places.NUM_CANDIDATE_TYPES)
        self._break_factor, self._num_breaks, self._num_expected_breaks = 1.0, 0.0, 0.0
        self._start_tables([prompt, *(source.tokens for source in own)])

    def read_on(self, max_tokens: int) -> bool:
        """Indexes at most so many more tokens, 0.1 to 0.3 µs each; whether all are read, and drafts can be asked for.

        The last call also reads what the prompt says beside the file, which takes some milliseconds.
        """
        assert self._index is not None, "begin() comes first"
        first = self._index.num_tokens
        is_read = self._index.read_on(max_tokens)
        self._enter_tokens(first)
        if is_read:
            self._output_start = self._index.num_tokens
            self._start_file(*self._unread)
        return is_read

    def draft(self, max_draft_tokens: int) -> Draft:
        assert self._index is not None, "start() comes first"
        self._chosen = alignment.NONE
        if max_draft_tokens <= 0:
            return Draft(reason="no room for a draft")
        index, file, model = self._index, self._file, self._model
        text = index.text
        if len(self._tokens) < max_draft_tokens:
            self._make_buffers(max_draft_tokens)
        self._found[places.WORKSPACE_POSITION] = alignment.NONE
        if self._workspace is not None:
            found = self._workspace.longest_match(text)
            if found.length > 0:
                self._found[:] = found.position, found.length, found.num_looked_at, found.num_agreeing
        self._num_candidates, chosen, num_tokens, first = kernels.draft(
            text,
            index.kinds,
            *index.automaton,
            self._classes,
            self._previous,
            file.tokens,
            file.classes,
            file.places,
            file.factors,
            self._file_kind,
            self._file_start,
            file.num_file_tokens,
            file.num_tokens_after_file,
            self._output_start,
            self._token_counts,
            self._workspace_text,
            self._workspace_classes,
            self._found,
            self._state,
            self._recent,
            self._candidates,
            self._features,
            self._break_factor,
            model.columns,
            model.thresholds,
            model.leaves,
            model.tail_odds,
            self._record.odds,
            self._costs,
            self._futures,
            max_draft_tokens,
            self._tokens,
            self._copied_classes,
            self._probabilities,
            self._sources,
        )
        if chosen == alignment.NONE:
            if self._num_candidates == 0:
                return Draft(reason="no earlier occurrence of the last token")
            tens = 10 * round(10.0 * first)  # reasons are counted, so there have to be few
            return Draft(reason=f"no guess is likely enough, the best is right about {tens} % of the time")
        self._chosen, self._first_probability = chosen, first
        return Draft(
            tokens=self._tokens[:num_tokens].copy(),
            sources=self._sources[:num_tokens].copy(),
            match_length=max(1, int(self._candidates[chosen, places.EVIDENCE])),
            probabilities=self._probabilities[:num_tokens].copy(),
        )

    def commit(self, tokens: IntArray, draft: Draft, num_accepted_tokens: int) -> None:
        assert self._index is not None, "start() comes first"
        file, first = self._file, self._index.num_tokens
        array, position, evidence = alignment.NONE, alignment.NONE, 0
        if len(draft) > 0 and self._chosen != alignment.NONE:
            _, array, position, evidence = self._candidates[self._chosen].tolist()
        rejected = int(draft.tokens[num_accepted_tokens]) if num_accepted_tokens < len(draft) else alignment.NONE
        if array == places.IN_PREDICTED:
            is_corrected = num_accepted_tokens < min(len(draft), len(tokens))
            correction = int(tokens[num_accepted_tokens]) if is_corrected else None
            file.observe(position, len(draft), num_accepted_tokens, correction)
        self._count_breaks(draft, num_accepted_tokens)
        if self._chosen != alignment.NONE:  # also where the policy let none of it in: the guess was right or wrong
            kind = int(self._candidates[self._chosen, places.TYPE])
            self._record.observe(kind, self._first_probability, bool(tokens[0] == self._tokens[0]))
        self._chosen = alignment.NONE
        self._append(tokens)
        alignment.follow(
            self._index.text,
            first,
            file.tokens,
            len(file.tokens),
            self._workspace_text,
            len(draft),
            num_accepted_tokens,
            rejected,
            alignment.NONE if array == places.IN_PREDICTED else position,
            array == places.IN_WORKSPACE,
            evidence,
            self._state,
        )
        if self._state[alignment.HUNK_ENDED]:
            line_start = self._line_start(int(self._state[alignment.FOUND_END]))
            file.learn_from_hunk(self._state, self._index.text, line_start)
        file.keep_ahead(int(self._state[alignment.CURSOR]))

    @property
    def num_index_bytes(self) -> int:
        if self._index is None:
            return 0
        arrays = (self._classes, self._previous, self._last_seen, self._token_counts)
        own = sum(array.nbytes for array in arrays) + self._file.num_bytes
        others = 0 if self._workspace is None else self._workspace.num_bytes + self._workspace_classes.nbytes
        return self._index.num_bytes + own + others

    def _make_buffers(self, max_draft_tokens: int) -> None:
        num_tokens = max(max_draft_tokens, NUM_WEIGHED_TOKENS)
        self._tokens = np.zeros(num_tokens, dtype=np.int32)
        self._copied_classes = np.zeros(num_tokens, dtype=np.int8)
        self._probabilities = np.zeros(num_tokens, dtype=np.float32)
        self._sources = np.zeros(num_tokens, dtype=np.int8)

    def _start_tables(self, texts: Sequence[IntArray]) -> None:
        num_tokens = sum(len(text) + 1 for text in texts)
        num_known = min(max(int(text.max(initial=0)) for text in texts) + 1, MAX_COUNTED_TOKENS)
        self._classes = np.zeros(num_tokens, dtype=np.int8)
        self._last_seen = np.full(num_known, alignment.NONE, dtype=np.int32)
        self._token_counts = np.zeros(num_known, dtype=np.int32)
        self._previous = np.zeros(num_tokens, dtype=np.int32)

    def _start_file(self, prompt: IntArray, sources: Sequence[Source]) -> None:
        """A prediction is closer to the answer than the file, so it is what's copied if there is one."""
        assert self._index is not None
        alignment.reset(self._state)
        found: Source | None = None
        self._file_start, self._file_kind = 0, int(SourceKind.FILE)
        for kind in (SourceKind.FILE, SourceKind.PREDICTION):
            for source, start in zip(sources, self._index.starts, strict=True):
                if source.kind == kind and len(source.tokens):
                    found, self._file_start, self._file_kind = source, start, int(kind)
        if found is None:
            self._file = PredictedFile(None)
            return
        before, after, lead = prompt, NO_TOKENS, alignment.MAX_LEAD_TOKENS
        if found.prompt_start is not None:
            text = self._index.text
            lead = alignment.agreeing(text, self._file_start, text, self._output_start, alignment.MAX_LEAD_TOKENS)
            before, after = prompt[: found.prompt_start], prompt[found.prompt_start + len(found.tokens) :]
        self._state[alignment.NUM_LEAD_TOKENS] = lead
        self._file = PredictedFile(self._tokenizer, found.tokens, after[:MAX_OVERRUN_TOKENS])
        if self._tokenizer is not None:
            parts = before[-MAX_INSTRUCTION_TOKENS:], after[:MAX_INSTRUCTION_TOKENS]
            self._file.learn_from_instruction("\n".join(self._tokenizer.decode(part) for part in parts if len(part)))

    def _count_breaks(self, draft: Draft, num_accepted_tokens: int) -> None:
        """How often copies broke after their first token, against how often they were expected to."""
        num_reached = min(num_accepted_tokens + 1, len(draft))
        if num_reached < 2 or draft.probabilities is None:
            return
        reached = draft.probabilities[:num_reached]
        self._num_expected_breaks += float((1.0 - reached[1:] / reached[:-1]).sum()) / self._break_factor
        self._num_breaks += num_accepted_tokens < len(draft)
        self._break_factor = (self._num_breaks + PRIOR_BREAKS) / (self._num_expected_breaks + PRIOR_BREAKS)

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
        if not len(tokens):
            return
        first = self._index.num_tokens
        self._index.append(tokens)
        num_tokens = self._index.num_tokens
        if num_tokens > len(self._classes):
            self._classes = enlarged(self._classes, 2 * num_tokens)
            self._previous = enlarged(self._previous, 2 * num_tokens)
        largest, num_known = token_range(tokens)[1] + 1, len(self._token_counts)
        if largest > num_known and num_known < MAX_COUNTED_TOKENS:
            self._token_counts = enlarged(self._token_counts, min(2 * largest, MAX_COUNTED_TOKENS))
            self._last_seen = enlarged(self._last_seen, len(self._token_counts))
            self._token_counts[num_known:] = 0
            self._last_seen[num_known:] = alignment.NONE
        self._enter_tokens(first)

    def _enter_tokens(self, first: int) -> None:
        assert self._index is not None
        text, known = self._index.text, self._vocabulary.class_table
        arrays = (self._previous, self._last_seen, self._token_counts, known, self._classes)
        if not alignment.enter_tokens(text, first, *arrays):
            self._classes[first : len(text)] = self._vocabulary.token_classes(text[first:])


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
