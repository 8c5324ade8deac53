"""`lookahead-edit edit`: one file, one instruction."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lookahead_edit.cli_display import Display, comparison, counted, figures, show_diff, summary
from lookahead_edit.cli_files import (
    TextFile,
    read_text_file,
    replace_text_file,
    require_writable,
    write_standard_output,
)
from lookahead_edit.cli_interrupt import raise_if_interrupted
from lookahead_edit.cli_options import (
    SAMPLING,
    SPECULATION,
    Device,
    Drafter,
    DtypeOption,
    Json,
    MaxTokens,
    Model,
    NoSpeculation,
    Quiet,
    Seed,
    TargetKind,
    TargetOption,
    Temperature,
    configs,
    follow,
    open_editor,
    require_text,
)
from lookahead_edit.text_changes import unified_diff
from lookahead_edit.text_lines import parse_line_range
from lookahead_edit.types import InvalidInput

if TYPE_CHECKING:
    from lookahead_edit.editor import Editor, EditRequest, EditResult

EXIT_DIFFERENT = 1

EDIT_EXAMPLES = """\b
Examples:
  lookahead-edit edit shop.py -i "Rename total to price." --diff
  lookahead-edit edit shop.py -i "Add a docstring." --range 10:24 --write
  git show HEAD:a.py | lookahead-edit edit - -i "Remove the prints." > a.py

\b
What --diff prints names files from the current directory, for patch -p1;
files outside it from the root, for patch -p1 -d /
"""


def edit(
    file: Annotated[str, typer.Argument(help="The file to edit; - for standard input.", metavar="FILE")],
    instruction: Annotated[
        str | None, typer.Option("--instruction", "-i", help="What to change.", metavar="TEXT")
    ] = None,
    update: Annotated[
        str | None, typer.Option("--update", help="A file with a lazy snippet to merge.", metavar="FILE")
    ] = None,
    line_range: Annotated[
        str | None, typer.Option("--range", help="Rewrite only these lines, from 1.", metavar="FIRST:LAST")
    ] = None,
    diff: Annotated[bool, typer.Option("--diff", help="Print the diff instead of the edited text.")] = False,
    write: Annotated[bool, typer.Option("--write", "-w", help="Write the file in place.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Write in spite of warnings, as of code that was left out.")
    ] = False,
    as_json: Json = False,
    compare: Annotated[bool, typer.Option("--compare", help="Also decode plainly, and compare.")] = False,
    model: Model = None,
    no_speculation: NoSpeculation = False,
    max_tokens: MaxTokens = None,
    temperature: Temperature = SAMPLING.temperature,
    seed: Seed = SAMPLING.seed,
    drafter: Drafter = SPECULATION.drafter,
    dtype: DtypeOption = None,
    device: Device = None,
    target: TargetOption = TargetKind.DYNAMIC,
    quiet: Quiet = False,
) -> None:
    """Edits a file as an instruction says. Prints the edited text; the file itself only changes with --write."""
    display = Display(is_quiet=quiet, is_long=compare)
    if instruction is not None:
        require_text(instruction, "instruction")
    elif update is None:
        raise InvalidInput(
            "expected an instruction (-i TEXT) or a snippet to merge (--update FILE), got neither",
            param="instruction",
            code="missing_field",
        )
    source = read_text_file(file)
    snippet = None if update is None else read_text_file(update).text
    region = None if line_range is None else parse_line_range(line_range, source.text)
    if write:
        require_writable(source)
    sampling, speculation = configs(temperature, seed, drafter, no_speculation)
    from lookahead_edit.editor import EditRequest

    request = EditRequest(
        text=source.text,
        instruction=instruction,
        update=snippet,
        region=region,
        path=source.path,
        sampling=sampling,
        speculation=speculation,
        max_tokens=max_tokens,
    )
    editor = open_editor(model, dtype, device, display, target)
    editor.check(request)
    result = _run_edit(editor, request, display, "editing")
    plain: EditResult | None = None
    if compare:
        plainly = dataclasses.replace(speculation, enabled=False)
        plain = _run_edit(editor, dataclasses.replace(request, speculation=plainly), display, "decoding plainly")
    document = _json_of_edit(editor, source, result, plain) if as_json else ""
    is_refused = write and result.changed and bool(result.warnings) and not force and not result.truncated
    if not (is_refused and len(result.warnings) == 1):  # a single one is the reason that the refusal gives
        for warning in result.warnings:
            display.warn(warning)
    if result.truncated:
        write_standard_output(document)
        raise InvalidInput(_truncated(editor, result), param="max_tokens", code="truncated")
    if is_refused:
        raise _refusal(source, result)
    if write and result.changed:
        _write(source, result, display)
    if as_json:
        write_standard_output(document)
    elif diff:
        show_diff(_diff(source, result))
    elif not write:
        display.write_text(result.text)
        display.end_text(is_exact=True)
    if not result.changed:
        display.say(f"{source.label}: no change")
    display.say(summary(result.metrics))
    if plain is not None:
        is_identical = plain.text == result.text
        for line in comparison(result.metrics, plain.metrics, is_identical=is_identical):
            display.show(line)
        if not is_identical:
            raise typer.Exit(EXIT_DIFFERENT)


def _run_edit(editor: Editor, request: EditRequest, display: Display, label: str) -> EditResult:
    with display.live(label) as update:
        return follow(editor.stream(request), update=update)


def _refusal(source: TextFile, result: EditResult) -> InvalidInput:
    reason = f": {result.warnings[0]}" if len(result.warnings) == 1 else ", for the reasons above"
    return InvalidInput(f"{source.name} was not written{reason}; --force writes it all the same", code="placeholder")


def _write(source: TextFile, result: EditResult, display: Display) -> None:
    raise_if_interrupted()
    replace_text_file(source, result.text)
    display.say(f"{source.name}: written, {counted(len(result.edits()), 'change')}")


def _truncated(editor: Editor, result: EditResult) -> str:
    metrics = result.metrics
    cut = f"the answer was cut off after {counted(metrics.num_emitted_tokens, 'token')}, so nothing was written"
    max_context_tokens = editor.target.max_context_tokens
    if metrics.num_prompt_tokens + metrics.num_emitted_tokens >= max_context_tokens:
        return f"{cut}: the model's context of {max_context_tokens} tokens is full; edit a --range instead"
    return f"{cut}: leave out --max-tokens, or raise it, to {2 * metrics.num_emitted_tokens} at least"


def _diff(source: TextFile, result: EditResult) -> str:
    return unified_diff(result.before, result.text, source.diff_path)


def _json_of_edit(editor: Editor, source: TextFile, result: EditResult, plain: EditResult | None) -> str:
    """On "length" there are no edits and no diff: half a file must not look like a success."""
    document: dict[str, Any] = {
        "model": editor.model_name,
        "path": result.path,
        "text": result.text,
        "changed": result.changed,
        "finish_reason": result.finish_reason,
        "truncated": result.truncated,
        "edits": None if result.truncated else result.edits(),
        "diff": None if result.truncated else _diff(source, result),
        "warnings": list(result.warnings),
        "metrics": figures(result.metrics),
    }
    if plain is not None:
        document["plain"] = {"identical": plain.text == result.text, "metrics": figures(plain.metrics)}
    return json.dumps(document, allow_nan=False) + "\n"
