"""Published sets of edits, one JSON object a line, plain or gzip: CanItEdit, and sets shaped like Blazedit's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BufferedReader
from typing import Any, Literal

from lookahead_edit.corpus_edits import FileEdit
from lookahead_edit.text_json_lines import BadLine, json_type, read_objects, require_unicode
from lookahead_edit.types import InvalidInput

InstructionKind = Literal["descriptive", "lazy"]

# The first of these that a record has is taken.
BEFORE_FIELDS = ("before", "old_contents", "old_code", "old", "input", "source_code", "original_code", "code_before")
AFTER_FIELDS = ("after", "new_contents", "new_code", "new", "output", "target_code", "edited_code", "code_after")
INSTRUCTION_FIELDS = ("instruction", "edit_instruction", "change_request", "message", "subject", "prompt")
PATH_FIELDS = ("path", "file_path", "old_file", "filename", "file")
ID_FIELDS = ("id", "task_id", "full_name", "name", "commit")

MAX_SHOWN_FIELDS, MAX_SHOWN_CHARACTERS = 12, 40  # of a record that lacks one


def canitedit_edits(
    file: BufferedReader, on_bad_line: Callable[[BadLine], None], kind: InstructionKind = "descriptive"
) -> Iterator[FileEdit]:
    """CanItEdit's records: before, after, and an instruction_descriptive and instruction_lazy to choose from."""
    for number, record in read_objects(file, on_bad_line):
        fields = [(name,) for name in ("before", "after", f"instruction_{kind}")]
        try:
            before, after, instruction = (_field(record, names) for names in fields)
        except InvalidInput as error:
            on_bad_line(BadLine(number, str(error)))
            continue
        name = _identifier(record, ("full_name", "id"), number)
        yield FileEdit(f"canitedit/{name}/{kind}", before, after, instruction, language="python")


def blazedit_edits(file: BufferedReader, on_bad_line: Callable[[BadLine], None]) -> Iterator[FileEdit]:
    """Records with old code, new code and an instruction, under any of the names listed above.

    A path or a language says what the code is; without either it is Python.
    """
    for number, record in read_objects(file, on_bad_line):
        try:
            before, after = _field(record, BEFORE_FIELDS), _field(record, AFTER_FIELDS)
            instruction = _field(record, INSTRUCTION_FIELDS)
        except InvalidInput as error:
            on_bad_line(BadLine(number, str(error)))
            continue
        path = next((record[name] for name in PATH_FIELDS if isinstance(record.get(name), str)), None)
        language = record.get("language", record.get("lang"))
        is_word = isinstance(language, str) and re.fullmatch(r"[\w+#.-]{1,32}", language)
        yield FileEdit(
            id=f"blazedit/{_identifier(record, ID_FIELDS, number)}",
            before=before,
            after=after,
            instruction=instruction,
            path=path,
            language=str(language).lower() if is_word else None if path else "python",
        )


def _field(record: Mapping[str, Any], names: Sequence[str]) -> str:
    name = next((name for name in names if name in record), None)
    if name is None:
        expected = names[0] if len(names) == 1 else f"one of {', '.join(names)}"
        got = ", ".join(field[:MAX_SHOWN_CHARACTERS] for field in sorted(record)[:MAX_SHOWN_FIELDS]) or "none"
        raise InvalidInput(f"expected a field {expected}, got {got}", code="missing_field")
    value = record[name]
    if not isinstance(value, str):
        raise InvalidInput(f"expected {name} to be a string, got {json_type(value)}")
    if not value.strip():
        raise InvalidInput(f"expected {name} to say something, got an empty one", code="missing_field")
    require_unicode(value, name)
    return value


def _identifier(record: Mapping[str, Any], names: Sequence[str], line_number: int) -> str:
    """The line number keeps ids apart where records repeat a name."""
    value = next((record[name] for name in names if isinstance(record.get(name), str | int)), "")
    text = str(value).encode("utf-8", "replace").decode("utf-8")[:200]
    return f"{line_number}-{text}" if text else str(line_number)
