"""The audit finds bugs that are planted, and none where there is none; ties are told from both."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from server_harness import on_socket
from static_targets import random_tokens
from tiny_models import SHAPE
from transformers.cache_utils import DynamicLayer

from lookahead_edit import cli, cli_audit
from lookahead_edit.audit import Comparison, Noise, Report, Walk, compare
from lookahead_edit.config import TargetConfig
from lookahead_edit.editor import Editor
from lookahead_edit.targets import auditing, static_passes
from lookahead_edit.targets.auditing import MIXED, OFF, AuditPrompt, audit
from lookahead_edit.targets.growing_cache import GrowingLayer
from lookahead_edit.targets.hf import HfTarget
from lookahead_edit.targets.making import make_target
from lookahead_edit.targets.static_reader import StaticReader
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.types import Row, Source, SourceKind, Verified
from lookahead_edit.verify import GreedySampler

KINDS = ("dynamic", "static", "deterministic")
PROMPTS = [
    AuditPrompt(f"prompt {length}", random_tokens(length, length), (Source(SourceKind.FILE, random_tokens(30)),))
    for length in (30, 90)
]


def audited(model: Any, kind: Any = "dynamic", make: Callable[..., Any] = make_target, max_tokens: int = 40) -> Report:
    config = TargetConfig(kind=kind, deterministic_width=8)
    reports = audit(
        model,
        lambda open_sampler: make(model, config, open_sampler=open_sampler),
        PROMPTS,
        drafters=("suffix",),
        tokenizer=None,
        max_tokens=max_tokens,
        is_deterministic=kind == "deterministic",
    )
    *_, report = reports
    return report


def faults(report: Report) -> dict[str, int]:
    return {comparison.name: len(comparison.faults) for comparison in report.comparisons}


# Nothing is wrong.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_target_without_a_bug_passes(tiny_model: Any, name: str, kind: str) -> None:
    report = audited(tiny_model(name), kind)
    assert not report.is_bug
    assert report.verdict == "no bug, and not one token differs"
    assert [comparison.name for comparison in report.comparisons] == [OFF, "suffix", MIXED]
    assert all(comparison.num_tokens == 80 and not comparison.flips for comparison in report.comparisons)
    mixed = report.comparisons[-1]
    assert 0 < mixed.num_accepted_tokens < mixed.num_draft_tokens
    assert mixed.num_rounds < 80
    assert mixed.is_bit_equal == (mixed.max_difference == 0.0)
    assert kind != "deterministic" or mixed.is_bit_equal


@pytest.mark.parametrize("name", ["mistral", "qwen3_next", "lfm2", "mamba2"])
def test_models_with_other_caches_pass_too(tiny_model: Any, name: str) -> None:
    assert not audited(tiny_model(name), max_tokens=20).is_bug


@pytest.mark.parametrize("kind", KINDS)
def test_low_precision_is_no_bug(tiny_model: Any, kind: str) -> None:
    model = tiny_model("llama").to(torch.bfloat16)
    try:
        report = audited(model, kind)
    finally:
        model.to(torch.float32)
    assert not report.is_bug
    assert report.noise.max_difference > 0.0
    assert all(flip.is_tie for comparison in report.comparisons for flip in comparison.flips)


# Something is.


class TrustingTarget(HfTarget):
    """Commits a draft's first token unverified."""

    def verify(self, rows: Any) -> Verified:
        verified = super().verify(rows)
        for row, tokens in zip(rows, verified.tokens, strict=True):
            if len(row.draft) and len(tokens):
                tokens[0] = row.draft.tokens[0]
        return verified


def test_a_first_drafted_token_that_nobody_verified_is_found(tiny_model: Any) -> None:
    report = audited(tiny_model("llama"), make=TrustingTarget)
    found = faults(report)
    assert found[OFF] == 0
    assert found[MIXED] > 0
    assert "was committed, and" in report.comparisons[-1].faults[0]
    assert report.verdict.startswith(f"{MIXED} against {OFF}: BUG: ") or report.verdict.startswith("suffix against")


