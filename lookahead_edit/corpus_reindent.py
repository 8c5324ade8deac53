"""Traces of re-indented blocks, made from the sources of other traces: a body is wrapped in an `if`, by seed."""

from __future__ import annotations

import ast
import random
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO

from lookahead_edit.corpus_edits import FileEdit
from lookahead_edit.corpus_sources import (
    BRACED_LANGUAGES,
    CAMEL_CASE_LANGUAGES,
    SourceText,
    parses_as_python,
    why_not_editable,
)

MIN_BLOCK_LINES = 4
MAX_BLOCK_LINES = 200

_CONDITIONS = ("is_enabled", "is_ready", "not is_closed", "is_valid", "has_changes", "not is_empty")
_OPENED = re.compile(r"(?P<indent>[ \t]*)(?P<header>\S.*[\w)>\]])\s*\{")
_NAMED = re.compile(r"([^\W\d]\w*)\s*\(")
_NO_BLOCKS = re.compile(r"(?:switch|struct|class|interface|enum|union|namespace|type|impl|trait|match|extern|mod)\b")
_BARE_IF = frozenset(("go", "rust", "swift"))


@dataclass(frozen=True, slots=True)
class _Block:
    """``lines[start:end]``, to be indented by one more `unit`; numbers from 0."""

    name: str
    start: int
    end: int
    indent: str
    unit: str


def reindent_edit(source: SourceText, choice: random.Random) -> FileEdit | str:
    """Wraps the body of a function, whose name stands once as a function's, in an `if`.

    Where there is none, what speaks against it.
    """
    if reason := why_not_editable(source):
        return reason
    lines = source.text.split("\n")
    blocks = list(_python_blocks(source.text) if source.language == "python" else _braced_blocks(source))
    names = [block.name for block in blocks]
    blocks = [block for block in blocks if names.count(block.name) == 1 and _can_shift(lines, block)]
    if not blocks:
        return "without a body to wrap"
    block = choice.choice(blocks)
    condition = choice.choice(_CONDITIONS)
    if source.language in CAMEL_CASE_LANGUAGES:
        condition = re.sub(r"_([a-z])", lambda letter: letter[1].upper(), condition)
    body = [block.unit + line if line.strip() else line for line in lines[block.start : block.end]]
    if source.language == "python":
        opening, closing = f"if {condition}:", []
    else:
        condition = condition.replace("not ", "!")
        opening = f"if {condition} {{" if source.language in _BARE_IF else f"if ({condition}) {{"
        closing = [block.indent + "}"]
    after = "\n".join([*lines[: block.start], block.indent + opening, *body, *closing, *lines[block.end :]])
    if source.language == "python" and not parses_as_python(after):
        return "no valid Python once wrapped"
    header = opening.removesuffix(" {")
    return FileEdit(
        id=f"{source.id}#reindent",
        before=source.text,
        after=after,
        instruction=f"Wrap the body of {block.name} in `{header}`.",
        language=source.language,
        context=source.context,
    )


def _python_blocks(text: str) -> Iterator[_Block]:
    """Bodies of functions, without the docstring, that hold no string of several lines: its content would change."""
    try:
        tree = ast.parse(text)
        tokens = list(tokenize.generate_tokens(StringIO(text).readline))
    except (SyntaxError, ValueError, RecursionError, tokenize.TokenError):
        return
    inside_strings = {
        row
        for token in tokens
        if token.start[0] != token.end[0] and token.type not in (tokenize.NEWLINE, tokenize.NL)
        for row in range(token.start[0], token.end[0] + 1)
    }
    lines = text.split("\n")
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        has_docstring = ast.get_docstring(node, clean=False) is not None
        body = node.body[1:] if has_docstring else node.body
        if not body or body[0].lineno == node.lineno or inside_strings & set(range(body[0].lineno, _end(node) + 1)):
            continue
        start = min([body[0].lineno, *(item.lineno for item in getattr(body[0], "decorator_list", []))]) - 1
        indent = lines[start][: len(lines[start]) - len(lines[start].lstrip())]
        outer = lines[node.lineno - 1][: len(lines[node.lineno - 1]) - len(lines[node.lineno - 1].lstrip())]
        yield _Block(node.name, start, _end(node), indent, indent.removeprefix(outer) or "    ")


def _end(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return node.end_lineno or node.lineno


def _braced_blocks(source: SourceText) -> Iterator[_Block]:
    """What stands between a line that ends in ``{`` and the ``}`` of the same indentation."""
    if source.language not in BRACED_LANGUAGES:
        return
    lines = source.text.split("\n")
    for number, line in enumerate(lines):
        opened = _OPENED.fullmatch(line)
        if not opened or _NO_BLOCKS.match(opened["header"]):
            continue
        named = _NAMED.search(opened["header"])
        if not named or named[1] in ("if", "for", "while", "switch", "catch", "match", "using", "lock", "with"):
            continue
        indent = opened["indent"]
        end = next(
            (
                other
                for other in range(number + 1, min(len(lines), number + MAX_BLOCK_LINES + 2))
                if lines[other].startswith(indent + "}")
                or (lines[other].strip() and not lines[other].startswith(indent))
            ),
            None,
        )
        if end is None or lines[end].rstrip(";,") != indent + "}" or end == number + 1:
            continue
        first = lines[number + 1]
        inner = first[: len(first) - len(first.lstrip())]
        if inner.startswith(indent) and len(inner) > len(indent):
            yield _Block(named[1], number + 1, end, inner, inner.removeprefix(indent))


def _can_shift(lines: list[str], block: _Block) -> bool:
    body = lines[block.start : block.end]
    has_long_strings = any(mark in line for mark in ("`", 'R"', '"""') for line in body)
    has_preprocessor_lines = any(line.startswith("#") for line in body)
    return (
        MIN_BLOCK_LINES <= sum(1 for line in body if line.strip()) <= MAX_BLOCK_LINES
        and not has_long_strings
        and not has_preprocessor_lines
        and all(line.startswith(block.indent) for line in body if line.strip())
    )
