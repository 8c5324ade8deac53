"""The matrix's workloads: edits of the benchmark's set and prompts of the corpora, in the model's chat format.

Where a long prompt is wanted, other texts of the corpora stand in front, as in a request that carries more files than
the one to be edited. Runs no model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.bench_edit import BenchEdit
from benchmarks.edit_set import EDITS
from lookahead_edit.config import EditConfig
from lookahead_edit.edit_text import build_edit_prompt, language_of
from lookahead_edit.replay_tokens import tokenize_trace
from lookahead_edit.text_lines import with_final_newline
from lookahead_edit.text_region import Region
from lookahead_edit.traces import Trace
from lookahead_edit.types import IntArray, Source, Tokenizer

CORPORA = Path(__file__).resolve().parent.parent / "corpora"
CODE_EDITS, PROSE_EDITS = "code edits", "prose edits"
CORPUS_FILES = {
    "structured output": "structured.jsonl",
    "quote-heavy summaries": "quotes.jsonl",
    "open chat": "chat_prompts.jsonl",
}
WORKLOADS = (CODE_EDITS, PROSE_EDITS, *CORPUS_FILES)
PROSE_LANGUAGES = frozenset({"markdown"})
MAX_UNFILLED_TOKENS = 512
NATURAL_EXCESS = 1.25  # a prompt may be so much longer than wanted, and is taken as it is
FILLER_HEAD = "Other texts, for comparison; leave them as they are:\n\n"
_TURN = re.compile(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>\n", re.DOTALL)
_ANSWER = "<|im_start|>assistant\n"


@dataclass(frozen=True)
class Item:
    """A request, before it is rendered for a model."""

    id: str
    messages: tuple[Mapping[str, str], ...]
    prefill: str  # the answer begins with it
    source: str | None  # the text that is edited or quoted
    answer: str | None = None  # the one right answer, its closing fence included; None: there are many, or none


@dataclass(frozen=True)
class MatrixTask:
    """One prompt, ready to decode."""

    name: str
    prompt: IntArray  # int32[num_prompt_tokens]
    sources: tuple[Source, ...]


def read_items(workload: str, config: EditConfig | None = None) -> list[Item]:
    """All requests of a workload, in their set's order; edits as an editor of this `config` asks for them.

    Raises KeyError for an unknown workload.
    """
    if workload not in (CODE_EDITS, PROSE_EDITS):
        return [_item(row) for row in _rows(CORPUS_FILES[workload])]
    languages = [
        *((language_of(edit.path), _edit_item(edit, config or EditConfig())) for edit in EDITS),
        *((row["language"], replace(_item(row), answer=row["output"].rstrip())) for row in _rows("edits.jsonl")),
    ]
    return [item for language, item in languages if (language in PROSE_LANGUAGES) == (workload == PROSE_EDITS)]


def _rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(row) for row in (CORPORA / name).read_text("utf-8").splitlines()]


def make_tasks(
    items: Sequence[Item], tokenizer: Tokenizer, num_context_tokens: int, num_tasks: int
) -> list[MatrixTask]:
    """`num_tasks` prompts of about `num_context_tokens`, spread over the items that are not longer by themselves.

    Where all are longer, the shortest are taken. Raises InvalidInput for an item without tokens.
    """
    sizes = [len(tokenizer.encode(_render(item, tokenizer))) for item in items]
    fitting = [index for index, size in enumerate(sizes) if size <= NATURAL_EXCESS * num_context_tokens]
    if len(fitting) < num_tasks:
        fitting = sorted(sorted(range(len(items)), key=sizes.__getitem__)[:num_tasks])
    step = max(1, len(fitting) // num_tasks)
    chosen = [items[index] for index in fitting[::step][:num_tasks]]
    return [make_task(item, items, tokenizer, num_context_tokens) for item in chosen]


def make_task(item: Item, items: Sequence[Item], tokenizer: Tokenizer, num_context_tokens: int) -> MatrixTask:
    """The item's prompt, filled up to about `num_context_tokens` with texts of other items and corpora.

    Up to `MAX_UNFILLED_TOKENS` a prompt is taken as it is: before a short question, other texts are what a small model
    would go on with.
    """
    filler = ""
    if num_context_tokens > MAX_UNFILLED_TOKENS:
        num_missing_tokens = num_context_tokens - len(tokenizer.encode(_render(item, tokenizer)))
        num_filler_tokens = num_missing_tokens - _head_size(tokenizer)
        if num_filler_tokens > 0:
            tokens = tokenizer.encode("\n\n".join(_other_texts(item, items)), parse_special=False)[:num_filler_tokens]
            filler = f"{FILLER_HEAD}{tokenizer.decode(tokens)}\n\n"
    rendered = _render(item, tokenizer, filler)
    source = item.source if item.source and item.source in rendered else None
    traced = tokenize_trace(Trace(item.id, rendered, " ", source), tokenizer)
    return MatrixTask(item.id, traced.prompt, traced.sources)


def _edit_item(edit: BenchEdit, config: EditConfig) -> Item:
    prompt = build_edit_prompt(
        Region.of(edit.before),
        num_context_lines=config.num_context_lines,
        file_first=config.file_first,
        instruction=edit.instruction,
        path=edit.path,
    )
    answer = f"{with_final_newline(edit.expected)}{prompt.fence}"
    return Item(edit.name, tuple(prompt.messages), prompt.prefill, prompt.region_text, answer)


def _item(row: Mapping[str, Any]) -> Item:
    if "message" in row:
        return Item(row["id"], ({"role": "user", "content": row["message"]},), "", None)
    prompt: str = row["prompt"]
    messages = tuple({"role": role, "content": content} for role, content in _TURN.findall(prompt))
    return Item(row["id"], messages, prompt.rpartition(_ANSWER)[2], row.get("source"))


def _other_texts(item: Item, items: Sequence[Item]) -> list[str]:
    """Of other items, then of the corpus of edits; each once, and never the item's own."""
    folder = CORPORA / "edits"
    texts = [other.source for other in items if other.source]
    texts += [path.read_text("utf-8") for path in sorted(folder.iterdir()) if path.suffix != ".edits"]
    return [text for text in dict.fromkeys(texts) if text != item.source]


def _head_size(tokenizer: Tokenizer) -> int:
    return len(tokenizer.encode(FILLER_HEAD, parse_special=False)) + 1


def _render(item: Item, tokenizer: Tokenizer, filler: str = "") -> str:
    *earlier, last = item.messages
    return tokenizer.render_chat([*earlier, {**last, "content": filler + last["content"]}], item.prefill)
