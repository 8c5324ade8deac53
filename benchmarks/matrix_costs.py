"""What a way of decoding costs beside time: operations, weights, keys and values. Measures nothing.

Floating-point operations are counted by ``2 N + 4 L d n`` for each token in a forward pass, N weights, L layers, d =
heads times their size, n tokens of context (Chowdhery et al. 2022, "PaLM", appendix B, whose 6 N + 12 L d n are for
forward and backward pass together). Every verified token counts, rejected ones too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from torch import nn

from benchmarks.forwards import Forward
from lookahead_edit.targets.roofline import read_weights


def pass_flops(model: Any, forwards: Sequence[Forward]) -> float:
    """Of forward passes with their contexts; those that left the model early had fewer layers."""
    num_layers = layers_of(model)
    _, num_weights = read_weights(model)
    num_layer_weights = _layer_weights(model) / num_layers
    config = model.config.get_text_config()
    head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    total = 0.0
    for one in forwards:
        num_skipped_layers = num_layers - (one.num_layers or num_layers)
        attended = one.num_tokens * one.num_context_tokens + one.num_tokens * (one.num_tokens + 1) / 2
        total += 2.0 * (num_weights - num_skipped_layers * num_layer_weights) * one.num_tokens
        total += 4.0 * (num_layers - num_skipped_layers) * config.num_attention_heads * head_size * attended
    return total


def prompt_flops(model: Any, num_prompt_tokens: int) -> float:
    """Of reading a prompt, in however many passes."""
    return pass_flops(model, [Forward(num_prompt_tokens, 0.0, 0.0)])


def layers_of(model: Any) -> int:
    """How many layers the model has when nobody leaves it early."""
    return int(model.config.get_text_config().num_hidden_layers)


def layer_modules(model: Any) -> nn.ModuleList | None:
    """The model's layers; None where they are not one list."""
    lists = (module for module in model.modules() if isinstance(module, nn.ModuleList))
    return next((found for found in lists if len(found) == layers_of(model)), None)


def _layer_weights(model: Any) -> int:
    layers = layer_modules(model)
    return 0 if layers is None else sum(parameter.numel() for parameter in layers.parameters())


def weight_bytes(model: Any) -> int:
    """Of all parameters; shared ones once."""
    return sum(parameter.nbytes for parameter in model.parameters())


def weights_fingerprint(model: Any) -> str:
    """The same for the same weights, whatever the model is called."""
    sums = [
        f"{name} {tuple(weights.shape)} {float(weights.detach().double().sum())}"
        for name, weights in model.named_parameters()
    ]
    return hashlib.sha256("\n".join(sums).encode()).hexdigest()[:16]
