"""Edits of whole lines that need no parser: insert, replace, remove, comment, move. Any language with lines."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from corpora.edit_model.edit import Edit
from corpora.edit_model.pieces import Piece
from corpora.edit_model.words import ADJECTIVES, NOUNS, VERBS, phrase_text, restyle, say, sentence, snake

BRACE_FUNCTION_HEAD = re.compile(
    r"\s*(?:export )?(?:async )?(?:function )?(?:const )?#?(\w+)(?: = (?:async )?)?\s?"
    r"\(([\w, ]*)\)(?: =>)? \{$"
)
# A line that ends with one of these goes on in the next line.
OPEN_ENDS = tuple("({[,\\=+-*/|&?:.<>")


def indentation(line: str) -> str:
    """The white space a line begins with."""
    return line[: len(line) - len(line.lstrip())]


def made_up_line(rng: random.Random, language: str) -> str:
    """One statement, unindented, in the language; for Markdown a sentence."""
    name, other, text, number = snake(rng), snake(rng), phrase_text(rng), rng.randint(0, 200)
    if language == "markdown":
        return sentence(rng)
    if language == "python":
        return rng.choice(
            (
                f"{name} = {rng.choice(('None', 'True', 'False', '[]', '{}', str(number)))}",
                f"{name} = {rng.choice(VERBS)}_{other}({rng.choice(NOUNS)})",
                f'print("{text}")',
                f'print("{text}", {name})',
                f'logger.{rng.choice(("debug", "info", "warning"))}("{text}")',
                f"assert {name} is not None",
                f"self.{name} = {rng.choice((other, str(number), 'None'))}",
                f"{name}.{rng.choice(VERBS)}({rng.choice(('', other))})",
                f"{name} += {number}",
            )
        )
    if language == "javascript":
        name, other = restyle(name, "camel"), restyle(other, "camel")
        return rng.choice(
            (
                f"const {name} = {rng.choice((str(number), 'null', f'{other}()', '[]', 'true'))};",
                f'console.log("{text}");',
                f"{name}.{rng.choice(VERBS)}({other});",
                f"this.{name} = {other};",
                f"let {name} = {number};",
            )
        )
    return rng.choice((f"int {name} = {number};", f"{rng.choice(VERBS)}_{other}({name});", f"{name} = {number};"))


def comment(language: str, text: str) -> str:
    """The text as a one-line comment of the language."""
    return f"# {text}" if language == "python" else f"// {text}"


def unique_statements(lines: Sequence[str], language: str) -> list[int]:
    """Numbers of one-line statements whose text stands once in the piece and holds no backtick."""
    text = "\n".join(lines)
    found = []
    for number, line in enumerate(lines):
        bare = line.strip()
        if not 8 <= len(bare) <= 90 or "`" in bare or text.count(bare) > 1 or bare.endswith(OPEN_ENDS):
            continue
        if bare.startswith((*"#/*<})].,|&?:", "@", "else", "case", "elif", "except", "finally", '"""', "'''")):
            continue
        if language in ("c", "cpp") and not bare.endswith(";"):
            continue
        if language == "javascript" and re.match(r"[\w'\"-]+: |import ", bare):
            continue
        previous = next((lines[n].strip() for n in range(number - 1, -1, -1) if lines[n].strip()), "")
        following = next((lines[n] for n in range(number + 1, len(lines)) if lines[n].strip()), "")
        # In the middle of a longer statement, or right before its end.
        if previous.endswith(tuple("([,\\=+|&?.")) or following.strip().startswith((*")].,|&?+:*", "else")):
            continue
        if language == "markdown" and (previous or re.match(r"[-*+\d]", bare)):
            continue
        if len(indentation(following)) > len(indentation(line)):
            continue
        if any(bare.count(left) != bare.count(right) for left, right in ("()", "[]", "{}")):
            continue
        if bare.count('"') % 2 or bare.count("'") % 2:
            continue
        found.append(number)
    return found


def _inside_text(lines: Sequence[str], number: int) -> bool:
    """Whether a line of a Python piece is inside a triple-quoted string."""
    return sum(line.count('"""') + line.count("'''") for line in lines[:number]) % 2 == 1


def _pick(rng: random.Random, piece: Piece) -> tuple[list[str], int] | None:
    lines = piece.text.split("\n")
    numbers = [n for n in unique_statements(lines, piece.language) if not _inside_text(lines, n)]
    return (lines, rng.choice(numbers)) if numbers else None


def _joined(before: Sequence[str], new: Sequence[str], after: Sequence[str]) -> str:
    return "\n".join([*before, *new, *after])


def insert_line(rng: random.Random, piece: Piece) -> Edit | None:
    """Insert a line below or above a given line, with its indentation."""
    picked = _pick(rng, piece)
    if picked is None or piece.language == "markdown":
        return None
    lines, number = picked
    line = lines[number].strip()
    new = made_up_line(rng, piece.language)
    below = rng.random() < 0.65
    if below and line.startswith(("return", "raise", "break", "continue", "throw", "pass")):
        below = False
    templates = (
        (
            "After the line {code_line} add {code_new}",
            "Add {code_new} after {code_line}",
            "Add the line {code_new} below {code_line}",
        )
        if below
        else (
            "Before the line {code_line} add {code_new}",
            "Insert {code_new} before {code_line}",
            "Add the line {code_new} above {code_line}",
        )
    )
    place = number + below
    after = _joined(lines[:place], [indentation(lines[number]) + new], lines[place:])
    return Edit(say(rng, templates, code_line=line, code_new=new), after)


