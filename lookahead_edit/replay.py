"""Replays logged outputs through the engine: what any drafter and policy would have done. No model, no second loop.

The output ends with the tokenizer's end token, which counts as an output token: a drafter can't know the length.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as SequenceOf
from typing import TypeAlias

from lookahead_edit.config import SamplingConfig, SpeculationConfig
from lookahead_edit.cost import CostCurve
from lookahead_edit.engine import Engine
from lookahead_edit.metrics import SpeculationMetrics
from lookahead_edit.replay_figures import DEFAULT_COSTS, ReplayFigures, ReplayTotals, TraceReplay
from lookahead_edit.replay_tokens import TokenTrace, tokenize_trace
from lookahead_edit.sequence import EndTokenRule, Sequence
from lookahead_edit.speculation import check_speculation, make_drafter, make_policy
from lookahead_edit.targets.recorded import RecordedTarget
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.traces import Trace
from lookahead_edit.types import ContextFile, Draft, Drafter, IntArray, InvalidInput, Policy, Round, Source, Tokenizer

__all__ = [
    "COST_AWARE_POLICIES",
    "DEFAULT_COSTS",
    "DrafterFactory",
    "PolicyFactory",
    "Replay",
    "ReplayFigures",
    "ReplayTotals",
    "TokenTrace",
    "TraceReplay",
    "drafter_factory",
    "policy_factory",
    "replay_trace",
    "replay_traces",
    "tokenize_trace",
    "warm_up",
]

_FILE = "".join(f"def total_{number}(items):\n    total = sum(items)\n    return total\n\n\n" for number in range(4))
# With a rename, other indentation, something new and another file: all that the drafters have kernels for.
WARM_UP = Trace(
    id="warm-up",
    prompt=f"Rename total to price.\n{_FILE}",
    output=_FILE.replace("total", "price").replace("    price = sum", "        price = 1 + sum", 1) + _FILE[:40],
    source=_FILE,
    context=(ContextFile("other.py", _FILE.replace("items", "rows")),),
)

# Policies whose cuts depend on the cost of a token; the others are replayed once for all costs.
COST_AWARE_POLICIES = frozenset({"cost"})

DrafterFactory: TypeAlias = Callable[[TokenTrace], Drafter]
PolicyFactory: TypeAlias = Callable[[float], Policy]  # from the cost of a token, c


def drafter_factory(config: SpeculationConfig, tokenizer: Tokenizer | None = None) -> DrafterFactory:
    """Fresh drafters of the name in `config`; InvalidInput for an unknown one."""
    check_speculation(config)
    return lambda trace: make_drafter(config, tokenizer)


def policy_factory(config: SpeculationConfig) -> PolicyFactory:
    """Fresh policies of the name in `config`, which know the cost; InvalidInput for an unknown name."""
    check_speculation(config)
    return lambda cost: make_policy(config, CostCurve.linear(cost))


def replay_trace(trace: TokenTrace, drafter: Drafter, policy: Policy) -> TraceReplay:
    """Runs one trace to its end.

    Example: with an output of three tokens and a drafter that never drafts, there are four rounds of one token each,
    the end token's included.
    """
    timed = _TimedDrafter(drafter)
    target = RecordedTarget(lambda prompt: trace.output, end_token_id=trace.end_token_id)
    sequence = Sequence(
        trace.prompt,
        drafter=timed,
        sampling=SamplingConfig(),
        max_tokens=len(trace.output) + policy.max_draft_tokens + 2,  # never what cuts a draft short
        max_context_tokens=target.max_context_tokens,
        stop_rules=[EndTokenRule(frozenset({trace.end_token_id}))],
        sources=trace.sources,
    )
    metrics = SpeculationMetrics(num_prompt_tokens=len(trace.prompt))
    rounds: list[Round] = []
    for finished in Engine(target, policy).generate(sequence):
        metrics.add(finished)
        metrics.max_index_bytes = max(metrics.max_index_bytes, drafter.num_index_bytes)
        rounds.append(finished)
    assert len(sequence.output) == len(trace.output) + 1
    return TraceReplay(trace, tuple(rounds), metrics, timed.start_seconds, timed.commit_seconds)


def warm_up(drafters: Iterable[DrafterFactory], policy: Policy, tokenizer: Tokenizer | None = None) -> None:
    """Replays an edit that doesn't count, so that kernels are compiled, or loaded, before anything is timed.

    Takes a minute the very first time, a second in a new process. The policy must not learn from one trace for others.
    """
    trace = tokenize_trace(WARM_UP, tokenizer or ByteTokenizer())
    for make_drafter_for in drafters:
        replay_trace(trace, make_drafter_for(trace), policy)


class Replay:
    """Replays traces with every drafter at every cost, one trace at a time.

    Args:
        drafters: name to factory; a factory sees the trace, so that an oracle can be replayed too.
        costs: of a further token in a round, in forward passes, each at least 0.
        make_policy: asked anew for every trace, drafter and cost; return one object to let it learn across traces.
        is_cost_aware: whether the policy's cuts depend on the cost; if not, a trace is replayed once for all costs.

    Example::

        replay = Replay({"suffix": drafter_factory(config)}, [0.01], policy_factory(config), is_cost_aware=False)
        for _, trace in read_traces(file):
            replay.add(tokenize_trace(trace, tokenizer))
        replay.figures()[0].modelled_speedup
    """

    def __init__(
        self,
        drafters: Mapping[str, DrafterFactory],
        costs: SequenceOf[float],
        make_policy: PolicyFactory,
        *,
        is_cost_aware: bool = True,
    ) -> None:
        if not drafters or not costs:
            raise InvalidInput(f"expected at least one drafter and one cost, got {list(drafters)} and {list(costs)}")
        for cost in costs:
            if not (math.isfinite(cost) and cost >= 0.0):
                raise InvalidInput(f"expected a cost to be a finite number of at least 0, got {cost!r}", param="cost")
        self.costs = tuple(costs)
        self.is_cost_aware = is_cost_aware
        self._drafters = dict(drafters)
        self._make_policy = make_policy
        self._replayed_costs = self.costs if is_cost_aware else self.costs[:1]
        self._totals = {(name, cost): ReplayTotals() for name in drafters for cost in self._replayed_costs}

    def add(self, trace: TokenTrace) -> dict[tuple[str, float], TraceReplay]:
        """Replays one trace; by drafter and cost, the first cost only where the policy doesn't depend on it."""
        replayed = {
            (name, cost): replay_trace(trace, self._drafters[name](trace), self._make_policy(cost))
            for name, cost in self._totals
        }
        for key, value in replayed.items():
            self._totals[key].add(value)
        return replayed

    def totals(self, drafter: str, cost: float) -> ReplayTotals:
        """The sums so far; `cost` is one of `costs`."""
        assert cost in self.costs
        return self._totals[drafter, cost if self.is_cost_aware else self.costs[0]]

    def figures(self) -> list[ReplayFigures]:
        """For each drafter and each cost, in the order given."""
        return [self.totals(name, cost).figures(name, cost) for name in self._drafters for cost in self.costs]


