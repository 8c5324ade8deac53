"""Each peer's rule on an example worked by hand, and the scans against their naive twins."""

from __future__ import annotations

import os
from functools import partial

import naive
import numpy as np
import pytest

from benchmarks.peers import MAX_DRAFT_TOKENS, PEERS, TUNING
from benchmarks.peers.context import ContextDrafter
from benchmarks.peers.kernels import NONE, find_copy, find_frequent, find_most_recent, find_suffix
from benchmarks.peers.line_cursor import texts_of_tokens
from lookahead_edit.config import SamplingConfig, SpeculationConfig
from lookahead_edit.drafters.suffix import SuffixDrafter
from lookahead_edit.engine import Engine
from lookahead_edit.policy import FixedPolicy
from lookahead_edit.sequence import Sequence
from lookahead_edit.targets.recorded import RecordedTarget
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.types import Draft, Drafter, IntArray, Round, Source, SourceKind

IS_COMPILED = os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
NUM_RANDOM_TEXTS = 300 if IS_COMPILED else 30
COPYING_PEERS = ("hf_lookup", "pld", "vllm_ngram", "llamacpp_simple", "arctic_suffix", "sam")
BYTES = ByteTokenizer()


def tokens_of(*tokens: int) -> IntArray:
    return np.array(tokens, dtype=np.int32)


def after(text: list[int], name: str, **setting: float) -> list[int]:
    """What the peer drafts after a prompt."""
    drafter = PEERS[name](**setting)
    drafter.start(tokens_of(*text), [])
    return drafter.draft(MAX_DRAFT_TOKENS).tokens.tolist()


def random_texts(seed: int, max_tokens: int = 40) -> list[list[int]]:
    generator = np.random.default_rng(seed)
    lengths = generator.integers(1, max_tokens + 1, NUM_RANDOM_TEXTS)
    return [generator.integers(0, generator.integers(1, 5), length).tolist() for length in lengths]


def rounds_of(drafter: Drafter, prompt: IntArray, output: IntArray, sources: list[Source]) -> list[Round]:
    engine = Engine(RecordedTarget(lambda _: output, end_token_id=0), FixedPolicy(MAX_DRAFT_TOKENS))
    sequence = Sequence(
        prompt,
        drafter=drafter,
        sampling=SamplingConfig(),
        max_tokens=len(output),
        max_context_tokens=2**31 - 1,
        sources=sources,
    )
    rounds = list(engine.generate(sequence))
    assert np.array_equal(sequence.output, output)
    return rounds


def test_plain_never_drafts() -> None:
    assert after([1, 2, 3, 1, 2], "plain") == []


def test_hf_lookup_takes_the_first_window_of_two_tokens_although_a_longer_match_comes_later() -> None:
    """The tail 1 2 stands at 0, before a 3; the tail 7 1 2 only at 4, before an 8."""
    text = [1, 2, 3, 9, 7, 1, 2, 8, 9, 7, 1, 2]
    assert after(text, "hf_lookup") == [3, 9, 7, 1, 2, 8, 9, 7, 1, 2]
    assert after(text, "hf_lookup", max_ngram_length=3) == [8, 9, 7, 1, 2]


def test_hf_lookup_falls_back_to_one_token_and_drafts_what_there_is_up_to_ten() -> None:
    """No window equals 8 2; 2 stands first at 1. From a 5 at 0, eleven tokens follow, and ten are drafted."""
    assert after([1, 2, 3, 8, 2], "hf_lookup") == [3, 8, 2]
    assert after([5, *range(10, 20), 5], "hf_lookup") == list(range(10, 20))
    assert after([1, 2, 3], "hf_lookup") == []


