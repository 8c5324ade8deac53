"""`lookahead-edit replay`: logged traffic, replayed with any drafter, and what it would be worth."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from io import BufferedReader
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lookahead_edit.cli_command import WITH_COMMAS
from lookahead_edit.cli_display import Display, counted
from lookahead_edit.cli_explain import print_explanation
from lookahead_edit.cli_explain_html import explanation_page
from lookahead_edit.cli_files import label_of, write_standard_output
from lookahead_edit.cli_options import SPECULATION, Quiet, require_text
from lookahead_edit.cli_plot import PLOT_SUFFIXES, plot_replay, require_matplotlib
from lookahead_edit.cli_replay_output import (
    HTML_SUFFIXES,
    PER_TRACE_SUFFIXES,
    check_output,
    per_trace_rows,
    print_table,
    write_file,
)
from lookahead_edit.cli_traces import MAKING_READY, BadLines, at_most, opened_traces, progress, token_traces
from lookahead_edit.config import MAX_COST_RATIO, SpeculationConfig
from lookahead_edit.replay_explain import Explanation
from lookahead_edit.replay_explain import explain as explain_replay
from lookahead_edit.replay_figures import DEFAULT_COSTS, TraceReplay
from lookahead_edit.text_json_lines import BadLine
from lookahead_edit.traces import read_traces
from lookahead_edit.types import InvalidInput, Tokenizer

if TYPE_CHECKING:
    from lookahead_edit.replay import Replay

REPLAY_EXAMPLES = """\b
Examples:
  lookahead-edit replay traces.jsonl
  lookahead-edit replay traces.jsonl.gz --tokenizer Qwen/Qwen2.5-7B --json
  lookahead-edit replay traces.jsonl --drafters ngram,suffix --plot gains.png
  lookahead-edit replay traces.jsonl --explain "#3" --html third-line.html
"""


def replay(
    traces: Annotated[str, typer.Argument(help="JSON lines, plain or gzip; - for standard input.", metavar="TRACES")],
    tokenizer: Annotated[
        str | None,
        typer.Option(
            "--tokenizer",
            help="Directory, tokenizer.json, GGUF file or hub id; the default model's if left out.",
            metavar="NAME",
        ),
    ] = None,
    # Their names are written out, as in `cli_options.py`.
    drafters: Annotated[
        str | None,
        typer.Option(
            "--drafters",
            help=f"Of edit, suffix, ngram and none, {WITH_COMMAS}; all if left out.",
            metavar="NAMES",
        ),
    ] = None,
    cost: Annotated[
        str,
        typer.Option(
            "--cost",
            help=f"What a further token in a round costs, in forward passes; several {WITH_COMMAS}.",
            metavar="NUMBERS",
        ),
    ] = ",".join(map(str, DEFAULT_COSTS)),
    policy: Annotated[
        str, typer.Option("--policy", help="How long drafts may be: cost, match_length or fixed.", metavar="NAME")
    ] = SPECULATION.policy,
    max_draft_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-draft-tokens",
            help="The most that a round may draft; 64 if left out, 512 with --policy cost.",
            metavar="N",
        ),
    ] = SPECULATION.max_draft_tokens,
    limit: Annotated[int | None, typer.Option("--limit", help="Stop after so many traces.", min=1, metavar="N")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document with all figures.")] = False,
    per_trace: Annotated[
        str | None, typer.Option("--per-trace", help="Write rows for each trace: .jsonl or .csv.", metavar="FILE")
    ] = None,
    plot: Annotated[
        str | None, typer.Option("--plot", help="Write a plot: .png, .svg or .pdf.", metavar="FILE")
    ] = None,
    explain: Annotated[
        str | None,
        typer.Option("--explain", help="Show where each token of a trace came from; #12 is line 12.", metavar="ID"),
    ] = None,
    html: Annotated[
        str | None, typer.Option("--html", help="Write what --explain shows as a web page.", metavar="FILE")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Replays logged traffic with any drafter, without a model.

    The speed-up is modelled: a round costs 1, and c for each of its tokens, drafted or the model's own; a plain token
    costs 1 + c. --explain takes the first of --drafters, edit if left out, and the first --cost.
    """
    display = Display(is_quiet=quiet, is_long=True)
    costs = _parse_costs(cost)
    config = SpeculationConfig(policy=policy, max_draft_tokens=max_draft_tokens)
    _check_outputs(traces, per_trace, plot, html, has_explain=explain is not None)
    with opened_traces(traces) as file:
        if explain is not None:
            _require_named(file, explain, limit)
        names = _drafter_names(config, drafters)
        loaded = open_tokenizer(tokenizer, display)
        replaying = _make_replay(config, names, costs, loaded, display)
        explained = _Explained(explain, names[0] if drafters is not None else SPECULATION.drafter, costs[0])
        bad_lines = BadLines(display)
        with per_trace_rows(per_trace) as write_rows, progress(file, display) as advance:
            for line_number, trace in token_traces(file, loaded, bad_lines, label=label_of(traces), limit=limit):
                replayed = replaying.add(trace)
                write_rows(line_number, replayed, None if replaying.is_cost_aware else costs)
                explained.keep(line_number, replayed)
                advance()
    figures = replaying.figures()
    heading = f"{counted(figures[0].traces, 'trace')}, {counted(figures[0].output_tokens, 'output token')}"
    setting = f"policy {policy}, at most {config.draft_limit} drafted tokens"
    explanation = explained.explanation(loaded)
    title = f"{explained.id}: {explained.drafter}, c = {explained.cost:g}, {setting}"
    if as_json:
        document = {
            "file": traces,
            "tokenizer": tokenizer or "default",
            "policy": policy,
            "max_draft_tokens": config.draft_limit,
            "bad_lines": bad_lines.num_lines,
            "results": [dataclasses.asdict(row) for row in figures],
        }
        if explain is not None:
            document["explanation"] = explained.document(explanation)
        write_standard_output(json.dumps(document, allow_nan=False) + "\n")
    else:
        print_table(figures, title=f"{heading}; {setting}", has_row_per_cost=replaying.is_cost_aware)
        if explanation is not None:
            print_explanation(explanation, title=title, cost=explained.cost)
    if plot is not None:
        plot_replay(replaying, names, plot, title=f"{heading}; {setting}")
    if html is not None and explanation is not None:
        write_file(html, explanation_page(explanation, title=title, cost=explained.cost))
    if explain is not None and explanation is None:
        raise _not_named(explain, figures[0].traces)


