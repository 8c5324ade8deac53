"""The first run compiles what drafts, which can take a minute: where no terminal shows that, a line says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from replay_command import command, when_said, write_samples

from lookahead_edit import cli_advise, cli_replay
from lookahead_edit.tokenizer import ByteTokenizer


@pytest.mark.parametrize(
    ("name", "compiles"), [("replay", "lookahead_edit.replay.warm_up"), ("advise", "lookahead_edit.advise.warm_up")]
)
def test_compiling_that_takes_long_is_told(
    name: str,
    compiles: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    said = when_said(monkeypatch)
    run = command(name, monkeypatch, capsysbinary)
    for module in (cli_replay, cli_advise):
        monkeypatch.setattr(module, "open_tokenizer", lambda *_: ByteTokenizer())
    monkeypatch.setattr(compiles, lambda *_: said.wait(timeout=60.0))
    monkeypatch.setattr("lookahead_edit.cli_display.PATIENCE_SECONDS", 0.0)
    outcome = run(write_samples(tmp_path), "--cost", "0.01", "--drafters", "ngram")
    assert (outcome.status, outcome.stderr) == (0, "making the drafters ready, which compiles them the first time …\n")
    said.set()  # nobody waits for a line that isn't said
    outcome = run(write_samples(tmp_path), "--cost", "0.01", "--drafters", "ngram", "--quiet")
    assert (outcome.status, outcome.stderr) == (0, "")
