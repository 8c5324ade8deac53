"""Do our drafts beat every tuned peer on these traces?

Replays traces without a model: ours (drafter "edit", policy "cost", told only what a token costs), every peer with all
its settings, of which the best is taken for each cost and each part anew, and for orientation the oracle. A set is
``NAME=FILE``; with ``NAME=FILE:FIELD`` each value of that JSON field is a part with figures of its own, and of the
field ``id`` what stands before the last dash. Run as `python -m benchmarks.bench_drafts SETS`; the last line is one
JSON document.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from benchmarks.arguments import positive_int
from benchmarks.draft_figures import (
    Part,
    Reliability,
    best_peer,
    draft_times,
    index_figures,
    make_part,
    part_document,
    worst_losses,
)
from benchmarks.draft_replays import (
    MakeTokenizer,
    OwnReplay,
    OwnTask,
    PeerCache,
    PeerCounts,
    peer_settings,
    replay_own,
    replay_peers,
    tokenizer_maker,
)
from benchmarks.draft_tables import (
    Table,
    part_table,
    reliability_table,
    summary_table,
    time_table,
    worst_table,
)
from benchmarks.environment import environment, load_average
from benchmarks.report import rich_table
from benchmarks.trace_sets import SetSpec, TraceSet, read_set, without_context
from lookahead_edit.replay_explain import explain
from lookahead_edit.replay_figures import DEFAULT_COSTS
from lookahead_edit.targets.user_paths import cache_directory

MIDDLE_COST = 0.01  # at which losses and estimates are looked at
NUM_SHOWN_ROUNDS = 3  # of each trace that ours loses
TABLE_WIDTH = 300  # characters, where the output is no terminal


@dataclasses.dataclass(frozen=True)
class SetResult:
    """A set, and all replays of it; those of ours are empty where only peers are replayed."""

    traces: TraceSet
    peers: list[PeerCounts]
    ours: dict[float, list[OwnReplay]]
    ours_without_context: dict[float, list[OwnReplay]]

    def parts(self) -> list[Part]:
        """The whole set first."""
        return [
            make_part(name, indices, self.peers, DEFAULT_COSTS, self.ours, self.ours_without_context)
            for name, indices in self.traces.parts().items()
        ]


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", type=SetSpec.parse, metavar="NAME=FILE[:FIELD]", help="JSON lines")
    parser.add_argument("--tokenizer", metavar="NAME", help="as of `lookahead-edit replay`; the default model's")
    parser.add_argument(
        "--floor",
        action="append",
        default=[],
        type=_parse_floor,
        metavar="NAME=RATIO",
        help="what the ratio of a set, or of NAME/PART, shouldn't fall below",
    )
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="show the traces of each set ours loses most")
    parser.add_argument("--workers", type=positive_int, default=1, help="processes; times mean little with several")
    parser.add_argument(
        "--cache",
        type=Path,
        default=cache_directory() / "bench_drafts",
        metavar="FOLDER",
        help="where the peers' counts are kept, a cache directory of the user by default",
    )
    parser.add_argument("--no-cache", action="store_true", help="keep nothing, and replay all peers")
    parser.add_argument("--peers-only", action="store_true", help="don't replay ours: fills the cache")
    parser.add_argument("--output", type=Path, help="also write the JSON document to this file, indented")
    parsed = parser.parse_args(arguments)
    names = [spec.name for spec in parsed.sets]
    if len(set(names)) < len(names):
        parser.error(f"expected sets of different names, got {', '.join(names)}")
    for spec in parsed.sets:
        if not spec.path.is_file():  # better said before an hour of replays than after
            parser.error(f"expected a file of traces, but {spec.path} is none")
    return parsed


def _parse_floor(text: str) -> tuple[str, float]:
    name, _, ratio = text.rpartition("=")
    if not name:
        raise ValueError(f"expected NAME=RATIO, got {text!r}")
    return name, float(ratio)


def replay_set(
    traces: TraceSet,
    make_tokenizer: MakeTokenizer,
    peer_cache: PeerCache,
    *,
    num_workers: int = 1,
    has_ours: bool = True,
    advance: Callable[[], None] = lambda: None,
) -> SetResult:
    """All that is asked of one set."""
    peers = replay_peers(traces.traces, make_tokenizer, peer_cache, num_workers, advance)
    ours: dict[float, list[OwnReplay]] = {}
    bare: dict[float, list[OwnReplay]] = {}
    if has_ours:
        ours = replay_own(traces.traces, DEFAULT_COSTS, make_tokenizer, num_workers, advance)
        if traces.has_context:
            stripped = [without_context(trace) for trace in traces.traces]
            bare = replay_own(stripped, DEFAULT_COSTS, make_tokenizer, num_workers, advance)
    return SetResult(traces, peers, ours, bare)


def num_steps(traces: TraceSet, *, has_ours: bool) -> int:
    """How often `replay_set` advances."""
    return len(peer_settings()) + len(DEFAULT_COSTS) * has_ours * (1 + traces.has_context)


def worst_of(result: SetResult, whole: Part, make_tokenizer: MakeTokenizer, num_losses: int) -> Table:
    """Replays what ours loses most once more, to tell its rounds."""
    peer = best_peer(whole.peers[MIDDLE_COST])
    task = OwnTask(MIDDLE_COST, (), make_tokenizer)
    explained = []
    for loss in worst_losses(result.ours[MIDDLE_COST], result.peers[peer.index].counts, MIDDLE_COST, num_losses):
        trace = result.traces.traces[loss.trace]
        told = explain(task.replay(trace), make_tokenizer())
        num_without_draft = sum(each.num_draft_tokens == 0 for each in told.rounds)
        explained.append((trace.id, loss, num_without_draft, told.costliest_rounds(MIDDLE_COST, NUM_SHOWN_ROUNDS)))
    return worst_table(whole.name, peer, explained)


def reliabilities_of(results: Sequence[SetResult]) -> dict[str, Reliability]:
    """By set, then of all together."""
    sums = {result.traces.name: sum(each.bins for each in result.ours[MIDDLE_COST]) for result in results}
    return {name: Reliability.of(np.asarray(bins)) for name, bins in (sums | {"all": sum(sums.values())}).items()}


def document_of(
    results: Sequence[SetResult], parts: Sequence[Part], floors: Mapping[str, float], reliabilities: Mapping[str, Any]
) -> dict[str, Any]:
    """Everything the tables show, as plain values."""
    ours = [(result.traces.name, result.ours[MIDDLE_COST]) for result in results if result.ours]
    return {
        "benchmark": "drafts",
        "parts": [part_document(part, floors.get(part.name)) for part in parts],
        "reliability": {
            name: {
                "bins": [None if each is None else dataclasses.asdict(each) for each in reliability.bins],
                "largest_gap": reliability.largest_gap,
            }
            for name, reliability in reliabilities.items()
        },
        "draft_times": {name: [dataclasses.asdict(each) for each in draft_times(own)] for name, own in ours},
        "index": {name: dataclasses.asdict(index_figures(own)) for name, own in ours},
        "environment": environment() | {"load": load_average()},
    }


def print_table(console: Console, table: Table) -> None:
    """On standard output, at once: the next one may take long."""
    title, columns, rows = table
    console.print(rich_table(title, columns, rows))
    console.file.flush()


def main() -> int:
    """Replays set by set, prints each one's tables as soon as they are known, then the summary."""
    arguments = parse_arguments()
    console = Console(width=None if sys.stdout.isatty() else TABLE_WIDTH, markup=False, highlight=False)
    make_tokenizer = tokenizer_maker(arguments.tokenizer)
    peer_cache = PeerCache(None if arguments.no_cache else arguments.cache)
    floors = dict(arguments.floor)
    has_ours = not arguments.peers_only
    results: list[SetResult] = []
    parts: list[Part] = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for spec in arguments.sets:
            traces = read_set(spec, make_tokenizer())
            bar = progress.add_task(spec.name, total=num_steps(traces, has_ours=has_ours))
            result = replay_set(
                traces,
                make_tokenizer,
                peer_cache,
                num_workers=arguments.workers,
                has_ours=has_ours,
                advance=partial(progress.advance, bar),
            )
            results.append(result)
            for part in (own := result.parts()):
                print_table(console, part_table(part))
            parts += own
            if arguments.worst and has_ours:
                print_table(console, worst_of(result, own[0], make_tokenizer, arguments.worst))
    reliabilities = reliabilities_of(results) if has_ours else {}
    if has_ours:
        print_table(console, reliability_table(reliabilities, MIDDLE_COST))
        times = {each.traces.name: each.ours[MIDDLE_COST] for each in results}
        print_table(console, time_table({name: (draft_times(own), index_figures(own)) for name, own in times.items()}))
    print_table(console, summary_table(parts, floors))
    document = document_of(results, parts, floors, reliabilities)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
