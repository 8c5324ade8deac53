"""What a forward pass costs, by batch size and width, and what follows from it for the length of drafts.

The rule. A copied run is a stretch of the output that the draft has right. All its tokens have to be produced in any
case, so what counts is the cost until the run has ended, whatever is drafted on the way. Let S_i be the probability
that the first i drafted tokens are right. A draft of k tokens costs one pass of width k + 1, which also gives a token
of the target's own. With probability S_{k+1} that one still belongs to the run, and then the rest of the run has to be
got through; otherwise the run has ended in this very pass. So drafting k tokens costs

    cost(k + 1) + S_{k+1} C(R_{k+1})

and drafting none is the same with k = 0. The k with the smallest cost is taken.

R_i, the mean length of what is left of the run after i right tokens, is ``sum(S_j for j > i) / S_i``: the sum of the
probabilities that it goes on for one, two, three ... more. Beyond the draft's end the tokens are taken to fall off as
the last 8 did on average.

C(R) is the cost of getting through a run of geometric length with mean R, that is, one that goes on at every token
with probability ``s = R / (1 + R)``, under the best constant draft length: each pass costs cost(k + 1), and another is
needed with probability ``s ** (k + 1)``, hence

    C(R) = min over k of cost(k + 1) / (1 - s ** (k + 1))

Knows no drafts, no model and no clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookahead_edit.kernels.length import MAX_SURVIVAL, STEPS_PER_OCTAVE
from lookahead_edit.types import InvalidInput

NUM_OCTAVES = 13  # mean run lengths up to 8190; what is longer costs as much


@dataclass(frozen=True)
class CostCurve:
    """Cost of one forward pass, in seconds or any other unit, by batch size and width (drafted tokens + 1).

    Linear between measured widths, and beyond them with the last slope; a wider pass never counts as cheaper, which
    noise can make it look. A batch size that was not measured costs what as many tokens cost in the largest measured
    one below it: an unmeasured batch of 4 rows of width 3 what one row of width 12 does. So does a batch whose rows are
    of different widths: what counts is the number of tokens in the pass.

    Raises:
        InvalidInput: widths that don't rise from 1, fewer than two of them, or costs that are not positive numbers,
            one for each batch size and width.

    Example:
        >>> CostCurve(widths=(1, 2, 4), costs=((1.0, 1.8, 2.0),)).values(1, 5)
        array([1. , 1.8, 1.9, 2. , 2.1])
    """

    widths: tuple[int, ...]
    costs: tuple[tuple[float, ...], ...]  # a row for each batch size, an entry for each width
    batch_sizes: tuple[int, ...] = (1,)
    shares_passes: bool = True  # whether the rows of a batch are packed into one pass

    def __post_init__(self) -> None:
        for name, numbers in (("widths", self.widths), ("batch_sizes", self.batch_sizes)):
            is_rising = all(first < second for first, second in pairwise(numbers))
            if not is_rising or not numbers or numbers[0] != 1 or not all(isinstance(each, int) for each in numbers):
                raise InvalidInput(f"expected {name} to be whole numbers that rise from 1, got {numbers}", param=name)
        if len(self.widths) < 2:
            raise InvalidInput(f"expected at least two widths, got {self.widths}", param="widths")
        if [len(row) for row in self.costs] != [len(self.widths)] * len(self.batch_sizes):
            shape = f"{len(self.batch_sizes)} rows of {len(self.widths)}"
            raise InvalidInput(f"expected {shape} costs, got rows of {[len(row) for row in self.costs]}", param="costs")
        for cost in (cost for row in self.costs for cost in row):
            if not (math.isfinite(cost) and cost > 0.0):
                raise InvalidInput(f"expected costs to be finite numbers above 0, got {cost!r}", param="costs")

    @classmethod
    def linear(cls, cost_ratio: float) -> CostCurve:
        """``1 + cost_ratio * width``, and ``1 + cost_ratio * width * batch_size``: the model of `replay`."""
        return cls(widths=(1, 2), costs=((1.0 + cost_ratio, 1.0 + 2.0 * cost_ratio),))

    def values(self, batch_size: int, num_widths: int) -> NDArray[np.float64]:
        """float64[num_widths]: the cost of each width from 1 on, of all rows alike; never falling."""
        return self._costs_at(batch_size, np.arange(1, num_widths + 1) * batch_size)

    def token_costs(self, batch_size: int, num_drafted_tokens: int) -> NDArray[np.float64]:
        """float64[num_drafted_tokens + 1]: of a pass with so many drafted tokens in all, however the rows share them.

        Example:
            >>> CostCurve(widths=(1, 2, 4), costs=((1.0, 1.8, 2.0),)).token_costs(2, 2)
            array([1.8, 1.9, 2. ])
        """
        return self._costs_at(batch_size, np.arange(num_drafted_tokens + 1) + batch_size)

    def _costs_at(self, batch_size: int, num_tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        index = max(index for index, measured in enumerate(self.batch_sizes) if measured <= batch_size)
        widths = np.asarray(self.widths, dtype=np.float64)
        costs = np.maximum.accumulate(np.asarray(self.costs[index], dtype=np.float64))
        wanted = num_tokens / self.batch_sizes[index]
        slope = (costs[-1] - costs[-2]) / (widths[-1] - widths[-2])
        values: NDArray[np.float64] = np.interp(wanted, widths, costs) + slope * np.maximum(wanted - widths[-1], 0.0)
        return values

    def padded_to(self, pass_widths: Sequence[int]) -> CostCurve:
        """For single rows, where a pass is padded to the next of the widths, and what is wider takes another pass.

        Example:
            >>> CostCurve(widths=(1, 4), costs=((1.0, 2.5),)).padded_to((1, 4)).values(1, 5)
            array([1. , 2.5, 2.5, 2.5, 5. ])
        """
        costs = self.values(1, pass_widths[-1])
        widths = sorted({1, *pass_widths, *(width + 1 for width in pass_widths)})
        padded = [float(costs[min(each for each in pass_widths if each >= width) - 1]) for width in widths[:-1]]
        return CostCurve(tuple(widths), ((*padded, 2.0 * padded[-1]),), shares_passes=False)

    def to_json(self) -> dict[str, Any]:
        """What `from_json` takes."""
        return {
            "widths": list(self.widths),
            "batch_sizes": list(self.batch_sizes),
            "costs": [list(row) for row in self.costs],
            "shares_passes": self.shares_passes,
        }

    @classmethod
    def from_json(cls, document: object) -> CostCurve:
        """Raises InvalidInput for anything that `to_json` would not give."""
        try:
            assert isinstance(document, Mapping)
            return cls(
                widths=tuple(document["widths"]),
                costs=tuple(tuple(float(cost) for cost in row) for row in document["costs"]),
                batch_sizes=tuple(document["batch_sizes"]),
                shares_passes=bool(document["shares_passes"]),
            )
        except (AssertionError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput("expected a cost curve: widths, batch_sizes, costs and shares_passes") from error


# Measured with SmolLM2-135M in float32 on two CPU cores. A second token costs nearly as much as a first one, for then
# matrices are multiplied where a vector was; after that further ones are nearly free.
CPU_CURVE = CostCurve(
    widths=(1, 2, 8, 16, 32, 64), costs=((0.096, 0.172, 0.193, 0.223, 0.272, 0.320),), shares_passes=False
)


def run_costs(costs: NDArray[np.float64]) -> NDArray[np.float64]:
    """C, float64[13 * 8 + 1], at the nodes of `kernels.length`; `costs` as from `CostCurve.values`."""
    octaves, steps = np.divmod(np.arange(NUM_OCTAVES * STEPS_PER_OCTAVE + 1), STEPS_PER_OCTAVE)
    mean_lengths = 2.0**octaves * (1.0 + steps / STEPS_PER_OCTAVE) - 1.0
    survivals = mean_lengths[1:] / (1.0 + mean_lengths[1:])
    return np.concatenate([costs[:1], _constant_length_costs(costs, survivals).min(axis=1)])


def best_constant_length(costs: NDArray[np.float64], survival: float = MAX_SURVIVAL) -> int:
    """The draft length that gets through runs fastest which go on at every token with probability `survival`.

    By default the longest runs reckoned with: no draft pays to be longer.
    """
    return int(_constant_length_costs(costs, np.array([survival]))[0].argmin())


def _constant_length_costs(costs: NDArray[np.float64], survivals: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64[num_survivals, num_widths], of whole runs."""
    widths = np.arange(1, len(costs) + 1)
    return costs / -np.expm1(np.log(survivals)[:, None] * widths)
