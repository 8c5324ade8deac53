"""Where a sequence ends: limits, end tokens, stop strings and custom rules inside accepted blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lookahead_edit.config import SamplingConfig, SpeculationConfig
from lookahead_edit.drafters.scripted import ScriptedDrafter
from lookahead_edit.engine import Engine
from lookahead_edit.policy import POLICIES
from lookahead_edit.sequence import READING, EndTokenRule, Sequence, StopStringRule
from lookahead_edit.targets.recorded import RecordedTarget
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.types import ContextLengthExceeded, IntArray, InvalidInput, StopRule

PROMPT = np.array([1, 2, 3], dtype=np.int32)


class HeardRule:
    """Never stops; keeps what it was asked."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def should_stop(self, tokens: IntArray, num_prompt_tokens: int) -> bool:
        self.lengths.append(len(tokens) - num_prompt_tokens)
        return False


def run(
    output: list[int] | bytes, rules: list[StopRule], *, max_tokens: int = 100, max_context_tokens: int = 1000
) -> tuple[Sequence, list[int]]:
    """Decodes `output` with an oracle that drafts all of it; the lengths of the drafts made."""
    logged = np.asarray(list(output), dtype=np.int32)
    drafter = ScriptedDrafter(lambda tokens: logged[len(tokens) - len(PROMPT) :])
    target = RecordedTarget(lambda prompt: logged, end_token_id=0, vocab_size=300)
    sequence = Sequence(
        PROMPT,
        drafter=drafter,
        sampling=SamplingConfig(),
        max_tokens=max_tokens,
        max_context_tokens=max_context_tokens,
        stop_rules=rules,
    )
    engine = Engine(target, POLICIES["fixed"](SpeculationConfig(max_draft_tokens=64), None))
    lengths = [finished.num_draft_tokens for finished in engine.generate(sequence)]
    return sequence, lengths


def test_an_end_token_inside_an_accepted_block_ends_the_sequence_behind_it() -> None:
    sequence, _ = run([5, 6, 9, 7, 8, 9, 5], [EndTokenRule(frozenset({9}))])
    assert sequence.output.tolist() == [5, 6, 9]
    assert sequence.finish_reason == "stop"


def test_without_end_tokens_only_the_limit_ends_it() -> None:
    sequence, _ = run([5] * 50, [EndTokenRule(frozenset())], max_tokens=40)
    assert len(sequence.output) == 40
    assert sequence.finish_reason == "length"


def test_never_more_than_max_tokens_and_no_draft_beyond_them() -> None:
    for max_tokens in range(1, 12):
        sequence, lengths = run(list(range(5, 60)), [], max_tokens=max_tokens)
        assert sequence.output.tolist() == list(range(5, 5 + max_tokens))
        assert lengths[0] == max_tokens - 1


def test_no_draft_beyond_the_context() -> None:
    sequence, lengths = run(list(range(5, 60)), [], max_context_tokens=13)
    assert len(sequence.tokens) == 13
    assert sequence.finish_reason == "length"
    assert lengths == [9]


def test_a_stop_on_the_last_allowed_token_counts_as_stop() -> None:
    sequence, _ = run([5, 6, 9], [EndTokenRule(frozenset({9}))], max_tokens=3)
    assert sequence.finish_reason == "stop"


@pytest.mark.parametrize("stop", ["END", "}\n", "é", "\u20ac", "👍🏽"])
def test_a_stop_string_inside_an_accepted_block_ends_it_at_once(stop: str) -> None:
    text = f"some text {stop} and more {stop}"
    rule = StopStringRule(ByteTokenizer().decode, [stop, "never there"])
    sequence, _ = run(text.encode(), [rule])
    assert bytes(sequence.output.tolist()).decode() == f"some text {stop}"
    assert sequence.finish_reason == "stop"


def test_a_stop_string_of_the_prompt_does_not_count() -> None:
    rule = StopStringRule(lambda tokens: "".join(chr(96 + int(token)) for token in tokens), ["cd"])
    sequence, _ = run([4, 5, 3, 4, 9], [rule])  # the prompt ends in c, the output begins with d
    assert sequence.output.tolist() == [4, 5, 3, 4]


