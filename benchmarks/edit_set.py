"""The edits that are measured, over sample files written for this."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.bench_edit import BenchEdit, edit
from benchmarks.signature_edits import SIGNATURE_EDITS

EDITS: tuple[BenchEdit, ...] = (
    edit(
        "orders-rename-class",
        "rename",
        "orders.py",
        "Rename OrderLine to Position.",
        ("OrderLine", "Position", 3),
    ),
    edit("orders-number", "change number", "orders.py", "Change SHIPPING_COST to 6.5.", ("COST = 4.5", "COST = 6.5")),
    edit(
        "orders-docstring",
        "docstring",
        "orders.py",
        'Add the docstring "Print one line for each article." to print_order.',
        ("-> None:\n    for line", '-> None:\n    """Print one line for each article."""\n    for line'),
    ),
    edit(
        "orders-remove-method",
        "remove method",
        "orders.py",
        "Remove the method clear.",
        ("\n    def clear(self) -> None:\n        self.lines = []\n", ""),
    ),
    edit(
        "orders-quotes",
        "change string",
        "orders.py",
        'Change the string "shipping" to "delivery".',
        ('"shipping"', '"delivery"'),
    ),
    edit(
        "words-rename-function",
        "rename",
        "word_counts.py",
        "Rename the function read_words to load_words.",
        ("read_words", "load_words", 4),
    ),
    edit("words-number", "change number", "word_counts.py", "Set MAX_WORDS to 50.", ("WORDS = 20", "WORDS = 50")),
    edit(
        "words-add-line",
        "add line",
        "word_counts.py",
        "Add the line `words.sort()` after the line `words = read_words(path)` in count_words.",
        (
            "    words = read_words(path)\n    return Counter",
            "    words = read_words(path)\n    words.sort()\n    return Counter",
        ),
    ),
    edit(
        "words-remove-line",
        "remove line",
        "word_counts.py",
        'Remove the line `print("done")`.',
        ('    print("done")\n', ""),
    ),
    edit(
        "words-import",
        "add import",
        "word_counts.py",
        "Add `import sys` below the line `import re`.",
        ("import re\n", "import re\nimport sys\n"),
    ),
    edit(
        "words-parameter",
        "parameter",
        "word_counts.py",
        'Add the parameter `encoding="utf-8"` to read_words.',
        ("def read_words(path):", 'def read_words(path, encoding="utf-8"):'),
    ),
    edit(
        "mailbox-wrap",
        "wrap",
        "mailbox.py",
        "Wrap the body of read in `if self.messages:`.",
        (
            "        sender, text = self.messages.pop(0)\n        return f",
            "        if self.messages:\n            sender, text = self.messages.pop(0)\n            return f",
        ),
    ),
    edit(
        "mailbox-default",
        "parameter",
        "mailbox.py",
        "Change the default of limit in __init__ to 250.",
        ("limit=100", "limit=250"),
    ),
    edit(
        "mailbox-remove-method",
        "remove method",
        "mailbox.py",
        "Remove the method age.",
        ("    def age(self):\n        return time.time() - self.opened\n\n", ""),
    ),
    edit(
        "mailbox-docstring",
        "docstring",
        "mailbox.py",
        'Add the docstring "Find messages that contain a word." to search.',
        (
            "    def search(self, word):\n",
            '    def search(self, word):\n        """Find messages that contain a word."""\n',
        ),
    ),
    edit(
        "mailbox-rename",
        "rename",
        "mailbox.py",
        "Rename the method deliver to receive.",
        ("def deliver", "def receive"),
    ),
    edit("retry-number", "change number", "retry.py", "Change ATTEMPTS from 3 to 5.", ("= 3\n", "= 5\n")),
    edit(
        "retry-with",
        "wrap",
        "retry.py",
        "Wrap the body of wait_before in `if attempt > 0:`.",
        (
            "    base = 2**attempt\n    return base",
            "    if attempt > 0:\n        base = 2**attempt\n        return base",
        ),
    ),
    edit(
        "retry-print",
        "add line",
        "retry.py",
        'Add the line `print("fetching", url)` at the start of fetch_with_retry.',
        ("| None:\n    for attempt", '| None:\n    print("fetching", url)\n    for attempt'),
    ),
    edit("cart-number", "change number", "cart.js", "Change TAX_RATE to 0.21.", ("0.19", "0.21")),
    edit("cart-string", "change string", "cart.js", 'Change CURRENCY to "USD".', ('"EUR"', '"USD"')),
    edit(
        "cart-rename",
        "rename",
        "cart.js",
        "Rename formatPrice to showPrice.",
        ("formatPrice", "showPrice", 3),
    ),
    edit(
        "cart-insert",
        "add line",
        "cart.js",
        "After the line `this.coupon = null;` add `this.created = Date.now();`.",
        ("    this.coupon = null;\n", "    this.coupon = null;\n    this.created = Date.now();\n"),
    ),
    edit(
        "events-number",
        "change number",
        "events.ts",
        "Set DEFAULT_SEATS to 120.",
        ("SEATS = 40", "SEATS = 120"),
    ),
    edit(
        "events-string",
        "change string",
        "events.ts",
        'Replace "no seats left" by "the event is full".',
        ("no seats left", "the event is full"),
    ),
    edit("settings-set", "set a key", "settings.json", "Set port to 9090.", ('"port": 8080', '"port": 9090')),
    edit("settings-flag", "set a key", "settings.json", "Change debug to true.", ('"debug": false', '"debug": true')),
    edit(
        "settings-rename",
        "rename a key",
        "settings.json",
        "Rename keep_days to retention_days.",
        ("keep_days", "retention_days"),
    ),
    edit(
        "settings-remove", "remove a key", "settings.json", "Remove the key language.", ('    "language": "en",\n', "")
    ),
    edit("compose-set", "set a key", "compose.yaml", "Set WORKERS to 12.", ("WORKERS: 4", "WORKERS: 12")),
    edit("compose-remove", "remove a key", "compose.yaml", "Remove CACHE_SECONDS.", ("      CACHE_SECONDS: 300\n", "")),
    edit(
        "compose-add",
        "add a key",
        "compose.yaml",
        "After the line `QUEUE_SIZE: 50` add `RETRIES: 3`.",
        ("      QUEUE_SIZE: 50\n", "      QUEUE_SIZE: 50\n      RETRIES: 3\n"),
    ),
    edit("project-set", "set a key", "project.toml", 'Change version to "1.0.0".', ('"0.9.2"', '"1.0.0"')),
    edit(
        "project-rename",
        "rename a key",
        "project.toml",
        "Rename the key fail_under to minimum.",
        ("fail_under", "minimum"),
    ),
    edit("project-remove", "remove a key", "project.toml", "Remove the key sign_tags.", ("sign_tags = true\n", "")),
    edit("server-set", "set a key", "server.ini", "Change level to debug.", ("level=warning", "level=debug")),
    edit("server-remove", "remove a key", "server.ini", "Delete keepalive.", ("keepalive=5\n", "")),
    edit("theme-set", "set a key", "theme.css", "Set width to 480px in .card.", ("width: 320px", "width: 480px")),
    edit(
        "theme-add",
        "add a key",
        "theme.css",
        "Add margin with the value 8px at the end of .card.",
        ("  padding: 8px;\n", "  padding: 8px;\n  margin: 8px;\n"),
    ),
    edit("queue-number", "change number", "queue.c", "Change CAPACITY to 256.", ("CAPACITY 64", "CAPACITY 256")),
    edit(
        "queue-comment",
        "comment",
        "queue.c",
        "Add the comment `// take the oldest item` above the line `*item = queue->items[queue->head];`.",
        ("    *item = queue->items", "    // take the oldest item\n    *item = queue->items"),
    ),
    edit("backup-set", "set a key", "backup.sh", "Set KEEP_DAYS to 30.", ("KEEP_DAYS=14", "KEEP_DAYS=30")),
    edit(
        "backup-add",
        "add line",
        "backup.sh",
        'Append the line `echo "done"`.',
        ('log "backup finished"\n', 'log "backup finished"\necho "done"\n'),
    ),
    edit("handbook-word", "change text", "handbook.md", "Replace 400 pages by 300 pages.", ("400 pages", "300 pages")),
    edit(
        "orders-rename-method",
        "rename",
        "orders.py",
        "Rename the function print_order to show_order.",
        ("print_order", "show_order"),
    ),
    edit(
        "words-docstring",
        "docstring",
        "word_counts.py",
        'Add the docstring "The mean number of letters." to average_length.',
        ("def average_length(path):\n", 'def average_length(path):\n    """The mean number of letters."""\n'),
    ),
    edit(
        "words-string",
        "change string",
        "word_counts.py",
        'Replace "book.txt" by "novel.txt".',
        ('"book.txt"', '"novel.txt"'),
    ),
    edit(
        "mailbox-rename-class",
        "rename",
        "mailbox.py",
        "Rename the class Mailbox to Postbox.",
        ("class Mailbox", "class Postbox"),
    ),
    edit(
        "mailbox-string",
        "change string",
        "mailbox.py",
        'Change the string "mailbox of %s is full" to "no room for %s".',
        ("mailbox of %s is full", "no room for %s"),
    ),
    edit(
        "retry-timeout",
        "change number",
        "retry.py",
        "Change TIMEOUT_SECONDS from 10 to 45.",
        ("TIMEOUT_SECONDS = 10", "TIMEOUT_SECONDS = 45"),
    ),
    edit(
        "retry-docstring",
        "docstring",
        "retry.py",
        'Give wait_before the docstring "Seconds to wait, a little at random."',
        (
            "def wait_before(attempt: int) -> float:\n",
            'def wait_before(attempt: int) -> float:\n    """Seconds to wait, a little at random."""\n',
        ),
    ),
    edit(
        "cart-message",
        "change string",
        "cart.js",
        'Replace "Cart of" by "Basket of".',
        ('"Cart of"', '"Basket of"'),
    ),
    edit(
        "events-rename",
        "rename",
        "events.ts",
        "Rename the function describe to summarize.",
        ("function describe", "function summarize"),
    ),
    edit(
        "settings-name",
        "set a key",
        "settings.json",
        'Change name to "garden-station".',
        ("weather-station", "garden-station"),
    ),
    edit(
        "settings-brightness",
        "set a key",
        "settings.json",
        "Set brightness to 95.",
        ('"brightness": 70', '"brightness": 95'),
    ),
    edit(
        "project-text",
        "change string",
        "project.toml",
        'Change the description to "Tides for sailors".',
        ("Tides and currents for small boats", "Tides for sailors"),
    ),
    edit("theme-color", "set a key", "theme.css", "Set color to black in .footer.", ("color: #333", "color: black")),
    edit("theme-size", "set a key", "theme.css", "Change font-size to 18px in .card-title.", ("14px", "18px")),
    edit(
        "backup-message",
        "change string",
        "backup.sh",
        'Replace "backup started" by "backup begins".',
        ("backup started", "backup begins"),
    ),
    edit(
        "handbook-title",
        "change text",
        "handbook.md",
        "Rename the heading After the meeting to Afterwards.",
        ("## After the meeting", "## Afterwards"),
    ),
    edit("handbook-day", "change text", "handbook.md", "Replace Tuesday by Thursday.", ("Tuesday", "Thursday")),
    *SIGNATURE_EDITS,
)


def chosen_edits(names: Sequence[str] = ()) -> list[BenchEdit]:
    """Those whose name contains one of `names`, all without any. Raises ValueError where nothing matches a name."""
    for name in names:
        if not any(name in known.name for known in EDITS):
            raise ValueError(
                f"expected part of an edit's name, got {name!r}; known: {', '.join(known.name for known in EDITS)}"
            )
    return [known for known in EDITS if not names or any(name in known.name for name in names)]
