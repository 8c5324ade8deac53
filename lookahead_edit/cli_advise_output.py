"""What `advise` prints: two small tables, and what follows from them in sentences. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from lookahead_edit.cli_display import counted, rendered
from lookahead_edit.config import AdviseConfig
from lookahead_edit.text_visible import in_one_line

if TYPE_CHECKING:
    from lookahead_edit.advise import Advice, OutputLengths
    from lookahead_edit.crossover import Crossover

TABLE_WIDTH = 200


def tables_of(advice: Advice, borders: Sequence[Crossover], label: str) -> str:
    """Speed-up by batch size and by length of the output, and from which acceptance on drafts pay."""
    numbers = f"{counted(advice.num_traces, 'trace')}, {counted(advice.num_output_tokens, 'output token')}"
    title = Text(in_one_line(f"{numbers}; {label}"), style="bold")
    tables = _batch_table(advice), _output_table(advice.by_output_length), crossover_table(borders)
    return rendered(title, *tables, width=TABLE_WIDTH) + "\n"


def crossover_table(borders: Sequence[Crossover]) -> Table:
    """A row for each batch size: the acceptance from which drafts pay, and what they are worth at some."""
    table = _table("drafts pay\nfrom", "batch")
    for payment in borders[0].payments:
        table.add_column(Text(f"at {payment.acceptance:.0%}:\ndraft"), justify="right")
        table.add_column(Text("\nspeed-up"), justify="right")
    for border in borders:
        least = "never" if border.min_acceptance is None else f"{border.min_acceptance:.0%}"
        cells = [cell for each in border.payments for cell in (str(each.num_draft_tokens), f"{each.speed_up:.2f}")]
        table.add_row(str(border.batch_size), least, *cells)
    return table


def lines_of(advice: Advice, borders: Sequence[Crossover], cache_bytes_per_token: int | None) -> Iterator[str]:
    """The advice in sentences, a line each."""
    alone = advice.by_batch_size[0]
    if advice.drafter is None:
        yield (
            f"Leave speculation off: the best drafter, {alone.choice.drafter}, makes decoding "
            f"{alone.speed_up:.2f} times as fast here."
        )
        return
    length = "length auto" if advice.length == "auto" else f"a fixed length of {advice.length}"
    yield f"Use the drafter {advice.drafter} with {length}: {alone.speed_up:.2f} times as fast for a lone request."
    yield from _limits(advice)
    yield (
        f"It buys latency with compute: {alone.verified_tokens_per_token:.2f} tokens go through the model for each one "
        f"emitted, {alone.verified_tokens_per_token - 1.0:.2f} of them in vain or for the round itself."
    )
    room = f"Where the key-value cache is full, leave room for drafts: {alone.max_draft_tokens} more tokens a request"
    megabytes = (
        "" if cache_bytes_per_token is None else (f" ({alone.max_draft_tokens * cache_bytes_per_token / 1e6:.1f} MB)")
    )
    yield f"{room}{megabytes}, and {alone.max_index_bytes / 1e6:.1f} MB of index in ordinary memory."
    if never := [border.batch_size for border in borders if border.min_acceptance is None]:
        yield f"No acceptance makes drafts pay in batches of {', '.join(map(str, never))}."


def _limits(advice: Advice) -> Iterator[str]:
    largest, min_gain = advice.by_batch_size[-1], AdviseConfig.min_gain
    if advice.max_batch_size == largest.choice.batch_size:
        yield f"It still pays in the largest batch, of {advice.max_batch_size} rows: {largest.speed_up:.2f} times."
    else:
        yield f"Not in full batches: in more than {advice.max_batch_size} rows it gains less than {min_gain - 1.0:.0%}."
    poor = [each for each in advice.by_output_length if each.speed_up is not None and each.speed_up < min_gain]
    for each in poor:
        yield f"Not for outputs of {_span(each)} tokens: {each.speed_up:.2f} times."
    if not poor:
        yield "All lengths of output in these traces gain; a length that isn't among them is not judged."


def _batch_table(advice: Advice) -> Table:
    table = _table("speed-up", "batch")
    for header in ("tokens\n/round", "accepted", "verified\n/token"):
        table.add_column(Text(header), justify="right")
    for worth in advice.by_batch_size:
        table.add_row(
            str(worth.choice.batch_size),
            f"{worth.speed_up:.2f}",
            f"{worth.tokens_per_round:.2f}",
            "-" if worth.acceptance_rate is None else f"{worth.acceptance_rate:.1%}",
            f"{worth.verified_tokens_per_token:.2f}",
        )
    return table


def _output_table(lengths: Sequence[OutputLengths]) -> Table:
    table = _table("traces", "output tokens")
    table.add_column("speed-up", justify="right")
    for each in lengths:
        table.add_row(_span(each), str(each.num_traces), "-" if each.speed_up is None else f"{each.speed_up:.2f}")
    return table


def _table(second: str, first: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for header in (first, second):
        table.add_column(Text(header), justify="right")
    return table


def _span(lengths: OutputLengths) -> str:
    return f"{lengths.least} to {lengths.most}" if lengths.most is not None else f"{lengths.least} and more"
