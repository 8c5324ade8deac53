"""Edits of Python function bodies: lines at their start and end, docstrings, new bodies, wrapping."""

from __future__ import annotations

import ast
import random

from corpora.edit_model.edit import Edit
from corpora.edit_model.line_edits import made_up_line
from corpora.edit_model.pieces import Piece
from corpora.edit_model.python_view import (
    FunctionNode,
    PythonView,
    body_indentation,
    body_start,
    end_line,
)
from corpora.edit_model.words import NOUNS, VERBS, restyle, say, sentence, snake


def _joined(*parts: list[str]) -> str:
    return "\n".join(line for part in parts for line in part)


def _starting_line(rng: random.Random, node: FunctionNode) -> str:
    parameters = [argument.arg for argument in node.args.args if argument.arg not in ("self", "cls")]
    if parameters and rng.random() < 0.4:
        name = rng.choice(parameters)
        return rng.choice(
            (
                f"assert {name} is not None",
                f"print({name})",
                f'print("{name}", {name})',
                f"{name} = {name} or {rng.choice(('None', '0', '[]'))}",
            )
        )
    if rng.random() < 0.3:
        return rng.choice(
            (f'print("{node.name}")', f'logger.debug("{node.name} called")', f'print("enter {node.name}")')
        )
    return made_up_line(rng, "python")


def add_line_at_start(rng: random.Random, piece: Piece) -> Edit | None:
    """Add a first line to a function; after the docstring, and said so, where there is one."""
    view = PythonView.of(piece)
    nodes = view.with_body_below() if view else []
    if view is None or not nodes:
        return None
    node = rng.choice(nodes)
    new = _starting_line(rng, node)
    place = body_start(node)
    templates: tuple[str, ...] = (
        "Add the line {code_new} at the start of {name}",
        "Insert {code_new} as the first line of {name}",
        "Start {name} with the line {code_new}",
        "Put {code_new} at the beginning of the function {name}",
        "In {name}, add {code_new} as the first statement",
    )
    if ast.get_docstring(node, clean=False) is not None:
        place = end_line(node.body[0])
        templates = (
            "Add the line {code_new} after the docstring of {name}",
            "Insert {code_new} right below the docstring of {name}",
        )
    after = _joined(view.lines[:place], [body_indentation(node) + new], view.lines[place:])
    return Edit(say(rng, templates, code_new=new, name=node.name), after)


def add_line_at_end(rng: random.Random, piece: Piece) -> Edit | None:
    """Add a last line to a function, or one before its final return."""
    view = PythonView.of(piece)
    if view is None or not view.with_body_below():
        return None
    node = rng.choice(view.with_body_below())
    last = node.body[-1]
    new = made_up_line(rng, "python")
    place = end_line(last)
    templates: tuple[str, ...] = (
        "Add the line {code_new} at the end of {name}",
        "Append {code_new} to the function {name}",
        "End {name} with the line {code_new}",
        "Insert {code_new} as the last line of {name}",
    )
    if isinstance(last, (ast.Raise, ast.Pass)):
        return None
    if isinstance(last, ast.Return):
        place = last.lineno - 1
        templates = (
            "Add the line {code_new} before the last return of {name}",
            "Insert {code_new} right before the final return in {name}",
        )
    after = _joined(view.lines[:place], [body_indentation(node) + new], view.lines[place:])
    return Edit(say(rng, templates, code_new=new, name=node.name), after)


def add_docstring(rng: random.Random, piece: Piece) -> Edit | None:
    """Give a function or class that has none a docstring."""
    view = PythonView.of(piece)
    nodes = [node for node in view.with_body_below() if ast.get_docstring(node) is None] if view else []
    if view is None or not nodes:
        return None
    node = rng.choice(nodes)
    text = sentence(rng)
    templates = (
        'Add the docstring "{plain_text}" to {name}',
        'Give {name} the docstring "{plain_text}"',
        'Add a docstring to {name}: "{plain_text}"',
        'Document {name} with "{plain_text}"',
        'Add the docstring """{plain_text}""" to the function {name}',
    )
    place = body_start(node)
    after = _joined(view.lines[:place], [f'{body_indentation(node)}"""{text}"""'], view.lines[place:])
    return Edit(say(rng, templates, plain_text=text, name=node.name), after)


