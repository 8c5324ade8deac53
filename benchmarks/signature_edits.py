"""Edits of signatures, imports and first lines in the Python samples."""

from __future__ import annotations

from benchmarks.bench_edit import BenchEdit, edit

SIGNATURE_EDITS: tuple[BenchEdit, ...] = (
    edit(
        "retry-parameter",
        "parameter",
        "retry.py",
        "Add a parameter offset=0 to wait_before.",
        ("wait_before(attempt: int)", "wait_before(attempt: int, offset=0)"),
    ),
    edit(
        "retry-last-parameter",
        "parameter",
        "retry.py",
        "Give fetch_all a new last parameter limit with default None.",
        ("urls: list[str])", "urls: list[str], limit=None)"),
    ),
    edit(
        "retry-import",
        "add import",
        "retry.py",
        "Add `import logging`.",
        ("import random", "import logging\nimport random"),
    ),
    edit(
        "retry-first-line",
        "add line",
        "retry.py",
        'Insert `print("fetch called")` as the first line of fetch.',
        ("def fetch(url: str) -> bytes:\n", 'def fetch(url: str) -> bytes:\n    print("fetch called")\n'),
    ),
    edit(
        "orders-parameter",
        "parameter",
        "orders.py",
        "Add a parameter limit=None to print_order.",
        ("print_order(order: Order)", "print_order(order: Order, limit=None)"),
    ),
    edit(
        "orders-method-parameter",
        "parameter",
        "orders.py",
        "Add a parameter notify=False to clear.",
        ("def clear(self)", "def clear(self, notify=False)"),
    ),
    edit(
        "words-last-parameter",
        "parameter",
        "word_counts.py",
        "Add a parameter limit=0 to average_length.",
        ("def average_length(path)", "def average_length(path, limit=0)"),
    ),
    edit(
        "words-default",
        "parameter",
        "word_counts.py",
        "Add a parameter default=None to longest_word.",
        ("def longest_word(path)", "def longest_word(path, default=None)"),
    ),
    edit(
        "mailbox-parameter",
        "parameter",
        "mailbox.py",
        "Add a parameter count=None to read.",
        ("def read(self)", "def read(self, count=None)"),
    ),
    edit(
        "mailbox-search-parameter",
        "parameter",
        "mailbox.py",
        "Give search a new last parameter limit with default 0.",
        ("def search(self, word)", "def search(self, word, limit=0)"),
    ),
    edit("server-port", "set a key", "server.ini", "Set port to 8443.", ("port=9000", "port=8443")),
    edit("server-pool", "set a key", "server.ini", "Change pool from 4 to 12.", ("pool=4", "pool=12")),
)
