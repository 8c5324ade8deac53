"""Made-up names and the wording of instructions. Knows nothing about code."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence


def split_words(text: str) -> tuple[str, ...]:
    """The words of a text, as a tuple."""
    return tuple(text.split())


NOUNS = split_words(
    """
    account action address agent amount answer archive argument array asset attempt author axis backup badge
    balance band basket batch bracket branch bucket budget buffer bundle button cache callback canvas card
    case catalog category cell chain channel chapter chart chunk circle client clock cluster code color
    column comment contact content context contract copy corner count counter cursor customer cycle data
    deadline delay delta detail device digest digit document domain draft driver edge element email engine
    entry envelope error event factor feature field figure file filter flag folder font footer format frame
    gap grade graph grid group guest handle header height history hook host icon image index input interval
    invoice item job journal key label layer layout ledger length letter level library limit line link list
    locale location lock margin marker mask match member memory menu message meter metric mirror mode model
    module month name node note number object offset option order origin outcome output owner packet page
    panel parcel parent part partner path pattern payload payment peer period phase phone photo piece pixel
    plan player point policy pool port position post price priority process product profile progress project
    proxy query queue quota range rank rate ratio reader reason receipt record region remote report request
    reserve result review role root route row rule sample scale schema scope score screen season section
    segment sender sensor series server service session shape shelf shift signal size slice slot snapshot
    socket source span speed stage state station status step stock storage stream style subject suffix
    summary supplier symbol table tag target task team template tenant term theme threshold ticket timer
    title token tool topic total trace track transfer tree trigger unit update user value vector vendor
    version view visitor volume voucher wallet warning week weight widget width window word worker wrapper
    writer year zone
    """
)
ADJECTIVES = split_words(
    """
    active allowed average base best big closed common cold current daily default empty enabled extra final
    first fixed full global hidden idle inner internal large last late local lower main maximum minimum
    missing new next old open outer partial pending previous primary public random raw ready recent
    remaining safe secondary shared single small sorted special stale start strict temporary unique upper
    valid visible
    """
)
VERBS = split_words(
    """
    accept add apply attach build cancel check choose clean close collect compare compute convert count
    create decode deliver describe detect encode ensure expand export extract fetch filter find finish flush
    format gather handle import insert inspect join list load locate make measure merge move normalize
    notify open pack parse pick plan prepare print process publish read record refresh register release
    remove render repair replace report reset resolve restore run save scan schedule select send show sort
    split start stop store submit summarize track translate unpack update validate verify visit wait write
    """
)


def snake(rng: random.Random) -> str:
    """One made-up name of one to three words, as `late_invoice`."""
    parts = rng.choice(((NOUNS,), (NOUNS, NOUNS), (ADJECTIVES, NOUNS), (VERBS, NOUNS), (ADJECTIVES, NOUNS, NOUNS)))
    return "_".join(rng.choice(part) for part in parts)


def style_of(name: str) -> str:
    """The naming style of an identifier: `constant`, `class`, `camel` or `snake`."""
    core = name.strip("_")
    if core.isupper() and len(core) > 1:
        return "constant"
    if core[:1].isupper():
        return "class"
    if re.search("[a-z][A-Z]", core):
        return "camel"
    return "snake"


def restyle(name: str, style: str) -> str:
    """Write a snake name in another style, as `late_invoice` → `LateInvoice`."""
    if style == "constant":
        return name.upper()
    if style == "snake":
        return name
    joined = "".join(word.capitalize() for word in name.split("_"))
    return joined if style == "class" else joined[:1].lower() + joined[1:]


def fresh_name(rng: random.Random, old: str, text: str, *, prefer_camel: bool = False) -> str:
    """A name in the style of `old` that stands nowhere in `text`; in one case of six it grows out of `old`."""
    style = style_of(old)
    if style == "snake" and prefer_camel and "_" not in old:
        style = "camel"
    leading = old[: len(old) - len(old.lstrip("_"))]
    while True:
        name = leading + restyle(snake(rng), style)
        if style == "snake" and rng.random() < 1 / 6:
            name = rng.choice((f"{old}_{rng.choice(NOUNS)}", f"{leading}{rng.choice(ADJECTIVES)}_{old.lstrip('_')}"))
        if name not in text:
            return name


def phrase_text(rng: random.Random) -> str:
    """A few made-up words for a string literal."""
    words = [rng.choice(rng.choice((NOUNS, ADJECTIVES, VERBS))) for _ in range(rng.randint(1, 4))]
    text = rng.choice((" ", " ", "_", "-")).join(words)
    return text.capitalize() if rng.random() < 0.4 else text


def sentence(rng: random.Random) -> str:
    """A made-up docstring sentence, as `Collect the pending invoice.`"""
    verb, noun = rng.choice(VERBS).capitalize(), rng.choice(NOUNS)
    middle = rng.choice(("the", "every", "one", "the " + rng.choice(ADJECTIVES), "all of the"))
    tail = rng.choice(("", "", f" of the {rng.choice(NOUNS)}", f" for the {rng.choice(NOUNS)}"))
    return f"{verb} {middle} {noun}{tail}."


def say(rng: random.Random, templates: Sequence[str], **parts: str) -> str:
    """Fill one of the templates and vary its wording: full stop or none, capital or lower case, a polite frame.

    Names get backticks or not, all alike within one instruction; `code_…` parts always get them (code without a
    border would run into the full stop), `plain_…` parts never.
    Example: `say(rng, ["Rename {old} to {new}"], old="a", new="b")` → ``rename `a` to `b` ``.
    """
    mark = "`" if rng.random() < 0.5 else ""
    marked = {}
    for key, part in parts.items():
        border = "" if key.startswith("plain_") else "`" if key.startswith("code_") else mark
        marked[key] = f"{border}{part}{border}"
    text = rng.choice(templates).format(**marked)
    if text.startswith(("The ", "In ", "After ", "Before ")):
        return text if rng.random() < 0.4 else text + "."
    roll = rng.random()
    if roll < 0.25:
        text = text[:1].lower() + text[1:]
    elif roll < 0.33:
        text = f"Please {text[:1].lower()}{text[1:]}"
    elif roll < 0.37:
        return f"Can you {text[:1].lower()}{text[1:]}?"
    elif roll < 0.41:
        text = f"I want you to {text[:1].lower()}{text[1:]}"
    return text if rng.random() < 0.4 else text + "."
