"""Parse Python that others wrote: no warnings about their escapes, None instead of an exception."""

from __future__ import annotations

import ast
import warnings


def parse_python(text: str) -> ast.Module | None:
    """The syntax tree of the text, or None where it does not parse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError):
            return None
