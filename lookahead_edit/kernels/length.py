"""How long a draft should be, from its tokens' probabilities and a table of costs. Trusts its input; see `cost.py`.

Arrays (n drafted tokens, W widths):
    probabilities  float32[n]     entry i - 1 is S_i: the probability that the first i tokens are all accepted
    costs          float64[>= W]  entry w - 1 is the cost of a pass of width w
    futures        float64[m]     C at mean run lengths R where 1 + R is a node: ``2 ** e * (1 + j / 8)`` at 8 e + j
    savings        float64[n + 1] entry k is what a draft of k tokens saves before its own cost is counted
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

STEPS_PER_OCTAVE = 8
NUM_TAIL_TOKENS = 8  # what the decay beyond the draft is taken from
# A run is never expected to go on for more than 499 tokens beyond what is drafted.
MAX_SURVIVAL = 0.998


@njit(cache=True)
def fill_savings(
    probabilities: NDArray[np.float32],
    futures: NDArray[np.float64],
    savings: NDArray[np.float64],
    goes_on: bool = True,
) -> None:
    """Entry k becomes ``S_1 C(R_1) - S_{k+1} C(R_{k+1})``; R_i is the mean length of what follows i accepted tokens.

    One pass from the end; beyond the draft the tokens fall off as the last 8 did on average, or, where the draft
    reaches its source's end (not `goes_on`), the run is over: no later pass could be wider. C is linear between its
    nodes. The octave of 1 + R hardly changes from token to token, so it is followed rather than computed.
    """
    num_tokens = len(probabilities)
    num_tail_tokens = min(num_tokens, NUM_TAIL_TOKENS)
    last = np.float64(probabilities[num_tokens - 1])
    before = np.float64(probabilities[num_tokens - 1 - num_tail_tokens]) if num_tokens > num_tail_tokens else 1.0
    survival = min((last / before) ** (1.0 / num_tail_tokens), MAX_SURVIVAL) if before > 0.0 and goes_on else 0.0
    probability = last * survival  # S_i, from i = n + 1 down to 1
    sum_after = probability * survival / (1.0 - survival)
    octave, scale = 0, 1.0
    for length in range(num_tokens, -1, -1):
        savings[length] = 0.0
        if probability > 0.0:
            nodes = (1.0 + sum_after / probability) / scale
            while nodes >= 2.0:
                nodes, scale, octave = 0.5 * nodes, 2.0 * scale, octave + 1
            while nodes < 1.0:
                nodes, scale, octave = 2.0 * nodes, 0.5 * scale, octave - 1
            place = STEPS_PER_OCTAVE * (octave + nodes - 1.0)
            index = min(int(place), len(futures) - 2)
            part = min(place - index, 1.0)
            savings[length] = probability * (futures[index] + part * (futures[index + 1] - futures[index]))
        sum_after += probability
        probability = np.float64(probabilities[length - 1])
    undrafted = savings[0]
    for length in range(num_tokens + 1):
        savings[length] = undrafted - savings[length]


@njit(cache=True)
def best_length(
    probabilities: NDArray[np.float32],
    costs: NDArray[np.float64],
    futures: NDArray[np.float64],
    savings: NDArray[np.float64],
    goes_on: bool = True,
) -> int:
    """How many of the drafted tokens to verify, 0 where none pay; about 2 µs for 256. `savings` is scratch."""
    fill_savings(probabilities, futures, savings, goes_on)
    best, best_gain = 0, 0.0
    for length in range(1, len(probabilities) + 1):
        gain = savings[length] - (costs[length] - costs[0])
        if gain > best_gain:
            best, best_gain = length, gain
    return best


@njit(cache=True)
def share_tokens(
    savings: NDArray[np.float64], limits: NDArray[np.int64], costs: NDArray[np.float64], lengths: NDArray[np.int64]
) -> None:
    """How many drafted tokens each row of a packed pass gets: together they save most after what the pass costs.

    Tokens are given out one after the other to the row that saves most a token, which is best for every number of them
    as long as a row's further tokens save less and less; where they don't, its tokens up to the best rate go as one.

    Args:
        savings: float64[num_rows, >= max(limits) + 1].
        limits: int64[num_rows], a row's most.
        costs: float64[sum(limits) + 1], of the pass with so many drafted tokens in all.
        lengths: int64[num_rows], written.
    """
    num_rows = len(limits)
    # The corners of each row's concave hull, from 0 on.
    corners = np.zeros((num_rows, limits.max() + 1), dtype=np.int64)
    num_corners = np.ones(num_rows, dtype=np.int64)
    for row in range(num_rows):
        for length in range(1, limits[row] + 1):
            while num_corners[row] > 1:
                middle, first = corners[row, num_corners[row] - 1], corners[row, num_corners[row] - 2]
                rise = savings[row, middle] - savings[row, first]
                if rise * (length - middle) > (savings[row, length] - savings[row, middle]) * (middle - first):
                    break
                num_corners[row] -= 1
            corners[row, num_corners[row]] = length
            num_corners[row] += 1
    places = np.zeros(num_rows, dtype=np.int64)  # the corner that each row has reached
    lengths[:] = 0
    num_given, saved, best_gain = 0, 0.0, 0.0
    while True:
        chosen, best_rate = -1, 0.0
        for row in range(num_rows):
            if places[row] + 1 < num_corners[row]:
                start, end = corners[row, places[row]], corners[row, places[row] + 1]
                rate = (savings[row, end] - savings[row, start]) / (end - start)
                if rate > best_rate:
                    chosen, best_rate = row, rate
        if chosen < 0:
            return
        start = corners[chosen, places[chosen]]
        places[chosen] += 1
        end = corners[chosen, places[chosen]]
        num_given += end - start
        saved += savings[chosen, end] - savings[chosen, start]
        gain = saved - (costs[num_given] - costs[0])
        if gain > best_gain:
            best_gain = gain
            for row in range(num_rows):
                lengths[row] = corners[row, places[row]]
