"""The examples of docs/api.md, run as they stand there but for the address."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from client_harness import HERE, default_server, environment

# The first start converts the default model and measures what its passes cost.
pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.timeout(900)]

EXAMPLES = re.findall(
    r"^```(?P<language>\w+) (?P<where>\S+)\n(?P<code>.*?)^```$",
    (HERE.parents[1] / "docs/api.md").read_text(encoding="utf-8"),
    re.DOTALL | re.MULTILINE,
)


@pytest.fixture(scope="module")
def address():
    with default_server() as address:
        yield address


def command_of(language: str, where: str, code: str, folder: Path) -> list[str]:
    if language == "sh":
        return ["sh", "-ec", code]
    if language == "js":
        script = environment(where) / "example.mjs"  # beside the packages that it imports
        script.write_text(code, encoding="utf-8")
        return ["node", str(script)]
    script = folder / "example.py"
    script.write_text(code, encoding="utf-8")
    return [str(environment(where) / "bin/python"), str(script)]


def test_there_is_an_example_for_every_client():
    assert {where for _, where, _ in EXAMPLES} == {"curl", "openai", "openai-0.28", "litellm", "node"}
    code = "".join(code for _, _, code in EXAMPLES)
    for package in ("openai-compatible", "openai-adapters", "textdocument", 'from "openai"'):
        assert package in code


@pytest.mark.parametrize(("language", "where", "code"), EXAMPLES, ids=lambda value: value[:12].strip())
def test_example_runs_and_prints_an_answer(address, language, where, code, tmp_path, monkeypatch):
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    command = command_of(language, where, code.replace("http://localhost:8000", address), tmp_path)
    finished = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert finished.returncode == 0, finished.stderr
    said = finished.stdout.lower()
    assert "amount" in said or "three" in said or "return first + second" in said
    assert '"error"' not in said
