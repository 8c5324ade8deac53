"""Traces of data that is filtered, converted, shortened or changed: lists of installed packages, in several formats.

Much of such an output stands in the prompt, but it seldom follows it for long: drafts have to learn when not to.
"""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable, Iterator
from importlib.metadata import distributions
from typing import Any, TypeAlias

import yaml

from lookahead_edit.traces import Trace

Record: TypeAlias = dict[str, Any]

MIN_RECORDS, MAX_RECORDS = 6, 24
FIELDS = ("name", "version", "summary", "author", "num_requirements", "needs_python")


def _as_json(records: list[Record]) -> str:
    return json.dumps(records, indent=2) + "\n"


def _as_lines(records: list[Record]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def _as_yaml(records: list[Record]) -> str:
    return str(yaml.safe_dump(records, sort_keys=False, width=1000))


def _as_csv(records: list[Record]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def _as_table(records: list[Record]) -> str:
    rows = [list(records[0]), ["---"] * len(records[0]), *(list(map(str, record.values())) for record in records)]
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


FORMATS: dict[str, Callable[[list[Record]], str]] = {
    "json": _as_json,
    "jsonl": _as_lines,
    "yaml": _as_yaml,
    "csv": _as_csv,
    "markdown": _as_table,
}


def package_records() -> list[Record]:
    """One for each installed package, by name, of plain words only."""
    found: dict[str, Record] = {}
    for distribution in distributions():
        about = distribution.metadata
        record = {
            "name": about.get("Name", ""),
            "version": about.get("Version", ""),
            "summary": about.get("Summary", ""),
            "author": about.get("Author") or about.get("Author-email", "unknown"),
            "num_requirements": len(distribution.requires or []),
            "needs_python": about.get("Requires-Python", "any"),
        }
        if record["name"] and all(str(value).isascii() and "\n" not in str(value) for value in record.values()):
            found[record["name"]] = record
    return [found[name] for name in sorted(found)]


def _filtered(records: list[Record], rng: random.Random) -> tuple[str, list[Record]]:
    limit = rng.choice((1, 2, 4, 8))
    kept = [record for record in records if record["num_requirements"] >= limit]
    return f"Keep only the packages with at least {limit} requirements.", kept or records[:1]


def _changed(records: list[Record], rng: random.Random) -> tuple[str, list[Record]]:
    changed = rng.choice(records)
    version = f"{rng.randint(1, 9)}.{rng.randint(0, 20)}.0"
    after = [{**record, "version": version} if record is changed else record for record in records]
    return f"Set the version of {changed['name']} to {version}.", after


def _shortened(records: list[Record], rng: random.Random) -> tuple[str, list[Record]]:
    kept = ["name", *rng.sample(FIELDS[1:], 2)]
    return f"Keep only the fields {', '.join(kept)}.", [{field: record[field] for field in kept} for record in records]


def _sorted(records: list[Record], rng: random.Random) -> tuple[str, list[Record]]:
    after = sorted(records, key=lambda record: str(record["name"]), reverse=True)
    return "Sort the packages by name, the last one first.", after


def _unchanged(records: list[Record], rng: random.Random) -> tuple[str, list[Record]]:
    return "Keep all packages.", records


CHANGES = (_filtered, _filtered, _changed, _shortened, _sorted, _unchanged)


def record_traces(number: int, seed: int) -> Iterator[Trace]:
    """As many traces; half of them come back in another format than they went in."""
    rng = random.Random(f"records {seed}")
    packages = package_records()
    for index in range(number):
        fields = ["name", "version", *rng.sample(FIELDS[2:], rng.randint(2, 4))]
        if "num_requirements" not in fields:
            fields.append("num_requirements")
        count = min(rng.randint(MIN_RECORDS, MAX_RECORDS), len(packages))
        chosen = [{field: record[field] for field in fields} for record in rng.sample(packages, count)]
        change = rng.choice([one for one in CHANGES if one is not _shortened or len(fields) == len(FIELDS)])
        instruction, after = change(chosen, rng)
        before_format = rng.choice(list(FORMATS))
        after_format = rng.choice(list(FORMATS)) if rng.random() < 0.5 or change is _unchanged else before_format
        source, output = FORMATS[before_format](chosen), FORMATS[after_format](after)
        if after_format != before_format:
            instruction += f" Answer in {after_format}."
        prompt = f"{instruction}\n\n```{before_format}\n{source}```\n\n```{after_format}\n"
        yield Trace(f"records-{change.__name__.strip('_')}-{index}", prompt, output, source)
