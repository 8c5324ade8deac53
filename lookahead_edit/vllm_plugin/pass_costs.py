"""What a pass costs, measured on the passes that the engine does anyway. Pure; no clock.

Why not before the first request: an engine's pass has no seam of its own, and what counts is the whole step, with
scheduling, sampling and the copies between processes, under the load it has to carry.
"""

from __future__ import annotations

from collections import deque
from statistics import median

from lookahead_edit.cost import CostCurve

MIN_PASSES = 4  # of a size, before it counts
MAX_PASSES = 64  # of a size that are remembered
MIN_SPREAD = 4.0  # between the smallest and the largest size, before there is a curve
MIN_SHARE = 0.2  # of the smallest measured pass, for a pass of one token where none was seen
FIRST_REVIEW = 64  # passes, and then after twice as many each time
MAX_PASSES_BETWEEN_REVIEWS = 4096
MIN_CHANGE = 0.15  # of a cost, compared with the smallest pass's; less is noise and changes nothing


class PassCosts:
    """Medians of seconds by the number of tokens in a pass, in classes an octave wide.

    The tokens of a pass are packed, so one number tells its size: rows and drafted tokens together.

    Example: passes of 1 token take 10 ms, of 16 to 31 tokens 12 ms, of 40 tokens 16 ms: the curve has these points.
    """

    def __init__(self) -> None:
        self._classes: dict[int, deque[tuple[int, float]]] = {}
        self._num_passes = 0
        self._next_review = FIRST_REVIEW
        self._curve: CostCurve | None = None

    def observe(self, num_tokens: int, seconds: float) -> CostCurve | None:
        """Hears of a pass; a curve wherever one is first known, or has changed."""
        passes = self._classes.setdefault(num_tokens.bit_length(), deque(maxlen=MAX_PASSES))
        passes.append((num_tokens, seconds))
        self._num_passes += 1
        if self._num_passes < self._next_review:
            return None
        self._next_review += min(self._next_review, MAX_PASSES_BETWEEN_REVIEWS)
        curve = self._measure()
        if curve is None or (self._curve is not None and not _differ(self._curve, curve)):
            return None
        self._curve = curve
        return curve

    def _measure(self) -> CostCurve | None:
        points = []
        for _, passes in sorted(self._classes.items()):
            if len(passes) >= MIN_PASSES:
                # The median pass by its seconds: its own size, not the class's middle, goes with its cost.
                points.append((median(size for size, _ in passes), median(seconds for _, seconds in passes)))
        if len(points) < 2 or points[-1][0] < MIN_SPREAD * points[0][0]:
            return None
        widths, costs = [round(size) for size, _ in points], [cost for _, cost in points]
        if widths[0] > 1:  # smaller passes were never seen: the line through the smallest two goes on
            slope = (costs[1] - costs[0]) / (widths[1] - widths[0])
            smallest = min(max(costs[0] - slope * (widths[0] - 1), MIN_SHARE * costs[0]), costs[0])
            widths, costs = [1, *widths], [smallest, *costs]
        return CostCurve(widths=tuple(widths), costs=(tuple(costs),))


def _differ(old: CostCurve, new: CostCurve) -> bool:
    most = max(old.widths[-1], new.widths[-1])
    before, after = old.values(1, most), new.values(1, most)
    return bool((abs(after / after[0] - before / before[0]) > MIN_CHANGE).any())
