"""What the acceptance model is learned from, rows of replayed traces, and that what is fitted says what it should."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpora.acceptance import fit
from corpora.acceptance.collect import NUM_DENSE_TOKENS, SPARSE_STEP, CollectingDrafter, Samples, collect, fill_tail
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
PARTS = (layout.BY_TYPE, layout.BY_CLASSES, layout.BY_OFFSET, layout.BY_FIRST, layout.BY_RATE, layout.BY_CLASS)
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
    for part, (start, end) in enumerate(itertools.pairwise([*PARTS, layout.NUM_TAIL_ENTRIES])):
        assert samples.tail_entries[:, part].min() >= start
        assert samples.tail_entries[:, part].max() < end
    types = set(samples.features[:, 0].astype(int).tolist())
    assert {places.AT_CURSOR, places.MOST_RECENT, places.WORKSPACE} <= types
    assert set(samples.features[:, 26].tolist()) == {0.0, 1.0}  # following a file, and not


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


def test_trees_that_say_nothing_leave_even_odds() -> None:
    trees = fit.empty_trees(3)
    model = AcceptanceModel(**trees, tail_log_odds=np.zeros(layout.NUM_TAIL_ENTRIES, np.float32))
    for value in (-np.inf, 0.0, 1e30, np.inf):
        features = np.full(places.NUM_FEATURES, value, np.float32)
        assert layout.first_probability(features, model.columns, model.thresholds, model.leaves) == 0.5


def made_up_samples(num_rows: int) -> Samples:
    """The first token's outcome depends on some features, and a later one's on its first entry."""
    generator = np.random.default_rng(9)
    features = generator.integers(0, 12, (num_rows, places.NUM_FEATURES)).astype(np.float32)
    log_odds = np.where(features[:, 3] > 5, 1.5, -2.0) + 0.3 * features[:, 28] - 0.2 * features[:, 7]
    is_accepted = generator.random(num_rows) < 1.0 / (1.0 + np.exp(-log_odds))
    entries = np.tile(np.array(PARTS, np.int32), (num_rows, 1))
    entries[:, 0] += generator.integers(0, 2, num_rows).astype(np.int32)
    is_tail_accepted = generator.random(num_rows) < np.where(entries[:, 0] == PARTS[0] + 1, 0.8, 0.3)
    return Samples(features, is_accepted.astype(np.int8), entries, is_tail_accepted.astype(np.int8))


def test_grown_trees_say_what_those_they_were_made_from_say(monkeypatch: pytest.MonkeyPatch) -> None:
    lightgbm = pytest.importorskip("lightgbm", reason="the extra `acceptance` is not installed")
    monkeypatch.setattr(fit, "NUM_TREES", 12)
    train, boosters = lightgbm.train, []

    def remember(*arguments: Any) -> Any:
        boosters.append(train(*arguments))
        return boosters[-1]

    monkeypatch.setattr(lightgbm, "train", remember)
    samples = made_up_samples(4000)
    trees = fit.grow_trees(samples, seed=1)
    model = AcceptanceModel(**trees, tail_log_odds=np.zeros(layout.NUM_TAIL_ENTRIES, np.float32))
    assert len(model.leaves) == 12
    assert {3, 7, 28} <= set(model.columns[np.isfinite(model.thresholds)].tolist())
    assert np.isinf(model.thresholds).any()  # some end early
    (booster,) = boosters
    for row, expected in zip(samples.features[:300], booster.predict(samples.features[:300]), strict=True):
        found = layout.first_probability(row, model.columns, model.thresholds, model.leaves)
        assert found == pytest.approx(expected, rel=1e-5)


def test_later_tokens_odds_are_those_seen_and_the_same_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "BATCH_SIZE", 200)
    samples = made_up_samples(4000)
    log_odds = fit.fit_tail(samples, seed=1)
    assert (log_odds.shape, log_odds.dtype) == ((layout.NUM_TAIL_ENTRIES,), np.float32)
    assert np.array_equal(log_odds, fit.fit_tail(samples, seed=1))
    predicted = 1.0 / (1.0 + np.exp(-log_odds[samples.tail_entries].sum(axis=1)))
    for entry, share in ((PARTS[0], 0.3), (PARTS[0] + 1, 0.8)):
        assert predicted[samples.tail_entries[:, 0] == entry].mean() == pytest.approx(share, abs=0.05)
