"""Finds the file in a prompt that nobody explained: the code block whose text the answer is likely to repeat.

For places where only tokens arrive: an engine's proposer, a hook. Knows tokens and texts, no request and no model.

A block begins and ends as in CommonMark (section "Fenced code blocks"): three or more backticks or tildes, indented by
at most three blanks; the closing line has at least as many of the same and nothing else. A special token ends every
block, for it ends a turn of the chat: what is left open at the prompt's end, as an answer that was begun, is none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lookahead_edit.drafters.vocabulary import UNMAPPABLE, Vocabulary
from lookahead_edit.types import IntArray, Source, SourceKind, Tokenizer

MIN_FILE_TOKENS = 16  # shorter blocks are names, commands and quotes
MIN_SHARE_OF_LONGEST = 0.25  # the last block that is at least so long, compared with the longest one
MAX_FENCE_BYTES = 256  # a longer line is no fence, and need not be kept until its end is known

_FENCE = re.compile(rb" {0,3}(?P<marks>`{3,}|~{3,})(?P<info>.*)")
_MARKS = (b"```", b"~~~")


@dataclass(frozen=True, slots=True)
class Block:
    """The tokens ``prompt[start:end]`` lie within one code block, without its fences."""

    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


class BlockScanner:
    """Reads a prompt in pieces of any size and collects its closed code blocks.

    Args:
        vocabulary: the tokens' texts.

    Example:
        >>> tokenizer = ByteTokenizer()
        >>> scanner = BlockScanner(Vocabulary(tokenizer))
        >>> scanner.feed(tokenizer.encode("Fix it:\n```python\nx = 1\n```"))
        >>> scanner.finish()
        [Block(start=18, end=24)]
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._blocks: list[Block] = []
        self._num_tokens = 0
        self._line = b""  # what was read of the present line
        self._line_start = 0  # the first token that has something of it
        self._marks = b""  # the open block's fence
        self._block_start = 0

    def feed(self, tokens: IntArray) -> None:
        """Reads the next tokens, int32[num_tokens]; about 0.3 µs for each."""
        texts = self._vocabulary.texts_of(tokens)
        ends = [index for index, text in enumerate(texts) if b"\n" in text or text == UNMAPPABLE]
        start = 0
        for index in ends:
            if texts[index] == UNMAPPABLE:
                self._keep(b"".join(texts[start:index]))
                self._end_turn(self._num_tokens + index)
            else:
                self._end_lines(b"".join(texts[start : index + 1]), self._num_tokens + index)
            start = index + 1
        self._keep(b"".join(texts[start:]))
        self._num_tokens += len(texts)

    def finish(self) -> list[Block]:
        """Nothing more comes: the closed blocks, in order."""
        self._end_turn(self._num_tokens)
        return self._blocks

    def _end_turn(self, token: int) -> None:
        self._end_line(self._line, self._line_start, token)
        self._line, self._line_start, self._marks = b"", token + 1, b""

    def _end_lines(self, text: bytes, token: int) -> None:
        """Goes on with `text`, of which only the last token, `token`, has line ends."""
        *lines, rest = (self._line + text).split(b"\n")
        for line in lines:
            self._end_line(line, self._line_start, token + 1)
            # Where the token also has the next line's beginning, it belongs to no block as a whole.
            self._line_start = token
        self._line, self._line_start = rest, token if rest else token + 1

    def _end_line(self, line: bytes, start: int, next_start: int) -> None:
        """The line's first token is `start`, and the first one without anything of it `next_start`."""
        if not any(mark in line for mark in _MARKS):
            return
        fence = _FENCE.fullmatch(line)
        if fence is None:
            return
        marks, info = fence["marks"], fence["info"].strip()
        if self._marks:
            if marks[:1] == self._marks[:1] and len(marks) >= len(self._marks) and not info:
                self._blocks.append(Block(self._block_start, max(start, self._block_start)))
                self._marks = b""
        elif marks[:1] != b"`" or b"`" not in info:
            self._marks, self._block_start = marks, next_start

    def _keep(self, text: bytes) -> None:
        if len(self._line) <= MAX_FENCE_BYTES:
            self._line += text


def file_among(blocks: Sequence[Block]) -> Block | None:
    """The block that is most likely edited: the last one that isn't short, by itself or beside the longest.

    The quoted error or the snippet behind a file is passed over; of several files the last one is taken.
    """
    longest = max(map(len, blocks), default=0)
    least = max(MIN_FILE_TOKENS, MIN_SHARE_OF_LONGEST * longest)
    return next((block for block in reversed(blocks) if len(block) >= least), None)


def file_in_prompt(prompt: IntArray, vocabulary: Vocabulary) -> Source | None:
    """The file in a prompt, int32[num_prompt_tokens], as a source that drafters know how to copy; None without one.

    Example:
        >>> tokenizer = ByteTokenizer()
        >>> prompt = tokenizer.encode("Fix it:\n```python\nprint('hello, world')\n```\n")
        >>> source = file_in_prompt(prompt, Vocabulary(tokenizer))
        >>> source.prompt_start, tokenizer.decode(source.tokens)
        (18, "print('hello, world')\n")
    """
    scanner = BlockScanner(vocabulary)
    scanner.feed(prompt)
    return source_of(prompt, file_among(scanner.finish()))


def with_file(prompt: IntArray, tokenizer: Tokenizer | None, sources: Sequence[Source]) -> list[Source]:
    """The sources, and the file in the prompt before them, if there is one and a tokenizer to find it."""
    file = None if tokenizer is None else file_in_prompt(prompt, Vocabulary(tokenizer))
    return [*sources] if file is None else [file, *sources]


def source_of(prompt: IntArray, block: Block | None) -> Source | None:
    """The block's tokens as a source that stands in the prompt."""
    if block is None:
        return None
    return Source(SourceKind.FILE, np.ascontiguousarray(prompt[block.start : block.end]), prompt_start=block.start)
