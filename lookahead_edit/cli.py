"""The command line: `lookahead-edit edit`, `generate`, `replay`, `calibrate` and `serve`.

What can be checked without a model is checked first; torch and transformers are imported when a model is loaded.
Standard output carries the result and nothing else, figures and messages go to standard error. Exit status: 0 done,
1 the comparison found a difference, 2 the request can't be served (one line says why), 130 interrupted.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lookahead_edit import __version__
from lookahead_edit.cli_calibrate import CALIBRATE_EXAMPLES, calibrate, calibrate_editor
from lookahead_edit.cli_corpus import corpus_app
from lookahead_edit.cli_display import Display, figures, summary
from lookahead_edit.cli_edit import EDIT_EXAMPLES, edit
from lookahead_edit.cli_files import STDIN, read_text_file, write_standard_output
from lookahead_edit.cli_options import (
    SAMPLING,
    SERVER,
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
    Temperature,
    configs,
    follow,
    open_editor,
    require_text,
)
from lookahead_edit.cli_replay import REPLAY_EXAMPLES, replay
from lookahead_edit.config import ServerConfig
from lookahead_edit.types import InvalidInput, LookaheadEditError

if TYPE_CHECKING:
    from lookahead_edit.editor import Editor

EXIT_FAILED = 2
EXIT_INTERRUPTED = 130

# Click fills paragraphs, but leaves those that begin with this character as they are.
GENERATE_EXAMPLES = """\b
Examples:
  lookahead-edit generate "Write a haiku about tests." --chat
  cat prompt.txt | lookahead-edit generate --max-tokens 200
"""
SERVE_EXAMPLES = """\b
Example:
  lookahead-edit serve --model Qwen/Qwen2.5-Coder-7B-Instruct --port 8080
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

app.command(epilog=EDIT_EXAMPLES)(edit)
app.command(epilog=REPLAY_EXAMPLES)(replay)
app.command(epilog=CALIBRATE_EXAMPLES)(calibrate)
app.add_typer(corpus_app)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    if version:
        write_standard_output(f"lookahead-edit {__version__}\n")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(EXIT_FAILED)


@app.command(epilog=GENERATE_EXAMPLES)
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
    quiet: Quiet = False,
) -> None:
    """Generates text from a prompt and prints it as it comes. Without --max-tokens it may fill the model's context."""
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
    editor = open_editor(model, dtype, device, display)
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
        display.end_text()
    display.say(summary(result.metrics))


@app.command(epilog=SERVE_EXAMPLES)
def serve(
    model: Model = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.", metavar="ADDRESS")] = SERVER.host,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="0 takes a free one.", metavar="PORT")
    ] = SERVER.port,
    api_key: Annotated[
        str | None, typer.Option("--api-key", help="Clients must send it.", metavar="KEY")
    ] = SERVER.api_key,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option("--cors-origin", help="A web page's origin that may call; repeatable.", metavar="ORIGIN"),
    ] = None,
    max_queued_requests: Annotated[
        int, typer.Option("--max-queue", min=0, help="More waiting requests are refused.", metavar="N")
    ] = SERVER.max_queued_requests,
    max_body_bytes: Annotated[
        int, typer.Option("--max-body", min=1, help="Largest request, in bytes.", metavar="N")
    ] = SERVER.max_body_bytes,
    grace_seconds: Annotated[
        float, typer.Option("--grace", min=0.0, help="Time that running work gets at shutdown.", metavar="SECONDS")
    ] = SERVER.grace_seconds,
    dtype: DtypeOption = None,
    device: Device = None,
) -> None:
    """Serves edits over HTTP: POST /v1/edits, plain and streamed. /health, /v1/models and /metrics stand beside it."""
    config = ServerConfig(
        host=host,
        port=port,
        api_key=api_key,
        max_body_bytes=max_body_bytes,
        max_queued_requests=max_queued_requests,
        grace_seconds=grace_seconds,
        cors_origins=tuple(cors_origin or ()),
    )
    from lookahead_edit.server.run import serve as run_server
    from lookahead_edit.targets.loading import require_model

    require_model(model)
    # The server prints lines of its own, so no live line beside them.
    display = Display(is_quiet=True)

    def load() -> Editor:
        editor = open_editor(model, dtype, device, display)
        if SPECULATION.policy == "cost":
            _calibrate(editor)
        return editor

    run_server(load, config)


def _calibrate(editor: Editor) -> None:
    calibration = calibrate_editor(editor)
    if calibration is not None and calibration.is_new:
        typer.echo(f"measured what drafts cost on this machine ({calibration.seconds:.0f} s)", err=True)


def main(arguments: list[str] | None = None) -> None:
    """Runs a command and exits; every foreseen failure is one line on standard error."""
    display = Display()
    try:
        status = app(args=arguments, prog_name="lookahead-edit", standalone_mode=False)
    except LookaheadEditError as error:
        display.fail(str(error))
        status = EXIT_FAILED
    except USAGE_ERROR as error:
        display.fail(error.format_message())
        status = EXIT_FAILED
    except (KeyboardInterrupt, typer.Abort):
        status = EXIT_INTERRUPTED
    except BrokenPipeError:
        status = 1
    if status == EXIT_INTERRUPTED:
        display.console.print("interrupted")
    sys.exit(status)


if __name__ == "__main__":
    main()
