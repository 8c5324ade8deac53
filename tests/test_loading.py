"""Finding a model by name: what loads, and what is refused in one line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from tiny_models import SHAPE
from tiny_tokenizers import byte_level_tokenizer

from lookahead_edit.editor import GenerateRequest
from lookahead_edit.targets import loading
from lookahead_edit.targets.default_model import is_converted_default
from lookahead_edit.targets.loading import editor_of, load_editor, load_model
from lookahead_edit.types import InvalidInput, ModelUnavailable


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a tiny model and its tokenizer."""
    directory = tmp_path_factory.mktemp("tiny")
    tokenizer = byte_level_tokenizer()
    torch.manual_seed(0)
    model = hf.LlamaForCausalLM(hf.LlamaConfig(**(SHAPE | {"vocab_size": len(tokenizer)})))
    with loading.quiet_transformers():
        model.save_pretrained(directory)
        tokenizer.save_pretrained(directory)
    return directory


@pytest.fixture
def directory(saved: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


def refusal(name: object) -> str:
    with pytest.raises(ModelUnavailable) as error_info:
        load_model(str(name))
    message = str(error_info.value)
    assert "\n" not in message
    assert str(name) in message
    return message


def test_a_directory_is_loaded_in_eval_mode(saved: Path) -> None:
    model, tokenizer = load_model(str(saved), device="cpu")
    assert isinstance(model, hf.LlamaForCausalLM)
    assert not model.training
    assert model.dtype == torch.float32
    assert tokenizer("x = 1")["input_ids"]


@pytest.mark.parametrize("dtype", ["bfloat16", torch.bfloat16])
def test_a_dtype_is_a_name_or_a_torch_dtype(saved: Path, dtype: torch.dtype | str) -> None:
    assert load_model(str(saved), dtype=dtype, device="cpu")[0].dtype == torch.bfloat16


def test_loading_is_silent(saved: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load_model(str(saved))
    assert capfd.readouterr() == ("", "")


def test_logging_and_progress_bars_come_back(saved: Path) -> None:
    before = (hf.logging.get_verbosity(), hf.logging.is_progress_bar_enabled())
    load_model(str(saved))
    assert (hf.logging.get_verbosity(), hf.logging.is_progress_bar_enabled()) == before


def test_an_editor_writes_with_the_model(saved: Path) -> None:
    editor = load_editor(str(saved), device="cpu")
    assert editor.model_name == str(saved)
    assert editor.target.max_context_tokens == 2048
    assert editor.generate(GenerateRequest(prompt="def add(", max_tokens=5)).metrics.num_emitted_tokens == 5


def test_an_answer_ends_at_every_end_token(saved: Path) -> None:
    model, tokenizer = load_model(str(saved))
    model.generation_config.eos_token_id = [4, 5]
    assert editor_of(model, tokenizer).tokenizer.eos_token_ids == {4, 5, tokenizer.eos_token_id}


def test_only_the_default_model_has_the_instruction_before_the_file(saved: Path, tmp_path: Path) -> None:
    """Its adapter was trained so; others reuse more of a prompt with the file first."""
    assert load_editor(str(saved), device="cpu").config.file_first
    default = shutil.copytree(saved, tmp_path / "default-model-0123456789abcdef")
    assert not load_editor(str(default), device="cpu").config.file_first
    assert not is_converted_default("")


def test_a_directory_without_a_config_is_refused(directory: Path) -> None:
    (directory / "config.json").unlink()
    assert "no config.json" in refusal(directory)


def test_a_config_that_is_no_json_is_refused(directory: Path) -> None:
    (directory / "config.json").write_text("{")
    assert "not a valid JSON" in refusal(directory)


def test_missing_weights_are_refused(directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    assert "model.safetensors" in refusal(directory)


@pytest.mark.parametrize("num_bytes", [0, 5, 2000])
def test_cut_weights_are_refused(directory: Path, num_bytes: int) -> None:
    os.truncate(directory / "model.safetensors", num_bytes)
    assert refusal(directory)


def test_a_missing_tokenizer_is_refused(directory: Path) -> None:
    for path in directory.glob("tokenizer*"):
        path.unlink()
    assert "no usable tokenizer" in refusal(directory)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "nonsense"}, "nonsense"),
        ({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}, "got T5ForConditionalGeneration"),
        ({"architectures": ["BertForMaskedLM"], "model_type": "bert"}, "got BertForMaskedLM"),
        ({"num_hidden_layers": 5}, "weights are missing"),
        ({"hidden_size": 64}, "can't load"),
    ],
)
def test_what_is_no_whole_causal_model_is_refused(directory: Path, changes: dict[str, Any], message: str) -> None:
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | changes))
    assert message in refusal(directory)


