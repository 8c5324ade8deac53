"""One check of one large GPU, at most 6 minutes, without network or weights: exactness, what passes cost, edits.

    python -m benchmarks.gpu_check --out results          # on a GPU
    python -m benchmarks.gpu_check --out results --rehearse   # the same on a CPU in a tiny shape, to see that it runs

What its figures mean stands in benchmarks/README.md. It writes `gpu_check.json` after every stage, so that a run that
is cut off leaves what it had; the last line of its output is the whole document.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.environment import environment, load_average
from benchmarks.gpu_stages import (
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
from lookahead_edit.targets.making import make_target
from lookahead_edit.targets.roofline import measure_roofline
from lookahead_edit.targets.tokenizer_loading import load_tokenizer
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.traces import read_traces
from lookahead_edit.types import Tokenizer

TRACES = Path(__file__).parent.parent / "corpora" / "edits.jsonl"
MAX_SECONDS = 360.0
RESERVED_SECONDS = 20.0  # of it for what is under way when time is up
# What the project wants to show on a large GPU.
MIN_TIMES_PLAIN, MAX_OUTSIDE_FORWARD, MIN_FRACTION = 8.0, 0.10, 0.60


@dataclass(frozen=True)
class Plan:
    """Sizes of a run."""

    device: str
    dtype: torch.dtype
    exactness_shape: Shape
    exactness_cases: tuple[ExactnessCase, ...]
    exactness_prompts: tuple[int, ...]
    num_exactness_tokens: int
    shape: Shape
    target: TargetConfig
    context_lengths: tuple[int, ...]
    num_repeats: int
    num_traces: int
    max_trace_tokens: int  # prompt and output


FULL = Plan(
    device="cuda",
    dtype=torch.bfloat16,
    exactness_shape=SMALL,
    exactness_cases=EXACTNESS_CASES,
    exactness_prompts=(40, 1000),
    num_exactness_tokens=150,
    shape=SEVEN_B,
    target=TargetConfig(kind="static"),
    context_lengths=(2048, 16_384),
    num_repeats=15,
    num_traces=24,
    max_trace_tokens=16_384,
)
REHEARSAL = Plan(
    device="cpu",
    dtype=torch.float32,
    exactness_shape=TINY,
    exactness_cases=EXACTNESS_CASES[1:3] + EXACTNESS_CASES[5:],
    exactness_prompts=(20,),
    num_exactness_tokens=16,
    shape=TINY,
    target=TargetConfig(kind="static", widths=(1, 8, 32)),
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
            "environment": environment() | {"load_before": load_average()},
            "exactness": [],
            "passes": [],
            "stages": {},
        }

    @property
    def is_out_of_time(self) -> bool:
        return time.perf_counter() > self._deadline

    def check_exactness(self) -> None:
        """Every case, while there is time."""
        for case in self.plan.exactness_cases:
            if self.is_out_of_time:
                return
            report = check_exactness(
                case,
                self.plan.exactness_shape,
                device=self.plan.device,
                num_prompt_tokens=self.plan.exactness_prompts,
                num_tokens=self.plan.num_exactness_tokens,
            )
            self.document["exactness"].append(report)
            tell(f"exactness, {case.name}: {report['verdict']} ({report['seconds']:.0f} s)")

    def measure_and_replay(self, traces: list[TokenTrace], tokenizer: Tokenizer) -> None:
        """What passes cost after each context, one token eagerly, then the edits."""
        plan = self.plan
        model = random_model(plan.shape, device=plan.device, dtype=plan.dtype)
        target = make_target(model, plan.target)
        costs: list[PassCosts] = []
        for num_context_tokens in plan.context_lengths:
            if self.is_out_of_time:
                break
            measured = measure_passes(target, num_context_tokens, plan.target.widths, plan.num_repeats)
            costs.append(measured)
            found = measured.to_json(measure_roofline(model, num_context_tokens))
            self.document["passes"].append(found)
            one = found["passes"][0]
            tell(
                f"after {num_context_tokens} tokens: one more {one['call_ms']:.2f} ms, "
                f"{one['fraction_of_roofline']:.0%} of the roofline"
            )
            self.write()
        eager = make_target(model, TargetConfig())
        self.document["eager_call_ms"] = (
            1000.0 * measure_passes(eager, plan.context_lengths[0], (1,), plan.num_repeats).call_seconds[1]
        )
        self.stage("passes")
        replay = EditReplay(
            lambda open_sampler: make_target(model, plan.target, open_sampler=open_sampler),
            tokenizer,
            costs[0].curve(),
            measure_roofline(model, plan.context_lengths[0]),
        )
        replay.warm_up(max(len(trace.prompt) + len(trace.output) for trace in traces))
        for trace in traces:
            if self.is_out_of_time:
                break
            replay.add(trace)
        if replay.num_traces:
            self.document["traces"], self.document["edits"] = replay.num_traces, replay.to_json()
        self.stage("edits")

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
        goals: dict[str, bool | None] = {"exact": not any(report["bug"] for report in reports) if reports else None}
        if not document["rehearsal"]:
            times = None if edit is None else edit["times_plain"] >= MIN_TIMES_PLAIN
            goals[f"edits at least {MIN_TIMES_PLAIN:g} times plain"] = times
            outside = None if edit is None else edit["outside_forward"] <= MAX_OUTSIDE_FORWARD
            goals[f"at most {MAX_OUTSIDE_FORWARD:.0%} of a round outside the forward"] = outside
            narrowest = document["passes"][0]["passes"][0] if document["passes"] else None
            reached = None if narrowest is None else narrowest["fraction_of_roofline"] >= MIN_FRACTION
            goals[f"width 1 at least {MIN_FRACTION:.0%} of the roofline"] = reached
        document["goals"] = goals
        document["environment"]["load_after"] = load_average()


def tell(line: str) -> None:
    """Progress, on standard error."""
    print(line, file=sys.stderr, flush=True)


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="gets gpu_check.json")
    parser.add_argument("--rehearse", action="store_true", help="a tiny shape on the CPU: do all stages run?")
    parser.add_argument("--tokenizer", metavar="NAME", help="a directory or file; the default model's by default")
    parser.add_argument("--max-seconds", type=float, default=MAX_SECONDS, help="what is begun then is finished")
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
        plan = without_compiling(plan)
    check = Check(plan, options.out, options.max_seconds)
    tokenizer: Tokenizer = ByteTokenizer() if options.rehearse else load_tokenizer(options.tokenizer)
    traces = load_traces(plan, tokenizer)
    check.check_exactness()
    check.stage("exactness")
    check.measure_and_replay(traces, tokenizer)
    check.judge()
    check.write()
    print(json.dumps(check.document))
    return 0 if all(check.document["goals"].values()) else 1


def without_compiling(plan: Plan) -> Plan:
    """The same plan with passes that are only recorded."""
    return replace(
        plan,
        target=replace(plan.target, compiles=False),
        exactness_cases=tuple(
            replace(case, target=replace(case.target, compiles=False)) for case in plan.exactness_cases
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
