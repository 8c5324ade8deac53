"""What the command line shows: the live line, the figures, the coloured diff. Knows no model and decides nothing."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from threading import Timer
from typing import TYPE_CHECKING, Any, cast

from rich.console import Console, RenderableType
from rich.text import Text

from lookahead_edit.cli_files import write_standard_output
from lookahead_edit.metrics import SpeculationMetrics
from lookahead_edit.text_visible import in_one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.status import Status

DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}
PATIENCE_SECONDS = 2.0  # what takes longer is named
MIN_RATE_SECONDS = 0.05  # before that, tokens per second say nothing


class Display:
    """Text on standard output, messages on standard error; with `is_quiet` only errors, warnings, what was asked for.

    A message is one line, whatever names are in it, and has that line for itself wherever it meets the text. With
    `is_long`, what takes more than `PATIENCE_SECONDS` is named in a plain line where no terminal shows a live one.
    """

    def __init__(self, *, is_quiet: bool = False, is_long: bool = False) -> None:
        self.is_quiet = is_quiet
        self.is_long = is_long
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._is_line_open = False  # whether the text so far doesn't end its last line

    def write_text(self, text: str) -> None:
        """Writes a piece of the text to standard output."""
        write_standard_output(text)
        if text:
            self._is_line_open = not text.endswith("\n")

    def end_text(self, *, is_exact: bool) -> None:
        """The text is complete, and its last line is ended; one that `is_exact`, a file's, only on a terminal."""
        if sys.stdout.isatty():
            self.begin_line()
        elif self._is_line_open and not is_exact:
            self._is_line_open = False
            write_standard_output("\n")

    def begin_line(self) -> None:
        """Ends the text's open line where a message would be read behind it; a file or a pipe gets nothing more."""
        if not self._is_line_open:
            return
        self._is_line_open = False
        if sys.stdout.isatty():
            write_standard_output("\n")
        elif _meet_elsewhere():
            sys.stderr.write("\n")
            sys.stderr.flush()

    def show(self, line: str) -> None:
        self._print(line)

    def say(self, line: str) -> None:
        if not self.is_quiet:
            self.show(line)

    def warn(self, line: str) -> None:
        self._print(f"warning: {line}", style="yellow")

    def fail(self, line: str) -> None:
        self._print(f"error: {line}", style="bold red")

    def _print(self, line: str, style: str = "") -> None:
        with suppress(OSError):  # a message that nobody can read changes nothing
            self.begin_line()
            self.console.print(Text(in_one_line(line), style=style))

    @contextmanager
    def live(self, label: str) -> Iterator[Callable[[SpeculationMetrics], None]]:
        """A line that moves while something runs, on a terminal only; what it yields shows the counters so far."""
        if self.is_quiet or not self.console.is_terminal:
            with self._named_if_long(label):
                yield lambda metrics: None
            return
        with self.console.status(label) as status:
            yield lambda metrics: _update(status, label, metrics)

    @contextmanager
    def _named_if_long(self, label: str) -> Iterator[None]:
        """Not at once: what fails at once is one line, the error."""
        if not self.is_long:
            yield
            return
        timer = Timer(PATIENCE_SECONDS, self.say, (f"{label} …",))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # what it is just saying comes before what is said next


def _meet_elsewhere() -> bool:
    """Whether redirected text and messages end up in one place: one file or pipe, or a pipe to the terminal."""
    try:
        output, errors = os.fstat(sys.stdout.fileno()), os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    if (output.st_dev, output.st_ino) == (errors.st_dev, errors.st_ino):
        return True
    # Where a pipe leads can't be known: `| cat` shows the text above the figures, `| wc` doesn't.
    return stat.S_ISFIFO(output.st_mode) and sys.stderr.isatty()


def _update(status: Status, label: str, metrics: SpeculationMetrics) -> None:
    parts = [f"{label}: {counted(metrics.num_emitted_tokens, 'token')}"]
    if metrics.tokens_per_second is not None and metrics.decode_seconds > MIN_RATE_SECONDS:
        parts.append(f"{metrics.tokens_per_second:.0f} tokens/s")
    if metrics.acceptance_rate is not None:
        parts.append(f"{metrics.acceptance_rate:.0%} of drafts accepted")
    status.update(", ".join(parts))


