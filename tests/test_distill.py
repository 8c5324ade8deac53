"""The trainer of draft models: its student, its stream, and runs that stop and go on."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from rich.console import Console
from tiny_models import SHAPE, make_tiny_model
from tiny_tokenizers import byte_level_tokenizer

from benchmarks import distill_draft, distill_report, distill_training
from benchmarks.distill_report import accepted_tokens
from benchmarks.distill_student import choose_layers, make_student, trained_parameters
from benchmarks.distill_texts import Text, make_text
from benchmarks.distill_training import Distiller, DistillOptions, foretell, load_state, scored_places
from corpora.edit_model.pieces import EVALUATION_PACKAGES, TRAIN_PACKAGES
from lookahead_edit.targets.draft_model import DraftModel, model_drafter_factory
from lookahead_edit.targets.loading import load_model
from lookahead_edit.types import InvalidInput, UnsupportedModel

OPTIONS = DistillOptions(num_layers=2, steps=6, warmup_steps=1, decay_steps=2, tokens_per_step=60, learning_rate=3e-3)


def target_of(vocab_size: int = 300) -> Any:
    torch.manual_seed(0)
    config = hf.LlamaConfig(**SHAPE | {"vocab_size": vocab_size, "num_hidden_layers": 4}, tie_word_embeddings=True)
    target = hf.LlamaForCausalLM(config).eval()
    for parameter in target.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.15)  # its layers matter, and it has opinions
    return target


def short_text(encoder: Any, split: str, seed: int, index: int, kind: str | None = None) -> Text:
    """Numbers in a row, from place to place: what takes the packages' texts seconds to make."""
    generator = torch.Generator().manual_seed(1000 * seed + index + (split == "evaluation") * 500)
    first = int(torch.randint(3, 100, (1,), generator=generator))
    return Text(kind or "code", [first + place % 9 for place in range(24)], 4)


@pytest.fixture(autouse=True)
def short_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (distill_training, distill_report, distill_draft):
        monkeypatch.setattr(module, "make_text", short_text)


def run(directory: Path, *parts: int, num_workers: int = 2) -> Distiller:
    """Steps in several parts, each begun from the checkpoint of the one before."""
    for num_steps in parts:
        distiller = Distiller(target_of(), None, (0, 2), OPTIONS, num_workers)
        state = load_state(directory, OPTIONS, distiller.target)
        if state is not None:
            distiller.resume(state)
        for _ in range(num_steps):
            distiller.run_step()
        distiller.save(directory)
    return distiller


def test_texts_are_the_same_on_every_call_and_of_packages_that_training_never_reads() -> None:
    tokenizer = byte_level_tokenizer()
    for kind in ("code", "edit"):
        texts = [make_text(tokenizer, "evaluation", 0, index, kind) for index in range(3)]
        assert texts == [make_text(tokenizer, "evaluation", 0, index, kind) for index in range(3)]
        assert len({tuple(text.tokens) for text in texts}) == 3
        for text in texts:
            assert 1 <= text.first < len(text.tokens)
    edit = make_text(tokenizer, "evaluation", 0, 0, "edit")
    assert tokenizer.decode(edit.tokens[: edit.first]).rstrip().rpartition("assistant")[2].startswith("\n```")
    assert not set(TRAIN_PACKAGES) & set(EVALUATION_PACKAGES)


def test_a_student_has_the_chosen_layers_shares_the_embeddings_and_decodes_with_a_cache() -> None:
    target = target_of()
    student = make_student(target, (0, 2))
    assert student.config.num_hidden_layers == len(student.model.layers) == 2
    assert student.model.embed_tokens.weight is target.model.embed_tokens.weight
    assert student.lm_head.weight is target.lm_head.weight
    ids = torch.arange(20)[None] + 3
    for chosen, layer in zip(student.model.layers, (0, 2), strict=True):
        assert torch.equal(chosen.mlp.up_proj.weight, target.model.layers[layer].mlp.up_proj.weight)
        assert chosen.mlp.up_proj.weight is not target.model.layers[layer].mlp.up_proj.weight
    drafting = DraftModel(student, 300)
    state, tokens = drafting.open(), np.arange(3, 23, dtype=np.int32)
    drafting.read(tokens[:12], state)
    with torch.no_grad():
        torch.testing.assert_close(drafting.read(tokens, state), student(ids).logits[0, -1], atol=1e-4, rtol=1e-4)
    everything = make_student(target, range(4))
    with torch.no_grad():
        torch.testing.assert_close(everything(ids).logits, target(ids).logits)


def test_layers_are_those_that_are_nearest_to_the_target() -> None:
    texts = [short_text(None, "train", 0, index) for index in range(2)]
    assert choose_layers(target_of(), texts, 4) == (0, 1, 2, 3)
    chosen = choose_layers(target_of(), texts, 2)
    assert chosen[0] == 0
    assert chosen == choose_layers(target_of(), texts, 2)


