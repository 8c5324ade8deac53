"""What the plugin is told, what it refuses, and what requests may say to it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from lookahead_edit.cost import CostCurve
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.types import InvalidInput, Source, SourceKind
from lookahead_edit.vllm_plugin.loading import parse_options
from lookahead_edit.vllm_plugin.options import ProposerOptions, check_lengths, check_version
from lookahead_edit.vllm_plugin.pass_costs import FIRST_REVIEW, PassCosts
from lookahead_edit.vllm_plugin.proposer import never_zero_fill
from lookahead_edit.vllm_plugin.runner_hook import METHOD, wrap
from lookahead_edit.vllm_plugin.wishes import Wishes, read_wishes, to_extra_args
from lookahead_edit.vllm_plugin.workspace import MAX_FILE_BYTES, read_workspace

BYTES = ByteTokenizer()


def test_the_plugin_is_imported_without_vllm() -> None:
    command = "import sys, lookahead_edit.vllm_plugin, lookahead_edit.vllm_plugin.loading; print('vllm' in sys.modules)"
    finished = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, timeout=120, check=True)
    assert finished.stdout.strip() == "False"


@pytest.mark.parametrize("version", ["0.32.0", "0.32.7+cpu", "0.32.1rc1"])
def test_tested_releases_are_taken(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize("version", ["0.33.0", "0.31.9", "1.0", "0.320.1", "dev", ""])
def test_other_releases_are_refused_in_one_line_that_names_both(version: str) -> None:
    with pytest.raises(InvalidInput, match=r"^expected vLLM 0\.32\.x, .*, got ") as raised:
        check_version(version)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("num_draft_tokens", "max_model_len", "param"),
    [(0, 4096, "num_speculative_tokens"), (129, 4096, "num_speculative_tokens"), (64, 65, "max_model_len")],
)
def test_lengths_that_end_the_engine_are_refused(num_draft_tokens: int, max_model_len: int, param: str) -> None:
    check_lengths(128, 130)
    with pytest.raises(InvalidInput, match=r"^expected ") as raised:
        check_lengths(num_draft_tokens, max_model_len)
    assert raised.value.param == param


def test_options_are_read_from_json_and_unknown_ones_refused() -> None:
    curve = CostCurve(widths=(1, 8, 64), costs=((1.0, 1.2, 2.0),))
    section = json.loads(json.dumps({"cost_curve": curve.to_json(), "workspace": ["src"], "cost_ratio": 0.002}))
    options = ProposerOptions.of({"lookahead_edit": section, "somebody_else": {}})
    assert options == ProposerOptions(cost_curve=curve, workspace=("src",), cost_ratio=0.002)
    assert ProposerOptions.of({}) == ProposerOptions.of(None) == ProposerOptions()


@pytest.mark.parametrize(
    "section",
    [
        {"drafters": "edit"},
        {"drafter": "nothing"},
        {"policy": "nothing"},
        {"cost_curve": {"widths": [2, 1]}},
        {"workspace": "src"},
        {"workspace": [1]},
        {"max_index_bytes": 0},
        {"max_indexed_tokens_a_step": "many"},
        {"workspace": None},
        {"workspace": 3},
        {"cost_ratio": "x"},
        {"cost_ratio": True},
        {"drafter": ["edit"]},
        {"request_options": "no"},
        {"max_workspace_tokens": True},
        ["edit"],
    ],
)
def test_options_that_cant_be_used_are_refused(section: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^expected "):
        ProposerOptions.of({"lookahead_edit": section})


@pytest.mark.parametrize("whole", [5, "lookahead_edit", {"lookahead_edits": {}}])
def test_a_section_that_would_be_overlooked_is_refused(whole: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^expected .*additional_config"):
        ProposerOptions.of(whole)


def test_engine_options_are_json_where_they_can_be() -> None:
    pairs = ["max-model-len=2048", "enforce_eager=true", "quantization=fp8", 'speculative_config={"a": 1}', "empty="]
    assert parse_options(pairs) == {
        "max_model_len": 2048,
        "enforce_eager": True,
        "quantization": "fp8",
        "speculative_config": {"a": 1},
        "empty": "",
    }
    with pytest.raises(InvalidInput, match="expected an engine option like"):
        parse_options(["max_model_len"])


def test_wishes_survive_the_way_through_json() -> None:
    texts = [BYTES.encode(text) for text in ("first", "second", "third")]
    sources = (
        Source(SourceKind.PREDICTION, texts[0]),
        Source(SourceKind.CONTEXT, texts[1]),
        Source(SourceKind.CONTEXT, texts[2]),
    )
    extra_args = json.loads(json.dumps(to_extra_args(Wishes(7, (3, 9), sources, "name"))))
    wishes, problems = read_wishes(extra_args, None)
    assert problems == []
    assert (wishes.max_draft_tokens, wishes.file, wishes.name) == (7, (3, 9), "name")
    assert [source.kind for source in wishes.sources] == [source.kind for source in sources]
    assert all(np.array_equal(*pair) for pair in zip((each.tokens for each in wishes.sources), texts, strict=True))
    assert to_extra_args(Wishes()) == {}


def test_texts_may_come_as_text() -> None:
    wishes, problems = read_wishes({"lookahead_prediction": "x = 1", "lookahead_context": ["a", "bc"]}, BYTES)
    assert problems == []
    assert [(each.kind.label, BYTES.decode(each.tokens)) for each in wishes.sources] == [
        ("prediction", "x = 1"),
        ("context", "a"),
        ("context", "bc"),
    ]


@pytest.mark.parametrize(
    "extra_args",
    [
        {"lookahead_max_draft": -1},
        {"lookahead_max_draft": "3"},
        {"lookahead_file": [9, 3]},
        {"lookahead_file": "3:9"},
        {"lookahead_prediction": [1.5]},
        {"lookahead_prediction": [2**31]},
        {"lookahead_prediction": {"content": "x"}},
        {"lookahead_enabled": "no"},
        {"lookahead_typo": 1},
    ],
)
def test_a_bad_wish_is_named_and_the_request_goes_on(extra_args: dict[str, Any]) -> None:
    wishes, problems = read_wishes({**extra_args, "other_vendors": object()}, BYTES)
    assert wishes == Wishes()
    assert len(problems) == 1
    assert next(iter(extra_args)) in problems[0]


def test_the_drafter_never_counts_as_short_of_room() -> None:
    """vLLM asks ``max_seq_len + K <= draft_model_config.max_model_len``, and fills drafts with zeros where not."""
    target = SimpleNamespace(max_model_len=512)
    speculative = SimpleNamespace(draft_model_config=target)
    never_zero_fill(speculative, 128)
    assert speculative.draft_model_config.max_model_len >= 512 + 128
    assert target.max_model_len == 512  # the engine's own limit stays


def test_the_runner_is_wrapped_once_and_only_where_it_is_known() -> None:
    class Known:
        drafter = SimpleNamespace(facts="unset", tokenizer=None)
        input_batch = SimpleNamespace(req_ids=["a"])
        requests: ClassVar[dict[str, Any]] = {"a": SimpleNamespace(num_prompt_tokens=3, sampling_params=None)}

        def propose_draft_token_ids(self, scheduler_output: Any, sampled_token_ids: Any) -> str:
            return "drafts"

    class Changed:
        def propose_draft_token_ids(self, batch: Any) -> str:
            return "drafts"

    assert wrap(Known)
    once = getattr(Known, METHOD)
    assert wrap(Known)
    assert getattr(Known, METHOD) is once
    output = SimpleNamespace(scheduled_spec_decode_tokens={"a": [1, 2]}, num_scheduled_tokens={"a": 3})
    runner = Known()
    assert runner.propose_draft_token_ids(output, []) == "drafts"
    facts = runner.drafter.facts
    assert (facts.rows[0].name, facts.rows[0].num_verified_tokens, facts.rows[0].num_scheduled_tokens) == ("a", 2, 3)  # type: ignore[attr-defined]
    runner.requests = {}  # type: ignore[misc]
    assert runner.propose_draft_token_ids(output, []) == "drafts"
    assert runner.drafter.facts is None  # other internals: rows are recognised by their tokens then
    assert not wrap(Changed)
    assert not wrap(object)


def test_costs_are_medians_and_steady() -> None:
    costs, random = PassCosts(), np.random.default_rng(0)
    curves = []
    for number in range(4000):
        size = int(random.choice([1, 3, 17, 40]))
        seconds = (0.01 + 0.0005 * size) * random.uniform(0.95, 1.05) + (0.5 if number % 10 == 0 else 0.0)
        curve = costs.observe(size, seconds)
        if curve is not None:
            curves.append((number, curve))
    assert len(curves) == 1  # noise and pauses change nothing
    assert curves[0][0] >= FIRST_REVIEW - 1
    assert curves[0][1].values(1, 40)[[0, 39]] == pytest.approx([0.0105, 0.03], rel=0.05)


def test_costs_that_change_are_noticed() -> None:
    costs = PassCosts()
    found = [costs.observe(size, 0.01 + slope * size) for slope in (1e-4, 1e-3) for _ in range(600) for size in (1, 32)]
    curves = [curve for curve in found if curve is not None]
    assert len(curves) >= 2
    ratios = [curve.values(1, 32)[31] / curve.values(1, 32)[0] for curve in curves]
    assert ratios[0] < 1.5
    assert ratios[-1] > 3.0


def test_the_workspace_is_text_within_bounds(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "b.py").write_text("b = 2\n")
    (tmp_path / "src" / "a.py").write_text("a = 1 <|im_end|>\n")
    (tmp_path / "src" / ".hidden").write_text("no")
    (tmp_path / "src" / "image.bin").write_bytes(b"\0\1")
    (tmp_path / "src" / "latin.txt").write_bytes(b"\xff\xfe")
    (tmp_path / "src" / "empty.py").write_text("")
    (tmp_path / "src" / "large.json").write_text("x" * (MAX_FILE_BYTES + 1))
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "c.js").write_text("no")
    sources = read_workspace([str(tmp_path)], BYTES, 1000)
    assert [BYTES.decode(source.tokens) for source in sources] == ["a = 1 <|im_end|>\n", "b = 2\n"]
    assert sum(len(source.tokens) for source in read_workspace([str(tmp_path)], BYTES, 19)) == 19
    with pytest.raises(InvalidInput, match="expected a file or folder"):
        read_workspace([str(tmp_path / "nowhere")], BYTES, 10)
