"""Train the edit adapter: LoRA on the default model, on the stream of synthetic tasks.

Every step is a fixed function of the options and of the step's place in the stream, and the schedule counts steps, so
a run can stop anywhere and go on from its last checkpoint. Run as `python -m corpora.edit_model.train --help`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers import AutoModelForCausalLM, AutoTokenizer

from corpora.edit_model.examples import Encoder, Example, encode_task
from corpora.edit_model.kinds import MIXES
from corpora.edit_model.lora import MergedLoraLinear, attach, save_adapter
from corpora.edit_model.tasks import make_task

BASE_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
STATE_FILE = "state.pt"


@dataclass(frozen=True)
class TrainOptions:
    """What a run depends on; a resumed run takes its options anew, so a run may have several parts."""

    steps: int = 400
    decay_steps: int = 260  # the learning rate falls linearly over the last ones
    warmup_steps: int = 10
    learning_rate: float = 6e-4
    mix: str = "places"  # of kinds.MIXES
    tokens_per_step: int = 900
    max_task_tokens: int = 1300
    rank: int = 16  # an adapter to start from brings its own rank and alpha
    alpha: int = 32
    first_layer: int = 6  # layers below keep their adapter but do not train, which saves their backward pass
    # An example that is right with a smaller loss gets no backward pass: about half of them, late in a run.
    skipped_loss: float = 0.15
    seed: int = 1
    max_gradient_norm: float = 4.0


def learning_rate_at(step: int, options: TrainOptions) -> float:
    """The rate for a step (0-based): linear warm-up, a plateau, a linear fall to 2 % of the plateau."""
    warm = min(1.0, (step + 1) / options.warmup_steps)
    left = (options.steps - step) / max(1, options.decay_steps)
    return options.learning_rate * warm * max(0.02, min(1.0, left))


class ExampleStream:
    """Examples in stream order from a task index on; tasks of too many tokens are passed over."""

    def __init__(self, encoder: Encoder, options: TrainOptions, index: int) -> None:
        self.encoder = encoder
        self.options = options
        self.index = index

    def step_examples(self) -> list[Example]:
        """The examples of one step: as many as it takes to reach the token budget."""
        examples: list[Example] = []
        while sum(example.num_tokens for example in examples) < self.options.tokens_per_step:
            task = make_task("train", self.options.seed, self.index, MIXES[self.options.mix])
            rng = random.Random(f"trim {self.options.seed} {self.index}")
            self.index += 1
            example = encode_task(task, self.encoder, rng)
            if example.num_tokens <= self.options.max_task_tokens:
                examples.append(example)
        return examples


def example_loss(model: Any, example: Example) -> tuple[torch.Tensor, torch.Tensor]:
    """(negative log probability of the answer, which of its tokens are right: bool[answer tokens]), teacher-forced."""
    ids = torch.tensor([example.prompt + example.answer])  # (1, tokens)
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    # The vocabulary product is dear, so only the positions that predict the answer go through it.
    logits = model.lm_head(hidden[0, len(example.prompt) - 1 : -1])  # (answer tokens, vocabulary)
    target = torch.tensor(example.answer)
    return torch.nn.functional.cross_entropy(logits, target, reduction="sum"), logits.argmax(-1) == target


@dataclass(frozen=True)
class ExampleResult:
    """What one example adds to a step."""

    loss: float
    is_right: bool  # every answer token, teacher-forced: greedy decoding would give the answer
    label: str  # family and kind
    gradients: tuple[torch.Tensor, ...]  # empty if the example was passed over


class Trainer:
    """Model, optimiser and stream of one run, with what a checkpoint keeps of them.

    Each worker thread takes whole examples and computes on one core: with no barrier inside a layer, a core that
    another process takes away delays one example and not every product.
    """

    def __init__(self, base: Path, adapter: Path | None, options: TrainOptions, num_workers: int) -> None:
        torch.manual_seed(options.seed)
        torch.set_num_threads(1)
        self.workers = ThreadPoolExecutor(num_workers)
        self.options = options
        self.tokenizer: Any = AutoTokenizer.from_pretrained(base)
        self.model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        self.model.requires_grad_(False)
        self.layers: list[MergedLoraLinear] = attach(
            self.model, adapter, options.rank, options.alpha, options.first_layer
        )
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=options.learning_rate, betas=(0.9, 0.98), weight_decay=0.0
        )
        self.stream = ExampleStream(self.tokenizer, options, index=0)
        self.step = 0

    def _gradients(self, example: Example) -> ExampleResult:
        loss, is_token_right = example_loss(self.model, example)
        is_right = bool(is_token_right.all())
        if is_right and loss.item() < self.options.skipped_loss:
            return ExampleResult(loss.item(), is_right, example.label, ())
        return ExampleResult(loss.item(), is_right, example.label, torch.autograd.grad(loss, self.parameters))

    def run_step(self) -> dict[str, Any]:
        """One optimiser step; its loss and the share of changed tokens predicted right."""
        rate = learning_rate_at(self.step, self.options)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        # The longest first, so that the workers end at about the same time.
        examples = sorted(self.stream.step_examples(), key=lambda example: -example.num_tokens)
        results = list(self.workers.map(self._gradients, examples))
        # Summed in a fixed order, whichever worker was first: the run stays deterministic.
        trained = [result.gradients for result in results if result.gradients]
        for number, parameter in enumerate(self.parameters):
            gradients = [gradient[number] for gradient in trained] or [torch.zeros_like(parameter)]
            parameter.grad = torch.stack(gradients).mean(dim=0)
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.options.max_gradient_norm)
        self.optimizer.step()
        for layer in self.layers:
            if layer.trainable:
                layer.refresh()
        self.step += 1
        return {
            "step": self.step,
            "loss": sum(result.loss for result in results) / len(results),
            "tasks": len(examples),
            "right": sum(result.is_right for result in results),
            "trained": len(trained),
            "missed": [result.label for result in results if not result.is_right],
            "learning_rate": rate,
            "gradient_norm": round(norm.item(), 2),
        }

    def save(self, folder: Path) -> None:
        """Write the checkpoint and the adapter; a reader never sees half a file."""
        folder.mkdir(parents=True, exist_ok=True)
        state = {
            "options": asdict(self.options),
            "step": self.step,
            "index": self.stream.index,
            "parameters": [parameter.detach() for parameter in self.parameters],
            "optimizer": self.optimizer.state_dict(),
        }
        torch.save(state, folder / (STATE_FILE + ".new"))
        os.replace(folder / (STATE_FILE + ".new"), folder / STATE_FILE)
        save_adapter(self.model, folder / "adapter", BASE_NAME)

    def resume(self, folder: Path) -> None:
        """Go on from the folder's checkpoint."""
        state = torch.load(folder / STATE_FILE, weights_only=True)
        with torch.no_grad():
            for parameter, saved in zip(self.parameters, state["parameters"], strict=True):
                parameter.copy_(saved)
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.stream.index = state["step"], state["index"]
        for layer in self.layers:
            layer.refresh()


