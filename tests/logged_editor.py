"""An Editor whose model writes a logged answer: everything around the model is the real thing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lookahead_edit.editor import Editor, EditRequest, EditResult
from lookahead_edit.targets.recorded import RecordedTarget
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.types import IntArray, Row, Tokenizer, Verified

BYTES = ByteTokenizer()
FILE = "".join(f"line_{number} = {number * 7}\n" for number in range(40))


class LoggedTarget(RecordedTarget):
    """Answers every prompt with `answer`; keeps prompts, and which rows are open."""

    def __init__(self, answer: str, tokenizer: Tokenizer = BYTES, **options: Any) -> None:
        tokens = tokenizer.encode(answer, parse_special=False)
        (end_token_id,) = tokenizer.eos_token_ids
        super().__init__(lambda prompt: tokens, end_token_id=end_token_id, **options)
        self.prompts: list[IntArray] = []
        self.open_keys: set[int] = set()

    def verify(self, rows: Sequence[Row]) -> Verified:
        for row in rows:
            if len(row.tokens) == row.num_prompt_tokens:
                self.prompts.append(row.tokens.copy())
                self.open_keys.add(row.key)
        return super().verify(rows)

    def close(self, key: int) -> None:
        super().close(key)
        self.open_keys.discard(key)


def logged_editor(answer: str, tokenizer: Tokenizer = BYTES, **options: Any) -> Editor:
    return Editor(LoggedTarget(answer, tokenizer, **options), tokenizer)


def target_of(editor: Editor) -> LoggedTarget:
    assert isinstance(editor.target, LoggedTarget)
    return editor.target


def edited(text: str, answer: str, instruction: str | None = "Do it.", **options: Any) -> EditResult:
    editor = logged_editor(answer)
    result = editor.edit(EditRequest(text, instruction, **options))
    assert not target_of(editor).open_keys
    return result