def test_pld_passes_over_windows_that_too_few_tokens_follow() -> None:
    """The tail 1 2 3 stands at 2, and three tokens follow it there, enough for k = 3. For k = 4 neither that nor the 2
    3 in it will do, but the 3 at 0, which seven tokens follow. For k = 10 nothing will do.
    """
    text = [3, 9, 1, 2, 3, 1, 2, 3]
    assert after(text, "pld", num_draft_tokens=3) == [1, 2, 3]
    assert after(text, "pld", num_draft_tokens=4) == [9, 1, 2, 3]
    assert after(text, "pld") == []


def test_pld_tries_three_tokens_first() -> None:
    """2 3 stands at 0 already, before 7 7; 1 2 3 at 4, before 8 8."""
    assert after([2, 3, 7, 7, 1, 2, 3, 8, 8, 1, 2, 3], "pld", num_draft_tokens=2) == [8, 8]


def test_vllm_ngram_drafts_nothing_below_its_shortest_length() -> None:
    """Four tokens match, five don't."""
    text = [1, 2, 3, 4, 7, 8, 1, 2, 3, 4]
    assert after(text, "vllm_ngram") == []
    assert after(text, "vllm_ngram", min_ngram_length=4) == [7, 8, 1, 2, 3]


def test_vllm_ngram_takes_the_longest_match_within_its_range_and_of_several_the_first() -> None:
    """1 2 stands at 0 (before 5), 9 1 2 at 3 (before 6) and at 7 (before 7): three tokens win, the earlier place."""
    text = [1, 2, 5, 9, 1, 2, 6, 9, 1, 2, 7, 9, 1, 2]
    setting = {"min_ngram_length": 1, "num_draft_tokens": 2}
    assert after(text, "vllm_ngram", max_ngram_length=3, **setting) == [6, 9]
    assert after(text, "vllm_ngram", max_ngram_length=2, **setting) == [5, 9]


def test_llamacpp_simple_takes_the_most_recent_occurrence() -> None:
    """n = 2: 1 2 stands at 0 and at 4; after the later one 6 7 1 2 follow, of which k = 3 are drafted."""
    assert after([1, 2, 5, 5, 1, 2, 6, 7, 1, 2], "llamacpp_simple", ngram_length=2, num_draft_tokens=3) == [6, 7, 1]


def test_llamacpp_simple_drafts_nothing_where_fewer_tokens_follow_than_it_looks_for() -> None:
    """n = 3: one token follows the most recent 1 1 1, which overlaps the tail; the one at 0 isn't looked at.
    n = 12: a tail of twelve tokens is found, one of eleven isn't.
    """
    assert after([1, 1, 1, 5, 6, 7, 1, 1, 1, 1], "llamacpp_simple", ngram_length=3) == []
    twelve = list(range(12))
    assert after([*twelve, *twelve], "llamacpp_simple") == twelve
    assert after([*twelve[:11], *twelve[:11]], "llamacpp_simple") == []


def test_sam_drafts_four_tokens_for_each_that_matches_from_the_first_end() -> None:
    """8 1 doesn't occur earlier; 1 ends first at 0, and four of the tokens after it are drafted."""
    assert after([1, *range(10, 20), 1, 7, 8, 1], "sam") == [10, 11, 12, 13]
    assert after([1, *range(10, 20), 1, 7, 8, 1], "sam", max_draft_tokens=3) == [10, 11, 12]
    assert after([*range(100), *range(20)], "sam") == list(range(20, 80))


def test_arctic_suffix_follows_the_most_frequent_child_while_the_product_of_ratios_is_enough() -> None:
    """1 stands five times, the last time at the end. 2 follows it twice, 3 and 4 once: ratio 2/5. After 1 2, 5 and 6
    follow once each: product 2/5 · 1/2 = 1/5, and 5 came first. After 1 2 5 comes only 1: still 1/5.
    """
    text = [1, 2, 5, 1, 3, 1, 2, 6, 1, 4, 1]
    unlimited = {"max_draft_factor": 3}
    assert after(text, "arctic_suffix", **unlimited) == [2, 5, 1]
    assert after(text, "arctic_suffix", min_probability=0.3, **unlimited) == [2]
    assert after(text, "arctic_suffix", min_probability=0.5, **unlimited) == []
    assert after(text, "arctic_suffix") == [2]


