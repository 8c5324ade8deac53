"""Where tokens came from, on the terminal and as a page: all of the output, and nothing in it can do harm."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from lookahead_edit import cli_replay
from lookahead_edit.cli_explain_html import explanation_page
from lookahead_edit.config import SpeculationConfig
from lookahead_edit.replay import drafter_factory, policy_factory, replay_trace, tokenize_trace
from lookahead_edit.replay_explain import explain
from lookahead_edit.replay_figures import DEFAULT_COSTS
from lookahead_edit.text_visible import visible_text
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.traces import Trace, format_trace
from tests.replay_command import FILE, TRACES, Run, replay_command, write_samples


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    return replay_command(monkeypatch, capsysbinary)


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    return write_samples(tmp_path)


def test_an_explanation_shows_the_whole_output_with_a_letter_for_each_piece(run: Run, traces: Path) -> None:
    for selector in ("<b>second</b>", "#2"):
        outcome = run(traces, "--drafters", "suffix", "--explain", selector)
        assert outcome.status == 0
        _, _, shown = outcome.stdout.partition("where a round begins\n")
        shown, _, costliest = shown.partition("Costliest rounds")
        text = re.sub(r"⟨\w⟩|│|⏎", "", shown).strip("\n").removesuffix("⟨<|im_end|>⟩")
        # Tabs are shown as blanks, up to a column that the marks moved.
        assert re.sub("[ \t]+", " ", text) == re.sub("[ \t]+", " ", visible_text(TRACES[1].output))
        assert "drafted" in costliest


def test_the_title_is_one_line_whatever_the_id_is(run: Run, traces: Path) -> None:
    traces.write_bytes(format_trace(replace(TRACES[0], id="two\nlines\x1b[2J")))
    page = traces.with_name("page.html")
    shown = run(traces, "--drafters", "none", "--explain", "#1", "--html", page).stdout
    title = "two\\nlines\\x1b[2J: none, c = 0.002"
    assert title in shown
    assert title in page.read_text("utf-8")


def test_no_control_character_of_a_trace_reaches_the_terminal(run: Run, traces: Path) -> None:
    shown = run(traces, "--drafters", "suffix", "--explain", "#2").stdout
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", shown)
    assert "␛[2J␀" in re.sub(r"⟨\w⟩|│", "", shown)


def test_colours_are_the_terminals(run: Run, traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    for term, colors in (("xterm-256color", "48;5;"), ("xterm", "\x1b[32m")):
        monkeypatch.setenv("TERM", term)
        monkeypatch.setenv("COLORTERM", "")
        shown = run(traces, "--drafters", "suffix", "--explain", "#2", "--quiet").stdout
        assert colors in shown
        assert "⟨f⟩" not in shown
        assert "\x1b[2J" not in shown


def test_json_carries_the_explanation(run: Run, traces: Path) -> None:
    document = json.loads(run(traces, "--json", "--drafters", "ngram,suffix", "--explain", "first").stdout)
    explanation = document["explanation"]
    assert (explanation["id"], explanation["drafter"], explanation["cost"]) == ("first", "ngram", DEFAULT_COSTS[0])
    assert "".join(span["text"] for span in explanation["spans"]) == TRACES[0].output
    assert [span["special"] for span in explanation["spans"]][-2:] == [None, "<|im_end|>"]
    assert len(explanation["rounds"]) < len(TRACES[0].output)


SPECIAL = Trace("special", f"Edit.\n{FILE}<|im_end|>\n", f"{FILE}<|im_end|>\n{FILE}", FILE)


def test_special_tokens_are_named_so_that_every_round_adds_up(run: Run, traces: Path) -> None:
    """Behind the file stands an end token in the prompt, and in the output the same text, which is none."""
    traces.write_bytes(format_trace(SPECIAL))
    page = traces.with_name("page.html")
    shown = run(traces, "--drafters", "suffix", "--explain", "#1", "--html", page).stdout
    _, _, shown = shown.partition("where a round begins\n")
    output, _, costliest = shown.partition("Costliest rounds")
    assert re.sub("│|⟨.⟩", "", output).count("<|im_end|>") == 2  # without the marks of rounds and origins
    assert output.rstrip().endswith("⟨<|im_end|>⟩")
    assert "⟨<|im_end|>⟩" in costliest
    content = page.read_text("utf-8")
    assert content.count('<i class="special">⟨&lt;|im_end|&gt;⟩</i>') == 1
    assert not re.search('<span class="round" [^>]*></span>', content)


def test_special_tokens_are_dimmed_where_there_are_colours(
    run: Run, traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    shown = run(traces, "--drafters", "suffix", "--explain", "#1", "--quiet").stdout
    assert re.search(r"\x1b\[2;[\d;]*m⟨<\|im_end\|>⟩\x1b\[0m", shown)


class Page(HTMLParser):
    """Tags, and the text inside <pre> without the signs for line ends."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.output = ""
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "pre" in self._open and "i" not in self._open:
            self.output += data


