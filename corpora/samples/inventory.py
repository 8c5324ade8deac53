"""A small stock ledger for a repair shop."""

from dataclasses import dataclass, field

REORDER_LEVEL = 12
MAX_ORDER_UNITS = 500


@dataclass
class Part:
    name: str
    price: float
    units: int = 0


@dataclass
class Ledger:
    parts: list[Part] = field(default_factory=list)

    def add(self, part: Part) -> None:
        self.parts.append(part)

    def value(self) -> float:
        """What everything on the shelf cost."""
        return sum(part.price * part.units for part in self.parts)

    def to_reorder(self) -> list[Part]:
        """Parts that run out soon, the scarcest first."""
        low = [part for part in self.parts if part.units < REORDER_LEVEL]
        return sorted(low, key=lambda part: part.units)


def order_units(part: Part) -> int:
    """How many units to order so that the shelf is full again."""
    missing = 3 * REORDER_LEVEL - part.units
    return max(0, min(missing, MAX_ORDER_UNITS))
