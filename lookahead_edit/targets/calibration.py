"""Measures what a forward pass of a model costs by its width and batch, and keeps it in the user's cache directory.

What is kept is found again by what the cost depends on: the model's shape, its dtype, the device, the number of threads
and torch's version. The weights themselves don't matter, so a model that was trained on or moved needs no new
measurement. Without a cache directory everything works, only that it is measured anew. The machine's load stands beside
the figures: what was measured on a busy machine is measured again on a quiet one.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lookahead_edit.config import SamplingConfig, TargetConfig
from lookahead_edit.cost import CostCurve
from lookahead_edit.targets.batch_costs import with_batches
from lookahead_edit.targets.hf import HfTarget
from lookahead_edit.targets.roofline import num_parameters
from lookahead_edit.targets.user_paths import cache_directory
from lookahead_edit.types import Draft, IntArray, ModelUnavailable, Row, Target, never

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FORMAT_VERSION = 2  # raise it when what is measured changes
# Most telling first: slow machines get no further than their time allows, and the first four are needed.
WIDTHS = (1, 2, 16, 64, 8, 32, 128, 4, 256)
MIN_WIDTHS = 4
NUM_CONTEXT_TOKENS = 512
MAX_SECONDS = 8.0
MAX_SWEEPS = 9  # over all widths; medians of more hardly change
MIN_SWEEPS = 3  # what a width beyond the first four must leave time for
ROW_KEY = -1  # no sequence has it
# What a configuration says about where the model came from, not about its shape.
ORIGIN_FIELDS = ("_name_or_path", "dtype", "torch_dtype", "transformers_version", "architectures")

Clock = Callable[[], float]


@dataclass(frozen=True)
class MachineLoad:
    """How much else ran while something was measured."""

    average: float  # processes that ran or waited, in the minute before
    num_cores: int

    @property
    def is_busy(self) -> bool:
        """Whether somebody had to wait for a core, so that times are no measure of the machine."""
        return self.average > self.num_cores


def machine_load() -> MachineLoad | None:
    """The present load; None where the system doesn't tell. In a container, of the whole machine: so are the cores."""
    try:
        return MachineLoad(os.getloadavg()[0], os.cpu_count() or 1)
    except (AttributeError, OSError):
        return None


@dataclass(frozen=True)
class Calibration:
    """What was measured or found."""

    curve: CostCurve
    path: Path | None  # where it is stored; None where it could not be
    is_new: bool
    seconds: float  # that it took
    load: MachineLoad | None = None  # just before it was measured; None where that isn't known

    @property
    def is_doubtful(self) -> bool:
        """Whether the machine was busy: it will be measured again when it isn't."""
        return self.load is not None and self.load.is_busy


def calibrate(target: HfTarget, *, force: bool = False, clock: Clock = time.perf_counter) -> Calibration | None:
    """Gives the target its measured cost curve: the stored one, or a new one where there is none or `force` is set.

    One that was measured on a busy machine is measured again, as soon as the machine isn't busy.
    None, and nothing changed, where passes take too long to be measured.
    """
    started = clock()
    path = calibration_path(target.model, target.config)
    curve, load = (None, None) if force else _read(path)
    present_load = machine_load()
    if load is not None and load.is_busy and not (present_load is not None and present_load.is_busy):
        curve = None
    is_new = curve is None
    if curve is None:
        load = present_load
        # A single token is always asked for, also where its pass is padded like any other.
        widths = WIDTHS if target.widths is None else tuple(dict.fromkeys((1, *target.widths)))
        curve = measure_curve(target, shares_passes=False, widths=widths, clock=clock)
        if curve is None:
            return None
        if target.widths is not None:
            curve = curve.padded_to(target.widths)
        if target.packs_rows:
            # A target of its own: its prefix cache takes the context in, whatever the other's may hold.
            curve = with_batches(HfTarget(target.model), curve, clock)
        if not _write(path, target.model, target.config, curve, load):
            path = None
    target.cost_curve = curve
    return Calibration(curve, path, is_new, clock() - started, load)


def stored_curve(model: PreTrainedModel, config: TargetConfig | None = None) -> CostCurve | None:
    """What `calibrate` stored for such a target of this model on this machine; None: nothing, or nothing readable."""
    return _read(calibration_path(model, config))[0]


def calibration_path(model: PreTrainedModel, config: TargetConfig | None = None) -> Path | None:
    """Where the target's curve belongs, whether or not it is there; None on machines without a cache directory."""
    key = json.dumps(_circumstances(model, config or TargetConfig()), sort_keys=True)
    name = hashlib.sha256(key.encode()).hexdigest()[:16]
    try:
        return cache_directory() / "calibration" / f"{name}.json"
    except ModelUnavailable:
        return None


def measure_curve(
    target: Target,
    *,
    shares_passes: bool = True,
    widths: Sequence[int] = WIDTHS,
    max_seconds: float = MAX_SECONDS,
    clock: Clock = time.perf_counter,
) -> CostCurve | None:
    """Times passes with rejected drafts after 512 tokens of context, one row, through `verify` as the engine calls it.

    Every width is passed once to warm up; then all take turns, so that a slow moment of the machine hits them alike,
    and medians are taken. A pass never counts as dearer than as many plain ones, which would do as well. On slow
    machines the context is shorter and widths are left out.

    Args:
        target: what is measured; the row is closed again.
        shares_passes: whether the target verifies the rows of a batch in one pass, which then cost by their tokens.
        widths: rising or not; those that must not be left out come first.
        max_seconds: of the clock; the last pass may end a little later.
        clock: seconds.

    Returns:
        None where not even four widths can be measured in time.
    """
    widths = [width for width in widths if width < target.max_context_tokens]
    probe = _Probe(target, max(widths), clock)
    try:
        probe.read_context(min(NUM_CONTEXT_TOKENS, target.max_context_tokens - max(widths)), max_seconds / 3.0)
        seconds = _measure(probe, widths, max_seconds)
    finally:
        target.close(ROW_KEY)
    if seconds is None:
        return None
    costs = tuple(min(seconds[width], width * seconds[1]) for width in sorted(seconds))
    return CostCurve(widths=tuple(sorted(seconds)), costs=(costs,), shares_passes=shares_passes)


