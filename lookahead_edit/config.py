"""Configuration: frozen dataclasses, each default once, units in the names. Unknown options raise TypeError.

Command line and server read their defaults here (``default=ServerConfig.port``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from numbers import Integral
from typing import Literal

from lookahead_edit.types import InvalidInput


def _require(condition: bool, param: str, expected: str, got: object) -> None:
    if not condition:
        raise InvalidInput(f"expected {param} {expected}, got {got!r}", param=param)


MIN_TEMPERATURE = 1e-30  # divided by less, logits leave the range of float32
MAX_COST_RATIO = 1000.0  # forward passes; no token costs nearly as much


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
        is_usable = self.temperature == 0.0 or self.temperature >= MIN_TEMPERATURE
        _require(is_usable, "temperature", f"to be 0 or at least {MIN_TEMPERATURE:g}", self.temperature)
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
    min_prediction_tokens: int = 32  # shorter predictions of a generated text don't pay and are not used
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
        _require(0.0 <= self.cost_ratio <= MAX_COST_RATIO, "cost_ratio", f"of 0 to {MAX_COST_RATIO:g}", self.cost_ratio)

    @property
    def draft_limit(self) -> int:
        """`max_draft_tokens`, where it isn't given 64; 512 with the cost policy, which knows when to stop before."""
        if self.max_draft_tokens is not None:
            return self.max_draft_tokens
        return 512 if self.policy == "cost" else 64


@dataclass(frozen=True)
class EditConfig:
    """The edit task: how it is asked for, and how much output it may take when the caller doesn't say."""

    # Whether the instruction stands behind the file. The edit adapter of the default model learned it before the file;
    # behind it, more of a session's next prompt begins as the last one did, and need not be read again.
    file_first: bool = False

    output_tokens_per_region_token: float = 1.5
    extra_output_tokens: int = 512
    num_context_lines: int = 20  # lines shown before and after a range
    # Files that are only drafted from; what is beyond these is left out, which changes no text.
    max_context_files: int = 1000
    max_context_characters: int = 2**20  # of all of them together


@dataclass(frozen=True)
class AdviseConfig:
    """What `advise` compares, and what it calls a gain."""

    drafters: tuple[str, ...] = ("edit", "suffix", "ngram")
    lengths: tuple[int, ...] = (4, 16, 64)  # fixed ones, beside auto
    batch_sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    min_gain: float = 1.02  # times as fast; less isn't worth the trouble, nor told from noise


TARGET_KINDS = ("dynamic", "static", "deterministic")


@dataclass(frozen=True)
class TargetConfig:
    """How the target reads tokens that are not drafts, and what it keeps of rows that are finished."""

    # Read in one round at most, for all rows together, so that nobody waits longer for a long prompt to be read.
    prefill_chunk_tokens: int = 512
    # The same where other rows decode meanwhile: their round is longer by that much (0.5 s on 2 CPU cores).
    shared_prefill_chunk_tokens: int = 128
    max_pass_tokens: int = 4096  # packed into one pass at most, which bounds its memory
    max_prefix_cache_bytes: int = 512 * 1024 * 1024  # of finished rows' keys and values; 0 keeps none
    # Where recurrent states were put back, this many accepted tokens are read again inside the next block.
    max_replayed_tokens: int = 32
    # "static": buffers that stay where they are; on a GPU passes of these widths, compiled and recorded.
    # "deterministic": the same with one width, so that logits are the same bits whatever is drafted.
    kind: Literal["dynamic", "static", "deterministic"] = "dynamic"
    widths: tuple[int, ...] = (1, 8, 16, 32, 64, 128)
    deterministic_width: int = 32
    compiles: bool | None = None  # passes of a static target; None: on a GPU

    def __post_init__(self) -> None:
        _require(self.kind in TARGET_KINDS, "target", f"to be one of {', '.join(TARGET_KINDS)}", self.kind)
        for name in ("prefill_chunk_tokens", "shared_prefill_chunk_tokens", "max_pass_tokens"):
            _require(getattr(self, name) >= 1, name, "of at least 1", getattr(self, name))
        is_rising = all(first < second for first, second in pairwise((0, *self.widths)))
        _require(is_rising and bool(self.widths), "widths", "to rise from 1 or more", self.widths)
        _require(self.deterministic_width >= 1, "deterministic_width", "of at least 1", self.deterministic_width)

    @property
    def pass_widths(self) -> tuple[int, ...]:
        """Of the passes that verify drafts, where they are fixed."""
        return (self.deterministic_width,) if self.kind == "deterministic" else self.widths


