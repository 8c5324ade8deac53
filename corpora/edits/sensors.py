from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)


class TemperatureSensor:
    unit = "C"

    def __init__(self, device: str, path: Path):
        self.device = device
        self.path = path
        self.last: float | None = None

    def read(self) -> float:
        raw = json.loads(self.path.read_text())
        value = float(raw["temperature"])
        logger.debug("read temperature of %s: %s", self.device, value)
        self.last = value
        return value

    def describe(self) -> dict[str, Any]:
        return {"device": self.device, "unit": self.unit, "last": self.last}


class HumiditySensor:
    unit = "%"

    def __init__(self, device: str, path: Path):
        self.device = device
        self.path = path
        self.last: float | None = None

    def read(self) -> float:
        raw = json.loads(self.path.read_text())
        value = float(raw["humidity"])
        logger.debug("read humidity of %s: %s", self.device, value)
        self.last = value
        return value

    def describe(self) -> dict[str, Any]:
        return {"device": self.device, "unit": self.unit, "last": self.last}


class PressureSensor:
    unit = "hPa"

    def __init__(self, device: str, path: Path):
        self.device = device
        self.path = path
        self.last: float | None = None

    def read(self) -> float:
        raw = json.loads(self.path.read_text())
        value = float(raw["pressure"])
        logger.debug("read pressure of %s: %s", self.device, value)
        self.last = value
        return value

    def describe(self) -> dict[str, Any]:
        return {"device": self.device, "unit": self.unit, "last": self.last}


SENSORS = {
    "temperature": TemperatureSensor,
    "humidity": HumiditySensor,
    "pressure": PressureSensor,
}


def open_sensors(config: dict[str, dict[str, str]]) -> list[Any]:
    sensors = []
    for device, options in config.items():
        factory = SENSORS[options["kind"]]
        sensors.append(factory(device, Path(options["path"])))
    return sensors


def poll(sensors: list[Any]) -> dict[str, float]:
    return {sensor.device: sensor.read() for sensor in sensors}
