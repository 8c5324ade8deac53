"""What a figure was measured on. Names no machine and no user."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("torch", "transformers", "numba", "numpy")


def environment() -> dict[str, Any]:
    """Processor, cores, threads, device, Python and package versions."""
    facts: dict[str, Any] = {
        "cpu": processor_name(),
        "num_cpus": os.cpu_count(),
        "num_threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": platform.system(),
        "python": platform.python_version(),
    }
    return facts | {package: version(package) for package in PACKAGES}


def processor_name() -> str:
    """As the kernel calls it; `platform` knows only the architecture on Linux."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def load_average() -> float | None:
    """Processes that want a core, over the last minute; the measuring one is among them. None where unknown."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
