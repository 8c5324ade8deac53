"""How guesses of each type fared in this request, against what was expected of them.

Knows no tokens: trees (`acceptance`) that have never seen a thousand equal tokens in a row, or a cursor that is wrong a
thousand times, go on saying what they said; this learns within some rounds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

DECAY = 0.98  # of older guesses with each further one of the type: the last 50 count
PRIOR_GUESSES = 4.0  # right ones, and as many wrong ones, that turned out as expected


class TrackRecord:
    """For each type of guess, by how much the odds of its first token are to be multiplied.

    With n guesses, r of them right where e were expected, that is ``(r + 4) (n - e + 4) / ((e + 4) (n - r + 4))``, the
    ratio of the odds observed to those expected, drawn towards 1. Sums are decayed.

    `odds` is float64[num_types].

    Example:
        >>> record = TrackRecord(2)
        >>> record.observe(0, 0.5, False)
        >>> record.odds.round(2).tolist()
        [0.8, 1.0]
    """

    def __init__(self, num_types: int) -> None:
        self.odds: NDArray[np.float64] = np.ones(num_types)
        self._sums = [(0.0, 0.0, 0.0)] * num_types  # guesses, expected to be right, right

    def observe(self, kind: int, probability: float, is_right: bool) -> None:
        """A guess that was thought right with this probability, `odds` included, was right or wrong."""
        odds = float(self.odds[kind])
        expected_share = probability / (probability + odds * (1.0 - probability))
        number, expected, right = (DECAY * each for each in self._sums[kind])
        number, expected, right = number + 1.0, expected + expected_share, right + is_right
        self._sums[kind] = number, expected, right
        observed_odds = (right + PRIOR_GUESSES) / (number - right + PRIOR_GUESSES)
        self.odds[kind] = observed_odds * (number - expected + PRIOR_GUESSES) / (expected + PRIOR_GUESSES)