def _measure(probe: _Probe, widths: Sequence[int], max_seconds: float) -> dict[int, float] | None:
    """Width to median seconds."""
    warm_ups: dict[int, float] = {}
    for width in widths:
        # A wider pass than any before costs at most twice as much, unless something is very odd.
        expected = min(
            (warm_ups[other] for other in warm_ups if other > width), default=2.0 * max(warm_ups.values(), default=0.0)
        )
        needed = expected + MIN_SWEEPS * (sum(warm_ups.values()) + expected)
        if probe.elapsed() + (needed if len(warm_ups) >= MIN_WIDTHS else expected) > max_seconds:
            break
        warm_ups[width] = probe.pass_seconds(width)
    measured: dict[int, list[float]] = {width: [] for width in warm_ups}
    for _ in range(MAX_SWEEPS):
        if probe.elapsed() + sum(warm_ups.values()) > max_seconds:
            break
        for width, samples in measured.items():
            samples.append(probe.pass_seconds(width))
    if len(measured) < min(MIN_WIDTHS, len(widths)) or not measured[1]:
        return None
    return {width: statistics.median(samples) for width, samples in measured.items()}


class _Probe:
    """One row of random tokens, and drafts of random tokens for it, which are as good as always rejected."""

    def __init__(self, target: Target, max_width: int, clock: Clock) -> None:
        self._target = target
        self._clock = clock
        self._started = clock()
        generator = np.random.default_rng(0)
        num_tokens = NUM_CONTEXT_TOKENS + max_width
        self._tokens: IntArray = generator.integers(0, target.vocab_size, num_tokens).astype(np.int32)
        self._num_context_tokens = 1

    def elapsed(self) -> float:
        return self._clock() - self._started

    def read_context(self, num_tokens: int, max_seconds: float) -> None:
        """Reads a context of up to so many tokens, in steps of four times as many, while there is time."""
        for length in (num_tokens // 64, num_tokens // 16, num_tokens // 4, num_tokens):
            self._num_context_tokens = max(1, length)
            seconds = self.pass_seconds(1)
            if self.elapsed() + 4.0 * seconds > max_seconds:
                break

    def pass_seconds(self, width: int) -> float:
        drafted = self._tokens[NUM_CONTEXT_TOKENS:][: width - 1]
        row = Row(
            key=ROW_KEY,
            tokens=self._tokens[: self._num_context_tokens],
            num_prompt_tokens=self._num_context_tokens,
            draft=Draft(tokens=drafted, sources=np.zeros(len(drafted), dtype=np.int8)),
            sampling=SamplingConfig(),
            should_stop=lambda tokens: False,
            is_cancelled=never,
        )
        started = self._clock()
        while not len(self._target.verify([row]).tokens[0]):  # a context that takes several rounds to be read
            pass
        return self._clock() - started


def _read(path: Path | None) -> tuple[CostCurve | None, MachineLoad | None]:
    if path is None:
        return None, None
    try:
        document = json.loads(path.read_text("utf-8"))
        load = document.get("load")
        found = None if load is None else MachineLoad(float(load["average"]), int(load["num_cores"]))
        return CostCurve.from_json(document["curve"]), found
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # broken ones are as good as none
        return None, None


def _write(
    path: Path | None, model: PreTrainedModel, config: TargetConfig, curve: CostCurve, load: MachineLoad | None
) -> bool:
    """By one rename, so that it is whole if it exists. Whether it could be written."""
    if path is None:
        return False
    document = {"model": _name(model), **_circumstances(model, config), "curve": curve.to_json()}
    document["load"] = None if load is None else asdict(load)
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".calibration-", dir=path.parent)
        with open(handle, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
        os.replace(temporary, path)
    except OSError:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)
        return False
    return True


def _circumstances(model: PreTrainedModel, config: TargetConfig) -> dict[str, Any]:
    """What the cost of a pass depends on."""
    described = {name: value for name, value in model.config.to_dict().items() if name not in ORIGIN_FIELDS}
    shape = json.dumps(described, sort_keys=True, default=str)
    passes = {} if config.kind == "dynamic" else {"passes": [config.kind, config.compiles, *config.pass_widths]}
    return passes | {
        "version": FORMAT_VERSION,
        "class": type(model).__name__,
        "shape": hashlib.sha256(shape.encode()).hexdigest()[:16],
        "num_parameters": num_parameters(model),
        "attention": str(getattr(model.config, "_attn_implementation", None)),
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": device_name(model.device),
        "num_threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def device_name(device: torch.device) -> str:
    """Such as ``"NVIDIA H200"``, or a CPU's model name."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type != "cpu":
        return device.type
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _name(model: PreTrainedModel) -> str:
    return str(model.config.name_or_path or type(model).__name__)
