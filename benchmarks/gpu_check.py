"""One check of one large GPU, at most 6 minutes, without network or weights: exactness, what passes cost, edits.

    python -m benchmarks.gpu_check --out results              # on a GPU
    python -m benchmarks.gpu_check --out results --rehearse   # the same on a CPU in a tiny shape, to see that it runs

What its figures mean stands in benchmarks/README.md. It writes `gpu_check.json` after every stage, so that a run that
is cut off leaves what it had; a stage that fails is named there, and the others go on. What needs no compiler comes
first, what has to be compiled last. The last line of its output is the whole document.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.arguments import duration, require_folder
from benchmarks.environment import environment, load_average
from benchmarks.gpu_stages import (
    COMPILED_CASES,
    EXACTNESS_CASES,
    EditReplay,
    ExactnessCase,
    PassCosts,
    check_exactness,
    measure_passes,
    spread,
)
from benchmarks.shapes import SEVEN_B, SMALL, TINY, Shape, random_model
from lookahead_edit.config import TargetConfig
from lookahead_edit.replay_tokens import TokenTrace, tokenize_trace
from lookahead_edit.targets.default_model import one_line
from lookahead_edit.targets.making import make_target
from lookahead_edit.targets.roofline import measure_roofline
from lookahead_edit.targets.static import StaticTarget
from lookahead_edit.targets.tokenizer_loading import load_tokenizer
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.traces import read_traces
from lookahead_edit.types import LookaheadEditError, Tokenizer

TRACES = Path(__file__).parent.parent / "corpora" / "edits.jsonl"
MAX_SECONDS = 360.0
RESERVED_SECONDS = 30.0  # of it: imports, and what is under way when time is up
# What has to be left for what compiles a large model, and a small one.
COMPILING_SECONDS, COMPILING_SMALL_SECONDS = 110.0, 40.0
MIN_TRACES = 8  # further ones leave time for what comes after them
# What the project wants to show on a large GPU.
MIN_TIMES_PLAIN, MAX_OUTSIDE_FORWARD, MIN_FRACTION = 8.0, 0.10, 0.60


@dataclass(frozen=True)
class Plan:
    """Sizes of a run."""

    device: str
    dtype: torch.dtype
    exactness_shape: Shape
    exactness_cases: tuple[ExactnessCase, ...]
    compiled_cases: tuple[ExactnessCase, ...]
    exactness_prompts: tuple[int, ...]
    num_exactness_tokens: int
    shape: Shape
    targets: tuple[TargetConfig, ...]  # edits are replayed on the last one that there was time for
    context_lengths: tuple[int, ...]
    num_repeats: int
    num_traces: int
    max_trace_tokens: int  # prompt and output


FULL = Plan(
    device="cuda",
    dtype=torch.bfloat16,
    exactness_shape=SMALL,
    exactness_cases=EXACTNESS_CASES,
    compiled_cases=COMPILED_CASES,
    exactness_prompts=(40, 1000),
    num_exactness_tokens=150,
    shape=SEVEN_B,
    targets=(TargetConfig(kind="static", compiles=False), TargetConfig(kind="static")),
    context_lengths=(2048, 16_384),
    num_repeats=15,
    num_traces=24,
    max_trace_tokens=16_384,
)
REHEARSAL = Plan(
    device="cpu",
    dtype=torch.float32,
    exactness_shape=TINY,
    exactness_cases=EXACTNESS_CASES[1:3],
    compiled_cases=COMPILED_CASES[1:],  # which a CPU doesn't compile unless it is told to
    exactness_prompts=(20,),
    num_exactness_tokens=16,
    shape=TINY,
    targets=(TargetConfig(kind="static", widths=(1, 8, 32)),),
    context_lengths=(64, 600),
    num_repeats=2,
    num_traces=1,
    max_trace_tokens=1600,  # which are bytes there
)


class Check:
    """Runs the stages, keeps what they found, and writes it down after each."""

    def __init__(self, plan: Plan, folder: Path, max_seconds: float) -> None:
        self.plan = plan
        self.started = time.perf_counter()
        self._deadline = self.started + max_seconds - RESERVED_SECONDS
        self._path = folder / "gpu_check.json"
        self.document: dict[str, Any] = {
            "benchmark": "gpu_check",
            "rehearsal": plan.device == "cpu",
            "shape": vars(plan.shape),
            "dtype": str(plan.dtype).removeprefix("torch."),
            "environment": environment() | {"cuda": torch.version.cuda, "load_before": load_average()},
            "exactness": [],
            "passes": [],
            "stages": {},
            "warnings": [],
            "errors": [],
        }

    def has_time(self, seconds: float = 0.0) -> bool:
        """Whether so much is left."""
        return time.perf_counter() + seconds <= self._deadline

    def run(self, traces: Sequence[TokenTrace], tokenizer: Tokenizer) -> None:
        """All stages."""
        with warnings_kept(self.document["warnings"]):
            self.check_exactness(self.plan.exactness_cases)
            self.stage("exactness")
            self.attempt("passes and edits", self.measure_and_replay, traces, tokenizer)
            self.check_exactness(self.plan.compiled_cases, COMPILING_SMALL_SECONDS if self.is_on_gpu else 0.0)
            self.stage("exactness of compiled passes")
            self.judge()
        self.write()

    @property
    def is_on_gpu(self) -> bool:
        return self.plan.device == "cuda"

    def attempt(self, name: str, run: Callable[..., None], *arguments: Any) -> None:
        """What fails is written down, and costs the other stages nothing."""
        try:
            run(*arguments)
        except Exception as error:
            traceback.print_exc()
            self.document["errors"].append({"stage": name, "error": f"{type(error).__name__}: {one_line(error)}"})

    def check_exactness(self, cases: Sequence[ExactnessCase], seconds: float = 0.0) -> None:
        """Every case, while so much time is left."""
        for case in cases:
            if self.has_time(seconds):
                self.attempt(f"exactness, {case.name}", self._check_exactness, case)

    def _check_exactness(self, case: ExactnessCase) -> None:
        report = check_exactness(
            case,
            self.plan.exactness_shape,
            device=self.plan.device,
            num_prompt_tokens=self.plan.exactness_prompts,
            num_tokens=self.plan.num_exactness_tokens,
        )
        self.document["exactness"].append(report)
        tell(f"exactness, {case.name}: {report['verdict']} ({report['seconds']:.0f} s)")

    def measure_and_replay(self, traces: Sequence[TokenTrace], tokenizer: Tokenizer) -> None:
        """What passes cost on each target, one token eagerly, then the edits."""
        plan = self.plan
        if not self.has_time():
            return
        model = random_model(plan.shape, device=plan.device, dtype=plan.dtype)
        measured: list[tuple[TargetConfig, PassCosts]] = []
        for config in plan.targets:
            compiles = self.is_on_gpu and config.compiles is not False
            if self.has_time(COMPILING_SECONDS if compiles else 0.0):
                self.attempt("passes", self._measure, model, config, measured)
        self.attempt("eager passes", self._measure_eager, model)
        self.stage("passes")
        if measured:
            config, costs = measured[-1]
            self.attempt("edits", self._replay, model, config, costs, traces, tokenizer)
            self.stage("edits")

    def _measure(self, model: Any, config: TargetConfig, into: list[tuple[TargetConfig, PassCosts]]) -> None:
        """Adds what passes cost after the first context, which is what drafts go by."""
        target = make_target(model, config)
        assert isinstance(target, StaticTarget)
        for num_context_tokens in self.plan.context_lengths:
            is_first = num_context_tokens == self.plan.context_lengths[0]
            if not is_first and not self.has_time():
                break
            measured = measure_passes(target, num_context_tokens, config.widths, self.plan.num_repeats)
            if is_first:
                into.append((config, measured))
            # What they turned out to be: where compiling or recording fails, passes go on without.
            ways = {"compiled": target.is_compiled, "recorded": target.is_recorded}
            found = ways | measured.to_json(measure_roofline(model, num_context_tokens))
            self.document["passes"].append(found)
            one = found["passes"][0]
            how = ", ".join(name for name, is_so in ways.items() if is_so) or "eager"
            tell(
                f"{how}, after {num_context_tokens} tokens: one more {one['call_ms']:.2f} ms, "
                f"{one['fraction_of_roofline']:.0%} of the roofline"
            )
            self.write()

    def _measure_eager(self, model: Any) -> None:
        plan = self.plan
        costs = measure_passes(make_target(model, TargetConfig()), plan.context_lengths[0], (1,), plan.num_repeats)
        self.document["eager_call_ms"] = 1000.0 * costs.call_seconds[1]

    def _replay(
        self, model: Any, config: TargetConfig, costs: PassCosts, traces: Sequence[TokenTrace], tokenizer: Tokenizer
    ) -> None:
        replay = EditReplay(
            lambda open_sampler: make_target(model, config, open_sampler=open_sampler),
            tokenizer,
            costs.curve(),
            measure_roofline(model, costs.num_context_tokens),
        )
        replay.warm_up(max(len(trace.prompt) + len(trace.output) for trace in traces))
        seconds_after = COMPILING_SMALL_SECONDS * len(self.plan.compiled_cases) if self.is_on_gpu else 0.0
        for number, trace in enumerate(traces):
            if not self.has_time(0.0 if number < MIN_TRACES else seconds_after):
                break
            replay.add(trace)
        if replay.num_traces:
            self.document["traces"], self.document["edits"] = replay.num_traces, replay.to_json()

    def stage(self, name: str) -> None:
        """Notes when a stage was over."""
        self.document["stages"][name] = round(time.perf_counter() - self.started, 1)
        self.write()

    def write(self) -> None:
        """What there is so far."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(self.document, indent=1) + "\n", encoding="utf-8")

    def judge(self) -> None:
        """Whether the goals are met, None where that wasn't measured; a rehearsal judges nothing but exactness."""
        document = self.document
        reports, edit = document["exactness"], document.get("edits", {}).get("edit")
        is_all = len(reports) == len(self.plan.exactness_cases) + len(self.plan.compiled_cases)
        is_exact = not any(report["bug"] for report in reports)
        goals: dict[str, bool | None] = {"exact": is_exact if is_all or not is_exact else None}
        if not document["rehearsal"]:
            times = None if edit is None else edit["times_plain"] >= MIN_TIMES_PLAIN
            goals[f"edits at least {MIN_TIMES_PLAIN:g} times plain"] = times
            outside = None if edit is None else edit["outside_forward"] <= MAX_OUTSIDE_FORWARD
            goals[f"at most {MAX_OUTSIDE_FORWARD:.0%} of a round outside the forward"] = outside
            shortest = self.plan.context_lengths[0]
            after_shortest = [found for found in document["passes"] if found["context_tokens"] == shortest]
            one = after_shortest[-1]["passes"][0] if after_shortest else None
            reached = None if one is None else one["fraction_of_roofline"] >= MIN_FRACTION
            goals[f"width 1 at least {MIN_FRACTION:.0%} of the roofline"] = reached
        document["goals"] = goals
        document["environment"]["load_after"] = load_average()


