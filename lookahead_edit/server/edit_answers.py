"""The answers of /v1/edits: a superset of OpenAI's former edits call."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

from pydantic import BaseModel, Field

from lookahead_edit.editor import EditResult, Progress
from lookahead_edit.server.answers import Answer, request_metrics, timings, usage
from lookahead_edit.server.jobs import Job
from lookahead_edit.server.provenance import Provenance, edit_provenance
from lookahead_edit.server.schemas import EditCall, PositionBody
from lookahead_edit.text_pieces import LabelledText
from lookahead_edit.types import Round, SourceKind

OWN = "own"  # a token that no draft held, or held wrongly


class TextRange(BaseModel):
    start: PositionBody
    end: PositionBody


class TextEdit(BaseModel):
    """As in LSP; `range` refers to the document as it came."""

    range: TextRange
    newText: str  # noqa: N815 - LSP's name


class EditChoice(BaseModel):
    """`edits` and `diff` are null where not asked for, and where the answer was cut off.

    `provenance` is there only where it was asked for; it is about `text`, whether or not that was asked for, too.
    """

    index: int
    text: str | None
    finish_reason: Literal["stop", "length"]
    edits: list[TextEdit] | None
    diff: str | None
    provenance: Provenance | None = None


class EditFacts(BaseModel):
    changed: bool
    truncated: bool
    eol: str
    final_newline: bool
    fence_stripped: bool
    document_version: int | str | None
    session: str | None


class EditAnswer(Answer):
    """The whole answer to one edit."""

    object: Literal["edit"] = "edit"
    choices: list[EditChoice]
    edit: EditFacts
    warnings: list[str]


class EditCreated(BaseModel):
    """First event of a stream: its id can be cancelled."""

    type: Literal["edit.created"] = "edit.created"
    id: str
    created: int
    model: str
    document_version: int | str | None
    session: str | None


class SourcePiece(BaseModel):
    """Text of one origin: drafted from there and accepted, or, with ``own``, chosen by the model without a draft."""

    text: str
    source: str = Field(json_schema_extra={"enum": [*(kind.label for kind in SourceKind), OWN]})


class StreamCounts(BaseModel):
    """Counters of the request so far, this round's included."""

    num_rounds: int
    num_tokens: int
    num_draft_tokens: int
    num_accepted_draft_tokens: int


class EditDelta(BaseModel):
    """More of the answer; `offset` characters of it came before.

    `sources` and `counts` come with `include: ["sources"]` only. The texts of `sources`, one after the other, are
    `text`.
    """

    type: Literal["edit.delta"] = "edit.delta"
    text: str
    offset: int
    sources: list[SourcePiece] | None = None
    counts: StreamCounts | None = None


class EditCompleted(EditAnswer):
    """Last event of a stream that went well."""

    type: Literal["edit.completed"] = "edit.completed"


def edit_answer(job: Job, call: EditCall, result: EditResult) -> EditAnswer:
    """The whole answer. Edits and diff of a long document take their time: not for the event loop."""
    is_whole = not result.truncated
    edits = result.edits(call.position_encoding) if "edits" in call.output and is_whole else None
    quotes: Provenance | None = None
    quote_warnings: list[str] = []
    if "provenance" in call.include:
        quotes, quote_warnings = edit_provenance(call.request, result, call.position_encoding)
    return EditAnswer(
        id=job.id,
        created=job.created,
        model=call.model_name,
        choices=[
            EditChoice(
                index=0,
                text=result.text if "text" in call.output else None,
                finish_reason=result.finish_reason,
                edits=None if edits is None else [TextEdit.model_validate(edit) for edit in edits],
                diff=result.diff() if "diff" in call.output and is_whole else None,
                provenance=quotes,
            )
        ],
        usage=usage(result.metrics, has_prediction=call.request.prediction is not None),
        timings=timings(result.metrics),
        metrics=request_metrics(result.metrics, call.request.speculation, job),
        edit=EditFacts(
            changed=result.changed,
            truncated=result.truncated,
            eol=result.eol,
            final_newline=result.final_newline,
            fence_stripped=result.fence_stripped,
            document_version=call.document_version,
            session=call.session,
        ),
        warnings=[*call.warnings, *result.warnings, *quote_warnings],
    )


def edit_created(job: Job, call: EditCall) -> EditCreated:
    """The stream's first event."""
    return EditCreated(
        id=job.id,
        created=job.created,
        model=call.model_name,
        document_version=call.document_version,
        session=call.session,
    )


class EditDeltas:
    """Makes the events of a stream's rounds, of all of them in order."""

    def __init__(self, *, has_sources: bool) -> None:
        self._has_sources = has_sources
        self._labelled = LabelledText(OWN)
        self._counts = Counter[str]()

    def event(self, progress: Progress) -> dict[str, Any] | None:
        """The event of a round that added text; None where it added none."""
        delta = EditDelta(text=progress.delta, offset=progress.offset)
        if self._has_sources:
            self._count(progress.round)
            self._labelled.push(zip(progress.token_texts, token_sources(progress.round), strict=True))
            pieces = self._labelled.take(progress.delta)
            delta.sources = [SourcePiece(text=text, source=source) for text, source in pieces]
            delta.counts = StreamCounts(**{name: self._counts[name] for name in StreamCounts.model_fields})
        return delta.model_dump(exclude_none=True) if progress.delta else None

    def _count(self, finished: Round) -> None:
        if not len(finished.tokens):
            return
        self._counts["num_rounds"] += 1
        self._counts["num_tokens"] += len(finished.tokens)
        self._counts["num_draft_tokens"] += finished.num_draft_tokens
        self._counts["num_accepted_draft_tokens"] += finished.num_accepted_tokens


def token_sources(finished: Round) -> list[str]:
    """Of each token that a round emitted: its draft's source, or `OWN`."""
    accepted = finished.draft.sources[: finished.num_accepted_tokens].tolist()
    labels = [SourceKind(kind).label for kind in accepted]
    return labels + [OWN] * (len(finished.tokens) - len(labels))
