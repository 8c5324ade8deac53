"""The workspace index: texts of other files, indexed once for all sequences and searched by each one's last tokens.

Knows tokens and files; knows nothing of sequences, rounds or policies. Nothing changes after it is built, so any number
of threads may search it at once.

Why sorted contexts and not the automaton of `suffix_index`: this text doesn't grow, so it needs 8 bytes a token
instead of about 90, and one sort for any number of sequences.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from threading import Lock

import numpy as np

from lookahead_edit.kernels import workspace as kernels
from lookahead_edit.suffix_index import NO_POSITION, check_tokens
from lookahead_edit.types import IntArray, InvalidInput, Source

SEPARATOR = -1
MAX_LENGTH = kernels.MAX_LENGTH
MAX_LOOKED_AT = kernels.MAX_LOOKED_AT
MAX_MIN_COUNT = 64
MAX_CACHED_BYTES = 64 * 2**20  # 8 workspaces of a million tokens each
MAX_CACHED_INDICES = 16


@dataclass(frozen=True, slots=True)
class WorkspaceMatch:
    """The longest suffix of a tail that occurs in the workspace with a token after it.

    Up to MAX_LOOKED_AT of the `count` occurrences are looked at, evenly spread; after `num_agreeing` of them comes the
    same token, the most frequent one. `position` is where it stands in the last of those that go on as most of them do
    (`kernels.workspace.follow_majority`), NO_POSITION if nothing occurs.

    Example: in a file ``5 6 7 5 6 8 5 6 7`` the tail ``… 9 5 6`` has ``length=2, count=3, num_agreeing=2, position=2``:
    a 7 comes after two of three, and nothing after the other 7.
    """

    length: int = 0
    count: int = 0
    num_agreeing: int = 0
    position: int = NO_POSITION

    @property
    def num_looked_at(self) -> int:
        """Of so many occurrences `num_agreeing` agree."""
        return min(self.count, MAX_LOOKED_AT)


class WorkspaceIndex:
    """All places of the sources' tokens, sorted by the MAX_LENGTH tokens before them.

    The sources stand one after the other in `text`, in the order given, each followed by a separator; no match and no
    copy crosses a border. Building takes 16 more bytes a token for a while, and lets go of the interpreter's lock.

    Args:
        sources: the texts; `kind` and `prompt_start` aren't looked at.

    Raises:
        InvalidInput: a source whose tokens aren't int32, or negative; 2**31 tokens or more.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        compile_kernels()
        for source in sources:
            check_tokens(source.tokens, "sources")
        num_tokens = sum(len(source.tokens) + 1 for source in sources)
        if num_tokens >= 2**31:
            raise InvalidInput(f"expected fewer than 2**31 tokens, got {num_tokens}", param="sources")
        text = np.empty(num_tokens, dtype=np.int32)
        self._starts: list[int] = []
        self._paths = [source.path for source in sources]
        start = 0
        for source in sources:
            self._starts.append(start)
            end = start + len(source.tokens)
            text[start:end] = source.tokens
            text[end] = SEPARATOR
            start = end + 1
        order, new_order, ranks, new_ranks = np.empty((4, num_tokens), dtype=np.int32)
        num_ends = kernels.sort_contexts(MAX_LENGTH, text, order, new_order, ranks, new_ranks)
        self._text = text
        self._ends = order[:num_ends].copy()  # a view would keep all four arrays
        # The kernels get the arrays themselves: read-only ones would be compiled for anew.
        self._read_only_text = text[:]
        self._read_only_text.flags.writeable = False

    @property
    def num_tokens(self) -> int:
        """Tokens of all sources, and a separator after each."""
        return len(self._text)

    @property
    def num_bytes(self) -> int:
        """Bytes of the arrays: at most 8 a token."""
        return self._text.nbytes + self._ends.nbytes

    @property
    def text(self) -> IntArray:
        """int32[num_tokens], a read-only view; negative tokens are separators."""
        return self._read_only_text

    def path_of(self, position: int) -> str | None:
        """The path of the source whose tokens, or whose separator, stand at `position`."""
        return self._paths[self._source_at(position)]

    def tokens_from(self, position: int, max_tokens: int) -> IntArray:
        """int32[num_tokens], a read-only view of the tokens from `position` to the end of their source."""
        source = self._source_at(position) + 1
        end = self._starts[source] - 1 if source < len(self._starts) else self.num_tokens - 1
        return self._read_only_text[position : min(end, position + max_tokens)]

    def longest_match(self, tail: IntArray, min_count: int = 1) -> WorkspaceMatch:
        """The longest suffix of `tail` that occurs at least `min_count` times, with a token after it each time.

        Args:
            tail: int32[num_tokens], any view; the last MAX_LENGTH are compared, from behind the last negative one on.
            min_count: 1 to MAX_MIN_COUNT.

        Raises:
            InvalidInput: anything else.
        """
        if tail.dtype != np.int32 or tail.ndim != 1:
            got = f"{tail.dtype} of shape {tail.shape}"
            raise InvalidInput(f"expected tail to be an int32 array of one dimension, got {got}", param="tail")
        if not 1 <= min_count <= MAX_MIN_COUNT:
            raise InvalidInput(f"expected min_count from 1 to {MAX_MIN_COUNT}, got {min_count}", param="min_count")
        # A copy: one kernel serves all views.
        return WorkspaceMatch(*kernels.find_longest(self._text, self._ends, tail[-MAX_LENGTH:].copy(), min_count))

    def _source_at(self, position: int) -> int:
        assert 0 <= position < self.num_tokens
        return bisect_right(self._starts, position) - 1


