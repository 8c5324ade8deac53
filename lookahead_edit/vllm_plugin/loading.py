"""From names and options to an editor on vLLM, in this process or behind an address."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lookahead_edit.config import EditConfig
from lookahead_edit.targets.default_model import is_converted_default
from lookahead_edit.targets.loading import DEFAULT_MODEL_NAME, is_default
from lookahead_edit.targets.tokenizer_loading import load_tokenizer
from lookahead_edit.targets.user_paths import named_path
from lookahead_edit.tokenizer import HfTokenizer
from lookahead_edit.types import InvalidInput, ModelUnavailable, Row
from lookahead_edit.vllm_plugin.engine_target import VllmTarget
from lookahead_edit.vllm_plugin.front import EngineEditor
from lookahead_edit.vllm_plugin.options import SECTION, ProposerOptions, check_lengths, check_version, is_count
from lookahead_edit.vllm_plugin.proposer import SCANNED_MODULE, engine_version
from lookahead_edit.vllm_plugin.remote_target import RemoteVllmTarget, served_model, speculates

if TYPE_CHECKING:
    from rich.console import Console

logger = logging.getLogger(__name__)

PROPOSER = "lookahead_edit.vllm_plugin.EditProposer"
WORKER_EXTENSION = "lookahead_edit.vllm_plugin.proposer.WorkerExtension"
MAX_MESSAGE_CHARACTERS = 400
DEFAULT_DRAFT_TOKENS = 64  # num_speculative_tokens, where nobody says


def parse_options(pairs: Sequence[str]) -> dict[str, Any]:
    """``NAME=VALUE`` for each of vLLM's engine arguments; values are JSON where they can be, else strings.

    Example:
        >>> parse_options(["max_model_len=2048", "enforce_eager=true", "quantization=fp8"])
        {'max_model_len': 2048, 'enforce_eager': True, 'quantization': 'fp8'}
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.replace("-", "_").isidentifier():
            raise InvalidInput(
                f"expected an engine option like max_model_len=4096, got {pair!r}", param="engine-option"
            )
        try:
            options[name.replace("-", "_")] = json.loads(value)
        except ValueError:
            options[name.replace("-", "_")] = value
    return options


def check_engine_options(options: Mapping[str, Any]) -> None:
    """Raises InvalidInput for what the proposer would refuse later, in another process and among many lines."""
    check_version(engine_version())
    ProposerOptions.of(options.get("additional_config"))
    max_model_len = options.get("max_model_len")
    speculative = options.get("speculative_config") or {}
    if not isinstance(speculative, Mapping):
        got = type(speculative).__name__
        raise InvalidInput(f"expected speculative_config to be an object, got {got}", param="engine-option")
    num_draft_tokens = speculative.get("num_speculative_tokens", DEFAULT_DRAFT_TOKENS)
    if not is_count(num_draft_tokens):
        raise InvalidInput(
            f"expected num_speculative_tokens to be a whole number, got {num_draft_tokens!r}", param="engine-option"
        )
    check_lengths(num_draft_tokens, max_model_len if isinstance(max_model_len, int) else num_draft_tokens + 2)


def load_engine_editor(
    name: str | None,
    options: Mapping[str, Any],
    *,
    dtype: str | None = None,
    console: Console | None = None,
) -> EngineEditor:
    """An editor on vLLM in this process, with our proposer switched on.

    Args:
        name: the model: None for the default one, a directory, or a hub id.
        options: vLLM's engine arguments.
        dtype: by default float32 on a CPU, else what the model says.
        console: where the default model's conversion is shown.

    Raises:
        InvalidInput: options that the proposer or vLLM refuses.
        ModelUnavailable: the model can't be loaded, or has no tokenizer.
    """
    check_engine_options(options)
    # The worker in this process: no second copy of every prompt, and one process to stop.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    from vllm.engine.arg_utils import EngineArgs
    from vllm.platforms import current_platform
    from vllm.v1.engine.llm_engine import LLMEngine

    model = _model_path(name, console)
    arguments: dict[str, Any] = {
        "model": model,
        "dtype": dtype or ("float32" if current_platform.is_cpu() else "auto"),
        "worker_extension_cls": WORKER_EXTENSION,
        "disable_log_stats": False,
        **options,
    }
    arguments["speculative_config"] = {
        "method": "custom_class",
        "model": PROPOSER,
        "num_speculative_tokens": DEFAULT_DRAFT_TOKENS,
        **(options.get("speculative_config") or {}),
    }
    additional = dict(options.get("additional_config") or {})
    arguments["additional_config"] = {**additional, SECTION: dict(additional.get(SECTION, {}))}
    try:
        with hidden_from_scans():
            engine = LLMEngine.from_engine_args(EngineArgs(**arguments))
    except TypeError as error:  # an argument that EngineArgs doesn't have
        raise InvalidInput(f"vLLM refuses its options: {_in_one_line(error)}", param="engine-option") from error
    except Exception as error:  # anything, from a missing file to too little memory
        raise ModelUnavailable(f"vLLM can't load {model}: {_in_one_line(error)}") from error
    model_config = engine.vllm_config.model_config
    tokenizer = _tokenizer_of(model_config)
    target = VllmTarget(
        engine,
        make_sampling_params,
        max_context_tokens=int(model_config.max_model_len),
        vocab_size=int(model_config.get_vocab_size()),
    )
    model_name = DEFAULT_MODEL_NAME if is_default(name) else str(name)
    return EngineEditor(target, tokenizer, model_name=model_name, config=_edit_config(str(model)))


