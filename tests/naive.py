"""Slow, obvious twins of the kernels. Nothing here is fast, clever or shared with the package."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any


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


def ends_by_context(text: Sequence[int], depth: int) -> list[int]:
    """Positions with a token at and before them, by the `depth` tokens before them, read backwards."""
    ends = [end for end in range(1, len(text)) if text[end - 1] >= 0 and text[end] >= 0]
    return sorted(ends, key=lambda end: list(text[:end])[::-1][:depth])


def workspace_match(text: Sequence[int], tail: Sequence[int], min_count: int, depth: int) -> tuple[int, list[int]]:
    """Length of the longest suffix of `tail` that ends `min_count` times or more, and the ends by their contexts."""
    ends = ends_by_context(text, depth)
    for length in range(min(len(tail), depth), 0, -1):
        part = list(tail[len(tail) - length :])
        found = [end for end in ends if end >= length and list(text[end - length : end]) == part]
        if len(found) >= min_count and min(part) >= 0:
            return length, found
    return 0, []


def majority(text: Sequence[int], ends: Sequence[int], max_looked_at: int, max_followed: int) -> tuple[int, int]:
    """(how many looked at agree on the next token, last position that follows most of them token by token)."""
    num_looked_at = min(len(ends), max_looked_at)
    kept = [ends[index * len(ends) // num_looked_at] for index in range(num_looked_at)]
    sizes = list[int]()
    for offset in range(max_followed):
        groups = {text[end + offset]: [x for x in kept if text[x + offset] == text[end + offset]] for end in kept}
        groups.pop(-1, None)  # a separator
        if not groups:
            break
        kept = max(groups.values(), key=lambda group: (len(group), max(group)))
        sizes.append(len(kept))
        if len(kept) == 1:
            break
    return (sizes[0], max(kept)) if kept else (0, -1)


def run_cost(mean_length: float, costs: Sequence[float]) -> float:
    """Cost of getting through a run of geometric length with this mean, under the best constant draft length."""
    survival = mean_length / (1 + mean_length)
    return min(cost / (1 - survival**width) for width, cost in enumerate(costs, start=1))


def draft_costs(
    probabilities: Sequence[float], costs: Sequence[float], run_cost: Callable[[float], float]
) -> list[float]:
    """For each draft length from 0 on, what it costs until the copied run has ended."""
    num_tokens = len(probabilities)
    before = ([1.0, *probabilities] if num_tokens < 9 else list(probabilities))[-9:]
    decay = min((before[-1] / before[0]) ** (1 / (len(before) - 1)), 0.998)
    tail = [probabilities[-1] * decay**distance for distance in range(1, 20_000)]
    both = [*probabilities, *tail]
    return [
        costs[length] + both[length] * run_cost(sum(both[length + 1 :]) / both[length])
        for length in range(num_tokens + 1)
    ]


def shared_gain(limits: Sequence[int], savings: Sequence[Sequence[float]], costs: Sequence[float]) -> float:
    """The most that any lengths of the rows' drafts save after the cost of all their tokens together; at least 0."""
    return max(
        sum(saved[length] for saved, length in zip(savings, lengths, strict=True)) - (costs[sum(lengths)] - costs[0])
        for lengths in itertools.product(*(range(limit + 1) for limit in limits))
    )


def common_suffix(first: Sequence[int], second: Sequence[int], limit: int) -> int:
    """How many of the last tokens of both agree."""
    length = 0
    while length < min(len(first), len(second), limit) and first[-1 - length] == second[-1 - length]:
        length += 1
    return length


def hunk_end(
    text: Sequence[int], num_hunk_tokens: int, predicted: Sequence[int], cursor: int
) -> tuple[float, int, int] | None:
    """(score, place, agreeing tokens) where the file goes on after `text`; None where nothing says so."""
    best = None
    for place in range(max(cursor - 512, 0) + 1, min(cursor + 4096, len(predicted)) + 1):
        length = common_suffix(predicted[:place], text, 16)
        skip = place - min(length, num_hunk_tokens) - cursor
        required = 2 if abs(skip) <= 8 else (3 if -32 <= skip <= 64 else 5)
        score = length - 0.3 * math.log2(1 + abs(skip))
        if length >= required and score > (best[0] if best else 0.0):
            best = (score, place, length)
    return best


def followed(
    text: Sequence[int], first: int, predicted: Sequence[int]
) -> tuple[int, int, list[tuple[int, int, int, int]], int]:
    """(cursor, tokens in the present hunk, hunks that have ended, tokens that were the file's next) after the output.

    The output is ``text[first:]``.
    """
    cursor, num_hunk_tokens, hunks, num_followed = 0, 0, [], 0
    for end in range(first + 1, len(text) + 1):
        if num_hunk_tokens == 0 and predicted[cursor : cursor + 1] == text[end - 1 : end]:
            cursor, num_followed = cursor + 1, num_followed + 1
            continue
        num_hunk_tokens += 1
        found = hunk_end(text[:end], num_hunk_tokens, predicted, cursor)
        if found is not None:
            num_shared = min(found[2], num_hunk_tokens)
            hunks.append((cursor, found[1] - num_shared, end - num_hunk_tokens, end - num_shared))
            cursor, num_hunk_tokens = found[1], 0
    return cursor, num_hunk_tokens, hunks, num_followed