def replay_traces(
    traces: Iterable[TokenTrace],
    drafters: Mapping[str, DrafterFactory],
    costs: SequenceOf[float],
    make_policy: PolicyFactory,
    *,
    is_cost_aware: bool = True,
) -> list[ReplayFigures]:
    """All at once; arguments as in `Replay`."""
    replay = Replay(drafters, costs, make_policy, is_cost_aware=is_cost_aware)
    for trace in traces:
        replay.add(trace)
    return replay.figures()


class _TimedDrafter:
    """Passes everything on, and measures what a round's `draft_seconds` leave out."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self.start_seconds = 0.0
        self.commit_seconds = 0.0

    def start(self, prompt: IntArray, sources: SequenceOf[Source]) -> None:
        started = time.perf_counter()
        self._drafter.start(prompt, sources)
        self.start_seconds += time.perf_counter() - started

    def draft(self, max_draft_tokens: int) -> Draft:
        return self._drafter.draft(max_draft_tokens)

    def commit(self, tokens: IntArray, draft: Draft, num_accepted_tokens: int) -> None:
        started = time.perf_counter()
        self._drafter.commit(tokens, draft, num_accepted_tokens)
        self.commit_seconds += time.perf_counter() - started

    @property
    def num_index_bytes(self) -> int:
        return self._drafter.num_index_bytes
