"""Finds and loads a model by name: the default model, a directory, a GGUF file or a hub id.

Everything that can be wrong with a name or its files ends in ModelUnavailable with one line. Knows nothing of
decoding; `load_editor` only puts the parts together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from lookahead_edit.config import EditConfig, TargetConfig
from lookahead_edit.editor import Editor
from lookahead_edit.targets.default_model import (
    default_model_directory,
    dequantize_options,
    is_converted_default,
    one_line,
    require_gguf,
)
from lookahead_edit.targets.quiet import quiet_transformers
from lookahead_edit.targets.user_paths import named_path
from lookahead_edit.types import InvalidInput, ModelUnavailable

if TYPE_CHECKING:
    import torch
    from rich.console import Console
    from transformers import PreTrainedModel

DEFAULT_MODEL = "default"
DEFAULT_MODEL_NAME = "smollm2-135m-edit"  # what the default model calls itself in answers
DTYPES = ("float32", "bfloat16", "float16")
HUB_REQUEST_SECONDS = 5.0
HUB_SECONDS = 10.0  # name look-ups have no timeout of their own
NOT_CAUSAL_SUFFIXES = (
    "ForMaskedLM",
    "ForQuestionAnswering",
    "ForSequenceClassification",
    "ForTokenClassification",
)

Device: TypeAlias = "torch.device | str | None"
Dtype: TypeAlias = "torch.dtype | str | None"


def load_editor(
    name: str | None = None,
    *,
    dtype: Dtype = None,
    device: Device = None,
    target: TargetConfig | None = None,
    console: Console | None = None,
) -> Editor:
    """An editor on the named model; arguments and errors as in `load_model`, and how the model is run.

    Raises:
        UnsupportedModel: the model is fine, but can't be verified exactly here.
    """
    model, tokenizer = load_model(name, dtype=dtype, device=device, console=console)
    return editor_of(model, tokenizer, DEFAULT_MODEL_NAME if is_default(name) else str(name), target)


def editor_of(
    model: PreTrainedModel, tokenizer: Any, model_name: str | None = None, target: TargetConfig | None = None
) -> Editor:
    """An editor on a loaded model; answers end at any end token of the tokenizer or the generation config."""
    from lookahead_edit.targets.making import make_target
    from lookahead_edit.tokenizer import HfTokenizer

    configured = getattr(model, "generation_config", None) and model.generation_config.eos_token_id
    end_token_ids = {configured} if isinstance(configured, int) else set(configured or ())
    if tokenizer.eos_token_id is not None:
        end_token_ids.add(tokenizer.eos_token_id)
    path = model.config.name_or_path or ""
    return Editor(
        make_target(model, target),
        HfTokenizer(tokenizer, frozenset(end_token_ids)),
        model_name=model_name or path or type(model).__name__,
        config=EditConfig(file_first=not is_converted_default(path)),
    )


def is_default(name: str | None) -> bool:
    """Whether `name` means the default model."""
    return name is None or name == DEFAULT_MODEL


def load_model(
    name: str | None = None, *, dtype: Dtype = None, device: Device = None, console: Console | None = None
) -> tuple[PreTrainedModel, Any]:
    """A causal model in eval mode, on its device, and its tokenizer.

    Args:
        name: None or ``"default"``, a directory, a ``.gguf`` file, or a hub id such as ``"owner/model"``. A hub id is
            looked for among the downloaded models first, then on the hub.
        dtype: ``"float32"``, ``"bfloat16"``, ``"float16"`` or a torch dtype. By default float32 on a CPU (bfloat16 is
            5 to 10 times slower on CPUs without instructions for it) and bfloat16 on a GPU that has it.
        device: by default the GPU, if there is one.
        console: where the default model's conversion is shown.

    Raises:
        ModelUnavailable: unknown name, no network, missing or broken files, not a causal language model.
        InvalidInput: an unknown dtype or device.
    """
    if is_default(name):
        directory = default_model_directory(console)
        try:
            return _load(str(directory), dtype, device)
        except ModelUnavailable as error:
            if "allocate memory" in str(error):  # nothing is wrong with the files
                raise
            raise ModelUnavailable(f"{error}; remove {directory} to have it converted again") from error
    require_model(name)
    path = named_path(str(name))
    if name and path.is_dir():
        return _load(str(path), dtype, device)
    if path.is_file():
        return _load(str(path.parent), dtype, device, label=str(name), gguf_file=path.name)
    return _load_from_hub(str(name), dtype, device)


def require_model(name: str | None) -> None:
    """Raises ModelUnavailable where no model of that name can be found. Loads nothing, but may ask the hub once."""
    if is_default(name):
        return
    path = named_path(str(name))
    if name and path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelUnavailable(f"can't load {name}: the directory has no config.json")
    elif path.is_file():
        require_gguf(path)
    elif _downloaded(str(name)) is None:
        _require_on_hub(str(name), f"model {name!r} not found: there is no such directory or GGUF file here")


def _load_from_hub(name: str, dtype: Dtype, device: Device) -> tuple[PreTrainedModel, Any]:
    """What was downloaded before is used without asking the hub, so it works offline and starts at once."""
    directory = _downloaded(name)
    if directory is not None:
        try:
            # The directory, not the id: with the id, transformers asks the hub in spite of local_files_only (28 s).
            return _load(str(directory), dtype, device, label=name)
        except ModelUnavailable as error:
            _require_on_hub(name, str(error))
    return _load(name, dtype, device, is_download=True)


def _downloaded(name: str) -> Path | None:
    """Where a hub id's files lie on this machine, if they do; raises ModelUnavailable where it is no hub id."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        cached = try_to_load_from_cache(name, "config.json")
    except HFValidationError as error:
        raise ModelUnavailable(f"no such model: {name!r} is no directory, GGUF file or hub id") from error
    return Path(cached).parent if isinstance(cached, str) else None