def counted(count: int, noun: str) -> str:
    """A number and what it counts.

    Example:
        >>> counted(1, "round"), counted(2100, "round")
        ('1 round', '2,100 rounds')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def summary(metrics: SpeculationMetrics) -> str:
    """The figures of one request in one line.

    Example: ``"412 tokens in 21 rounds (19.6 a round), 391 of 440 drafted tokens accepted (89 %), 61.3 tokens/s, …"``
    """
    parts = [f"{counted(metrics.num_emitted_tokens, 'token')} in {counted(metrics.num_rounds, 'round')}"]
    if metrics.tokens_per_round is not None:
        parts[0] += f" ({metrics.tokens_per_round:.1f} a round)"
    if metrics.acceptance_rate is not None:
        parts.append(
            f"{metrics.num_accepted_tokens} of {counted(metrics.num_draft_tokens, 'drafted token')} accepted "
            f"({metrics.acceptance_rate:.0%})"
        )
    else:
        parts.append(f"nothing drafted ({metrics.undrafted_reason})")
    if metrics.tokens_per_second is not None:
        parts.append(f"{metrics.tokens_per_second:.1f} tokens/s")
    parts.append(
        f"{metrics.total_seconds:.1f} s (of these {metrics.prefill_seconds:.1f} s to read "
        f"{counted(metrics.num_prompt_tokens, 'prompt token')})"
    )
    return ", ".join(parts)


def figures(metrics: SpeculationMetrics) -> dict[str, Any]:
    """The same for programs. Ratios are null where nothing was measured."""
    return {
        "prompt_tokens": metrics.num_prompt_tokens,
        "output_tokens": metrics.num_emitted_tokens,
        "rounds": metrics.num_rounds,
        "drafted": metrics.num_draft_tokens,
        "accepted": metrics.num_accepted_tokens,
        "tokens_per_round": metrics.tokens_per_round,
        "acceptance_rate": metrics.acceptance_rate,
        "tokens_per_second": metrics.tokens_per_second,
        "draft_seconds": metrics.draft_seconds,
        "verify_seconds": metrics.verify_seconds,
        "forward_seconds": metrics.forward_seconds,
        "prefill_seconds": metrics.prefill_seconds,
        "first_token_seconds": metrics.first_token_seconds,
        "total_seconds": metrics.total_seconds,
        "drafted_by_source": dict(metrics.num_drafted_by_source),
        "accepted_by_source": dict(metrics.num_accepted_by_source),
        "rounds_without_draft": dict(metrics.num_rounds_by_reason),
        "disabled_reason": metrics.undrafted_reason,
    }


def comparison(speculative: SpeculationMetrics, plain: SpeculationMetrics, *, is_identical: bool) -> list[str]:
    """Lines: both runs side by side, one a line, and whether their texts are the same."""
    rows = [("", "tokens", "rounds", "tokens/round", "decoding", "tokens/s")]
    for name, metrics in (("speculative", speculative), ("plain", plain)):
        rows.append(
            (
                name,
                str(metrics.num_emitted_tokens),
                str(metrics.num_rounds),
                _number(metrics.tokens_per_round, ".1f"),
                f"{metrics.decode_seconds:.2f} s",
                _number(metrics.tokens_per_second, ".1f"),
            )
        )
    lines = [f"{row[0]:<12}" + "".join(f"{cell:>14}" for cell in row[1:]) for row in rows]
    if speculative.decode_seconds > 0.0:
        lines.append(f"speed-up: {plain.decode_seconds / speculative.decode_seconds:.1f} times")
    lines.append(f"identical: {'yes' if is_identical else 'no'}")
    return lines


def rendered(*shown: RenderableType, width: int, is_trimmed: bool = True) -> str:
    """Tables and texts as standard output would show them, in so many columns; nothing is written yet.

    If `is_trimmed`, lines are not padded and the text has no empty ones at its ends.
    """
    output = Console(highlight=False)
    console = Console(
        file=StringIO(),
        highlight=False,
        width=width,
        force_terminal=output.is_terminal,
        no_color=output.no_color,
        color_system=cast(Any, output.color_system),
    )
    for each in shown:
        console.print(each, soft_wrap=isinstance(each, Text))
    text = cast(StringIO, console.file).getvalue()
    return "\n".join(map(str.rstrip, text.split("\n"))).strip("\n") + "\n" if is_trimmed else text


def show_diff(diff: str) -> None:
    """Coloured on a terminal; elsewhere the bytes that `git apply` and `patch` take."""
    console = Console(highlight=False, soft_wrap=True)
    if not (sys.stdout.isatty() and console.is_terminal):
        write_standard_output(diff)
        return
    for line in diff.split("\n")[:-1]:
        console.print(Text(line.rstrip("\r"), style=_diff_style(line)))


def _diff_style(line: str) -> str:
    if line.startswith(("+++", "---", "diff ")):
        return "bold"
    return DIFF_STYLES.get(line[:1], "")


def _number(value: float | None, spec: str) -> str:
    return "-" if value is None else format(value, spec)
