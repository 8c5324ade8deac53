const TAX_RATE = 0.19;
const CURRENCY = "EUR";

class Cart {
  constructor(owner) {
    this.owner = owner;
    this.items = [];
    this.coupon = null;
  }

  add(name, price, amount) {
    this.items.push({ name, price, amount });
  }

  remove(name) {
    this.items = this.items.filter((item) => item.name !== name);
  }

  net() {
    let sum = 0;
    for (const item of this.items) {
      sum += item.price * item.amount;
    }
    return sum;
  }

  gross() {
    return this.net() * (1 + TAX_RATE);
  }
}

function formatPrice(value) {
  return value.toFixed(2) + " " + CURRENCY;
}

function printCart(cart) {
  console.log("Cart of", cart.owner);
  for (const item of cart.items) {
    console.log(item.name, formatPrice(item.price));
  }
}

module.exports = { Cart, formatPrice, printCart };
