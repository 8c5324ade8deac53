"""JSON lines, plain or gzip: one object a line, read with bounded memory. Knows no fields.

Example:
    >>> list(read_objects(BufferedReader(BytesIO(b'{"id": "a"}'))))
    [(1, {'id': 'a'})]
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from typing import Any

from lookahead_edit.types import InvalidInput

# The longest line that is read, its end not counted: far above any model's context, and a bound on memory, of which a
# line takes a hundredfold while a tokenizer is at it.
MAX_LINE_BYTES = 16 * 1024 * 1024
PIECE_BYTES = 1024 * 1024
GZIP_MAGIC = b"\x1f\x8b"
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that holds nothing usable, and why; lines count from 1, blank ones included."""

    line_number: int
    message: str  # one line, "expected X, got Y"

    def __str__(self) -> str:
        return f"line {self.line_number}: {self.message}"


def refuse(bad_line: BadLine) -> None:
    """Raises InvalidInput for the first bad line: what readers do unless told otherwise."""
    raise InvalidInput(str(bad_line), param="traces", code="invalid_json")


def read_objects(
    file: BufferedReader, on_bad_line: Callable[[BadLine], None] = refuse, *, max_line_bytes: int = MAX_LINE_BYTES
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields line numbers and objects, a line at a time: memory is bounded by the longest line, however long the file.

    Args:
        file: ``open(path, "rb")`` or ``sys.stdin.buffer``; plain or, by its first bytes, gzip.
        on_bad_line: hears of every line that holds no object, then reading goes on with the next. Blank lines are none.
        max_line_bytes: a longer line is a bad one, and is never held as a whole.
    """
    line_number = 0
    lines: BufferedReader | gzip.GzipFile = file
    while True:
        line_number += 1
        try:
            if line_number == 1 and file.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC):
                lines = gzip.GzipFile(fileobj=file)
            line = _read_line(lines, max_line_bytes)
            if not line:
                return
            if line_number == 1:
                line = line.removeprefix(BOM)
            document = None if line.isspace() else parse_object(line)
        except InvalidInput as error:
            on_bad_line(BadLine(line_number, str(error)))
            continue
        except (OSError, EOFError, zlib.error) as error:
            on_bad_line(BadLine(line_number, f"expected more of the file, got an error: {error}"))
            return
        if document is not None:
            yield line_number, document


def parse_object(line: bytes) -> dict[str, Any]:
    """The object of one line; InvalidInput for what is no UTF-8, no JSON or no object."""
    try:
        document = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise invalid_line(f"expected UTF-8, got the byte 0x{line[error.start]:02x} at offset {error.start}") from None
    except json.JSONDecodeError as error:
        raise invalid_line(f"expected JSON, got an error at character {error.pos + 1} ({error.msg})") from None
    except RecursionError:
        raise invalid_line("expected JSON, got too many brackets inside one another") from None
    except ValueError:
        raise invalid_line("expected JSON, got a number of too many digits") from None
    if not isinstance(document, dict):
        raise invalid_line(f"expected an object, got {json_type(document)}")
    return document


def json_type(value: object) -> str:
    """What JSON calls the type of a value.

    >>> json_type([1]), json_type(None)
    ('an array', 'null')
    """
    if value is None:
        return "null"
    names = {
        dict: "an object",
        list: "an array",
        str: "a string",
        bool: "a boolean",
        int: "a number",
        float: "a number",
    }
    return names[type(value)]


def require_unicode(text: str, name: str) -> None:
    """Raises InvalidInput for half a surrogate pair, which JSON can spell and UTF-8 can't."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise invalid_line(
            f"expected {name} to be Unicode text, got half a surrogate pair (U+{ord(text[error.start]):04X}) at "
            f"character {error.start + 1}"
        ) from None


def invalid_line(message: str) -> InvalidInput:
    """The error for a line that can't be used."""
    return InvalidInput(message, param="traces", code="invalid_json")


def _read_line(file: BufferedReader | gzip.GzipFile, max_line_bytes: int) -> bytes:
    """The next line with its end; empty at the file's end. Of one that is too long, only pieces are ever held."""
    line = file.readline(max_line_bytes + 1)
    if len(line) <= max_line_bytes or line.endswith(b"\n"):
        return line
    num_bytes = len(line)
    del line
    while piece := file.readline(PIECE_BYTES):
        num_bytes += len(piece.removesuffix(b"\n"))
        if piece.endswith(b"\n"):
            break
    raise invalid_line(f"expected a line of at most {max_line_bytes} bytes, got {num_bytes}")
