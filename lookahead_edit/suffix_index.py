"""The suffix index: every token a draft may be copied from, searchable by the longest suffix.

Knows tokens and where they come from; knows nothing of rounds, policies or strings. It owns flat arrays and makes one
kernel call per operation.

Why an automaton. Measured with 32,768 tokens of Python source on 2 cores of an EPYC (Zen 3), best of many runs: it
builds in 3.3 ms and searches in 1.4 µs, exactly and at any length, and no text makes it slow. Hash chains over the last
1, 2, 4 … 64 tokens build in 2.6 ms, search in 1.6 µs and could be rewound cheaply, but where 40 tokens of a run follow
a mark after a run of 30,000, they take 870 µs (the automaton 4). An automaton with every transition in the hash table
builds in 4.7 ms and takes half as much memory again. Scanning takes 10 to 30 µs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from lookahead_edit.kernels import automaton
from lookahead_edit.kernels import suffix as kernels
from lookahead_edit.types import NO_TOKENS, IntArray, InvalidInput, Source, SourceArray, SourceKind, token_range

NO_POSITION = automaton.NONE

Scalar = TypeVar("Scalar", bound=np.generic)

MAX_ENDS = 64  # occurrences of the longest match that are looked at
MAX_SCAN_LENGTH = 64  # tokens compared where a match has more occurrences than that
MIN_SPARE_TOKENS = 256


def check_tokens(tokens: IntArray, param: str) -> None:
    """Raises InvalidInput unless `tokens` is a 1-D int32 array of token ids (0 to 2**31 - 1)."""
    if not isinstance(tokens, np.ndarray):
        raise InvalidInput(f"expected {param} to be an int32 array, got {type(tokens).__name__}", param=param)
    if tokens.dtype != np.int32 or tokens.ndim != 1:
        got = f"{tokens.dtype} of shape {tokens.shape}"
        raise InvalidInput(f"expected {param} to be an int32 array of one dimension, got {got}", param=param)
    smallest = token_range(tokens)[0] if len(tokens) else 0
    if smallest < 0:
        raise InvalidInput(f"expected {param} to hold no negative token, got {smallest}", param=param)


@dataclass(frozen=True, slots=True)
class Match:
    """The longest suffix of the text that also occurs earlier.

    `ends` are the positions of the tokens that followed it there, most recent first. Where there are more than
    MAX_ENDS, the most recent ones are listed, and no more than the last MAX_SCAN_LENGTH tokens are compared.

    Example: after ``[5, 6, 7, 5, 6]`` the match is ``length=2, ends=[2]``: ``text[2] == 7`` may follow.
    """

    length: int
    ends: IntArray  # int32[num_ends]

    @property
    def most_recent(self) -> int | None:
        """The last end, if there is one."""
        return int(self.ends[0]) if len(self.ends) else None

    @property
    def earliest(self) -> int | None:
        """The first end, if there is one."""
        return int(self.ends[-1]) if len(self.ends) else None

    def nearest(self, position: int) -> int | None:
        """The first end at or after `position`, if there is one."""
        later = self.ends[self.ends >= position]
        return int(later[-1]) if len(later) else None


@dataclass(frozen=True, slots=True)
class Copy:
    """Tokens that followed one occurrence; `position` is that of the first, NO_POSITION where nothing occurs."""

    tokens: IntArray  # int32[num_copied_tokens]
    kinds: SourceArray  # int8[num_copied_tokens], SourceKind
    match_length: int
    position: int


class SuffixIndex:
    """Suffix automaton over sources, prompt and output.

    Sources with tokens of their own come first, each closed by a separator that occurs once (-1, -2, …), so no match
    crosses a border; then the prompt, then what is appended. ``kinds[position]`` says where a token comes from.

    Args:
        prompt: int32[num_prompt_tokens].
        sources: texts to copy from; those with `prompt_start` only mark their place in the prompt.
        is_read: False: nothing is read yet, `read_on` does it in pieces before anything else is asked.

    Raises:
        InvalidInput: not int32, negative, or a source that doesn't stand in the prompt where it says it does.
    """

    def __init__(self, prompt: IntArray, sources: Sequence[Source] = (), *, is_read: bool = True) -> None:
        check_tokens(prompt, "prompt")
        num_own_tokens = sum(len(source.tokens) + 1 for source in sources if source.prompt_start is None)
        text = np.empty(num_own_tokens + len(prompt), dtype=np.int32)
        kinds = np.full(len(text), SourceKind.PROMPT, dtype=np.int8)
        text[num_own_tokens:] = prompt
        self.prompt_start = num_own_tokens
        self.starts: list[int] = []  # position of the first token of each source
        next_start = 0
        for source in sources:
            check_tokens(source.tokens, "sources")
            num_tokens = len(source.tokens)
            if source.prompt_start is None:
                start, next_start = next_start, next_start + num_tokens + 1
                text[start : start + num_tokens] = source.tokens
                text[start + num_tokens] = -next_start  # positions grow, so each separator is unique
                kinds[start : start + num_tokens + 1] = source.kind
            else:
                start = num_own_tokens + source.prompt_start
                if source.prompt_start < 0 or not np.array_equal(text[start : start + num_tokens], source.tokens):
                    raise InvalidInput(
                        f"expected the {source.kind.label} to stand in the prompt at token {source.prompt_start}, "
                        "got other tokens there",
                        param="sources",
                    )
                kinds[start : start + num_tokens] = source.kind
            self.starts.append(start)

        self._ends = np.empty(MAX_ENDS, dtype=np.int32)
        self._borders = np.empty(MAX_SCAN_LENGTH, dtype=np.int32)
        self._copied_tokens = np.empty(0, dtype=np.int32)
        self._copied_kinds = np.empty(0, dtype=np.int8)
        refuted = np.zeros(len(text), dtype=np.int8)
        self._unread = NO_TOKENS if is_read else text
        capacity_tokens = len(text) + max(len(text) // 8, MIN_SPARE_TOKENS)
        self._build(text if is_read else NO_TOKENS, kinds, refuted, capacity_tokens)

    @property
    def num_tokens(self) -> int:
        """Tokens of sources, separators, prompt and output; the position of the next token."""
        return self._num_tokens

    @property
    def text(self) -> IntArray:
        """int32[num_tokens], a view; negative tokens are separators."""
        return self._view

    @property
    def kinds(self) -> SourceArray:
        """int8[num_tokens], a view: the SourceKind of every token."""
        return self._kinds[: self.num_tokens]

    @property
    def automaton(self) -> tuple[IntArray, NDArray[np.int64], IntArray]:
        """States, counts and borders, for kernels that search themselves; others after the next `append`."""
        return self._states, self._counts, self._borders

    @property
    def num_bytes(self) -> int:
        """Bytes of all arrays, also what is allocated for tokens to come: 82 for a token of capacity.

        The capacity is an eighth more than the sources and the prompt, at least MIN_SPARE_TOKENS, and a fifth more than
        the text after it has outgrown that: then 99 bytes a token.
        """
        growing = (self._text, self._kinds, self._refuted, self._states, self._edges, self._slots)
        fixed = (self._counts, self._ends, self._borders, self._copied_tokens, self._copied_kinds)
        return sum(array.nbytes for array in (*growing, *fixed))

    def read_on(self, max_tokens: int) -> bool:
        """Reads at most so many more tokens of sources and prompt; whether they are read now."""
        num_tokens = self.num_tokens
        self._take(num_tokens, self._unread[num_tokens : num_tokens + max_tokens])
        if self.num_tokens < len(self._unread):
            return False
        self._unread = NO_TOKENS
        return True

    def append(self, tokens: IntArray) -> None:
        """Appends output tokens, int32[num_new_tokens]; amortised O(1) a token."""
        check_tokens(tokens, "tokens")
        num_tokens = self.num_tokens
        if num_tokens + len(tokens) > self._capacity_tokens:
            num_needed = num_tokens + len(tokens)
            self._grow(num_needed + max(num_needed // 5, MIN_SPARE_TOKENS))
        self._take(num_tokens, tokens)

    def truncate(self, num_tokens: int) -> None:
        """Forgets all but the first `num_tokens` tokens, by building anew: as slow as the constructor.

        Raises:
            InvalidInput: more tokens than there are, or fewer than sources and prompt.
        """
        if not self.prompt_start <= num_tokens <= self.num_tokens:
            expected = f"between {self.prompt_start} and {self.num_tokens}"
            raise InvalidInput(f"expected num_tokens {expected}, got {num_tokens}", param="num_tokens")
        if num_tokens < self.num_tokens:
            kept = slice(num_tokens)
            text, kinds, refuted = self._text[kept].copy(), self._kinds[kept].copy(), self._refuted[kept].copy()
            self._build(text, kinds, refuted, self._capacity_tokens)

    def longest_match(self) -> Match:
        """The longest suffix of the text that occurs earlier, and where."""
        length, count = self.fill_longest_match(self._ends)
        return Match(length=length, ends=self._ends[:count].copy())

    def fill_longest_match(self, ends: IntArray) -> tuple[int, int]:
        """`longest_match` without a copy: its length, and how many ends now stand in `ends`, int32[MAX_ENDS]."""
        length, count = kernels.find_longest(
            self._text, self._states, self._counts, self.num_tokens, ends, self._borders
        )
        return int(length), int(count)

    def copy_longest(self, cursor: int, max_tokens: int, max_overrun_tokens: int) -> Copy:
        """What followed the best occurrence of the longest suffix; see `kernels.suffix.choose_end`.

        Args:
            cursor: position where the last accepted copy of a file or prediction ended, or NO_POSITION.
            max_tokens: copies no more.
            max_overrun_tokens: copies no more past the border of the source.
        """
        tokens, kinds = self._buffers(max_tokens)
        num_copied, match_length, position = kernels.copy_longest(
            self._text,
            self._kinds,
            self._refuted,
            self._states,
            self._counts,
            cursor,
            max_overrun_tokens,
            self._ends,
            self._borders,
            tokens,
            kinds,
        )
        return Copy(tokens[:num_copied].copy(), kinds[:num_copied].copy(), match_length, position)

    def copy_from(self, position: int, max_tokens: int, max_overrun_tokens: int) -> Copy:
        """The tokens from `position` on; nothing is compared."""
        assert 0 <= position < self.num_tokens
        tokens, kinds = self._buffers(max_tokens)
        num_copied = kernels.copy_tokens(
            self._text, self._kinds, self.num_tokens, position, max_overrun_tokens, tokens, kinds
        )
        return Copy(tokens[:num_copied].copy(), kinds[:num_copied].copy(), 0, position)

    def refute(self, position: int, match_length: int) -> None:
        """What stands at `position` didn't follow: `copy_longest` passes it over until a longer match ends there."""
        self._refuted[position] = max(self._refuted[position], min(match_length, kernels.MAX_COMPARED))

    def _buffers(self, max_tokens: int) -> tuple[IntArray, SourceArray]:
        if len(self._copied_tokens) < max_tokens:
            self._copied_tokens = np.empty(max_tokens, dtype=np.int32)
            self._copied_kinds = np.empty(max_tokens, dtype=np.int8)
        return self._copied_tokens[:max_tokens], self._copied_kinds[:max_tokens]

    def _build(self, text: IntArray, kinds: SourceArray, refuted: NDArray[np.int8], capacity_tokens: int) -> None:
        self._text = np.empty(0, dtype=np.int32)
        self._kinds = np.empty(0, dtype=np.int8)
        self._refuted = np.empty(0, dtype=np.int8)
        self._states = np.empty(automaton.NUM_COLUMNS, dtype=np.int32)
        self._edges = np.empty((0, 4), dtype=np.int32)
        self._counts = np.zeros(3, dtype=np.int64)
        self._num_tokens = 0
        self._grow(capacity_tokens)
        automaton.clear(self._states, self._slots, self._counts)
        self._kinds[: len(kinds)] = kinds
        self._refuted[: len(refuted)] = refuted
        self._take(0, text)

    def _take(self, num_tokens: int, tokens: IntArray) -> None:
        # The kernel gets only our own arrays: one that is read-only or not contiguous would be compiled for anew.
        self._text[num_tokens : num_tokens + len(tokens)] = tokens
        automaton.append_tokens(len(tokens), self._text, self._states, self._edges, self._slots, self._counts)
        self._num_tokens = num_tokens + len(tokens)
        self._view = self._text[: self._num_tokens]  # made once a round, and asked for several times

    def _grow(self, capacity_tokens: int) -> None:
        """Moves everything to larger arrays. A suffix automaton of n tokens has at most 2 n states and n branches."""
        num_clones = int(self._counts[automaton.NUM_CLONES])
        self._capacity_tokens = capacity_tokens
        self._text = enlarged(self._text, capacity_tokens)
        self._kinds = enlarged(self._kinds, capacity_tokens)
        self._refuted = enlarged(self._refuted, capacity_tokens)
        self._kinds[self.num_tokens :] = SourceKind.OUTPUT
        self._refuted[self.num_tokens :] = 0
        num_front = automaton.NUM_COLUMNS * (self.num_tokens + 1)
        num_back = automaton.NUM_CLONE_COLUMNS * num_clones
        size = automaton.NUM_COLUMNS * (capacity_tokens + 1) + automaton.NUM_CLONE_COLUMNS * capacity_tokens
        states = np.empty(size, dtype=np.int32)
        states[:num_front] = self._states[:num_front]
        states[size - num_back :] = self._states[len(self._states) - num_back :]
        self._states = states
        self._edges = enlarged(self._edges, capacity_tokens)
        self._slots = np.full(2 * capacity_tokens, automaton.NONE, dtype=np.int32)
        automaton.enter_edges(int(self._counts[automaton.NUM_EDGES]), self._edges, self._slots)


def enlarged(array: NDArray[Scalar], num_rows: int) -> NDArray[Scalar]:
    """A copy with room for `num_rows`; the new ones hold anything."""
    enlarged = np.empty((num_rows, *array.shape[1:]), dtype=array.dtype)
    enlarged[: len(array)] = array
    return enlarged


@cache
def compile_kernels() -> None:
    """Compiles all kernels, or loads them from the disk cache: 7 s the very first time, 0.5 s in a new process."""
    index = SuffixIndex(np.arange(4, dtype=np.int32))
    index.append(np.arange(2, dtype=np.int32))
    index.longest_match()
    index.copy_longest(NO_POSITION, 1, 0)
    index.copy_from(0, 1, 0)
