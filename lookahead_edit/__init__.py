"""Language models rewrite files faster: drafts copied from the file, verified exactly.

Example::

    from lookahead_edit import LookaheadEdit, edit, load_model

    model, tokenizer = load_model()                                     # or any model of transformers
    model.generate(**inputs, custom_generate=LookaheadEdit(tokenizer))  # same tokens, fewer forward passes
    result = edit(model, tokenizer, text, "Rename total to price.")     # a whole edit, with diff and figures

Nothing is imported before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lookahead_edit.config import EditConfig, SamplingConfig, ServerConfig, SpeculationConfig, TargetConfig
    from lookahead_edit.editor import EditResult
    from lookahead_edit.hook import LookaheadEdit
    from lookahead_edit.types import (
        ContextLengthExceeded,
        InvalidInput,
        LookaheadEditError,
        ModelUnavailable,
        RequestCancelled,
        UnsupportedModel,
    )

__version__ = "0.1.0"
__all__ = [
    "ContextLengthExceeded",
    "EditConfig",
    "InvalidInput",
    "LookaheadEdit",
    "LookaheadEditError",
    "ModelUnavailable",
    "RequestCancelled",
    "SamplingConfig",
    "ServerConfig",
    "SpeculationConfig",
    "TargetConfig",
    "UnsupportedModel",
    "edit",
    "load_model",
]


def edit(
    model: Any, tokenizer: Any, text: str, instruction: str, *, target: TargetConfig | None = None, **options: Any
) -> EditResult:
    """Edits `text` as `instruction` says, with a model and tokenizer of transformers.

    Args:
        model: a causal language model.
        tokenizer: its tokenizer; its chat template is used where it has one.
        text: the whole document.
        instruction: what to change.
        target: how the model is run.
        **options: further fields of `lookahead_edit.editor.EditRequest` (`path`, `region`, `sampling`, …); an unknown
            one raises TypeError.

    Returns:
        The edited text with `diff()`, LSP `edits()`, `finish_reason` and `metrics`. Where it is `truncated`, by
        `max_tokens` or a stop string, the text is half a file.

    Raises:
        InvalidInput, ContextLengthExceeded, UnsupportedModel.
    """
    from dataclasses import fields

    from lookahead_edit.editor import EditRequest
    from lookahead_edit.targets.loading import editor_of

    known = [field.name for field in fields(EditRequest) if field.name not in ("text", "instruction")]
    for name in sorted(options.keys() - set(known)):
        raise TypeError(f"edit() got an unexpected keyword argument {name!r}, expected one of {', '.join(known)}")
    return editor_of(model, tokenizer, target=target).edit(EditRequest(text=text, instruction=instruction, **options))


def load_model(name: str | None = None, **options: Any) -> tuple[Any, Any]:
    """A model of transformers and its tokenizer: the default one, a directory, a GGUF file or a hub id.

    Args:
        name: None is the default model, converted on first use.
        **options: `dtype` and `device`, as in `lookahead_edit.targets.loading.load_model`.

    Raises:
        ModelUnavailable: unknown name, no network, missing or broken files.
    """
    from lookahead_edit.targets.loading import load_model

    return load_model(name, **options)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "hook" if name == "LookaheadEdit" else "config" if name.endswith("Config") else "types"
    value = getattr(import_module(f"lookahead_edit.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
