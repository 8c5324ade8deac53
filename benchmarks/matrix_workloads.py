"""The matrix's workloads: prompts of the project's own corpora, in the model's chat format, at a given length.

Where a long prompt is wanted, other texts of the corpora stand in front, as in a request that carries more files than
the one to be edited. Runs no model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lookahead_edit.replay_tokens import tokenize_trace
from lookahead_edit.traces import Trace
from lookahead_edit.types import IntArray, Source, Tokenizer

CORPORA = Path(__file__).resolve().parent.parent / "corpora"
WORKLOADS = {
    "code edits": "edits.jsonl",
    "prose edits": "edits.jsonl",
    "structured output": "structured.jsonl",
    "quote-heavy summaries": "quotes.jsonl",
    "open chat": "chat_prompts.jsonl",
}
PROSE_LANGUAGES = frozenset({"markdown"})
MAX_UNFILLED_TOKENS = 512
NATURAL_EXCESS = 1.25  # a prompt may be so much longer than wanted, and is taken as it is
FILLER_HEAD = "Other texts, for comparison; leave them as they are:\n\n"
_TURN = re.compile(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>\n", re.DOTALL)
_ANSWER = "<|im_start|>assistant\n"


@dataclass(frozen=True)
class Item:
    """A request of a corpus, before it is rendered for a model."""

    id: str
    messages: tuple[Mapping[str, str], ...]
    prefill: str  # the answer begins with it
    source: str | None  # the text that is edited or quoted


@dataclass(frozen=True)
class MatrixTask:
    """One prompt, ready to decode."""

    name: str
    prompt: IntArray  # int32[num_prompt_tokens]
    sources: tuple[Source, ...]


def read_items(workload: str, corpora: Path = CORPORA) -> list[Item]:
    """All requests of a workload, in the corpus' order; KeyError for an unknown workload."""
    rows = [json.loads(line) for line in (corpora / WORKLOADS[workload]).read_text("utf-8").splitlines()]
    if workload.endswith("edits"):
        wants_prose = workload == "prose edits"
        rows = [row for row in rows if (row["language"] in PROSE_LANGUAGES) == wants_prose]
    return [_item(row) for row in rows]


def make_tasks(
    items: Sequence[Item], tokenizer: Tokenizer, num_context_tokens: int, num_tasks: int
) -> list[MatrixTask]:
    """`num_tasks` prompts of about `num_context_tokens`, spread over the items that are not longer by themselves.

    Up to `MAX_UNFILLED_TOKENS` prompts are taken as they are: before a short question, other texts are what a small
    model would go on with.

    Where all are longer, the shortest are taken. Raises InvalidInput for an item without tokens.
    """
    sizes = [len(tokenizer.encode(_render(item, tokenizer))) for item in items]
    fitting = [index for index, size in enumerate(sizes) if size <= NATURAL_EXCESS * num_context_tokens]
    if len(fitting) < num_tasks:
        fitting = sorted(sorted(range(len(items)), key=sizes.__getitem__)[:num_tasks])
    step = max(1, len(fitting) // num_tasks)
    chosen = fitting[::step][:num_tasks]
    is_filled = num_context_tokens > MAX_UNFILLED_TOKENS
    return [
        _task(items[index], items, tokenizer, num_context_tokens - sizes[index] if is_filled else 0) for index in chosen
    ]


def _item(row: Mapping[str, Any]) -> Item:
    if "message" in row:
        return Item(row["id"], ({"role": "user", "content": row["message"]},), "", None)
    prompt: str = row["prompt"]
    messages = tuple({"role": role, "content": content} for role, content in _TURN.findall(prompt))
    return Item(row["id"], messages, prompt.rpartition(_ANSWER)[2], row.get("source"))


def _task(item: Item, items: Sequence[Item], tokenizer: Tokenizer, num_missing_tokens: int) -> MatrixTask:
    filler = ""
    num_filler_tokens = num_missing_tokens - _head_size(tokenizer)
    if num_filler_tokens > 0:
        tokens = tokenizer.encode("\n\n".join(_other_texts(item, items)), parse_special=False)[:num_filler_tokens]
        filler = f"{FILLER_HEAD}{tokenizer.decode(tokens)}\n\n"
    rendered = _render(item, tokenizer, filler)
    source = item.source if item.source and item.source in rendered else None
    traced = tokenize_trace(Trace(item.id, rendered, " ", source), tokenizer)
    return MatrixTask(item.id, traced.prompt, traced.sources)


def _other_texts(item: Item, items: Sequence[Item]) -> list[str]:
    """Of other items, then of other corpora; each once, and never the item's own."""
    folder = CORPORA / "edits"
    texts = [other.source for other in items if other.source]
    texts += [path.read_text("utf-8") for path in sorted(folder.iterdir()) if path.suffix != ".edits"]
    return [text for text in dict.fromkeys(texts) if text != item.source]


def _head_size(tokenizer: Tokenizer) -> int:
    return len(tokenizer.encode(FILLER_HEAD, parse_special=False)) + 1


def _render(item: Item, tokenizer: Tokenizer, filler: str = "") -> str:
    *earlier, last = item.messages
    return tokenizer.render_chat([*earlier, {**last, "content": filler + last["content"]}], item.prefill)
