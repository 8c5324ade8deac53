"""Copies a file as the model will write it: with words replaced, and lines moved to the right or left.

What is replaced is learned from the instruction and from edits seen so far. Rules work on text; what they change is
kept as patches of the file's tokens, made by re-encoding what stands between two blanks, as a new word changes how its
neighbours are split. Knows nothing of where to copy from, nor how far.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lookahead_edit.drafters.file_text import Edits, Exchange, FileText
from lookahead_edit.drafters.indentation import Shift, shift_after
from lookahead_edit.drafters.substitutions import Substitution, from_hunk, from_instruction
from lookahead_edit.drafters.vocabulary import Vocabulary
from lookahead_edit.types import FloatArray, IntArray, Tokenizer

MAX_RULES = 64
MAX_HUNK_TOKENS = 64
BLOCK_TOKENS = 128  # patches are made for so many tokens of the file at once
MARGIN_TOKENS = 128  # and looked for so far around them, as a patch may begin before what it changes
MIN_TRUST = 0.5  # rules trusted less are kept, not applied: the words more likely stay
MAX_FAILURES = 2  # one after the other, then a rule sleeps
PRIOR_WEIGHT = 4.0  # a rule's first trust counts as so many outcomes
SEEN_AGAIN_WEIGHT = 2.0
KEPT_WEIGHT = 0.8  # words that stayed as they were before a hunk count as so many failures
MAX_KEPT = 5
SHIFT_TRUST = 0.9
NOWHERE = np.zeros(0, dtype=np.int64)
MAX_EXCHANGES = 5000  # remembered, about 2 MB


@dataclass(slots=True, eq=False)
class Rule:
    """Whole words `old` become `new`, or lines are moved, where both are empty."""

    old: bytes
    new: bytes
    num_successes: float
    num_failures: float
    occurrences: NDArray[np.int64]  # int64[num_occurrences]: bytes of the file's text
    num_failures_in_a_row: int = 0

    @property
    def trust(self) -> float:
        return self.trust_after(0)

    def trust_after(self, num_right: int) -> float:
        """Probability that it is right once more after `num_right` times: Laplace's rule, with counts to begin with."""
        num_successes = self.num_successes + num_right
        return num_successes / (num_successes + self.num_failures)

    @property
    def is_awake(self) -> bool:
        return self.num_failures_in_a_row < MAX_FAILURES and self.trust >= MIN_TRUST


