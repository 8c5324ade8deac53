"""Replays sets of traces with peers and with ours: counts a trace, peers' ones kept on disk. Prints nothing.

The loop is `replay_trace`'s. A task is a drafter with one setting and all traces of a set that aren't known yet; with
several workers each is a process, and a task brings along all that it needs.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

import benchmarks.peers
from benchmarks.peers import MAX_DRAFT_TOKENS, PEERS, TUNING
from benchmarks.peers.line_cursor import texts_of_tokens
from benchmarks.trace_sets import fingerprint, source_fingerprint, without_context
from lookahead_edit.config import SpeculationConfig
from lookahead_edit.cost import CostCurve
from lookahead_edit.policy import FixedPolicy
from lookahead_edit.replay import replay_trace
from lookahead_edit.replay_figures import TraceReplay, cost_of
from lookahead_edit.replay_tokens import TokenTrace
from lookahead_edit.speculation import make_drafter, make_policy
from lookahead_edit.targets.tokenizer_loading import load_tokenizer
from lookahead_edit.types import Drafter, Round, Tokenizer

Result = TypeVar("Result")
MakeTokenizer: TypeAlias = Callable[[], Tokenizer]  # can be pickled
Setting: TypeAlias = Mapping[str, float]

ORACLE = "oracle_copy"
ORACLE_SETTINGS: tuple[Setting, ...] = ({"max_draft_tokens": 64}, {"max_draft_tokens": 256})
NUM_BINS = 10  # of predicted probabilities
OWN_CONFIG = SpeculationConfig(policy="cost")


class Counts(NamedTuple):
    """What a replay comes to; sums over traces add up."""

    num_tokens: int  # end token included
    num_rounds: int
    num_draft_tokens: int
    num_accepted_tokens: int

    def cost(self, cost: float) -> float:
        """In forward passes, where a further token costs `cost`."""
        return cost_of(self.num_rounds, self.num_draft_tokens, cost)

    def speedup(self, cost: float) -> float:
        """The cost of plain decoding over this one."""
        return cost_of(self.num_tokens, 0, cost) / self.cost(cost)


@dataclass(frozen=True)
class OwnReplay:
    """One trace replayed with ours at one cost."""

    counts: Counts
    bins: NDArray[np.float64]  # float64[3, NUM_BINS]: verified tokens, sum of predictions, accepted tokens
    context_lengths: NDArray[np.int32]  # int32[num_rounds], prompt and output before each round
    draft_seconds: NDArray[np.float64]  # float64[num_rounds]
    commit_seconds: float
    index_build_seconds: float
    num_prompt_tokens: int
    num_index_bytes: int


@dataclass(frozen=True)
class PeerTask:
    """One setting of one peer, and the traces it's to be replayed on."""

    peer: str
    setting: Setting
    traces: tuple[TokenTrace, ...]
    make_tokenizer: MakeTokenizer

    def __call__(self) -> list[Counts]:
        """The counts of each trace, in order."""
        policy = FixedPolicy(MAX_DRAFT_TOKENS)
        return [counts_of(replay_trace(trace, self._drafter(trace), policy)) for trace in self.traces]

    def _drafter(self, trace: TokenTrace) -> Drafter:
        extra: dict[str, Any] = {}
        if self.peer == "line_cursor":
            extra["text_of_token"] = _texts_of_tokens(self.make_tokenizer)
        elif self.peer == ORACLE:
            extra["output"] = trace.output
        return PEERS[self.peer](**extra, **self.setting)


@dataclass(frozen=True)
class OwnTask:
    """Ours, told nothing but the cost of a token."""

    cost: float
    traces: tuple[TokenTrace, ...]
    make_tokenizer: MakeTokenizer

    def __call__(self) -> list[OwnReplay]:
        """What each trace came to, in order."""
        return [own_replay_of(self.replay(trace)) for trace in self.traces]

    def replay(self, trace: TokenTrace) -> TraceReplay:
        """One trace, with a drafter and a policy of its own."""
        drafter = make_drafter(OWN_CONFIG, self.make_tokenizer())
        return replay_trace(trace, drafter, make_policy(OWN_CONFIG, CostCurve.linear(self.cost)))


class PeerCache:
    """The counts of peers by setting and trace, a file a setting; nothing is kept without a folder.

    Keys are the contents of the peers' sources and of the tokenised trace, so that nothing stale is ever read.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._sources = source_fingerprint(Path(benchmarks.peers.__file__).parent.glob("*.py"))

    def read(self, peer: str, setting: Setting) -> dict[str, Counts]:
        """By `fingerprint` of the trace."""
        path = self._path(peer, setting)
        if path is None or not path.exists():
            return {}
        return {key: Counts(*counts) for key, counts in json.loads(path.read_text("utf-8")).items()}

    def add(self, peer: str, setting: Setting, counts: Mapping[str, Counts]) -> None:
        """Other processes may do the same: at worst something is replayed once more."""
        path = self._path(peer, setting)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            own = path.with_suffix(f".{os.getpid()}")
            own.write_text(json.dumps(self.read(peer, setting) | dict(counts)), "utf-8")
            own.replace(path)

    def _path(self, peer: str, setting: Setting) -> Path | None:
        name = "-".join([peer, *(f"{value:g}" for value in setting.values())])
        return None if self._folder is None else self._folder / self._sources / f"{name}.json"


class PeerCounts(NamedTuple):
    """One setting of one peer on a set."""

    peer: str
    setting: Setting
    counts: list[Counts]  # one a trace


def peer_settings() -> list[tuple[str, Setting]]:
    """Every setting of every peer, then the oracle's."""
    tuned = [(peer, setting) for peer in PEERS if peer != ORACLE for setting in TUNING[peer]]
    return [*tuned, *((ORACLE, setting) for setting in ORACLE_SETTINGS)]


