"""From a SpeculationConfig to a fresh drafter and policy; the border where unknown names are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias

from lookahead_edit.config import SamplingConfig, SpeculationConfig
from lookahead_edit.cost import CostCurve
from lookahead_edit.drafters import DRAFTERS
from lookahead_edit.policy import POLICIES
from lookahead_edit.types import Drafter, InvalidInput, Policy, Target, Tokenizer


class DrafterMaker(Protocol):
    """Makes a fresh drafter for one sequence, of a kind that needs more than a configuration: a model, for one."""

    def __call__(self, config: SpeculationConfig, tokenizer: Tokenizer | None, sampling: SamplingConfig) -> Drafter:
        """`sampling` is the sequence's; a drafter that samples does so by the same rules."""


DrafterMakers: TypeAlias = Mapping[str, DrafterMaker]
NO_DRAFTER_MAKERS: DrafterMakers = {}


def check_speculation(config: SpeculationConfig, makers: DrafterMakers = NO_DRAFTER_MAKERS) -> None:
    """Raises InvalidInput for a drafter or policy of an unknown name; `makers` has drafters beside the usual ones."""
    _check_name("drafter", config.drafter, {**DRAFTERS, **makers})
    _check_name("policy", config.policy, POLICIES)


def make_drafter(
    config: SpeculationConfig,
    tokenizer: Tokenizer | None = None,
    sampling: SamplingConfig | None = None,
    makers: DrafterMakers = NO_DRAFTER_MAKERS,
) -> Drafter:
    """A fresh drafter for one sequence; one that never drafts where speculation is off."""
    check_speculation(config, makers)
    if config.enabled and config.drafter in makers:
        return makers[config.drafter](config, tokenizer, sampling or SamplingConfig())
    return DRAFTERS[config.drafter if config.enabled else "none"](config, tokenizer)


def make_policy(config: SpeculationConfig, cost_curve: CostCurve | None = None) -> Policy:
    """A fresh policy of that name. Only "cost" asks for the curve; without one it takes `config.cost_ratio`."""
    _check_name("policy", config.policy, POLICIES)
    return POLICIES[config.policy](config, cost_curve)


def cost_curve_of(target: Target) -> CostCurve | None:
    """What the target says a pass costs, in its attribute `cost_curve`; None for one that has no such attribute."""
    curve: CostCurve | None = getattr(target, "cost_curve", None)
    return curve


def _check_name(param: str, name: str, known: Mapping[str, object]) -> None:
    if name not in known:
        raise InvalidInput(f"expected {param} to be one of {', '.join(sorted(known))}, got {name!r}", param=param)