def _require_on_hub(name: str, reason: str) -> None:
    problem = hub_problem(name)
    if problem is not None:
        raise ModelUnavailable(f"{reason}, and {problem}")


def hub_problem(name: str) -> str | None:
    """Asks the hub once whether it has the model; what stands in the way, or None.

    transformers itself would try every file six times, 23 s until the first complaint.
    """
    from huggingface_hub import HfApi, errors

    def ask() -> str | None:
        try:
            HfApi().model_info(name, timeout=HUB_REQUEST_SECONDS)
        except errors.GatedRepoError:
            return "the hub only gives it to accounts that were granted access"
        except errors.RepositoryNotFoundError:
            return "the hub has none of that name"
        except errors.OfflineModeIsEnabled:
            return "the hub is switched off (HF_HUB_OFFLINE)"
        except Exception as error:
            return f"the hub can't be reached ({one_line(error)})"
        return None

    return _within(ask, HUB_SECONDS, "the hub can't be reached (no answer)")


def _within(ask: Callable[[], str | None], seconds: float, otherwise: str) -> str | None:
    """`ask()`, or `otherwise` where it takes longer. A thread, for a look-up of a host name can't be interrupted."""
    answers: list[str | None] = []
    thread = threading.Thread(target=lambda: answers.append(ask()), daemon=True)
    thread.start()
    thread.join(seconds)
    return answers[0] if answers else otherwise


def _load(
    name: str,
    dtype: Dtype,
    device: Device,
    *,
    label: str | None = None,
    gguf_file: str | None = None,
    is_download: bool = False,
) -> tuple[PreTrainedModel, Any]:
    """Config, tokenizer and weights through transformers; every failure in one line."""
    resolved_device = _resolve_device(device)
    resolved_dtype = _resolve_dtype(dtype, resolved_device)
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    label = label or name
    # Never code from a model's own repository; without False transformers would ask on the terminal.
    options: dict[str, Any] = {"trust_remote_code": False}
    model_options: dict[str, Any] = {}
    if gguf_file is not None:
        options["gguf_file"] = gguf_file
        model_options = dequantize_options()
    with quiet_transformers(is_download=is_download):
        try:
            config = AutoConfig.from_pretrained(name, **options)
            _require_causal(label, config)
            tokenizer = _load_tokenizer(label, lambda: AutoTokenizer.from_pretrained(name, **options))
            model, report = AutoModelForCausalLM.from_pretrained(
                name, dtype=resolved_dtype, output_loading_info=True, **options, **model_options
            )
        except ModelUnavailable:
            raise
        except Exception as error:  # damaged files fail in every way; the first line says which
            raise ModelUnavailable(f"can't load {label}: {one_line(error)}") from error
        missing = sorted(report["missing_keys"])
        if missing:
            raise ModelUnavailable(
                f"can't load {label}: not a whole causal language model, {len(missing)} weights are missing "
                f"({missing[0]})"
            )
        try:
            return model.to(resolved_device).eval(), tokenizer
        except Exception as error:  # out of memory, or a device that isn't there
            raise ModelUnavailable(f"can't move {label} to {resolved_device}: {one_line(error)}") from error


def _load_tokenizer(label: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except Exception as error:
        raise ModelUnavailable(f"can't load {label}: no usable tokenizer ({one_line(error)})") from error


def _require_causal(label: str, config: Any) -> None:
    architectures = getattr(config, "architectures", None) or []
    if getattr(config, "is_encoder_decoder", False) or any(
        architecture.endswith(NOT_CAUSAL_SUFFIXES) for architecture in architectures
    ):
        found = architectures[0] if architectures else type(config).__name__
        raise ModelUnavailable(f"can't load {label}: expected a causal language model, got {found}")


def _resolve_device(device: Device) -> torch.device:
    import torch

    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except RuntimeError as error:
        raise InvalidInput(f"expected device to be cpu, cuda or cuda:N, got {str(device)!r}", param="device") from error
    num_gpus = torch.cuda.device_count()
    is_there = (resolved.index or 0) < num_gpus if resolved.type == "cuda" else resolved.type != "meta"
    if not is_there:
        others = f", cuda:0 to cuda:{num_gpus - 1}" if num_gpus > 1 else ", cuda" if num_gpus else ""
        reason = (
            "" if num_gpus or resolved.type == "meta" else f": torch {torch.__version__} finds no GPU on this machine"
        )
        raise InvalidInput(
            f"expected device to be cpu{others}, or left out, got {str(device)!r}{reason}", param="device"
        )
    return resolved


def _resolve_dtype(dtype: Dtype, device: torch.device) -> torch.dtype:
    import torch

    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype is None:
        is_fast = device.type == "cuda" and torch.cuda.is_bf16_supported()
        return torch.bfloat16 if is_fast else torch.float32
    if dtype not in DTYPES:
        raise InvalidInput(f"expected dtype to be one of {', '.join(DTYPES)}, got {dtype!r}", param="dtype")
    resolved: torch.dtype = getattr(torch, dtype)
    return resolved
