"""Places in the user's home, also for users who have none: daemons and containers of any user id."""

from __future__ import annotations

from pathlib import Path

import platformdirs

from lookahead_edit.types import ModelUnavailable


def cache_directory() -> Path:
    """Where models and measurements are kept, whether or not it is there yet.

    Raises ModelUnavailable where the user has no home directory.
    """
    try:
        return Path(platformdirs.user_cache_dir("lookahead-edit"))
    except RuntimeError:
        raise ModelUnavailable(
            "expected a home directory to keep the default model in, got none; set HOME or XDG_CACHE_HOME"
        ) from None


def named_path(name: str) -> Path:
    """The path that was named, with ``~`` and ``~user`` spelled out where there is such a home directory."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        return Path(name)
