"""Counts and times a model's forward passes, for every method alike: by torch's hooks, not by what a method claims."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch

from lookahead_edit.targets.hf import CACHE_KEYWORDS


@dataclass(frozen=True)
class Forward:
    """One forward pass; seconds on the clock of `time.perf_counter`."""

    num_tokens: int
    started: float
    finished: float
    num_context_tokens: int = 0  # that the cache held before
    num_layers: int = 0  # that the model's configuration told it to run; 0 where it tells none

    @property
    def seconds(self) -> float:
        return self.finished - self.started


class ForwardLog:
    """Notes the forward passes of `model` inside a ``with`` block.

    A pass may read the prompt, or a part of it, or a block of drafted tokens; `rounds` are those that emit tokens:
    the one that reads the prompt's end and all that follow.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._started = 0.0
        self._num_context_tokens = 0
        self.forwards: list[Forward] = []

    def __enter__(self) -> ForwardLog:
        self._handles = [
            self._model.register_forward_pre_hook(self._before, with_kwargs=True),
            self._model.register_forward_hook(self._after, with_kwargs=True),
        ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()

    def rounds(self, num_prompt_tokens: int) -> list[Forward]:
        """The passes that emit tokens; the first of them reads the end of the prompt."""
        return rounds_of(self.forwards, num_prompt_tokens)

    def _before(self, model: Any, arguments: Any, keywords: dict[str, Any]) -> None:
        cache = next((keywords[name] for name in CACHE_KEYWORDS if keywords.get(name) is not None), None)
        self._num_context_tokens = 0 if cache is None or all(cache.is_linear) else int(cache.get_seq_length())
        synchronize()
        self._started = time.perf_counter()

    def _after(self, model: Any, arguments: Any, keywords: dict[str, Any], output: Any) -> None:
        synchronize()
        ids = keywords["input_ids"] if "input_ids" in keywords else arguments[0]
        finished = time.perf_counter()
        num_layers = int(getattr(getattr(model, "config", None), "num_hidden_layers", None) or 0)
        num_tokens = int(ids.shape[1])
        self.forwards.append(Forward(num_tokens, self._started, finished, self._num_context_tokens, num_layers))


def rounds_of(forwards: Sequence[Forward], num_prompt_tokens: int) -> list[Forward]:
    """Of passes in their order, those that emit tokens; the first of them reads the end of the prompt."""
    num_read = 0
    for index, forward in enumerate(forwards):
        num_read += forward.num_tokens
        if num_read >= num_prompt_tokens:
            return list(forwards[index:])
    return []


def synchronize() -> None:
    """Waits for the GPU, where one is used: its work is only queued when a call returns."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
