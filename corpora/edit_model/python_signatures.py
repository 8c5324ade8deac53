"""Edits of Python signatures and of whole definitions: parameters, annotations, decorators, removal, moves, imports."""

from __future__ import annotations

import ast
import random
import re

from corpora.edit_model.edit import Edit
from corpora.edit_model.line_edits import made_up_line
from corpora.edit_model.pieces import Piece
from corpora.edit_model.python_view import (
    DEFINITIONS,
    FunctionNode,
    PythonView,
    end_line,
    first_line,
    head_line,
    parses,
)
from corpora.edit_model.words import NOUNS, VERBS, restyle, say, snake

TYPES = (
    "int",
    "str",
    "float",
    "bool",
    "bytes",
    "list[str]",
    "dict[str, int]",
    "Path",
    "str | None",
    "int | None",
    "Sequence[str]",
)
MODULES = (
    "json", "os", "re", "sys", "math", "time", "random", "logging", "itertools", "functools", "threading", "hashlib",
    "shutil", "socket", "struct", "tempfile", "uuid", "warnings", "subprocess", "datetime",
)  # fmt: skip


def _joined(*parts: list[str]) -> str:
    return "\n".join(line for part in parts for line in part)


def _one_line_heads(view: PythonView) -> list[FunctionNode]:
    return [node for node in view.functions if head_line(node, view.lines) is not None]


def add_parameter(rng: random.Random, piece: Piece) -> Edit | None:
    """Add a last parameter with a default to a signature on one line."""
    view = PythonView.of(piece)
    nodes = []
    for node in _one_line_heads(view) if view else ():
        if not (node.args.vararg or node.args.kwarg or node.args.kwonlyargs or node.args.posonlyargs):
            nodes.append(node)
    if view is None or not nodes:
        return None
    node = rng.choice(nodes)
    line = view.lines[node.lineno - 1]
    name = snake(rng)
    default = rng.choice(("None", "False", "True", "0", "1", '""', str(rng.randint(2, 100))))
    if re.search(rf"\b{name}\b", piece.text):
        return None
    new = f"{name}={default}"
    if any(argument.annotation for argument in node.args.args):
        kind = {"None": "str | None", "False": "bool", "True": "bool", '""': "str"}.get(default, "int")
        new = f"{name}: {kind} = {default}"
    # The closing bracket of the parameters is the last one before the return annotation.
    head = re.fullmatch(r"(.*?def \w+\(.*)(\)(?: *->[^()]*(?:\[.*\])?)?:.*)", line)
    if head is None or "->" in head.group(1):
        return None
    start = head.group(1)
    templates = (
        "Add a parameter {code_new} to {name}",
        "Add the parameter {code_new} to {name}",
        "Give {name} a new last parameter {code_new}",
        "Add {code_new} as the last parameter of {name}",
    )
    joined = start + ("" if start.endswith("(") else ", ") + new + head.group(2)
    after = _joined(view.lines[: node.lineno - 1], [joined], view.lines[node.lineno :])
    return Edit(say(rng, templates, code_new=new, name=node.name), after) if parses(after) else None


def change_default(rng: random.Random, piece: Piece) -> Edit | None:
    """Change the default value of one parameter."""
    view = PythonView.of(piece)
    places = []
    for node in view.functions if view else ():
        defaults = node.args.defaults
        positional = [*node.args.posonlyargs, *node.args.args]
        for argument, value in zip(positional[-len(defaults) :] if defaults else [], defaults, strict=True):
            if isinstance(value, ast.Constant) and value.lineno == value.end_lineno:
                places.append((node, argument.arg, value))
    if view is None or not places:
        return None
    node, parameter, value = rng.choice(places)
    line = view.lines[value.lineno - 1]
    assert value.end_col_offset is not None
    old = line[value.col_offset : value.end_col_offset]
    new = rng.choice(("None", "True", "False", str(rng.randint(0, 100)), f'"{rng.choice(NOUNS)}"', "()"))
    if new == old:
        return None
    changed = line[: value.col_offset] + new + line[value.end_col_offset :]
    templates = (
        "Change the default of {parameter} in {name} to {new}",
        "Set the default value of {parameter} to {new} in {name}",
        "In {name}, {parameter} should default to {new}",
    )
    after = _joined(view.lines[: value.lineno - 1], [changed], view.lines[value.lineno :])
    return Edit(say(rng, templates, parameter=parameter, name=node.name, new=new), after)