def remove_line(rng: random.Random, piece: Piece) -> Edit | None:
    """Remove a line that is not the only one of its block."""
    picked = _pick(rng, piece)
    if picked is None:
        return None
    lines, number = picked
    indent = indentation(lines[number])
    neighbours = [lines[n] for n in (number - 1, number + 1) if 0 <= n < len(lines)]
    if piece.language == "markdown" or not any(line.strip() and indentation(line) == indent for line in neighbours):
        return None
    templates = (
        "Remove the line {code_line}",
        "Delete the line {code_line}",
        "Remove {code_line}",
        "Drop the line {code_line}",
    )
    return Edit(say(rng, templates, code_line=lines[number].strip()), _joined(lines[:number], [], lines[number + 1 :]))


def replace_line(rng: random.Random, piece: Piece) -> Edit | None:
    """Replace one line with another."""
    picked = _pick(rng, piece)
    if picked is None:
        return None
    lines, number = picked
    old = lines[number].strip()
    if old.startswith(("def ", "class ", "return ", "import ", "from ")) and piece.language == "python":
        if not old.startswith("return "):
            return None
        new = f"return {snake(rng)}"
    else:
        new = made_up_line(rng, piece.language)
    templates = (
        "Replace the line {code_old} with {code_new}",
        "Change the line {code_old} to {code_new}",
        "Replace {code_old} by {code_new}",
        "Write {code_new} instead of {code_old}",
    )
    after = _joined(lines[:number], [indentation(lines[number]) + new], lines[number + 1 :])
    return Edit(say(rng, templates, code_old=old, code_new=new), after)


def add_comment(rng: random.Random, piece: Piece) -> Edit | None:
    """Put a comment line above a given line."""
    picked = _pick(rng, piece)
    if picked is None or piece.language == "markdown":
        return None
    lines, number = picked
    text = (
        sentence(rng).rstrip(".")
        if rng.random() < 0.6
        else f"TODO: {rng.choice(VERBS)} the {rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"
    )
    new = comment(piece.language, text)
    templates = (
        "Add the comment {code_new} above {code_line}",
        "Put the comment {code_new} before the line {code_line}",
        "Comment the line {code_line} with {code_new} above it",
    )
    after = _joined(lines[:number], [indentation(lines[number]) + new], lines[number:])
    return Edit(say(rng, templates, code_line=lines[number].strip(), code_new=new), after)


def comment_out(rng: random.Random, piece: Piece) -> Edit | None:
    """Turn one line into a comment."""
    picked = _pick(rng, piece)
    if picked is None or piece.language == "markdown":
        return None
    lines, number = picked
    line = lines[number]
    after = _joined(lines[:number], [indentation(line) + comment(piece.language, line.strip())], lines[number + 1 :])
    return Edit(
        say(rng, ("Comment out the line {code_line}", "Comment out {code_line}"), code_line=line.strip()),
        after,
    )


def add_at_edge(rng: random.Random, piece: Piece) -> Edit | None:
    """Add one line at the very start or the very end of the text."""
    new = made_up_line(rng, piece.language)
    if piece.language != "markdown" and rng.random() < 0.4:
        new = comment(piece.language, sentence(rng).rstrip("."))
    if rng.random() < 0.5:
        templates = (
            "Add {code_new} as the first line",
            "Put {code_new} at the top of the file",
            "Insert the line {code_new} at the very top",
        )
        return Edit(say(rng, templates, code_new=new), new + "\n" + piece.text)
    templates = (
        "Add {code_new} as the last line",
        "Put {code_new} at the end of the file",
        "Append the line {code_new}",
    )
    return Edit(say(rng, templates, code_new=new), piece.text + new + "\n")


def brace_function_line(rng: random.Random, piece: Piece) -> Edit | None:
    """Add a line at the start of a function of a language with braces."""
    if piece.language != "javascript":
        return None
    lines = piece.text.split("\n")
    heads = []
    for number, line in enumerate(lines[:-2]):
        match = BRACE_FUNCTION_HEAD.match(line)
        if match and match.group(1) not in ("if", "for", "while", "switch", "catch") and lines[number + 1].strip():
            heads.append((number, match))
    if not heads:
        return None
    number, match = rng.choice(heads)
    name = match.group(1)
    templates: tuple[str, ...]
    if len(re.findall(rf"\b{name}\s*(?:= (?:async )?)?\([^()]*\)(?: =>)? \{{", piece.text)) != 1:
        return None
    if rng.random() < 0.35:
        parameter = restyle(snake(rng), "camel")
        old = match.group(2)
        if re.search(rf"\b{parameter}\b", piece.text):
            return None
        head = lines[number].replace(f"({old})", f"({old + ', ' if old else ''}{parameter})", 1)
        templates = (
            "Add a parameter {plain_new} to {plain_name}",
            "Give {plain_name} a new last parameter {plain_new}",
        )
        return Edit(
            say(rng, templates, plain_new=parameter, plain_name=name),
            _joined(lines[:number], [head], lines[number + 1 :]),
        )
    new = made_up_line(rng, piece.language)
    if rng.random() < 0.5:
        # npm's modules leave the semicolon out; a task may go either way.
        new = new.rstrip(";")
    templates = (
        "Add the line {code_new} at the start of {plain_name}",
        "Insert {code_new} as the first line of the function {plain_name}",
        "Begin {plain_name} with {code_new}",
    )
    after = _joined(lines[: number + 1], [indentation(lines[number]) + "  " + new], lines[number + 1 :])
    return Edit(say(rng, templates, code_new=new, plain_name=name), after)


LINE_KINDS = {
    "insert line": insert_line,
    "remove line": remove_line,
    "replace line": replace_line,
    "comment": add_comment,
    "comment out": comment_out,
    "first or last line": add_at_edge,
}
BRACE_FUNCTION_KINDS = {"brace function": brace_function_line}