def test_a_crop_that_is_off_by_one_is_found(tiny_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    crop = DynamicLayer.crop
    monkeypatch.setattr(
        GrowingLayer, "crop", lambda self, number: crop(self, number + 1 if number < 0 else number), raising=True
    )
    report = audited(tiny_model("llama"))
    assert faults(report)[OFF] == 0
    assert faults(report)[MIXED] > 0
    assert "the logits are off by" in report.comparisons[-1].faults[0]
    assert report.is_bug


def test_a_static_cache_that_rolls_back_one_too_few_is_found(tiny_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read = StaticReader._read

    def read_later(self: StaticReader, block: Any) -> Any:
        if block.num_logits == 1 and block.num_cached_tokens > 60:
            block = type(block)(block.tokens, block.cache, block.num_cached_tokens + 1, block.num_logits)
        return read(self, block)

    model = tiny_model("llama")
    make_target(model, TargetConfig(kind="static"))
    monkeypatch.setattr(StaticReader, "_read", read_later)
    assert audited(model, "static").is_bug


def test_a_tail_that_is_zeroed_and_not_masked_is_found(tiny_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of zeros score 0, and exp(0) counts. All ways of this target do it: only the model itself tells."""
    mask = static_passes.causal_mask

    def zeroing_mask(slots: Any, attended: Any, num_groups: int, dtype: Any) -> Any:
        made = mask(slots, attended, num_groups, dtype)
        made[..., attended > slots[-1]] = 0.0
        return made

    model = tiny_model("llama")

    def make(model: Any, config: TargetConfig, **options: Any) -> Any:
        target = make_target(model, config, **options)  # which itself would refuse a model that answers so
        monkeypatch.setattr(static_passes, "causal_mask", zeroing_mask)
        return target

    report = audited(model, "deterministic", make)
    assert report.comparisons[0].is_bug
    assert report.verdict.startswith(f"{OFF} against the model itself: BUG: ")


def test_a_static_target_with_such_a_mask_is_not_even_made(tiny_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from lookahead_edit.types import UnsupportedModel

    mask = static_passes.causal_mask
    monkeypatch.setattr(static_passes, "causal_mask", lambda *arguments: torch.zeros_like(mask(*arguments)))
    with pytest.raises(UnsupportedModel, match="its logits are other ones"):
        make_target(tiny_model("llama"), TargetConfig(kind="deterministic"))


def test_a_sampler_that_does_not_take_the_likeliest_token_is_found(
    tiny_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SecondBest(GreedySampler):
        def choose(self, logits: Any, row: Row) -> Any:
            tokens = super().choose(logits, row)
            tokens[-1] = int(logits[len(tokens) - 1].topk(2).indices[1])
            return tokens

    monkeypatch.setattr(auditing, "make_sampler", lambda *arguments: SecondBest())
    report = audited(tiny_model("llama"), max_tokens=10)
    assert all(comparison.is_bug for comparison in report.comparisons)
    assert "is likelier by its logits" in report.comparisons[0].faults[0]


def test_bits_that_depend_on_drafts_are_a_bug_in_deterministic_mode_only(tiny_model: Any) -> None:
    """The dynamic target's blocks have other widths, hence other bits; here it claims to be deterministic."""
    model = tiny_model("llama").to(torch.bfloat16)
    try:
        config = TargetConfig(kind="dynamic")
        for is_deterministic in (False, True):
            *_, report = audit(
                model,
                lambda open_sampler: make_target(model, config, open_sampler=open_sampler),
                PROMPTS,
                drafters=(),
                tokenizer=None,
                max_tokens=40,
                is_deterministic=is_deterministic,
            )
            assert report.is_bug == is_deterministic
    finally:
        model.to(torch.float32)


# Ties.


def walk_of(logits: Any, committed: list[int] | None = None) -> Walk:
    array = np.asarray(logits, dtype=np.float32)
    chosen = array.argmax(axis=1).astype(np.int32)
    return Walk(chosen if committed is None else np.asarray(committed, np.int32), chosen, array)


def compared(expected: Walk, got: Walk, tolerance: float, *, needs_bits: bool = False) -> Comparison:
    comparison = Comparison("drafts", OFF)
    compare(comparison, expected, got, prompt="a", tolerance=tolerance, needs_bits=needs_bits)
    return comparison


def test_a_flip_within_the_noise_is_a_tie_and_its_margin_is_told() -> None:
    expected = walk_of([[1.0, 0.0, 0.0], [0.0, 2.0, 1.99]])
    got = walk_of([[1.0, 0.0, 0.0], [0.0, 1.98, 2.0]])
    comparison = compared(expected, got, tolerance=0.05)
    assert not comparison.is_bug
    (flip,) = comparison.flips
    assert (flip.position, flip.expected_token, flip.got_token, flip.is_tie) == (1, 1, 2, True)
    assert flip.margin == pytest.approx(0.01)
    assert flip.difference == pytest.approx(0.02)
    assert comparison.verdict.startswith("the same tokens but for 1 of 2, each a tie")


def test_the_same_flip_is_a_bug_beyond_the_noise_and_where_bits_were_promised() -> None:
    expected, got = walk_of([[0.0, 2.0, 1.99]]), walk_of([[0.0, 1.98, 2.0]])
    for comparison in (compared(expected, got, 1e-4), compared(expected, got, 0.05, needs_bits=True)):
        assert comparison.is_bug
        assert not comparison.flips[0].is_tie
        assert comparison.verdict.startswith("BUG: a, token 0: ")


def test_logits_that_are_no_numbers_are_a_bug() -> None:
    expected = walk_of([[0.0, 1.0]])
    comparison = compared(expected, walk_of([[np.nan, 1.0]], [1]), tolerance=0.1)
    assert comparison.is_bug
    assert json.loads(json.dumps(comparison.to_json(), allow_nan=False))["largest_logit_difference"] is None


def test_the_tolerance_has_a_floor_for_models_whose_two_ways_are_the_same() -> None:
    noise = Noise("float32")
    noise.add(walk_of([[0.0, 20.0]]), np.array([[0.0, 20.0]], dtype=np.float32))
    assert noise.max_difference == 0.0
    assert noise.tolerance == pytest.approx(8 * 2**-23 * 20.0)


# The command.


class _NumberedTokenizer(ByteTokenizer):
    """No end token, so that texts have the length that is asked for."""

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return frozenset()


@pytest.fixture(scope="module")
def byte_model() -> Any:
    """Every byte is one of its tokens."""
    import transformers as hf

    torch.manual_seed(0)
    model = hf.LlamaForCausalLM(hf.LlamaConfig(**(SHAPE | {"vocab_size": 300}))).eval()
    torch.nn.init.normal_(model.get_output_embeddings().weight, std=1.0)
    return model


@pytest.fixture
def run(
    byte_model: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str, str]]]:
    def run_main(*arguments: str) -> tuple[int, str, str]:
        def open_editor(model: Any, dtype: Any, device: Any, display: Any, target: Any) -> Editor:
            return Editor(make_target(byte_model, TargetConfig(kind=target.value)), _NumberedTokenizer())

        monkeypatch.setattr(cli_audit, "open_editor", open_editor)
        with pytest.raises(SystemExit) as exited:
            cli.main(["audit", *arguments])
        printed = capsys.readouterr()
        return int(exited.value.code or 0), printed.out, printed.err

    return run_main


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_prints_a_table_and_a_verdict(run: Any, kind: str) -> None:
    status, out, err = run("--max-tokens", "12", "--limit", "1", "--target", kind)
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()[2:]] == ["rounding", "without", "edit", "mixed"]
    assert err.splitlines()[-1] == "no bug, and not one token differs"


