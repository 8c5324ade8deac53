"""`lookahead-edit serve`: options over the configuration file over the defaults, then the server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lookahead_edit.cli_calibrate import TOO_SLOW, busy_warning, calibrate_editor
from lookahead_edit.cli_display import Display
from lookahead_edit.cli_engine import Engine, EngineKey, EngineOption, EngineOptions, EngineUrl, engine_loader
from lookahead_edit.cli_interrupt import hangups_as_terminations
from lookahead_edit.cli_options import (
    SERVER,
    SPECULATION,
    Device,
    DtypeOption,
    Model,
    TargetKind,
    TargetOption,
    open_editor,
)
from lookahead_edit.config_file import read_server_config
from lookahead_edit.failures import is_out_of_memory
from lookahead_edit.types import InvalidInput

if TYPE_CHECKING:
    from lookahead_edit.editor import Editor

# Click fills paragraphs, but leaves those that begin with this character as they are.
SERVE_EXAMPLES = """\b
Examples:
  lookahead-edit serve --model Qwen/Qwen2.5-Coder-7B-Instruct --port 8080
  lookahead-edit serve --config server.toml
  lookahead-edit serve --engine vllm --engine-option max_model_len=8192
"""


def serve(
    context: typer.Context,
    model: Model = None,
    config_file: Annotated[
        Path | None,
        typer.Option("--config", help="TOML with [server] and [routes.NAME]; options go before it.", metavar="FILE"),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.", metavar="ADDRESS")] = SERVER.host,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="0 takes a free one.", metavar="PORT")
    ] = SERVER.port,
    api_key: Annotated[
        str | None, typer.Option("--api-key", help="Clients must send it.", metavar="KEY")
    ] = SERVER.api_key,
    cors_origins: Annotated[
        list[str] | None,
        typer.Option("--cors-origin", help="A web page's origin that may call; repeatable.", metavar="ORIGIN"),
    ] = None,
    max_batch_size: Annotated[
        int, typer.Option("--max-batch", min=1, help="Requests that run together.", metavar="N")
    ] = SERVER.max_batch_size,
    max_queued_requests: Annotated[
        int,
        typer.Option("--max-queue", min=0, help="More waiting requests are refused.", metavar="N"),
    ] = SERVER.max_queued_requests,
    max_body_bytes: Annotated[
        int,
        typer.Option("--max-body", min=1, help="Largest request, in bytes.", metavar="N"),
    ] = SERVER.max_body_bytes,
    grace_seconds: Annotated[
        float,
        typer.Option("--grace", min=0.0, help="Time that running work gets at shutdown.", metavar="SECONDS"),
    ] = SERVER.grace_seconds,
    trace_log: Annotated[
        str | None,
        typer.Option("--trace-log", help="Append prompts and answers to it, for replay.", metavar="FILE"),
    ] = SERVER.trace_log,
    dtype: DtypeOption = None,
    device: Device = None,
    target: TargetOption = TargetKind.DYNAMIC,
    engine: EngineOption = Engine.TRANSFORMERS,
    engine_url: EngineUrl = None,
    engine_key: EngineKey = None,
    engine_options: EngineOptions = None,
) -> None:
    """Serves edits, chats and completions over HTTP.

    POST /v1/edits, /v1/chat/completions and /v1/completions; /health, /v1/models and /metrics stand beside them.
    """
    options: dict[str, Any] = {
        "host": host,
        "port": port,
        "api_key": api_key,
        "cors_origins": tuple(cors_origins or ()),
        "max_batch_size": max_batch_size,
        "max_queued_requests": max_queued_requests,
        "max_body_bytes": max_body_bytes,
        "grace_seconds": grace_seconds,
        "trace_log": trace_log,
    }
    base = SERVER if config_file is None else read_server_config(config_file)
    config = replace(base, **{name: value for name, value in options.items() if _is_given(context, name)})

    from lookahead_edit.server.run import serve as run_server
    from lookahead_edit.targets.loading import require_model

    dtype_name = None if dtype is None else dtype.value
    load_engine = engine_loader(engine, engine_url, engine_key, engine_options, model, dtype_name, device)
    if load_engine is not None:
        if target is not TargetKind.DYNAMIC:
            raise InvalidInput("expected no --target with --engine vllm, which has its own ways", param="target")
    else:
        require_model(model)
    # The server prints lines of its own, so no live line beside them.
    display = Display(is_quiet=True)

    def load() -> Editor:
        editor = open_editor(model, dtype, device, display, target)
        if SPECULATION.policy == "cost":
            calibrate_for_serving(editor)
        if target is not TargetKind.DYNAMIC:
            warm_up(editor)
        return editor

    with hangups_as_terminations():
        run_server(load if load_engine is None else load_engine, config)


def warm_up(editor: Editor) -> None:
    """Compiles and records what the first requests would have to wait for."""
    from lookahead_edit.targets.static import StaticTarget

    if isinstance(editor.target, StaticTarget):
        editor.target.warm_up()


def calibrate_for_serving(editor: Editor) -> None:
    """Measures what drafts cost, where it isn't known yet, and says so; also where it can't be measured, or trusted."""
    from lookahead_edit.targets.hf import HfTarget

    if not isinstance(editor.target, HfTarget):
        return
    reason, calibration = TOO_SLOW, None
    try:
        calibration = calibrate_editor(editor)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        reason = "memory ran out"
    if calibration is None:
        typer.echo(f"warning: what drafts cost could not be measured, so typical costs count: {reason}", err=True)
        return
    if calibration.is_new:
        where = "" if calibration.path is not None else "; there is no cache directory to keep it in"
        typer.echo(f"measured what drafts cost on this machine ({calibration.seconds:.0f} s){where}", err=True)
    if calibration.is_doubtful:
        typer.echo(f"warning: what drafts cost is not sure: {busy_warning(calibration)}", err=True)


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"
