"""The texts that other traces edit, as material for edits of another kind."""

from __future__ import annotations

import ast
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

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


# An edit of a source, or what of the source speaks against one, in the words of a `Tally`.
MakeEdit: TypeAlias = Callable[[SourceText, random.Random], FileEdit | str]


def seeded_edits(make_edit: MakeEdit, traces: Iterable[Trace], seed: int, reasons: Counter[str]) -> Iterator[FileEdit]:
    """One edit for the source of each trace, the same for the same seed and id; `reasons` counts what allows none."""
    for trace in traces:
        source = source_of(trace)
        made = "without a source" if source is None else make_edit(source, random.Random(f"{seed} {source.id}"))
        if isinstance(made, FileEdit):
            yield made
        else:
            reasons[made] += 1


def why_not_editable(source: SourceText) -> str | None:
    """What speaks against any edit by rule: a language that these know nothing of, or Python that is none."""
    if source.language not in ("python", *BRACED_LANGUAGES):
        return "of another language"
    return "no valid Python" if source.language == "python" and not parses_as_python(source.text) else None


def parses_as_python(text: str) -> bool:
    """Whether the text is a Python module."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
