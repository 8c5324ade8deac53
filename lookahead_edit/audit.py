"""Tells ties from bugs: what a target chose along a reference text, and the logits it chose by. Pure.

In exact arithmetic a drafted block has the logits of one token after the other. In floating point they differ in their
last digits, for matrices of another shape are multiplied in another order, and where two tokens are as likely to that
many digits, another one is chosen: a tie. How many digits that are is measured with code that is not ours: what the
model itself answers one token at a time, and for the whole text at once. A difference far beyond that noise has another
cause, and so has a token that the logits don't choose, or that nobody chose: a bug.

Differences are root mean squares over the vocabulary, which one odd token doesn't move.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookahead_edit.types import FloatArray, IntArray

# Blocks of other widths differ by about as much as the two ways that the noise is measured by; measured are 0.5 to 2.
NOISE_FACTOR = 4.0
# What nobody can promise to be better than, in steps of the dtype at the largest logit.
MIN_NOISE_STEPS = 2.0
MAX_SHOWN_FLIPS = 8
# Drafts that know the text, for the audit of a model: what comes next, and what comes after that.
RIGHT, WRONG = "right", "wrong"

STEPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """A text, token by token: what was committed at each place, what the sampler chose there, by which logits.

    After a token that is not the reference's, the walk goes on with the reference's.
    """

    committed: IntArray  # int32[num_tokens]
    chosen: IntArray  # int32[num_tokens]
    logits: FloatArray  # float32[num_tokens, vocab_size]
    num_rounds: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Flip:
    """A place where another token was committed than in the reference."""

    prompt: str
    position: int  # in the output
    expected_token: int
    got_token: int
    margin: float  # of the expected one over the other, in the reference's logits
    difference: float  # of the logits there
    is_tie: bool

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "prompt": self.prompt,
            "position": self.position,
            "expected_token": self.expected_token,
            "got_token": self.got_token,
            "margin": finite(self.margin),
            "difference": finite(self.difference),
            "tie": self.is_tie,
        }


@dataclass(slots=True)
class Comparison:
    """A way of decoding against another one, over all prompts."""

    name: str
    against: str
    num_tokens: int = 0
    num_rounds: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_equal_bits: int = 0  # places whose logits are the same, bit for bit
    max_difference: float = 0.0  # of single logits
    max_root_mean_square: float = 0.0  # over the vocabulary, of the worst place
    flips: list[Flip] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)  # what noise doesn't explain, a line each

    @property
    def num_ties(self) -> int:
        return sum(flip.is_tie for flip in self.flips)

    @property
    def is_bit_equal(self) -> bool:
        """Whether all logits are the same, bit for bit."""
        return self.num_equal_bits == self.num_tokens

    @property
    def is_bug(self) -> bool:
        return bool(self.faults)

    @property
    def verdict(self) -> str:
        """In words."""
        if self.is_bug:
            return f"BUG: {self.faults[0]}"
        if self.is_bit_equal:
            return "the same bits"
        if not self.flips:
            return "the same tokens; logits differ by no more than rounding does"
        return (
            f"the same tokens but for {len(self.flips)} of {self.num_tokens}, each a tie: two tokens as likely as each "
            "other, to the digits that the dtype has"
        )

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "name": self.name,
            "against": self.against,
            "tokens": self.num_tokens,
            "rounds": self.num_rounds,
            "draft_tokens": self.num_draft_tokens,
            "accepted_tokens": self.num_accepted_tokens,
            "flips": len(self.flips),
            "ties": self.num_ties,
            "bit_equal": self.is_bit_equal,
            "largest_logit_difference": finite(self.max_difference),
            "largest_root_mean_square": finite(self.max_root_mean_square),
            "shown_flips": [flip.to_json() for flip in self.flips[:MAX_SHOWN_FLIPS]],
            "faults": self.faults[:MAX_SHOWN_FLIPS],
            "bug": self.is_bug,
            "verdict": self.verdict,
        }


@dataclass(slots=True)
class Noise:
    """What rounding alone does to this model's logits, over all prompts."""

    dtype: str
    max_difference: float = 0.0
    max_root_mean_square: float = 0.0
    max_logit: float = 0.0
    num_flips: int = 0  # between the two ways themselves

    def add(self, plain: Walk, at_once: FloatArray) -> None:
        """The same tokens, one after the other and all at once."""
        difference, root_mean_square = differences(plain.logits, at_once)
        self.max_difference = max(self.max_difference, float(difference.max(initial=0.0)))
        self.max_root_mean_square = max(self.max_root_mean_square, float(root_mean_square.max(initial=0.0)))
        self.max_logit = max(self.max_logit, float(np.abs(plain.logits).max(initial=0.0)))
        self.num_flips += int(np.count_nonzero(at_once.argmax(axis=1) != plain.chosen))

    @property
    def tolerance(self) -> float:
        """The largest root mean square that is put down to rounding."""
        floor = MIN_NOISE_STEPS * STEPS.get(self.dtype, STEPS["float32"]) * self.max_logit
        return NOISE_FACTOR * max(self.max_root_mean_square, floor)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "largest_logit_difference": finite(self.max_difference),
            "largest_root_mean_square": finite(self.max_root_mean_square),
            "tolerance": finite(self.tolerance),
            "largest_logit": finite(self.max_logit),
            "flips": self.num_flips,
        }