def replace_docstring(rng: random.Random, piece: Piece) -> Edit | None:
    """Replace a one-line docstring."""
    view = PythonView.of(piece)
    nodes = []
    for node in view.functions if view else ():
        first = node.body[0]
        if ast.get_docstring(node) is not None and end_line(first) == first.lineno and len(node.body) > 1:
            nodes.append(node)
    if view is None or not nodes:
        return None
    node = rng.choice(nodes)
    text = sentence(rng)
    line = node.body[0].lineno - 1
    templates = (
        'Change the docstring of {name} to "{plain_text}"',
        'Replace the docstring of {name} by "{plain_text}"',
        'The docstring of {name} should be "{plain_text}"',
    )
    after = _joined(view.lines[:line], [f'{body_indentation(node)}"""{text}"""'], view.lines[line + 1 :])
    return Edit(say(rng, templates, plain_text=text, name=node.name), after)


def replace_body(rng: random.Random, piece: Piece) -> Edit | None:
    """Replace the whole body of a function that has no docstring by one line or a block of lines."""
    view = PythonView.of(piece)
    nodes = [node for node in view.with_body_below() if ast.get_docstring(node) is None] if view else []
    if view is None or not nodes:
        return None
    node = rng.choice(nodes)
    templates: tuple[str, ...]
    if rng.random() < 0.6:
        body = [
            rng.choice(
                (
                    f"return {snake(rng)}",
                    "return None",
                    "pass",
                    "raise NotImplementedError",
                    f"return {rng.randint(0, 99)}",
                )
            )
        ]
        templates = (
            "Replace the body of {name} with {code_body}",
            "Make {code_body} the whole body of {name}",
            "The body of {name} should only be {code_body}",
        )
        instruction = say(rng, templates, name=node.name, code_body=body[0])
    else:
        body = [made_up_line(rng, "python") for _ in range(rng.randint(1, 3))] + [f"return {snake(rng)}"]
        templates = ("Replace the body of {name} with this", "Write this as the body of {name}")
        instruction = say(rng, templates, name=node.name).rstrip(".?") + ":\n```python\n" + "\n".join(body) + "\n```"
    new = [body_indentation(node) + line for line in body]
    after = _joined(view.lines[: body_start(node)], new, view.lines[end_line(node) :])
    return Edit(instruction, after)


def wrap_body(rng: random.Random, piece: Piece) -> Edit | None:
    """Put the body of a function under a with, an if, a for or a try; the body moves to the right."""
    view = PythonView.of(piece)
    nodes = []
    for node in view.with_body_below() if view else ():
        assert view is not None
        if ast.get_docstring(node) is None and not view.has_multiline_text(body_start(node), end_line(node)):
            nodes.append(node)
    if view is None or not nodes:
        return None
    node = rng.choice(nodes)
    indent = body_indentation(node)
    name = snake(rng)
    templates: tuple[str, ...]
    moved = ["    " + line if line.strip() else line for line in view.lines[body_start(node) : end_line(node)]]
    if rng.random() < 0.3:
        error = rng.choice(
            ("ValueError", "KeyError", "OSError", "RuntimeError", "TypeError", restyle(snake(rng), "class"))
        )
        handler = rng.choice(("return None", "pass", "raise", f"return {name}", f'print("{rng.choice(VERBS)} failed")'))
        templates = (
            "Wrap the body of {name} in a try block with {code_tail} and {code_handler}",
            "Put the body of {name} in a try, then {code_tail} with {code_handler}",
        )
        tail = f"except {error}:"
        new = [f"{indent}try:", *moved, indent + tail, f"{indent}    {handler}"]
        instruction = say(rng, templates, name=node.name, code_tail=tail, code_handler=handler)
    else:
        head = rng.choice(
            (
                f"with {name}:",
                f"with self.{name}:",
                f"with {rng.choice(VERBS)}_{name}() as {rng.choice(NOUNS)}:",
                f"if {name}:",
                f"if not self.{name}:",
                f"if {name} is not None:",
                f"for {rng.choice(NOUNS)} in {name}:",
                f"while {name} < {rng.randint(1, 20)}:",
            )
        )
        templates = (
            "Put the body of {name} under {code_head}",
            "Wrap the body of {name} in {code_head}",
            "Indent the body of {name} under {code_head}",
            "Move the whole body of {name} into {code_head}",
        )
        new = [indent + head, *moved]
        instruction = say(rng, templates, name=node.name, code_head=head)
    return Edit(instruction, _joined(view.lines[: body_start(node)], new, view.lines[end_line(node) :]))


BODY_KINDS = {
    "line at start": add_line_at_start,
    "line at end": add_line_at_end,
    "docstring": add_docstring,
    "replace docstring": replace_docstring,
    "replace body": replace_body,
    "wrap body": wrap_body,
}
