"""The edit task as text: the prompt, its fence and its language. Knows no tokens and no model.

Beside it: `text_region` (what is edited, and putting it back), `text_answer` (cleaning what the model writes),
`text_placeholders` (answers that leave code out), `text_changes` (edits and diffs), `text_lines` (lines, positions).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from lookahead_edit.text_answer import AnswerStream
from lookahead_edit.text_lines import BOM, split_lines, to_lf, with_final_newline
from lookahead_edit.text_region import Region
from lookahead_edit.types import InvalidInput

WHOLE_FILE_SYSTEM = "You edit files. Answer with the whole edited file in one code block."
RANGE_SYSTEM = "You edit files. Answer with the edited lines in one code block."

_LANGUAGES_BY_SUFFIX = {
    **dict.fromkeys((".py", ".pyi", ".pyw"), "python"),
    **dict.fromkeys((".js", ".mjs", ".cjs"), "javascript"),
    **dict.fromkeys((".ts", ".mts", ".cts"), "typescript"),
    **dict.fromkeys((".json", ".jsonc", ".ipynb"), "json"),
    **dict.fromkeys((".yaml", ".yml"), "yaml"),
    **dict.fromkeys((".ini", ".cfg", ".conf"), "ini"),
    **dict.fromkeys((".html", ".htm"), "html"),
    **dict.fromkeys((".md", ".markdown"), "markdown"),
    **dict.fromkeys((".c", ".h"), "c"),
    **dict.fromkeys((".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx"), "cpp"),
    **dict.fromkeys((".sh", ".bash", ".zsh"), "bash"),
    **dict.fromkeys((".kt", ".kts"), "kotlin"),
    **dict.fromkeys((".txt", ".text", ".log"), "text"),
    ".cs": "csharp",
    ".css": "css",
    ".dart": "dart",
    ".ex": "elixir",
    ".go": "go",
    ".hs": "haskell",
    ".java": "java",
    ".jsx": "jsx",
    ".lua": "lua",
    ".php": "php",
    ".pl": "perl",
    ".proto": "protobuf",
    ".ps1": "powershell",
    ".r": "r",
    ".rb": "ruby",
    ".rs": "rust",
    ".rst": "rst",
    ".scala": "scala",
    ".scss": "scss",
    ".sql": "sql",
    ".svelte": "svelte",
    ".swift": "swift",
    ".tex": "latex",
    ".toml": "toml",
    ".tsx": "tsx",
    ".vue": "vue",
    ".xml": "xml",
}
_LANGUAGES_BY_NAME = {
    ".bashrc": "bash",
    ".gitconfig": "ini",
    "cmakelists.txt": "cmake",
    "dockerfile": "dockerfile",
    "makefile": "makefile",
}
# Backticks would end the fence, and angle brackets may spell a special token of the prompt.
_LANGUAGE = re.compile(r"[^\s`<>|]{1,64}")
_BACKTICK_RUN = re.compile(r"`{3,}")


@dataclass(frozen=True, slots=True)
class EditPrompt:
    """A conversation that ends in an opened code block.

    ``user[region_start:region_end]`` is the region as the model sees it: its tokens are what an answer mostly copies.
    """

    system: str
    user: str
    prefill: str
    fence: str
    language: str
    region_start: int
    region_end: int

    @property
    def messages(self) -> list[dict[str, str]]:
        """For a chat template; the assistant's turn is to be opened by `prefill`."""
        return [{"role": "system", "content": self.system}, {"role": "user", "content": self.user}]

    @property
    def region_text(self) -> str:
        return self.user[self.region_start : self.region_end]

    def answer_stream(self, stops: Sequence[str] = ()) -> AnswerStream:
        """What cleans an answer to this prompt."""
        return AnswerStream(
            self.fence,
            language=self.language,
            starts_with_fence=self.region_text.lstrip().startswith("```"),
            stops=stops,
        )


def build_edit_prompt(
    region: Region,
    *,
    num_context_lines: int,
    instruction: str | None = None,
    update: str | None = None,
    path: str | None = None,
    language: str | None = None,
    file_first: bool = False,
) -> EditPrompt:
    """Asks for an edit by instruction, or for a lazy snippet (`update`) to be merged, or both.

    With `file_first` the instruction stands behind the file, so that the next edit of the file begins alike as far as
    the file is unchanged. A snippet stays before it: the file is the last code block.

    Raises InvalidInput with `missing_field` where there is neither, and for a `language` that is no single word.

    >>> build_edit_prompt(Region.of("x = 1"), instruction="Set x to 2.", path="a.py", num_context_lines=20).user
    'Set x to 2.\\n```python\\nx = 1\\n```'
    """
    language = language_of(path, language)
    fence = fence_for(region.text, update or "")
    opening = f"{fence}{language}\n"
    asked = instruction if instruction and instruction.strip() else ""
    if not (asked or update):
        raise InvalidInput(
            "expected an instruction or an update, got neither", param="instruction", code="missing_field"
        )
    head = f"{asked}\n" if asked and not file_first else ""
    if update:
        snippet = with_final_newline(to_lf(update.removeprefix(BOM)))
        head += f"Apply this update:\n{opening}{snippet}{fence}\n"
    if not region.is_whole_document:
        before = split_lines(region.before.removeprefix(BOM))
        lines_before = _shown(before[max(0, len(before) - num_context_lines) :])
        lines_after = _shown(split_lines(region.after)[:num_context_lines])
        head += (
            f"Lines before:\n{opening}{lines_before}{fence}\nLines after:\n{opening}{lines_after}{fence}\n"
            "Edit only these lines:\n"
        )
    head += opening
    return EditPrompt(
        system=WHOLE_FILE_SYSTEM if region.is_whole_document else RANGE_SYSTEM,
        user=head + region.model_view + fence + (f"\n{asked}" if asked and file_first else ""),
        prefill=opening,
        fence=fence,
        language=language,
        region_start=len(head),
        region_end=len(head) + len(region.model_view),
    )


def fence_for(*texts: str) -> str:
    """Backticks that no text can be mistaken to end: three, or one more than the longest run of at least three."""
    return "`" * max((len(run) + 1 for text in texts for run in _BACKTICK_RUN.findall(text)), default=3)


def language_of(path: str | None, language: str | None = None) -> str:
    """The word behind a code block's fence: `language` if given, else known from the file's name, else empty.

    Raises InvalidInput for a `language` with blanks, backticks or ``<>|``, which would break the fence or the prompt.

    >>> language_of("src/main.rs"), language_of("src/main.rs", "cpp"), language_of(None)
    ('rust', 'cpp', '')
    """
    if language:
        if not _LANGUAGE.fullmatch(language):
            raise InvalidInput(f"expected a language of one word without ` < > |, got {language!r}", param="language")
        return language
    name = PurePosixPath((path or "").replace("\\", "/")).name.lower()
    return _LANGUAGES_BY_NAME.get(name) or _LANGUAGES_BY_SUFFIX.get(PurePosixPath(name).suffix, "")


def _shown(lines: Sequence[str]) -> str:
    return with_final_newline(to_lf("".join(lines)))
