"""The engine options of `lookahead-edit serve`: who runs the model, and where."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from lookahead_edit.types import InvalidInput

if TYPE_CHECKING:
    from lookahead_edit.editor import Editor


class Engine(str, Enum):
    TRANSFORMERS = "transformers"
    VLLM = "vllm"


EngineOption = Annotated[
    Engine,
    typer.Option("--engine", help="What runs the model: transformers, or vllm in its own environment.", metavar="NAME"),
]
EngineUrl = Annotated[
    str | None,
    typer.Option("--engine-url", help="A vLLM server that runs already; --model is its tokenizer.", metavar="URL"),
]
EngineKey = Annotated[str | None, typer.Option("--engine-key", help="The vLLM server's API key.", metavar="KEY")]
EngineOptions = Annotated[
    list[str] | None,
    typer.Option("--engine-option", help="An argument of vLLM's engine; repeatable.", metavar="NAME=VALUE"),
]


def engine_loader(
    engine: Engine,
    url: str | None,
    key: str | None,
    options: list[str] | None,
    model: str | None,
    dtype: str | None,
    device: str | None,
) -> Callable[[], Editor] | None:
    """What loads an editor on vLLM; None where transformers runs the model. What can be checked is checked now.

    Raises:
        InvalidInput: options that don't go together, or that vLLM or the proposer would refuse.
    """
    if engine is Engine.TRANSFORMERS:
        for name, value in (("engine-url", url), ("engine-key", key), ("engine-option", options)):
            if value:
                raise InvalidInput(f"expected --engine vllm with --{name}, got --engine transformers", param=name)
        return None
    if device is not None:
        raise InvalidInput("expected no --device with --engine vllm, which has its own ways", param="device")
    if key is not None and url is None:
        raise InvalidInput("expected --engine-key together with --engine-url, got it alone", param="engine-key")
    from lookahead_edit.vllm_plugin import loading

    if url is not None:
        if options:
            raise InvalidInput(
                "expected no --engine-option with --engine-url: give them to that server", param="engine-option"
            )
        editor = loading.connect_engine_editor(url, model, api_key=key)
        return lambda: editor
    arguments = loading.parse_options(options or [])
    loading.check_engine_options(arguments)
    return lambda: loading.load_engine_editor(model, arguments, dtype=dtype)