class Replacement(NamedTuple):
    """Tokens `start` to `end` of a draft are `rule`'s, not the file's."""

    start: int
    end: int
    rule: Rule


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A copy of the file from some token on.

    `positions[i]` is the token of the file that follows once ``tokens[: i + 1]`` are accepted; -1 inside a replacement.
    `factors[i]` is 1, but at the first token of a replacement its rule's trust, 0 to 1, if those before it are right.
    """

    tokens: IntArray  # int32[num_tokens]
    positions: IntArray  # int32[num_tokens]
    factors: FloatArray  # float32[num_tokens]
    replacements: Sequence[Replacement] = ()  # in order; the last may end after the tokens


class _Edit(NamedTuple):
    """Bytes `start` to `end` become `new`; re-encoded is what holds `first` to `last`."""

    start: int
    end: int
    new: bytes
    rule: Rule
    first: int
    last: int


class _Chunk(NamedTuple):
    """Tokens `first` to `last` of the file, and what is edited there: equal keys mean equal exchanges of tokens."""

    first: int
    last: int
    key: tuple[bytes, Edits]
    rules: list[Rule]  # one for each edit


class _Patch(NamedTuple):
    """Tokens `start` to `end` of the file become `tokens`, int32[at least 1]."""

    start: int
    end: int
    tokens: IntArray
    positions: IntArray  # -1, and `end` at last
    rule: Rule


class Rewriter:
    """The file of one request, copied under what was learned so far.

    Args:
        tokenizer: None: nothing is ever rewritten.
        file: int32[num_file_tokens].

    Example:
        >>> tokenizer = ByteTokenizer()
        >>> rewriter = Rewriter(tokenizer, tokenizer.encode("f(x)"))
        >>> rewriter.learn_from_instruction("rename x to yz")
        >>> rewriter.copy(1, 9).tokens.tobytes().decode("utf-32-le"), rewriter.copy(1, 9).positions.tolist()
        ('(yz)', [2, -1, 3, 4])
    """

    def __init__(self, tokenizer: Tokenizer | None, file: IntArray) -> None:
        self._vocabulary = Vocabulary(tokenizer)
        self._can_rewrite = tokenizer is not None and len(file) > 0
        self._file = file
        self._num_tokens = len(file)
        self._positions = np.arange(1, len(file) + 1, dtype=np.int32)
        self._ones = np.ones(1024, dtype=np.float32)
        self._file_text: FileText | None = None
        self._rules: dict[bytes, Rule] = {}
        self._awake: list[Rule] = []
        self._shift: Shift | None = None
        self._shift_rule = Rule(b"", b"", 1, 0, NOWHERE)
        self._is_active = False
        self._blocks: dict[int, list[_Patch]] = {}
        self._exchanges: dict[tuple[bytes, Edits], list[Exchange]] = {}

    @property
    def is_active(self) -> bool:
        """Is there a rule, or a shift of lines, that `copy` applies?"""
        return self._is_active

    def learn_from_instruction(self, text: str) -> None:
        """Reads the prompt's text outside of the file, such as "rename X to Y"; X must be whole words of the file."""
        if self._can_rewrite:
            for substitution in from_instruction(text):
                self._learn(substitution)

    def learn_hunk(self, old_start: int, old_end: int, new_tokens: IntArray) -> None:
        """The file's tokens `old_start` to `old_end` became `new_tokens`, int32[num_new_tokens], and it goes on behind.

        Teaches a rule where words became others in one line; insertions and deletions teach nothing.
        """
        num_old, num_new = old_end - old_start, len(new_tokens)
        if not self._can_rewrite or not (0 < num_old <= MAX_HUNK_TOKENS and 0 < num_new <= MAX_HUNK_TOKENS):
            return
        text = self._text
        start, end = int(text.starts[old_start]), int(text.starts[old_end])
        try:
            new = b"".join(self._vocabulary.texts_of(new_tokens)).decode()
            old = text.content[start:end].decode()
        except UnicodeDecodeError:
            return
        before = text.content[max(start - 80, 0) : start].decode("utf-8", "replace")
        after = text.content[end : end + 80].decode("utf-8", "replace")
        for substitution in from_hunk(before, old, new, after):
            self._learn(substitution, start)

    def set_line(self, position: int, output_line_start: str) -> None:
        """The output's line began with these blanks, and went on, where the file's line holds token `position`.

        Following lines are moved as much, as far as the block of lines that are indented no less than this one goes.
        """
        if not self._can_rewrite:
            return
        text = self._text
        line = text.line_of(min(position, self._num_tokens - 1))
        if text.is_blank[line]:
            return
        shift = shift_after(text, line, output_line_start.encode("utf-8", "replace"))
        last = self._shift
        if shift is None or last is None:
            is_same = shift is last
        else:
            is_same = (last.old, last.new) == (shift.old, shift.new) and last.after <= line < last.before
        if not is_same:
            self._shift = shift
            self._shift_rule = Rule(b"", b"", SHIFT_TRUST * PRIOR_WEIGHT, (1 - SHIFT_TRUST) * PRIOR_WEIGHT, NOWHERE)
            self._refresh()

    def copy(self, position: int, max_tokens: int) -> Rewritten:
        """At most `max_tokens` tokens that follow where the file's token `position` comes next.

        About 2 µs where nothing is replaced: the arrays are views then, not to be written to. Else about 20 µs, and
        where the file is rewritten for the first time, 3 µs a token of it.
        """
        end = min(position + max_tokens, self._num_tokens)
        if self._is_active and position < end:
            patches = self._patches_in(position, end)
            if patches:
                return self._patched(position, max_tokens, patches)
        num_tokens = max(end - position, 0)
        if num_tokens > len(self._ones):
            self._ones = np.ones(2 * num_tokens, dtype=np.float32)
        return Rewritten(self._file[position:end], self._positions[position:end], self._ones[:num_tokens])

    def observe(self, rewritten: Rewritten, num_accepted_tokens: int, correction: int | None) -> None:
        """How a draft from `copy` fared: `correction` is the target's token where it disagreed, None where it didn't.

        Rules whose words were accepted gain trust. One that was wrong loses trust, and sleeps after two failures in a
        row, until its hunk is seen again.
        """
        is_changed = False
        for start, end, rule in rewritten.replacements:
            if end <= num_accepted_tokens:
                rule.num_successes += 1
                rule.num_failures_in_a_row = 0
            elif start <= num_accepted_tokens < len(rewritten.tokens) and correction is not None:
                rule.num_failures += 1
                rule.num_failures_in_a_row += 1
                is_changed = is_changed or not rule.is_awake
        if is_changed:
            if not self._shift_rule.is_awake:
                self._shift = None
            self._refresh()

    @property
    def _text(self) -> FileText:
        if self._file_text is None:
            self._file_text = FileText(self._vocabulary, self._file)
        return self._file_text

    def _learn(self, substitution: Substitution, hunk_start: int | None = None) -> None:
        """`hunk_start`: the byte from where on it was seen to happen."""
        try:
            old, new = substitution.old.encode(), substitution.new.encode()
        except UnicodeEncodeError:
            return
        rule = self._rules.get(old)
        if rule is not None and rule.new == new:
            rule.num_successes += SEEN_AGAIN_WEIGHT
            if rule.num_failures_in_a_row >= MAX_FAILURES:
                rule.num_failures = min(rule.num_failures, rule.num_successes)
            rule.num_failures_in_a_row = 0
            self._refresh()
            return
        occurrences = self._text.occurrences(old) if rule is None else rule.occurrences
        if len(occurrences) == 0 or (rule is None and len(self._rules) >= MAX_RULES):
            return
        num_kept = 0 if hunk_start is None else int(occurrences.searchsorted(hunk_start))
        num_successes = substitution.trust * PRIOR_WEIGHT
        num_failures = PRIOR_WEIGHT - num_successes + min(num_kept, MAX_KEPT) * KEPT_WEIGHT
        self._rules[old] = Rule(old, new, num_successes, num_failures, occurrences)
        self._refresh()

    def _refresh(self) -> None:
        """To be called after each change of what `copy` applies."""
        self._awake = sorted((rule for rule in self._rules.values() if rule.is_awake), key=lambda rule: -len(rule.old))
        self._is_active = bool(self._awake) or self._shift is not None
        self._blocks.clear()

    def _patched(self, position: int, max_tokens: int, patches: list[_Patch]) -> Rewritten:
        """Slices of the file and patches in turn; one that makes the file shorter lets more of it in."""
        tokens: list[IntArray] = []
        positions: list[IntArray] = []
        replacements: list[Replacement] = []
        at, num_tokens = position, 0
        while True:
            end = min(at + max_tokens - num_tokens, self._num_tokens)
            for patch in patches:
                if patch.start < at:  # another patch reaches into this one
                    continue
                if num_tokens + patch.start - at >= max_tokens:
                    break
                if patch.start > at:
                    tokens.append(self._file[at : patch.start])
                    positions.append(self._positions[at : patch.start])
                    num_tokens += patch.start - at
                tokens.append(patch.tokens)
                positions.append(patch.positions)
                replacements.append(Replacement(num_tokens, num_tokens + len(patch.tokens), patch.rule))
                num_tokens += len(patch.tokens)
                at = patch.end
            end = min(max(end, at), at + max(max_tokens - num_tokens, 0))
            tokens.append(self._file[at:end])
            positions.append(self._positions[at:end])
            num_tokens += end - at
            at = end
            if num_tokens >= max_tokens or at >= self._num_tokens:
                break
            patches = self._patches_in(at, min(at + max_tokens - num_tokens, self._num_tokens))
        num_tokens = min(num_tokens, max_tokens)
        factors = np.ones(num_tokens, dtype=np.float32)
        num_before: dict[int, int] = {}  # replacements by the same rule: if they are right, so is more likely this one
        for start, _, rule in replacements:
            number = num_before.get(id(rule), 0)
            factors[start] = rule.trust_after(number)
            num_before[id(rule)] = number + 1
        return Rewritten(
            np.concatenate(tokens)[:num_tokens], np.concatenate(positions)[:num_tokens], factors, replacements
        )

    def _patches_in(self, start: int, end: int) -> list[_Patch]:
        """Those that begin at the file's tokens `start` to `end`, in order."""
        found: list[_Patch] = []
        for block in range(start // BLOCK_TOKENS, (end - 1) // BLOCK_TOKENS + 1):
            patches = self._blocks.get(block)
            if patches is None:
                patches = self._blocks[block] = self._make_block(block * BLOCK_TOKENS)
            if patches:
                found += patches[bisect_left(patches, (start,)) : bisect_left(patches, (end,))]
        return found

    def _make_block(self, start: int) -> list[_Patch]:
        text = self._text
        end = min(start + BLOCK_TOKENS, self._num_tokens)
        low, high = max(start - MARGIN_TOKENS, 0), min(end + MARGIN_TOKENS, self._num_tokens)
        edits = self._edits(int(text.starts[low]), int(text.starts[high]))
        chunks: list[_Chunk] = []
        for edit in edits:
            first, last = text.chunk(edit.first, edit.last)
            is_near = first < end and last > start
            if is_near and (not chunks or (chunks[-1].first, chunks[-1].last) != (first, last)):
                chunks.append(self._chunk(first, last, edits))
        unknown = [chunk for chunk in chunks if chunk.key not in self._exchanges]
        text.encode_ahead((chunk.first, chunk.last, chunk.key[1]) for chunk in unknown)
        found: dict[int, _Patch] = {}
        for chunk in chunks:
            for patch in self._patches_of(chunk):
                if start <= patch.start < end:
                    found.setdefault(patch.start, patch)
        return [found[position] for position in sorted(found)]

    def _edits(self, low: int, high: int) -> list[_Edit]:
        """What changes between these bytes, in order and without overlap; longer words go before shorter ones."""
        edits = []
        if self._shift is not None:
            rule = self._shift_rule
            for start, end, new in self._shift.edits(self._text, low, high):
                edits.append(_Edit(start, end, new, rule, start - 1, end + 1))
        for rule in self._awake:
            length = len(rule.old)
            first, last = rule.occurrences.searchsorted((low - length + 1, high))
            taken = sorted(edits, key=itemgetter(0))
            for start in rule.occurrences[first:last].tolist():
                index = bisect_left(taken, (start + length,))
                if index == 0 or taken[index - 1].end <= start:
                    edits.append(_Edit(start, start + length, rule.new, rule, start, start + length))
        edits.sort(key=itemgetter(0))
        return edits

    def _chunk(self, first: int, last: int, edits: list[_Edit]) -> _Chunk:
        low, high = int(self._text.starts[first]), int(self._text.starts[last])
        inside = edits[bisect_left(edits, (low,)) : bisect_left(edits, (high,))]
        inside = [edit for edit in inside if edit.end <= high]
        relative = tuple((edit.start - low, edit.end - low, edit.new) for edit in inside)
        return _Chunk(first, last, (self._file[first:last].tobytes(), relative), [edit.rule for edit in inside])

    def _patches_of(self, chunk: _Chunk) -> list[_Patch]:
        exchanges = self._exchanges.get(chunk.key)
        if exchanges is None:
            if len(self._exchanges) >= MAX_EXCHANGES:
                self._exchanges.clear()
            exchanges = self._text.exchange(chunk.first, chunk.last, chunk.key[1]) if chunk.rules else []
            self._exchanges[chunk.key] = exchanges
        patches = []
        for start, end, new, number in exchanges:
            positions = np.full(len(new), -1, dtype=np.int32)
            positions[-1] = chunk.first + end
            patches.append(_Patch(chunk.first + start, chunk.first + end, new, positions, chunk.rules[number]))
        return patches
