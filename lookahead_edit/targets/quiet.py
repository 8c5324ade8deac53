"""Keeps transformers and its helpers silent while a model loads: errors come as exceptions, progress is ours."""

from __future__ import annotations

import importlib
import logging as standard_logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def quiet_transformers(*, is_download: bool = False) -> Iterator[None]:
    """No log lines below "error", no warnings, no progress bars; what was set before comes back.

    With `is_download` the hub's progress bars stay, because a download may take minutes.
    """
    from huggingface_hub.utils import logging as hub_logging
    from transformers.utils import logging

    verbosity, hub_verbosity = logging.get_verbosity(), hub_logging.get_verbosity()
    has_progress_bars = logging.is_progress_bar_enabled()
    restore_gguf_progress = _silence_gguf_progress()
    # "critical" for the hub: it logs every retry as a warning and every failed file as an error.
    logging.set_verbosity_error()
    hub_logging.set_verbosity(standard_logging.CRITICAL)
    if not is_download:
        logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        hub_logging.set_verbosity(hub_verbosity)
        if has_progress_bars:
            logging.enable_progress_bar()
        restore_gguf_progress()


def _silence_gguf_progress() -> Callable[[], None]:
    """The GGUF reader draws a bar that no setting of transformers turns off; returns what puts it back.

    Redirecting stderr instead would catch a server's log handlers as well. Where a release has no such name, the
    bar is merely visible.
    """
    try:
        module: Any = importlib.import_module("transformers.modeling_gguf_pytorch_utils")
    except ImportError:
        return lambda: None
    if not hasattr(module, "tqdm"):
        return lambda: None
    original = module.tqdm
    module.tqdm = lambda iterable, **_: iterable

    def restore() -> None:
        module.tqdm = original

    return restore
