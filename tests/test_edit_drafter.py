"""What the edit drafter copies, rewrites and learns. A made-up acceptance model, so that no fit changes a test."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from lookahead_edit.acceptance import AcceptanceModel
from lookahead_edit.config import SpeculationConfig
from lookahead_edit.cost import CostCurve, run_costs
from lookahead_edit.drafters import edit
from lookahead_edit.drafters.edit import EditDrafter
from lookahead_edit.kernels import alignment
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.types import NO_TOKENS, Draft, IntArray, Source, SourceKind
from tests.drafting import TOKENIZER, codes, commit, decode, editing, emit, simple_model, text_of, tokens_of

BLOCK = ["    step_1()\n", "    step_2()\n", "    step_3()\n"]
DEAR = CostCurve.linear(0.5).values(1, 512)  # a drafted token costs half a pass
LINES = [
    f"line {number}: {name}\n" for number, name in enumerate(("alpha", "beta", "gamma", "delta", "eps", "zeta", "eta"))
]
FILE = "".join(LINES)


@pytest.fixture(autouse=True)
def made_up_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edit, "acceptance_model", simple_model)


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


NAMES = ["".join(letters) for letters in itertools.islice(itertools.product("vwxyz", "aeiou", "bdgkt", "aeiou"), 150)]
LONG_FILE = "".join(f"def {name}(count):\n    return count + 12\n\n" for name in NAMES)  # 5,000 bytes
LONG_RENAMED = LONG_FILE.replace("count", "size_of_all")


@pytest.mark.parametrize("instruction", ["Rename count to size_of_all.", "Do it."])
def test_a_rename_is_drafted_renamed_to_a_long_files_end(instruction: str) -> None:
    assert len(LONG_FILE) > 5000
    drafts = decode(editing(LONG_FILE, instruction), codes(LONG_RENAMED + "```\n"))
    num_rounds = len(LONG_RENAMED) // 65 + 1
    is_known = instruction != "Do it."
    assert len(drafts) <= num_rounds + (1 if is_known else 25)  # some until it was seen
    for draft in drafts[0 if is_known else 25 :]:
        assert text_of(draft) in LONG_RENAMED + "```\n"  # nothing of it is ever wrong


def test_what_was_renamed_is_renamed_after_a_part_of_the_file_was_left_out() -> None:
    drafter = editing(LONG_FILE, "Rename count to size_of_all.")
    end, start = (LONG_RENAMED.index(f"def {NAMES[number]}(") for number in (1, 120))
    write(drafter, LONG_RENAMED[:end] + LONG_RENAMED[start : start + 20])
    draft = text_of(drafter.draft(400))
    assert len(draft) > 200
    assert draft == LONG_RENAMED[start + 20 : start + 20 + len(draft)]


def test_a_drafter_that_starts_anew_knows_nothing_of_what_it_learned() -> None:
    drafter = editing("count = 1\nprint(count)\n", "Rename count to size.")
    write(drafter, "size = 1\nprint(si")
    assert text_of(drafter.draft(64)) == "ze)\n```\n"
    head, file = TOKENIZER.encode("Do it.\n"), TOKENIZER.encode("count = 1\n")
    drafter.start(np.concatenate([head, file]), [Source(SourceKind.FILE, file, prompt_start=len(head))])
    assert text_of(drafter.draft(64)) == "count = 1\n"
    drafter.start(head, [])
    assert SourceKind.FILE not in drafter.draft(64).sources.tolist()


def test_words_that_stay_after_all_are_drafted_as_they_are() -> None:
    line = "print(count)  # and so on\n"
    drafter = editing(line * 12, "Rename count to size.")
    assert "size" in text_of(drafter.draft(64))
    drafts = decode(drafter, codes(line * 8), max_draft_tokens=64)
    assert "size" not in text_of(drafts[-1])
    assert "size" not in text_of(drafter.draft(64))


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


def context(text: str, path: str) -> Source:
    return Source(SourceKind.CONTEXT, tokens_of(*codes(text)), path=path)


def test_a_copy_from_another_file_goes_on_after_a_word_that_differs() -> None:
    drafter = editing("", "Do it.", context("class Quokka:\n  x = 77\n  y = 4\n", "b.py"))
    write(drafter, "class Quok")
    draft = drafter.draft(64)
    assert text_of(draft) == "ka:\n  x = 77\n  y = 4\n"
    commit(drafter, draft, *codes("ka:\n  x = 7"), ord("3"))
    following = drafter.draft(64)
    assert drafter._candidates[drafter._chosen, edit.places.TYPE] == edit.places.OTHER_CURSOR
    assert text_of(following) == "\n  y = 4\n"
    assert set(following.sources.tolist()) == {SourceKind.CONTEXT}
    commit(drafter, following, *codes("\n  y = 4\n"), ord("x"))
    assert drafter._state[alignment.OTHER] == alignment.NONE  # the file has ended


def test_classes_are_those_of_the_workspace_that_is_used() -> None:
    drafters = [editing(FILE, "Do it.", context(text, "b.py")) for text in ("a b\n(\n", "(((\nab  c d\n", "a b\n(\n")]
    for drafter in drafters:
        assert drafter._workspace is not None
        classes = drafter._vocabulary.token_classes(drafter._workspace.text)
        assert drafter._workspace_classes.tolist() == classes.tolist()
    assert drafters[0]._workspace_classes is drafters[2]._workspace_classes  # of one index, by whomever
    assert drafters[0]._workspace_classes.tolist() != drafters[1]._workspace_classes.tolist()
    with_classes, without = (drafter.num_index_bytes for drafter in (drafters[0], editing(FILE)))
    assert with_classes - without == 9 * len(drafters[0]._workspace_classes) - 4 * 2  # and two tokens have no end
    drafters[0].start(tokens_of(5), [])
    assert len(drafters[0]._workspace_classes) == len(drafters[0]._workspace_text) == 0
    write(drafters[0], "xy")


def test_without_a_tokenizer_all_but_rewriting_works() -> None:
    drafter = editing(FILE, "Rename line to row.", tokenizer=None)
    assert text_of(drafter.draft(512)) == FILE + "```\n"
    write(drafter, "row 0: alpha\n")
    assert text_of(drafter.draft(16)).startswith(LINES[1])


@pytest.mark.parametrize(
    ("head", "tail", "num_lead_tokens"),
    [
        pytest.param("Do it.\n```\n", "```\nSo:\n```\n", 5, id="a fence"),
        pytest.param("Do it now, please:\n", "```\nDo it now, please:\n", alignment.MAX_LEAD_TOKENS, id="a long one"),
        pytest.param("Do it.\n```\n", "```\n", 5, id="the fence that closes the file"),
        pytest.param("Do it.\n```\n", "```\nWhat is it about?", 0, id="a question"),
        pytest.param("", "```\n", 0, id="nothing before the file"),
    ],
)
def test_what_leads_to_the_answer_says_whether_it_begins_as_the_file_does(
    head: str, tail: str, num_lead_tokens: int
) -> None:
    drafter = EditDrafter(SpeculationConfig(), TOKENIZER)
    start, file, end = (TOKENIZER.encode(text) for text in (head, FILE, tail))
    prompt = np.concatenate([start, file, end])
    drafter.start(prompt, [context("def f(): pass", "b.py"), Source(SourceKind.FILE, file, prompt_start=len(start))])
    assert drafter._state[alignment.NUM_LEAD_TOKENS] == num_lead_tokens
    assert alignment.is_following(len(drafter._file.tokens), drafter._state) == (num_lead_tokens > 0)
    drafter.start(prompt, [Source(SourceKind.PREDICTION, file)])  # is what the answer is expected to be
    assert drafter._state[alignment.NUM_LEAD_TOKENS] == alignment.MAX_LEAD_TOKENS
    drafter.start(prompt, [])
    assert drafter._state[alignment.NUM_LEAD_TOKENS] == 0


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
    hopeless = AcceptanceModel(model.columns, model.thresholds, np.full((1, 2), -9.0, np.float32), model.tail_log_odds)
    monkeypatch.setattr(edit, "acceptance_model", lambda: hopeless)
    draft = editing(FILE).draft(64)
    assert (len(draft), draft.reason) == (0, "no guess is likely enough, the best is right about 0 % of the time")
    assert editing(FILE).draft(0).reason == "no room for a draft"


@pytest.mark.parametrize(("log_odds", "tens"), [(-3.0, 0), (-2.9, 10), (-1.8, 10), (-1.7, 20), (-9.0, 0)])
def test_reasons_are_few_as_they_are_counted(log_odds: float, tens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = edit.acceptance_model()
    leaves, tail = np.full((1, 2), log_odds, np.float32), np.full_like(model.tail_log_odds, -9.0)
    unlikely = AcceptanceModel(model.columns, model.thresholds, leaves, tail)
    monkeypatch.setattr(edit, "acceptance_model", lambda: unlikely)
    monkeypatch.setattr(edit, "_nominal_costs", lambda: (DEAR, run_costs(DEAR)))
    draft = editing(FILE).draft(64)
    assert draft.reason == f"no guess is likely enough, the best is right about {tens} % of the time"


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


def test_an_empty_prompt_and_separators_are_no_tokens() -> None:
    prediction = Source(SourceKind.PREDICTION, tokens_of(8, 9, 10))
    for prompt in (NO_TOKENS, tokens_of(4)):
        drafter = EditDrafter(SpeculationConfig(), None)
        drafter.start(prompt, [prediction])
        assert drafter.draft(8).tokens.tolist() == [8, 9, 10]
        emit(drafter, 8, 70, 9)
        assert drafter.draft(8).tokens.tolist()[:1] == [10]


@pytest.mark.parametrize("size", [1, 13, 10_000])
def test_a_prompt_read_in_pieces_is_drafted_from_as_if_read_at_once(size: int) -> None:
    tokenizer = ByteTokenizer()
    prompt = tokenizer.encode("rename price to total\n```\nprice = 2 * price + 1\n```\n")
    sources = [Source(SourceKind.FILE, prompt[26:48].copy(), prompt_start=26)]
    whole, pieces = EditDrafter(SpeculationConfig(), tokenizer), EditDrafter(SpeculationConfig(), tokenizer)
    whole.start(prompt, sources)
    pieces.begin(prompt, sources)
    while not pieces.read_on(size):
        pass
    for character in "total = 2":
        drafts = [drafter.draft(40) for drafter in (whole, pieces)]
        assert drafts[0].tokens.tolist() == drafts[1].tokens.tolist()
        assert drafts[0].sources.tolist() == drafts[1].sources.tolist()
        for drafter, draft in zip((whole, pieces), drafts, strict=True):
            drafter.commit(tokenizer.encode(character), draft.cut(0), 0)
    assert len(drafts[1]) > 0
