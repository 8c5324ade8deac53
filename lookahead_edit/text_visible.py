"""Texts of others, such as names and answers, in a form that no terminal, browser or log obeys."""

from __future__ import annotations

import re

# Control characters, and those that change the direction of what follows: shown by a sign, never sent as they are.
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_UNSAFE_IN_A_LINE = re.compile(f"{_UNSAFE.pattern}|[\t\n\ud800-\udfff]")


def visible_text(text: str) -> str:
    """Control characters as signs: nothing that a terminal or a browser would obey. Line ends and tabs stay.

    >>> visible_text("a\\x1b[31m\\r\\n")
    'a␛[31m␍\\n'
    """
    return _UNSAFE.sub(lambda match: _sign(match.group()), text)


def in_one_line(text: str) -> str:
    """A message in one line whatever names are in it: line ends and control characters as Python spells them.

    >>> print(in_one_line("can't read a\\nb"))
    can't read a\\nb
    """
    return _UNSAFE_IN_A_LINE.sub(lambda match: match.group().encode("unicode_escape").decode("ascii"), text)


def _sign(character: str) -> str:
    code = ord(character)
    if code < 0x20 or code == 0x7F:
        return "␡" if code == 0x7F else chr(0x2400 + code)  # Unicode's pictures of the control characters
    return f"⟨U+{code:04X}⟩"