def replay_peers(
    traces: Sequence[TokenTrace],
    make_tokenizer: MakeTokenizer,
    peer_cache: PeerCache,
    num_workers: int = 1,
    advance: Callable[[], None] = lambda: None,
) -> list[PeerCounts]:
    """All settings on all traces, in the order of `peer_settings`; `advance` is called once for each setting.

    Only the oracle sees other files of the workspace.
    """
    plain = [without_context(trace) for trace in traces]
    seen: dict[bool, Sequence[TokenTrace]] = {True: traces, False: plain}
    keys = {is_oracle: [fingerprint(trace) for trace in own] for is_oracle, own in seen.items()}
    known: list[dict[str, Counts]] = []
    tasks: dict[int, PeerTask] = {}
    settings = peer_settings()
    for index, (peer, setting) in enumerate(settings):
        known.append(peer_cache.read(peer, setting))
        own = zip(keys[peer == ORACLE], seen[peer == ORACLE], strict=True)
        missing = tuple(trace for key, trace in own if key not in known[-1])
        if missing:
            tasks[index] = PeerTask(peer, setting, missing, make_tokenizer)
        else:
            advance()
    for index, counts in run_tasks(tasks, num_workers):
        task = tasks[index]
        added = {fingerprint(trace): count for trace, count in zip(task.traces, counts, strict=True)}
        peer_cache.add(task.peer, task.setting, added)
        known[index] |= added
        advance()
    return [
        PeerCounts(peer, setting, [counts[key] for key in keys[peer == ORACLE]])
        for (peer, setting), counts in zip(settings, known, strict=True)
    ]


def replay_own(
    traces: Sequence[TokenTrace],
    costs: Sequence[float],
    make_tokenizer: MakeTokenizer,
    num_workers: int = 1,
    advance: Callable[[], None] = lambda: None,
) -> dict[float, list[OwnReplay]]:
    """By cost, one a trace; `advance` is called once for each cost."""
    tasks = {cost: OwnTask(cost, tuple(traces), make_tokenizer) for cost in costs}
    replayed = {}
    for cost, result in run_tasks(tasks, num_workers):
        replayed[cost] = result
        advance()
    return replayed


Key = TypeVar("Key")


def run_tasks(tasks: Mapping[Key, Callable[[], Result]], num_workers: int) -> Iterator[tuple[Key, Result]]:
    """Results as they come in; with one worker in this process."""
    if num_workers == 1 or len(tasks) < 2:
        yield from ((key, task()) for key, task in tasks.items())
        return
    with ProcessPoolExecutor(num_workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(task): key for key, task in tasks.items()}
        for future in as_completed(futures):
            yield futures[future], future.result()


def counts_of(replayed: TraceReplay) -> Counts:
    """The sums over the rounds."""
    metrics = replayed.metrics
    return Counts(metrics.num_emitted_tokens, metrics.num_rounds, metrics.num_draft_tokens, metrics.num_accepted_tokens)


def own_replay_of(replayed: TraceReplay) -> OwnReplay:
    """What is kept of the rounds: no tokens."""
    num_prompt_tokens = len(replayed.trace.prompt)
    emitted = np.cumsum([0, *(len(finished.tokens) for finished in replayed.rounds)])[:-1]
    return OwnReplay(
        counts=counts_of(replayed),
        bins=bins_of(replayed.rounds),
        context_lengths=(num_prompt_tokens + emitted).astype(np.int32),
        draft_seconds=np.array([finished.draft_seconds for finished in replayed.rounds]),
        commit_seconds=replayed.commit_seconds,
        index_build_seconds=replayed.index_build_seconds,
        num_prompt_tokens=num_prompt_tokens,
        num_index_bytes=replayed.metrics.max_index_bytes,
    )


def bins_of(rounds: Iterable[Round]) -> NDArray[np.float64]:
    """float64[3, NUM_BINS] by predicted probability: tokens, sum of the predictions, accepted tokens.

    Each verified token counts: the prediction for the i-th is that it and all before it are accepted.
    """
    bins = np.zeros((3, NUM_BINS))
    for finished in rounds:
        predicted = finished.draft.probabilities
        if predicted is not None and len(predicted):
            indices = np.minimum((predicted * NUM_BINS).astype(np.int64), NUM_BINS - 1)
            np.add.at(bins[0], indices, 1.0)
            np.add.at(bins[1], indices, predicted)
            np.add.at(bins[2], indices[: finished.num_accepted_tokens], 1.0)
    return bins


@cache
def _loaded(name: str | None) -> Tokenizer:
    return load_tokenizer(name)


def tokenizer_maker(name: str | None) -> MakeTokenizer:
    """Loads it once a process."""
    return partial(_loaded, name)


@cache
def _texts_of_tokens(make_tokenizer: MakeTokenizer) -> Callable[[int], str]:
    return texts_of_tokens(make_tokenizer())
