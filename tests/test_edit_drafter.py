"""What the edit drafter copies, rewrites and learns. A made-up acceptance model, so that no fit changes a test."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from lookahead_edit.acceptance import AcceptanceModel
from lookahead_edit.config import SpeculationConfig
from lookahead_edit.drafters import edit
from lookahead_edit.drafters.edit import EditDrafter
from lookahead_edit.drafters.rewriting import Rewritten
from lookahead_edit.kernels import acceptance as kernels
from lookahead_edit.kernels import alignment
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.types import NO_TOKENS, Draft, IntArray, Source, SourceKind, Tokenizer
from tests.drafting import commit, decode, emit, tokens_of

TOKENIZER = ByteTokenizer()
BLOCK = ["    step_1()\n", "    step_2()\n", "    step_3()\n"]
LINES = [
    f"line {number}: {name}\n" for number, name in enumerate(("alpha", "beta", "gamma", "delta", "eps", "zeta", "eta"))
]
FILE = "".join(LINES)


@pytest.fixture(autouse=True)
def simple_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file goes on as it did with odds of 20 to 1, what is elsewhere comes with odds of 1 to 3."""
    tail = np.zeros(kernels.NUM_TAIL_ENTRIES, np.float32)
    by_type = tail[: kernels.NUM_TYPES * kernels.NUM_EVIDENCE_BINS].reshape(kernels.NUM_TYPES, -1)
    by_type[:] = 1.5
    by_type[: kernels.FIRST_CURSOR_LESS_TYPE] = 4.0
    model = AcceptanceModel(
        roots=np.zeros(1, np.int32),
        splits=np.array([0, kernels.NONE, kernels.NONE], np.int32),
        thresholds=np.array([kernels.FIRST_CURSOR_LESS_TYPE - 1, 3.0, -1.1], np.float32),
        children=np.array([[1, 2], [0, 0], [0, 0]], np.int32),
        tail_log_odds=tail,
    )
    monkeypatch.setattr(edit, "acceptance_model", lambda: model)