def test_the_command_takes_traces_and_prints_json(run: Any, tmp_path: Path) -> None:
    traces = tmp_path / "traces.jsonl"
    lines = [{"id": f"t{index}", "prompt": f"A = {index}\nA = {index}\n" * 3, "output": "x"} for index in range(3)]
    traces.write_text("".join(json.dumps(line) + "\n" for line in lines))
    status, out, _ = run(str(traces), "--max-tokens", "9", "--limit", "2", "--drafters", "ngram,suffix", "--json")
    document = json.loads(out)
    assert status == 0
    assert (document["model"], document["dtype"], document["target"], document["prompts"], document["bug"]) == (
        "model",
        "float32",
        "dynamic",
        2,
        False,
    )
    assert [each["name"] for each in document["comparisons"]] == [OFF, "ngram", "suffix", MIXED]
    assert all(each["tokens"] == 18 for each in document["comparisons"])
    assert document["noise"]["tolerance"] > 0.0


def test_drafts_may_be_right_or_wrong_throughout(run: Any) -> None:
    options = ("--drafters", "right,wrong", "--target", "deterministic", "--json")
    status, out, _ = run("--max-tokens", "40", "--limit", "1", *options)
    _, right, wrong, _ = json.loads(out)["comparisons"]
    assert status == 0
    assert right["accepted_tokens"] == right["draft_tokens"] > 0
    assert right["rounds"] == 2
    assert wrong["accepted_tokens"] < wrong["draft_tokens"] / 10
    assert right["bit_equal"]
    assert wrong["bit_equal"]


