"""What is audited by default: short edits, whose texts copy, change and go on."""

from __future__ import annotations

from lookahead_edit.tasks import EditRequest

_STOCK = """\
import csv


class Stock:
    def __init__(self):
        self.counts = {}

    def add(self, name, count):
        if count <= 0:
            raise ValueError("count must be positive")
        self.counts[name] = self.counts.get(name, 0) + count

    def remove(self, name, count):
        if self.counts.get(name, 0) < count:
            raise KeyError(name)
        self.counts[name] -= count

    def total(self):
        return sum(self.counts.values())


def load(path):
    stock = Stock()
    with open(path, newline="") as file:
        for row in csv.reader(file):
            stock.add(row[0], int(row[1]))
    return stock
"""
_SETTINGS = """\
[server]
host = "127.0.0.1"
port = 8080
workers = 4

[database]
host = "localhost"
port = 5432
name = "orders"
"""
_CLOCK = """\
export function format(seconds) {
  const minutes = Math.floor(seconds / 60);
  const rest = seconds % 60;
  return `${minutes}:${String(rest).padStart(2, "0")}`;
}

export function parse(text) {
  const [minutes, rest] = text.split(":");
  return Number(minutes) * 60 + Number(rest);
}
"""

SAMPLES = (
    EditRequest(_STOCK, instruction="Rename the method total to num_items.", path="stock.py"),
    EditRequest(_SETTINGS, instruction="Change the server's port to 9090.", path="settings.toml"),
    EditRequest(_CLOCK, instruction="Add a comment above each function.", path="clock.js"),
)
