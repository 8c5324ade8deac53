"""The file as it is expected to be written on: rewritten for some way from the cursor, and on as the cursor moves."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from lookahead_edit.drafters import predicted_file
from lookahead_edit.drafters.predicted_file import PredictedFile
from lookahead_edit.drafters.rewriting import Rewritten
from lookahead_edit.drafters.vocabulary import Vocabulary
from lookahead_edit.kernels import alignment
from lookahead_edit.tokenizer import ByteTokenizer, HfTokenizer
from lookahead_edit.types import NO_TOKENS, IntArray, Tokenizer
from tests.drafting import tokens_of
from tests.tiny_tokenizers import byte_level_tokenizer

TOKENIZER = ByteTokenizer()
FENCE = "```\n"
DENSE = "count(count) = count\n" * 3
LINES = "def f(count):\n    # counting what counts\n    return count + 1, recount\n\n" * 70  # some 5,000 bytes
NEW_NAME = "size_of_all"


@cache
def made(name: str) -> Tokenizer:
    return TOKENIZER if name == "bytes" else HfTokenizer(byte_level_tokenizer())


def predicting(text: str, instruction: str = "", tokenizer: Tokenizer = TOKENIZER) -> PredictedFile:
    predicted = PredictedFile(tokenizer, tokenizer.encode(text), tokenizer.encode(FENCE))
    predicted.learn_from_instruction(instruction)
    return predicted


def renamed(text: str, old: str = "count", new: str = NEW_NAME) -> str:
    return re.sub(rf"\b{old}\b", new, text)


def text_of(predicted: PredictedFile) -> str:
    return TOKENIZER.decode(predicted.tokens)


def check(predicted: PredictedFile, tokenizer: Tokenizer | None = TOKENIZER) -> None:
    """What holds whatever was learned."""
    tokens, places = predicted.tokens, predicted.places
    assert len(tokens) == len(places) == len(predicted.classes) == len(predicted.factors)
    assert (tokens.dtype, places.dtype) == (np.int32, np.int32)
    assert (predicted.classes.dtype, predicted.factors.dtype) == (np.int8, np.float32)
    assert predicted.classes.tolist() == Vocabulary(tokenizer).token_classes(tokens).tolist()
    own = places[places != alignment.NONE]
    assert (np.diff(own) > 0).all()
    num_plain = predicted.num_file_tokens + predicted.num_tokens_after_file
    after = range(predicted.num_file_tokens, num_plain)
    assert places[len(places) - len(after) :].tolist() == list(after)  # which is never rewritten
    assert ((predicted.factors > 0) & (predicted.factors <= 1)).all()


def follow(predicted: PredictedFile, output: IntArray, state: NDArray[np.int64], first: int) -> None:
    """One round that emitted ``output[first:]``, as the drafter takes it in; the line's beginning isn't told."""
    drafted = (0, 0, alignment.NONE, alignment.NONE, False, 0)
    alignment.follow(output, first, predicted.tokens, len(predicted.tokens), NO_TOKENS, *drafted, state)
    if state[alignment.HUNK_ENDED]:
        predicted.learn_from_hunk(state, output, None)
    predicted.keep_ahead(int(state[alignment.CURSOR]))


def new_state() -> NDArray[np.int64]:
    state = np.zeros(alignment.NUM_FIELDS, dtype=np.int64)
    alignment.reset(state)
    return state


def test_without_a_tokenizer_or_a_file_there_is_nothing_to_rewrite() -> None:
    nothing = PredictedFile(None)
    assert (len(nothing.tokens), nothing.num_file_tokens, nothing.num_bytes) == (0, 0, 0)
    nothing.learn_from_instruction("Rename count to size.")
    nothing.keep_ahead(0)
    nothing.observe(0, 4, 2, 7)
    plain = PredictedFile(None, TOKENIZER.encode(DENSE), TOKENIZER.encode(FENCE))
    plain.learn_from_instruction("Rename count to size.")
    plain.keep_ahead(len(DENSE))
    assert text_of(plain) == DENSE + FENCE
    assert plain.factors.tolist() == [1] * len(plain.tokens)
    for predicted in (nothing, plain):
        check(predicted, None)


def test_what_is_not_learned_is_not_copied() -> None:
    predicted = predicting(LINES, "Do it.")
    before = predicted.tokens
    for cursor in (0, 300, len(LINES) - 1, len(LINES), len(LINES) + 4):
        predicted.keep_ahead(cursor)
        assert predicted.tokens is before
    assert predicted.num_bytes == (4 + 4 + 1 + 4) * len(before)


def test_a_rewritten_window_never_ends_inside_of_a_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = DENSE.split("count")
    mixtures = {"count".join([NEW_NAME.join(parts[:number]), *parts[number:]]) for number in range(1, len(parts) + 1)}
    found = set()
    for num_tokens in range(1, 130):
        monkeypatch.setattr(predicted_file, "NUM_REWRITTEN_TOKENS", num_tokens)
        predicted = predicting(DENSE, f"Rename count to {NEW_NAME}.")
        check(predicted)
        assert text_of(predicted).endswith(FENCE)
        found.add(text_of(predicted).removesuffix(FENCE))
    assert found == mixtures


def test_places_say_which_token_of_the_file_comes_next() -> None:
    file = "a = count + 1\n"
    predicted = predicting(file, "Rename count to n.")
    text = text_of(predicted)
    assert text == "a = n + 1\n```\n"
    for position, place in enumerate(predicted.places.tolist()):
        if place < len(file) and text[position] != "n":
            assert file[place] == text[position]
    assert predicted.places[4:6].tolist() == [
        4,
        9,
    ]  # the new word stands for the old one, of which five tokens are left out


@pytest.mark.parametrize("name", ["bytes", "byte-level"])
@pytest.mark.parametrize("sizes", [(512, 256), (64, 16), (40, 20), (30, 29)], ids=str)
def test_a_long_file_is_rewritten_to_its_end_as_the_cursor_moves(
    name: str, sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predicted_file, "NUM_REWRITTEN_TOKENS", sizes[0])
    monkeypatch.setattr(predicted_file, "MIN_REWRITTEN_TOKENS", sizes[1])
    tokenizer = made(name)
    for step in (1, 7, 130):
        text = LINES if step == 130 else LINES[:1400]
        predicted = predicting(text, f"Rename count to {NEW_NAME}.", tokenizer)
        cursor, num_rewritten = 0, 0
        while cursor < len(predicted.tokens):
            before, known = predicted.tokens, predicted.places[: cursor + 1].tolist()
            predicted.keep_ahead(cursor)
            assert predicted.tokens[:cursor].tolist() == before[:cursor].tolist()  # what was written stays
            assert predicted.places[: cursor + 1].tolist() == known
            num_rewritten += predicted.tokens is not before
            cursor += step
        check(predicted, tokenizer)
        expected = tokenizer.encode(renamed(text)).tolist() + tokenizer.encode(FENCE).tolist()
        if step <= sizes[1]:
            assert predicted.tokens.tolist() == expected
        longest = len(tokenizer.encode(NEW_NAME))
        assert num_rewritten <= 2 + len(expected) / max(sizes[0] - sizes[1] - longest, 1)


def test_a_cursor_that_jumps_is_rewritten_from_where_it_lands() -> None:
    predicted = predicting(LINES, f"Rename count to {NEW_NAME}.")
    start = text_of(predicted).index("def", 2500)
    before, place = text_of(predicted)[:start], int(predicted.places[start])
    predicted.keep_ahead(start)
    check(predicted)
    assert text_of(predicted)[:start] == before
    assert "def f(count)" in before  # nobody needs what was left out
    ahead = text_of(predicted)[start:]
    assert ahead[:500] == renamed(LINES[place:])[:500]
    assert ahead.endswith(LINES[-500:] + FENCE)


def test_a_cursor_inside_of_a_replacement_waits_until_it_is_over() -> None:
    predicted = predicting(LINES, f"Rename count to {NEW_NAME}.")
    inside = [position for position in range(300, 512) if predicted.places[position] == alignment.NONE]
    before = predicted.tokens
    for cursor in inside:
        predicted.keep_ahead(cursor)
        assert predicted.tokens is before
    after = next(position for position in range(inside[0], 512) if predicted.places[position] != alignment.NONE)
    predicted.keep_ahead(after)
    assert predicted.tokens is not before
    check(predicted)


def test_a_replacement_longer_than_the_window_is_left_out_and_asked_for_no_more_than_once_a_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(predicted_file, "NUM_REWRITTEN_TOKENS", 5)
    predicted = predicting(DENSE, f"Rename count to {NEW_NAME}.")
    for cursor in range(len(DENSE) + 5):
        predicted.keep_ahead(cursor)
        check(predicted)
        assert text_of(predicted) == DENSE + FENCE


def test_at_the_files_end_nothing_is_rewritten_again() -> None:
    predicted = predicting(DENSE, f"Rename count to {NEW_NAME}.")
    before = predicted.tokens
    assert text_of(predicted) == renamed(DENSE) + FENCE
    for cursor in range(len(before) + 2):
        predicted.keep_ahead(cursor)
        assert predicted.tokens is before


def test_a_hunk_is_replaced_in_all_that_follows_and_nowhere_before() -> None:
    predicted, state = predicting(LINES), new_state()
    output = TOKENIZER.encode(renamed(LINES))
    end = LINES.index("count") + len("size_of_all):")
    follow(predicted, output[:end], state, 0)
    assert state[alignment.IS_ALIGNED] == 1
    cursor = int(state[alignment.CURSOR])
    assert text_of(predicted)[cursor : cursor + 300] == renamed(LINES)[end : end + 300]
    while end < len(output):
        first, end = end, min(end + 90, len(output))
        follow(predicted, output[:end].copy(), state, first)
        check(predicted)
    assert text_of(predicted).endswith(renamed(LINES)[-4000:] + FENCE)
    assert text_of(predicted).startswith(LINES[: LINES.index("count")] + "count")  # as it stood when it was passed
    assert state[alignment.CURSOR] == len(predicted.tokens) - len(FENCE)


def test_words_that_stay_are_plain_again_once_their_rule_sleeps() -> None:
    predicted, state = predicting("count = 1\n" * 9, "Rename count to size."), new_state()
    assert text_of(predicted) == "size = 1\n" * 9 + FENCE
    output = TOKENIZER.encode("count = 1\ncount = 1\n")
    for _ in range(2):
        predicted.observe(0, 8, 0, output[0])
    follow(predicted, output[:9], state, 0)
    assert text_of(predicted)[int(state[alignment.CURSOR]) :] == "\n" + "count = 1\n" * 8 + FENCE
    check(predicted)
    before = predicted.tokens
    predicted.keep_ahead(int(state[alignment.CURSOR]))
    assert predicted.tokens is before


def test_only_what_was_drafted_says_something_about_a_rule() -> None:
    predicted = predicting(LINES, f"Rename count to {NEW_NAME}.")
    start = text_of(predicted).index(NEW_NAME)
    trust = predicted.factors[start]

    def trust_now() -> float:
        fresh = int(np.flatnonzero(predicted.places == predicted.places[start])[0])
        predicted._rewrite(fresh)
        return float(predicted.factors[fresh])

    predicted.observe(0, start, start, None)  # a draft that ended before it
    predicted.observe(start + 1, 5, 0, 7)  # and one that began behind its first token
    assert trust_now() == trust
    predicted.observe(start, 20, 20, None)
    assert trust_now() > trust
    better = trust_now()
    predicted.observe(start, 20, 0, 99)
    assert trust_now() < better


def test_a_draft_from_before_the_window_tells_the_rules_nothing() -> None:
    predicted = predicting(LINES, f"Rename count to {NEW_NAME}.")
    start = text_of(predicted).index(NEW_NAME)
    predicted.keep_ahead(400)
    trust = predicted.factors[400:].min()
    for _ in range(3):
        predicted.observe(start, 20, 0, 99)
    predicted._rewrite(400)
    assert predicted.factors[400:].min() == trust


def test_a_copy_that_is_cut_in_a_replacement_ends_before_it() -> None:
    rewritten = Rewritten(tokens_of(1, 2, 3), tokens_of(1, -1, -1), np.ones(3, np.float32))
    assert predicted_file._without_cut_replacement(rewritten).tokens.tolist() == [1]
    rewritten = Rewritten(tokens_of(2, 3), tokens_of(-1, -1), np.ones(2, np.float32))
    assert len(predicted_file._without_cut_replacement(rewritten).tokens) == 0
