"""What `bench_drafts` makes of replays: parts, the peers' best settings, ratios, losses, estimates, the cache."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import draft_replays
from benchmarks.draft_figures import (
    MIN_BIN_TOKENS,
    Reliability,
    best_peer,
    best_settings,
    draft_times,
    make_part,
    part_document,
    worst_losses,
)
from benchmarks.draft_replays import (
    NUM_BINS,
    Counts,
    OwnReplay,
    PeerCache,
    PeerCounts,
    PeerTask,
    bins_of,
    replay_own,
    replay_peers,
)
from benchmarks.draft_tables import part_table, reliability_table, setting_text, summary_table, worst_table
from benchmarks.trace_sets import SetSpec, TraceSet, fingerprint, read_set, without_context
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.types import Draft, Round

COSTS = (0.002, 0.05)
LINES = "".join(f"value_{number} = {number * number}\n" for number in range(12))


def row(name: str, output: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "prompt": f"Edit this:\n{LINES}", "output": output, "source": LINES, "kind": kind, **more}


@pytest.fixture
def traces(tmp_path: Path) -> TraceSet:
    """Two traces: a file copied but for a number, and one with a new text that is in another file."""
    rows = [
        row("edit-1", LINES.replace("= 36", "= 37"), "copy"),
        row("edit-2", "a text in another file", "new", context=[{"path": "b", "text": "A text in another file."}]),
    ]
    path = tmp_path / "traces.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in rows), "utf-8")
    return read_set(SetSpec("two", path, "kind"), ByteTokenizer())


@pytest.fixture
def two_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = ({"num_draft_tokens": 4}, {"num_draft_tokens": 64})
    monkeypatch.setattr(draft_replays, "TUNING", {"plain": ({},), "hf_lookup": lengths, "line_cursor": lengths})
    names = ("plain", "hf_lookup", "line_cursor", "oracle_copy")
    monkeypatch.setattr(draft_replays, "PEERS", {name: draft_replays.PEERS[name] for name in names})


def own(counts: Counts, **more: Any) -> OwnReplay:
    values: dict[str, Any] = {
        "bins": np.zeros((3, NUM_BINS)),
        "context_lengths": np.zeros(0, np.int32),
        "draft_seconds": np.zeros(0),
        "commit_seconds": 0.0,
        "index_build_seconds": 0.0,
        "num_prompt_tokens": 1,
        "num_index_bytes": 0,
    }
    return OwnReplay(counts=counts, **(values | more))


def test_a_set_is_named_with_its_file_and_may_name_a_field() -> None:
    assert SetSpec.parse("edits=a/b.jsonl:kind") == SetSpec("edits", Path("a/b.jsonl"), "kind")
    assert SetSpec.parse("edits=a/b.jsonl") == SetSpec("edits", Path("a/b.jsonl"))
    with pytest.raises(ValueError, match="NAME=FILE"):
        SetSpec.parse("b.jsonl")


def test_parts_are_the_values_of_a_field_or_the_beginnings_of_the_ids(traces: TraceSet, tmp_path: Path) -> None:
    assert traces.parts() == {"two": [0, 1], "two/copy": [0], "two/new": [1]}
    by_id = read_set(SetSpec("two", tmp_path / "traces.jsonl", "id"), ByteTokenizer())
    assert by_id.parts() == {"two": [0, 1], "two/edit": [0, 1]}
    whole = read_set(SetSpec("two", tmp_path / "traces.jsonl"), ByteTokenizer())
    assert whole.parts() == {"two": [0, 1]}


def test_a_fingerprint_knows_the_context_but_not_the_id(traces: TraceSet) -> None:
    first, second = traces.traces
    assert traces.has_context
    assert without_context(first) is first
    assert fingerprint(without_context(second)) != fingerprint(second) != fingerprint(first)


def test_the_best_setting_depends_on_the_cost() -> None:
    """20 tokens in 4 rounds of 100 drafted tokens, or in 10 rounds of 10."""
    long, short = Counts(20, 4, 100, 16), Counts(20, 10, 10, 10)
    replayed = [PeerCounts("peer", {"k": 1}, [long]), PeerCounts("peer", {"k": 2}, [short])]
    assert best_settings(replayed, [0], 0.002)["peer"].setting == {"k": 1}
    best = best_settings(replayed, [0], 0.1)["peer"]
    assert (best.setting, best.index) == ({"k": 2}, 1)
    assert best.speedup == pytest.approx(20 * 1.1 / (10 + 0.1 * 20))


def test_the_ratio_is_to_the_best_peer_and_never_to_the_oracle() -> None:
    peers = [
        PeerCounts("slow", {}, [Counts(12, 6, 0, 0)] * 2),
        PeerCounts("fast", {}, [Counts(12, 4, 0, 0)] * 2),
        PeerCounts("oracle_copy", {"max_draft_tokens": 64}, [Counts(12, 1, 11, 11)] * 2),
    ]
    part = make_part("set", [0, 1], peers, [0.0], {0.0: [own(Counts(12, 2, 0, 0))] * 2}, {})
    assert best_peer(part.peers[0.0]).drafter == "fast"
    assert part.ratio(0.0) == pytest.approx(2.0)
    assert part.context_gain(0.0) is None
    _, _, rows = summary_table([part], {"set": 2.1})
    assert rows == [["set", "2", "2.10", "2.00 BELOW", "fast", "3.00"]]


def test_losses_are_ranked_by_the_ratio_of_costs() -> None:
    mine = [own(Counts(10, rounds, 0, 0)) for rounds in (2, 6, 9)]
    losses = worst_losses(mine, [Counts(10, 3, 0, 0)] * 3, 0.0, 5)
    assert [(loss.trace, loss.ratio) for loss in losses] == [(2, 3.0), (1, 2.0)]
    assert len(worst_losses(mine, [Counts(10, 3, 0, 0)] * 3, 0.0, 1)) == 1


def test_predictions_are_compared_with_what_was_accepted() -> None:
    """Of three tokens predicted at 0.95, 0.55 and 0.5 the first two are accepted."""
    draft = Draft(tokens=np.arange(3, dtype=np.int32), probabilities=np.array([0.95, 0.55, 0.5], dtype=np.float32))
    finished = Round(tokens=np.arange(3, dtype=np.int32), draft=draft, num_accepted_tokens=2)
    certain = Draft(tokens=np.arange(1, dtype=np.int32), probabilities=np.ones(1, dtype=np.float32))
    bins = bins_of([finished, Round(np.arange(2, dtype=np.int32), certain, 1), Round(np.arange(1), Draft(), 0)])
    assert bins[:, 9] == pytest.approx([2.0, 1.95, 2.0])
    assert bins[:, 5] == pytest.approx([2.0, 1.05, 1.0])
    reliability = Reliability.of(bins * MIN_BIN_TOKENS)
    assert [index for index, each in enumerate(reliability.bins) if each is not None] == [5, 9]
    assert reliability.largest_gap == pytest.approx(0.025)
    assert Reliability.of(bins).largest_gap is None
    assert reliability_table({"set": reliability}, 0.01)[2][0][6] == "0.53 0.50 (200)"


def test_draft_times_are_told_apart_by_the_context_of_the_round() -> None:
    lengths = np.array([8192, 8193, 40000], dtype=np.int32)
    replayed = own(Counts(3, 3, 0, 0), context_lengths=lengths, draft_seconds=np.array([1e-6, 2e-6, 3e-6]))
    assert [(each.max_context_tokens, round(each.p95_us)) for each in draft_times([replayed])] == [
        (8192, 1),
        (32768, 2),
        (None, 3),
    ]


@pytest.mark.usefixtures("two_peers")
def test_peers_are_replayed_once_and_then_read_from_the_cache(
    traces: TraceSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advanced = []
    first = replay_peers(
        traces.traces, ByteTokenizer, PeerCache(tmp_path / "cache"), advance=lambda: advanced.append(1)
    )
    monkeypatch.setattr(PeerTask, "__call__", lambda task: pytest.fail("replayed again"))
    again = replay_peers(
        traces.traces, ByteTokenizer, PeerCache(tmp_path / "cache"), advance=lambda: advanced.append(1)
    )
    assert again == first
    assert len(advanced) == 2 * len(first) == 14
    assert [peer.peer for peer in first][-2:] == ["oracle_copy", "oracle_copy"]
    plain = first[0].counts
    assert [counts.num_rounds for counts in plain] == [len(trace.output) + 1 for trace in traces.traces]


@pytest.mark.usefixtures("two_peers")
def test_ours_is_compared_on_every_part_with_and_without_context(traces: TraceSet) -> None:
    peers = replay_peers(traces.traces, ByteTokenizer, PeerCache(None))
    ours = replay_own(traces.traces, COSTS, ByteTokenizer)
    bare = replay_own([without_context(trace) for trace in traces.traces], COSTS, ByteTokenizer)
    parts = [make_part(name, indices, peers, COSTS, ours, bare) for name, indices in traces.parts().items()]
    for cost in COSTS:
        gain = parts[2].context_gain(cost)
        assert gain is not None
        assert gain >= 1.0
    document = part_document(parts[1], None)
    assert document["costs"][0]["drafters"]["oracle_copy 64"]["acceptance_rate"] == 1.0
    assert json.loads(json.dumps(document)) == document
    title, columns, rows = part_table(parts[0])
    assert "2 traces" in title
    assert [len(each) for each in rows] == [len(columns)] * 7
    assert setting_text({"num_draft_tokens": 4, "max_ngram_length": 2}) == "k 4, n 2"


def test_a_loss_is_shown_with_its_costliest_rounds() -> None:
    """The row of the trace has the first round, a row without the trace each further one."""
    losses = worst_losses([own(Counts(10, 6, 20, 4))], [Counts(10, 3, 0, 0)], 0.0, 1)
    shown: Any = SimpleNamespace(
        num_tokens_before=3,
        draft_origin="file",
        num_accepted_tokens=1,
        num_draft_tokens=9,
        rejected_text="x\n",
        came_text="y",
    )
    peer = best_settings([PeerCounts("peer", {"k": 1}, [Counts(10, 3, 0, 0)])], [0], 0.0)["peer"]
    _, columns, rows = worst_table("set", peer, [("a", losses[0], 2, [shown, shown])])
    assert [len(each) for each in rows] == [len(columns)] * 2
    assert rows[0][:5] == ["a", "10", "6.0", "3.0", "2.00"]
    assert rows[1][-5:] == ["3", "file", "1 of 9", "x\\n", "y"]
