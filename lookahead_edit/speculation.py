"""From a SpeculationConfig to a fresh drafter and policy; the border where unknown names are refused."""

from __future__ import annotations

from collections.abc import Mapping

from lookahead_edit.config import SpeculationConfig
from lookahead_edit.cost import CostCurve
from lookahead_edit.drafters import DRAFTERS
from lookahead_edit.policy import POLICIES
from lookahead_edit.types import Drafter, InvalidInput, Policy, Target, Tokenizer


def check_speculation(config: SpeculationConfig) -> None:
    """Raises InvalidInput for a drafter or policy of an unknown name."""
    _check_name("drafter", config.drafter, DRAFTERS)
    _check_name("policy", config.policy, POLICIES)


def make_drafter(config: SpeculationConfig, tokenizer: Tokenizer | None = None) -> Drafter:
    """A fresh drafter for one sequence; one that never drafts where speculation is off."""
    check_speculation(config)
    return DRAFTERS[config.drafter if config.enabled else "none"](config, tokenizer)


def make_policy(config: SpeculationConfig, cost_curve: CostCurve | None = None) -> Policy:
    """A fresh policy of that name. Only "cost" asks for the curve; without one it takes `config.cost_ratio`."""
    check_speculation(config)
    return POLICIES[config.policy](config, cost_curve)


def cost_curve_of(target: Target) -> CostCurve | None:
    """What the target says a pass costs, in its attribute `cost_curve`; None for one that has no such attribute."""
    curve: CostCurve | None = getattr(target, "cost_curve", None)
    return curve


def _check_name(param: str, name: str, known: Mapping[str, object]) -> None:
    if name not in known:
        raise InvalidInput(f"expected {param} to be one of {', '.join(sorted(known))}, got {name!r}", param=param)
