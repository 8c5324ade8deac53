"""The least that a forward pass can cost on a machine: what it has to read and to compute, at measured speeds.

A pass reads all weights once, and the keys and values of the context; it multiplies every weight once for each token
of the block. Whichever takes longer bounds it from below (Williams et al. 2009, "Roofline").
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from lookahead_edit.targets.reading import CACHE_KEYWORDS, takes

NUM_REPEATS = 5
CPU_BYTES = 256 * 1024 * 1024  # well beyond any cache
GPU_BYTES = 4 * 1024 * 1024 * 1024
CPU_SIDE, GPU_SIDE = 1024, 8192  # of the matrices that are multiplied


@dataclass(frozen=True)
class Roofline:
    """What a pass reads and computes, and how fast the machine does either."""

    weight_bytes: int
    cache_bytes: int  # of the context
    bytes_per_second: float
    operations_per_token: float  # floating-point ones: two for each weight
    operations_per_second: float

    def seconds(self, width: int) -> float:
        """The least a pass over so many tokens can take."""
        return max(self.memory_seconds, width * self.operations_per_token / self.operations_per_second)

    @property
    def memory_seconds(self) -> float:
        """What reading takes."""
        return (self.weight_bytes + self.cache_bytes) / self.bytes_per_second

    @property
    def balanced_width(self) -> float:
        """From so many tokens on, computing takes longer than reading."""
        return self.memory_seconds * self.operations_per_second / self.operations_per_token

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self) | {"memory_seconds": self.memory_seconds, "balanced_width": self.balanced_width}


def measure_roofline(model: PreTrainedModel, num_context_tokens: int) -> Roofline:
    """Reads a large buffer and multiplies large matrices where the model is, in its dtype; takes a second or two."""
    weight_bytes, num_weights = read_weights(model)
    return Roofline(
        weight_bytes=weight_bytes,
        cache_bytes=num_context_tokens * cache_bytes_per_token(model),
        bytes_per_second=measure_bytes_per_second(model.device),
        operations_per_token=2.0 * num_weights,
        operations_per_second=measure_operations_per_second(model.device, model.dtype),
    )


@torch.no_grad()
def cache_bytes_per_token(model: PreTrainedModel) -> int:
    """Of keys and values in all layers; 0 for layers that keep none."""
    cache = DynamicCache(config=model.config)
    keyword = next((name for name in CACHE_KEYWORDS if takes(model, name)), None)
    if keyword is None:
        return 0
    model(input_ids=torch.ones(1, 1, dtype=torch.int64, device=model.device), use_cache=True, **{keyword: cache})
    kept = [getattr(layer, name, None) for layer in cache.layers for name in ("keys", "values")]
    return sum(states.nbytes for states in kept if isinstance(states, Tensor))


def measure_bytes_per_second(device: torch.device) -> float:
    """The best of five: a CPU sums a buffer up, a GPU copies one, which reads and writes it."""
    is_cpu = device.type == "cpu"
    num_bytes = CPU_BYTES if is_cpu else min(GPU_BYTES, _free_bytes(device) // 4)
    buffer = torch.ones(num_bytes // 4, dtype=torch.float32, device=device)
    other = buffer if is_cpu else torch.empty_like(buffer)
    seconds = min(_timed(device, (lambda: buffer.sum()) if is_cpu else (lambda: other.copy_(buffer))))
    return num_bytes * (1 if is_cpu else 2) / seconds


def measure_operations_per_second(device: torch.device, dtype: torch.dtype) -> float:
    """The best of five: square matrices multiplied."""
    side = CPU_SIDE if device.type == "cpu" else GPU_SIDE
    first, second = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    return 2.0 * side**3 / min(_timed(device, lambda: first @ second))


def _timed(device: torch.device, run: Any) -> list[float]:
    seconds = []
    for _ in range(NUM_REPEATS + 1):
        _synchronize(device)
        started = time.perf_counter()
        run()
        _synchronize(device)
        seconds.append(time.perf_counter() - started)
    return seconds[1:]  # the first warms up


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _free_bytes(device: torch.device) -> int:
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else GPU_BYTES


def read_weights(model: PreTrainedModel) -> tuple[int, int]:
    """Bytes and number of the weights that every token is multiplied with.

    A table of embeddings of which one row a token is looked up doesn't count, unless it is the output layer as well.
    """
    parameters = {parameter.data_ptr(): parameter for parameter in model.parameters()}
    table, output = model.get_input_embeddings().weight, model.get_output_embeddings()
    if output is None or output.weight.data_ptr() != table.data_ptr():
        parameters.pop(table.data_ptr(), None)
    read = parameters.values()
    return sum(parameter.nbytes for parameter in read), sum(parameter.numel() for parameter in read)


def num_parameters(model: PreTrainedModel) -> int:
    """Of all weights, shared ones once."""
    return sum(parameter.numel() for parameter in model.parameters())