def test_arctic_suffix_prefers_the_suffix_with_the_best_score() -> None:
    """7 1 2 stood once before: 9 follows with 1/2, and 4 after it with the same product: score 1 for two tokens.
    1 2 stands four times: 8 follows twice, 1/2, and 3 after it: 1 as well, so the longer suffix wins. With another
    1 2 8 3 the ratio is 3/5, and the shorter suffix wins.
    """
    text = [7, 1, 2, 9, 4, 1, 2, 8, 3, 5, 1, 2, 8, 3, 6, 7, 1, 2]
    assert after(text, "arctic_suffix", max_draft_tokens=2) == [9, 4]
    assert after([1, 2, 8, 3, *text], "arctic_suffix", max_draft_tokens=2) == [8, 3]


def test_arctic_suffix_keeps_match_and_draft_within_its_depth() -> None:
    """30 tokens match. D = 24 and factor 1 allow 12 tokens after a match of 12; D = 64 and factor 4 allow 34."""
    text = [*range(90), *range(30)]
    assert after(text, "arctic_suffix") == list(range(30, 42))
    assert after(text, "arctic_suffix", max_depth=64, max_draft_factor=4) == list(range(30, 81))
    assert after(text, "arctic_suffix", max_depth=64, max_draft_factor=1) == list(range(30, 60))


def line_cursor(file: str, num_draft_tokens: int = 64) -> Drafter:
    drafter = PEERS["line_cursor"](text_of_token=texts_of_tokens(BYTES), num_draft_tokens=num_draft_tokens)
    prompt = BYTES.encode("> " + file)
    drafter.start(prompt, [Source(SourceKind.FILE, prompt[2:], prompt_start=2)])
    return drafter


def drafted(drafter: Drafter, written: str = "") -> str:
    """The text drafted once `written` is written."""
    if written:
        drafter.commit(BYTES.encode(written), Draft(), 0)
    return BYTES.decode(drafter.draft(MAX_DRAFT_TOKENS).tokens)


def test_line_cursor_copies_from_the_start_until_a_token_differs() -> None:
    drafter = line_cursor("ab\ncd\n", num_draft_tokens=4)
    assert drafted(drafter) == "ab\nc"
    assert drafted(drafter, "ab") == "\ncd\n"
    assert drafted(drafter, "x") == ""


def test_line_cursor_is_lost_until_the_line_is_complete_and_goes_on_after_an_inserted_line() -> None:
    drafter = line_cursor("a\nb\nc\n")
    assert drafted(drafter, "a\n") == "b\nc\n"
    assert drafted(drafter, "new") == ""
    assert drafted(drafter, "\n") == "b\nc\n"


def test_line_cursor_needs_a_matching_line_after_replaced_and_deleted_ones() -> None:
    """X replaces b: before b it is set wrongly, and c is written unaided. Then d is left out: e is written unaided."""
    drafter = line_cursor("a\nb\nc\nd\ne\nf\n")
    assert drafted(drafter, "a\nX\n") == "b\nc\nd\ne\nf\n"
    assert drafted(drafter, "c") == ""
    assert drafted(drafter, "\n") == "d\ne\nf\n"
    assert drafted(drafter, "e\n") == "f\n"


def test_line_cursor_chooses_the_first_of_equal_lines_that_continues_the_order() -> None:
    """A deleted `y` leaves `x` as the output's second line: the first `x` after `a` is meant, not the last."""
    drafter = line_cursor("x\na\ny\nx\nb\nx\nc\n")
    assert drafted(drafter, "x\na\nx\n") == "b\nx\nc\n"


