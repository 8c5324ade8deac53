"""Finds and loads a tokenizer alone, by name: no model, no weights. For what only counts and replays tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from lookahead_edit.targets.default_model import DIRECTORY_PREFIX, find_gguf, one_line, require_gguf
from lookahead_edit.targets.loading import hub_problem, is_default
from lookahead_edit.targets.quiet import quiet_transformers
from lookahead_edit.targets.user_paths import cache_directory, named_path
from lookahead_edit.tokenizer import HfTokenizer
from lookahead_edit.types import ModelUnavailable

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")
# A tokenizer.json alone doesn't say which token ends an answer: the first of these that it has.
END_TOKENS = ("<|im_end|>", "<|eot_id|>", "<|end|>", "<|eot|>", "<end_of_turn>", "</s>", "<|endoftext|>")


def load_tokenizer(name: str | None = None) -> HfTokenizer:
    """A tokenizer of transformers, ready to use.

    Args:
        name: None or ``"default"`` for the default model's, a directory, a ``tokenizer.json``, a ``.gguf`` file, or a
            hub id such as ``"owner/model"``, looked for among the downloaded ones first, then on the hub.

    Raises:
        ModelUnavailable: unknown name, no network, missing or broken files; one line says what.
    """
    if is_default(name):
        return _load_default()
    name = str(name)
    path = named_path(name)
    if path.is_dir():
        if not any((path / file).is_file() for file in TOKENIZER_FILES):
            raise ModelUnavailable(f"can't load {name}: the directory has no tokenizer.json")
        return _load(name, partial(_from_pretrained, str(path)))
    if path.is_file():
        if path.suffix == ".gguf":
            return _load_gguf(name, path)
        return _load(name, partial(_from_file, path))
    return _load_from_hub(name)


def _load_default() -> HfTokenizer:
    """Out of the converted model where there is one; converting 540 MB for a tokenizer would be too much."""
    for directory in sorted(cache_directory().glob(f"{DIRECTORY_PREFIX}*/")):
        if (directory / "tokenizer.json").is_file():
            return _load(str(directory), partial(_from_pretrained, str(directory)))
    gguf = find_gguf()
    return _load_gguf(str(gguf), gguf)


def _load_gguf(name: str, path: Path) -> HfTokenizer:
    require_gguf(path)
    return _load(name, partial(_from_pretrained, str(path.parent), gguf_file=path.name))


def _load_from_hub(name: str) -> HfTokenizer:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    for file in TOKENIZER_FILES:
        try:
            cached = try_to_load_from_cache(name, file)
        except HFValidationError as error:
            raise ModelUnavailable(f"no such tokenizer: {name!r} is no directory, file or hub id") from error
        if isinstance(cached, str):
            return _load(name, partial(_from_pretrained, str(Path(cached).parent)))
    problem = hub_problem(name)
    if problem is not None:
        raise ModelUnavailable(f"tokenizer {name!r} not found: there is no such directory or file here, and {problem}")
    return _load(name, partial(_from_pretrained, name))


def _from_pretrained(name: str, **options: Any) -> Any:
    from transformers import AutoTokenizer

    # Never code from a tokenizer's own repository; without False transformers would ask on the terminal.
    return AutoTokenizer.from_pretrained(name, trust_remote_code=False, **options)


def _from_file(path: Path) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_file=str(path))


def _find_end_token(tokenizer: Any) -> None:
    special = {added.content for added in tokenizer.added_tokens_decoder.values() if added.special}
    known = [token for token in END_TOKENS if token in special]
    if tokenizer.eos_token_id is None and known:
        tokenizer.eos_token = known[0]


def _load(name: str, load: Callable[[], Any]) -> HfTokenizer:
    with quiet_transformers():
        try:
            tokenizer = load()
            _find_end_token(tokenizer)
            return HfTokenizer(tokenizer)
        except Exception as error:  # damaged files fail in every way; the first line says which
            raise ModelUnavailable(f"can't load {name}: no usable tokenizer ({one_line(error)})") from error
