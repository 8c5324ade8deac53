"""The tables of `bench_drafts` as plain cells. Measures nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from benchmarks.draft_figures import Best, DraftTimes, IndexFigures, Loss, Part, Reliability, best_peer
from benchmarks.draft_replays import NUM_BINS, Setting
from lookahead_edit.replay_explain import ExplainedRound

Table: TypeAlias = tuple[str, Sequence[str], list[list[str]]]  # title, columns, rows
SHORT_NAMES = {
    "num_draft_tokens": "k",
    "max_draft_tokens": "k",
    "max_ngram_length": "n",
    "min_ngram_length": "least n",
    "ngram_length": "n",
    "max_depth": "D",
    "max_draft_factor": "factor",
    "min_probability": "p",
    "draft_tokens_per_match": "factor",
}
MAX_TEXT = 48  # characters shown of a draft
WORST_COLUMNS = (
    "trace",
    "tokens",
    "cost",
    "peer's",
    "ratio",
    "rounds",
    "peer's",
    "drafted",
    "peer's",
    "no draft",
    "at",
    "copied from",
    "accepted",
    "drafted wrongly",
    "came",
)


def part_table(part: Part) -> Table:
    """A row for each drafter, with the peers' best setting for each cost."""
    columns = ["drafter"]
    for cost in part.costs:
        columns += [f"c = {cost:g}", "tokens/round", "accepted", "setting"]
    rows = []
    for name, best in part.drafters().items():
        rows.append([name, *(cell for cost in part.costs for cell in _best_cells(best[cost]))])
    title = f"{part.name}: modelled speed-up at each cost c, {len(part.traces)} traces"
    return title, columns, rows


def summary_table(parts: Sequence[Part], floors: Mapping[str, float]) -> Table:
    """Ours over the best peer, or only who that is where ours isn't replayed."""
    costs = parts[0].costs
    columns = ["set", "traces", "floor"]
    for cost in costs:
        columns += [f"c = {cost:g}", "best peer", "it has"]
    has_context = any(part.ours_without_context for part in parts)
    if has_context:
        columns += [f"context, c = {cost:g}" for cost in costs]
    rows = []
    for part in parts:
        floor = floors.get(part.name)
        row = [part.name, str(len(part.traces)), _number(floor)]
        for cost in costs:
            peer = best_peer(part.peers[cost])
            row += [_ratio_text(part.ratio(cost), floor), peer.drafter, f"{peer.speedup:.2f}"]
        if has_context:
            row += [_number(part.context_gain(cost)) for cost in costs]
        rows.append(row)
    return "Ours over the best peer, each peer at its best setting: ratios of modelled speed-ups", columns, rows


def reliability_table(reliabilities: Mapping[str, Reliability], cost: float) -> Table:
    """Predicted and observed acceptance by bin, and how many tokens."""
    edges = [f"{index / NUM_BINS:g} to {(index + 1) / NUM_BINS:g}" for index in range(NUM_BINS)]
    rows = []
    for name, reliability in reliabilities.items():
        cells = [
            "-" if each is None else f"{each.predicted:.2f} {each.observed:.2f} ({each.num_tokens})"
            for each in reliability.bins
        ]
        rows.append([name, *cells, _number(reliability.largest_gap, 3)])
    title = f"Predicted and observed acceptance of verified tokens (number), by prediction, c = {cost:g}"
    return title, ["set", *edges, "largest gap"], rows


def time_table(times: Mapping[str, tuple[Sequence[DraftTimes], IndexFigures]]) -> Table:
    """Drafting times of ours by context length, and what the index costs."""
    columns = ("set", "context", "rounds", "draft µs p50", "p95", "commit µs/round", "build µs/token", "bytes/token")
    rows = []
    for name, (by_context, index) in times.items():
        shared = [
            f"{index.commit_us_per_round:.0f}",
            f"{index.build_us_per_prompt_token:.2f}",
            f"{index.bytes_per_token:.0f}",
        ]
        for each in by_context:
            limit = "longer" if each.max_context_tokens is None else f"up to {each.max_context_tokens}"
            cells = [str(each.num_rounds), f"{each.p50_us:.0f}", f"{each.p95_us:.0f}"]
            rows.append([name, limit, *cells, *shared])
    return "Ours: time to draft a round by context length, and the index", columns, rows


def worst_table(name: str, peer: Best, explained: Sequence[tuple[str, Loss, int, Sequence[ExplainedRound]]]) -> Table:
    """Where ours loses most: id, loss, rounds without a draft, and the rounds that paid most for a token."""
    rows = []
    for trace_id, loss, num_without_draft, rounds in explained:
        first = [
            trace_id,
            str(loss.own.num_tokens),
            f"{loss.own.cost(loss.cost):.1f}",
            f"{loss.peer.cost(loss.cost):.1f}",
            f"{loss.ratio:.2f}",
            str(loss.own.num_rounds),
            str(loss.peer.num_rounds),
            str(loss.own.num_draft_tokens),
            str(loss.peer.num_draft_tokens),
            str(num_without_draft),
        ]
        details = [_round_cells(each) for each in rounds] or [[""] * 5]
        rows.append(first + details[0])
        rows += [[""] * len(first) + cells for cells in details[1:]]
    title = f"{name}: where ours loses most to {peer.drafter} ({setting_text(peer.setting)})"
    return title, WORST_COLUMNS, rows


def setting_text(setting: Setting) -> str:
    """Example: ``k 64, n 2``."""
    return ", ".join(f"{SHORT_NAMES.get(name, name)} {value:g}" for name, value in setting.items())


def _best_cells(best: Best) -> list[str]:
    counts = best.counts
    accepted = f"{counts.num_accepted_tokens / counts.num_draft_tokens:.0%}" if counts.num_draft_tokens else "-"
    return [f"{best.speedup:.2f}", f"{counts.num_tokens / counts.num_rounds:.2f}", accepted, setting_text(best.setting)]


def _round_cells(explained: ExplainedRound) -> list[str]:
    accepted = f"{explained.num_accepted_tokens} of {explained.num_draft_tokens}"
    texts = [repr(text[:MAX_TEXT])[1:-1] for text in (explained.rejected_text, explained.came_text)]
    return [str(explained.num_tokens_before), explained.draft_origin or "", accepted, *texts]


def _ratio_text(ratio: float | None, floor: float | None) -> str:
    return f"{_number(ratio)} BELOW" if ratio is not None and floor is not None and ratio < floor else _number(ratio)


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
