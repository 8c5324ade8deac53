"""A draft model cut out of its target: some of its layers, its embeddings, its last norm and head.

Layers write into one residual stream, so a few of them go on understanding each other with the others gone. Which ones
do is found by trying: there are few, and a trial takes less than a second.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from benchmarks.distill_texts import Text
from lookahead_edit.types import InvalidInput, UnsupportedModel

BEAM_WIDTH = 2
MAX_TEXT_TOKENS, MAX_SCORED_TOKENS = 192, 24  # of a text on which layers are tried


def require_layers(target: Any) -> None:
    """Raises UnsupportedModel unless the target is built as most are: `model.layers`, `model.norm`, one `lm_head`."""
    decoder = getattr(target, "model", None)
    if not all(hasattr(decoder, name) for name in ("layers", "norm", "embed_tokens")) or not hasattr(target, "lm_head"):
        name = type(target).__name__
        raise UnsupportedModel(f"expected a model with model.layers, model.norm and lm_head, got {name}")


def make_student(target: Any, layers: Sequence[int], *, is_trial: bool = False) -> Any:
    """A model of the target's class with copies of these of its layers, in their order; the rest it shares.

    With `is_trial` it shares the layers too, and can only be run without a cache.

    Example: ``make_student(target, (0, 14, 29))`` has three layers, and the same embedding tensor as the target.

    Raises:
        InvalidInput: layers that the target doesn't have, or not in rising order.
        UnsupportedModel: as `require_layers`.
    """
    require_layers(target)
    num_layers = len(target.model.layers)
    if not layers or list(layers) != sorted(set(layers)) or layers[0] < 0 or layers[-1] >= num_layers:
        raise InvalidInput(f"expected rising layers between 0 and {num_layers - 1}, got {list(layers)}", param="layers")
    config = copy.deepcopy(target.config)
    config.num_hidden_layers = len(layers)
    if getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[layer] for layer in layers]
    with torch.device("meta"):
        student = type(target)(config)
    chosen = [target.model.layers[layer] for layer in layers]
    student.model.layers = torch.nn.ModuleList(chosen if is_trial else [copy.deepcopy(layer) for layer in chosen])
    if not is_trial:
        for index, layer in enumerate(student.model.layers):
            layer.self_attn.layer_idx = index  # its place in the cache
    student.model.norm = target.model.norm if is_trial else copy.deepcopy(target.model.norm)
    student.model.embed_tokens = target.model.embed_tokens
    student.model.rotary_emb = target.model.rotary_emb
    student.lm_head = target.lm_head
    student.generation_config = copy.deepcopy(target.generation_config)
    return student.eval()


def trained_parameters(student: Any) -> list[Tensor]:
    """The student's own: its layers and the last norm. Nothing of what it shares with the target is ever changed."""
    return [*student.model.layers.parameters(), *student.model.norm.parameters()]


def mean_divergence(wanted: Tensor, other: Tensor) -> Tensor:
    """Mean KL(wanted || other) in nats; log probabilities, float[num_places, vocab_size]."""
    return (wanted.exp() * (wanted - other)).sum(-1).mean()


@torch.no_grad()
def divergence(target: Any, students: Iterable[Any], texts: Sequence[Text]) -> list[float]:
    """Mean KL(target || student) of the next token, in nats, over the texts' last scored tokens; one a student."""
    ids = [torch.tensor([text.tokens[:MAX_TEXT_TOKENS]]) for text in texts]
    scored = slice(-1 - MAX_SCORED_TOKENS, -1)
    wanted = [target.lm_head(target.model(each, use_cache=False).last_hidden_state[0, scored]) for each in ids]
    wanted = [each.log_softmax(-1) for each in wanted]
    found = []
    for student in students:
        hidden = [student.model(each, use_cache=False).last_hidden_state[0, scored] for each in ids]
        logits = student.lm_head(torch.cat(hidden))
        found.append(float(mean_divergence(torch.cat(wanted), logits.log_softmax(-1))))
    return found


def choose_layers(
    target: Any, texts: Sequence[Text], num_layers: int, tell: Callable[[str], None] = lambda message: None
) -> tuple[int, ...]:
    """The layers of the least diverging student, untrained: the first one, and then one after the other.

    Of each size, the `BEAM_WIDTH` best are tried with every further layer.

    Raises:
        InvalidInput: more layers than the target has, or none.
    """
    num_all = len(target.model.layers)
    if not 1 <= num_layers <= num_all:
        raise InvalidInput(f"expected between 1 and {num_all} layers, got {num_layers}", param="layers")
    best: list[tuple[int, ...]] = [(0,)]
    while len(best[0]) < num_layers:
        longer = sorted({tuple(sorted({*each, layer})) for each in best for layer in range(num_all)} - set(best))
        students = (make_student(target, each, is_trial=True) for each in longer)
        ranked = sorted(zip(divergence(target, students, texts), longer, strict=True))
        best = [layers for _, layers in ranked[:BEAM_WIDTH]]
        tell(f"layers {best[0]}: {ranked[0][0]:.2f} nats from the target before training")
    return best[0]
