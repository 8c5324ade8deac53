"""How well a draft model foretells its target, by kind of text, on packages that it never saw."""

from __future__ import annotations

from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.distill_student import mean_divergence
from benchmarks.distill_texts import KIND_WEIGHTS, Text, make_text
from benchmarks.distill_training import foretell

DRAFT_LENGTHS = (2, 4, 8)
MAX_SCORED_TOKENS = 512


def accepted_tokens(agrees: Tensor, num_draft_tokens: int) -> float:
    """Mean length of the agreeing run, at most `num_draft_tokens`, that begins at each place; bool[num_places].

    Teacher-forced, so it is the greedy acceptance of drafts on the target's own text where that is this text.

    Example: of agreement 1, 1, 0, 1 and drafts of 2: (2 + 1 + 0 + 1) / 4.
    """
    runs, length = [], 0
    for agreeing in reversed(agrees.tolist()):
        length = length + 1 if agreeing else 0
        runs.append(min(length, num_draft_tokens))
    return sum(runs) / len(runs)


@torch.no_grad()
def text_figures(target: Any, student: Any, text: Text) -> dict[str, float]:
    """Agreement of the best tokens, overlap of the distributions, divergence in nats, accepted tokens by draft length.

    The overlap is the mean of sum min(p, q), the acceptance of sampled drafts at temperature 1 (Leviathan et al. 2023,
    section 3.2).
    """
    wanted, log_probabilities, _ = foretell(target, student, text, MAX_SCORED_TOKENS)
    agrees = wanted.argmax(-1) == log_probabilities.argmax(-1)
    figures = {
        "agreement": agrees.float().mean().item(),
        "overlap": torch.minimum(wanted, log_probabilities).exp().sum(-1).mean().item(),
        "divergence": mean_divergence(wanted, log_probabilities).item(),
    }
    return figures | {f"accepted_of_{length}": accepted_tokens(agrees, length) for length in DRAFT_LENGTHS}


def report(target: Any, student: Any, tokenizer: Any, num_texts: int, console: Console) -> dict[str, dict[str, float]]:
    """Kind of text -> mean figures over `num_texts` held-out texts of it; also printed as a table."""
    found: dict[str, dict[str, float]] = {}
    for kind in KIND_WEIGHTS:
        texts = [make_text(tokenizer, "evaluation", 0, index, kind) for index in range(num_texts)]
        each = [text_figures(target, student, text) for text in texts]
        found[kind] = {name: round(sum(figures[name] for figures in each) / len(each), 4) for name in each[0]}
    table = Table("held-out text", *next(iter(found.values())), title="The draft model against its target")
    for kind, figures in found.items():
        table.add_row(kind, *(f"{value:.3f}" for value in figures.values()))
    console.print(table)
    return found