def retype(rng: random.Random, piece: Piece) -> Edit | None:
    """Change or add the annotation of a parameter, or the return type."""
    view = PythonView.of(piece)
    nodes = _one_line_heads(view) if view else []
    if view is None or not nodes:
        return None
    node = rng.choice(nodes)
    line = view.lines[node.lineno - 1]
    new = rng.choice(TYPES)
    if rng.random() < 0.35:
        if node.returns is None:
            changed = line.rstrip()[:-1] + f" -> {new}:"
            templates: tuple[str, ...] = (
                "Add the return type {code_new} to {name}",
                "Annotate {name} to return {code_new}",
            )
        else:
            changed = line[: node.returns.col_offset] + new + line[node.returns.end_col_offset :]
            templates = (
                "Change the return type of {name} to {code_new}",
                "Make {name} return {code_new} in its annotation",
            )
        instruction = say(rng, templates, name=node.name, code_new=new)
    else:
        arguments = [argument for argument in node.args.args if argument.arg not in ("self", "cls")]
        without_default = len(node.args.args) - len(node.args.defaults)
        plain = [
            argument for argument in arguments if argument.annotation or argument in node.args.args[:without_default]
        ]
        if not plain:
            return None
        argument = rng.choice(plain)
        if argument.annotation is None:
            changed = f"{line[: argument.end_col_offset]}: {new}{line[argument.end_col_offset :]}"
            templates = (
                "Annotate the parameter {parameter} of {name} as {code_new}",
                "Give {parameter} in {name} the type {code_new}",
            )
        else:
            changed = line[: argument.annotation.col_offset] + new + line[argument.annotation.end_col_offset :]
            templates = (
                "Change the type of {parameter} in {name} to {code_new}",
                "Retype {parameter} of {name} as {code_new}",
            )
        instruction = say(rng, templates, parameter=argument.arg, name=node.name, code_new=new)
    if changed == line:
        return None
    after = _joined(view.lines[: node.lineno - 1], [changed], view.lines[node.lineno :])
    return Edit(instruction, after) if parses(after) else None


def remove_definition(rng: random.Random, piece: Piece) -> Edit | None:
    """Remove a function, method or class together with the blank lines that set it apart."""
    view = PythonView.of(piece)
    if view is None:
        return None
    places = []
    for parent in view.scopes():
        for node in parent.body if len(parent.body) > 1 else ():
            if isinstance(node, DEFINITIONS):
                places.append((parent, node))
    names = [node.name for _, node in places]
    places = [(parent, node) for parent, node in places if names.count(node.name) == 1]
    if not places:
        return None
    parent, node = rng.choice(places)
    first, end = first_line(node), end_line(node)
    if view.lines[first - 1].lstrip().startswith(("#", "@")):
        return None
    if node is parent.body[-1]:
        while first > 0 and not view.lines[first - 1].strip():
            first -= 1
    else:
        while not view.lines[end].strip():
            end += 1
    what = "class" if isinstance(node, ast.ClassDef) else "function" if isinstance(parent, ast.Module) else "method"
    templates = (
        f"Remove the {what} {{name}}",
        f"Delete the {what} {{name}}",
        "Remove {name}",
        "Delete {name}",
        "Drop {name} entirely",
    )
    after = _joined(view.lines[:first], view.lines[end:])
    return Edit(say(rng, templates, name=node.name), after) if parses(after) else None


def swap_definitions(rng: random.Random, piece: Piece) -> Edit | None:
    """Move a definition above its upper neighbour; the blank lines between stay where they are."""
    view = PythonView.of(piece)
    if view is None:
        return None
    pairs = []
    for parent in view.scopes():
        for upper, lower in zip(parent.body, parent.body[1:], strict=False):
            if isinstance(upper, DEFINITIONS) and isinstance(lower, DEFINITIONS) and upper.name != lower.name:
                pairs.append((upper, lower))
    if not pairs:
        return None
    upper, lower = rng.choice(pairs)
    between = view.lines[end_line(upper) : first_line(lower)]
    if any(line.strip() for line in between) or end_line(lower) - first_line(upper) > 40:
        return None
    if first_line(upper) and view.lines[first_line(upper) - 1].lstrip().startswith("#"):
        return None
    down = rng.random() < 0.4
    templates = (
        ("Move {upper} below {lower}", "Put {upper} after {lower}")
        if down
        else ("Move {lower} above {upper}", "Put {lower} before {upper}", "Swap {upper} and {lower}")
    )
    after = _joined(
        view.lines[: first_line(upper)],
        view.lines[first_line(lower) : end_line(lower)],
        between,
        view.lines[first_line(upper) : end_line(upper)],
        view.lines[end_line(lower) :],
    )
    return Edit(say(rng, templates, upper=upper.name, lower=lower.name), after)


