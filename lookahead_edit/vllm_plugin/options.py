"""What the proposer is told, and what it refuses to run with. Imports nothing of vLLM."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from lookahead_edit.config import SpeculationConfig
from lookahead_edit.cost import CPU_CURVE, CostCurve
from lookahead_edit.speculation import check_speculation
from lookahead_edit.types import InvalidInput

TESTED_VERSIONS = ("0.32",)
ENGINE_MAX_DRAFT_TOKENS = 128  # a longer draft ends vLLM's process: its rejection sampler asserts so
SECTION = "lookahead_edit"  # of vLLM's `additional_config`


@dataclass(frozen=True)
class ProposerOptions:
    """``additional_config={"lookahead_edit": {...}}``, every entry optional.

    Example:
        >>> ProposerOptions.of({"lookahead_edit": {"workspace": ["src"]}}).workspace
        ('src',)
    """

    drafter: str = SpeculationConfig.drafter
    policy: str = SpeculationConfig.policy
    # What a further token costs in a pass, until it is measured; None: by what the engine runs on.
    cost_ratio: float | None = None
    cost_curve: CostCurve | None = None  # given: nothing is measured
    workspace: tuple[str, ...] = ()  # files and folders that all requests may copy from
    max_workspace_tokens: int = 1_000_000
    max_indexed_tokens_a_step: int = 8192  # of all prompts together: 2 to 5 ms
    max_index_bytes: int = 2 * 2**30  # of all rows together; rows that don't fit draft nothing until others leave
    request_options: bool = True  # whether requests may say something in `vllm_xargs`

    def __post_init__(self) -> None:
        for name in ("drafter", "policy"):
            _require(isinstance(getattr(self, name), str), name, "a name", getattr(self, name))
        is_number = isinstance(self.cost_ratio, int | float) and not isinstance(self.cost_ratio, bool)
        _require(self.cost_ratio is None or is_number, "cost_ratio", "a number", self.cost_ratio)
        _require(isinstance(self.request_options, bool), "request_options", "true or false", self.request_options)
        for name in ("max_workspace_tokens", "max_indexed_tokens_a_step", "max_index_bytes"):
            value = getattr(self, name)
            _require(is_count(value) and value >= 1, name, "a whole number of at least 1", value)
        check_speculation(self.speculation)

    @property
    def speculation(self) -> SpeculationConfig:
        """The same for the makers of drafters and policies."""
        ratio = SpeculationConfig.cost_ratio if self.cost_ratio is None else self.cost_ratio
        return SpeculationConfig(drafter=self.drafter, policy=self.policy, cost_ratio=ratio)

    def first_curve(self, *, is_on_cpu: bool) -> CostCurve | None:
        """What passes cost as long as nothing is measured; None: as `cost_ratio` says."""
        if self.cost_curve is not None or self.cost_ratio is not None or not is_on_cpu:
            return self.cost_curve
        return CostCurve(CPU_CURVE.widths, CPU_CURVE.costs)

    @classmethod
    def of(cls, additional_config: object) -> ProposerOptions:
        """Reads vLLM's `additional_config`. Raises InvalidInput for an unknown entry or a value that can't be used."""
        whole = {} if additional_config is None else additional_config
        if not isinstance(whole, Mapping):
            raise InvalidInput(f"expected additional_config to be an object, got {type(whole).__name__}")
        if misspelt := [name for name in whole if str(name).startswith("lookahead") and name != SECTION]:
            raise InvalidInput(f"expected the options under additional_config.{SECTION}, got {', '.join(misspelt)}")
        section = whole.get(SECTION, {})
        if not isinstance(section, Mapping):
            raise InvalidInput(f"expected additional_config.{SECTION} to be an object, got {type(section).__name__}")
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(section) - known):
            raise InvalidInput(f"expected {SECTION} to have only {', '.join(sorted(known))}, got {', '.join(unknown)}")
        given: dict[str, Any] = dict(section)
        if given.get("cost_curve") is not None:
            given["cost_curve"] = CostCurve.from_json(given["cost_curve"])
        paths = given.get("workspace", ())
        is_list = isinstance(paths, list | tuple) and all(isinstance(path, str) for path in paths)
        _require(is_list, "workspace", "a list of paths", paths)
        given["workspace"] = tuple(paths)
        return cls(**given)


def is_count(value: object) -> bool:
    """Whether it is a whole number; True and False, which Python takes for 1 and 0, are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def _require(holds: bool, name: str, expected: str, value: object) -> None:
    if not holds:
        raise InvalidInput(f"expected {SECTION}.{name} to be {expected}, got {value!r}")


def check_version(version: str) -> None:
    """Raises InvalidInput for a release of vLLM that this package was not tested with.

    Example:
        >>> check_version("0.32.1+cpu")
    """
    release = re.match(r"\d+\.\d+", version)
    if release is None or release[0] not in TESTED_VERSIONS:
        tested = " or ".join(f"{each}.x" for each in TESTED_VERSIONS)
        raise InvalidInput(f"expected vLLM {tested}, which this release was tested with, got {version}")


def check_lengths(num_draft_tokens: int, max_model_len: int) -> None:
    """Raises InvalidInput where the engine would fail, or could never draft.

    Args:
        num_draft_tokens: the engine's `num_speculative_tokens`.
        max_model_len: its limit for prompt and output together.
    """
    if not 1 <= num_draft_tokens <= ENGINE_MAX_DRAFT_TOKENS:
        raise InvalidInput(
            f"expected num_speculative_tokens between 1 and {ENGINE_MAX_DRAFT_TOKENS}, the most that vLLM verifies, "
            f"got {num_draft_tokens}",
            param="num_speculative_tokens",
        )
    if max_model_len < num_draft_tokens + 2:
        raise InvalidInput(
            f"expected max_model_len to leave room for a prompt, {num_draft_tokens} drafted tokens and one more, "
            f"got {max_model_len}",
            param="max_model_len",
        )
