"""Traces of renames, made from the sources of other traces: two identifiers, everywhere, deterministic by seed."""

from __future__ import annotations

import ast
import builtins
import keyword
import random
import re
from collections import Counter

from lookahead_edit.corpus_edits import FileEdit
from lookahead_edit.corpus_sources import CAMEL_CASE_LANGUAGES, SourceText, parses_as_python, why_not_editable

MIN_OCCURRENCES = 3
MIN_NAME_CHARACTERS = 3

_WORD = re.compile(r"[^\W\d]\w*")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'')
_PROSE = re.compile(r'"""(?s:.*?)"""|\'\'\'(?s:.*?)\'\'\'|/\*(?s:.*?)\*/|(?:#|//).*')
_DECLARED = re.compile(
    r"\b(?:function|class|const|let|var|func|fn|type|struct|interface|enum|def|int|long|char|bool|float|double|size_t"
    r"|string|String|auto|void|mut|public|private|static)\b[\s*&]+([^\W\d]\w*)"
)
_KEYWORDS = re.compile(
    r"new|final|async|await|function|const|let|var|default|extends|implements|static|public|private|protected|void"
    r"|struct|enum|interface|type|func|package|main|string|int|char|bool|float|double|long|unsigned|this|super"
    r"|self|cls|args|kwargs|__\w*"
)
_RESERVED = frozenset([*keyword.kwlist, *keyword.softkwlist, *dir(builtins)])
_FIRST = ("active", "base", "cached", "current", "extra", "inner", "known", "local", "merged", "next", "outer", "raw")
_LAST = (
    "amount",
    "bucket",
    "cursor",
    "entry",
    "handle",
    "holder",
    "item",
    "marker",
    "record",
    "state",
    "target",
    "unit",
)


def rename_edit(source: SourceText, choice: random.Random) -> FileEdit | str:
    """Renames two declared names that stand in no string, so that every whole word of that name is the identifier.

    Where there are none, what speaks against it.
    """
    if reason := why_not_editable(source):
        return reason
    names = renameable_names(source.text, source.language)
    if len(names) < 2:
        return "without two names to rename"
    text = source.text
    taken = set(_WORD.findall(text))
    parts = []
    for name in choice.sample(names, 2):
        new_name = _new_name(name, taken, choice, is_camel_case=source.language in CAMEL_CASE_LANGUAGES)
        taken.add(new_name)
        text = re.sub(rf"\b{re.escape(name)}\b", new_name, text)
        parts.append(f"{name} to {new_name}")
    if source.language == "python" and not parses_as_python(text):
        return "no valid Python once renamed"
    return FileEdit(
        id=f"{source.id}#rename",
        before=source.text,
        after=text,
        instruction=f"Rename {parts[0]} and {parts[1]}.",
        language=source.language,
        context=source.context,
    )


def renameable_names(text: str, language: str) -> list[str]:
    """Names the text declares and uses several times, outside of strings, in order of their first use.

    One that is a plain word must not stand in a comment either: there it may mean the word.
    """
    declared = _python_names(text) if language == "python" else set(_DECLARED.findall(text))
    in_prose = set(_WORD.findall(" ".join(_PROSE.findall(text))))
    in_strings = set(_WORD.findall(" ".join(_STRING.findall(_PROSE.sub("", text)))))
    counts = Counter(_WORD.findall(text))
    return [
        name
        for name, count in counts.items()
        if name in declared
        and name not in in_strings
        and not (name in in_prose and name.isalpha() and name.islower())
        and name not in _RESERVED
        and not _KEYWORDS.fullmatch(name)
        and count >= MIN_OCCURRENCES
        and len(name) >= MIN_NAME_CHARACTERS
    ]


def _python_names(text: str) -> set[str]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return set()
    names: set[str] = set()
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            imported.update((node.asname or node.name).split("."))
    return names - imported


def _new_name(name: str, taken: set[str], choice: random.Random, *, is_camel_case: bool) -> str:
    """A made-up name in the style of the old one, or of the language where that is a single word."""
    for attempt in range(100):
        words = [choice.choice(_FIRST), choice.choice(_LAST)] + ([str(attempt)] if attempt > 50 else [])
        underscores = name[: len(name) - len(name.lstrip("_"))]
        if name.isupper():
            new_name = "_".join(words).upper()
        elif "_" in name.strip("_") or (name.islower() and not is_camel_case):
            new_name = "_".join(words)
        else:
            new_name = "".join(word.capitalize() for word in words)
            if name.lstrip("_")[0].islower():
                new_name = new_name[0].lower() + new_name[1:]
        if underscores + new_name not in taken:
            return underscores + new_name
    raise AssertionError("a hundred names are taken")
