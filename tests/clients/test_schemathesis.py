"""The description against the server: schemathesis sends what it allows, and what it doesn't."""

from __future__ import annotations

import subprocess

import pytest
from client_harness import environment
from logged_editor import logged_editor
from server_harness import on_socket

pytestmark = pytest.mark.clients

ANSWER = "one\ntwo\n"
# What fits the description can still be refused for reasons that it can't tell, such as a prompt longer than the
# context; and a deadline of a millisecond is rightly missed.
SETTINGS = """
[checks.positive_data_acceptance]
enabled = false
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 504]
"""


@pytest.mark.timeout(900)
def test_no_answer_that_the_description_does_not_know(tmp_path):
    (tmp_path / "schemathesis.toml").write_text(SETTINGS, encoding="utf-8")
    command = [str(environment("schemathesis") / "bin/st"), "run", "--no-color", "--max-examples", "40", "--seed", "1"]
    command += ["--request-timeout", "60", "--header", "Authorization: Bearer secret"]
    with on_socket(logged_editor(ANSWER, max_context_tokens=4000, vocab_size=300), api_key="secret") as client:
        finished = subprocess.run(
            [*command, f"{str(client.base_url).rstrip('/')}/openapi.json"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=840,
            check=False,
        )
    assert finished.returncode == 0, finished.stdout[-5000:] + finished.stderr
