"""From a SpeculationConfig to a fresh drafter and policy; the border where unknown names are refused."""

from __future__ import annotations

from collections.abc import Mapping

from lookahead_edit.config import SpeculationConfig
from lookahead_edit.drafters import DRAFTERS
from lookahead_edit.policy import POLICIES
from lookahead_edit.types import Drafter, InvalidInput, Policy


def check_speculation(config: SpeculationConfig) -> None:
    """Raises InvalidInput for a drafter or policy of an unknown name."""
    _check_name("drafter", config.drafter, DRAFTERS)
    _check_name("policy", config.policy, POLICIES)


def make_drafter(config: SpeculationConfig) -> Drafter:
    """A fresh drafter for one sequence; one that never drafts where speculation is off."""
    check_speculation(config)
    return DRAFTERS[config.drafter if config.enabled else "none"](config)


def make_policy(config: SpeculationConfig) -> Policy:
    """The policy of that name."""
    check_speculation(config)
    return POLICIES[config.policy](config)


def _check_name(param: str, name: str, known: Mapping[str, object]) -> None:
    if name not in known:
        raise InvalidInput(f"expected {param} to be one of {', '.join(sorted(known))}, got {name!r}", param=param)
