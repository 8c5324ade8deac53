"""The answers of /v1/edits: a superset of OpenAI's former edits call."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from lookahead_edit.editor import EditResult, Progress
from lookahead_edit.server.answers import Answer, request_metrics, timings, usage
from lookahead_edit.server.jobs import Job
from lookahead_edit.server.schemas import EditCall, PositionBody


class TextRange(BaseModel):
    start: PositionBody
    end: PositionBody


class TextEdit(BaseModel):
    """As in LSP; `range` refers to the document as it came."""

    range: TextRange
    newText: str  # noqa: N815 - LSP's name


class EditChoice(BaseModel):
    """`edits` and `diff` are null where not asked for, and where the answer was cut off."""

    index: int
    text: str | None
    finish_reason: Literal["stop", "length"]
    edits: list[TextEdit] | None
    diff: str | None


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


class EditDelta(BaseModel):
    """More of the answer; `offset` characters of it came before."""

    type: Literal["edit.delta"] = "edit.delta"
    text: str
    offset: int


class EditCompleted(EditAnswer):
    """Last event of a stream that went well."""

    type: Literal["edit.completed"] = "edit.completed"


def edit_answer(job: Job, call: EditCall, result: EditResult, model_name: str) -> EditAnswer:
    """The whole answer. Edits and diff of a long document take their time: not for the event loop."""
    is_whole = not result.truncated
    edits = result.edits(call.position_encoding) if "edits" in call.output and is_whole else None
    return EditAnswer(
        id=job.id,
        created=job.created,
        model=model_name,
        choices=[
            EditChoice(
                index=0,
                text=result.text if "text" in call.output else None,
                finish_reason=result.finish_reason,
                edits=None if edits is None else [TextEdit.model_validate(edit) for edit in edits],
                diff=result.diff() if "diff" in call.output and is_whole else None,
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
        warnings=[*call.warnings, *result.warnings],
    )


def edit_created(job: Job, call: EditCall, model_name: str) -> EditCreated:
    """The stream's first event."""
    return EditCreated(
        id=job.id,
        created=job.created,
        model=model_name,
        document_version=call.document_version,
        session=call.session,
    )


def edit_delta(progress: Progress) -> EditDelta:
    """The event of a round that added text."""
    return EditDelta(text=progress.delta, offset=progress.offset)
