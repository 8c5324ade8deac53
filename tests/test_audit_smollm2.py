"""The deterministic mode on the default model: the same bits with drafts good, hostile and absent."""

from __future__ import annotations

from typing import Any

import pytest

from lookahead_edit.audit import RIGHT, WRONG
from lookahead_edit.audit_samples import SAMPLES
from lookahead_edit.config import TargetConfig
from lookahead_edit.targets.auditing import MIXED, OFF, AuditPrompt, audit
from lookahead_edit.targets.loading import editor_of, load_model
from lookahead_edit.targets.making import make_target

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("dtype", "width", "num_tokens"), [("float32", 32, 24), ("bfloat16", 8, 16)])
def test_drafts_change_no_bit(default_model: tuple[Any, Any], dtype: str, width: int, num_tokens: int) -> None:
    model, tokenizer = default_model if dtype == "float32" else load_model(None, dtype=dtype)
    config = TargetConfig(kind="deterministic", deterministic_width=width)
    prompt = editor_of(model, tokenizer).prompt(SAMPLES[0])
    (report,) = audit(
        model,
        lambda open_sampler: make_target(model, config, open_sampler=open_sampler),
        [AuditPrompt("an edit", prompt.tokens, prompt.sources)],
        drafters=(RIGHT, WRONG),
        tokenizer=None,
        max_tokens=num_tokens,
        is_deterministic=True,
    )
    assert not report.is_bug, report.verdict
    off, right, wrong, mixed = report.comparisons
    assert [each.name for each in report.comparisons] == [OFF, RIGHT, WRONG, MIXED]
    assert all(each.num_tokens == num_tokens and each.is_bit_equal for each in (right, wrong, mixed))
    assert off.num_rounds == num_tokens
    assert right.num_rounds <= num_tokens // width + 1
    assert wrong.num_accepted_tokens < wrong.num_draft_tokens / 10
