"""Quote tasks: a text, a question, and an answer made of word-for-word quotes from the text.

The sentences come from docstrings and documentation of the installed packages of a split.
"""

from __future__ import annotations

import ast
import random
import re
from functools import cache
from pathlib import Path

from corpora.edit_model.parsing import parse_python
from corpora.edit_model.pieces import source_files
from corpora.edit_model.words import split_words

SENTENCE = re.compile(r"[A-Z][^.!?\"`*|=<>{}\\\n]{25,150}[.!?](?= |$)")
# Rules of tables, prompts, lists and code that the plain text of a docstring holds.
UNTIDY = re.compile(r"--|>>|::|\[|\]|^None|\)\s[A-Z]|[a-z][A-Z]|  ")
WORD = re.compile(r"[a-z]{5,}")
COMMON = frozenset(
    split_words(
        """
    about above after again against allow allows along already always among another any are argument
    arguments based because been before being below between both cannot could default different does doing
    down during each either every example from further given happens have having here instead into itself
    just like make many means more most must never none note only optional other otherwise over possible
    raise raised return returned returns same should since some specified still such than that their them
    then there therefore these they this those through under unless until used useful using value values
    very want were what when where whether which while will with within without would your
    """
    )
)
PEOPLE = (
    "Ada Lopez", "Ben Okoro", "Chen Wei", "Dora Novak", "Eli Katz", "Fay Morgan", "Gus Hill", "Hana Sato", "Ivo Brandt",
    "June Park", "Kofi Mensah", "Lena Vogel", "Marco Rossi", "Nina Patel", "Omar Haddad", "Petra Lind",
)  # fmt: skip
ORDINALS = ("first", "second", "third", "fourth", "fifth")
MAX_DOCUMENTED_FILES = 1500


@cache
def paragraphs(split: str) -> tuple[tuple[str, ...], ...]:
    """Sentences of the split's docstrings and Markdown, by paragraph, in a fixed order."""
    texts: list[str] = []
    files = source_files(split)
    for file in files.get("python", [])[:MAX_DOCUMENTED_FILES]:
        texts += _docstrings(file.path)
    for file in files.get("markdown", []):
        texts.append(file.path.read_text(encoding="utf-8", errors="replace"))
    if split == "train":
        # Python's own language reference, as `help()` shows it.
        from pydoc_data.topics import topics

        texts += [topics[name] for name in sorted(topics)]
    found: dict[tuple[str, ...], None] = {}
    for text in texts:
        for paragraph in re.split(r"\n\s*\n", text):
            sentences = tuple(SENTENCE.findall(re.sub(r"\s+", " ", paragraph).strip()))
            if sentences and all(sentence.isascii() and not UNTIDY.search(sentence) for sentence in sentences):
                found[sentences] = None
    return tuple(found)


def _docstrings(path: Path) -> list[str]:
    tree = parse_python(path.read_text(encoding="utf-8", errors="replace"))
    if tree is None:
        return []
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [text for node in ast.walk(tree) if isinstance(node, documented) and (text := ast.get_docstring(node))]


def _topic_words(sentences: list[str]) -> dict[str, int]:
    """Words that name one sentence only: no other sentence holds them, not even inside a longer word."""
    lowered = [sentence.lower() for sentence in sentences]
    found = {}
    for number, sentence in enumerate(lowered):
        for word in sorted(set(WORD.findall(sentence)) - COMMON):
            if sum(other.count(word) for other in lowered) == 1:
                found[word] = number
    return found


def _quote_topics(rng: random.Random, sentences: list[str]) -> tuple[str, str, str] | None:
    words = _topic_words(sentences)
    count = rng.choice((1, 2, 2, 3))
    if len(words) < count:
        return None
    chosen = rng.sample(sorted(words), count)
    if len({words[word] for word in chosen}) < count:
        return None
    topics = chosen[0] if count == 1 else ", ".join(chosen[:-1]) + " and " + chosen[-1]
    instruction = rng.choice(
        (
            f"Summarise with quotes what the text says about {topics}.",
            f"Quote the sentences about {topics}.",
            f"Quote what the text says about {topics}.",
            f"What does the text say about {topics}? Answer with quotes.",
        )
        if count > 1
        else (
            f"Quote the sentence about {topics}.",
            f"Quote the sentence that mentions {topics}.",
            f"What does the text say about {topics}? Answer with a quote.",
        )
    )
    return instruction, " ".join(sentences), "\n".join(f'On {word}: "{sentences[words[word]]}"' for word in chosen)


def _quote_people(rng: random.Random, sentences: list[str]) -> tuple[str, str, str] | None:
    who = rng.sample(PEOPLE, min(len(sentences), rng.randint(3, 5)))
    frames = (
        '"{said}" said {name}.',
        '{name} said: "{said}"',
        '{name} told the meeting: "{said}"',
        '{name} wrote: "{said}"',
    )
    text = " ".join(rng.choice(frames).format(said=said, name=name) for said, name in zip(sentences, who, strict=False))
    chosen = sorted(rng.sample(range(len(who)), rng.choice((1, 2, 2))))
    names = " and ".join(who[number] for number in chosen)
    instruction = rng.choice(
        (
            f"Quote what {names} said.",
            f"Summarise the views of {names} with quotes.",
            f"What did {names} say? Answer with quotes.",
        )
    )
    return instruction, text, "\n".join(f'{who[number]}: "{sentences[number]}"' for number in chosen)


def _quote_edges(rng: random.Random, sentences: list[str]) -> tuple[str, str, str] | None:
    instruction = rng.choice(
        (
            "Quote the first and the last sentence.",
            "Summarise by quoting the first and the last sentence.",
            "Give the first and the last sentence of the text as quotes.",
        )
    )
    return instruction, " ".join(sentences), f'First: "{sentences[0]}"\nLast: "{sentences[-1]}"'


def _quote_ordinal(rng: random.Random, sentences: list[str]) -> tuple[str, str, str] | None:
    number = rng.randrange(min(len(sentences), len(ORDINALS)))
    name = ORDINALS[number]
    instruction = rng.choice((f"Quote the {name} sentence.", f"Quote the {name} sentence of the text, word for word."))
    return instruction, " ".join(sentences), f'{name.capitalize()}: "{sentences[number]}"'


QUOTE_KINDS = {
    "topics": (_quote_topics, 5),
    "people": (_quote_people, 4),
    "edges": (_quote_edges, 2),
    "ordinal": (_quote_ordinal, 1),
}


def quote_task(rng: random.Random, split: str) -> tuple[str, str, str, str] | None:
    """(kind, instruction, text, answer), or None if this try gave none; the answer has no final line end."""
    pool = paragraphs(split)
    sentences: list[str] = []
    for _ in range(rng.randint(2, 5)):
        sentences += rng.choice(pool)[:3]
    sentences = sentences[: rng.randint(3, 8)]
    if len(sentences) < 3 or len(set(sentences)) < len(sentences):
        return None
    kind = rng.choices(sorted(QUOTE_KINDS), [QUOTE_KINDS[name][1] for name in sorted(QUOTE_KINDS)])[0]
    made = QUOTE_KINDS[kind][0](rng, sentences)
    return None if made is None else (kind, *made)