def other_cursor(
    text: Sequence[int], first: int, copied_from: int, workspace: Sequence[int] | None = None
) -> tuple[int, int, int]:
    """(next place, misses, agreeing tokens since) of a copy from `copied_from`; the place is -1 once it is over.

    Where there is a workspace it is copied from there, else from the text itself.
    """
    place, num_misses, num_agreeing = copied_from, 0, 0
    for position in range(first, len(text)):
        known = text[:position] if workspace is None else workspace
        is_right = known[place] == text[position]
        num_misses, num_agreeing = num_misses + (not is_right), num_agreeing + 1 if is_right else 0
        place += 1
        if num_misses > 3 or place >= len(known) or known[place] < 0:
            return -1, num_misses, num_agreeing
    return place, num_misses, num_agreeing


def most_voted(text: Sequence[int], ends: Sequence[int]) -> int:
    """The first end that goes on with the token that most of them go on with."""
    votes = Counter(text[end] for end in ends)
    return next(end for end in ends if votes[text[end]] == max(votes.values()))


def near_cursor(
    text: Sequence[int], num_hunk_tokens: int, predicted: Sequence[int], cursor: int, is_newline: Callable[[int], bool]
) -> dict[str, int]:
    """Places of the file to go on from within a hunk, by what speaks for them."""
    scores: dict[int, float] = {}
    for place in range(max(cursor - 512, 0) + 1, min(cursor + 4096, len(predicted))):
        length = common_suffix(predicted[:place], text, 16)
        skip = place - min(length, num_hunk_tokens) - cursor
        if length > 0:
            scores[place] = min(length, 8) - 0.5 * math.log2(1 + abs(skip)) - (skip < 0)
    found = {"likely": max(scores, key=lambda place: scores[place])} if scores else {}
    following = next((place for place in scores if place > cursor), None)
    if following is not None and following not in found.values():
        found["next"] = following
    if num_hunk_tokens <= 4 and cursor + num_hunk_tokens < len(predicted):
        found["replacement"] = cursor + num_hunk_tokens
    lines = [place for place in range(cursor, len(predicted)) if place == 0 or is_newline(predicted[place - 1])]
    if is_newline(text[-1]) and lines and lines[0] not in (found.get("likely"), following):
        found["line"] = lines[0]
    return found


def evidence_bin(evidence: int) -> int:
    """By the largest number of agreeing tokens in each bin."""
    return sum(evidence > largest for largest in (0, 1, 2, 3, 4, 6, 9, 15, 31, 63, 127))


def bin_end(evidence: int, offset: int, limit: int) -> int:
    """The first later offset with another bin of either kind; `limit` where there is none below it."""

    def bins(at: int) -> tuple[int, int]:
        return evidence_bin(evidence + at), min(at.bit_length(), 7)

    return next((later for later in range(offset + 1, limit) if bins(later) != bins(offset)), limit)


def tail_entries(
    kind: int, follows_file: bool, evidence: int, offset: int, classes: tuple[int, int], first: int, rate: int
) -> list[tuple[int, ...]]:
    """The entry of each part of the table, as an index into a part of that shape."""
    group = (0 if kind < 5 else 1) if follows_file else 2
    agreeing, octave = evidence_bin(evidence + offset), min(offset.bit_length(), 7)
    strength = sum(agreeing >= least for least in (4, 8, 10))
    return [
        (kind if follows_file or kind < 5 else kind + 6, agreeing),
        (group, *classes),
        (group, evidence_bin(evidence), octave),
        (first, octave),
        (group, rate, strength),
        (classes[1], agreeing),
    ]


def tree_value(features: Sequence[float], tree: Any) -> float:
    """Of a tree given as a leaf's value or (feature, threshold, left, right)."""
    if isinstance(tree, float):
        return tree
    feature, threshold, left, right = tree
    return tree_value(features, left if features[feature] <= threshold else right)


def quotes(text: Sequence[str], sources: Sequence[Sequence[str]], min_words: int) -> list[tuple[int, int]]:
    """The common stretches of units that are taken, longest first, in order; blanks are spaces, words alphanumeric."""
    free, taken = set(range(len(text))), []
    stretches = [(first, last) for last in range(1, len(text) + 1) for first in range(last)]
    while True:
        common = [
            (last - first, -first)
            for first, last in stretches
            if free.issuperset(range(first, last))
            and sum(unit.isalnum() for unit in text[first:last]) >= min_words
            and not text[first].isspace()
            and not text[last - 1].isspace()
            and any(places_of(source, text[first:last]) for source in sources)
        ]
        if not common:
            return sorted(taken)
        length, start = max(common)
        taken.append((-start, length - start))
        free -= set(range(-start, length - start))


def places_of(tokens: Sequence[Any], part: Sequence[Any]) -> list[int]:
    """Where `part` begins in `tokens`."""
    return [start for start in range(len(tokens) - len(part) + 1) if tokens[start : start + len(part)] == part]


def sources_of(
    array: int, position: int, num_copied: int, kinds: list[int], file_kind: int, num_file_tokens: int
) -> list[int]:
    """SourceKind of each copied token; `array` is 0 for the predicted file, 1 for the text, 2 for the workspace."""
    places = range(position, position + num_copied)
    if array == 0:
        return [file_kind if place < num_file_tokens else 2 for place in places]
    if array == 1:
        return [kinds[place] if place < len(kinds) else 3 for place in places]
    return [4] * num_copied