@dataclass(frozen=True)
class RouteConfig:
    """A named way through the server: which requests take it, and what they may ask for.

    A request takes the route that its header `x-lookahead-route` names, else the one that has its model's name, else
    the one with the longest path it begins with. It may ask for less than the route allows, never for more.
    """

    name: str
    models: tuple[str, ...] = ()  # names that clients may give as `model`; the loaded one answers
    paths: tuple[str, ...] = ()  # beginnings of addresses, such as "/v1/edits", with or without "/v1"
    allows_header: bool = True  # whether x-lookahead-route may name it
    drafter: str = SpeculationConfig.drafter  # where the request names none
    max_draft_tokens: int | None = None
    speculation: Literal["auto", "on", "off"] = "auto"  # drafts as far as they pay, always, or never
    max_tokens: int | None = None  # of an answer
    max_context_tokens: int | None = None  # prompt and answer together, where the model would take more
    timeout_seconds: float | None = None  # from the arrival to the whole answer
    priority: int = 0  # higher ones leave the queue first

    def __post_init__(self) -> None:
        _require(_ROUTE_NAME.fullmatch(self.name) is not None, "name", "of letters, digits, ., _ and -", self.name)
        for model in self.models:
            _require(model.strip() == model != "", "models", "to be names without blanks at their ends", model)
        for path in self.paths:
            _require(path.startswith("/") and not path.endswith("/"), "paths", 'like "/v1/edits"', path)
        # One spelling, or "/edits" would be another path than "/v1/edits" here and the same one to the server.
        object.__setattr__(self, "paths", tuple(map(_with_version, self.paths)))
        _require(self.speculation in ("auto", "on", "off"), "speculation", "to be auto, on or off", self.speculation)
        SpeculationConfig(drafter=self.drafter, max_draft_tokens=self.max_draft_tokens)
        for name in ("max_tokens", "max_context_tokens"):
            value = getattr(self, name)
            _require(value is None or value >= 1, name, "of at least 1", value)
        timeout = self.timeout_seconds
        _require(timeout is None or 0.0 < timeout < math.inf, "timeout_seconds", "above 0 and finite", timeout)

    @property
    def speculation_config(self) -> SpeculationConfig:
        """What the route does where a request doesn't say."""
        return SpeculationConfig(
            enabled=self.speculation != "off",
            drafter=self.drafter,
            policy="fixed" if self.speculation == "on" else SpeculationConfig.policy,
            max_draft_tokens=self.max_draft_tokens,
        )


def _with_version(path: str) -> str:
    return path if path == "/v1" or path.startswith("/v1/") else f"/v1{path}"


_ROUTE_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)
_ORIGIN = re.compile(r"\*|null|[A-Za-z][A-Za-z0-9+.-]*://[^\s/]+")  # no path, not even a slash
_HOST = re.compile(r"[\w.-]{1,253}|[0-9a-fA-F:.]{2,45}(?:%[\w.-]+)?")  # a name or IPv4; IPv6, with its zone

# One for each task; routes of the same name in a file take their place.
DEFAULT_ROUTES = (
    RouteConfig("edits", paths=("/v1/edits",)),
    RouteConfig("chat", paths=("/v1/chat",)),
    RouteConfig("completions", paths=("/v1/completions",)),
)


