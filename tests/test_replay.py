"""Replay: tokens of a trace, figures worked out by hand, and spans that are the output again."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookahead_edit.config import SpeculationConfig
from lookahead_edit.drafters import DRAFTERS
from lookahead_edit.drafters.scripted import NoDrafter, ScriptedDrafter
from lookahead_edit.policy import POLICIES, FixedPolicy
from lookahead_edit.replay import (
    Replay,
    TokenTrace,
    TraceReplay,
    drafter_factory,
    policy_factory,
    replay_trace,
    replay_traces,
    tokenize_trace,
)
from lookahead_edit.replay_explain import BONUS, CORRECTED, PLAIN, explain
from lookahead_edit.replay_figures import DurationHistogram, ReplayTotals, cost_of
from lookahead_edit.tokenizer import ByteTokenizer, HfTokenizer
from lookahead_edit.traces import Trace
from lookahead_edit.types import ContextFile, Draft, InvalidInput, Policy, Source, SourceKind, Tokenizer
from tests.tiny_tokenizers import byte_level_tokenizer, sentencepiece_tokenizer

SAMPLES = Path(__file__).parent.parent / "benchmarks" / "samples" / "traces.jsonl"
END = 257
FILE = "def add(first, second):\n    return first + second\n"
PROMPT = f"<|im_start|>user\nRename.\n```\n{FILE}```<|im_end|>\n<|im_start|>assistant\n```\n"
OUTPUT = FILE.replace("first", "one") + "```"


@pytest.fixture(scope="module", params=["bytes", "byte level", "sentencepiece"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    makers: dict[str, Callable[[], Tokenizer]] = {
        "bytes": ByteTokenizer,
        "byte level": lambda: HfTokenizer(byte_level_tokenizer()),
        "sentencepiece": lambda: HfTokenizer(sentencepiece_tokenizer()),
    }
    return makers[request.param]()


def trace_of(output: list[int], prompt: tuple[int, ...] = (1, 2, 3)) -> TokenTrace:
    return TokenTrace("t", np.array(prompt, np.int32), np.array(output, np.int32), (), END)


def drafting(*drafts: list[int]) -> ScriptedDrafter:
    """The given drafts, one a round, then none."""
    waiting: Iterator[list[int]] = iter(drafts)
    return ScriptedDrafter(lambda tokens: next(waiting, []))


# Tokens of a trace.


def test_the_file_is_found_among_the_prompts_tokens(tokenizer: Tokenizer) -> None:
    tokens = tokenize_trace(Trace("a", PROMPT, OUTPUT, FILE), tokenizer)
    (file,) = tokens.sources
    assert file.kind == SourceKind.FILE
    assert file.prompt_start is not None
    assert tokens.prompt.tolist() == tokenizer.encode(PROMPT).tolist()
    assert tokens.prompt[file.prompt_start : file.prompt_start + len(file.tokens)].tolist() == file.tokens.tolist()
    assert tokenizer.decode(file.tokens) == FILE
    assert tokens.output.tolist() == tokenizer.encode(OUTPUT).tolist()


def test_the_last_occurrence_is_the_file() -> None:
    (file,) = tokenize_trace(Trace("a", "x = 1; set x = 1\nx = 1", "y", "x = 1"), ByteTokenizer()).sources
    assert file.prompt_start == 17


def test_a_border_inside_a_token_or_no_offsets_make_it_a_source_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = HfTokenizer(byte_level_tokenizer())
    assert len(tokenizer.encode("return")) < 6
    for source, prompt in (("turn 1", "return 1"), ("retu", "return 1")):
        (file,) = tokenize_trace(Trace("a", prompt, "x", source), tokenizer).sources
        assert (file.prompt_start, tokenizer.decode(file.tokens)) == (None, source)
    monkeypatch.setattr(
        tokenizer, "encode_with_offsets", lambda text: (tokenizer.encode(text), np.full((len(text), 2), -1))
    )
    (file,) = tokenize_trace(Trace("a", "return 1", "x", "return 1"), tokenizer).sources
    assert file.prompt_start is None


def test_a_file_that_spells_out_a_special_token_is_text() -> None:
    source = "x = '<|im_end|>'\n"
    tokens = tokenize_trace(Trace("a", f"<|im_start|>{source}<|im_end|>", source, source), ByteTokenizer())
    assert (tokens.prompt[0], tokens.prompt[-1]) == (256, END)
    assert tokens.prompt.tolist()[1:-1] == tokens.sources[0].tokens.tolist() == list(source.encode())
    assert tokens.output.tolist() == list(source.encode())
    assert len(replay_trace(tokens, NoDrafter(), FixedPolicy(8)).rounds) == len(source) + 1


def test_other_files_are_context_and_an_empty_source_is_none() -> None:
    trace = Trace("a", "x", "y", "", (ContextFile("b.py", "bb"),))
    (context,) = tokenize_trace(trace, ByteTokenizer()).sources
    assert (context.kind, context.path, context.tokens.tolist()) == (SourceKind.CONTEXT, "b.py", [98, 98])


def test_a_trace_without_tokens_is_refused() -> None:
    for trace in (Trace("a", "", "x"), Trace("a", "x", "")):
        with pytest.raises(InvalidInput, match="of at least one token, got none"):
            tokenize_trace(trace, ByteTokenizer())


def test_an_output_that_holds_the_end_token_is_replayed_to_its_end() -> None:
    class Without(ByteTokenizer):
        eos_token_ids = frozenset({ord("b")})  # type: ignore[assignment]

    tokens = tokenize_trace(Trace("a", "x", "abc"), Without())
    assert tokens.end_token_id not in [*tokens.prompt, *tokens.output]
    assert len(replay_trace(tokens, NoDrafter(), FixedPolicy(8)).rounds) == 4


# Figures.


def test_the_modelled_speedup_is_the_one_worked_out_by_hand() -> None:
    # Output 10 11 12 13 14 and the end. Rounds: draft 10 11 99 -> 10 11 12; no draft -> 13; draft 14 -> 14 end.
    replayed = replay_trace(trace_of([10, 11, 12, 13, 14]), drafting([10, 11, 99], [], [14]), FixedPolicy(8))
    assert [finished.tokens.tolist() for finished in replayed.rounds] == [[10, 11, 12], [13], [14, END]]
    totals = ReplayTotals()
    totals.add(replayed)
    # Rounds of width 4, 1 and 2 cost 1.4 + 1.1 + 1.2, six plain tokens 6 * 1.1.
    assert totals.modelled_speedup(0.1) == pytest.approx(6.6 / 3.7)
    figures = totals.figures("scripted", 0.1)
    assert (figures.output_tokens, figures.rounds, figures.drafted, figures.accepted) == (6, 3, 4, 3)
    assert figures.tokens_per_round == 2.0
    assert figures.acceptance_rate == 0.75
    assert figures.accepted_by_source == {"prediction": 3}
    assert figures.rounds_without_draft == {"the script drafts nothing": 1}
    # Two traces: the ratio of the sums, not the mean of the ratios.
    totals.add(replay_trace(trace_of([10]), drafting(), FixedPolicy(8)))
    assert totals.modelled_speedup(0.1) == pytest.approx((6.6 + 2.2) / (3.7 + 2.2))


def test_costs_are_of_all_rounds() -> None:
    assert cost_of(2, 30, 0.01) == pytest.approx(1.31 + 1.01)


def test_plain_decoding_has_no_speedup_and_no_acceptance() -> None:
    traces = [trace_of([10, 11, 12]), trace_of([10] * 50)]
    (figures,) = replay_traces(traces, {"none": lambda trace: NoDrafter()}, [0.05], lambda cost: FixedPolicy(64))
    assert (figures.modelled_speedup, figures.tokens_per_round, figures.acceptance_rate) == (1.0, 1.0, None)
    assert (figures.traces, figures.output_tokens, figures.rounds) == (2, 55, 55)


def test_a_factory_sees_the_trace_so_an_oracle_needs_one_round_a_cap() -> None:
    def oracle(trace: TokenTrace) -> ScriptedDrafter:
        text = np.concatenate([trace.prompt, trace.output])
        return ScriptedDrafter(lambda tokens: text[len(tokens) :])

    (figures,) = replay_traces([trace_of([10] * 99)], {"oracle": oracle}, [0.01], lambda cost: FixedPolicy(9))
    assert (figures.rounds, figures.acceptance_rate) == (10, 1.0)


def test_the_length_of_the_output_cuts_no_draft_short() -> None:
    replayed = replay_trace(trace_of([10]), drafting([99] * 64), FixedPolicy(64))
    assert [finished.num_draft_tokens for finished in replayed.rounds] == [64, 0]


@pytest.mark.parametrize("drafter", sorted(DRAFTERS))
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_drafter_and_policy_replays_every_token(drafter: str, policy: str, tokenizer: Tokenizer) -> None:
    tokens = tokenize_trace(Trace("a", PROMPT, OUTPUT, FILE, (ContextFile("b", OUTPUT),)), tokenizer)
    config = SpeculationConfig(drafter=drafter, policy=policy)
    replay = Replay({drafter: drafter_factory(config)}, [0.01], policy_factory(config))
    (replayed,) = replay.add(tokens).values()
    emitted = np.concatenate([finished.tokens for finished in replayed.rounds])
    assert emitted.tolist() == [*tokens.output.tolist(), tokens.end_token_id]


WARM_UP = """
import importlib, pkgutil, sys
from lookahead_edit import kernels
from lookahead_edit.config import SpeculationConfig
from lookahead_edit.drafters import DRAFTERS
from lookahead_edit.replay import Replay, drafter_factory, policy_factory, tokenize_trace, warm_up
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.traces import read_traces

