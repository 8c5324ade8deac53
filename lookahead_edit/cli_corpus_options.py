"""Options that all commands which look for edits take: which edits, which files, and what goes along with them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any

import typer

from lookahead_edit.corpus_edits import EditBounds
from lookahead_edit.corpus_files import ContextBounds, parse_suffixes

BOUNDS, CONTEXT = EditBounds(), ContextBounds()


@dataclass(frozen=True)
class EditOptions:
    """What a command looks for."""

    bounds: EditBounds
    suffixes: frozenset[str]  # of the files that are looked at; empty for those of all known languages
    context: ContextBounds | None  # how much of the other files goes along; None for nothing

    @property
    def limits(self) -> list[str]:
        """What was limited other than by default, as it would be typed in."""
        return changed_limits(
            min_characters=(self.bounds.min_characters, BOUNDS.min_characters),
            max_characters=(self.bounds.max_characters, BOUNDS.max_characters),
            min_changed=(self.bounds.min_changed_share, BOUNDS.min_changed_share),
            max_changed=(self.bounds.max_changed_share, BOUNDS.max_changed_share),
            suffix=(",".join(sorted(self.suffixes)), ""),
        )


def changed_limits(**limits: tuple[object, object]) -> list[str]:
    """The options, by parameter, whose value is not the default.

    >>> changed_limits(max_commits=(5, 20_000), since=(None, None))
    ['--max-commits 5']
    """
    return [f"--{name.replace('_', '-')} {value}" for name, (value, default) in limits.items() if value != default]


def edit_options(
    *,
    min_characters: Annotated[
        int, typer.Option("--min-characters", help="Shorter files are left out.", metavar="N")
    ] = BOUNDS.min_characters,
    max_characters: Annotated[
        int, typer.Option("--max-characters", help="Longer files are left out.", metavar="N")
    ] = BOUNDS.max_characters,
    min_changed: Annotated[
        float, typer.Option("--min-changed", help="Least share of changed lines, of 1.", metavar="SHARE")
    ] = BOUNDS.min_changed_share,
    max_changed: Annotated[
        float, typer.Option("--max-changed", help="Largest share of changed lines, of 1.", metavar="SHARE")
    ] = BOUNDS.max_changed_share,
    suffix: Annotated[
        list[str] | None,
        typer.Option(
            "--suffix", help="Only such files, e.g. .py; repeatable. By default known languages.", metavar="SUFFIX"
        ),
    ] = None,
    context: Annotated[
        bool, typer.Option("--context", help="Add the nearest other files, before the edit, as draft-only text.")
    ] = False,
    context_files: Annotated[
        int, typer.Option("--context-files", help="The most files of context a trace.", metavar="N", min=1)
    ] = CONTEXT.max_files,
    context_characters: Annotated[
        int, typer.Option("--context-characters", help="The most characters of context a trace.", metavar="N", min=1)
    ] = CONTEXT.max_characters,
) -> EditOptions:
    """The options as they are typed in; InvalidInput for bounds that contradict each other and for no suffix."""
    return EditOptions(
        bounds=EditBounds(min_characters, max_characters, min_changed, max_changed),
        suffixes=parse_suffixes(suffix or ()),
        context=ContextBounds(context_files, context_characters) if context else None,
    )


def takes_edit_options(command: Callable[..., None]) -> Callable[..., None]:
    """For typer, whose options are parameters: a command's parameter `options` becomes those of `edit_options`."""
    shared = inspect.signature(edit_options, eval_str=True).parameters
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "options"]

    @wraps(command)
    def run(**values: Any) -> None:
        options = edit_options(**{name: values.pop(name) for name in shared})
        command(options=options, **values)

    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *shared.values())]
    # typer looks at both.
    vars(run)["__signature__"] = signature.replace(parameters=parameters)
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run
