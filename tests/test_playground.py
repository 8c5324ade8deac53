"""The playground's page as it is served; tests/browser has it in a browser."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest
from scripted_editor import ScriptedEditor
from server_harness import in_process

from lookahead_edit.server.playground_routes import FOLDER, SCRIPTS


@pytest.fixture(scope="module")
def page():
    with in_process(ScriptedEditor(), api_key="secret") as client:
        yield client.get("/")


def test_it_is_open_also_where_the_api_needs_a_key(page):
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"


def test_its_policy_lets_in_its_own_style_and_script_and_nothing_else(page):
    policy = dict(part.split(" ", 1) for part in page.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert "unsafe" not in page.headers["content-security-policy"]
    for name, element in (("style-src", "style"), ("script-src", "script")):
        (text,) = re.findall(f"<{element}>(.*?)</{element}>", page.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert policy[name] == f"'sha256-{digest}'"


def test_it_asks_for_nothing_outside(page):
    assert re.findall(r"https?://[^\s\"'`]+", page.text) == ["http://www.w3.org/2000/svg"]  # a name, not an address
    assert re.findall(r'(?:src|href)="([^"]*)"', page.text) == ["data:,", "#file"]
    assert "@style@" not in page.text
    assert "@script@" not in page.text


def test_text_is_set_as_text_only(page):
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function| on\w+=", page.text
    )


def test_all_its_files_are_used_and_small():
    files = {path.name for path in FOLDER.iterdir()}
    assert files == {"page.html", "style.css", *SCRIPTS}
    assert all(len((FOLDER / name).read_text("utf-8").splitlines()) <= 400 for name in files)