def parse_arguments() -> argparse.Namespace:
    """The command line; every default is that of TrainOptions."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--base", type=Path, required=True, help="folder of the base model, as safetensors")
    parser.add_argument("--output", type=Path, required=True, help="folder of the run: checkpoint, adapter, log")
    parser.add_argument("--adapter", type=Path, help="adapter folder to start from")
    parser.add_argument("--workers", type=int, default=2, help="examples computed at once, one core each")
    parser.add_argument("--save-every", type=int, default=20, help="steps between checkpoints")
    for name, value in asdict(TrainOptions()).items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(value), default=value)
    return parser.parse_args()


def main() -> None:
    """Train until `--steps`, from the run's checkpoint where there is one."""
    arguments = parse_arguments()
    options = TrainOptions(**{name: getattr(arguments, name) for name in asdict(TrainOptions())})
    trainer = Trainer(arguments.base, arguments.adapter, options, arguments.workers)
    if (arguments.output / STATE_FILE).exists():
        trainer.resume(arguments.output)
    arguments.output.mkdir(parents=True, exist_ok=True)
    columns = (MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with (arguments.output / "log.jsonl").open("a", encoding="utf-8") as log, Progress(*columns) as progress:
        bar = progress.add_task("", total=options.steps, completed=trainer.step)
        while trainer.step < options.steps:
            started = time.monotonic()
            record = trainer.run_step()
            record["seconds"] = round(time.monotonic() - started, 2)
            log.write(json.dumps(record) + "\n")
            log.flush()
            figures = f"loss {record['loss']:.3f}, right {record['right']:.0f} of {record['tasks']:.0f}"
            progress.update(bar, advance=1, description=figures)
            if trainer.step % arguments.save_every == 0 or trainer.step == options.steps:
                trainer.save(arguments.output)


if __name__ == "__main__":
    main()
