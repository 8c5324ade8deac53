"""A small stock ledger for a repair shop: parts come in, parts go out, and somebody has to reorder."""

from dataclasses import dataclass, field
from datetime import date

REORDER_LEVEL = 12
MAX_ORDER_UNITS = 500


@dataclass
class Part:
    """One kind of part on the shelf."""

    number: str
    name: str
    price: float
    units: int = 0


@dataclass
class Movement:
    """Units that came in (positive) or went out (negative)."""

    part_number: str
    units: int
    day: date
    note: str = ""


@dataclass
class Ledger:
    """All parts, and everything that happened to them."""

    parts: dict[str, Part] = field(default_factory=dict)
    movements: list[Movement] = field(default_factory=list)

    def add_part(self, part: Part) -> None:
        """Puts a new kind of part on the shelf."""
        if part.number in self.parts:
            raise ValueError(f"part {part.number} exists already")
        self.parts[part.number] = part

    def move(self, part_number: str, units: int, day: date, note: str = "") -> None:
        """Records units that came in or went out."""
        part = self.parts[part_number]
        if part.units + units < 0:
            raise ValueError(f"only {part.units} units of {part.name} are left")
        part.units += units
        self.movements.append(Movement(part_number, units, day, note))

    def value(self) -> float:
        """What everything on the shelf cost."""
        return sum(part.price * part.units for part in self.parts.values())

    def to_reorder(self) -> list[Part]:
        """Parts that run out soon, the scarcest first."""
        low = [part for part in self.parts.values() if part.units < REORDER_LEVEL]
        return sorted(low, key=lambda part: part.units)


def order_units(part: Part) -> int:
    """How many units to order so that the shelf is full again."""
    missing = 3 * REORDER_LEVEL - part.units
    return max(0, min(missing, MAX_ORDER_UNITS))


def report(ledger: Ledger) -> str:
    """One line a part, and the total below."""
    lines = []
    for part in sorted(ledger.parts.values(), key=lambda part: part.name):
        lines.append(f"{part.name:<24} {part.units:>5} x {part.price:>8.2f}")
    lines.append(f"{'total':<24} {ledger.value():>17.2f}")
    return "\n".join(lines)
