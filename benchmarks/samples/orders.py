"""Orders of a small shop: lines, totals and shipping."""

from dataclasses import dataclass, field

FREE_SHIPPING_FROM = 50.0
SHIPPING_COST = 4.5


@dataclass
class OrderLine:
    article: str
    price: float
    quantity: int = 1

    def total(self) -> float:
        return self.price * self.quantity


@dataclass
class Order:
    customer: str
    lines: list[OrderLine] = field(default_factory=list)

    def add(self, article: str, price: float, quantity: int = 1) -> None:
        self.lines.append(OrderLine(article, price, quantity))

    def subtotal(self) -> float:
        return sum(line.total() for line in self.lines)

    def shipping(self) -> float:
        if self.subtotal() >= FREE_SHIPPING_FROM:
            return 0.0
        return SHIPPING_COST

    def clear(self) -> None:
        self.lines = []


def print_order(order: Order) -> None:
    for line in order.lines:
        print(line.article, line.quantity, line.total())
    print("shipping", order.shipping())
