"""Deterministic mode end to end: one seed, the same bytes, with speculation on or off, whatever drafts and how far."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from server_harness import on_socket
from static_targets import random_tokens
from tiny_models import SHAPE
from tiny_tokenizers import byte_level_tokenizer

import lookahead_edit
from lookahead_edit import LookaheadEdit, cli
from lookahead_edit.config import SamplingConfig, SpeculationConfig, TargetConfig
from lookahead_edit.targets.loading import editor_of, load_editor
from lookahead_edit.targets.static import StaticTarget
from lookahead_edit.types import InvalidInput, UnsupportedModel

DETERMINISTIC = TargetConfig(kind="deterministic", deterministic_width=8)
SPECULATIONS = [
    SpeculationConfig(enabled=False),
    SpeculationConfig(),
    *(SpeculationConfig(drafter=name, policy="fixed") for name in ("edit", "suffix", "ngram")),
    *(SpeculationConfig(policy="fixed", max_draft_tokens=limit) for limit in (0, 1, 3, 500)),
]
TEXT = "def add(first, second):\n    return first + second\n" * 3
INSTRUCTION = "Rename first to one."


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return byte_level_tokenizer()


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def model(request: pytest.FixtureRequest, tokenizer: Any) -> Any:
    """Its texts wander, and in bfloat16 have ties at every other token."""
    import transformers as hf

    torch.manual_seed(0)
    model = hf.LlamaForCausalLM(hf.LlamaConfig(**(SHAPE | {"vocab_size": len(tokenizer)}))).eval()
    torch.nn.init.normal_(model.get_output_embeddings().weight, std=1.0)
    model.generation_config = hf.GenerationConfig(bos_token_id=1, pad_token_id=0)
    return model.to(getattr(torch, request.param))


@pytest.mark.parametrize("options", [{"do_sample": False}, {"do_sample": True, "temperature": 0.8, "top_p": 0.9}])
def test_the_hook_gives_the_same_bytes_whatever_drafts(model: Any, options: dict[str, Any]) -> None:
    ids = torch.from_numpy(random_tokens(40).astype("int64")).repeat(2, 2)
    outputs = []
    for speculation in SPECULATIONS:
        decoder = LookaheadEdit(speculation=speculation, seed=7, target=DETERMINISTIC)
        outputs.append(model.generate(ids, max_new_tokens=30, custom_generate=decoder, **options))
    assert all(torch.equal(output, outputs[0]) for output in outputs)


def test_the_hooks_logits_are_the_same_bits(model: Any) -> None:
    ids = torch.from_numpy(random_tokens(40).astype("int64"))[None]
    answers = [
        model.generate(
            ids,
            max_new_tokens=30,
            do_sample=False,
            return_dict_in_generate=True,
            output_logits=True,
            custom_generate=LookaheadEdit(speculation=speculation, target=DETERMINISTIC),
        )
        for speculation in SPECULATIONS
    ]
    first = torch.stack(answers[0].logits)
    assert all(torch.equal(torch.stack(answer.logits), first) for answer in answers)


def test_the_hook_fills_the_cache_that_generate_made_and_can_be_called_again(model: Any) -> None:
    decoder = LookaheadEdit(target=TargetConfig(kind="static"))
    ids = torch.from_numpy(random_tokens(40).astype("int64"))[None]
    options = {"max_new_tokens": 9, "do_sample": False, "return_dict_in_generate": True}
    expected = model.generate(ids, **options)
    targets = []
    for _ in range(2):
        got = model.generate(ids, custom_generate=decoder, **options)
        targets.append(decoder._static_target)
        assert got.cache.get_seq_length() == expected.cache.get_seq_length() == 48
        for layer, other in zip(got.cache.layers, expected.cache.layers, strict=True):
            assert torch.allclose(layer.keys[:, :, :40], other.keys[:, :, :40], atol=0.1)
    assert targets[0] is targets[1]
    assert not targets[0]._rows


def test_the_hook_refuses_a_cache_with_tokens_in_it(model: Any) -> None:
    ids = torch.from_numpy(random_tokens(40).astype("int64"))[None]
    cache = model.generate(ids, max_new_tokens=3, return_dict_in_generate=True).cache
    longer = torch.cat([ids, ids], dim=1)
    with pytest.raises(InvalidInput, match="expected an empty cache with a deterministic target"):
        model.generate(longer, cache=cache, max_new_tokens=3, custom_generate=LookaheadEdit(target=DETERMINISTIC))


def test_the_hook_refuses_a_model_by_name(tiny_model: Any) -> None:
    ids = torch.from_numpy(random_tokens(40).astype("int64"))[None]
    with pytest.raises(UnsupportedModel, match="MistralForCausalLM can't be read with a static cache"):
        tiny_model("mistral").generate(ids, max_new_tokens=3, custom_generate=LookaheadEdit(target=DETERMINISTIC))


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_the_library_gives_the_same_bytes_whatever_drafts(model: Any, tokenizer: Any, temperature: float) -> None:
    texts = [
        lookahead_edit.edit(
            model,
            tokenizer,
            TEXT,
            INSTRUCTION,
            target=DETERMINISTIC,
            max_tokens=40,
            speculation=speculation,
            sampling=SamplingConfig(temperature=temperature, seed=11),
        ).text
        for speculation in SPECULATIONS
    ]
    assert set(texts) == {texts[0]}


def test_the_server_gives_the_same_bytes_whatever_drafts_and_whoever_else_asks(model: Any, tokenizer: Any) -> None:
    editor = editor_of(model, tokenizer, target=DETERMINISTIC)
    assert isinstance(editor.target, StaticTarget)
    bodies = [
        {
            "input": TEXT,
            "instruction": INSTRUCTION,
            "max_tokens": 40,
            "temperature": 0.9,
            "seed": 5,
            "speculation": each,
        }
        for each in (
            {"enabled": False},
            {"enabled": True},
            *({"enabled": True, "drafter": name} for name in ("edit", "suffix", "ngram")),
            *({"enabled": True, "max_draft": limit} for limit in (1, 3, 500)),
        )
    ]
    others = [body | {"input": f"# {index}\n{TEXT}", "seed": index} for index, body in enumerate(bodies)]
    with on_socket(editor, max_batch_size=3) as client, ThreadPoolExecutor(4) as pool:

        def post(body: dict[str, Any]) -> str:
            response = client.post("/v1/edits", json=body, timeout=120.0)
            assert response.status_code == 200, response.text
            return str(response.json()["choices"][0]["text"])

        alone = post(bodies[0])
        texts = list(pool.map(post, [each for pair in zip(bodies, others, strict=True) for each in pair]))
    assert set(texts[::2]) == {alone}


@pytest.fixture(scope="module")
def directory(model: Any, tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def test_the_command_line_gives_the_same_bytes_whatever_drafts(
    directory: Path, model: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    choices = (["--no-speculation"], ["--drafter", "edit"], ["--drafter", "ngram"])
    texts = [_generated(directory, model, options, capsys) for options in choices]
    assert set(texts) == {texts[0]}
    assert texts[0]


def _generated(directory: Path, model: Any, options: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    arguments = ["generate", TEXT, "--model", str(directory), "--dtype", str(model.dtype).removeprefix("torch.")]
    sampling = ["--target", "deterministic", "--temperature", "0.9", "--seed", "4", "--max-tokens", "40", "--quiet"]
    with pytest.raises(SystemExit) as exited:
        cli.main([*arguments, *sampling, *options])
    assert not exited.value.code
    return capsys.readouterr().out


def test_an_editor_is_loaded_with_the_target_that_is_asked_for(directory: Path) -> None:
    for kind in ("static", "deterministic"):
        editor = load_editor(str(directory), target=TargetConfig(kind=kind))
        assert isinstance(editor.target, StaticTarget)
        assert editor.target.config.kind == kind


def test_a_device_that_is_not_there_is_one_line(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(SystemExit, match="2"):
        cli.main(["generate", "a", "--model", str(directory), "--device", "cuda", "--target", "static"])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: expected device to be cpu, or left out, got 'cuda'")
