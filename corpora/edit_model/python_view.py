"""A parsed Python piece: its lines, functions and classes, with the checks that edits of functions share."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from corpora.edit_model.parsing import parse_python
from corpora.edit_model.pieces import Piece

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class PythonView:
    """One parse of a piece. Line numbers here are 0-based and ends are exclusive."""

    lines: list[str]
    tree: ast.Module
    functions: tuple[FunctionNode, ...]  # those whose name stands in one def only

    @classmethod
    def of(cls, piece: Piece) -> PythonView | None:
        """Parse the piece; None where it is not Python or does not parse."""
        if piece.language != "python":
            return None
        tree = parse_python(piece.text)
        if tree is None:
            return None
        nodes = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        names = [node.name for node in nodes]
        unique = tuple(node for node in nodes if names.count(node.name) == 1)
        return cls(piece.text.split("\n"), tree, unique)

    def scopes(self) -> list[ast.Module | ast.ClassDef]:
        """The module and its top-level classes: where definitions stand side by side."""
        return [self.tree, *(node for node in self.tree.body if isinstance(node, ast.ClassDef))]

    def with_body_below(self) -> list[FunctionNode]:
        """Functions whose body starts on a line of its own."""
        return [node for node in self.functions if self.lines[body_start(node) - 1].rstrip().endswith(":")]

    def has_multiline_text(self, first: int, end: int) -> bool:
        """Whether a string of several lines stands in the lines, which re-indenting would change."""
        text = "\n".join(self.lines[first:end])
        return '"""' in text or "'''" in text or any(line.endswith("\\") for line in self.lines[first:end])


def first_line(node: FunctionNode | ast.ClassDef) -> int:
    """The line of the first decorator, or of the def."""
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1


def end_line(node: ast.stmt) -> int:
    """The line after the last one."""
    assert node.end_lineno is not None
    return node.end_lineno


def body_start(node: FunctionNode) -> int:
    """The line of the first statement of the body; for a decorated inner def that of its decorator."""
    first = node.body[0]
    if isinstance(first, DEFINITIONS):
        return first_line(first)
    return first.lineno - 1


def body_indentation(node: FunctionNode) -> str:
    """The white space before each statement of the body."""
    return " " * node.body[0].col_offset


def head_line(node: FunctionNode, lines: list[str]) -> str | None:
    """The def line if the whole signature stands on it, else None."""
    line = lines[node.lineno - 1]
    return line if line.rstrip().endswith(":") and body_start(node) >= node.lineno else None


def parses(text: str) -> bool:
    """Whether the text is Python."""
    return parse_python(text) is not None
