"""An edit of one file, and the trace a perfect model would leave of it. Knows texts only, not where they come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from lookahead_edit.config import EditConfig
from lookahead_edit.corpus_files import why_not_source
from lookahead_edit.edit_text import build_edit_prompt, fence_for
from lookahead_edit.text_align import changed_hunks
from lookahead_edit.text_lines import split_lines
from lookahead_edit.text_region import Region
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.traces import Trace
from lookahead_edit.types import ContextFile, InvalidInput


@dataclass(frozen=True, slots=True)
class FileEdit:
    """What was asked and what became of the file. `language` is only needed where `path` doesn't tell it."""

    id: str
    before: str
    after: str
    instruction: str | None = None
    update: str | None = None  # lazy snippet to merge, instead of an instruction
    path: str | None = None
    language: str | None = None
    context: tuple[ContextFile, ...] = ()


@dataclass(frozen=True, slots=True)
class EditBounds:
    """Which edits are worth a trace. Characters count before the edit, lines count both sides."""

    min_characters: int = 80
    max_characters: int = 16_000
    min_changed_share: float = 0.002
    max_changed_share: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.min_characters <= self.max_characters:
            got = f"{self.min_characters} and {self.max_characters}"
            raise InvalidInput(f"expected 0 <= least <= most characters, got {got}", param="max_characters")
        if not 0.0 <= self.min_changed_share <= self.max_changed_share <= 1.0:
            got = f"{self.min_changed_share} and {self.max_changed_share}"
            raise InvalidInput(f"expected 0 <= least <= most changed share <= 1, got {got}", param="max_changed_share")


@dataclass(slots=True)
class Tally:
    """How many edits became traces, and why the others did not."""

    num_traces: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        left_out = ", ".join(f"{count} {reason}" for reason, count in self.reasons.most_common())
        return f"{self.num_traces} trace{'s' if self.num_traces != 1 else ''}" + (f"; {left_out}" if left_out else "")


def edit_trace(edit: FileEdit) -> Trace:
    """The product's own prompt in ChatML, and the edited file with the fence that closes it.

    As the model sees it: LF line ends, no byte order mark, a newline at the end.

    >>> trace = edit_trace(FileEdit("1", "x = 1\\r\\n", "x = 2\\r\\n", instruction="Set x to 2.", path="a.py"))
    >>> trace.source, trace.output
    ('x = 1\\n', 'x = 2\\n```')
    """
    region = Region.of(edit.before)
    prompt = build_edit_prompt(
        region,
        num_context_lines=EditConfig().num_context_lines,
        instruction=edit.instruction,
        update=edit.update,
        path=edit.path,
        language=edit.language,
    )
    return Trace(
        id=edit.id,
        prompt=ByteTokenizer().render_chat(prompt.messages, prompt.prefill),
        output=Region.of(edit.after).model_view + prompt.fence,
        source=region.model_view,
        context=edit.context,
    )


def changed_share(before: str, after: str) -> float:
    """Removed and added lines, of all lines on both sides.

    >>> changed_share("a\\nb\\nc\\nd\\n", "a\\nB\\nc\\nd\\n")
    0.25
    """
    before_lines, after_lines = split_lines(before), split_lines(after)
    num_changed = sum(
        hunk.before_end - hunk.before_start + hunk.after_end - hunk.after_start
        for hunk in changed_hunks(before_lines, after_lines)
    )
    return num_changed / max(1, len(before_lines) + len(after_lines))


def edit_traces(edits: Iterable[FileEdit], bounds: EditBounds | None, tally: Tally) -> Iterator[Trace]:
    """The traces of the edits inside the bounds, as they come; `tally` counts along.

    Without bounds only those are left out that can't be a trace: nothing changed, or a special token is spelled.
    """
    for edit in edits:
        reason = _why_not(edit, bounds)
        if reason is None:
            tally.num_traces += 1
            yield edit_trace(edit)
        else:
            tally.reasons[reason] += 1


def _why_not(edit: FileEdit, bounds: EditBounds | None) -> str | None:
    before, after = Region.of(edit.before).model_view, Region.of(edit.after).model_view
    texts = (before, after, edit.instruction or "", edit.update or "")
    if bounds and not bounds.min_characters <= len(before) <= bounds.max_characters:
        return "too short" if len(before) < bounds.min_characters else "too long"
    if any(special in text for special in ByteTokenizer.SPECIAL_TOKENS for text in texts):
        return "spelling a special token"  # the prompt would end there
    if before == after:
        return "unchanged"
    if fence_for(before, edit.update or "") != fence_for(before, edit.update or "", after):
        return "closing the answer's fence"  # the first code block in a text, whose fence the prompt can't know
    return _why_out_of_bounds(edit.path, before, after, bounds) if bounds else None


def _why_out_of_bounds(path: str | None, before: str, after: str, bounds: EditBounds) -> str | None:
    if len(after) > 2 * bounds.max_characters:
        return "too long"
    if reason := why_not_source(path, before):
        return reason
    share = changed_share(before, after)
    if bounds.min_changed_share <= share <= bounds.max_changed_share:
        return None
    return "changed too little" if share < bounds.min_changed_share else "changed too much"
