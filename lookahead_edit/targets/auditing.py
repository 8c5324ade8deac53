"""Walks a target along the text that the model itself writes, and keeps the logits it chooses by.

The reference is a loop of its own over `model.forward`: no drafter, sampler, cache or loop of this project is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from lookahead_edit.audit import RIGHT, WRONG, Comparison, Noise, Report, Walk, compare
from lookahead_edit.config import SamplingConfig, SpeculationConfig
from lookahead_edit.drafters.scripted import NoDrafter, ScriptedDrafter
from lookahead_edit.engine import Engine
from lookahead_edit.policy import FixedPolicy
from lookahead_edit.sequence import Sequence as TokenSequence
from lookahead_edit.speculation import make_drafter
from lookahead_edit.targets.reading import CACHE_KEYWORDS, takes
from lookahead_edit.types import Drafter, FloatArray, IntArray, Round, Row, Source, Target, Tokenizer, num_agreeing
from lookahead_edit.verify import Sampler, make_sampler

OFF = "without drafts"
MIXED = "mixed drafts"  # right, half right, wrong and none in turn, of all lengths
MakeTarget = Callable[[Callable[[Row], Sampler]], Target]


@dataclass(frozen=True, slots=True, eq=False)
class AuditPrompt:
    """A prompt to audit with, and what may be copied from."""

    name: str
    tokens: IntArray  # int32[num_prompt_tokens]
    sources: tuple[Source, ...] = ()


class LogitsLog:
    """Keeps what samplers choose, and the logits they choose by, by the position of the token."""

    def __init__(self) -> None:
        self.by_position: dict[int, tuple[int, Tensor]] = {}

    def open_sampler(self, row: Row) -> Sampler:
        """For a target: the real sampler, listened to."""
        return _Listener(make_sampler(row.sampling, row.num_prompt_tokens), self.by_position)


class _Listener:
    def __init__(self, sampler: Sampler, by_position: dict[int, tuple[int, Tensor]]) -> None:
        self._sampler = sampler
        self._by_position = by_position

    def choose(self, logits: Tensor, row: Row) -> IntArray:
        tokens = self._sampler.choose(logits, row)
        for index, token in enumerate(tokens.tolist()):
            self._by_position[len(row.tokens) + index] = (token, logits[index].clone())
        return tokens


def audit(
    model: PreTrainedModel,
    make_target: MakeTarget,
    prompts: Iterable[AuditPrompt],
    *,
    drafters: Sequence[str],
    tokenizer: Tokenizer | None,
    max_tokens: int,
    end_token_ids: Collection[int] = (),
    is_deterministic: bool = False,
    facts: dict[str, Any] | None = None,
) -> Iterator[Report]:
    """Audits prompt after prompt; yields the report so far after each.

    Compared are the target without drafts to the model itself, and the target with each drafter, and with drafts that
    are right, half right, wrong and absent in turn, to the target without drafts. Greedy.

    Args:
        model: what the target runs.
        make_target: makes it with a given opener of samplers.
        prompts: what to go on from.
        drafters: names, as in `SpeculationConfig`; besides "right" and "wrong".
        tokenizer: for drafters that want one.
        max_tokens: for each prompt.
        end_token_ids: tokens that end a text.
        is_deterministic: whether the target promises the same bits with and without drafts.
        facts: of the report, for its reader.
    """
    log = LogitsLog()
    target = make_target(log.open_sampler)
    noise = Noise(str(model.dtype).removeprefix("torch."))
    comparisons = [Comparison(OFF, "the model itself"), *(Comparison(name, OFF) for name in (*drafters, MIXED))]
    for number, prompt in enumerate(prompts, start=1):
        plain = walk_plainly(model, prompt.tokens, max_tokens, end_token_ids)
        reference = plain.committed
        noise.add(plain, logits_at_once(model, prompt.tokens, reference))
        text = np.concatenate([prompt.tokens, reference])
        openers: dict[str, Callable[[], Drafter]] = {
            name: partial(make_drafter, SpeculationConfig(drafter=name), tokenizer)
            for name in drafters
            if name not in (RIGHT, WRONG)
        }
        openers[RIGHT] = partial(shifted_drafter, text, 0)
        openers[WRONG] = partial(shifted_drafter, text, 1)
        openers[MIXED] = partial(mixed_drafter, text, len(prompt.tokens))
        off = walk(target, log, prompt, reference, NoDrafter)
        for comparison in comparisons:
            is_off = comparison.name == OFF
            got = off if is_off else walk(target, log, prompt, reference, openers[comparison.name])
            compare(
                comparison,
                plain if is_off else off,
                got,
                prompt=prompt.name,
                tolerance=noise.tolerance,
                needs_bits=is_deterministic and not is_off,
            )
        yield Report(facts or {}, number, noise, comparisons)


def walk(
    target: Target, log: LogitsLog, prompt: AuditPrompt, reference: IntArray, open_drafter: Callable[[], Drafter]
) -> Walk:
    """The target along the reference, int32[num_tokens]; where it leaves it, it is led back and begins anew."""
    committed = np.zeros_like(reference)
    log.by_position.clear()
    num_done, rounds = 0, []
    policy = FixedPolicy(SpeculationConfig(policy="fixed").draft_limit)
    while num_done < len(reference):
        sequence = TokenSequence(
            np.concatenate([prompt.tokens, reference[:num_done]]),
            drafter=open_drafter(),
            sampling=SamplingConfig(),
            max_tokens=len(reference) - num_done,
            max_context_tokens=target.max_context_tokens,
            sources=prompt.sources,
        )
        num_right = 0
        with closing(cast("Generator[Round]", Engine(target, policy).generate(sequence))) as steps:
            for finished in steps:
                rounds.append(finished)
                num_right = num_agreeing(sequence.output, reference[num_done:])
                if num_right < len(sequence.output):
                    break
        num_walked = min(num_right + 1, len(sequence.output))
        committed[num_done : num_done + num_walked] = sequence.output[:num_walked]
        num_done += num_walked
    first = len(prompt.tokens)
    logged = [log.by_position[first + index] for index in range(len(reference))]
    return Walk(
        committed=committed,
        chosen=np.array([token for token, _ in logged], dtype=np.int32),
        logits=_to_numpy(torch.stack([logits for _, logits in logged])),
        num_rounds=sum(len(finished.tokens) > 0 for finished in rounds),
        num_draft_tokens=sum(finished.num_draft_tokens for finished in rounds),
        num_accepted_tokens=sum(finished.num_accepted_tokens for finished in rounds),
    )


def shifted_drafter(truth: IntArray, num_tokens: int) -> Drafter:
    """What comes next in `truth`, prompt and text; or so many tokens later, as a cursor that is off would have it."""
    return ScriptedDrafter(lambda tokens: truth[len(tokens) + num_tokens :])


def mixed_drafter(truth: IntArray, seed: int) -> Drafter:
    """Right, half right, wrong and no drafts in turn, of 1 to 64 tokens; `truth` is prompt and text."""
    generator = np.random.default_rng(seed)
    calls = iter(range(10**9))

    def script(tokens: IntArray) -> IntArray:
        right = truth[len(tokens) :][: int(generator.integers(1, 65))]
        wrong = truth[generator.permutation(len(truth))[: len(right)]]
        half = len(right) // 2
        return (right, np.concatenate([right[:half], wrong[half:]]), wrong, right[:0])[next(calls) % 4]

    return ScriptedDrafter(script)


@torch.no_grad()
def walk_plainly(
    model: PreTrainedModel, prompt: IntArray, max_tokens: int, end_token_ids: Collection[int] = ()
) -> Walk:
    """What the model writes, one token after the other: at most `max_tokens`, up to an end token."""
    cache = DynamicCache(config=model.config)
    keyword = next(name for name in CACHE_KEYWORDS if takes(model, name))
    ids = torch.from_numpy(prompt.astype(np.int64)).to(model.device)[None]
    tokens: list[int] = []
    logits: list[Tensor] = []
    while len(tokens) < max_tokens and not (tokens and tokens[-1] in end_token_ids):
        last = {"logits_to_keep": 1} if takes(model, "logits_to_keep") else {}
        logits.append(model(input_ids=ids, use_cache=True, **{keyword: cache}, **last).logits[0, -1].clone())
        tokens.append(int(logits[-1].argmax()))
        ids = torch.tensor([[tokens[-1]]], device=model.device)
    chosen = np.array(tokens, dtype=np.int32)
    return Walk(chosen, chosen, _to_numpy(torch.stack(logits)), num_rounds=len(tokens))


@torch.no_grad()
def logits_at_once(model: PreTrainedModel, prompt: IntArray, output: IntArray) -> FloatArray:
    """float32[num_output_tokens, vocab_size]: what the output's tokens are chosen by, prompt and output in one pass."""
    tokens = np.concatenate([prompt, output[:-1]]).astype(np.int64)
    ids = torch.from_numpy(tokens).to(model.device)[None]
    last = {"logits_to_keep": len(output)} if takes(model, "logits_to_keep") else {}
    return _to_numpy(model(input_ids=ids, **last).logits[0, -len(output) :])


def _to_numpy(logits: Tensor) -> FloatArray:
    """float32, in which all that bfloat16 and float16 can tell apart stays apart."""
    converted: FloatArray = logits.float().cpu().numpy()
    return converted
