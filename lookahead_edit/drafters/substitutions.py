"""Which words a text replaces by which: read from an instruction, or from one edit that was seen.

Knows text only: no tokens, no file, and not whether anything it finds occurs there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_PHRASE_CHARACTERS = 80
MAX_INSTRUCTION_CHARACTERS = 20_000  # of more, the beginning and the end are read
MAX_VERBS = 32  # at the beginning, and at the end


@dataclass(frozen=True, slots=True)
class Substitution:
    """Whole words `old` become `new`; `trust` is the estimated probability that the next `old` does, 0 to 1."""

    old: str
    new: str
    trust: float


RENAME_TRUST = 0.9
CHANGE_TRUST = 0.75
PLAIN_CHANGE_TRUST = 0.5  # "change color to red" may mean the word or what it stands for
# Of 200 replacements in edits of public histories and releases whose words had not occurred before: how often the next
# such words were replaced alike rather than kept.
PHRASE_TRUST = 0.8
WORD_TRUST = 0.65
WEAK_TRUST = 0.35  # a number, a letter, a keyword, or a word that becomes an expression

_KIND = (
    r"(?:(?:local|global|private|public|static|helper|instance|class|member|loop)[ \t]+)?"
    r"(?:variables?|functions?|methods?|class(?:es)?|parameters?|params?|arguments?|args?|attributes?|fields?|constants?"
    r"|propert(?:y|ies)|names?|identifiers?|symbols?|types?|modules?|keys?|columns?|structs?|enums?|interfaces?"
    r"|strings?|words?|members?|traits?|packages?|tables?|options?|flags?|props?|components?|hooks?|macros?|labels?)"
    r"(?:[ \t]+names?)?"
)
_QUOTED = r"`[^`\n]{1,80}`|\"[^\"\n]{1,80}\"|'[^'\n]{1,80}'|“[^”\n]{1,80}”|\u2018[^\u2019\n]{1,80}\u2019"
_BARE = r"[$@#]?\w+(?:(?:\.|::|-)\w+){0,8}(?:\(\))?"
_TERM = rf"(?:{_QUOTED}|{_BARE})"
_BLANK = r"[ \t]{1,4}"
_GAP = r"\s{1,8}"
_ARROW = r"(?:->|=>|→|⟶|⇒|➜)"
_ARTICLE = rf"(?:(?:the|a|an|our|this|that|its|old|new|existing){_BLANK})?"
# "the function foo", "`foo`", "foo": an article without a kind, as in "the default", names a thing, not a word.
_OLD = (
    rf"(?:{_ARTICLE}(?:{_KIND}{_BLANK})(?:(?:named|called|from){_BLANK})?)?(?P<old>{_TERM})(?:{_BLANK}{_KIND})?"
    rf"(?:{_BLANK}(?:in|of|from|inside|on){_BLANK}(?:{_ARTICLE}{_KIND}{_BLANK})?{_TERM}(?:{_BLANK}{_KIND})?)?"
)
_NEW = rf"(?:{_ARTICLE}{_KIND}{_BLANK}|the{_BLANK}(?=[`\"'“\u2018]))?(?P<new>{_TERM})"
# What may follow a new name; anything else continues a description: "to a list", "with bar(x)".
_END = (
    r"(?=\s*(?:$|[,;:!?)\n]|\.(?!\w)|(?:-|--|—|\u2013)\s"
    r"|(?:and|or|in|inside|within|on|at|of|for|from|throughout|everywhere|across|globally|then|but|so|as|too|also|here"
    r"|where|wherever|instead|only|please|to|because|since|when|while|by|using|without|consistently|with)\b"
    rf"|{_KIND}\b))"
)
_TO = rf"{_GAP}(?:to|into|as|{_ARROW}){_GAP}"
_RENAME = re.compile(rf"{_OLD}(?:{_TO}|\s{{0,4}}{_ARROW}\s{{0,4}}){_NEW}{_END}", re.IGNORECASE)
_REPLACE = re.compile(rf"{_OLD}{_GAP}(?:with|by|to|{_ARROW}){_GAP}{_NEW}{_END}", re.IGNORECASE)
_PAIRS_ARROW = re.compile(
    rf"(?P<old>{_QUOTED}|(?<![\w.]){_BARE})[ \t]{{0,4}}{_ARROW}[ \t]{{0,4}}(?P<new>{_TERM}){_END}", re.IGNORECASE
)
_VERB = re.compile(
    r"\b(?P<rename>renam(?:e|es|ing)|refactor)\b|\b(?P<replace>replac(?:e|es|ing))\b"
    r"|\b(?P<change>chang(?:e|es|ing)|convert)\b",
    re.IGNORECASE,
)
_USES = r"(?:names?|occurrences?|instances?|uses?|usages?|references?|mentions?|calls?)"
_FILLER = re.compile(
    rf"(?:{_GAP}(?:the(?={_GAP}(?:{_USES}|following)\b)|{_USES}(?={_GAP}(?:of|to{_GAP}\S+{_GAP}to)\b)"
    rf"|(?:all|every|each|both|to|of|from|following|variables|functions|identifiers)(?=[\s:]):?))*{_GAP}"
    rf"(?:[-*•]{_GAP}|\d[.)]{_GAP})?",
    re.IGNORECASE,
)
_JOIN = re.compile(
    r"[ \t]*(?:,?\s{0,4}(?:and|&)\s{1,4}(?:also\s)?|[,;]\s{0,4}|\n\s{0,8}(?:[-*•]|\d+[.)])?\s{0,4})"
    r"(?:(?:renam|replac|chang)(?:e|ing)\s{1,4})?",
    re.IGNORECASE,
)
_OTHER_FORMS = [
    (re.compile(rf"\buse{_GAP}{_NEW}{_GAP}(?:instead{_GAP}of|rather{_GAP}than){_GAP}{_OLD}{_END}", re.I), CHANGE_TRUST),
    (re.compile(rf"\bsubstitute{_GAP}{_NEW}{_GAP}for{_GAP}{_OLD}{_END}", re.I), CHANGE_TRUST),
    (
        re.compile(
            rf"(?<![\w.]){_OLD}{_GAP}(?:should|must|is|to){_GAP}(?:now{_GAP})?(?:be{_GAP})?(?:now{_GAP})?"
            rf"(?:called|named|renamed(?:{_GAP}(?:to|as))?){_GAP}{_NEW}{_END}",
            re.I,
        ),
        RENAME_TRUST,
    ),
    (re.compile(r"(?<!\w)s/(?P<old>[^/\n]{1,80})/(?P<new>[^/\n]{1,80})/g?(?!\w)"), RENAME_TRUST),
]
_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        "and as assert async await break case catch class const continue def default del delete do elif else enum"
        " except export extends false False final finally fn for from func function if impl import in interface is"
        " lambda let match mut new nil None not null or package pass private protected pub public raise return self"
        " static struct super switch this throw throws true True try type use var void while with yield int float str"
        " bool string double char long list dict set tuple print len range",
    )
)
_PRONOUNS = frozenset(("it", "this", "that", "these", "those", "them", "they", "the", "all", "everything", "file"))
_LOOSE_WORDS = frozenset(
    (
        "a",
        "an",
        "its",
        "something",
        "name",
        "names",
        "code",
        "default",
        "value",
        "values",
        "be",
        "use",
        "using",
        "return",
    )
)
_KIND_ALONE = re.compile(_KIND, re.IGNORECASE)


def from_instruction(text: str) -> list[Substitution]:
    """What the words of an instruction ask for, in order; at most one for each old word. Linear in the text.

    Example:
        >>> [(found.old, found.new) for found in from_instruction("Rename foo to bar, and `a b` to `c`.")]
        [('foo', 'bar'), ('a b', 'c')]
    """
    if len(text) > MAX_INSTRUCTION_CHARACTERS:
        half = MAX_INSTRUCTION_CHARACTERS // 2
        text = text[:half] + "\n\n" + text[-half:]
    found: dict[str, Substitution] = {}
    for match, trust in _matches(text):
        substitution = _substitution(match, trust)
        if substitution is not None:
            found.setdefault(substitution.old, substitution)
    return list(found.values())


def _matches(text: str) -> Iterator[tuple[re.Match[str], float]]:
    verbs = list(_VERB.finditer(text))
    for verb in verbs[:MAX_VERBS] + verbs[MAX_VERBS:][-MAX_VERBS:]:
        pattern = _REPLACE if verb["replace"] else _RENAME
        trust = RENAME_TRUST if verb["rename"] else CHANGE_TRUST
        filler = _FILLER.match(text, verb.end())
        match = pattern.match(text, filler.end()) if filler else None
        if match is None and verb["rename"]:  # "rename foo's argument x to y"
            stop = next((end for end in (text.find(mark, verb.end()) for mark in ".\n;") if end >= 0), len(text))
            match = pattern.search(text, verb.end(), min(stop + 1, verb.end() + 200))
            if match is not None and _KIND_ALONE.fullmatch(match["old"]):  # "rename the function to y"
                match = None
        while match is not None:
            yield match, trust
            join = _JOIN.match(text, match.end())
            match = pattern.match(text, join.end()) if join else None
    for match in _PAIRS_ARROW.finditer(text):
        is_quoted = match["old"][0] in "`\"'“\u2018"
        is_line = not text[text.rfind("\n", 0, match.start()) + 1 : match.start()].strip(" \t-*•0123456789.)")
        if is_quoted or (is_line and _is_name(_bare(match["old"])) and _is_name(_bare(match["new"]))):
            yield match, CHANGE_TRUST
    for other, trust in _OTHER_FORMS:
        for match in other.finditer(text):
            yield match, trust


def _substitution(match: re.Match[str], trust: float) -> Substitution | None:
    old, new = _bare(match["old"]), _bare(match["new"])
    if not old or not new or old == new:
        return None
    if match["old"] != old:  # quoted, or a call
        return Substitution(old, new, trust)
    if old.lower() in _PRONOUNS or (old in _KEYWORDS and _KIND_ALONE.fullmatch(old)):
        return None
    if trust < RENAME_TRUST:
        is_thing = old.lower() in _LOOSE_WORDS or _KIND_ALONE.fullmatch(old)
        if is_thing or new.lower() in ("a", "an", "the") or (new.isdigit() and not old.isdigit()):
            return None  # the new value of what has that name
        if not _is_name(old) and not _is_name(new):
            trust = PLAIN_CHANGE_TRUST
    return Substitution(old, new, trust)


def _bare(term: str) -> str:
    if len(term) > 2 and term[0] in "`\"'“\u2018":
        term = term[1:-1]
    return term.removesuffix("()")


def _is_name(term: str) -> bool:
    """Looks like an identifier rather than a word of the language."""
    return bool(re.search(r"[_.\d$:]|[a-z][A-Z]", term))


_PARTS = re.compile(r"\w+|[^\w]+")


def from_hunk(before: str, old: str, new: str, after: str) -> list[Substitution]:
    """What the replacement of `old` by `new` between `before` and `after` teaches; nothing for what isn't short.

    Example:
        >>> [(found.old, found.new) for found in from_hunk("x = foo", "_bar(1", "_baz(1", ")")]
        [('foo_bar', 'foo_baz')]
    """
    head = _tail_word(before) if _is_word(old[:1]) or _is_word(new[:1]) else ""
    tail = _head_word(after) if _is_word(old[-1:]) or _is_word(new[-1:]) else ""
    old, new = head + old + tail, head + new + tail
    old_parts, new_parts = _PARTS.findall(old.strip()), _PARTS.findall(new.strip())
    while old_parts and new_parts and old_parts[0] == new_parts[0]:
        del old_parts[0], new_parts[0]
    while old_parts and new_parts and old_parts[-1] == new_parts[-1]:
        del old_parts[-1], new_parts[-1]
    if not old_parts or not new_parts or max(len(old_parts), len(new_parts)) > 24:
        return []
    pairs = [(one, other) for one, other in zip(old_parts, new_parts, strict=False) if one != other]
    is_word_by_word = len(old_parts) == len(new_parts) and all(_is_word(one) and _is_word(two) for one, two in pairs)
    if not is_word_by_word:
        pairs = [("".join(old_parts).strip(), "".join(new_parts).strip())]
    found = {}
    for one, other in pairs:
        is_short = 0 < len(one) <= MAX_PHRASE_CHARACTERS and 0 < len(other) <= MAX_PHRASE_CHARACTERS
        if is_short and one != other and "\n" not in one + other and re.search(r"\w", one):
            found[one] = Substitution(one, other, _hunk_trust(one, other))
    return list(found.values())


def _hunk_trust(old: str, new: str) -> float:
    if not _is_word(old):
        return PHRASE_TRUST
    is_weak = len(old) == 1 or old.isdigit() or old in _KEYWORDS or not re.fullmatch(r"[\w.:]+", new)
    return WEAK_TRUST if is_weak else WORD_TRUST


def _is_word(text: str) -> bool:
    return bool(re.fullmatch(r"\w+", text))


def _tail_word(text: str) -> str:
    match = re.search(r"\w{1,80}\Z", text)
    return match[0] if match else ""


def _head_word(text: str) -> str:
    match = re.match(r"\w{1,80}", text)
    return match[0] if match else ""
