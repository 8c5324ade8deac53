"""Made-up configuration files and edits of their keys: YAML, JSON, TOML, INI, CSS, shell variables.

A document is a list of sections of (key, value) pairs; an edit changes the list, and both are rendered alike, so the
text outside the edit stays as it was.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from corpora.edit_model.edit import Edit
from corpora.edit_model.pieces import Piece
from corpora.edit_model.words import NOUNS, phrase_text, restyle, say, snake

Value = str | int | float | bool
Entries = tuple[tuple[str, Value], ...]
CSS_VALUES = {
    "color": ("#333", "#0a84ff", "red", "white", "inherit"),
    "background": ("#fff", "#fafafa", "transparent", "black"),
    "margin": ("0", "4px", "8px 16px", "auto"),
    "padding": ("0", "2px 6px", "12px", "1rem"),
    "display": ("block", "flex", "grid", "none"),
    "font-size": ("12px", "14px", "1.2rem", "16px"),
    "font-weight": ("400", "600", "bold"),
    "width": ("100%", "320px", "50vw"),
    "height": ("auto", "48px", "100vh"),
    "border": ("none", "1px solid #ddd", "2px dashed red"),
    "border-radius": ("4px", "50%", "8px"),
    "position": ("relative", "absolute", "fixed"),
    "text-align": ("left", "center", "right"),
    "opacity": ("0.5", "0.8", "1"),
}


@dataclass(frozen=True)
class Document:
    """A configuration file; a single section named "" stands for a file without sections."""

    language: str
    sections: tuple[tuple[str, Entries], ...]
    comment: str = ""

    def render(self) -> str:
        """The file's text, ending with a line end."""
        return self.comment + RENDERERS[self.language](self.sections)


