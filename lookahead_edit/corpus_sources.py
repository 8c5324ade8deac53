"""The texts that other traces edit, as material for edits of another kind."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from lookahead_edit.corpus_edits import FileEdit
from lookahead_edit.traces import Trace
from lookahead_edit.types import ContextFile

# Blocks stand between braces there; in the second set names are written likeThis.
BRACED_LANGUAGES = frozenset(("c", "cpp", "csharp", "dart", "go", "java", "javascript", "jsx", "kotlin", "php"))
BRACED_LANGUAGES |= frozenset(("rust", "scala", "swift", "tsx", "typescript"))
CAMEL_CASE_LANGUAGES = BRACED_LANGUAGES - {"c", "cpp", "php", "rust"}


@dataclass(frozen=True, slots=True)
class SourceText:
    """A text and its language, the word behind its fence."""

    id: str
    text: str
    language: str
    context: tuple[ContextFile, ...] = ()


def source_of(trace: Trace) -> SourceText | None:
    """The text that a trace edits; None where it edits none. The fence before it in the prompt tells the language.

    >>> source_of(Trace("1", "Set x to 2.\\n```python\\nx = 1\\n```", "x = 2\\n```", source="x = 1\\n"))
    SourceText(id='1', text='x = 1\\n', language='python', context=())
    """
    if not trace.source:
        return None
    before = trace.prompt[: trace.prompt.rindex(trace.source)]
    match = re.search(r"`{3,}([^\s`<>|]*)\n\Z", before)
    return SourceText(trace.id, trace.source, match[1] if match else "", trace.context)


def seeded_edits(
    make_edit: Callable[[SourceText, random.Random], FileEdit | None], sources: Iterable[SourceText], seed: int
) -> Iterator[FileEdit]:
    """One edit a source, the same for the same seed and id; sources that allow none are passed over."""
    for source in sources:
        edit = make_edit(source, random.Random(f"{seed} {source.id}"))
        if edit is not None:
            yield edit


def parses_as_python(text: str) -> bool:
    """Whether the text is a Python module."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
