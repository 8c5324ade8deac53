"""Times what a device does, without waiting for it more often than the work itself has to."""

from __future__ import annotations

import time
from typing import Any

import torch


class PassWatch:
    """Started when made; on a GPU the time between two events in its queue, elsewhere that of the clock.

    On a GPU passes are only queued when a call returns. The events are asked for once the results are read, so that a
    round waits for the device once and not twice.
    """

    def __init__(self, device: torch.device) -> None:
        self._events: tuple[Any, Any] | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.current_stream(device)  # which need not be the current device's
            make: Any = torch.cuda.Event
            self._events = make(enable_timing=True), make(enable_timing=True)
            self._events[0].record(self._stream)
        self._started = time.perf_counter()
        self._stopped = self._started

    def stop(self) -> None:
        """After the last call that queues work."""
        self._stopped = time.perf_counter()
        if self._events is not None:
            self._events[1].record(self._stream)

    def seconds(self) -> float:
        """From start to stop; waits for the device where it has not come so far."""
        if self._events is None:
            return self._stopped - self._started
        self._events[1].synchronize()
        return float(self._events[0].elapsed_time(self._events[1])) / 1000.0