def _scalar(value: Value, *, quoted: bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if quoted and isinstance(value, str) else str(value)


def _render_json(sections: tuple[tuple[str, Entries], ...]) -> str:
    whole = {name: dict(entries) for name, entries in sections}
    return json.dumps(whole[""] if list(whole) == [""] else whole, indent=2) + "\n"


def _render_yaml(sections: tuple[tuple[str, Entries], ...]) -> str:
    blocks = []
    for name, entries in sections:
        indent = "  " if name else ""
        lines = [f"{indent}{key}: {_scalar(value, quoted=False)}\n" for key, value in entries]
        blocks.append((f"{name}:\n" if name else "") + "".join(lines))
    return "".join(blocks)


def _render_tables(separator: str, *, quoted: bool) -> Callable[[tuple[tuple[str, Entries], ...]], str]:
    def render(sections: tuple[tuple[str, Entries], ...]) -> str:
        blocks = []
        for name, entries in sections:
            lines = [f"{key}{separator}{_scalar(value, quoted=quoted)}\n" for key, value in entries]
            blocks.append((f"[{name}]\n" if name else "") + "".join(lines))
        return "\n".join(blocks)

    return render


def _render_css(sections: tuple[tuple[str, Entries], ...]) -> str:
    blocks = []
    for name, entries in sections:
        blocks.append(f"{name} {{\n" + "".join(f"  {key}: {value};\n" for key, value in entries) + "}\n")
    return "\n".join(blocks)


def _render_bash(sections: tuple[tuple[str, Entries], ...]) -> str:
    return "".join(f"export {key}={_scalar(value, quoted=True)}\n" for _, entries in sections for key, value in entries)


RENDERERS = {
    "json": _render_json,
    "yaml": _render_yaml,
    "toml": _render_tables(" = ", quoted=True),
    "ini": _render_tables("=", quoted=False),
    "css": _render_css,
    "bash": _render_bash,
}


def _value(rng: random.Random, like: Value | None = None) -> Value:
    kind = type(like) if like is not None else rng.choice((bool, int, int, float, str, str, str))
    if kind is bool:
        return rng.random() < 0.5
    if kind is int:
        return rng.choice((rng.randint(0, 20), rng.randint(1, 9999), 2 ** rng.randint(2, 14)))
    if kind is float:
        return round(rng.uniform(0, 10), rng.randint(1, 2))
    return rng.choice(
        (
            rng.choice(NOUNS),
            phrase_text(rng),
            f"{rng.choice(NOUNS)}.{rng.choice(('log', 'json', 'txt', 'example.com'))}",
        )
    )


def _key(rng: random.Random, language: str) -> str:
    name = rng.choice(NOUNS) if rng.random() < 0.5 else snake(rng)
    if language == "bash":
        return name.upper()
    return restyle(name, "camel") if language == "json" and rng.random() < 0.5 else name


def made_up_document(rng: random.Random) -> Document:
    """A configuration file of one to four sections of two to seven keys; no key stands twice."""
    language = rng.choice(tuple(RENDERERS))
    num_sections = 1 if language == "bash" or rng.random() < 0.4 else rng.randint(2, 4)
    has_names = language in ("ini", "css") or num_sections > 1 or (language != "bash" and rng.random() < 0.5)
    seen: set[str] = set()
    sections: list[tuple[str, Entries]] = []
    for _ in range(num_sections):
        name = rng.choice(NOUNS) if has_names else ""
        entries: list[tuple[str, Value]] = []
        for _ in range(rng.randint(2, 7) if num_sections > 1 else rng.randint(3, 9)):
            if language == "css":
                key = rng.choice(tuple(CSS_VALUES))
                value: Value = rng.choice(CSS_VALUES[key])
                is_new = key not in [known for known, _ in entries]
            else:
                key, value = _key(rng, language), _value(rng)
                # A key inside a longer key, or a section of that name, would make an instruction unclear.
                is_new = not any(key in other or other in key for other in seen)
            if is_new:
                seen.add(key)
                entries.append((key, value))
        if language == "css":
            name = rng.choice(
                (
                    f".{name}",
                    f"#{name}",
                    f".{name}-{rng.choice(NOUNS)}",
                    f"{rng.choice(('p', 'a', 'h1', 'body'))}.{name}",
                )
            )
        if entries and name not in [known for known, _ in sections] and (language == "css" or name not in seen):
            sections.append((name, tuple(entries)))
            seen.add(name)
    comment = (
        f"# {snake(rng).replace('_', ' ')}\n" if language in ("yaml", "toml", "bash") and rng.random() < 0.25 else ""
    )
    return Document(language, tuple(sections), comment)


def edit_document(rng: random.Random, document: Document) -> Edit | None:
    """Set, remove, rename or add one key of the document, or rename a section."""
    if not document.sections:
        return None
    place = rng.randrange(len(document.sections))
    section, entries = document.sections[place]
    number = rng.randrange(len(entries))
    key, old = entries[number]
    where = (
        f" in {section}"
        if document.language == "css"
        else f" in the section {section}"
        if section and rng.random() < 0.4
        else ""
    )
    action = rng.choice(("set", "set", "set", "remove", "rename", "add", "section"))
    new_entries = list(entries)
    if action == "set":
        new = rng.choice(CSS_VALUES[key]) if document.language == "css" else _value(rng, old)
        if new == old:
            return None
        new_entries[number] = (key, new)
        templates: tuple[str, ...] = (
            "Set {key} to {new}{plain_where}",
            "Change {key} to {new}{plain_where}",
            "Change {key} from {old} to {new}{plain_where}",
            "Make {key} {new}{plain_where}",
        )
        instruction = say(
            rng, templates, key=key, new=_scalar(new, quoted=False), old=_scalar(old, quoted=False), plain_where=where
        )
    elif action == "remove" and len(entries) > 1:
        del new_entries[number]
        instruction = say(
            rng,
            ("Remove {key}{plain_where}", "Remove the key {key}{plain_where}", "Delete {key}{plain_where}"),
            key=key,
            plain_where=where,
        )
    elif action == "rename" and document.language != "css":
        new_key = _key(rng, document.language)
        if new_key in document.render():
            return None
        new_entries[number] = (new_key, old)
        instruction = say(
            rng,
            ("Rename {key} to {new}{plain_where}", "Rename the key {key} to {new}{plain_where}"),
            key=key,
            new=new_key,
            plain_where=where,
        )
    elif action == "add":
        new_key = rng.choice(tuple(CSS_VALUES)) if document.language == "css" else _key(rng, document.language)
        if new_key in document.render():
            return None
        new = rng.choice(CSS_VALUES[new_key]) if document.language == "css" else _value(rng)
        new_entries.append((new_key, new))
        end = f" at the end of {section}" if section else " at the end"
        templates = (
            "Add {key} with the value {new}{plain_where}",
            "Add the key {key} with {new}{plain_where}",
            "Add {key} = {new}{plain_where}",
        )
        instruction = say(rng, templates, key=new_key, new=_scalar(new, quoted=False), plain_where=end)
    elif action == "section" and section and document.language != "css":
        new_section = rng.choice(NOUNS)
        if new_section in document.render() or document.render().count(section) > 1:
            return None
        changed = replace(
            document, sections=(*document.sections[:place], (new_section, entries), *document.sections[place + 1 :])
        )
        instruction = say(
            rng, ("Rename the section {old} to {new}", "Rename {old} to {new}"), old=section, new=new_section
        )
        return Edit(instruction, changed.render())
    else:
        return None
    changed = replace(
        document, sections=(*document.sections[:place], (section, tuple(new_entries)), *document.sections[place + 1 :])
    )
    return Edit(instruction, changed.render())


def config_task(rng: random.Random) -> tuple[Piece, Edit] | None:
    """A made-up configuration file and one edit of it."""
    document = made_up_document(rng)
    edit = edit_document(rng, document)
    return None if edit is None else (Piece(document.language, document.render(), "made up"), edit)
