"""What of an answer stands word for word in the texts that it was made from: `include: ["provenance"]`."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel

from lookahead_edit.tasks import EditRequest, EditResult
from lookahead_edit.text_lines import PositionEncoding, unit_offsets
from lookahead_edit.text_quotes import MIN_WORDS, find_quotes

# The index of the sources takes about 90 bytes a word or sign: at most some 200 MB while it is needed.
MAX_COMPARED_CHARACTERS = 2 * 1024 * 1024


class QuoteSpan(BaseModel):
    """`text[start:end]` of the answer is `source[source_start:source_end]`, both counted from the text's beginning."""

    start: int
    end: int
    source: str
    source_start: int
    source_end: int


class Provenance(BaseModel):
    """The quotes of an answer, in its order; they don't overlap.

    Offsets count units of `position_encoding`: with ``utf-16``, ``text.slice(start, end)`` in JavaScript. Quotes are
    whole words, at least `min_words` of them. `quoted_share` is the share of the answer's characters in quotes, null
    for an empty answer.
    """

    position_encoding: PositionEncoding
    min_words: int
    quoted_share: float | None
    spans: list[QuoteSpan]


def provenance(
    text: str, sources: Sequence[tuple[str, str]], position_encoding: PositionEncoding = "utf-16"
) -> tuple[Provenance | None, list[str]]:
    """The quotes, and warnings. Takes its time for long texts: not for the event loop.

    Args:
        text: the answer.
        sources: names and texts of what it may quote, e.g. ``[("messages[0]", "…")]``.
        position_encoding: of all offsets.
    """
    num_characters = max(len(text), sum(len(source) for _, source in sources))
    if num_characters > MAX_COMPARED_CHARACTERS:
        return None, [
            f"provenance: expected texts of at most {MAX_COMPARED_CHARACTERS} characters, got {num_characters}"
        ]
    quotes = find_quotes(text, [source for _, source in sources])
    offsets = unit_offsets(text, position_encoding)
    quoted_sources = {quote.source for quote in quotes}
    source_offsets = {number: unit_offsets(sources[number][1], position_encoding) for number in quoted_sources}
    spans = [
        QuoteSpan(
            start=offsets[quote.start],
            end=offsets[quote.end],
            source=sources[quote.source][0],
            source_start=source_offsets[quote.source][quote.source_start],
            source_end=source_offsets[quote.source][quote.source_end],
        )
        for quote in quotes
    ]
    num_quoted = sum(quote.end - quote.start for quote in quotes)
    share = num_quoted / len(text) if text else None
    return Provenance(position_encoding=position_encoding, min_words=MIN_WORDS, quoted_share=share, spans=spans), []


def edit_provenance(
    request: EditRequest, result: EditResult, position_encoding: PositionEncoding
) -> tuple[Provenance | None, list[str]]:
    """Of an edited document: what stands in the one before, in the snippet, or in the instruction.

    Files given as `context` are no sources: the model doesn't read them.
    """
    named = (("input", request.text), ("update", request.update), ("instruction", request.instruction))
    sources = [(name, text) for name, text in named if text is not None]
    return provenance(result.text, sources, position_encoding)
