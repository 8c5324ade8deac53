"""Which lines of two texts are the same: hunks, in bounded time and memory. Knows lists of strings only.

Lines that occur once on either side anchor the comparison (Cohen's patience diff); what lies between two anchors is
compared by longest common subsequence, bit-parallel (Hyyrö 2004, from rapidfuzz). difflib needs more than 10 s for
10 000 lines most of which are equal, this a few hundredths.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rapidfuzz.distance import LCSseq

# One bit of memory each: 50 MB, and about 0.3 s. A larger gap without any anchor counts as replaced.
MAX_GAP_CELLS = 400_000_000


class Hunk(NamedTuple):
    """``before[before_start:before_end]`` became ``after[after_start:after_end]``; one of the two may be empty."""

    before_start: int
    before_end: int
    after_start: int
    after_end: int


def changed_hunks(before: Sequence[str], after: Sequence[str]) -> list[Hunk]:
    """What changed, in order; at least one unchanged line lies between two hunks.

    >>> changed_hunks(["a", "b", "c"], ["a", "x", "y", "c"])
    [Hunk(before_start=1, before_end=2, after_start=1, after_end=3)]
    """
    hunks = []
    before_end = after_end = 0
    for before_index, after_index in (*_equal_pairs(before, after), (len(before), len(after))):
        if before_index > before_end or after_index > after_end:
            hunks.append(Hunk(before_end, before_index, after_end, after_index))
        before_end, after_end = before_index + 1, after_index + 1
    return hunks


def common_prefix_length(before: Sequence[str], after: Sequence[str]) -> int:
    """How many lines, or characters of two strings, are equal from the start."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((index for index, (left, right) in pairs if left != right), min(len(before), len(after)))


def _equal_pairs(before: Sequence[str], after: Sequence[str]) -> Iterator[tuple[int, int]]:
    prefix = common_prefix_length(before, after)
    suffix = common_prefix_length(before[prefix:][::-1], after[prefix:][::-1])
    before_end, after_end = len(before) - suffix, len(after) - suffix

    yield from zip(range(prefix), range(prefix), strict=True)
    numbers: dict[str, int] = {}
    before_ids = [numbers.setdefault(line, len(numbers)) for line in before[prefix:before_end]]
    after_ids = [numbers.setdefault(line, len(numbers)) for line in after[prefix:after_end]]
    before_start = after_start = 0
    for before_anchor, after_anchor in (*_anchors(before_ids, after_ids), (len(before_ids), len(after_ids))):
        gap = before_ids[before_start:before_anchor], after_ids[after_start:after_anchor]
        for before_index, after_index in _gap_pairs(*gap):
            yield prefix + before_start + before_index, prefix + after_start + after_index
        if before_anchor < len(before_ids):
            yield prefix + before_anchor, prefix + after_anchor
        before_start, after_start = before_anchor + 1, after_anchor + 1
    yield from zip(range(before_end, len(before)), range(after_end, len(after)), strict=True)


def _anchors(before: list[int], after: list[int]) -> list[tuple[int, int]]:
    """Pairs of lines that are unique on both sides, the longest run of them in the same order."""
    before_counts, after_counts = Counter(before), Counter(after)
    after_index = {line: index for index, line in enumerate(after) if after_counts[line] == 1}
    pairs = [
        (index, after_index[line])
        for index, line in enumerate(before)
        if before_counts[line] == 1 and line in after_index
    ]
    ends: list[int] = []  # ends[k]: smallest after index that ends an increasing run of k + 1 pairs
    chains: list[int] = []  # chains[k]: the pair that ends that run
    previous: list[int | None] = []
    for number, (_, index) in enumerate(pairs):
        rank = bisect_left(ends, index)
        ends[rank : rank + 1] = [index]
        chains[rank : rank + 1] = [number]
        previous.append(chains[rank - 1] if rank else None)
    anchors = []
    cursor = chains[-1] if chains else None
    while cursor is not None:
        anchors.append(pairs[cursor])
        cursor = previous[cursor]
    return anchors[::-1]


def _gap_pairs(before: list[int], after: list[int]) -> Iterator[tuple[int, int]]:
    if not before or not after or len(before) * len(after) > MAX_GAP_CELLS:
        return
    for operation in LCSseq.opcodes(before, after):
        if operation.tag == "equal":
            yield from zip(
                range(operation.src_start, operation.src_end),
                range(operation.dest_start, operation.dest_end),
                strict=True,
            )
