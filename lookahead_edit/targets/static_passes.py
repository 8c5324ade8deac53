"""Runs one pass over a `StaticRowCache`: eagerly, compiled, or compiled and recorded as a CUDA graph.

A recording reads its tokens from buffers and writes its logits to others, so that replaying it is one launch for the
whole pass. It belongs to a cache, whose buffers it was recorded over. What can't be compiled or recorded runs without,
and one warning says so.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from lookahead_edit.failures import is_out_of_memory
from lookahead_edit.targets.default_model import one_line
from lookahead_edit.targets.packing import attending_by
from lookahead_edit.targets.static_attention import ATTENTION, causal_mask
from lookahead_edit.targets.static_cache import StaticRowCache
from lookahead_edit.types import IntArray

logger = logging.getLogger(__name__)

MAX_COMPILATIONS = 64  # of all models in the process; torch's own limit is 8
NUM_WARM_UPS = 2  # before a recording: kernels are compiled, tuned and loaded, which a recording must not see


class Recorder(Protocol):
    """Turns work on the device into something that can be replayed."""

    def record(self, run: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        """A replay of `run`, and the tensor that holds its result after each; the next replay overwrites it."""


class CudaGraphRecorder:
    """Records CUDA graphs; all of them share their memory, for they are replayed one after the other.

    Args:
        device: what is recorded runs there.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: Any = None  # one for all: memory that a recording frees goes to later ones of its stream alone
        self._keeper: Any = None

    def record(self, run: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        """As `Recorder` says."""
        with torch.cuda.device(self._device):
            if self._keeper is None:
                self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
                # Memory whose last graph is gone, as after a cache has grown, can't be recorded into again.
                self._keeper = self._captured(lambda: torch.zeros(1, device=self._device), None)[0]
            graph, output = self._captured(run, self._keeper.pool())
        return graph.replay, output

    def _captured(self, run: Callable[[], Tensor], pool: Any) -> tuple[Any, Tensor]:
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for _ in range(NUM_WARM_UPS):
                run()
        torch.cuda.current_stream().wait_stream(self._stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, stream=self._stream):
            output = run()
        return graph, output


@dataclass(slots=True)
class _Recording:
    block: Tensor  # int64[width + 1] on the device: tokens, and the slot of the first
    replay: Callable[[], None]
    logits: Tensor  # float[width, vocab_size]


@dataclass(frozen=True, slots=True)
class PassShape:
    """How a model is called and what its attention looks like."""

    cache_keyword: str
    num_groups: int  # query heads that share keys and values
    max_positions: int  # positions are below this
    takes_logits_to_keep: bool


class PassRunner:
    """Runs passes of one model.

    Args:
        model: a causal language model, in eval mode.
        shape: of its passes.
        compiles: whether passes of `run` go through torch.compile.
        recorder: records them, where given.
        backend: of torch.compile.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        shape: PassShape,
        *,
        compiles: bool = False,
        recorder: Recorder | None = None,
        backend: str = "inductor",
    ) -> None:
        self._model = model
        self._shape = shape
        self._recorder = recorder
        self._device = model.device
        self._compiled = _compiled_forward(backend) if compiles else None

    @property
    def is_compiled(self) -> bool:
        """Whether passes are compiled; no longer where that has failed."""
        return self._compiled is not None

    @property
    def is_recorded(self) -> bool:
        """Whether passes are recorded; no longer where that has failed."""
        return self._recorder is not None

    def read(
        self,
        cache: StaticRowCache,
        tokens: IntArray,
        start: int,
        num_attended: int,
        num_logits: int,
        *,
        has_mask: bool = True,
    ) -> Tensor:
        """An eager pass of any width, float[num_logits, vocab_size] of its last tokens; the cache then holds them.

        A text read from its first token on needs no mask, and half of its scores are then never computed.
        """
        assert has_mask or (start == 0 and num_attended == len(tokens))
        block = torch.from_numpy(np.append(tokens, start).astype(np.int64)).to(self._device)
        attended = torch.arange(num_attended, device=self._device)
        with attending_by(self._model, ATTENTION):
            logits = _forward(self._model, self._shape, block, attended, cache, max(1, num_logits), has_mask)
        return logits[logits.shape[0] - num_logits :]

    def run(self, cache: StaticRowCache, tokens: IntArray, start: int, num_attended: int) -> Tensor:
        """float[width, vocab_size], of every token; valid until the next pass.

        Args:
            cache: has room for the tokens, and more slots than are attended.
            tokens: int32[width].
            start: slot of the first token.
            num_attended: how many slots are read; a query sees none beyond its own in any case.
        """
        values = np.append(tokens, start).astype(np.int64)
        if self._recorder is None:
            return self._run(torch.from_numpy(values).to(self._device), self._attended(num_attended), cache)
        key = (len(tokens), num_attended)
        recording: _Recording | None = cache.recordings.get(key) or self._record(cache, values, num_attended)
        if recording is None:
            return self.run(cache, tokens, start, num_attended)
        cache.recordings[key] = recording
        # From ordinary memory, which may change as soon as the call returns; the device isn't waited for. Nothing here
        # looks at the model: switching its attention to and fro takes longer than the launch.
        recording.block.copy_(torch.from_numpy(values), non_blocking=True)
        recording.replay()
        return recording.logits

    def _attended(self, num_attended: int) -> Tensor:
        return torch.arange(num_attended, device=self._device)

    def _record(self, cache: StaticRowCache, values: NDArray[np.int64], num_attended: int) -> _Recording | None:
        """None, and no recorder from then on, where it fails."""
        assert self._recorder is not None
        block, attended = torch.from_numpy(values).to(self._device, copy=True), self._attended(num_attended)
        try:
            replay, logits = self._recorder.record(lambda: self._run(block, attended, cache))
        except Exception as error:
            if is_out_of_memory(error):
                raise
            logger.warning("passes are not recorded, each is launched kernel by kernel: %s", one_line(error))
            self._recorder = None
            return None
        return _Recording(block, replay, logits)

    def _run(self, block: Tensor, attended: Tensor, cache: StaticRowCache) -> Tensor:
        with attending_by(self._model, ATTENTION):
            if self._compiled is not None:
                _mark_dynamic(block, attended, cache)
                try:
                    with torch._dynamo.config.patch(recompile_limit=MAX_COMPILATIONS):
                        compiled: Tensor = self._compiled(self._model, self._shape, block, attended, cache)
                    return compiled
                except Exception as error:
                    if is_out_of_memory(error):
                        raise
                    name = type(self._model).__name__
                    cause = getattr(error, "inner_exception", error)  # what a backend raised is wrapped
                    logger.warning("%s is not compiled, its passes run eagerly: %s", name, one_line(cause))
                    self._compiled = None
            return _forward(self._model, self._shape, block, attended, cache)


def _mark_dynamic(block: Tensor, attended: Tensor, cache: StaticRowCache) -> None:
    """One compilation for all widths above 1, all lengths and all capacities."""
    if block.shape[0] > 2:
        torch._dynamo.mark_dynamic(block, 0)
    torch._dynamo.mark_dynamic(attended, 0)
    for buffer in cache.keys:
        torch._dynamo.mark_dynamic(buffer, 2)
    for buffer in cache.values:
        torch._dynamo.mark_dynamic(buffer, 0 if cache.has_splits else 2)


def _forward(
    model: PreTrainedModel,
    shape: PassShape,
    block: Tensor,
    attended: Tensor,
    cache: StaticRowCache,
    logits_to_keep: int = 0,
    has_mask: bool = True,
) -> Tensor:
    """float[num_logits, vocab_size]; of every token where `logits_to_keep` is 0.

    Not a method, so that what was compiled for a model serves every target of it.
    """
    slots = block[-1] + torch.arange(block.shape[0] - 1, device=block.device)
    positions = slots.clamp(max=shape.max_positions - 1)  # of padding: a model may have no further ones
    cache.begin(slots, attended)
    inputs: dict[str, Any] = {
        shape.cache_keyword: cache,
        "input_ids": block[None, :-1],
        "position_ids": positions[None],
        "attention_mask": causal_mask(slots, attended, shape.num_groups, model.dtype) if has_mask else None,
        "use_cache": True,
    }
    if logits_to_keep and shape.takes_logits_to_keep:
        inputs["logits_to_keep"] = logits_to_keep
    logits: Tensor = model(**inputs).logits[0]
    return logits


@functools.cache
def _compiled_forward(backend: str) -> Callable[..., Tensor]:
    compiled: Callable[..., Tensor] = torch.compile(_forward, fullgraph=True, backend=backend)
    return compiled