def test_the_page_escapes_every_text_and_loads_nothing(run: Run, traces: Path) -> None:
    file = traces.parent / "page.html"
    assert run(traces, "--drafters", "suffix", "--explain", "#2", "--html", file).status == 0
    content = file.read_text("utf-8")
    page = Page()
    page.feed(content)
    assert {tag for tag, _ in page.tags} <= {
        *("html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "p", "pre", "span", "i"),
        *("table", "tr", "th", "td", "code"),
    }
    assert {name for _, attributes in page.tags for name in attributes} <= {
        *("lang", "charset", "http-equiv", "content", "name", "class", "title", "aria-hidden"),
    }
    assert page.output.removeprefix("\n") == visible_text(TRACES[1].output)
    assert "prefers-color-scheme: dark" in content
    assert not re.search(r"https?:|url\(|@import", content)
    titles = [attributes["title"] for tag, attributes in page.tags if attributes.get("class") == "round"]
    assert any("drafted" in (title or "") and "came" in (title or "") for title in titles)
    assert "&lt;b&gt;second&lt;/b&gt;" in content


def test_a_page_without_a_rejected_draft_says_so() -> None:
    config = SpeculationConfig(drafter="none")
    trace = tokenize_trace(Trace("a", "x", "y"), ByteTokenizer())
    replayed = replay_trace(trace, drafter_factory(config)(trace), policy_factory(config)(0.01))
    page = explanation_page(explain(replayed, ByteTokenizer()), title="a", cost=0.01)
    assert "No draft was rejected." in page


def test_a_trace_that_is_not_there_cannot_be_explained(run: Run, traces: Path) -> None:
    outcome = run(traces, "--explain", "third", "--drafters", "none")
    assert outcome.status == 2
    assert outcome.stderr == "error: expected --explain to name a trace, got 'third', not among 2 traces\n"
    assert outcome.stdout == ""
    assert run(traces, "--explain", "#2", "--limit", "1", "--drafters", "none").status == 2


def test_a_line_that_holds_no_trace_is_explained_as_such(run: Run, traces: Path) -> None:
    traces.write_bytes(b"{}\n" + traces.read_bytes())
    outcome = run(traces, "--explain", "#1", "--quiet")
    assert outcome.status == 2
    assert outcome.stderr.startswith("error: expected --explain to name a trace, but line 1: expected a field id, got ")


def test_a_trace_that_is_not_there_is_noticed_before_anything_is_replayed(
    run: Run, traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_replay, "open_tokenizer", lambda *_: pytest.fail("a tokenizer was loaded"))
    assert run(traces, "--explain", "third").status == 2
    assert run("-", "--explain", "third", stdin=traces.read_bytes()).status == 2


def test_a_trace_from_standard_input_can_be_explained(run: Run, traces: Path) -> None:
    shown = run("-", "--drafters", "suffix", "--explain", "#2", stdin=traces.read_bytes())
    assert shown.status == 0
    again = run(traces, "--drafters", "suffix", "--explain", "#2")
    # Above it stands the table, with its times.
    assert shown.stdout.partition("<b>second</b>")[2] == again.stdout.partition("<b>second</b>")[2] != ""
