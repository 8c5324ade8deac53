"""Finds lines such as ``# ... existing code ...``: the model named code instead of writing it.

Meant to be precise rather than complete. Only whole-line comments and lines led by an ellipsis count; a bare ``...``
is valid Python, and ``...rest`` is JavaScript's spread.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from lookahead_edit.text_lines import split_lines

_COMMENT_OPENING = re.compile(r"(?:#+|//+|/\*+|\*+|--+|;+|%+|<!--|\{/\*+)[ \t]*")
_COMMENT_CLOSING = re.compile(r"[ \t]*(?:\*+/\}?|--+>)\Z")

_THINGS = (
    r"(?:code|contents?|files?|class(?:es)?|functions?|methods?|implementations?|imports?|module|body|logic|script"
    r"|document)"
)
_REST = r"(?:the )?(?:rest|remainder) of (?:the |this |your |our )?"
_OTHERS = rf"(?:{_REST}|(?:(?:the |all |any )?(?:existing|remaining|other|previous|original) )+)(?:\w+ )?{_THINGS}"
_VERBS = r"(?:is|are|remains?|stays?|goes|go|continues?)"
_STATES = r"(?:unchanged|the same|as (?:is|before|above)|(?:the )?same as (?:before|above)|omitted|not shown|here)"

# Without an ellipsis a comment must say that code was left out, and nothing else.
_STATEMENT = re.compile(
    rf"{_REST}{_THINGS}|(?:the )?existing code"
    rf"|(?:{_OTHERS}|(?:the )?rest|code) (?:{_VERBS} )?{_STATES}(?: here)?"
    rf"|(?:keep|leave) {_OTHERS} {_STATES}|keep (?:the )?(?:existing|remaining) code"
)
# With one on one side a shorter form will do; with one on either side any hint.
_SHORT_STATEMENT = re.compile(
    rf"(?:(?:keep|leave) )?{_OTHERS}|(?:remains? )?unchanged|{_STATES}|snip(?:ped)?|(?:code )?omitted(?: for brevity)?"
)
_HINT = re.compile(
    rf"\b(?:existing|unchanged|omitted|remaining|remainder|previous|rest|snip|same as|as before|as above"
    rf"|other {_THINGS}|{_THINGS} here|your code)\b"
)


class PlaceholderLine(NamedTuple):
    """A line that stands for code it leaves out."""

    number: int  # from 1, in the answer
    text: str


def placeholder_lines(before: str, after: str) -> list[PlaceholderLine]:
    """Placeholders of `after` that `before` does not have. Such an answer cuts the file: warn, never write silently.

    >>> placeholder_lines("a = 1\\nb = 2\\n", "a = 3\\n# ... rest of the code unchanged ...\\n")
    [PlaceholderLine(number=2, text='# ... rest of the code unchanged ...')]
    """
    known = {line.strip() for line in split_lines(before)}
    return [
        PlaceholderLine(number, line.strip())
        for number, line in enumerate(split_lines(after), start=1)
        if _is_placeholder(line.strip()) and line.strip() not in known
    ]


def _is_placeholder(line: str) -> bool:
    text = line.replace("…", "...").lower()
    opening = _COMMENT_OPENING.match(text)
    body = _COMMENT_CLOSING.sub("", text[opening.end() :] if opening else text).strip(" \t([{<)]}>")
    if not opening and not (body.startswith(("... ", "...(", "...[")) or (body[:3] == body[-3:] == "...")):
        return False
    words = body.strip(" \t.([{<)]}>")
    if not words:
        return opening is not None and "..." in body
    if not (body.startswith("...") or body.endswith("...")):
        return _STATEMENT.fullmatch(words) is not None
    if body.startswith("...") and body.endswith("..."):
        return _HINT.search(words) is not None
    return _STATEMENT.fullmatch(words) is not None or _SHORT_STATEMENT.fullmatch(words) is not None