def add_decorator(rng: random.Random, piece: Piece) -> Edit | None:
    """Put a decorator on a function that has none."""
    view = PythonView.of(piece)
    nodes = [node for node in view.functions if not node.decorator_list] if view else []
    if view is None or not nodes:
        return None
    node = rng.choice(nodes)
    new = "@" + rng.choice(
        ("cache", "staticmethod", "classmethod", "property", snake(rng), f"{rng.choice(NOUNS)}.{rng.choice(VERBS)}")
    )
    line = node.lineno - 1
    templates = (
        "Add the decorator {code_new} to {name}",
        "Decorate {name} with {code_new}",
        "Put {code_new} on {name}",
    )
    after = _joined(view.lines[:line], [" " * node.col_offset + new], view.lines[line:])
    return Edit(say(rng, templates, code_new=new, name=node.name), after)


def add_function(rng: random.Random, piece: Piece) -> Edit | None:
    """Append a given function to the file, two blank lines below the rest."""
    view = PythonView.of(piece)
    if view is None or not view.tree.body or not piece.text.endswith("\n"):
        return None
    name = snake(rng)
    if name in piece.text:
        return None
    parameters = ", ".join(rng.sample(NOUNS, rng.randint(0, 2)))
    body = [made_up_line(rng, "python") for _ in range(rng.randint(0, 2))] + [f"return {snake(rng)}"]
    new = f"def {name}({parameters}):\n" + "".join(f"    {line}\n" for line in body)
    templates = ("Add this function at the end of the file", "Append this function", "Add this at the end")
    instruction = say(rng, templates).rstrip(".?") + f":\n```python\n{new}```"
    return Edit(instruction, f"{piece.text}\n\n{new}")


def insert_import(rng: random.Random, piece: Piece) -> Edit | None:
    """Add an import: below a given import, after the last one, or as the first line."""
    view = PythonView.of(piece)
    if view is None:
        return None
    imports = [node for node in view.tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    module = rng.choice(MODULES)
    new = rng.choice(
        (
            f"import {module}",
            f"from {module} import {rng.choice(VERBS)}",
            f"from {snake(rng)} import {restyle(snake(rng), 'class')}",
        )
    )
    if new in piece.text:
        return None
    if not imports:
        templates: tuple[str, ...] = (
            "Add {code_new} as the first line",
            "Put {code_new} at the very top",
            "Insert {code_new} at the top of the file",
        )
        return Edit(say(rng, templates, code_new=new), f"{new}\n{piece.text}")
    if rng.random() < 0.4:
        place = end_line(imports[-1])
        instruction = say(
            rng, ("Add {code_new} after the last import", "Add {code_new} below the imports"), code_new=new
        )
    else:
        node = rng.choice(imports)
        old = view.lines[node.lineno - 1]
        if end_line(node) != node.lineno or piece.text.count(old) > 1:
            return None
        place = end_line(node)
        instruction = say(
            rng,
            ("Add {code_new} after {code_old}", "Insert {code_new} below {code_old}"),
            code_new=new,
            code_old=old,
        )
    return Edit(instruction, _joined(view.lines[:place], [new], view.lines[place:]))


def make_async(rng: random.Random, piece: Piece) -> Edit | None:
    """Turn one def into an async def."""
    view = PythonView.of(piece)
    nodes = [node for node in view.functions if isinstance(node, ast.FunctionDef)] if view else []
    if view is None or not nodes:
        return None
    node = rng.choice(nodes)
    line = view.lines[node.lineno - 1].replace("def ", "async def ", 1)
    after = _joined(view.lines[: node.lineno - 1], [line], view.lines[node.lineno :])
    return Edit(
        say(
            rng, ("Make {name} async", "Turn {name} into an async function", "Make {name} an async def"), name=node.name
        ),
        after,
    )


SIGNATURE_KINDS = {
    "new parameter": add_parameter,
    "change default": change_default,
    "retype": retype,
    "remove definition": remove_definition,
    "move definition": swap_definitions,
    "decorator": add_decorator,
    "new function": add_function,
    "insert import": insert_import,
    "make async": make_async,
}
