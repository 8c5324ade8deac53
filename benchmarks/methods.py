"""The ways of decoding that are compared: the same prompt tokens and the same greedy rule go in, tokens come out."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from benchmarks.forwards import ForwardLog, synchronize
from lookahead_edit.config import SpeculationConfig
from lookahead_edit.editor import Editor, EditRequest, Progress
from lookahead_edit.hook import LookaheadEdit
from lookahead_edit.targets.hf import HfTarget
from lookahead_edit.tokenizer import HfTokenizer
from lookahead_edit.types import IntArray

PROMPT_LOOKUP_TOKENS = 10  # what transformers' documentation uses


@dataclass(frozen=True)
class Task:
    """One edit, ready to decode."""

    request: EditRequest  # greedy, with `max_tokens`
    prompt: IntArray  # int32[num_prompt_tokens], built by the editor from the request

    @property
    def max_tokens(self) -> int:
        assert self.request.max_tokens is not None
        return self.request.max_tokens


@dataclass(frozen=True)
class Run:
    """One task decoded once."""

    tokens: tuple[int, ...]  # emitted ones, the end token included
    seconds: float  # the whole call
    prefill_seconds: float  # until the pass that read the prompt's end is over
    forward_seconds: float  # in forward passes after that
    num_rounds: int  # forward passes that emitted tokens

    @property
    def decode_seconds(self) -> float:
        return self.seconds - self.prefill_seconds

    @property
    def tokens_per_round(self) -> float:
        return len(self.tokens) / self.num_rounds

    @property
    def overhead_share(self) -> float:
        """Share of the decoding time spent outside forward passes; 0 where nothing was decoded after the prefill."""
        return 1.0 - self.forward_seconds / self.decode_seconds if self.num_rounds > 1 else 0.0


def model_of(editor: Editor) -> Any:
    """The transformers model behind an editor."""
    assert isinstance(editor.target, HfTarget)
    return editor.target.model


def generate(
    model: Any, prompt: IntArray, max_tokens: int, end_token_ids: Collection[int], **options: Any
) -> list[int]:
    """`generate` of transformers, greedy unless `options` say otherwise; emitted tokens, the end token included.

    Args:
        model: a causal model of transformers.
        prompt: int32[num_prompt_tokens].
        max_tokens: emitted at most.
        end_token_ids: any of them ends the text; may be empty.
        options: of `generate`.
    """
    ids = torch.from_numpy(prompt.astype(np.int64)).to(model.device)[None]
    ends = sorted(end_token_ids)
    output = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=max_tokens,
        eos_token_id=ends or None,
        pad_token_id=ends[0] if ends else 0,
        **({"do_sample": False} | options),
    )
    tokens: list[int] = output[0, ids.shape[1] :].tolist()
    return tokens


def _generate(editor: Editor, task: Task, **options: Any) -> list[int]:
    """The same until the editor's end tokens."""
    return generate(model_of(editor), task.prompt, task.max_tokens, editor.tokenizer.eos_token_ids, **options)


def decode_plainly(editor: Editor, task: Task) -> list[int]:
    """One token a forward pass."""
    return _generate(editor, task)


def decode_with_prompt_lookup(editor: Editor, task: Task) -> list[int]:
    """transformers' own prompt lookup."""
    return _generate(editor, task, prompt_lookup_num_tokens=PROMPT_LOOKUP_TOKENS)


def decode_with_hook(editor: Editor, task: Task) -> list[int]:
    """Our hook in the same `generate`, with the default configuration."""
    assert isinstance(editor.tokenizer, HfTokenizer)
    return _generate(editor, task, custom_generate=LookaheadEdit(editor.tokenizer.wrapped))


def decode_with_editor(editor: Editor, task: Task) -> list[int]:
    """The editor, with the default configuration: prompt building, answer cleaning and streaming included."""
    tokens: list[int] = []
    for progress in editor.stream(task.request):
        if isinstance(progress, Progress):
            tokens.extend(progress.round.tokens.tolist())
    return tokens


def decode_with_early_exit(editor: Editor, task: Task, num_layers: int) -> list[int]:
    """transformers' assisted generation, drafted by the target's own first layers.

    It is meant for models that were trained to be left early (LayerSkip, Elhoushi et al. 2024): others draft nonsense.
    Drafting passes are passes of the same model, so they count among a `Run`'s rounds.
    """
    return _generate(editor, task, assistant_early_exit=num_layers)


def draft_model_methods(
    draft_model: Any, num_draft_tokens: int, num_early_layers: int
) -> dict[str, Callable[[Editor, Task], list[int]]]:
    """Methods that draft with a model; the editor must have the drafters of `model_drafter_factory`.

    Args:
        draft_model: a smaller causal model with the target's vocabulary.
        num_draft_tokens: of each of our drafts.
        num_early_layers: after which the target is left, for its own early exit.
    """

    def ours(drafter: str) -> Callable[[Editor, Task], list[int]]:
        speculation = SpeculationConfig(drafter=drafter, policy="fixed", max_draft_tokens=num_draft_tokens)

        def decode(editor: Editor, task: Task) -> list[int]:
            return decode_with_editor(editor, replace(task, request=replace(task.request, speculation=speculation)))

        return decode

    return {
        ASSISTED: lambda editor, task: _generate(editor, task, assistant_model=draft_model),
        EARLY_EXIT: lambda editor, task: decode_with_early_exit(editor, task, num_early_layers),
        MODEL: ours(MODEL),
        COMBINED: ours(COMBINED),
    }


ASSISTED, EARLY_EXIT, MODEL, COMBINED = "assisted", "early_exit", "model", "combined"
PLAIN = "plain"
PROMPT_LOOKUP = "prompt_lookup"
HOOK = "lookahead_edit"
EDITOR = "editor"
METHODS: dict[str, Callable[[Editor, Task], list[int]]] = {
    PLAIN: decode_plainly,
    PROMPT_LOOKUP: decode_with_prompt_lookup,
    HOOK: decode_with_hook,
    EDITOR: decode_with_editor,
}
OURS = (HOOK, EDITOR)


def run(method: str, editor: Editor, task: Task) -> Run:
    """Decodes the task once and measures it."""
    synchronize()
    started = time.perf_counter()
    with ForwardLog(model_of(editor)) as log:
        tokens = METHODS[method](editor, task)
        synchronize()
        seconds = time.perf_counter() - started
    rounds = log.rounds(len(task.prompt))
    return Run(
        tokens=tuple(tokens),
        seconds=seconds,
        prefill_seconds=rounds[0].finished - started,
        forward_seconds=sum(forward.seconds for forward in rounds[1:]),
        num_rounds=len(rounds),
    )
