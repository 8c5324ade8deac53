"""The explanation of one output as a web page of its own: no scripts, nothing loaded, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import groupby

from lookahead_edit.cli_display import counted
from lookahead_edit.cli_explain import ORIGIN_STYLES, OWN_ORIGINS, drafted_and_came, round_title, shares
from lookahead_edit.replay_explain import ExplainedRound, Explanation, Span, special_sign
from lookahead_edit.text_visible import in_one_line, visible_text

# A line end has no ground of its own, so where the model wrote it a sign shows that; copying leaves it out, and special
# tokens too.
LINE_END = '<i aria-hidden="true">⏎</i>'
MAX_SAMPLE_CHARACTERS = 160
STYLE = """
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1c2126; --muted: #5a646e; --line: #d5dae0; }
body { margin: 2rem auto; max-width: 76rem; padding: 0 1rem; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.3rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
p { margin: 0 0 1rem; color: var(--muted); }
pre, code { font: 13px/1.6 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; tab-size: 4; }
pre { padding: 1rem; border: 1px solid var(--line); border-radius: 6px; }
pre, td code { white-space: pre-wrap; overflow-wrap: anywhere; }
table { border-collapse: collapse; }
th, td { text-align: left; padding: .2rem .9rem .2rem 0; vertical-align: top; border-bottom: 1px solid var(--line); }
th { font-weight: 600; color: var(--muted); }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.origin { padding: 0 .15em; border-radius: 3px; -webkit-box-decoration-break: clone; box-decoration-break: clone; }
pre .origin { padding: 0; border-radius: 0; }
.round { border-left: 1px solid var(--muted); }
pre i { font-style: normal; user-select: none; -webkit-user-select: none; }
pre .special { opacity: 0.6; }
.round:hover { outline: 1px solid var(--muted); }
"""


def explanation_page(explanation: Explanation, *, title: str, cost: float) -> str:
    """A whole HTML document; every text in it is escaped.

    Args:
        explanation: one replayed output.
        title: plain text, the heading.
        cost: of a further token in a round; ranks the costliest rounds.
    """
    return "".join(_page(explanation, title, cost))


def _page(explanation: Explanation, title: str, cost: float) -> Iterator[str]:
    heading = escape(in_one_line(title))
    num_rounds = len(explanation.rounds)
    figures = (
        f"{counted(explanation.num_tokens, 'token')} in {counted(num_rounds, 'round')}, "
        f"{explanation.num_tokens / num_rounds:.1f} a round"
    )
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{heading}</title>\n<style>{STYLE}{_colors()}</style>\n</head>\n<body>\n<main>\n<h1>{heading}</h1>\n"
        f"<p>{figures}. A thin line marks where a round begins; point at a piece to see what was drafted.</p>\n"
    )
    yield "<table>\n<tr><th>origin</th><th>tokens</th><th>share</th><th>meaning</th></tr>\n"
    for origin, count, share in shares(explanation):
        yield (
            f'<tr><td><span class="origin {origin}">{origin}</span></td><td class="number">{count}</td>'
            f'<td class="number">{share:.1%}</td><td>{escape(ORIGIN_STYLES[origin].meaning)}</td></tr>\n'
        )
    yield "</table>\n<h2>Output</h2>\n<pre>\n"
    for number, spans in groupby(explanation.spans, key=lambda span: span.round_number):
        yield _round(explanation.rounds[number - 1], list(spans))
    yield f"</pre>\n<h2>Costliest rounds, at c = {cost:g}</h2>\n"
    yield from _costliest(explanation, cost)
    yield "</main>\n</body>\n</html>\n"


def _round(explained: ExplainedRound, spans: list[Span]) -> str:
    pieces = "".join(
        f'<span class="origin {span.origin}">{_piece(span)}</span>' for span in spans if span.text or span.special
    )
    title = escape(round_title(explained)).replace("\n", "&#10;")
    return f'<span class="round" title="{title}">{pieces}</span>'


def _piece(span: Span) -> str:
    text = escape(visible_text(span.text))
    if span.origin in OWN_ORIGINS:
        text = text.replace("\n", f"{LINE_END}\n")
    return text if span.special is None else f'{text}<i class="special">{escape(special_sign(span.special))}</i>'


def _costliest(explanation: Explanation, cost: float) -> Iterator[str]:
    costliest = explanation.costliest_rounds(cost)
    if not costliest:
        yield "<p>No draft was rejected.</p>\n"
        return
    headers = ("round", "cost a token", "accepted", "from", "drafted", "came")
    yield "<table>\n<tr>" + "".join(f"<th>{header}</th>" for header in headers) + "</tr>\n"
    for explained in costliest:
        drafted, came = drafted_and_came(explained, MAX_SAMPLE_CHARACTERS)
        yield (
            f'<tr><td class="number">{explained.number}</td>'
            f'<td class="number">{explained.cost_per_token(cost):.2f}</td>'
            f'<td class="number">{explained.num_accepted_tokens} of {explained.num_draft_tokens}</td>'
            f'<td><span class="origin {explained.draft_origin}">{explained.draft_origin}</span></td>'
            f"<td><code>{escape(drafted)}</code></td><td><code>{escape(came)}</code></td></tr>\n"
        )
    yield "</table>\n"


def _colors() -> str:
    light = "".join(
        f".{origin} {{ background: {style.light[0]}; color: {style.light[1]}; }}\n"
        for origin, style in ORIGIN_STYLES.items()
    )
    dark = "".join(
        f".{origin} {{ background: {style.dark[0]}; color: {style.dark[1]}; }}\n"
        for origin, style in ORIGIN_STYLES.items()
    )
    root = ":root { --ground: #14181c; --ink: #e4e8ec; --muted: #98a3ad; --line: #333b43; }\n"
    return f"{light}@media (prefers-color-scheme: dark) {{\n{root}{dark}}}\n"
