"""Real clients against a running server of the default model, and aider against one with a written answer."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from client_harness import default_server, environment, run_node, run_python
from logged_editor import logged_editor
from server_harness import on_socket

# The first start converts the default model and measures what its passes cost.
pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.timeout(900)]

MODEL = "smollm2-135m-edit"
SAID = "One, two, three."


@pytest.fixture(scope="module")
def address():
    with default_server() as address:
        yield address


def test_openai(address):
    got = run_python("openai", "with_openai.py", address)
    assert got["model"] == MODEL
    assert (got["chat"], got["finish_reason"]) == (SAID, "stop")
    assert got["timings"]["prompt_n"] + got["timings"]["predicted_n"] == got["total_tokens"]
    for streamed in (got["streamed"], got["streamed_with_usage"]):
        assert (streamed["role"], streamed["text"]) == ("assistant", SAID)
        assert [reason for reason in streamed["finish_reasons"] if reason] == ["stop"]
        assert streamed["usages"].index(True) == len(streamed["usages"]) - 1
        assert streamed["num_tokens"] == got["timings"]["predicted_n"]
    assert (got["streamed"]["num_last_choices"], got["streamed_with_usage"]["num_last_choices"]) == (1, 0)
    assert got["predicted"].startswith("def add(first, second):\n    return first + second\n")
    assert got["accepted_prediction_tokens"] > 30
    assert got["completion"] == got["completion_streamed"]
    assert "return first + second" in got["completion"]
    assert "\n\n\n" not in got["completion"]
    assert got["by_tokens"] == 4
    assert got["errors"] == [
        [400, "unsupported_parameter", "n"],
        [404, "model_not_found", "model"],
        [400, "context_length_exceeded", "prompt"],
    ]


def test_openai_0_28_with_the_former_edits_call(address):
    got = run_python("openai-0.28", "with_openai_0_28.py", address)
    assert (got["edit"], got["object"]) == ("amount = 1\nprint(amount)\n", "edit")
    assert got["total_tokens"] > 0
    assert (got["chat"], got["streamed"]) == (SAID, SAID)
    assert got["completion"].strip()
    assert got["error"] == [400, "missing_field", "instruction"]


def test_litellm(address):
    got = run_python("litellm", "with_litellm.py", address, MODEL)
    assert (got["chat"], got["streamed"], got["finish_reason"]) == (SAID, SAID, "stop")
    assert got["total_tokens"] > 0
    assert got["completion"].strip()
    # It tells errors by their wording, and aider by what it says.
    assert got["error"] == ["ContextWindowExceededError", 400]


def test_npm_openai(address):
    got = run_node("with_openai.mjs", address)
    assert (got["chat"], got["helper"]) == (SAID, SAID)
    for streamed in (got["streamed"], got["streamedWithUsage"]):
        assert (streamed["role"], streamed["text"]) == ("assistant", SAID)
        assert streamed["usages"].index(True) == len(streamed["usages"]) - 1
    assert (got["streamed"]["numLastChoices"], got["streamedWithUsage"]["numLastChoices"]) == (1, 0)
    assert got["completion"] == got["completionStreamed"] != ""
    assert got["error"] == [400, "unsupported_parameter", "n"]


def test_ai_sdk(address):
    got = run_node("with_ai_sdk.mjs", address, MODEL)
    assert (got["chat"], got["streamed"]) == (SAID, SAID)
    assert (got["finishReason"], got["streamedFinishReason"]) == ("stop", "stop")
    assert got["outputTokens"] == got["streamedOutputTokens"] > 0
    assert got["inputTokens"] > 0
    assert got["completion"].strip()
    assert got["error"] == [404, "model_not_found"]


def test_continue(address):
    got = run_node("with_continue.mjs", address, MODEL)
    assert set(got.values()) == {SAID}


BEFORE = 'def total(prices):\n    return sum(prices)\n\n\nprint("é", total([1, 2]))\n'
AFTER = BEFORE.replace("total", "amount")


@pytest.mark.parametrize("stream", [True, False])
def test_aider_edits_a_file_in_a_repository(tmp_path: Path, stream):
    # The default model is too small for aider's prompts, so its answer is written here; all else is real.
    answer = f"Here it is:\n\nshop.py\n```python\n{AFTER}```\n"
    git = ["git", "-c", "user.name=Test", "-c", "user.email=test@example.org"]
    repository = tmp_path / "repository"
    repository.mkdir()
    subprocess.run([*git, "init", "--quiet"], cwd=repository, check=True)
    (repository / "shop.py").write_text(BEFORE, encoding="utf-8")
    subprocess.run([*git, "add", "."], cwd=repository, check=True)
    subprocess.run([*git, "commit", "--quiet", "--message", "First."], cwd=repository, check=True)
    editor = logged_editor(answer, max_context_tokens=100_000)
    with on_socket(editor) as client:
        command = [str(environment("aider") / "bin/aider"), "--model", "openai/model", "--edit-format", "whole"]
        command += ["--yes-always", "--no-check-update", "--no-analytics", "--no-show-model-warnings", "--no-pretty"]
        command += ["--no-show-release-notes", "--map-tokens", "0", "--no-gitignore"]
        command += ["--stream" if stream else "--no-stream", "--message", "Rename total to amount.", "shop.py"]
        names = {f"GIT_{role}_{what}": "test" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        environ = {
            **os.environ,
            **names,
            "HOME": str(tmp_path),
            "OPENAI_API_BASE": f"{str(client.base_url).rstrip('/')}/v1",
            "OPENAI_API_KEY": "any",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }
        finished = subprocess.run(
            command, cwd=repository, env=environ, capture_output=True, text=True, timeout=240, check=False
        )
    assert (repository / "shop.py").read_text(encoding="utf-8") == AFTER, finished.stdout + finished.stderr
    log = subprocess.run([*git, "log", "--oneline"], cwd=repository, capture_output=True, text=True, check=True).stdout
    assert len(log.splitlines()) == 2
    prompt = editor.tokenizer.decode(editor.target.prompts[0])  # type: ignore[attr-defined]
    assert BEFORE in prompt
    assert "Rename total to amount." in prompt
