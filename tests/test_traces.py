"""Reading logged traffic: every bad line is named and the rest counts, and memory is bounded by a line."""

from __future__ import annotations

import gzip
import io
import json
import tracemalloc
from collections.abc import Iterator
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookahead_edit.text_json_lines import BadLine
from lookahead_edit.traces import Trace, format_trace, parse_trace, read_traces, write_traces
from lookahead_edit.types import ContextFile, InvalidInput

SAMPLES = Path(__file__).parent.parent / "benchmarks" / "samples" / "traces.jsonl"
GOOD = b'{"id": "a", "prompt": "one two", "output": "one"}\n'


def read(data: bytes, **options: Any) -> tuple[list[tuple[int, Trace]], list[BadLine]]:
    bad_lines: list[BadLine] = []
    traces = list(read_traces(BufferedReader(BytesIO(data)), bad_lines.append, **options))
    return traces, bad_lines


def line(**fields: Any) -> bytes:
    return json.dumps({"id": "a", "prompt": "one two", "output": "one"} | fields).encode() + b"\n"


texts = st.text(st.characters(exclude_categories=["Cs"]))
some_text = texts.filter(bool)


@given(
    st.builds(
        lambda id, before, source, after, output, context: Trace(id, before + source + after, output, source, context),
        texts,
        some_text,
        texts,
        texts,
        some_text,
        st.lists(st.builds(ContextFile, path=texts, text=texts)).map(tuple),
    )
)
def test_what_is_written_is_read_again(trace: Trace) -> None:
    file = BytesIO()
    write_traces(file, [trace, trace])
    assert read(file.getvalue()) == ([(1, trace), (2, trace)], [])


def test_the_samples_are_valid() -> None:
    with SAMPLES.open("rb") as file:
        traces = [trace for _, trace in read_traces(file)]
    assert len(traces) == 4
    assert any(trace.context for trace in traces)


def test_unknown_fields_and_blank_lines_are_ignored_and_null_is_absent() -> None:
    traces, bad_lines = read(b"\xef\xbb\xbf" + line(model="x", source=None, context=None) + b"\r\n  \n" + GOOD.strip())
    assert [number for number, _ in traces] == [1, 4]
    assert traces[0][1] == traces[1][1] == Trace("a", "one two", "one")
    assert bad_lines == []


BAD_LINES = {
    "broken JSON": (b'{"id" "a"}', "expected JSON, got an error at character 7 (Expecting ':' delimiter)"),
    "deep nesting": (b"[" * 100_000, "expected JSON, got too many brackets inside one another"),
    "a huge number": (b'{"id": ' + b"9" * 5000 + b"}", "expected JSON, got a number of too many digits"),
    "no object": (b"[1]", "expected an object, got an array"),
    "a number": (b"7", "expected an object, got a number"),
    "no id": (b'{"prompt": "x", "output": "y"}', "expected a field id, got none"),
    "no prompt": (b'{"id": "a", "output": "y"}', "expected a field prompt, got none"),
    "no output": (b'{"id": "a", "prompt": "y"}', "expected a field output, got none"),
    "an id that is a number": (line(id=7), "expected id to be a string, got a number"),
    "an output that is null": (line(output=None), "expected output to be a string, got null"),
    "a source that is a boolean": (line(source=True), "expected source to be a string, got a boolean"),
    "a context that is a text": (line(context="x"), "expected context to be an array, got a string"),
    "a context file that is a text": (line(context=["x"]), "expected context[0] to be an object, got a string"),
    "a context file without a text": (line(context=[{"path": "x"}]), "expected a field context[0].text, got none"),
    "a foreign source": (line(source="three"), "expected source to stand verbatim in prompt, got one that doesn't"),
    "an empty prompt": (line(prompt=""), "expected prompt of at least one character, got an empty one"),
    "an empty output": (line(output=""), "expected output of at least one character, got an empty one"),
    "a lone surrogate": (
        line(output="ab\ud800"),
        "expected output to be Unicode text, got half a surrogate pair (U+D800) at character 3",
    ),
    "a lone surrogate in a context": (
        line(context=[{"path": "x", "text": "\udfff"}]),
        "expected context[0].text to be Unicode text, got half a surrogate pair (U+DFFF) at character 1",
    ),
    "no UTF-8": (b'{"id": "\xff"}', "expected UTF-8, got the byte 0xff at offset 8"),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_bad_line_is_named_and_the_others_count(name: str) -> None:
    bad, message = BAD_LINES[name]
    traces, bad_lines = read(GOOD + bad.rstrip(b"\n") + b"\n" + GOOD)
    assert [number for number, _ in traces] == [1, 3]
    assert bad_lines == [BadLine(2, message)]


def test_the_first_bad_line_raises_unless_somebody_listens() -> None:
    reading = read_traces(BufferedReader(BytesIO(GOOD + b"x\n")))
    assert next(reading)[0] == 1
    with pytest.raises(InvalidInput, match="line 2: expected JSON"):
        next(reading)


def test_gzip_is_known_by_its_first_bytes_and_a_cut_one_keeps_what_came_before() -> None:
    many = b"".join(line(id=str(number), output="".join(map(chr, range(300, 400)))) for number in range(2000))
    whole = gzip.compress(many)
    assert len(read(whole)[0]) == 2000
    traces, bad_lines = read(whole[:-20])
    assert traces == read(many)[0][: len(traces)]
    assert [bad.message[:38] for bad in bad_lines] == ["expected more of the file, got an erro"]


def test_writing_refuses_what_could_not_be_read() -> None:
    for trace in (Trace("a", "x", ""), Trace("a", "x", "\ud800"), Trace("a", "x", "y", source="z")):
        with pytest.raises(InvalidInput, match="expected"):
            format_trace(trace)
    assert parse_trace(format_trace(Trace("\u2028", "x\ny", "é"))) == Trace("\u2028", "x\ny", "é")


class Generated(io.RawIOBase):
    """A file of any size, made while it is read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or next(self._pieces, b"")
        piece = self._rest[: len(buffer)]
        buffer[: len(piece)] = piece
        self._rest = self._rest[len(piece) :]
        return len(piece)


def peak_bytes(pieces: Iterator[bytes], max_line_bytes: int) -> tuple[int, int, list[BadLine]]:
    bad_lines: list[BadLine] = []
    file = BufferedReader(Generated(pieces))
    tracemalloc.start()
    try:
        num_traces = sum(1 for _ in read_traces(file, bad_lines.append, max_line_bytes=max_line_bytes))
        return num_traces, tracemalloc.get_traced_memory()[1], bad_lines
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_file() -> None:
    wide = line(prompt="one " * 5000)  # 20 kB
    num_traces, peak, bad_lines = peak_bytes((wide for _ in range(3000)), 2**20)  # 60 MB
    assert (num_traces, bad_lines) == (3000, [])
    assert peak < 2**20


def test_a_line_that_is_too_long_is_never_held_as_a_whole() -> None:
    piece = b"x" * 2**16

    def pieces() -> Iterator[bytes]:
        yield GOOD
        yield from (piece for _ in range(1024))  # 64 MiB without a line end
        yield b"\n" + GOOD

    num_traces, peak, bad_lines = peak_bytes(pieces(), 2**16)
    assert num_traces == 2
    assert bad_lines == [BadLine(2, f"expected a line of at most 65536 bytes, got {2**26}")]
    assert peak < 8 * 2**20