def test_the_earliest_of_several_rules_wins() -> None:
    end, text = EndTokenRule(frozenset({9})), StopStringRule(ByteTokenizer().decode, ["B"])
    assert run([65, 66, 9], [end, text])[0].output.tolist() == [65, 66]
    assert run([65, 9, 66], [end, text])[0].output.tolist() == [65, 9]


def test_every_rule_hears_every_committed_token_once_and_nothing_behind_a_stop() -> None:
    heard = HeardRule()
    run([5, 6, 7, 8, 9, 10, 11], [EndTokenRule(frozenset({9})), heard])
    assert heard.lengths == [1, 2, 3, 4, 5]


def test_the_answer_to_a_sampler_that_asked_ahead_is_kept() -> None:
    heard = HeardRule()
    sequence = Sequence(
        PROMPT,
        drafter=ScriptedDrafter(lambda tokens: []),
        sampling=SamplingConfig(),
        max_tokens=9,
        max_context_tokens=99,
        stop_rules=[heard, EndTokenRule(frozenset({7}))],
    )
    ahead = np.concatenate([PROMPT, np.array([6, 7], np.int32)])
    assert not sequence.should_stop(ahead[:4])
    assert sequence.should_stop(ahead)
    draft = ScriptedDrafter(lambda tokens: [6, 7, 8])
    draft.start(PROMPT, [])
    finished = sequence.commit(ahead[3:], draft.draft(3))
    assert heard.lengths == [1, 2]
    assert sequence.finish_reason == "stop"
    assert finished.num_accepted_tokens == 2


def test_a_cancelled_sequence_ends_without_tokens() -> None:
    logged = np.arange(5, 50, dtype=np.int32)
    asked = iter([False, False, True])
    target = RecordedTarget(lambda prompt: logged, end_token_id=0)
    sequence = Sequence(
        PROMPT,
        drafter=ScriptedDrafter(lambda tokens: []),
        sampling=SamplingConfig(),
        max_tokens=40,
        max_context_tokens=99,
        is_cancelled=lambda: next(asked, True),
    )
    rounds = list(Engine(target, POLICIES["fixed"](SpeculationConfig(), None)).generate(sequence))
    assert sequence.finish_reason == "cancelled"
    assert sequence.output.tolist() == [5, 6]
    assert len(rounds) == 3


def test_nothing_emitted_changes_nothing_while_nobody_cancelled() -> None:
    heard = HeardRule()
    sequence = Sequence(
        PROMPT,
        drafter=ScriptedDrafter(lambda tokens: [6, 7]),
        sampling=SamplingConfig(),
        max_tokens=9,
        max_context_tokens=99,
        stop_rules=[heard],
    )
    guess = sequence.guess(8)
    finished = sequence.commit(PROMPT[:0], guess.cut(1))
    assert (len(finished.tokens), len(finished.draft), finished.draft.reason) == (0, 0, READING)
    assert (sequence.finish_reason, len(sequence.output), heard.lengths) == (None, 0, [])
    assert sequence.guess(8) is guess
    sequence.commit(np.array([6, 7, 8], np.int32), guess)
    assert sequence.guess(8) is not guess
    assert heard.lengths == [1, 2, 3]


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "error"),
    [
        (np.zeros(0, np.int32), 5, InvalidInput),
        (np.zeros(3, np.int64), 5, InvalidInput),
        (np.zeros((1, 3), np.int32), 5, InvalidInput),
        (PROMPT, 0, InvalidInput),
        (np.zeros(50, np.int32), 5, ContextLengthExceeded),
    ],
)
def test_wrong_input_is_refused_with_what_was_expected(prompt: Any, max_tokens: int, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"expected .*, got"):
        Sequence(
            prompt,
            drafter=ScriptedDrafter(lambda tokens: []),
            sampling=SamplingConfig(),
            max_tokens=max_tokens,
            max_context_tokens=50,
        )