def test_a_broken_gguf_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"not at all")
    assert "not a GGUF file" in refusal(path)
    path.write_bytes(b"GGUF" + bytes(300))
    assert "can't load" in refusal(path)


@pytest.mark.parametrize("name", ["./none", "/none/at/all", "a/b/c", "no good name", ""])
def test_a_name_that_can_be_nothing_is_refused(name: str) -> None:
    assert refusal(name).startswith("no such model")


@pytest.mark.parametrize("name", ["./none", "no good name", "owner/model", "DIRECTORY", "FILE"])
def test_an_unknown_name_is_refused_before_anything_is_loaded(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.gguf").write_bytes(b"not at all")
    name = {"DIRECTORY": str(tmp_path), "FILE": str(tmp_path / "model.gguf")}.get(name, name)
    monkeypatch.setattr(loading, "_load", lambda *_, **__: pytest.fail("it was loaded"))
    message = refusal(name)
    with pytest.raises(ModelUnavailable) as caught:
        loading.require_model(name)
    assert str(caught.value) == message


def test_a_name_that_leads_to_a_model_is_accepted(saved: Path) -> None:
    for name in (None, "default", str(saved)):
        loading.require_model(name)


def test_a_switched_off_hub_is_named() -> None:
    assert "HF_HUB_OFFLINE" in refusal("owner/model")


def test_without_a_network_a_hub_id_fails_in_one_line_and_soon(tmp_path: Path) -> None:
    code = (
        "from lookahead_edit.targets.loading import load_model\n"
        "from lookahead_edit.types import ModelUnavailable\n"
        "import time; started = time.monotonic()\n"
        "try: load_model('owner/model')\n"
        "except ModelUnavailable as error: print(error)\n"
        "assert time.monotonic() - started < 15.0\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    # Nobody listens on the discard port.
    environment |= {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path), "NO_PROXY": "127.0.0.1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    assert "the hub can't be reached" in line


def test_a_hub_that_never_answers_is_given_up() -> None:
    started = time.monotonic()
    assert loading._within(lambda: time.sleep(5.0), 0.05, "no answer") == "no answer"
    assert time.monotonic() - started < 4.0


def test_a_downloaded_hub_model_needs_no_network(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = tmp_path / "models--owner--tiny"
    commit = "0123456789" * 4
    shutil.copytree(saved, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(loading, "hub_problem", lambda name: pytest.fail("the hub was asked"))
    assert isinstance(load_model("owner/tiny")[0], hf.LlamaForCausalLM)
    (repository / "snapshots" / commit / "model.safetensors").unlink()
    monkeypatch.setattr(loading, "hub_problem", lambda name: "the hub can't be reached")
    assert refusal("owner/tiny").endswith("and the hub can't be reached")


@pytest.mark.parametrize(
    ("options", "message"), [({"dtype": "int4"}, "float32"), ({"device": "abacus"}, "cpu, cuda or cuda:N")]
)
def test_unknown_dtypes_and_devices_are_refused(saved: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        load_model(str(saved), **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_device_that_is_not_there_is_refused(saved: Path) -> None:
    advice = r"^expected device to be cpu, or left out, got 'cuda(:1)?': torch .* finds no GPU on this machine$"
    for device in ("cuda", "cuda:1"):
        with pytest.raises(InvalidInput, match=advice):
            load_model(str(saved), device=device)
    with pytest.raises(InvalidInput, match=r"^expected device to be cpu, or left out, got 'meta'$"):
        load_model(str(saved), device="meta")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_is_used_where_there_is_one(saved: Path) -> None:
    model, _ = load_model(str(saved))
    assert model.device.type == "cuda"
    assert model.dtype == (torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32)


def test_a_broken_conversion_says_what_to_remove(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.truncate(directory / "model.safetensors", 100)
    monkeypatch.setattr(loading, "default_model_directory", lambda console: directory)
    with pytest.raises(ModelUnavailable, match=f"remove {directory} to have it converted again"):
        load_model()


def test_a_conversion_that_only_lacks_memory_stays(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> Any:
        raise ModelUnavailable("can't load it: Cannot allocate memory (os error 12)")

    monkeypatch.setattr(loading, "default_model_directory", lambda console: directory)
    monkeypatch.setattr(loading, "_load", refuse)
    with pytest.raises(ModelUnavailable, match=r"\(os error 12\)$"):
        load_model()
