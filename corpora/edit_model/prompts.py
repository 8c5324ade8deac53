"""The prompt formats the adapter is trained on: ChatML, the answer's fence given. The product builds the same."""

from __future__ import annotations

import re
from collections.abc import Sequence

FILE_SYSTEM = "You edit files. Answer with the whole edited file in one code block."
RANGE_SYSTEM = "You edit files. Answer with the edited lines in one code block."
QUOTE_SYSTEM = "You answer with quotes from the text, word for word."
END_OF_TURN = "<|im_end|>"


def fence_for(*texts: str) -> str:
    """Three backticks, or one more than the longest run at the start of a line of the texts."""
    runs = [len(run) for text in texts for run in re.findall(r"^`{3,}", text, re.MULTILINE)]
    return "`" * (max(runs) + 1 if runs else 3)


def _chat(system: str, user: str, prefill: str) -> str:
    return (
        f"<|im_start|>system\n{system}{END_OF_TURN}\n<|im_start|>user\n{user}{END_OF_TURN}\n"
        f"<|im_start|>assistant\n{prefill}"
    )


def file_prompt(instruction: str, language: str, text: str) -> tuple[str, str]:
    """(prompt, closing fence) of a whole-file edit; the answer is the edited file and the fence."""
    fence = fence_for(text)
    user = f"{instruction}\n{fence}{language}\n{text}{fence}"
    return _chat(FILE_SYSTEM, user, f"{fence}{language}\n"), fence


def merge_instruction(language: str, update: str, text: str) -> str:
    """The instruction of a lazy-snippet merge; `text` is the file it goes into."""
    fence = fence_for(text, update)
    return f"Apply this update:\n{fence}{language}\n{update}{fence}"


def range_prompt(
    instruction: str, language: str, before: Sequence[str], region: str, after: Sequence[str]
) -> tuple[str, str]:
    """(prompt, closing fence) of an edit of some lines; `before` and `after` are the lines around them."""
    texts = ["".join(line + "\n" for line in before), "".join(line + "\n" for line in after), region]
    fence = fence_for(*texts)
    blocks = [f"{fence}{language}\n{text}{fence}" for text in texts]
    user = f"{instruction}\nLines before:\n{blocks[0]}\nLines after:\n{blocks[1]}\nEdit only these lines:\n{blocks[2]}"
    return _chat(RANGE_SYSTEM, user, f"{fence}{language}\n"), fence


def quote_prompt(instruction: str, text: str) -> str:
    """The prompt of a quote task."""
    return _chat(QUOTE_SYSTEM, f"{instruction}\n\n{text}", "")
