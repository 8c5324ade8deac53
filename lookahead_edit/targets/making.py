"""From a TargetConfig to the target it asks for."""

from __future__ import annotations

from collections.abc import Callable

from transformers import PreTrainedModel

from lookahead_edit.config import TargetConfig
from lookahead_edit.targets.calibration import stored_curve
from lookahead_edit.targets.hf import HfTarget
from lookahead_edit.targets.static import StaticTarget
from lookahead_edit.types import Row
from lookahead_edit.verify import Sampler


def make_target(
    model: PreTrainedModel, config: TargetConfig | None = None, *, open_sampler: Callable[[Row], Sampler] | None = None
) -> HfTarget:
    """A target of the configured kind, with the cost of its passes where that was measured here.

    Args:
        model: a causal language model, in eval mode.
        config: dynamic by default.
        open_sampler: the sampler of a new row; by default what its SamplingConfig says.

    Raises:
        UnsupportedModel: the model can't be verified exactly in this way.
    """
    config = config or TargetConfig()
    curve = stored_curve(model, config)
    if config.kind == "dynamic":
        return HfTarget(model, config, open_sampler=open_sampler, cost_curve=curve)
    # What a dynamic target's passes cost is the next best guess.
    other_curve = stored_curve(model) if curve is None else None
    return StaticTarget(model, config, open_sampler=open_sampler, cost_curve=curve, dynamic_cost_curve=other_curve)
