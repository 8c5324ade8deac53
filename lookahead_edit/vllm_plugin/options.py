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
        check_speculation(self.speculation)
        for name in ("max_workspace_tokens", "max_indexed_tokens_a_step", "max_index_bytes"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise InvalidInput(f"expected {SECTION}.{name} to be a whole number of at least 1, got {value!r}")

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
        section = additional_config.get(SECTION, {}) if isinstance(additional_config, Mapping) else {}
        if not isinstance(section, Mapping):
            raise InvalidInput(f"expected additional_config.{SECTION} to be an object, got {type(section).__name__}")
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(section) - known):
            raise InvalidInput(f"expected {SECTION} to have only {', '.join(sorted(known))}, got {', '.join(unknown)}")
        given: dict[str, Any] = dict(section)
        if given.get("cost_curve") is not None:
            given["cost_curve"] = CostCurve.from_json(given["cost_curve"])
        paths = given.get("workspace", ())
        if isinstance(paths, str) or not all(isinstance(path, str) for path in paths):
            raise InvalidInput(f"expected {SECTION}.workspace to be a list of paths, got {paths!r}")
        given["workspace"] = tuple(paths)
        return cls(**given)


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
