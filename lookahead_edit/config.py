"""Configuration: frozen dataclasses, each default once, units in the names. Unknown options raise TypeError.

Command line and server read their defaults here (``default=ServerConfig.port``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral

from lookahead_edit.types import InvalidInput


def _require(condition: bool, param: str, expected: str, got: object) -> None:
    if not condition:
        raise InvalidInput(f"expected {param} {expected}, got {got!r}", param=param)


@dataclass(frozen=True)
class SamplingConfig:
    """How a token is chosen from the target's logits. Temperature 0 is greedy.

    Order: logit bias, repetition, presence and frequency penalty, temperature, top-k, top-p, min-p.
    The noise of a position depends on `seed` and the position alone, so drafts never change the text.
    """

    temperature: float = 0.0
    top_k: int = 0  # 0: off
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("temperature", "top_p", "min_p", "repetition_penalty"):
            value = getattr(self, name)
            _require(math.isfinite(value), name, "to be a finite number", value)
        _require(0.0 <= self.temperature <= 100.0, "temperature", "between 0 and 100", self.temperature)
        _require(self.top_k >= 0, "top_k", "of at least 0", self.top_k)
        _require(0.0 < self.top_p <= 1.0, "top_p", "above 0 and at most 1", self.top_p)
        _require(0.0 <= self.min_p <= 1.0, "min_p", "between 0 and 1", self.min_p)
        _require(self.repetition_penalty > 0.0, "repetition_penalty", "above 0", self.repetition_penalty)
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            _require(-2.0 <= value <= 2.0, name, "between -2 and 2", value)
        _require(0 <= self.seed < 2**64, "seed", "between 0 and 2**64 - 1", self.seed)

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def has_penalties(self) -> bool:
        """Whether the choice at a position depends on the tokens before it."""
        return (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1.0, 0.0, 0.0)


@dataclass(frozen=True)
class SpeculationConfig:
    """What drafts, and how far. `policy` is a key of `lookahead_edit.policy.POLICIES`."""

    enabled: bool = True
    drafter: str = "edit"
    policy: str = "cost"
    max_draft_tokens: int | None = None  # None: `draft_limit` says
    min_match_length: int = 2  # tokens of the tail that must agree before anything is drafted
    draft_tokens_per_match: float = 4.0  # the match-length policy keeps this many for each matching token
    # The cost policy's, where the target knows no better: what a further token costs, in forward passes.
    cost_ratio: float = 0.01

    def __post_init__(self) -> None:
        _require(
            self.max_draft_tokens is None
            or (isinstance(self.max_draft_tokens, Integral) and 0 <= self.max_draft_tokens <= 4096),
            "max_draft_tokens",
            "to be a whole number between 0 and 4096",
            self.max_draft_tokens,
        )
        _require(
            isinstance(self.min_match_length, Integral) and self.min_match_length >= 1,
            "min_match_length",
            "to be a whole number of at least 1",
            self.min_match_length,
        )
        _require(
            0.0 < self.draft_tokens_per_match < math.inf,
            "draft_tokens_per_match",
            "above 0 and finite",
            self.draft_tokens_per_match,
        )
        _require(0.0 <= self.cost_ratio < math.inf, "cost_ratio", "of at least 0 and finite", self.cost_ratio)

    @property
    def draft_limit(self) -> int:
        """`max_draft_tokens`, where it isn't given 64; 512 with the cost policy, which knows when to stop before."""
        if self.max_draft_tokens is not None:
            return self.max_draft_tokens
        return 512 if self.policy == "cost" else 64


@dataclass(frozen=True)
class EditConfig:
    """The edit task: how much output an edit may take when the caller doesn't say."""

    output_tokens_per_region_token: float = 1.5
    extra_output_tokens: int = 512
    num_context_lines: int = 20  # lines shown before and after a range


@dataclass(frozen=True)
class TargetConfig:
    """How the target reads tokens that are not drafts."""

    prefill_chunk_tokens: int = 512
    # Where recurrent states were put back, this many accepted tokens are read again inside the next block.
    max_replayed_tokens: int = 32


@dataclass(frozen=True)
class ServerConfig:
    """The HTTP server's limits."""

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    max_body_bytes: int = 16 * 1024 * 1024
    max_queued_requests: int = 64
    grace_seconds: float = 30.0
    ping_seconds: float = 10.0
    cors_origins: tuple[str, ...] = field(default=())