@contextmanager
def warnings_kept(lines: list[str]) -> Iterator[None]:
    """Adds what the package warns of, such as passes that are not compiled, to the lines."""
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("lookahead_edit")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def tell(line: str) -> None:
    """Progress, on standard error."""
    print(line, file=sys.stderr, flush=True)


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="gets gpu_check.json")
    parser.add_argument("--rehearse", action="store_true", help="a tiny shape on the CPU: do all stages run?")
    parser.add_argument("--tokenizer", metavar="NAME", help="a directory or file; the default model's by default")
    parser.add_argument("--max-seconds", type=duration, default=MAX_SECONDS, help="what has begun is finished")
    parser.add_argument("--no-compile", action="store_true", help="record passes without compiling them")
    return parser.parse_args(arguments)


def load_traces(plan: Plan, tokenizer: Tokenizer) -> list[TokenTrace]:
    """Some of the shipped edits, of all kinds, as tokens."""
    with TRACES.open("rb") as file:
        traces = [tokenize_trace(trace, tokenizer) for _, trace in read_traces(file)]
    fitting = [trace for trace in traces if len(trace.prompt) + len(trace.output) <= plan.max_trace_tokens]
    return list(spread(fitting, plan.num_traces))


def main(arguments: list[str] | None = None) -> int:
    """Runs all stages; 1 where a text was not exact, or a goal was missed."""
    options = parse_arguments(arguments)
    if not options.rehearse and not torch.cuda.is_available():
        tell("error: expected a CUDA device, got none; --rehearse runs on a CPU")
        return 2
    plan = REHEARSAL if options.rehearse else FULL
    if options.no_compile:
        plan = replace(plan, targets=plan.targets[:1], compiled_cases=())
    try:
        tokenizer: Tokenizer = ByteTokenizer() if options.rehearse else load_tokenizer(options.tokenizer)
    except LookaheadEditError as error:
        tell(f"error: {error}; --tokenizer takes a directory with a tokenizer.json")
        return 2
    require_folder(options.out)
    check = Check(plan, options.out, options.max_seconds)
    check.run(load_traces(plan, tokenizer), tokenizer)
    print(json.dumps(check.document))
    return 0 if all(check.document["goals"].values()) and not check.document["errors"] else 1


if __name__ == "__main__":
    sys.exit(main())
