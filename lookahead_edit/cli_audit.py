"""`lookahead-edit audit`: do drafts change what a model answers here, and if so, is it rounding or a bug?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table

from lookahead_edit.cli_command import WITH_COMMAS
from lookahead_edit.cli_display import Display, rendered
from lookahead_edit.cli_files import write_standard_output
from lookahead_edit.cli_options import (
    SAMPLING,
    SPECULATION,
    Device,
    Dtype,
    DtypeOption,
    Model,
    Quiet,
    Seed,
    TargetKind,
    TargetOption,
    configs,
    open_editor,
)
from lookahead_edit.cli_traces import at_most, opened_traces
from lookahead_edit.traces import read_traces
from lookahead_edit.types import ContextLengthExceeded, InvalidInput

if TYPE_CHECKING:
    from lookahead_edit.audit import Report
    from lookahead_edit.audit_http import ServerReport
    from lookahead_edit.config import SamplingConfig
    from lookahead_edit.tasks import EditRequest, GenerateRequest

    Requests = Sequence[tuple[str, EditRequest | GenerateRequest]]

EXIT_BUG = 1
NUM_TOKENS = 128  # of each text
TABLE_WIDTH = 160

AUDIT_EXAMPLES = """\b
Examples:
  lookahead-edit audit
  lookahead-edit audit --dtype bfloat16 --target deterministic
  lookahead-edit audit traces.jsonl --limit 20 --drafters edit,suffix --json
  lookahead-edit audit --url http://localhost:8000