def test_a_bug_is_exit_status_1(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "lookahead_edit.targets.making.make_target",
        lambda model, config, open_sampler: TrustingTarget(model, open_sampler=open_sampler),
    )
    status, out, err = run("--max-tokens", "12", "--limit", "1", "--json")
    assert status == 1
    assert json.loads(out)["bug"]
    assert "BUG" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--url", "localhost:8000"], "expected an address like http://localhost:8000, got 'localhost:8000'"),
        (["--url", "http://127.0.0.1:9"], "no usable answer from http://127.0.0.1:9/v1/edits"),
        (["--url", "http://x", "--model", "y"], "expected no --model, --dtype, --device and --target with --url"),
        (["--url", "http://x", "--drafters", "edit,ngram"], "expected one drafter with --url, got edit, ngram"),
        (["--url", "http://x", "--drafters", "right"], "expected a drafter of the server's with --url, got right"),
        (["--drafters", "crystal-ball"], "expected drafter to be one of"),
        (["--drafters", ","], "expected at least one drafter, got none"),
        (["--temperature", "1"], "expected --temperature with --url only"),
        (["nowhere.jsonl"], "can't read nowhere.jsonl: "),
        (["--max-tokens", "100000"], "expected a prompt that fits"),
    ],
)
def test_what_can_not_be_audited_is_one_line(run: Any, arguments: list[str], message: str) -> None:
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith(f"error: {message}")
    assert len(err.splitlines()) == 1


# Over HTTP.


@pytest.mark.parametrize("arguments", [[], ["--temperature", "0.8", "--seed", "3", "--drafters", "ngram"]])
def test_a_server_is_audited_over_http(byte_model: Any, run: Any, arguments: list[str]) -> None:
    editor = Editor(make_target(byte_model, TargetConfig(kind="deterministic")), _NumberedTokenizer())
    with on_socket(editor) as client:
        status, out, _ = run("--url", str(client.base_url), "--max-tokens", "24", "--json", *arguments)
    document = json.loads(out)
    assert status == 0
    assert (document["texts"], document["tokens"], document["differences"]) == (3, 72, [])
    assert document["draft_tokens"] > 0
    assert document["verdict"] == "no bug, and not one character differs"


def test_a_server_whose_drafts_change_its_texts_is_exit_status_1(byte_model: Any, run: Any) -> None:
    with on_socket(Editor(TrustingTarget(byte_model), _NumberedTokenizer())) as client:
        status, out, err = run("--url", f"{client.base_url}/v1", "--max-tokens", "40")
    assert status == 1
    assert out.split()[-1] != "0"
    assert "texts differ" in err