def test_line_cursor_follows_a_prediction_rather_than_the_file_and_drafts_nothing_without_either() -> None:
    drafter = PEERS["line_cursor"](text_of_token=texts_of_tokens(BYTES))
    file, prediction = BYTES.encode("file\n"), BYTES.encode("prediction")
    drafter.start(file, [Source(SourceKind.PREDICTION, prediction), Source(SourceKind.FILE, file, prompt_start=0)])
    assert drafted(drafter) == "prediction"
    drafter.start(file, [])
    assert drafted(drafter) == ""
    assert drafted(drafter, "x\ny\n") == ""


def test_oracle_copy_drafts_the_longest_right_copy_and_nothing_else() -> None:
    """1 2 stands at 0 and at 3; only the second one goes on with 7 and then, in the output too, 8."""
    output = tokens_of(1, 2, 7, 8, 6)
    drafter = PEERS["oracle_copy"](output=output)
    drafter.start(tokens_of(1, 2, 5, 1, 2, 7, 8, 5), [])
    draft = drafter.draft(64)
    assert draft.tokens.tolist() == [1, 2, 7, 8]
    drafter.commit(output[:4], draft, 4)
    assert len(drafter.draft(64)) == 0
    assert drafter.draft(64).reason == "the next token occurs nowhere"


def test_oracle_copy_respects_its_cap_and_reads_the_other_sources_too() -> None:
    output = np.arange(100, dtype=np.int32)
    other = Source(SourceKind.CONTEXT, np.arange(100, dtype=np.int32))
    drafter = PEERS["oracle_copy"](output=output, max_draft_tokens=64)
    drafter.start(tokens_of(7, 0, 9), [other])
    draft = drafter.draft(256)
    assert draft.tokens.tolist() == list(range(64))
    assert set(draft.sources.tolist()) == {SourceKind.CONTEXT}


def test_oracle_copy_continues_what_repeats_itself() -> None:
    drafter = PEERS["oracle_copy"](output=tokens_of(1, 2, 1, 2, 1, 9))
    drafter.start(tokens_of(5, 1, 2), [])
    assert drafter.draft(64).tokens.tolist() == [1, 2, 1, 2, 1]


def test_find_suffix_equals_its_naive_twin() -> None:
    generator = np.random.default_rng(1)
    for text in random_texts(2):
        shortest, longest = sorted(generator.integers(1, 8, 2).tolist())
        num_following = int(generator.integers(1, 6))
        expected = naive.suffix_place(text, shortest, longest, num_following)
        assert find_suffix(tokens_of(*text), len(text), shortest, longest, num_following) == expected


def test_find_most_recent_equals_its_naive_twin() -> None:
    for number, text in enumerate(random_texts(3)):
        length = 1 + number % 5
        ends = naive.ends_of_suffix(text, length) if length <= len(text) else []
        assert find_most_recent(tokens_of(*text), len(text), length) == (ends[0] if ends else NONE)


def test_find_frequent_equals_its_naive_twin() -> None:
    generator = np.random.default_rng(4)
    tally = np.zeros(8, dtype=np.int32)
    for text in random_texts(5, max_tokens=24):
        max_depth, limit = int(generator.integers(2, 12)), int(generator.integers(1, 8))
        factor, least = float(generator.choice([1, 1.5, 2, 4])), float(generator.choice([0.05, 0.1, 0.3, 0.5]))
        array, room = tokens_of(*text), np.zeros(len(text), dtype=np.int32)
        match_length, end, length = find_frequent(
            array, len(text), max_depth, factor, least, limit, room, room.copy(), tally
        )
        expected = naive.frequent(text, max_depth, factor, least, limit)
        assert (match_length, text[end : end + length] if length else []) == expected
        assert not tally.any()


def test_find_copy_equals_its_naive_twin() -> None:
    for text, future in zip(random_texts(6), random_texts(7), strict=True):
        for limit in (1, 5, 64):
            expected = naive.longest_copy(text, future, limit)
            assert find_copy(tokens_of(*text), len(text), tokens_of(*future), limit) == expected