def open_tokenizer(name: str | None, display: Display) -> Tokenizer:
    """Loads the tokenizer alone, without its model."""
    if name is not None:
        require_text(name, "tokenizer")
    from lookahead_edit.targets.tokenizer_loading import load_tokenizer

    with display.live("loading the tokenizer"):
        return load_tokenizer(name)


def _parse_costs(text: str) -> tuple[float, ...]:
    costs: list[float] = []
    for part in text.split(","):
        try:
            cost = float(part)
        except ValueError:
            cost = math.nan
        if not 0.0 <= cost <= MAX_COST_RATIO:
            raise InvalidInput(
                f"expected --cost to be numbers from 0 to {MAX_COST_RATIO:g} with commas between, got {part.strip()!r}",
                param="cost",
            )
        costs.append(cost)
    return tuple(dict.fromkeys(costs))


def _check_outputs(
    traces: str, per_trace: str | None, plot: str | None, html: str | None, *, has_explain: bool
) -> None:
    if html is not None and not has_explain:
        raise InvalidInput("expected --explain together with --html, got --html alone", param="html")
    if per_trace is not None:
        check_output("--per-trace", per_trace, traces, PER_TRACE_SUFFIXES)
    if html is not None:
        check_output("--html", html, traces, HTML_SUFFIXES)
    if plot is not None:
        check_output("--plot", plot, traces, PLOT_SUFFIXES)
        require_matplotlib()


def _drafter_names(config: SpeculationConfig, drafters: str | None) -> list[str]:
    """Each once, in order; InvalidInput for an unknown drafter or policy."""
    from lookahead_edit.drafters import DRAFTERS
    from lookahead_edit.speculation import check_speculation

    names = list(DRAFTERS) if drafters is None else [name.strip() for name in drafters.split(",")]
    for name in names:
        check_speculation(dataclasses.replace(config, drafter=name))
    return list(dict.fromkeys(names))


def _make_replay(
    config: SpeculationConfig, names: list[str], costs: tuple[float, ...], tokenizer: Tokenizer, display: Display
) -> Replay:
    from lookahead_edit.replay import COST_AWARE_POLICIES, Replay, drafter_factory, policy_factory, warm_up

    factories = {name: drafter_factory(dataclasses.replace(config, drafter=name), tokenizer) for name in names}
    is_cost_aware = config.policy in COST_AWARE_POLICIES
    make_policy = policy_factory(config)
    with display.live(MAKING_READY):
        warm_up(factories.values(), make_policy(costs[0]), tokenizer)
    return Replay(factories, costs, make_policy, is_cost_aware=is_cost_aware)


def _require_named(file: BufferedReader, wanted: str, limit: int | None) -> None:
    """Raises InvalidInput for a trace that isn't there, before any is replayed; a pipe can only be read once."""
    if not file.seekable():
        return
    start, num_traces, is_there = file.tell(), 0, False

    def refuse_wanted(bad_line: BadLine) -> None:
        if wanted == f"#{bad_line.line_number}":
            raise InvalidInput(f"expected --explain to name a trace, but {bad_line}", param="explain")

    for line_number, trace in at_most(read_traces(file, refuse_wanted), limit):
        num_traces, is_there = num_traces + 1, wanted in _names_of(trace.id, line_number)
        if is_there:
            break
    if num_traces and not is_there:
        raise _not_named(wanted, num_traces)
    file.seek(start)


def _not_named(wanted: str, num_traces: int) -> InvalidInput:
    among = counted(num_traces, "trace")
    return InvalidInput(f"expected --explain to name a trace, got {wanted!r}, not among {among}", param="explain")


def _names_of(trace_id: str, line_number: int) -> tuple[str, str]:
    return trace_id, f"#{line_number}"


class _Explained:
    """Waits for the trace to be explained, named by its id or ``#`` and its line."""

    def __init__(self, wanted: str | None, drafter: str, cost: float) -> None:
        self.drafter, self.cost = drafter, cost
        self._wanted = wanted
        self._replayed: TraceReplay | None = None

    @property
    def id(self) -> str:
        return "" if self._replayed is None else self._replayed.trace.id

    def keep(self, line_number: int, replayed: Mapping[tuple[str, float], TraceReplay]) -> None:
        """Keeps the first that is wanted."""
        candidate = replayed[self.drafter, self.cost]
        if self._replayed is None and self._wanted in _names_of(candidate.trace.id, line_number):
            self._replayed = candidate

    def explanation(self, tokenizer: Tokenizer) -> Explanation | None:
        return None if self._replayed is None else explain_replay(self._replayed, tokenizer)

    def document(self, explanation: Explanation | None) -> dict[str, Any] | None:
        if explanation is None:
            return None
        return {"drafter": self.drafter, "cost": self.cost, **dataclasses.asdict(explanation)}
