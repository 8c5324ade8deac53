"""Made-up short modules of several small functions, for training only.

Where an edit belongs is only a question in a file with several places. Real code has one function in ten lines; here
it has three, so that a step's compute goes into that question.
"""

from __future__ import annotations

import random

from corpora.edit_model.pieces import Piece
from corpora.edit_model.words import NOUNS, VERBS, phrase_text, restyle, sentence, snake


def _python_body(rng: random.Random, names: list[str], *, is_method: bool) -> list[str]:
    """One to four statements that use the parameters and each other's names."""
    known = [*names, rng.choice(NOUNS)]
    lines: list[str] = []
    for _ in range(rng.randint(0, 2)):
        new, old, verb = snake(rng), rng.choice(known), rng.choice(VERBS)
        block = rng.choice(
            (
                [f"{new} = {old}.{verb}()"],
                [f"{new} = {verb}({old}, {rng.randint(1, 500)})"],
                [f'{new} = {old}["{rng.choice(NOUNS)}"]'],
                [f'print("{phrase_text(rng)}", {old})'],
                [f"if not {old}:", f"    return {rng.choice(('None', 'False', str(rng.randint(0, 9))))}"],
                [f"for {new} in {old}:", f"    {verb}({new})"],
                [f"{new} = [{verb}(part) for part in {old}]"],
                [f"self.{new} = {old}" if is_method else f"{new} = {old} * {rng.randint(2, 99)}"],
            )
        )
        lines += block
        if block[0].startswith(f"{new} ="):
            known.append(new)
    last = rng.choice(known)
    lines.append(
        rng.choice(
            (
                f"return {last}",
                f"return {rng.choice(VERBS)}({last})",
                f"{rng.choice(VERBS)}_{rng.choice(NOUNS)}({last})",
            )
        )
    )
    return lines


def _python_function(rng: random.Random, *, is_method: bool) -> list[str]:
    names = rng.sample(NOUNS, rng.randint(0, 3))
    parameters = ["self"] if is_method else []
    for position, name in enumerate(names):
        default = f"={rng.choice(('None', 'True', str(rng.randint(0, 50))))}" if position == len(names) - 1 else ""
        parameters.append(name + (default if rng.random() < 0.4 else ""))
    head = f"def {snake(rng)}({', '.join(parameters)}):"
    lines = [f'"""{sentence(rng)}"""'] if rng.random() < 0.2 else []
    return [head, *("    " + line for line in lines + _python_body(rng, names, is_method=is_method))]


def _python_module(rng: random.Random) -> str:
    text = "".join(f"import {rng.choice(NOUNS)}\n" for _ in range(rng.choice((0, 0, 0, 1, 2))))
    text += "\n\n" if text else ""
    if rng.random() < 0.4:
        methods = [
            "\n".join("    " + line for line in _python_function(rng, is_method=True)) for _ in range(rng.randint(2, 3))
        ]
        return f"{text}class {restyle(snake(rng), 'class')}:\n" + "\n\n".join(methods) + "\n"
    functions = ["\n".join(_python_function(rng, is_method=False)) for _ in range(rng.randint(2, 3))]
    return text + "\n\n\n".join(functions) + "\n"


def _javascript_module(rng: random.Random) -> str:
    end = rng.choice((";", ""))
    functions = []
    for _ in range(rng.randint(2, 3)):
        names = rng.sample(NOUNS, rng.randint(0, 2))
        known = [*names, rng.choice(NOUNS)]
        lines = []
        for _ in range(rng.randint(0, 2)):
            new, old = restyle(snake(rng), "camel"), rng.choice(known)
            lines.append(
                rng.choice(
                    (
                        f"const {new} = {old}.{rng.choice(VERBS)}(){end}",
                        f"const {new} = {rng.choice(VERBS)}({old}, {rng.randint(1, 500)}){end}",
                        f"console.log('{phrase_text(rng)}', {old}){end}",
                    )
                )
            )
            if lines[-1].startswith("const"):
                known.append(new)
        lines.append(f"return {rng.choice(known)}{end}")
        name = restyle(snake(rng), "camel")
        head = rng.choice((f"function {name}({', '.join(names)}) {{", f"const {name} = ({', '.join(names)}) => {{"))
        functions.append("\n".join([head, *("  " + line for line in lines), "}"]))
    return "\n\n".join(functions) + "\n"


def made_up_piece(rng: random.Random, language: str) -> Piece | None:
    """A module of two or three functions in Python or JavaScript; None for other languages."""
    if language == "python":
        return Piece(language, _python_module(rng), "made up")
    if language == "javascript":
        return Piece(language, _javascript_module(rng), "made up")
    return None
