"""Whatever the reason, an answer without a single draft says why: else a broken set-up looks like a bad text."""

from __future__ import annotations

from typing import Any

import pytest
from logged_editor import FILE, logged_editor
from scripted_editor import ScriptedEditor
from server_harness import events, in_process

from lookahead_edit.config import RouteConfig
from lookahead_edit.cost import CostCurve
from lookahead_edit.editor import Editor
from lookahead_edit.policy_cost import NEVER_PAYS
from lookahead_edit.targets.recorded import RecordedTarget
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.types import Draft, IntArray

COPY = {"input": FILE, "instruction": "Do it."}
ROUTES = (RouteConfig("plain", speculation="off"), RouteConfig("eager", speculation="on"), RouteConfig("auto"))
# No token of it stands anywhere before it.
NEW = "~^%$#@&*{}"


def decoding(editor: Editor, path: str, body: dict[str, Any], route: str = "auto") -> dict[str, Any]:
    """The figures of a plain answer, which those of the streamed one must agree with."""
    with in_process(editor, routes=ROUTES) as client:
        headers = {"x-lookahead-route": route}
        response = client.post(path, json=body, headers=headers)
        assert response.status_code == 200, response.text
        plain = response.json()["metrics"]["speculative_decoding"]
        streamed = events(client.post(path, json={**body, "stream": True}, headers=headers).text)[-1]
        assert streamed["metrics"]["speculative_decoding"]["disabled_reason"] == plain["disabled_reason"]
    assert isinstance(plain, dict)
    return plain


def text(**fields: Any) -> tuple[str, dict[str, Any]]:
    return "/v1/completions", {"prompt": "?", **fields}


UNDRAFTED: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "the request says so": ("auto", "/v1/edits", {**COPY, "speculation": {"enabled": False}}, "speculation is off"),
    "the route says so": ("plain", "/v1/edits", COPY, "speculation is off for this request"),
    "no drafter": (
        "auto",
        "/v1/edits",
        {**COPY, "speculation": {"drafter": "none"}},
        'the drafter "none" never drafts',
    ),
    "drafts of no tokens": ("auto", "/v1/edits", {**COPY, "speculation": {"max_draft": 0}}, "at most 0 tokens"),
    "an answer of one token": ("auto", "/v1/edits", {**COPY, "max_tokens": 1}, "no room for a draft"),
    "a short prediction": ("auto", *text(prediction="so"), "a prediction of 2 tokens is too short to pay"),
    "a prediction of one token": ("auto", *text(prediction="s"), "a prediction of 1 token is too short to pay"),
    "an empty prediction": ("auto", *text(prediction=""), "a prediction of 0 tokens is too short to pay"),
    "an unused prediction, off": ("plain", *text(prediction="so"), "speculation is off for this request"),
    "nothing to copy": ("auto", *text(), "no earlier occurrence"),
    "nothing to copy, n-grams": ("auto", *text(speculation={"drafter": "ngram"}), "no earlier occurrence"),
    "nothing to copy, suffixes": ("auto", *text(speculation={"drafter": "suffix"}), "no earlier occurrence"),
}


@pytest.mark.parametrize("name", UNDRAFTED)
def test_why_nothing_was_drafted_is_always_said(name: str) -> None:
    route, path, body, reason = UNDRAFTED[name]
    figures = decoding(logged_editor(NEW, max_context_tokens=100_000), path, body, route)
    assert figures["num_draft_tokens"] == 0
    assert reason in figures["disabled_reason"]


def test_several_reasons_come_with_their_rounds() -> None:
    figures = decoding(logged_editor("ab" + NEW), *text(prediction="so"))
    unused, *reasons = figures["disabled_reason"].split("; ")
    assert unused == "a prediction of 2 tokens is too short to pay and was not used"
    assert all(reason.endswith(" rounds)") for reason in reasons) or len(reasons) == 1


def test_where_something_was_drafted_there_is_no_reason() -> None:
    figures = decoding(logged_editor(FILE + "```"), "/v1/edits", COPY)
    assert figures["num_draft_tokens"] > 0
    assert figures["disabled_reason"] is None


class CostlyTarget(RecordedTarget):
    """A further token costs a whole pass, as on a machine too busy to be measured: no draft can save anything."""

    cost_curve = CostCurve(widths=(1, 2, 64), costs=((1.0, 2.0, 64.0),))


@pytest.mark.parametrize(("route", "drafts"), [("auto", False), ("eager", True)])
def test_where_no_draft_pays_only_forced_ones_go_in(route: str, drafts: bool) -> None:
    tokenizer = ByteTokenizer()
    answer: IntArray = tokenizer.encode(FILE + "```")
    editor = Editor(CostlyTarget(lambda prompt: answer, end_token_id=257), tokenizer)
    figures = decoding(editor, "/v1/edits", COPY, route)
    assert (figures["num_draft_tokens"] > 0) == drafts
    assert figures["disabled_reason"] == (None if drafts else NEVER_PAYS)


def test_a_drafter_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object, max_draft_tokens: int) -> Draft:
        raise ValueError("a secret of the program")

    monkeypatch.setattr("scripted_editor.ScriptedDrafter.draft", fail)
    figures = decoding(ScriptedEditor(), "/v1/edits", {"input": "a b a b", "instruction": "go"})
    assert figures["disabled_reason"] == "the drafter failed"
