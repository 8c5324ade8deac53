"""A shopping cart with quantity discounts and a coupon."""

from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal

CENT = Decimal("0.01")
BULK_THRESHOLD = 10
BULK_DISCOUNT = Decimal("0.05")


@dataclass
class Item:
    sku: str
    title: str
    unit_price: Decimal
    qty: int = 1


@dataclass
class Cart:
    items: list[Item] = field(default_factory=list)
    coupon: str | None = None

    def add(self, sku, title, unit_price, qty=1):
        for item in self.items:
            if item.sku == sku:
                item.qty += qty
                return item
        item = Item(sku, title, Decimal(unit_price), qty)
        self.items.append(item)
        return item

    def remove(self, sku, qty=1):
        for item in self.items:
            if item.sku == sku:
                item.qty -= qty
                if item.qty < 0:
                    self.items.remove(item)
                return
        raise KeyError(sku)

    def line_total(self, item):
        total = item.unit_price * item.qty
        if item.qty >= BULK_THRESHOLD:
            total -= total * BULK_DISCOUNT
        return total.quantize(CENT, ROUND_HALF_UP)

    def subtotal(self):
        return sum((self.line_total(item) for item in self.items), Decimal(0))

    def discount(self, coupons):
        if self.coupon is None:
            return Decimal(0)
        percent = coupons.get(self.coupon)
        if percent is None:
            return Decimal(0)
        return (self.subtotal() * percent / 100).quantize(CENT, ROUND_HALF_UP)

    def total(self, coupons, shipping=Decimal("4.90")):
        subtotal = self.subtotal()
        if subtotal >= 50:
            shipping = Decimal(0)
        return subtotal - self.discount(coupons) + shipping


def format_receipt(cart, coupons):
    lines = []
    for item in cart.items:
        lines.append(f"{item.qty:>3} x {item.title:<30} {cart.line_total(item):>10}")
    lines.append("-" * 47)
    lines.append(f"{'Total':<36} {cart.total(coupons):>10}")
    return "\n".join(lines)
