"""Shows where each token of an output came from, on a terminal; what the page in `cli_explain_html.py` shares with it.

Knows no drafter: what is shown was worked out by `replay_explain.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from lookahead_edit.cli_display import counted, rendered
from lookahead_edit.cli_files import write_standard_output
from lookahead_edit.replay_explain import BONUS, CORRECTED, PLAIN, ExplainedRound, Explanation, special_sign
from lookahead_edit.text_visible import in_one_line, visible_text

MAX_SAMPLE_CHARACTERS = 60
OWN_ORIGINS = (CORRECTED, BONUS, PLAIN)
MIN_WIDTH = 200  # characters, where no terminal limits it


@dataclass(frozen=True, slots=True)
class OriginStyle:
    """How tokens of one origin look, on light and on dark ground; `letter` stands for it where there are no colours."""

    letter: str
    meaning: str
    light: tuple[str, str]  # ground, ink
    dark: tuple[str, str]
    basic: str  # for terminals of 16 colours


# Readable without red or green: grounds differ in lightness too, and what the target wrote itself is saturated.
ORIGIN_STYLES = {
    "file": OriginStyle("f", "copied from the file", ("#d7efe3", "#12382a"), ("#173d2f", "#cdeedd"), "green"),
    "prediction": OriginStyle(
        "p", "copied from the prediction", ("#e6edb8", "#353a08"), ("#3b4112", "#e9efbf"), "yellow"
    ),
    "prompt": OriginStyle(
        "i", "copied from elsewhere in the prompt", ("#d3e5fa", "#0f2f55"), ("#183a63", "#d3e5fa"), "cyan"
    ),
    "output": OriginStyle("o", "copied from the output so far", ("#e5dcf7", "#352061"), ("#3d2b6b", "#e5dcf7"), "blue"),
    "context": OriginStyle("c", "copied from another file", ("#f8d9ea", "#571a3c"), ("#5e2245", "#f8d9ea"), "magenta"),
    "model": OriginStyle("m", "guessed by a model", ("#dfe3e8", "#23282e"), ("#3a4149", "#e3e7ec"), "bright_black"),
    "corrected": OriginStyle(
        "x",
        "the model's own, after a rejected draft",
        ("#b5341c", "#ffffff"),
        ("#d9573d", "#1a0703"),
        "bold white on red",
    ),
    "bonus": OriginStyle(
        "b",
        "the model's own, after a draft accepted whole",
        ("#ffd166", "#3d2c00"),
        ("#e0ad35", "#241a00"),
        "black on yellow",
    ),
    "plain": OriginStyle(
        "n", "the model's own, nothing was drafted", ("#4f5b66", "#ffffff"), ("#a9b4be", "#14181b"), "reverse"
    ),
}


def drafted_and_came(explained: ExplainedRound, max_characters: int = MAX_SAMPLE_CHARACTERS) -> tuple[str, str]:
    """What was rejected and what came instead, each in one line; nothing comes where the accepted part has the end."""
    rejected, came = explained.rejected_text, explained.came_text
    return _sample_of(rejected, max_characters), _sample_of(came, max_characters) if came else "(it had ended)"


def _sample_of(text: str, max_characters: int = MAX_SAMPLE_CHARACTERS) -> str:
    if not text:  # tokens that the tokenizer doesn't know
        return "(no text)"
    shown = visible_text(text).replace("\n", "⏎").replace("\t", "⇥")
    return shown if len(shown) <= max_characters else shown[: max_characters - 1] + "…"


def round_title(explained: ExplainedRound) -> str:
    """What happened in one round, in one line and, where something was rejected, two more."""
    head = f"round {explained.number}: "
    if not explained.num_draft_tokens:
        return f"{head}nothing drafted ({explained.reason or 'no reason given'})"
    head += (
        f"{explained.num_accepted_tokens} of {counted(explained.num_draft_tokens, 'token')} from "
        f"{explained.draft_origin} accepted, match of {explained.match_length}"
    )
    if explained.num_accepted_tokens == explained.num_draft_tokens:
        return f"{head}\ndrafted {_sample_of(explained.accepted_text)}"
    drafted, came = drafted_and_came(explained)
    return f"{head}\ndrafted {drafted}\ncame    {came}"


def shares(explanation: Explanation) -> list[tuple[str, int, float]]:
    """Origin, tokens, and their share of the output, 0 to 1."""
    return [
        (origin, count, count / explanation.num_tokens) for origin, count in explanation.num_tokens_by_origin.items()
    ]


def print_explanation(explanation: Explanation, *, title: str, cost: float) -> None:
    """Legend, the output, the costliest rounds, to standard output.

    Without colours, a letter in front of each piece says where it came from.
    """
    console = Console(highlight=False)
    width = console.width if console.is_terminal else max(MIN_WIDTH, console.width)
    colors = console.color_system
    shown = rendered(
        Text(f"\n{in_one_line(title)}", style="bold"),
        _legend(explanation, colors),
        "",
        _colored(explanation, colors),
        "",
        _costliest(explanation, cost),
        width=width,
        is_trimmed=False,
    )
    write_standard_output(shown if colors else "".join(f"{line.rstrip(' ')}\n" for line in shown.split("\n")[:-1]))


def _style(origin: str, colors: str | None) -> str:
    """For rich; `colors` is the console's colour system."""
    style = ORIGIN_STYLES[origin]
    if colors in ("256", "truecolor"):
        return f"{style.light[1]} on {style.light[0]}"
    return style.basic if colors else ""


def _legend(explanation: Explanation, colors: str | None) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right")
    table.add_column()
    for origin, count, share in shares(explanation):
        label = f" {origin} " if colors else f"⟨{ORIGIN_STYLES[origin].letter}⟩ {origin}"
        meaning = ORIGIN_STYLES[origin].meaning
        table.add_row(Text(label, style=_style(origin, colors)), str(count), f"{share:.1%}", meaning)
    table.add_row("│", str(len(explanation.rounds)), "", "where a round begins")
    return table


def _colored(explanation: Explanation, colors: str | None) -> Text:
    text = Text()
    round_number = 0
    for span in explanation.spans:
        if span.round_number != round_number:
            round_number = span.round_number
            text.append("│", style="dim")
        if not span.text and span.special is None:
            continue
        if not colors:
            text.append(f"⟨{ORIGIN_STYLES[span.origin].letter}⟩")
        shown = visible_text(span.text)
        # A line end has no colour of its own, so where the model wrote it a sign shows that.
        shown = shown.replace("\n", "⏎\n") if span.origin in OWN_ORIGINS else shown
        text.append(shown, style=_style(span.origin, colors))
        if span.special is not None:
            text.append(special_sign(span.special), style=f"{_style(span.origin, colors)} dim")
    return text


def _costliest(explanation: Explanation, cost: float) -> RenderableType:
    costliest = explanation.costliest_rounds(cost)
    if not costliest:
        return Text("No draft was rejected.")
    table = Table(box=box.SIMPLE_HEAD, title=f"Costliest rounds, at c = {cost:g}", title_justify="left", padding=(0, 1))
    for header in ("round", "cost a token", "accepted"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("from", no_wrap=True)
    table.add_column("drafted", overflow="fold")
    table.add_column("came", overflow="fold")
    for explained in costliest:
        table.add_row(
            str(explained.number),
            f"{explained.cost_per_token(cost):.2f}",
            f"{explained.num_accepted_tokens} of {explained.num_draft_tokens}",
            explained.draft_origin,
            *map(Text, drafted_and_came(explained)),
        )
    return table
