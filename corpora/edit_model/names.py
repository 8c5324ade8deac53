"""Renames: only of names whose every occurrence is the same code name, so that one right answer exists."""

from __future__ import annotations

import ast
import builtins
import io
import keyword
import random
import re
import tokenize

from corpora.edit_model.edit import Edit
from corpora.edit_model.parsing import parse_python
from corpora.edit_model.pieces import Piece
from corpora.edit_model.words import fresh_name, say, split_words

WORD = re.compile(r"[A-Za-z_$][\w$]*")
COMMENT_OR_STRING = re.compile(
    r"//[^\n]*|/\*.*?\*/|#[^\n]*|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`", re.DOTALL
)
RESERVED = frozenset(
    split_words(
        """
    abstract any arguments as async await bool boolean break case catch char class const console constexpr
    continue default define delete do double else endif enum exports extends extern false final finally
    float for from function get if ifdef ifndef implements import in include inline instanceof int interface
    let long module namespace new null number object of operator override private process protected
    prototype public require return set short signed sizeof static std string struct super switch template
    then this throw true try type typedef typename typeof undefined union unsigned using var virtual void
    volatile while with yield
    """
    )
)
TEMPLATES = (
    "Rename {old} to {new}",
    "Rename {old} to {new}",
    "Rename {old} to {new} everywhere",
    "Rename the name {old} to {new} in this file",
    "Rename all uses of {old} to {new}",
    "Use {new} instead of {old}",
    "Use the name {new} instead of {old}",
    "Replace the name {old} by {new}",
    "Change the name {old} to {new} everywhere",
    "Call {old} {new} instead",
)
TEMPLATES_OF_ROLE = {
    "function": ("Rename the function {old} to {new}", "Rename function {old} to {new}"),
    "class": ("Rename the class {old} to {new}", "Rename class {old} to {new}"),
    "variable": ("Rename the variable {old} to {new}", "Rename variable {old} to {new}"),
    "parameter": ("Rename the parameter {old} to {new}", "Rename the argument {old} to {new}"),
}


def count_names(piece: Piece) -> dict[str, int]:
    """How often each name stands in the code outside comments and strings; empty where the text has no tokens."""
    counts: dict[str, int] = {}
    if piece.language == "python":
        try:
            for token in tokenize.generate_tokens(io.StringIO(piece.text).readline):
                if token.type == tokenize.NAME:
                    counts[token.string] = counts.get(token.string, 0) + 1
        except (tokenize.TokenError, IndentationError):
            return {}
    else:
        for match in WORD.finditer(COMMENT_OR_STRING.sub(" ", piece.text)):
            counts[match.group()] = counts.get(match.group(), 0) + 1
    return counts


def is_unambiguous(name: str, num_names: int, text: str) -> bool:
    """Whether `name` stands nowhere but at its `num_names` places: not in longer words, comments or strings."""
    return text.lower().count(name.lower()) == num_names


def _python_roles(text: str) -> dict[str, str]:
    """Names that the piece itself defines, and what they are; a name with two roles is a plain `name`."""
    tree = parse_python(text)
    if tree is None:
        return {}
    roles: dict[str, str] = {}

    def note(name: str, role: str) -> None:
        roles[name] = role if roles.get(name, role) == role else "name"

    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            note(node.name, "function")
        elif isinstance(node, ast.ClassDef):
            note(node.name, "class")
        elif isinstance(node, ast.arg):
            note(node.arg, "parameter")
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            # An assigned parameter stays a parameter.
            if roles.get(node.id) != "parameter":
                note(node.id, "variable")
        elif isinstance(node, ast.Attribute):
            note(node.attr, "name")
    return roles


def rename(rng: random.Random, piece: Piece) -> Edit | None:
    """Give one name of the piece a new one, at every place."""
    if piece.language == "markdown":
        return None
    is_python = piece.language == "python"
    roles = _python_roles(piece.text) if is_python else {}
    candidates = []
    for name, num_names in sorted(count_names(piece).items()):
        if len(name) < 3 or name in RESERVED or keyword.iskeyword(name) or name in ("self", "cls"):
            continue
        if name.startswith("__") or hasattr(builtins, name) or (is_python and name not in roles):
            continue
        if num_names <= 14 and is_unambiguous(name, num_names, piece.text):
            candidates.append((name, num_names))
    if not candidates:
        return None
    # Names that stand at several places are the harder and the more useful ones.
    old, _ = rng.choices(candidates, [min(num_names, 4) for _, num_names in candidates])[0]
    new = fresh_name(rng, old, piece.text, prefer_camel=piece.language == "javascript")
    templates = TEMPLATES + 3 * TEMPLATES_OF_ROLE.get(roles.get(old, "name"), ())
    pattern = rf"(?<![\w$]){re.escape(old)}(?![\w$])"
    return Edit(say(rng, templates, old=old, new=new), re.sub(pattern, new, piece.text))