def connect_engine_editor(url: str, name: str | None = None, *, api_key: str | None = None) -> EngineEditor:
    """An editor on a server of vLLM that runs already.

    Args:
        url: its address, with or without ``/v1``.
        name: where the model's tokenizer is: a directory or hub id; by default where the server has its model from.
        api_key: the server's.

    Raises:
        EngineUnavailable: nothing there answers as vLLM does.
        ModelUnavailable: no tokenizer by that name.
    """
    address = url.rstrip("/").removesuffix("/v1")
    if not address.startswith(("http://", "https://")):
        raise InvalidInput(f"expected an address like http://127.0.0.1:8000, got {url!r}", param="engine-url")
    model = served_model(address, api_key)
    try:
        tokenizer = load_tokenizer(name or model.root)
    except ModelUnavailable as error:
        raise ModelUnavailable(f"{error}; name it with --model") from error
    if not speculates(address, api_key):
        logger.warning(
            "the engine at %s says nothing of speculative decoding in its /metrics: without --speculative-config it "
            "decodes plainly",
            address,
        )
    target = RemoteVllmTarget(address, model, api_key=api_key)
    return EngineEditor(target, tokenizer, model_name=model.name, config=_edit_config(model.root))


def _edit_config(path: str) -> EditConfig:
    return EditConfig(file_first=not is_converted_default(path))


def make_sampling_params(row: Row, extra_args: Mapping[str, Any], max_tokens: int) -> Any:
    """vLLM's `SamplingParams`: tokens only, as they come, and no end of its own but `max_tokens`."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    sampling = row.sampling
    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        repetition_penalty=sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        seed=None if sampling.is_greedy else sampling.seed % 2**63,
        max_tokens=max_tokens,
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
        extra_args=dict(extra_args),
    )


@contextmanager
def hidden_from_scans() -> Iterator[None]:
    """Keeps `SCANNED_MODULE` out of `sys.modules` for a while."""
    module = sys.modules.pop(SCANNED_MODULE, None)
    try:
        yield
    finally:
        if module is not None:
            sys.modules[SCANNED_MODULE] = module


def _model_path(name: str | None, console: Console | None) -> str:
    if not is_default(name):
        path = named_path(str(name))
        if path.is_absolute() and not path.exists():
            raise ModelUnavailable(f"can't load {name}: there is no such directory")
        return str(name)
    from lookahead_edit.targets.default_model import default_model_directory

    try:
        return str(default_model_directory(console))
    except ModelUnavailable as error:  # what makes it wants other packages than vLLM has
        raise ModelUnavailable(
            "the default model isn't converted yet, which takes an environment without vLLM (docs/vllm.md); --model "
            "names another"
        ) from error


def _tokenizer_of(model_config: Any) -> HfTokenizer:
    from vllm.tokenizers import cached_tokenizer_from_config

    tokenizer = cached_tokenizer_from_config(model_config)
    if tokenizer is None:
        raise ModelUnavailable("expected a model with a tokenizer, got skip_tokenizer_init")
    generation = model_config.try_get_generation_config()
    configured = generation.get("eos_token_id")
    end_token_ids = {configured} if isinstance(configured, int) else set(configured or ())
    if tokenizer.eos_token_id is not None:
        end_token_ids.add(int(tokenizer.eos_token_id))
    return HfTokenizer(tokenizer, frozenset(end_token_ids))


def _in_one_line(error: BaseException) -> str:
    """Its cause's message, of which the first line alone often doesn't say what is wrong."""
    while isinstance(error.__cause__, BaseException) and not isinstance(error, InvalidInput):
        error = error.__cause__
    return " ".join(str(error).split())[:MAX_MESSAGE_CHARACTERS] or type(error).__name__
