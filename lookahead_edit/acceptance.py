"""The acceptance model: how likely a drafted token is accepted, learned from recorded edits, not from the model.

Knows no request; `corpora/acceptance` says what it was learned from and how well it holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from lookahead_edit.kernels.acceptance import NUM_TAIL_ENTRIES, Columns, Floats

FILE = "acceptance.npz"


@dataclass(frozen=True, slots=True)
class AcceptanceModel:
    """Trees for the first token of a copy, log odds for the ones after it; see `kernels.acceptance` for the arrays."""

    columns: Columns  # uint8[num_trees, 2**depth - 1]
    thresholds: Floats  # float32[num_trees, 2**depth - 1]
    leaves: Floats  # float32[num_trees, 2**depth]
    tail_log_odds: Floats  # float32[NUM_TAIL_ENTRIES]
    tail_odds: NDArray[np.float64] = field(init=False)  # the same as factors

    def __post_init__(self) -> None:
        num_trees, num_leaves = self.leaves.shape
        assert num_leaves.bit_count() == 1
        assert self.columns.shape == self.thresholds.shape == (num_trees, num_leaves - 1)
        assert self.tail_log_odds.shape == (NUM_TAIL_ENTRIES,)
        object.__setattr__(self, "tail_odds", np.exp(self.tail_log_odds.astype(np.float64)))


@cache
def acceptance_model() -> AcceptanceModel:
    """The one that comes with the package."""
    with files("lookahead_edit.data").joinpath(FILE).open("rb") as file, np.load(file) as arrays:
        return AcceptanceModel(**{name: np.ascontiguousarray(arrays[name]) for name in arrays.files})
