"""Models with random weights: what a pass costs depends on their shape, and on no weight."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Shape:
    """Of a Llama-like model with grouped heads."""

    name: str
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int
    max_position_embeddings: int


# Qwen2.5-7B's.
SEVEN_B = Shape("7B", 3584, 18944, 28, 28, 4, 152_064, 32_768)
# Large enough for kernels that a GPU chooses for real models, small enough to be compiled in seconds.
SMALL = Shape("small", 1024, 2816, 4, 16, 4, 32_768, 4096)
TINY = Shape("tiny", 64, 128, 2, 4, 2, 512, 2048)


def random_model(shape: Shape, *, device: str, dtype: torch.dtype, seed: int = 0) -> Any:
    """A causal model in eval mode whose greedy text wanders rather than repeating one token; made on the device."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    options = asdict(shape)
    options.pop("name")
    config = LlamaConfig(**options, bos_token_id=1, eos_token_id=None, pad_token_id=0, tie_word_embeddings=False)
    torch.manual_seed(seed)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
        torch.nn.init.normal_(model.get_output_embeddings().weight, std=shape.hidden_size**-0.5 * 4.0)
    return model.to(device).eval().requires_grad_(False)
