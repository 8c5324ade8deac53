"""Slow, obvious twins of the kernels. Nothing here is fast, clever or shared with the package."""

from __future__ import annotations

from collections.abc import Sequence


def agreeing_tokens(tokens: Sequence[int], end: int) -> int:
    """How many tokens before `end` equal the last ones of all."""
    length = 0
    while length < end and tokens[end - 1 - length] == tokens[-1 - length]:
        length += 1
    return length


def longest_match(tokens: Sequence[int]) -> tuple[int, list[int]]:
    """Length of the longest suffix that occurs earlier, and the positions after it, most recent first."""
    lengths = {end: agreeing_tokens(tokens, end) for end in range(1, len(tokens))}
    longest = max(lengths.values(), default=0)
    if longest == 0:
        return 0, []
    return longest, sorted((end for end, length in lengths.items() if length == longest), reverse=True)


def ends_of_suffix(tokens: Sequence[int], length: int) -> list[int]:
    """Positions after all earlier occurrences of the last `length` tokens, most recent first."""
    tail = list(tokens[len(tokens) - length :])
    return [end for end in range(len(tokens) - 1, length - 1, -1) if list(tokens[end - length : end]) == tail]


def ngram(tokens: Sequence[int], longest: int, shortest: int) -> tuple[int, int]:
    """(n, position after it) of the most recent occurrence of the longest n-gram that occurs earlier; else (0, -1)."""
    for length in range(longest, shortest - 1, -1):
        ends = ends_of_suffix(tokens, length) if length <= len(tokens) else []
        if ends:
            return length, ends[0]
    return 0, -1


def near(tokens: Sequence[int], kinds: Sequence[int], cursor: int) -> tuple[int, int]:
    """(score, end) of the best place 0 to 16 tokens after the cursor, in the same file or prediction."""
    best = (0, cursor)
    for end in range(cursor, min(cursor + 17, len(tokens))):
        if kinds[cursor] > 1 or kinds[end] != kinds[cursor] or tokens[end] < 0:
            break
        length = min(agreeing_tokens(tokens, end), 64)
        score = length + (3 if end <= cursor + 4 else 1)
        if length > 0 and score > best[0]:
            best = (score, end)
    return best


def place(tokens: Sequence[int], kinds: Sequence[int], refuted: Sequence[int], cursor: int) -> tuple[int, int]:
    """(match length, position) to copy from; the position is -1 if there is none that deserves a try."""
    length, ends = longest_match(tokens)
    if cursor >= 0 and length > 0:
        score, end = near(tokens, kinds, cursor)
        if min(score, 64) > refuted[end] and score >= min(length, 64):
            return score, end
    ends = [end for end in ends if tokens[end] >= 0]
    in_files = [end for end in ends if kinds[end] <= 1]
    after_cursor = [end for end in in_files if end >= cursor >= 0]
    best = after_cursor[-1] if after_cursor else (in_files or ends or [-1])[0]
    return length, best if best >= 0 and min(length, 64) > refuted[best] else -1


def copied(tokens: Sequence[int], kinds: Sequence[int], end: int, limit: int, overrun: int) -> list[int]:
    """Positions copied from `end` on, one after the other, `overrun` of them past the border of the source."""
    wraps = kinds[end] > 1
    positions: list[int] = []
    for index in range(limit):
        position = end + index % (len(tokens) - end) if wraps else end + index
        strange = [at for at in [*positions, position] if at < len(tokens) and kinds[at] not in (kinds[end], 0)]
        if position >= len(tokens) or tokens[position] < 0 or len(strange) > overrun:
            break
        positions.append(position)
    return positions


def suffix_place(tokens: Sequence[int], shortest: int, longest: int, num_following: int) -> tuple[int, int]:
    """(length, first end) of the longest suffix that occurs earlier with enough tokens after it; else (0, -1)."""
    for length in range(min(longest, len(tokens)), shortest - 1, -1):
        ends = [end for end in ends_of_suffix(tokens, length) if len(tokens) - end >= num_following]
        if ends:
            return length, ends[-1]
    return 0, -1


def occurrences(tokens: Sequence[int], part: Sequence[int]) -> int:
    """How often `part` stands in `tokens`, also overlapping itself."""
    return sum(list(tokens[start : start + len(part)]) == list(part) for start in range(len(tokens)))


def frequent_path(tokens: Sequence[int], match_length: int, limit: int, least: float) -> tuple[float, list[int]]:
    """(score, continuation) of the last tokens: most frequent next ones while the product of ratios is enough."""
    part, score, product = list(tokens[len(tokens) - match_length :]), 0.0, 1.0
    for _ in range(limit):
        rank = {
            token: (occurrences(tokens, [*part, token]), -first_start(tokens, [*part, token])) for token in set(tokens)
        }
        token = max(rank, key=lambda token: rank[token])
        product = product * rank[token][0] / occurrences(tokens, part)
        if product == 0 or product < least:
            break
        part.append(token)
        score += product
    return score, part[match_length:]


def first_start(tokens: Sequence[int], part: Sequence[int]) -> int:
    """Where `part` stands first; the length of `tokens` if nowhere."""
    return next((at for at in range(len(tokens)) if list(tokens[at : at + len(part)]) == list(part)), len(tokens))


def frequent(tokens: Sequence[int], max_depth: int, factor: float, least: float, limit: int) -> tuple[int, list[int]]:
    """(match length, continuation) with the best score over all suffixes; ties go to the longer suffix."""
    best_score, best = 0.0, (0, list[int]())
    for length in range(1, min(max_depth, len(tokens) + 1)):
        path_limit = min(int(factor * length), max_depth - length, limit)
        score, path = frequent_path(tokens, length, path_limit, least)
        if path and score >= best_score:
            best_score, best = score, (length, path)
    return best


def longest_copy(tokens: Sequence[int], future: Sequence[int], limit: int) -> tuple[int, int]:
    """(start, length) of the longest copy that begins `future`; what is copied may itself be copied on."""
    best = (-1, 0)
    both = [*tokens, *future]
    for start in range(len(tokens)):
        length = 0
        while length < min(limit, len(future)) and both[start + length] == future[length]:
            length += 1
        if length > best[1]:
            best = (start, length)
    return best