def compare(into: Comparison, expected: Walk, got: Walk, *, prompt: str, tolerance: float, needs_bits: bool) -> None:
    """Adds a prompt's walk to the comparison.

    Args:
        into: is added to.
        expected: what is compared to; both walked along the same text.
        got: what is judged.
        prompt: its name.
        tolerance: the largest root mean square difference that is put down to rounding.
        needs_bits: any difference at all is a bug.
    """
    assert got.logits.shape == expected.logits.shape
    difference, root_mean_square = differences(expected.logits, got.logits)
    into.num_tokens += len(got.committed)
    into.num_rounds += got.num_rounds
    into.num_draft_tokens += got.num_draft_tokens
    into.num_accepted_tokens += got.num_accepted_tokens
    into.num_equal_bits += int(np.count_nonzero(difference == 0.0))
    into.max_difference = max(into.max_difference, float(difference.max(initial=0.0)))
    into.max_root_mean_square = max(into.max_root_mean_square, float(root_mean_square.max(initial=0.0)))
    for position, (token, chosen) in enumerate(zip(got.committed.tolist(), got.chosen.tolist(), strict=True)):
        place = f"{prompt}, token {position}"
        logits, reference = got.logits[position], int(expected.chosen[position])
        is_near = bool(root_mean_square[position] <= tolerance)
        if token != chosen:
            into.faults.append(f"{place}: {token} was committed, and {chosen} chosen")
        elif logits[token] < logits.max():
            into.faults.append(f"{place}: {token} was chosen, and {int(logits.argmax())} is likelier by its logits")
        elif not is_near:
            off = f"{root_mean_square[position]:.2g}, and rounding explains {tolerance:.2g}"
            into.faults.append(f"{place}: the logits are off by {off}")
        elif needs_bits and difference[position] != 0.0:
            into.faults.append(f"{place}: the logits are not the same bits, by {difference[position]:.2g}")
        if token != reference:
            margin = float(expected.logits[position, reference] - expected.logits[position, token])
            is_tie = is_near and token == chosen and not needs_bits
            into.flips.append(Flip(prompt, position, reference, token, margin, float(difference[position]), is_tie))


def differences(first: FloatArray, second: FloatArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """float64[num_tokens] each: the largest difference of a logit, and the root mean square over the vocabulary.

    Infinite where one of them is no number.
    """
    with np.errstate(invalid="ignore"):
        apart = np.abs(first.astype(np.float64) - second)
    apart[first == second] = 0.0  # also where both are infinite
    apart[np.isnan(apart)] = np.inf
    return apart.max(axis=1, initial=0.0), np.sqrt(np.square(apart).mean(axis=1))


@dataclass(slots=True)
class Report:
    """What an audit found."""

    facts: Mapping[str, Any]  # model, dtype, device, target
    num_prompts: int
    noise: Noise
    comparisons: Sequence[Comparison]

    @property
    def is_bug(self) -> bool:
        return any(comparison.is_bug for comparison in self.comparisons)

    @property
    def verdict(self) -> str:
        """In words."""
        bugs = [comparison for comparison in self.comparisons if comparison.is_bug]
        if bugs:
            return f"{bugs[0].name} against {bugs[0].against}: {bugs[0].verdict}"
        num_ties = sum(comparison.num_ties for comparison in self.comparisons)
        if num_ties:
            return f"no bug; {num_ties} ties were decided otherwise, as in {self.noise.dtype} they may be"
        return "no bug, and not one token differs"

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            **self.facts,
            "prompts": self.num_prompts,
            "noise": self.noise.to_json(),
            "comparisons": [comparison.to_json() for comparison in self.comparisons],
            "bug": self.is_bug,
            "verdict": self.verdict,
        }


def finite(number: float) -> float | None:
    """JSON has no infinity, which stands for logits that are no numbers."""
    return number if math.isfinite(number) else None