@dataclass(frozen=True)
class DriftConfig:
    """When a route's acceptance counts as changed; docs/metrics.md tells how these were found."""

    num_reference_requests: int = 300  # the first ones, which the later ones are measured by
    min_draft_tokens: int = 32  # smaller requests count together
    slack: float = 0.5  # changes of less than twice this, in standard deviations of a request, are found late or never
    threshold: float = 12.0  # standard deviations, for requests that are independent of each other
    min_change: float = 0.05  # of the acceptance rate; less is no drift
    max_lag_requests: int = 20  # requests further apart are taken for independent
    num_adopting_requests: int = 5000  # a drift that lasts so long becomes the reference

    def __post_init__(self) -> None:
        for name in ("num_reference_requests", "min_draft_tokens", "max_lag_requests", "num_adopting_requests"):
            _require(getattr(self, name) >= 1, name, "of at least 1", getattr(self, name))
        for name in ("slack", "threshold", "min_change"):
            value = getattr(self, name)
            _require(0.0 <= value < math.inf, name, "of at least 0 and finite", value)


@dataclass(frozen=True)
class ServerConfig:
    """The HTTP server's limits and routes."""

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    max_body_bytes: int = 16 * 1024 * 1024
    header_seconds: float = 20.0  # from a connection, or a request's first byte, to the end of its headers
    body_seconds: float = 60.0  # from a request's headers to the end of its body
    stalled_seconds: float = 60.0  # that a client may read nothing of an answer that waits for it
    max_queued_requests: int = 64
    max_batch_size: int = 8  # requests that run together
    grace_seconds: float = 30.0
    ping_seconds: float = 10.0
    trace_log: str | None = None  # a file that prompts and answers are appended to, for replay
    max_trace_log_bytes: int = 1 << 30
    cors_origins: tuple[str, ...] = field(default=())
    routes: tuple[RouteConfig, ...] = field(default=DEFAULT_ROUTES)
    drift: DriftConfig = field(default=DriftConfig())

    def __post_init__(self) -> None:
        # An unset variable of the shell must not open the server, and no header can carry blanks at a key's ends.
        if self.api_key is not None and (not self.api_key or self.api_key.strip() != self.api_key):
            got = "one with blanks" if self.api_key else "an empty one"
            raise InvalidInput(
                f"expected api_key not to be empty, nor to begin or end with blanks, got {got}", param="api_key"
            )
        # An empty one would listen everywhere.
        _require(_HOST.fullmatch(self.host) is not None, "host", "to be an address or a host's name", self.host)
        _require(0 <= self.port <= 65535, "port", "between 0 and 65535", self.port)
        _require(self.max_body_bytes >= 1, "max_body_bytes", "of at least 1", self.max_body_bytes)
        _require(self.max_trace_log_bytes >= 1, "max_trace_log_bytes", "of at least 1", self.max_trace_log_bytes)
        _require(self.max_queued_requests >= 0, "max_queued_requests", "of at least 0", self.max_queued_requests)
        _require(self.max_batch_size >= 1, "max_batch_size", "of at least 1", self.max_batch_size)
        _require(0.0 <= self.grace_seconds < math.inf, "grace_seconds", "of at least 0", self.grace_seconds)
        for name in ("ping_seconds", "header_seconds", "body_seconds", "stalled_seconds"):
            value = getattr(self, name)
            _require(0.0 < value < math.inf, name, "above 0", value)
        for origin in self.cors_origins:
            _require(_ORIGIN.fullmatch(origin) is not None, "cors_origins", 'like "https://a.example" or "*"', origin)
        for what in ("name", "models", "paths"):
            values = [getattr(route, what) for route in self.routes]
            listed = values if what == "name" else [each for value in values for each in value]
            twice = sorted({each for each in listed if listed.count(each) > 1})
            _require(not twice, f"routes.{what}", "to stand once, and in one route", twice)