"""


def audit(
    traces: Annotated[
        str | None,
        typer.Argument(help="Prompts in lines as `replay` reads them; - for standard input. A few edits if left out."),
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", help="Audit a server that runs, over HTTP.", metavar="URL")
    ] = None,
    api_key: Annotated[str | None, typer.Option("--api-key", help="The server's.", metavar="KEY")] = None,
    drafters: Annotated[
        str,
        typer.Option(
            "--drafters",
            help=f"Of edit, suffix, ngram, none, right and wrong, {WITH_COMMAS}. A mix of all comes besides.",
            metavar="NAMES",
        ),
    ] = SPECULATION.drafter,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, help="Of each text.", metavar="N")] = NUM_TOKENS,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Prompts at most.", metavar="N")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    model: Model = None,
    dtype: DtypeOption = None,
    device: Device = None,
    target: TargetOption = TargetKind.DYNAMIC,
    temperature: Annotated[
        float, typer.Option("--temperature", help="With --url; without, the likeliest tokens are taken.", metavar="T")
    ] = SAMPLING.temperature,
    seed: Seed = SAMPLING.seed,
    quiet: Quiet = False,
) -> None:
    """Decodes with drafts and without, and tells ties from bugs.

    Compared are tokens and logits. Without drafts, the target is compared to the model itself, one token at a time.
    Logits that are off by no more than rounding makes of them are fine, and where two tokens are as likely to that many
    digits, either may be chosen: a tie. Anything else is a bug, and the exit status is 1. With --target deterministic,
    drafts must not change a bit.

    In float32 bugs show best; in bfloat16 it is seen how often ties are.
    """
    from lookahead_edit.audit import RIGHT, WRONG

    display = Display(is_quiet=quiet, is_long=True)
    names = [name.strip() for name in drafters.split(",") if name.strip()]
    if not names:
        raise InvalidInput("expected at least one drafter, got none", param="drafters")
    for name in names:
        scripted = name in (RIGHT, WRONG)
        if scripted and url is not None:
            raise InvalidInput(f"expected a drafter of the server's with --url, got {name}", param="drafters")
        sampling, _ = configs(temperature, seed, "none" if scripted else name, no_speculation=False)
    requests = _requests(traces, limit)
    if url is not None:
        if model is not None or target is not TargetKind.DYNAMIC or dtype is not None or device is not None:
            raise InvalidInput("expected no --model, --dtype, --device and --target with --url", param="url")
        if len(names) > 1:
            raise InvalidInput(f"expected one drafter with --url, got {', '.join(names)}", param="drafters")
        server = _audit_server(url, api_key, requests, names[0], max_tokens, sampling, display)
        _print(server.to_json(), as_json, _server_table(server))
        _conclude(server.verdict, server.is_bug, display)
        return
    if not sampling.is_greedy:
        raise InvalidInput("expected --temperature with --url only: logits are compared greedily", param="temperature")
    report = _audit_model(requests, names, max_tokens, model, dtype, device, target, display)
    _print(report.to_json(), as_json, _table(report))
    _conclude(report.verdict, report.is_bug, display)


def _requests(traces: str | None, limit: int | None) -> Requests:
    from lookahead_edit.audit_samples import SAMPLES
    from lookahead_edit.tasks import GenerateRequest

    if traces is None:
        return [(str(sample.path), sample) for sample in SAMPLES[:limit]]
    with opened_traces(traces) as file:
        requests = [
            (trace.id, GenerateRequest(prompt=trace.prompt, prediction=trace.source))
            for _, trace in at_most(read_traces(file), limit)
        ]
    if not requests:
        raise InvalidInput("expected at least one trace, got none", param="traces")
    return requests


def _audit_server(
    url: str,
    api_key: str | None,
    requests: Requests,
    drafter: str,
    max_tokens: int,
    sampling: SamplingConfig,
    display: Display,
) -> ServerReport:
    from lookahead_edit.audit_http import audit_server, poster

    return audit_server(
        poster(url, api_key),
        requests,
        url=url,
        drafter=drafter,
        max_tokens=max_tokens,
        sampling=sampling,
        on_progress=lambda report: display.say(f"{report.num_texts} of {len(requests)} prompts: {report.verdict}"),
    )


def _audit_model(
    requests: Requests,
    drafters: Sequence[str],
    max_tokens: int,
    model_name: str | None,
    dtype: Dtype | None,
    device: str | None,
    target: TargetKind,
    display: Display,
) -> Report:
    editor = open_editor(model_name, dtype, device, display, target)
    from lookahead_edit.config import TargetConfig
    from lookahead_edit.targets.auditing import AuditPrompt, audit
    from lookahead_edit.targets.calibration import device_name
    from lookahead_edit.targets.hf import HfTarget
    from lookahead_edit.targets.making import make_target

    assert isinstance(editor.target, HfTarget)
    model = editor.target.model
    config = TargetConfig(kind=target.value)
    prompts = []
    for name, request in requests:
        prompt = editor.prompt(request)
        if len(prompt.tokens) + max_tokens > editor.target.max_context_tokens:
            raise ContextLengthExceeded(len(prompt.tokens), editor.target.max_context_tokens, max_tokens)
        prompts.append(AuditPrompt(name, prompt.tokens, prompt.sources))
    reports = audit(
        model,
        lambda open_sampler: make_target(model, config, open_sampler=open_sampler),
        prompts,
        drafters=drafters,
        tokenizer=editor.tokenizer,
        max_tokens=max_tokens,
        end_token_ids=editor.tokenizer.eos_token_ids,
        is_deterministic=target is TargetKind.DETERMINISTIC,
        facts={
            "model": editor.model_name,
            "dtype": str(model.dtype).removeprefix("torch."),
            "device": device_name(model.device),
            "target": target.value,
        },
    )
    for name, _ in requests:
        with display.live(f"auditing {name}, up to {max_tokens} tokens in {len(drafters) + 3} ways"):
            report = next(reports)
        display.say(f"{report.num_prompts} of {len(prompts)} prompts: {report.verdict}")
    return report


def _table(report: Report) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("")
    for header in ("tokens", "/round", "accepted", "flips", "ties", "largest difference", "verdict"):
        table.add_column(header, justify="left" if header == "verdict" else "right")
    noise = report.noise
    table.add_row("rounding alone", "", "", "", str(noise.num_flips), "", f"{noise.max_difference:.2g}", "")
    for compared in report.comparisons:
        drafted = compared.num_draft_tokens
        table.add_row(
            compared.name,
            str(compared.num_tokens),
            f"{compared.num_tokens / max(1, compared.num_rounds):.1f}",
            f"{compared.num_accepted_tokens / drafted:.0%}" if drafted else "-",
            str(len(compared.flips)),
            str(compared.num_ties),
            f"{compared.max_difference:.2g}",
            compared.verdict,
        )
    return table


def _server_table(report: ServerReport) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for header in ("texts", "tokens", "drafted", "accepted", "texts that differ"):
        table.add_column(header, justify="right")
    counts = (report.num_texts, report.num_tokens, report.num_draft_tokens, report.num_accepted_tokens)
    table.add_row(*map(str, counts), str(len(report.differences)))
    return table


def _print(document: dict[str, Any], as_json: bool, table: Table) -> None:
    if as_json:
        write_standard_output(json.dumps(document, allow_nan=False) + "\n")
        return
    write_standard_output(rendered(table, width=TABLE_WIDTH))


def _conclude(verdict: str, is_bug: bool, display: Display) -> None:
    display.show(verdict)
    if is_bug:
        raise typer.Exit(EXIT_BUG)
