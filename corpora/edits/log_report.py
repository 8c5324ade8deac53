#!/usr/bin/env python3
"""Summarise an access log: requests, errors and slow paths."""

import argparse
import re
import sys
from collections import Counter, defaultdict

LINE = re.compile(
    r"(?P<host>\S+) \S+ \S+ \[(?P<when>[^\]]+)\] "
    r'"(?P<method>[A-Z]+) (?P<path>\S+) [^"]*" '
    r"(?P<status>\d{3}) (?P<size>\d+|-) (?P<ms>\d+)"
)


def parse(lines):
    for number, line in enumerate(lines, 1):
        match = LINE.match(line)
        if not match:
            print("line %d is not an access log line" % number, file=sys.stderr)
            continue
        yield match.groupdict()


def count_statuses(records):
    statuses = Counter()
    for record in records:
        statuses[record["status"]] += 1
    return statuses


def slowest(records, top):
    times = defaultdict(list)
    for record in records:
        times[record["path"]].append(int(record["ms"]))
    averages = []
    for path, values in times.items():
        averages.append((sum(values) / len(values), path, len(values)))
    averages.sort(reverse=True)
    return averages[:top]


def error_rate(records):
    total = 0
    errors = 0
    for record in records:
        total += 1
        if record["status"].startswith("5"):
            errors += 1
    return errors / total


def bytes_sent(records):
    total = 0
    for record in records:
        if record["size"] != "-":
            total += int(record["size"])
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", help="access log, - for standard input")
    parser.add_argument("--top", type=int, default=10)
    options = parser.parse_args()
    if options.log == "-":
        lines = sys.stdin.readlines()
    else:
        with open(options.log, encoding="utf-8") as file:
            lines = file.readlines()
    records = list(parse(lines))
    print("requests: %d" % len(records))
    print("bytes sent: %d" % bytes_sent(records))
    print("error rate: %.2f%%" % (100 * error_rate(records)))
    print("statuses:")
    for status, count in sorted(count_statuses(records).items()):
        print("  %s: %d" % (status, count))
    print("slowest paths:")
    for average, path, count in slowest(records, options.top):
        print("  %.0f ms over %d requests: %s" % (average, count, path))


if __name__ == "__main__":
    main()