class WorkspaceCache:
    """Keeps the indices used last, so that the same files are indexed once. Threads may share it.

    Two sets of sources are the same if their paths and tokens are, in the same order. A thread that asks for an index
    that another one is just building waits for that one.

    Args:
        max_bytes: of all indices kept together; a larger one is built and not kept.
        max_indices: kept at most.
    """

    def __init__(self, max_bytes: int = MAX_CACHED_BYTES, max_indices: int = MAX_CACHED_INDICES) -> None:
        self._max_bytes = max_bytes
        self._max_indices = max_indices
        self._lock = Lock()
        self._indices: OrderedDict[bytes, WorkspaceIndex] = OrderedDict()  # used last comes last
        self._building: dict[bytes, Future[WorkspaceIndex]] = {}

    def __len__(self) -> int:
        with self._lock:
            return len(self._indices)

    @property
    def num_bytes(self) -> int:
        """Bytes of the indices kept."""
        with self._lock:
            return self._num_bytes()

    def index(self, sources: Sequence[Source]) -> WorkspaceIndex:
        """The index of these sources, built now unless it is kept.

        Raises:
            InvalidInput: as `WorkspaceIndex` does.
        """
        for source in sources:
            check_tokens(source.tokens, "sources")
        key = content_key(sources)
        with self._lock:
            if key in self._indices:
                self._indices.move_to_end(key)
                return self._indices[key]
            building = self._building.get(key)
            is_ours = building is None
            if building is None:
                building = self._building[key] = Future()
        if not is_ours:
            return building.result()
        try:
            index = WorkspaceIndex(sources)
        except BaseException as error:
            with self._lock:
                del self._building[key]
            building.set_exception(error)
            raise
        with self._lock:
            del self._building[key]
            if index.num_bytes <= self._max_bytes:
                self._indices[key] = index
            while len(self._indices) > self._max_indices or self._num_bytes() > self._max_bytes:
                self._indices.popitem(last=False)
        building.set_result(index)
        return index

    def _num_bytes(self) -> int:
        return sum(index.num_bytes for index in self._indices.values())


def content_key(sources: Sequence[Source]) -> bytes:
    """16 bytes that differ where a path or a token does."""
    digest = blake2b(digest_size=16)
    for source in sources:
        path = b"\0" if source.path is None else b"\1" + source.path.encode("utf-8", "surrogatepass")
        digest.update(f"{len(path)} {len(source.tokens)} ".encode())
        digest.update(path)
        digest.update(source.tokens.tobytes())
    return digest.digest()


@cache
def compile_kernels() -> None:
    """Compiles all kernels, or loads them from the disk cache."""
    text = np.arange(2, dtype=np.int32)
    scratch = np.empty((4, 2), dtype=np.int32)
    kernels.sort_contexts(MAX_LENGTH, text, scratch[0], scratch[1], scratch[2], scratch[3])
    kernels.find_longest(text, text[1:].copy(), text, 1)