@pytest.mark.parametrize("name", TUNING)
def test_every_setting_replays_exactly_and_drafts_no_more_than_it_is_asked_for(name: str) -> None:
    generator = np.random.default_rng(8)
    factory = partial(PEERS[name], text_of_token=texts_of_tokens(BYTES)) if name == "line_cursor" else PEERS[name]
    for setting in TUNING[name]:
        prompt = generator.choice([10, 97, 98], 60).astype(np.int32)
        output = np.concatenate([prompt[10:30], generator.choice([10, 97, 98], 20).astype(np.int32)])
        source = Source(SourceKind.FILE, prompt[10:40], prompt_start=10)
        drafter = factory(**setting)
        rounds = rounds_of(drafter, prompt, output, [source])
        assert len(rounds) <= len(output)
        assert len(drafter.draft(100_000)) <= MAX_DRAFT_TOKENS
        for max_draft_tokens in (0, 1, 3):
            draft = drafter.draft(max_draft_tokens)
            assert len(draft) <= max_draft_tokens
            assert draft.tokens.dtype == np.int32
            assert draft.sources.dtype == np.int8
            assert len(draft.sources) == len(draft.tokens)
            assert draft.reason or len(draft)


def test_the_defaults_are_among_at_most_some_twenty_settings_without_repetition() -> None:
    assert set(TUNING) == set(PEERS) - {"oracle_copy"}
    defaults: dict[str, dict[str, float]] = {
        "hf_lookup": {"num_draft_tokens": 10, "max_ngram_length": 2},
        "pld": {"num_draft_tokens": 10, "max_ngram_length": 3},
        "vllm_ngram": {"min_ngram_length": 5, "max_ngram_length": 5, "num_draft_tokens": 5},
        "llamacpp_simple": {"ngram_length": 12, "num_draft_tokens": 48},
        "arctic_suffix": {"max_depth": 24, "max_draft_factor": 1, "min_probability": 0.1},
        "sam": {"draft_tokens_per_match": 4, "max_draft_tokens": 60},
        "line_cursor": {"num_draft_tokens": 64},
    }
    assert all(setting in TUNING[name] for name, setting in defaults.items())
    for settings in TUNING.values():
        assert len({tuple(setting.items()) for setting in settings}) == len(settings) <= 21


@pytest.mark.parametrize("name", [*COPYING_PEERS, "suffix"])
def test_no_copier_needs_fewer_rounds_than_the_oracle(name: str) -> None:
    generator = np.random.default_rng(9)
    for _ in range(20):
        prompt = generator.integers(0, 4, 80).astype(np.int32)
        output = np.concatenate([prompt[20:50], generator.integers(0, 4, 10), prompt[40:60]]).astype(np.int32)
        drafter = SuffixDrafter(SpeculationConfig()) if name == "suffix" else PEERS[name]()
        oracle = PEERS["oracle_copy"](output=output, max_draft_tokens=MAX_DRAFT_TOKENS)
        oracle_rounds = rounds_of(oracle, prompt, output, [])
        assert len(oracle_rounds) <= len(rounds_of(drafter, prompt, output, []))
        assert all(round.num_accepted_tokens == round.num_draft_tokens for round in oracle_rounds)


def test_copied_tokens_say_where_they_come_from() -> None:
    drafter = PEERS["sam"]()
    assert isinstance(drafter, ContextDrafter)
    drafter.start(tokens_of(1, 2, 3, 4, 5, 1), [Source(SourceKind.FILE, tokens_of(2, 3), prompt_start=1)])
    drafter.commit(tokens_of(6, 1), Draft(), 0)
    assert drafter.draft(64).sources.tolist() == [SourceKind.FILE] * 2 + [SourceKind.PROMPT] * 2
    assert drafter.num_index_bytes > 0
