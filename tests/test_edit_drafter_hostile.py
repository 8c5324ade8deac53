"""The edit drafter on random edits and on texts made to hurt: right by its rules, and bounded."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lookahead_edit.config import SpeculationConfig
from lookahead_edit.drafters import edit
from lookahead_edit.drafters.edit import EditDrafter
from lookahead_edit.types import Draft, Source, SourceKind, Tokenizer
from tests.drafting import TOKENIZER, codes, commit, decode, editing, simple_model, tokens_of


@pytest.fixture(autouse=True)
def made_up_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edit, "acceptance_model", simple_model)


def check(draft: Draft, known: set[int], max_draft_tokens: int) -> None:
    assert len(draft) <= max_draft_tokens
    assert (len(draft) == 0) == (draft.reason is not None)
    if len(draft):
        assert draft.probabilities is not None
        assert draft.probabilities.shape == draft.sources.shape == draft.tokens.shape
        assert (np.diff(draft.probabilities) <= 0).all()
        assert 0 < draft.probabilities[-1] <= draft.probabilities[0] <= 1
        assert set(draft.tokens.tolist()) <= known
        assert draft.match_length >= 1


@pytest.mark.parametrize("tokenizer", [None, TOKENIZER], ids=["no tokenizer", "bytes"])
def test_random_edits_of_random_texts_are_drafted_by_the_rules(tokenizer: Tokenizer | None) -> None:
    generator = np.random.default_rng(8)
    words = ["foo", "bar(", ")\n", "    ", "\n", " = ", "x", ".", "\t"]
    known = set(range(256))
    for _ in range(25):
        file = "".join(generator.choice(words, 60).tolist())
        other = Source(SourceKind.CONTEXT, TOKENIZER.encode("".join(generator.choice(words, 30).tolist())))
        output = file.replace("foo", str(generator.choice(["foo", "spam", "x"])))
        for _ in range(int(generator.integers(0, 4))):
            start, width = generator.integers(0, [len(output), 20]).tolist()
            output = output[:start] + "".join(generator.choice(words, 3).tolist()) + output[start + width :]
        drafter = editing(file, "Rename foo to spam.", other, tokenizer=tokenizer)
        max_draft_tokens = int(generator.integers(1, 200))
        drafts = decode(drafter, codes(output), max_draft_tokens)
        for draft in drafts:
            check(draft, known, max_draft_tokens)
        file_now = drafter._file
        assert len(file_now.tokens) == len(file_now.places) == len(file_now.classes) == len(file_now.factors)
        assert len(drafts) < len(output)


def test_hundreds_of_doubtful_replacements_leave_probabilities_above_zero() -> None:
    drafter = editing("a b " * 400, "Replace a with c.")
    draft = drafter.draft(2048)
    check(draft, set(codes("abc `\n")), 2048)
    commit(drafter, draft, *draft.tokens.tolist(), 70)
    assert np.isfinite(drafter._break_factor)


def de_bruijn(num_values: int, order: int) -> list[int]:
    """Each word of `order` values once, by the greedy rule: the largest value that makes a new word."""
    word, seen = [0] * order, set()
    while True:
        for value in range(num_values - 1, -1, -1):
            candidate = (*word[len(word) - order + 1 :], value)
            if candidate not in seen:
                seen.add(candidate)
                word.append(value)
                break
        else:
            return word


HOSTILE = {
    "one token": [7] * 20_000,
    "de Bruijn": de_bruijn(2, 13),
    "random ids": np.random.default_rng(1).integers(0, 50_000, 20_000).tolist(),
    "random huge ids": np.random.default_rng(2).integers(0, 2**31 - 1, 20_000, endpoint=True).tolist(),
    "the largest id": list(itertools.islice(itertools.cycle([2**31 - 1, 5, 2**31 - 2]), 20_000)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_stay_bounded_and_are_copied_right(name: str) -> None:
    file = HOSTILE[name]
    for tokenizer in (None, TOKENIZER):
        drafter = EditDrafter(SpeculationConfig(), tokenizer)
        drafter.start(tokens_of(5, *file, 6), [Source(SourceKind.FILE, tokens_of(*file), prompt_start=1)])
        output = [*file[:600], 2**31 - 1, 3, *file[600:900], *file[300:400], 2**31 - 1, 2**31 - 1]
        drafts = decode(drafter, output)
        for draft in drafts:
            check(draft, {5, 6, *file, *output}, 64)
        assert len(drafts) < len(output) / 4
        assert drafter.num_index_bytes < 200 * len(file) + 2 * 4 * edit.MAX_COUNTED_TOKENS
