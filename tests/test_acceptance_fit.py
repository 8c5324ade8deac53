"""What the acceptance model is learned from: rows of replayed traces. Nothing is fitted here."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from corpora.acceptance import fit, tasks
from corpora.acceptance.collect import NUM_DENSE_TOKENS, SPARSE_STEP, CollectingDrafter, Samples, collect, fill_tail
from corpora.edit_model.pieces import source_files
from lookahead_edit import acceptance
from lookahead_edit.acceptance import AcceptanceModel
from lookahead_edit.config import SpeculationConfig
from lookahead_edit.drafters import edit
from lookahead_edit.kernels import acceptance as layout
from lookahead_edit.kernels import candidates as places
from lookahead_edit.policy import FixedPolicy
from lookahead_edit.replay import TokenTrace, replay_trace, tokenize_trace
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.traces import Trace
from lookahead_edit.types import ContextFile

TOKENIZER = ByteTokenizer()
FILE = "def f(count):\n    return count + 1\n\n\ndef g(count):\n    return count - 1\n" * 3
RENAMED = FILE.replace("count", "size")
OTHER = ContextFile("other.py", "def h(size):\n    return size * size\n")
TRACES = [
    Trace("renamed", f"Rename count.\n```\n{FILE}```\n", RENAMED, FILE, (OTHER,)),
    Trace(
        "continued", "The quick brown fox jumps. The lazy dog sleeps.\n", "The quick brown dog jumps. The fox is lazy."
    ),
]


@pytest.fixture
def first_model(monkeypatch: pytest.MonkeyPatch) -> AcceptanceModel:
    """The model that learning starts from."""
    model = AcceptanceModel(**fit.first_model())
    monkeypatch.setattr(edit, "acceptance_model", lambda: model)
    return model


def token_traces() -> list[TokenTrace]:
    return [tokenize_trace(trace, TOKENIZER) for trace in TRACES]


def test_the_first_model_drafts(first_model: AcceptanceModel) -> None:
    for trace in token_traces():
        drafter = CollectingDrafter(TOKENIZER, trace.output, trace.end_token_id)
        replayed = replay_trace(trace, drafter, FixedPolicy(64))
        assert len(replayed.rounds) < len(trace.output) / 2
    rows = [first_model.tail_log_odds[layout.BY_TYPE + evidence] for evidence in range(layout.NUM_EVIDENCE_BINS)]
    assert np.diff(rows).min() > 0  # the more tokens agree, the better


@pytest.mark.usefixtures("first_model")
def test_rows_are_whole_and_within_the_table() -> None:
    samples = Samples.joined(collect(token_traces(), TOKENIZER))
    assert samples.features.shape == (len(samples.is_accepted), places.NUM_FEATURES)
    assert samples.tail_entries.shape == (len(samples.is_tail_accepted), layout.NUM_TAIL_PARTS)
    assert np.isfinite(samples.features).all()
    assert set(samples.is_accepted.tolist()) == set(samples.is_tail_accepted.tolist()) == {0, 1}
    starts = [layout.BY_TYPE, layout.BY_CLASSES, layout.BY_OFFSET, layout.BY_FIRST, layout.BY_RATE, layout.BY_CLASS]
    for part, (start, end) in enumerate(itertools.pairwise([*starts, layout.NUM_TAIL_ENTRIES])):
        assert samples.tail_entries[:, part].min() >= start
        assert samples.tail_entries[:, part].max() < end
    types = set(samples.features[:, 0].astype(int).tolist())
    assert {places.AT_CURSOR, places.MOST_RECENT, places.WORKSPACE} <= types
    assert set(samples.features[:, 26].tolist()) == {0.0, 1.0}  # with and without a file


@pytest.mark.usefixtures("first_model")
def test_collecting_does_not_change_the_rounds() -> None:
    for trace in token_traces():
        plain = replay_trace(trace, edit.EditDrafter(SpeculationConfig(), TOKENIZER), FixedPolicy(16))
        collecting = replay_trace(
            trace, CollectingDrafter(TOKENIZER, trace.output, trace.end_token_id), FixedPolicy(16)
        )
        for one, other in zip(plain.rounds, collecting.rounds, strict=True):
            assert one.draft.tokens.tolist() == other.draft.tokens.tolist()


@pytest.mark.usefixtures("first_model")
def test_later_tokens_are_those_of_the_drafted_candidate_up_to_its_first_wrong_one() -> None:
    (trace, _) = token_traces()
    drafter = CollectingDrafter(TOKENIZER, trace.output, trace.end_token_id)
    replay_trace(trace, drafter, FixedPolicy(64))
    for rows, outcomes in drafter._tails:
        assert len(rows) == len(outcomes)
        assert (outcomes[:-1] == 1).all()  # none is looked at behind a wrong one
    assert any(len(outcomes) and outcomes[-1] == 0 for _, outcomes in drafter._tails)
    assert len(drafter._tails) <= len(drafter._rows)


@pytest.mark.parametrize(("num_right", "limit"), [(0, 9), (1, 9), (5, 9), (9, 9), (40, 60), (41, 60), (60, 60)])
def test_which_later_tokens_are_kept_does_not_depend_on_how_they_fared(num_right: int, limit: int) -> None:
    rows, outcomes = np.zeros((limit, layout.NUM_TAIL_PARTS), np.int32), np.full(limit, 9, np.int8)
    classes, entries = np.full(limit, 2, np.int8), np.zeros(8, np.int32)
    count = fill_tail(0, True, 8, 0.7, classes, num_right, limit, 3, rows, outcomes, entries)
    reached = [offset for offset in range(1, limit) if offset <= num_right]
    kept = [offset for offset in reached if offset <= NUM_DENSE_TOKENS or offset % SPARSE_STEP == 0]
    assert outcomes[:count].tolist() == [int(offset < num_right) for offset in kept]


def test_no_trace_has_no_rows() -> None:
    samples = CollectingDrafter(TOKENIZER, np.zeros(0, np.int32), 0).samples
    assert samples.features.shape == (0, places.NUM_FEATURES)
    assert samples.tail_entries.shape == (0, layout.NUM_TAIL_PARTS)


def test_a_model_is_written_where_the_package_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fit.save(tmp_path / "model.npz", fit.first_model())
    with np.load(tmp_path / "model.npz") as arrays:
        model = AcceptanceModel(**{name: arrays[name] for name in arrays.files})
    assert model.tail_log_odds.shape == (layout.NUM_TAIL_ENTRIES,)
    assert fit.MODEL_FILE.name == acceptance.FILE
    assert fit.MODEL_FILE.exists()


def test_made_up_tasks_are_valid_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    if not {"python", "markdown"} <= set(source_files("train")):
        pytest.skip("the packages that tasks are made from are not installed")
    monkeypatch.setattr(tasks, "NUM_TASKS", 12)
    monkeypatch.setattr(tasks, "NUM_CONTINUATIONS", 4)
    traces = [*tasks.edit_traces(), *tasks.continuation_traces()]
    assert len({trace.id for trace in traces}) == len(traces) == 16
    for trace in traces:
        tokens = tokenize_trace(trace, TOKENIZER)  # refuses a source that isn't in the prompt
        assert len(tokens.output) > 0
        assert not trace.output.endswith("<|im_end|>")
    assert all(trace.source is None for trace in traces[12:])
    for index, trace in enumerate(traces[:12]):  # a quote's text is edited by nobody
        assert trace.source is not None or (trace.id.startswith("quote") and index % 2)
    assert traces == [*tasks.edit_traces(), *tasks.continuation_traces()]  # always the same