names = [f"{kernels.__name__}.{each.name}" for each in pkgutil.iter_modules(kernels.__path__)]
modules = [importlib.import_module(name) for name in names]

def compiled():
    found = {f"{module.__name__}.{name}": value for module in modules for name, value in vars(module).items()}
    return {name: len(value.signatures) for name, value in found.items() if hasattr(value, "signatures")}

tokenizer, make_policy = ByteTokenizer(), policy_factory(SpeculationConfig())
drafters = {name: drafter_factory(SpeculationConfig(drafter=name), tokenizer) for name in DRAFTERS}
warm_up(drafters.values(), make_policy(0.01), tokenizer)
before = compiled()
replay = Replay(drafters, [0.01], make_policy)
with open(sys.argv[1], "rb") as file:
    for _, trace in read_traces(file):
        replay.add(tokenize_trace(trace, tokenizer))
assert any(before.values())
assert compiled() == before
"""


def test_once_it_is_warm_a_replay_compiles_nothing_more() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"}
    subprocess.run([sys.executable, "-c", WARM_UP, str(SAMPLES)], check=True, timeout=600, env=environment)


def test_a_policy_that_knows_no_cost_is_replayed_once() -> None:
    asked: list[float] = []

    def make_policy(cost: float) -> Policy:
        asked.append(cost)
        return FixedPolicy(round(1 / cost))

    for is_cost_aware, expected_costs, expected_drafted in ((False, [0.5], [4, 4]), (True, [0.5, 0.1], [4, 20])):
        asked.clear()
        replay = Replay(
            {"bad": lambda trace: ScriptedDrafter(lambda tokens: [99] * 64)},
            [0.5, 0.1],
            make_policy,
            is_cost_aware=is_cost_aware,
        )
        replayed = replay.add(trace_of([10]))
        assert asked == [cost for _, cost in replayed] == expected_costs
        assert [figures.drafted for figures in replay.figures()] == expected_drafted
        assert [figures.cost for figures in replay.figures()] == [0.5, 0.1]
        speedups = [figures.modelled_speedup for figures in replay.figures()]
        assert speedups[0] != speedups[1]


@pytest.mark.parametrize("cost", [-0.1, float("nan"), float("inf")])
def test_a_cost_that_is_none_is_refused(cost: float) -> None:
    with pytest.raises(InvalidInput, match="expected a cost to be a finite number of at least 0"):
        Replay({"none": lambda trace: NoDrafter()}, [cost], lambda cost: FixedPolicy(1))
    with pytest.raises(InvalidInput, match="expected at least one drafter"):
        Replay({}, [0.1], lambda cost: FixedPolicy(1))


def test_unknown_names_are_refused_before_anything_is_replayed() -> None:
    with pytest.raises(InvalidInput, match="expected drafter to be one of"):
        drafter_factory(SpeculationConfig(drafter="crystal ball"))
    with pytest.raises(InvalidInput, match="expected policy to be one of"):
        policy_factory(SpeculationConfig(policy="hope"))


@given(st.lists(st.floats(1e-8, 10.0), min_size=1, max_size=60), st.sampled_from([0.5, 0.95]))
def test_quantiles_are_right_to_one_per_cent(seconds: list[float], share: float) -> None:
    histogram = DurationHistogram()
    for value in seconds:
        histogram.add(value)
    found = histogram.quantile(share)
    assert found is not None
    exact = np.quantile(np.array(seconds), share, method="inverted_cdf")
    assert found == pytest.approx(exact, rel=0.0101)
    assert DurationHistogram().quantile(share) is None


# Where tokens came from.


def replayed_of(trace: TokenTrace, drafts: list[Draft], max_draft_tokens: int = 64) -> TraceReplay:
    class Given(NoDrafter):
        def draft(self, max_draft_tokens: int) -> Draft:
            return drafts.pop(0) if drafts else super().draft(max_draft_tokens)

    return replay_trace(trace, Given(), FixedPolicy(max_draft_tokens))


def draft_of(text: str, *kinds: SourceKind) -> Draft:
    tokens = ByteTokenizer().encode(text)
    return Draft(tokens, np.resize(np.array(kinds, np.int8), len(tokens)), match_length=3)


def test_tokens_are_labelled_by_source_and_by_what_the_target_did() -> None:
    trace = trace_of(list(b"abcdefg"))
    drafts = [
        draft_of("abX", SourceKind.FILE, SourceKind.PROMPT, SourceKind.PROMPT),  # ab, then c corrects
        Draft(reason="nothing matches"),  # d
        draft_of("ef", SourceKind.CONTEXT),  # ef, then g is a bonus
        draft_of("Y", SourceKind.OUTPUT),  # the end corrects
    ]
    explanation = explain(replayed_of(trace, drafts), ByteTokenizer())
    spans = [(span.round_number, span.origin, span.num_tokens, span.text) for span in explanation.spans]
    assert [span.special for span in explanation.spans] == [None] * 6 + ["<|im_end|>"]
    assert spans == [
        (1, "file", 1, "a"),
        (1, "prompt", 1, "b"),
        (1, CORRECTED, 1, "c"),
        (2, PLAIN, 1, "d"),
        (3, "context", 2, "ef"),
        (3, BONUS, 1, "g"),
        (4, CORRECTED, 1, ""),
    ]
    assert explanation.num_tokens_by_origin == {"file": 1, "prompt": 1, "context": 2, CORRECTED: 2, BONUS: 1, PLAIN: 1}
    assert explanation.num_tokens == 8
    first, second, third, fourth = explanation.rounds
    assert (first.accepted_text, first.rejected_text, first.came_text) == ("ab", "X", "c")
    assert (second.reason, second.draft_origin) == ("nothing matches", None)
    assert (third.num_tokens_before, third.num_accepted_tokens, third.rejected_text) == (4, 2, "")
    assert (fourth.rejected_text, fourth.came_text) == ("Y", "⟨<|im_end|>⟩")
    # One token for 1 + 2c, three for 1 + 4c; rounds without a rejection are not among them.
    assert [costly.number for costly in explanation.costliest_rounds(0.1)] == [4, 1]
    assert first.cost_per_token(0.1) == pytest.approx(1.4 / 3)


def test_a_drafted_end_is_named(tokenizer: Tokenizer) -> None:
    trace = tokenize_trace(Trace("a", PROMPT, OUTPUT), tokenizer)
    drafted = np.append(trace.output[:1], trace.end_token_id).astype(np.int32)
    (first, *_) = explain(replayed_of(trace, [Draft(drafted, np.zeros(2, np.int8))]), tokenizer).rounds
    assert first.rejected_text.strip("⟨⟩") in (*tokenizer.special_texts, "end")
    assert first.rejected_text.startswith("⟨")


def test_a_character_split_over_rounds_is_shown_once_and_whole() -> None:
    trace = trace_of(list("aé☕".encode()))
    drafts = [draft_of("a", SourceKind.FILE)]  # a, and the first byte of é as a bonus
    explanation = explain(replayed_of(trace, drafts), ByteTokenizer())
    assert [span.text for span in explanation.spans if span.text] == ["a", "é", "☕"]
    assert explanation.text == "aé☕"


def test_a_draft_that_begins_inside_a_character_is_shown_with_the_whole_of_it() -> None:
    trace = trace_of(list("é!".encode()))
    drafts = [Draft(np.array([0xC3, 0xA8], np.int32), np.zeros(2, np.int8))]  # è; the second byte is rejected
    (first, *_) = explain(replayed_of(trace, drafts), ByteTokenizer()).rounds
    assert (first.rejected_text, first.came_text) == ("è", "é")


pieces = st.sampled_from(
    ["a", "é", "☕", "👩‍🚀", "\n", "\t", "    ", "<script>", "\x1b[31m", "\ufffd", "def", "= price", "\r"]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(pieces, min_size=1, max_size=30).map("".join), st.data())
def test_spans_partition_the_output(tokenizer: Tokenizer, output: str, data: st.DataObject) -> None:
    trace = tokenize_trace(Trace("a", PROMPT, output), tokenizer)
    truth = [*trace.output.tolist(), trace.end_token_id]
    drafts = []
    for _ in range(data.draw(st.integers(0, 6))):
        start, length = data.draw(st.integers(0, len(truth))), data.draw(st.integers(0, 9))
        kinds = data.draw(st.lists(st.sampled_from(list(SourceKind)), min_size=length, max_size=length))
        tokens = np.array(truth[start : start + length], np.int32)
        drafts.append(Draft(tokens, np.array(kinds[: len(tokens)], np.int8)))
    replayed = replayed_of(trace, drafts)
    explanation = explain(replayed, tokenizer)
    assert explanation.text == tokenizer.decode(trace.output)
    assert sum(span.num_tokens for span in explanation.spans) == len(truth) == explanation.num_tokens
    assert sum(explanation.num_tokens_by_origin.values()) == len(truth)
    accepted = sum(finished.num_accepted_tokens for finished in replayed.rounds)
    own = sum(explanation.num_tokens_by_origin.get(origin, 0) for origin in (CORRECTED, BONUS, PLAIN))
    assert accepted + own == len(truth)
    assert [explained.num_tokens for explained in explanation.rounds] == [
        sum(span.num_tokens for span in explanation.spans if span.round_number == number)
        for number in range(1, len(explanation.rounds) + 1)
    ]


def test_a_trace_is_not_changed_by_replaying_it() -> None:
    trace = dataclasses.replace(trace_of([10, 11]), sources=(Source(SourceKind.FILE, np.array([10, 11], np.int32)),))
    config = SpeculationConfig()
    first, second = (replay_trace(trace, drafter_factory(config)(trace), FixedPolicy(8)) for _ in range(2))
    assert [finished.tokens.tolist() for finished in first.rounds] == [
        finished.tokens.tolist() for finished in second.rounds
    ]
