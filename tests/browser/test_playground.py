"""The playground in a real browser, against a running server whose pace the test decides.

Screenshots of every state are left in build/playground/.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted_editor import ScriptedEditor
from server_harness import on_socket

from lookahead_edit.config import DriftConfig

playwright_api = pytest.importorskip("playwright.sync_api", reason="needs Playwright: make test-browser")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SCREENSHOTS = Path(__file__).parents[2] / "build" / "playground"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium: apt-get install chromium"),
]

FILE = "banana = 'a'\ncabbage = 'b'\n"  # the scripted edit turns every a into b
EDITED = FILE.replace("a", "b")
PHONE = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}

expect = playwright_api.expect


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright_api.sync_playwright() as playwright:
        options = ["--headless", "--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[Any]:
    editor = ScriptedEditor()
    with on_socket(editor) as client:
        yield editor, str(client.base_url)


@pytest.fixture
def editor(shared: Any) -> Iterator[ScriptedEditor]:
    shared[0].reset()
    yield shared[0]
    shared[0].release()


class Page:
    """A tab with the playground, and everything that went wrong in it."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self.context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
        self.tab = self.context.new_page()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.tab.on("dialog", lambda dialog: self.errors.append(dialog.message))
        self.tab.on("console", lambda message: self._hear(message.text))
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.goto(address)
        expect(self.tab.locator("#server")).not_to_have_text("connecting …")

    def _hear(self, text: str) -> None:
        # The browser tells of every answer that is no success; the page shows those itself.
        if "Failed to load resource" not in text:
            self.errors.append(text)

    def write(self, instruction: str, file: str = FILE) -> None:
        self.tab.get_by_label("File", exact=True).fill(file)
        self.tab.get_by_label("Instruction").fill(instruction)

    def run(self, instruction: str, file: str = FILE) -> None:
        self.write(instruction, file)
        self.tab.get_by_role("button", name="Run").click()

    def expect_state(self, text: str) -> None:
        expect(self.tab.locator("#state")).to_have_text(text)

    def text(self, selector: str) -> str:
        return str(self.tab.locator(selector).inner_text())

    def keep(self, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.tab.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


@pytest.fixture
def open_page(browser: Any, shared: Any, editor: ScriptedEditor) -> Iterator[Any]:
    opened: list[Page] = []

    def open_it(address: str = shared[1], **options: Any) -> Page:
        opened.append(Page(browser, address, **options))
        return opened[-1]

    yield open_it
    for page in opened:
        assert page.errors == []
        page.context.close()


def test_a_whole_edit_is_streamed_coloured_and_compared_with_the_file(open_page: Any) -> None:
    page = open_page()
    page.run("go")
    page.expect_state("done")
    assert page.tab.locator("#stream").text_content() == EDITED
    pieces = page.tab.locator("#stream span").evaluate_all(
        "spans => spans.map(span => [span.className, span.textContent])"
    )
    assert {name for name, _ in pieces} == {"file", "own"}
    assert pieces[0] == ["file", EDITED[:4]]  # a round of five tokens: four of the draft, one of the model's own
    assert page.text("#tokens") == str(len(EDITED))
    assert page.text("#acceptance") == "78 %"  # 21 of 27: in each round all but one
    assert re.search(r"copied from the file \d\d %", page.text("#legend"))
    page.keep("edit")

    page.tab.get_by_role("tab", name="Diff").click()
    assert page.tab.locator("#diff .removed").all_inner_texts() == FILE.splitlines()
    assert page.tab.locator("#diff .added").all_inner_texts() == EDITED.splitlines()
    assert page.tab.locator("#diff .added mark").first.inner_text() == "bbnbnb = 'b"
    page.keep("diff")


def test_what_was_kept_is_shown_with_its_place(open_page: Any) -> None:
    page = open_page()
    page.run("go", "one two three four five six seven\nbanana\n")
    page.expect_state("done")
    page.tab.get_by_role("tab", name="Kept").click()
    quote = page.tab.locator("#kept .quote")
    expect(quote).to_have_text("one two three four five six seven")
    assert quote.get_attribute("title") == "input, characters 0 to 33"
    assert page.text("#kept-hint").startswith("80 % of the text")
    page.keep("kept")


def test_text_appears_while_it_is_made(open_page: Any, editor: ScriptedEditor) -> None:
    page = open_page()
    page.run("pause")
    expect(page.tab.locator("#stream")).to_have_text(EDITED[:5])
    page.expect_state("running …")
    assert page.text("#tokens") == "5"
    expect(page.tab.get_by_role("button", name="Run")).to_be_disabled()
    page.keep("running")
    editor.release()
    page.expect_state("done")


@pytest.mark.parametrize("script", ["hold", "pause"])
def test_escape_cancels_also_while_the_prompt_is_read(open_page: Any, editor: ScriptedEditor, script: str) -> None:
    page = open_page()
    page.run(script)
    editor.wait_for(f"start {script}")
    page.tab.keyboard.press("Escape")
    page.expect_state("cancelled")
    editor.wait_for(f"cancelled {script}")
    expect(page.tab.locator("#error")).to_be_hidden()
    page.run("go")
    page.expect_state("done")


def test_the_cancel_button_cancels(open_page: Any, editor: ScriptedEditor) -> None:
    page = open_page()
    page.run("pause")
    editor.wait_for("start pause")
    page.tab.get_by_role("button", name="Cancel").click()
    page.expect_state("cancelled")
    editor.wait_for("cancelled pause")


def test_an_error_is_shown_with_its_code_and_goes_with_the_next_run(open_page: Any) -> None:
    page = open_page()
    page.run("go", "banana " * 1000)
    page.expect_state("failed")
    expect(page.tab.get_by_role("alert")).to_contain_text(
        re.compile(r"got 7000 prompt tokens.*\(context_length_exceeded\)")
    )
    page.keep("error")
    page.run("fail")
    expect(page.tab.get_by_role("alert")).to_contain_text("internal_error")
    page.run("go")
    page.expect_state("done")
    expect(page.tab.locator("#error")).to_be_hidden()


def test_half_a_file_is_not_shown_as_a_success(open_page: Any) -> None:
    page = open_page()
    page.run("length")
    page.expect_state("cut off at the token limit")
    page.tab.get_by_role("tab", name="Diff").click()
    assert "half a file has no diff" in page.text("#diff-hint")
    expect(page.tab.locator("#diff")).to_be_empty()


def test_on_and_off_are_compared(open_page: Any, editor: ScriptedEditor) -> None:
    page = open_page()
    page.write("go")
    page.tab.get_by_role("button", name="Compare on and off").click()
    page.expect_state("done")
    assert [request.speculation.enabled for request in editor.requests] == [False, True]
    expect(page.tab.locator("#comparison-verdict")).to_contain_text("the same text")
    assert page.tab.locator("#comparison-rows tr").nth(3).inner_text().split() == ["tokens", "27", "27"]
    page.keep("comparison")


def test_everything_works_from_the_keyboard(open_page: Any) -> None:
    page = open_page()
    page.write("go")
    page.tab.keyboard.press("Control+Enter")
    page.expect_state("done")
    page.tab.get_by_role("tab", name="Stream").focus()
    page.tab.keyboard.press("ArrowRight")
    expect(page.tab.get_by_role("tab", name="Diff")).to_be_focused()
    expect(page.tab.locator("#view-diff")).to_be_visible()
    page.tab.keyboard.press("ArrowLeft")
    expect(page.tab.locator("#view-stream")).to_be_visible()
    page.tab.get_by_label("Instruction").focus()
    reached = []
    for _ in range(4):
        page.tab.keyboard.press("Tab")
        reached.append(page.tab.evaluate("document.activeElement.id"))
    assert reached[:3] == ["speculation", "run", "compare"]


def test_every_field_has_a_name(open_page: Any) -> None:
    page = open_page()
    nameless = page.tab.locator("input, textarea, select, button").evaluate_all(
        """fields => fields.filter(field => !(field.labels?.length || field.ariaLabel || field.textContent.trim()))
            .map(field => field.id)"""
    )
    assert nameless == []


def test_a_file_can_be_opened(open_page: Any, tmp_path: Path) -> None:
    path = tmp_path / "fruit.txt"
    path.write_text("banana\r\nä😀\n", encoding="utf-8", newline="")
    page = open_page()
    page.tab.get_by_label("Open a file").set_input_files(path)
    expect(page.tab.get_by_label("File name")).to_have_value("fruit.txt")
    expect(page.tab.get_by_label("File", exact=True)).to_have_value("banana\nä😀\n")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_follow_the_system(open_page: Any, scheme: str) -> None:
    page = open_page(color_scheme=scheme)
    page.run("go")
    page.expect_state("done")
    page.keep(scheme)
    ground, ink = page.tab.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    assert (brightness(ground) > brightness(ink)) == (scheme == "light")


def brightness(color: str) -> float:
    return sum(map(float, re.findall(r"[\d.]+", color)[:3]))


def test_a_phone_shows_everything_without_scrolling_sideways(open_page: Any) -> None:
    page = open_page(**PHONE)
    page.run("go", FILE + "x = " + "banana + " * 40 + "0\n")
    page.expect_state("done")
    page.keep("phone")
    page.tab.get_by_role("tab", name="Diff").click()
    page.keep("phone-diff")
    assert page.tab.evaluate("document.documentElement.scrollWidth") == 360
    outside = page.tab.locator("button, input, textarea, select").evaluate_all(
        "fields => fields.filter(field => field.getBoundingClientRect().right > 360).map(field => field.id)"
    )
    assert outside == []


def test_markup_in_a_file_stays_text(open_page: Any) -> None:
    hostile = (
        "<img src=x onerror=alert(1)>\n<script>alert(2)</script>\n'\"><svg onload=alert(3)>\n"
        + "one two three four five\n"
    )
    page = open_page()
    page.tab.get_by_label("File name").fill("<b>.html")
    page.run("<img src=y onerror=alert(4)>", hostile)
    page.expect_state("done")
    for tab in ("Diff", "Kept", "Stream"):
        page.tab.get_by_role("tab", name=tab).click()
    assert page.tab.locator("main img, main script, main svg[onload]").count() == 0
    assert "<script>" in page.text("#stream")


def test_only_this_server_is_asked_and_the_policy_stops_the_rest(open_page: Any, shared: Any) -> None:
    page = open_page()
    page.run("go")
    page.expect_state("done")
    assert {url.split("/")[2] for url in page.requests if url != "data:,"} == {shared[1].split("/")[2]}
    blocked = page.tab.evaluate("fetch('https://example.org/').then(() => 'reached', error => 'blocked')")
    assert blocked == "blocked"
    assert "Content Security Policy" in page.errors.pop()
    page.errors.clear()


def test_the_dashboard_shows_the_route(open_page: Any) -> None:
    page = open_page()
    page.run("go")
    page.expect_state("done")
    expect(page.tab.locator("#by-source")).to_contain_text("file")
    assert "learning" in page.text("#dashboard")
    page.tab.get_by_label("Route of the dashboard").select_option("chat")
    expect(page.tab.locator("#dashboard dd").first).to_have_text("0")


def test_a_key_is_asked_for_and_used(open_page: Any) -> None:
    with on_socket(ScriptedEditor(), api_key="secret") as client:
        page = open_page(str(client.base_url))
        expect(page.tab.get_by_role("alert")).to_contain_text("invalid_api_key")
        page.tab.get_by_label("API key").fill("secret")
        page.tab.get_by_label("API key").blur()
        expect(page.tab.locator("#server")).to_contain_text("scripted")
        page.run("go")
        page.expect_state("done")


def test_a_page_that_is_opened_while_the_model_loads_goes_on_by_itself(open_page: Any) -> None:
    page = open_page()
    body = '{"error": {"message": "the model is still loading", "type": "server_error", "code": "model_loading"}}'
    answers = iter([True, True])

    def answer(route: Any) -> None:
        if next(answers, False):
            route.fulfill(status=503, content_type="application/json", body=body)
        else:
            route.continue_()

    page.tab.route("**/v1/models", answer)
    page.tab.reload()
    expect(page.tab.locator("#server")).to_have_text("loading the model …")
    expect(page.tab.get_by_role("alert")).to_be_hidden()
    expect(page.tab.locator("#server")).to_contain_text("scripted", timeout=15000)


def test_a_drop_in_acceptance_raises_the_banner_and_its_end_takes_it_away(open_page: Any) -> None:
    editor = ScriptedEditor(rounds_of=10)
    drift = DriftConfig(num_reference_requests=20, min_draft_tokens=1)
    with on_socket(editor, drift=drift) as client:

        def ask(characters_a_round: int, num_requests: int) -> None:
            editor.rounds_of = characters_a_round
            for _ in range(num_requests):
                assert client.post("/v1/edits", json={"input": FILE, "instruction": "go"}).status_code == 200

        ask(10, 20)
        page = open_page(str(client.base_url))
        expect(page.tab.locator("#drift")).to_be_hidden()
        ask(2, 40)
        page.run("go")
        page.expect_state("done")
        expect(page.tab.locator("#drift")).to_contain_text("Acceptance on route edits has fallen from 89 % to 48 %.")
        page.keep("drift")
        ask(10, 60)
        page.run("go")
        page.expect_state("done")
        expect(page.tab.locator("#drift")).to_be_hidden()
