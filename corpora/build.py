"""Builds the sets of this folder from their readable sources: ``python -m corpora.build``. Deterministic."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from corpora.specs import SpecError, read_edits, read_sections
from lookahead_edit.corpus_edits import FileEdit, edit_trace
from lookahead_edit.edit_text import fence_for, language_of
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.traces import Trace, format_trace

ROOT = Path(__file__).parent
SPEC_SUFFIX = ".edits"
SUMMARY_SYSTEM = "You summarise texts and quote from them, word for word."
EXTRACT_SYSTEM = "You turn text into records. Answer with one code block."

_SENTENCE_END = re.compile(r"(?<=[.!?])(?=\s|\Z)")
_LEAD = re.compile(r"^(?:[-*] |[A-Z]\w+: )")  # a bullet, or who speaks
_QUOTED = re.compile(r'"\{([^}]+)\}"')


@dataclass(frozen=True)
class Entry:
    """A trace and what the set says about it."""

    trace: Trace
    kind: str
    language: str

    @property
    def line(self) -> bytes:
        document = json.loads(format_trace(self.trace)) | {"kind": self.kind, "language": self.language}
        return json.dumps(document, ensure_ascii=False).encode("utf-8") + b"\n"


def edit_entries(folder: Path = ROOT / "edits") -> Iterator[Entry]:
    """The edits of every file that has a spec beside it."""
    for spec in sorted(folder.glob(f"*{SPEC_SUFFIX}")):
        path = spec.name.removesuffix(SPEC_SUFFIX)
        before = (folder / path).read_text("utf-8")
        language = language_of(path) or path.rpartition(".")[2]
        for edit in read_edits(spec.read_text("utf-8"), before):
            if edit.after == before:
                raise SpecError(f"expected {path}/{edit.name} to change the file, got no change")
            file_edit = FileEdit(
                id=f"{folder.name}/{path}/{edit.name}",
                before=before,
                after=edit.after,
                instruction=edit.instruction or None,
                update=edit.update,
                path=path,
                language=language,
            )
            yield Entry(edit_trace(file_edit), edit.kind, language)


def quote_entries(folder: Path = ROOT / "quotes") -> Iterator[Entry]:
    """Texts with a summary each; ``"{First words}"`` in a summary stands for the sentence that begins so."""
    for path in sorted(folder.glob("*.txt")):
        sections = {section.name: section for section in read_sections(path.read_text("utf-8"))}
        article = sections["text"].text.strip() + "\n"
        prompt = f"{sections['task'].text.strip()}\n\n{article}"
        trace = Trace(
            id=f"quotes/{path.stem}",
            prompt=_chat(SUMMARY_SYSTEM, prompt, ""),
            output=_with_quotes(sections["answer"].text.strip(), article, path.name),
            source=article,
        )
        yield Entry(trace, sections["text"].rest, "text")


def structured_entries(folder: Path = ROOT / "structured") -> Iterator[Entry]:
    """Records changed by a spec, and records made from a text."""
    yield from edit_entries(folder)
    for path in sorted(folder.glob("*.txt")):
        sections = {section.name: section for section in read_sections(path.read_text("utf-8"))}
        text, output = sections["text"].text.strip() + "\n", sections["output"].text
        language = sections["output"].rest
        fence = fence_for(text, output)
        user = f"{sections['task'].text.strip()}\n{fence}\n{text}{fence}"
        trace = Trace(
            id=f"structured/{path.stem}",
            prompt=_chat(EXTRACT_SYSTEM, user, f"{fence}{language}\n"),
            output=output.strip("\n") + "\n" + fence,
            source=text,
        )
        yield Entry(trace, sections["text"].rest, language)


SETS = {"edits": edit_entries, "quotes": quote_entries, "structured": structured_entries}


def set_bytes(name: str) -> bytes:
    """The whole JSONL of a set."""
    return b"".join(entry.line for entry in SETS[name]())


def _chat(system: str, user: str, prefill: str) -> str:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    return ByteTokenizer().render_chat(messages, prefill)


def _with_quotes(summary: str, article: str, name: str) -> str:
    sentences = [sentence for paragraph in article.split("\n") for sentence in _sentences(paragraph)]

    def quote(match: re.Match[str]) -> str:
        found = [sentence for sentence in sentences if sentence.startswith(match[1])]
        if len(found) != 1:
            raise SpecError(f"{name}: expected one sentence that begins with {match[1]!r}, got {len(found)}")
        return f'"{found[0]}"'

    return _QUOTED.sub(quote, summary)


def _sentences(paragraph: str) -> Iterable[str]:
    return (sentence.strip() for sentence in _SENTENCE_END.split(_LEAD.sub("", paragraph)))


def main() -> None:
    """Writes every set beside this file."""
    for name in SETS:
        data = set_bytes(name)
        (ROOT / f"{name}.jsonl").write_bytes(data)
        print(f"{name}.jsonl: {data.count(10)} traces, {len(data)} bytes")


if __name__ == "__main__":
    main()