def test_what_no_student_can_be_made_of_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedModel, match="GPT2LMHeadModel"):
        make_student(make_tiny_model("gpt2"), (0, 1))
    for layers in ((), (2, 1), (0, 4)):
        with pytest.raises(InvalidInput, match="rising layers between 0 and 3"):
            make_student(target_of(), layers)
    with pytest.raises(InvalidInput, match="between 1 and 4 layers, got 5"):
        choose_layers(target_of(), [], 5)


def test_scored_places_are_spread_over_what_is_to_be_foretold() -> None:
    text = Text("code", list(range(9)), 5)
    assert scored_places(text, 100).tolist() == [4, 5, 6, 7]
    assert scored_places(text, 2).tolist() == [4, 7]


def test_steps_bring_the_student_nearer_and_leave_the_target_alone(tmp_path: Path) -> None:
    text = short_text(None, "evaluation", 0, 0)
    before = Distiller(target_of(), None, (0, 2), OPTIONS, 1)
    trained = run(tmp_path, 6)
    distances = []
    for distiller in (before, trained):
        with torch.no_grad():
            wanted, log_probabilities, _ = foretell(distiller.target, distiller.student, text, 100)
        distances.append(float((wanted.exp() * (wanted - log_probabilities)).sum(-1).mean()))
    assert distances[1] < distances[0]
    for own, other in zip(trained.target.parameters(), target_of().parameters(), strict=True):
        assert torch.equal(own, other)


def test_a_run_that_was_stopped_ends_as_one_that_was_not_whatever_the_workers(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", 6)
    parts = run(tmp_path / "parts", 2, 1, 3, num_workers=1)
    assert (whole.step, whole.index, whole.num_tokens) == (parts.step, parts.index, parts.num_tokens)
    for one, other in zip(trained_parameters(whole.student), trained_parameters(parts.student), strict=True):
        assert torch.equal(one, other)


def test_another_runs_directory_and_a_damaged_checkpoint_are_refused(tmp_path: Path) -> None:
    target = run(tmp_path, 1).target
    assert load_state(tmp_path, replace(OPTIONS, steps=99), target) is not None
    with pytest.raises(InvalidInput, match=r"expected a run with seed 7 in .*, got 1") as caught:
        load_state(tmp_path, replace(OPTIONS, seed=7), target)
    assert caught.value.param == "seed"
    other = target_of()
    with torch.no_grad():
        other.lm_head.weight.mul_(2)
    with pytest.raises(InvalidInput, match=r"expected a run with target_weights \w+ in .*, got \w+;"):
        load_state(tmp_path, OPTIONS, other)
    (tmp_path / distill_training.STATE_FILE).write_bytes(b"half a file")
    with pytest.raises(InvalidInput, match="can't read the checkpoint"):
        load_state(tmp_path, OPTIONS, target)


def test_the_learning_rate_rises_stays_and_falls() -> None:
    options = DistillOptions(steps=10, warmup_steps=2, decay_steps=4, learning_rate=1.0)
    rates = [options.learning_rate_at(step) for step in range(10)]
    assert rates[:3] == [0.5, 1.0, 1.0]
    assert rates[6:] == [1.0, 0.75, 0.5, 0.25]


def test_accepted_tokens_are_the_agreeing_runs_cut_to_the_draft() -> None:
    assert accepted_tokens(torch.tensor([True, True, False, True]), 2) == 1.0
    assert accepted_tokens(torch.tensor([True, True, False, True]), 1) == 0.75


def test_the_command_trains_writes_a_model_that_loads_as_a_draft_model_and_reports(tmp_path: Path) -> None:
    target, tokenizer = target_of(len(byte_level_tokenizer())), byte_level_tokenizer()
    target.save_pretrained(tmp_path / "target")
    tokenizer.save_pretrained(tmp_path / "target")
    arguments = argparse.Namespace(
        model=str(tmp_path / "target"),
        output=tmp_path / "run",
        max_minutes=60.0,
        workers=1,
        save_every=2,
        texts=2,
        report_only=False,
        **asdict(OPTIONS),
    )
    console = Console(quiet=True)
    document = distill_draft.run(arguments, console)
    assert document["training"]["steps"] == 6
    assert set(document["held_out"]) == {"edit", "code", "prose", "quote"}
    assert 0.0 <= document["held_out"]["code"]["overlap"] <= 1.0
    assert json.loads((tmp_path / "run" / distill_draft.REPORT_FILE).read_text("utf-8")) == document
    draft, draft_tokenizer = load_model(str(tmp_path / "run" / distill_draft.MODEL_DIRECTORY), dtype="float32")
    assert draft.config.num_hidden_layers == 2
    makers = model_drafter_factory(draft, target, (draft_tokenizer.get_vocab(), tokenizer.get_vocab()))
    assert set(makers) == {"model", "combined"}
    arguments.steps = 8
    assert distill_draft.run(arguments, console)["training"]["steps"] == 8
    lines = (tmp_path / "run" / distill_draft.LOG_FILE).read_text("utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, 9))
