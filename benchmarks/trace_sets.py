"""Named sets of traces and their parts, tokenised. Replays nothing."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lookahead_edit.replay_tokens import TokenTrace, tokenize_trace
from lookahead_edit.text_json_lines import BOM, GZIP_MAGIC
from lookahead_edit.traces import parse_trace
from lookahead_edit.types import SourceKind, Tokenizer

ID_FIELD = "id"  # stands for the id up to its last dash: "mt_bench-3" is in the part "mt_bench"


@dataclass(frozen=True)
class SetSpec:
    """What the command line names: ``NAME=FILE`` or ``NAME=FILE:FIELD``."""

    name: str
    path: Path
    field: str | None = None  # of the JSON lines; each of its values is a part of the set

    @classmethod
    def parse(cls, text: str) -> SetSpec:
        """Raises ValueError for a text without a name or file.

        Example:
            >>> SetSpec.parse("edits=corpora/edits.jsonl:kind").field
            'kind'
        """
        name, _, file = text.partition("=")
        if not name or not file:
            raise ValueError(f"expected NAME=FILE or NAME=FILE:FIELD, got {text!r}")
        head, _, field = file.rpartition(":")
        if head and field.isidentifier() and not Path(file).exists():
            return cls(name, Path(head), field)
        return cls(name, Path(file))


@dataclass(frozen=True)
class TraceSet:
    """Traces, and the part that each is in."""

    name: str
    traces: tuple[TokenTrace, ...]
    part_names: tuple[str, ...]  # one a trace, "" in a set without parts

    @property
    def has_context(self) -> bool:
        return any(without_context(trace) is not trace for trace in self.traces)

    def parts(self) -> dict[str, list[int]]:
        """Indices of the traces: of the whole set under its name, then of each part under ``NAME/PART``."""
        indices = {self.name: list(range(len(self.traces)))}
        for index, part in enumerate(self.part_names):
            if part:
                indices.setdefault(f"{self.name}/{part}", []).append(index)
        return indices


def read_set(spec: SetSpec, tokenizer: Tokenizer) -> TraceSet:
    """Reads and tokenises a set; raises InvalidInput for a line that holds no trace."""
    content = spec.path.read_bytes()
    if content.startswith(GZIP_MAGIC):
        content = gzip.decompress(content)
    lines = [line for line in content.removeprefix(BOM).split(b"\n") if line.strip()]
    traces = tuple(tokenize_trace(parse_trace(line), tokenizer) for line in lines)
    return TraceSet(spec.name, traces, tuple(_part_name(line, spec.field) for line in lines))


def without_context(trace: TokenTrace) -> TokenTrace:
    """The trace without other files of the workspace; itself where it has none."""
    kept = tuple(source for source in trace.sources if source.kind != SourceKind.CONTEXT)
    return trace if len(kept) == len(trace.sources) else replace(trace, sources=kept)


def fingerprint(trace: TokenTrace) -> str:
    """The same for traces that no drafter can tell apart; the id doesn't count."""
    digest = hashlib.sha256()
    arrays = [trace.prompt, trace.output, *(source.tokens for source in trace.sources)]
    facts = [trace.end_token_id, *((int(source.kind), source.prompt_start) for source in trace.sources)]
    digest.update(json.dumps([facts, [len(array) for array in arrays]]).encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array, dtype="<i4").tobytes())
    return digest.hexdigest()[:32]


def source_fingerprint(paths: Iterable[Path]) -> str:
    """Changes with the content of any of the files."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _part_name(line: bytes, field: str | None) -> str:
    if field is None:
        return ""
    value = str(json.loads(line).get(field, "none"))
    return value.rpartition("-")[0] or value if field == ID_FIELD else value
