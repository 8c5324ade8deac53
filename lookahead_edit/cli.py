"""The command line: `lookahead-edit edit`, `generate`, `replay`, `advise`, `calibrate`, `audit` and `serve`.

What can be checked without a model is checked first; torch and transformers are imported when a model is loaded.
Standard output carries the result and nothing else, figures and messages go to standard error. Exit status: 0 done,
1 the comparison found a difference, 2 the request can't be served (one line says why), 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from lookahead_edit import __version__
from lookahead_edit.cli_advise import ADVISE_EXAMPLES, advise
from lookahead_edit.cli_audit import AUDIT_EXAMPLES, audit
from lookahead_edit.cli_calibrate import CALIBRATE_EXAMPLES, calibrate
from lookahead_edit.cli_command import Command
from lookahead_edit.cli_corpus import corpus_app
from lookahead_edit.cli_display import Display, figures, summary
from lookahead_edit.cli_edit import EDIT_EXAMPLES, edit
from lookahead_edit.cli_files import STDIN, abandon_standard_output, read_text_file, reason_of, write_standard_output
from lookahead_edit.cli_interrupt import EXIT_INTERRUPTED, ending, remembering_interrupts, was_interrupted
from lookahead_edit.cli_options import (
    EXIT_FAILED,
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
    require_command,
    require_text,
)
from lookahead_edit.cli_replay import REPLAY_EXAMPLES, replay
from lookahead_edit.cli_serve import SERVE_EXAMPLES, serve
from lookahead_edit.cli_streams import fill_closed_streams
from lookahead_edit.failures import is_out_of_memory
from lookahead_edit.types import InvalidInput, LookaheadEditError

NO_KERNEL_CACHE = "cannot cache function"  # how numba says it, when kernels are imported
# Click fills paragraphs, but leaves those that begin with this character as they are.
GENERATE_EXAMPLES = """\b
Examples:
  lookahead-edit generate "Write a haiku about tests." --chat
  cat prompt.txt | lookahead-edit generate --max-tokens 200
"""


# typer carries its own copy of click in some releases: this is ClickException, whichever it is.
USAGE_ERROR: Any = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="lookahead-edit",
    help="Language models rewrite files several times faster: drafts copied from the file, verified exactly.",
    add_completion=False,
    pretty_exceptions_enable=False,
    # Boxes leave no room for the text on 80 columns.
    rich_markup_mode=None,
)

app.command(cls=Command, epilog=EDIT_EXAMPLES)(edit)
app.command(cls=Command, epilog=REPLAY_EXAMPLES)(replay)
app.command(cls=Command, epilog=ADVISE_EXAMPLES)(advise)
app.command(cls=Command, epilog=CALIBRATE_EXAMPLES)(calibrate)
app.command(cls=Command, epilog=AUDIT_EXAMPLES)(audit)
app.command(cls=Command, epilog=SERVE_EXAMPLES)(serve)
app.add_typer(corpus_app)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    if version:
        write_standard_output(f"lookahead-edit {__version__}\n")
        raise typer.Exit
    require_command(context)


@app.command(cls=Command, epilog=GENERATE_EXAMPLES)
def generate(
    prompt: Annotated[
        str | None, typer.Argument(help="The prompt; standard input if left out or -.", metavar="PROMPT")
    ] = None,
    prompt_file: Annotated[
        str | None, typer.Option("--file", "-f", help="Read the prompt from a file.", metavar="FILE")
    ] = None,
    prediction: Annotated[
        str | None, typer.Option("--prediction", help="A file much like what will be generated.", metavar="FILE")
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="The prompt is a message, not text to go on with.")] = False,
    as_json: Json = False,
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
    """Generates text from a prompt and prints it as it comes.

    The last line is ended, unless the text ends it; --json has the text as it is. Without --max-tokens it may fill
    the model's context.
    """
    display = Display(is_quiet=quiet)
    if prompt is not None and prompt_file is not None:
        raise InvalidInput("expected a prompt or --file, got both", param="prompt")
    if prompt is None and prompt_file is None and sys.stdin.isatty():
        raise InvalidInput(
            "expected a prompt, as an argument, with --file or on standard input, got none", param="prompt"
        )
    if prompt is None or prompt == STDIN:
        prompt = read_text_file(prompt_file or STDIN).text
    text = require_text(prompt, "prompt")
    predicted = None if prediction is None else read_text_file(prediction).text
    sampling, speculation = configs(temperature, seed, drafter, no_speculation)
    from lookahead_edit.editor import GenerateRequest

    request = GenerateRequest(
        prompt=None if chat else text,
        messages=({"role": "user", "content": text},) if chat else (),
        prediction=predicted,
        sampling=sampling,
        speculation=speculation,
        max_tokens=max_tokens,
    )
    editor = open_editor(model, dtype, device, display, target)
    editor.check(request)
    stream = editor.stream_generate(request)
    if as_json:
        result = follow(stream)
        document: dict[str, Any] = {
            "model": editor.model_name,
            "text": result.text,
            "finish_reason": result.finish_reason,
        }
        document["metrics"] = figures(result.metrics)
        write_standard_output(json.dumps(document, allow_nan=False) + "\n")
    else:
        try:
            result = follow(stream, write=display.write_text)
        except BaseException:
            display.begin_line()  # for the line that says why
            raise
        display.end_text(is_exact=False)
    display.say(summary(result.metrics))


def main(arguments: list[str] | None = None) -> None:
    """Runs a command and exits; every foreseen failure is one line on standard error."""
    fill_closed_streams()
    with remembering_interrupts():
        sys.exit(_status_of(arguments, Display()))


def _status_of(arguments: list[str] | None, display: Display) -> int:
    try:
        status: int = app(args=arguments, prog_name="lookahead-edit", standalone_mode=False)
    except LookaheadEditError as error:
        display.fail(str(error))
        status = EXIT_FAILED
    except USAGE_ERROR as error:
        display.fail(error.format_message())
        status = EXIT_FAILED
    except (KeyboardInterrupt, typer.Abort):
        status = EXIT_INTERRUPTED
    except BrokenPipeError:
        abandon_standard_output()
        status = 1
    except OSError as error:  # what typer prints, or a temporary file: the machine's fault, not ours
        abandon_standard_output()
        display.fail(reason_of(error) if error.filename is None else f"{error.filename}: {reason_of(error)}")
        status = EXIT_FAILED
    except Exception as error:
        if was_interrupted():  # which an import or an extension may turn into an error of its own
            status = EXIT_INTERRUPTED
        elif NO_KERNEL_CACHE in str(error):
            display.fail("no directory for compiled kernels can be written to; name one in NUMBA_CACHE_DIR")
            status = EXIT_FAILED
        elif is_out_of_memory(error):
            display.fail("memory ran out; a smaller model, a shorter text or another --dtype takes less")
            status = EXIT_FAILED
        else:
            raise
    if status == EXIT_INTERRUPTED:
        display.show(ending().line)
        status = ending().status
    return status


if __name__ == "__main__":
    main()
