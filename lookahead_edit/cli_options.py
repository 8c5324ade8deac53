"""Options that several commands share, and what stands behind them: configuration, the editor, following a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from lookahead_edit.cli_display import Display
from lookahead_edit.cli_files import write_standard_output
from lookahead_edit.config import SamplingConfig, ServerConfig, SpeculationConfig, TargetConfig
from lookahead_edit.types import InvalidInput

if TYPE_CHECKING:
    from lookahead_edit.editor import Editor, Progress
    from lookahead_edit.metrics import SpeculationMetrics

EXIT_FAILED = 2  # the request can't be served

# Where the defaults of the options come from.
SAMPLING, SPECULATION, SERVER = SamplingConfig(), SpeculationConfig(), ServerConfig()


Model = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", help="Directory, GGUF file or hub id; the default model if left out.", metavar="NAME"
    ),
]


class Dtype(str, Enum):
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


DtypeOption = Annotated[
    Dtype | None,
    typer.Option(
        "--dtype",
        help=f"{', '.join(dtype.value for dtype in Dtype)}; by default float32, on a GPU that has it bfloat16.",
        metavar="DTYPE",
    ),
]


class TargetKind(str, Enum):
    DYNAMIC = "dynamic"
    STATIC = "static"
    DETERMINISTIC = "deterministic"


TargetOption = Annotated[
    TargetKind,
    typer.Option(
        "--target",
        help="How the model is run: dynamic; static, with passes that a GPU records; or deterministic, in which drafts "
        "don't change a bit of it.",
        metavar="KIND",
    ),
]
Device = Annotated[str | None, typer.Option("--device", help="By default the GPU, if there is one.", metavar="DEVICE")]
MaxTokens = Annotated[
    int | None, typer.Option("--max-tokens", help="The most that may be generated.", min=1, metavar="N")
]
Temperature = Annotated[float, typer.Option("--temperature", help="0 always takes the likeliest token.", metavar="T")]
Seed = Annotated[
    int, typer.Option("--seed", help="With one seed, the text is the same with and without drafts.", metavar="N")
]
NoSpeculation = Annotated[bool, typer.Option("--no-speculation", help="Decode plainly, one token a round.")]
# Their names are written out: what makes them is imported with a model, and help must not wait for that.
Drafter = Annotated[
    str, typer.Option("--drafter", help="What guesses the next tokens: edit, suffix, ngram or none.", metavar="NAME")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document with text, figures and all.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Nothing but the result.")]


def require_command(context: typer.Context) -> None:
    """Shows the help of a group, and exits as for a wrong request, where none of its commands was named."""
    if context.invoked_subcommand is None:
        write_standard_output(f"{context.get_help()}\n")
        raise typer.Exit(EXIT_FAILED)


def open_editor(
    model: str | None,
    dtype: Dtype | None,
    device: str | None,
    display: Display,
    target: TargetKind = TargetKind.DYNAMIC,
) -> Editor:
    """Loads the model; the first use of the default model shows its own progress."""
    from lookahead_edit.targets.default_model import default_model_directory
    from lookahead_edit.targets.loading import is_default, load_editor

    if is_default(model):
        default_model_directory(display.console)
    with display.live("loading the model"):
        return load_editor(
            model,
            dtype=None if dtype is None else dtype.value,
            device=device,
            target=TargetConfig(kind=target.value),
        )


def require_text(text: str, name: str) -> str:
    """The text, where it says something. `name` is what it is called in the message."""
    if not text.strip():
        raise InvalidInput(f"expected {name} to say something, got an empty one", param=name, code="missing_field")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"expected {name} to be valid UTF-8", param=name) from None
    return text


def configs(
    temperature: float, seed: int, drafter: str, no_speculation: bool
) -> tuple[SamplingConfig, SpeculationConfig]:
    """Raises InvalidInput for values out of range and for a drafter that doesn't exist."""
    from lookahead_edit.speculation import check_speculation

    speculation = SpeculationConfig(enabled=not no_speculation, drafter=drafter)
    check_speculation(speculation)
    return SamplingConfig(temperature=temperature, seed=seed), speculation


Result = TypeVar("Result")


def follow(
    stream: Iterable[Progress | Result],
    *,
    update: Callable[[SpeculationMetrics], None] = lambda metrics: None,
    write: Callable[[str], None] = lambda delta: None,
) -> Result:
    """Follows a stream to its result; `write` gets the text as it comes."""
    from lookahead_edit.editor import Progress

    for event in stream:
        if not isinstance(event, Progress):
            return event
        update(event.metrics)
        write(event.delta)
    raise AssertionError("a stream ends in its result")