class WordTokenizer(ByteTokenizer):
    """Words, single characters, and line ends with the blanks that follow them; a new piece is a new token."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def encode(self, text: str, *, parse_special: bool = True) -> IntArray:
        pieces = re.findall(r"\n *|\w+|.", text)
        self._pieces += [piece for piece in dict.fromkeys(pieces) if piece not in self._pieces]
        return tokens_of(*(self._pieces.index(piece) for piece in pieces))

    def decode(self, tokens: IntArray) -> str:
        return "".join(self._pieces[token] for token in tokens.tolist())

    def token_bytes(self, token: int) -> bytes | None:
        return self._pieces[token].encode() if 0 <= token < len(self._pieces) else None


def codes(text: str) -> list[int]:
    return TOKENIZER.encode(text).tolist()


def text_of(draft: Draft) -> str:
    return TOKENIZER.decode(draft.tokens)


def editing(
    file: str, instruction: str = "Do it.", *sources: Source, tokenizer: Tokenizer | None = TOKENIZER
) -> EditDrafter:
    """At the start of an answer; the file is closed by a fence, and so is the prompt before it."""
    encode = (tokenizer or TOKENIZER).encode
    head, tokens = encode(f"{instruction}\n```\n"), encode(file)
    drafter = EditDrafter(SpeculationConfig(), tokenizer)
    own = [Source(SourceKind.FILE, tokens, prompt_start=len(head))] if file else []
    drafter.start(np.concatenate([head, tokens, encode("```\nHere it is:\n```\n")]), [*own, *sources])
    return drafter


def write(drafter: EditDrafter, text: str) -> None:
    """The model writes this, and nothing drafted is verified."""
    emit(drafter, *codes(text))


def test_an_unchanged_file_is_copied_and_closed_as_in_the_prompt() -> None:
    drafts = decode(editing(FILE), codes(FILE + "```\n"), max_draft_tokens=512)
    assert len(drafts) == 1
    assert text_of(drafts[0]) == FILE + "```\n"
    assert drafts[0].sources.tolist() == [SourceKind.FILE] * len(FILE) + [SourceKind.PROMPT] * edit.MAX_OVERRUN_TOKENS


def test_after_the_fence_nothing_more_of_the_prompt_is_taken_for_the_file() -> None:
    drafter = editing(FILE)
    decode(drafter, codes(FILE + "```\n"), max_draft_tokens=512)
    assert SourceKind.FILE not in drafter.draft(8).sources.tolist()


@pytest.mark.parametrize(
    ("output", "num_rounds"),
    [
        pytest.param([*LINES[:2], "new\n", *LINES[2:]], 7, id="insertion"),
        pytest.param([*LINES[:2], *LINES[3:]], 2, id="deletion"),
        pytest.param([*LINES[:2], LINES[2].replace("gamma", "omega"), *LINES[3:]], 6, id="replacement"),
        pytest.param([*LINES[:2], *LINES[4:6], *LINES[2:4], LINES[6]], 8, id="move"),
        pytest.param([*LINES[:3], *LINES[1:]], 4, id="repeated lines"),
    ],
)
def test_copying_goes_on_soon_after_a_change(output: list[str], num_rounds: int) -> None:
    text = "".join(output) + "```\n"
    drafts = decode(editing(FILE), codes(text), max_draft_tokens=512)
    assert len(drafts) <= num_rounds


def test_a_word_replaced_once_is_replaced_where_it_stands_again() -> None:
    drafter = editing("def f(count):\n    return count + 1\n\nprint(f(count=3))\n")
    write(drafter, "def f(size):")
    assert text_of(drafter.draft(64)) == "\n    return size + 1\n\nprint(f(size=3))\n```\n"


def test_a_word_the_instruction_replaces_is_drafted_before_it_was_seen() -> None:
    drafter = editing("count = 1\nprint(count)\n", "Rename count to total_size.")
    draft = drafter.draft(64)
    assert text_of(draft) == "total_size = 1\nprint(total_size)\n```\n"
    assert drafter._file is not None
    assert set(draft.sources[:-4].tolist()) == {SourceKind.FILE}
    assert len(decode(drafter, codes("total_size = 1\nprint(total_size)\n```\n"))) == 1


def test_a_block_that_was_indented_is_drafted_indented() -> None:
    tokenizer = WordTokenizer()
    file = "def f():\n" + "".join(BLOCK) + "\ndef g():\n    pass\n"
    drafter = editing(file, tokenizer=tokenizer)
    emit(drafter, *tokenizer.encode("def f():\n    if ready:\n        step_1()").tolist())
    assert tokenizer.decode(drafter.draft(64).tokens) == (
        "\n        step_2()\n        step_3()\n\ndef g():\n    pass\n```\n"
    )


def test_words_that_stay_after_all_are_drafted_as_they_are() -> None:
    line = "print(count)  # and so on\n"
    drafter = editing(line * 12, "Rename count to size.")
    assert "size" in text_of(drafter.draft(64))
    drafts = decode(drafter, codes(line * 8), max_draft_tokens=64)
    assert "size" not in text_of(drafts[-1])
    assert "size" not in text_of(drafter.draft(64))


def test_a_rewritten_window_never_ends_inside_of_a_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    file = "count(count) = count\n" * 3
    parts = file.split("count")
    mixtures = {
        "count".join(["size_of_all".join(parts[:number]), *parts[number:]]) for number in range(1, len(parts) + 1)
    }
    found = set()
    for num_tokens in range(1, 130):
        monkeypatch.setattr(edit, "MAX_REWRITTEN_TOKENS", num_tokens)
        drafter = editing(file, "Rename count to size_of_all.")
        predicted = TOKENIZER.decode(drafter._predicted)
        assert predicted.endswith("```\n")
        found.add(predicted.removesuffix("```\n"))
        assert len(drafter._places) == len(drafter._predicted) == len(drafter._factors)
        assert drafter._places.max() == len(file) + edit.MAX_OVERRUN_TOKENS - 1
        own = drafter._places[drafter._places >= 0]
        assert (np.diff(own) > 0).all()
    assert found == mixtures


def test_places_say_which_token_of_the_file_comes_next() -> None:
    file = "a = count + 1\n"
    drafter = editing(file, "Rename count to n.")
    predicted = TOKENIZER.decode(drafter._predicted)
    for position, place in enumerate(drafter._places.tolist()):
        if place != alignment.NONE and place < len(file) and predicted[position] not in "count":
            assert file[place] == predicted[position]


def test_a_prediction_wins_over_the_file() -> None:
    prediction = Source(SourceKind.PREDICTION, tokens_of(*codes("wholly other\n")))
    draft = editing(FILE, "Do it.", prediction).draft(64)
    assert text_of(draft).startswith("wholly other\n")
    assert set(draft.sources[:13].tolist()) == {SourceKind.PREDICTION}


def test_other_files_are_copied_from_and_named() -> None:
    others = [
        Source(SourceKind.CONTEXT, tokens_of(*codes("def unrelated(): pass\n")), path="a.py"),
        Source(SourceKind.CONTEXT, tokens_of(*codes("class Quokka(Zebra):\n    stripes = 77\n")), path="b.py"),
    ]
    drafter = editing(FILE, "Do it.", *others)
    write(drafter, "class Quok")
    draft = drafter.draft(64)
    assert text_of(draft) == "ka(Zebra):\n    stripes = 77\n"
    assert set(draft.sources.tolist()) == {SourceKind.CONTEXT}
    assert drafter._workspace is not None
    (row,) = drafter._candidates[:1, edit.places.POSITION].tolist()
    assert drafter._workspace.path_of(row) == "b.py"


def test_without_a_tokenizer_all_but_rewriting_works() -> None:
    drafter = editing(FILE, "Rename line to row.", tokenizer=None)
    assert text_of(drafter.draft(512)) == FILE + "```\n"
    write(drafter, "row 0: alpha\n")
    assert text_of(drafter.draft(16)).startswith(LINES[1])


def test_without_a_file_what_was_said_before_is_copied() -> None:
    drafter = editing("", "The quick brown fox.")
    write(drafter, "He wrote: The quick")
    draft = drafter.draft(64)
    assert text_of(draft).startswith(" brown fox.")
    assert set(draft.sources.tolist()) <= {SourceKind.PROMPT, SourceKind.OUTPUT}
    nothing = EditDrafter(SpeculationConfig(), TOKENIZER)
    nothing.start(tokens_of(5), [])
    assert nothing.draft(8).reason == "no earlier occurrence of the last token"


def test_what_is_unlikely_isnt_drafted_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    model = edit.acceptance_model()
    hopeless = AcceptanceModel(
        model.roots, model.splits, np.full(3, -9.0, np.float32), model.children, model.tail_log_odds
    )
    monkeypatch.setattr(edit, "acceptance_model", lambda: hopeless)
    draft = editing(FILE).draft(64)
    assert (len(draft), draft.reason) == (0, "no guess is likely enough, the best is right 0% of the time")
    assert editing(FILE).draft(0).reason == "no room for a draft"


def test_a_cut_draft_is_judged_by_what_was_verified() -> None:
    drafter = editing(FILE)
    draft = drafter.draft(64).cut(5)
    commit(drafter, draft, *codes(FILE[:6]))
    assert drafter._state[alignment.NUM_BREAKS] == 0
    assert drafter._state[alignment.REJECTED_TOKEN] == alignment.NONE
    assert text_of(drafter.draft(8)) == FILE[6:14]
    commit(drafter, drafter.draft(8).cut(0, "not now"), *codes(FILE[6]))
    assert text_of(drafter.draft(8)) == FILE[7:15]


def test_tokens_may_be_committed_without_a_draft_before() -> None:
    drafter, plain = editing(FILE), editing(FILE)
    foreign = Draft(tokens=tokens_of(*codes(FILE[:2])), sources=np.zeros(2, np.int8), match_length=1)
    drafter.commit(tokens_of(*codes(FILE[:3])), foreign, 2)
    drafter.commit(tokens_of(*codes(FILE[3:9])), Draft(), 0)
    write(plain, FILE[:9])
    assert text_of(drafter.draft(64)) == text_of(plain.draft(64)) == FILE[9:73]


def test_buffers_grow_with_the_output_and_with_larger_drafts() -> None:
    drafter = editing(LINES[0], "Do it.", tokenizer=None)
    output = np.random.default_rng(1).integers(0, 50_000, 3000).tolist()
    decode(drafter, output, max_draft_tokens=4)
    for tail in (output[100:130], output[2000:2030]):
        emit(drafter, *tail[:10])
        assert drafter.draft(20).tokens.tolist() == tail[10:]
    assert len(drafter.draft(4096)) < 64 < len(drafter._tokens)


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
        assert len(drafter._places) == len(drafter._predicted) == drafter._num_predicted
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


def test_an_empty_prompt_and_separators_are_no_tokens() -> None:
    prediction = Source(SourceKind.PREDICTION, tokens_of(8, 9, 10))
    for prompt in (NO_TOKENS, tokens_of(4)):
        drafter = EditDrafter(SpeculationConfig(), None)
        drafter.start(prompt, [prediction])
        assert drafter.draft(8).tokens.tolist() == [8, 9, 10]
        emit(drafter, 8, 70, 9)
        assert drafter.draft(8).tokens.tolist()[:1] == [10]


def test_a_copy_that_is_cut_in_a_replacement_ends_before_it() -> None:
    rewritten = Rewritten(tokens_of(1, 2, 3), tokens_of(1, -1, -1), np.ones(3, np.float32))
    assert edit._without_cut_replacement(rewritten).tokens.tolist() == [1]
    rewritten = Rewritten(tokens_of(2, 3), tokens_of(-1, -1), np.ones(2, np.float32))
    assert len(edit._without_cut_replacement(rewritten).tokens) == 0
