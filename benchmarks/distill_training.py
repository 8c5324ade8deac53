"""Teaches a student its target's next-token distributions. Every step is a fixed function of options and place.

The schedule counts steps and the stream is addressed by index, so a run can stop anywhere and go on from its last
checkpoint with the same result.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.distill_student import make_student, mean_divergence, trained_parameters
from benchmarks.distill_texts import Encoder, Text, make_text
from benchmarks.matrix_costs import weights_fingerprint
from lookahead_edit.types import InvalidInput

STATE_FILE = "state.pt"
# What makes a run another run; the others only say how far it goes.
FIXED_OPTIONS = (
    *("num_layers", "seed", "tokens_per_step", "max_scored_tokens", "hidden_weight"),
    *("learning_rate", "warmup_steps", "max_gradient_norm"),
)


@dataclass(frozen=True)
class DistillOptions:
    """What a run depends on; a resumed run takes the length of its schedule anew."""

    num_layers: int = 3
    steps: int = 1200  # an hour on two quiet cores gets to about 950
    warmup_steps: int = 20
    decay_steps: int = 400  # the learning rate falls linearly over the last ones
    learning_rate: float = 1e-3
    tokens_per_step: int = 600
    max_scored_tokens: int = 128  # of a text, spread over it: the vocabulary product is dear
    hidden_weight: float = 1.0  # of the distance between last hidden states, beside the divergence in nats
    max_gradient_norm: float = 2.0
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("num_layers", "steps", "decay_steps", "tokens_per_step", "max_scored_tokens"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"expected {name} of at least 1, got {getattr(self, name)}", param=name)

    def learning_rate_at(self, step: int) -> float:
        """The rate for a step (0-based): linear warm-up, a plateau, a linear fall to 2 % of the plateau."""
        warm = min(1.0, (step + 1) / max(1, self.warmup_steps))
        left = (self.steps - step) / self.decay_steps
        return self.learning_rate * warm * max(0.02, min(1.0, left))


@dataclass(frozen=True)
class TextResult:
    """What one text adds to a step."""

    kind: str
    divergence: float  # KL(target || student), nats a scored token
    agreement: float  # share of scored tokens where both have the same best one
    gradients: tuple[Tensor, ...]


def scored_places(text: Text, most: int) -> Tensor:
    """int64[at most `most`]: places whose next token is foretold, spread evenly from the first one to the last.

    Example: a text of 9 tokens, scored from token 5 on, has the places 4, 5, 6 and 7.
    """
    first, last = text.first - 1, len(text.tokens) - 2
    return torch.linspace(first, last, min(most, last - first + 1)).round().long()


def foretell(target: Any, student: Any, text: Text, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """(log probabilities of the target and of the student, float[num_scored, vocab_size], hidden distance).

    The distance is that of the last hidden states at all places, squared and relative to the target's (as in
    EAGLE, Li et al. 2024, section 3.2, which regresses the same states).
    """
    ids = torch.tensor([text.tokens])
    places = scored_places(text, most)
    with torch.no_grad():
        wanted_hidden = target.model(input_ids=ids, use_cache=False).last_hidden_state[0]
        wanted = target.lm_head(wanted_hidden[places]).log_softmax(-1)
    hidden = student.model(input_ids=ids, use_cache=False).last_hidden_state[0]
    log_probabilities = student.lm_head(hidden[places]).log_softmax(-1)
    distance = ((hidden - wanted_hidden) ** 2).sum(-1) / (wanted_hidden**2).sum(-1)
    return wanted, log_probabilities, distance.mean()


class Distiller:
    """Target, student, optimiser and place in the stream of one run, with what a checkpoint keeps of them.

    Each worker takes whole texts and computes on one core, and gradients are summed in the texts' order, so the number
    of workers doesn't change the result.
    """

    def __init__(
        self, target: Any, encoder: Encoder, layers: tuple[int, ...], options: DistillOptions, num_workers: int
    ) -> None:
        self.target = target.requires_grad_(False)
        self.target_weights = weights_fingerprint(target)  # reads them all, so not at every checkpoint
        self.encoder = encoder
        self.layers = layers
        self.options = options
        self.student = make_student(target, layers)
        self.parameters = trained_parameters(self.student)
        for parameter in self.parameters:
            parameter.requires_grad_(True)
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=options.learning_rate, betas=(0.9, 0.98), weight_decay=0.01
        )
        self.step = 0
        self.index = 0  # of the next text
        self.seconds = 0.0  # spent in steps, by all parts of the run
        self.num_tokens = 0
        self._workers = ThreadPoolExecutor(num_workers)

    def run_step(self) -> dict[str, Any]:
        """One step of the optimiser; what it saw, and how far the student was from the target."""
        rate = self.options.learning_rate_at(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        texts = self._next_texts()
        # The longest first, so that the workers end at about the same time.
        order = sorted(range(len(texts)), key=lambda place: -len(texts[place].tokens))
        found = dict(zip(order, self._workers.map(lambda place: self._learn(texts[place]), order), strict=True))
        results = [found[place] for place in range(len(texts))]
        for number, parameter in enumerate(self.parameters):
            parameter.grad = torch.stack([result.gradients[number] for result in results]).mean(dim=0)
        torch.nn.utils.clip_grad_norm_(self.parameters, self.options.max_gradient_norm)
        self.optimizer.step()
        self.step += 1
        self.num_tokens += sum(len(text.tokens) for text in texts)
        return {
            "step": self.step,
            "divergence": round(sum(result.divergence for result in results) / len(results), 4),
            "agreement": round(sum(result.agreement for result in results) / len(results), 4),
            "kinds": [result.kind for result in results],
            "learning_rate": rate,
        }

    def save(self, directory: Path) -> None:
        """Writes the checkpoint; a reader never sees half a file."""
        directory.mkdir(parents=True, exist_ok=True)
        state = {
            "target_weights": self.target_weights,
            "options": asdict(self.options),
            "layers": list(self.layers),
            "step": self.step,
            "index": self.index,
            "seconds": self.seconds,
            "num_tokens": self.num_tokens,
            "parameters": [parameter.detach() for parameter in self.parameters],
            "optimizer": self.optimizer.state_dict(),
        }
        torch.save(state, directory / (STATE_FILE + ".new"))
        os.replace(directory / (STATE_FILE + ".new"), directory / STATE_FILE)

    def resume(self, state: dict[str, Any]) -> None:
        """Goes on from what `load_state` gave."""
        with torch.no_grad():
            for parameter, saved in zip(self.parameters, state["parameters"], strict=True):
                parameter.copy_(saved)
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.index = state["step"], state["index"]
        self.seconds, self.num_tokens = state["seconds"], state["num_tokens"]

    def _next_texts(self) -> list[Text]:
        texts: list[Text] = []
        while sum(len(text.tokens) for text in texts) < self.options.tokens_per_step:
            texts.append(make_text(self.encoder, "train", self.options.seed, self.index))
            self.index += 1
        return texts

    def _learn(self, text: Text) -> TextResult:
        wanted, log_probabilities, distance = foretell(self.target, self.student, text, self.options.max_scored_tokens)
        divergence = mean_divergence(wanted, log_probabilities)
        loss = divergence + self.options.hidden_weight * distance
        agreement = (wanted.argmax(-1) == log_probabilities.argmax(-1)).float().mean()
        gradients = torch.autograd.grad(loss, self.parameters)
        return TextResult(text.kind, divergence.item(), agreement.item(), gradients)


def load_state(directory: Path, options: DistillOptions, target: Any) -> dict[str, Any] | None:
    """The checkpoint of a run with these options and this target; None where there is none.

    Raises:
        InvalidInput: the directory holds another run, or a file that can't be read.
    """
    file = directory / STATE_FILE
    if not file.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(file, weights_only=True)
        kept = state["options"]
    except Exception as error:  # damaged files fail in every way
        raise InvalidInput(
            f"can't read the checkpoint {file}: {type(error).__name__}; remove it to begin anew"
        ) from error
    found = {**kept, "target_weights": state.get("target_weights")}
    wanted = {**asdict(options), "target_weights": weights_fingerprint(target)}
    for name in (*FIXED_OPTIONS, "target_weights"):
        if found.get(name) != wanted[name]:
            raise InvalidInput(
                f"expected a run with {name} {wanted[name]} in {directory}, got {found.get(name)}; "
                "give another --output, or remove it",
                param=name,
            )
    return state
