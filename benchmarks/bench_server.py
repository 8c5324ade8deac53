"""The server under load on loopback: throughput and latency by concurrency, with speculation off, on and auto.

`lookahead-edit serve` runs in a process of its own; so many clients at a time each send edits over HTTP, one after the
other, and wait for the whole answer. Prompts are of mixed length: a part of the requests carries another file before
the one to be edited, as a comment. A mode is a route. For each concurrency the modes take turns within the same run,
and every text must be the one that was served to a lone client. Run as `python -m benchmarks.bench_server --help`; the
last line is one JSON document.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.arguments import edit_name, positive_int
from benchmarks.edit_set import BenchEdit, chosen_edits
from benchmarks.environment import environment, load_average
from benchmarks.server_process import server_process

MODES = ("off", "on", "auto")
ROUTES = "\n".join(f'[routes.{mode}]\nspeculation = "{mode}"\n' for mode in MODES)
EDITS = ("words-number", "orders-number", "orders-quotes", "words-rename", "retry", "cart", "theme", "settings")
NUM_LOADING_SECONDS = 600.0
NUM_REQUEST_SECONDS = 1800.0
LONG_EVERY = 4  # each request of so many has the long prompt


@dataclass(frozen=True)
class Served:
    """One answered request."""

    name: str
    text: str
    num_tokens: int
    seconds: float
    queue_seconds: float
    num_cached_tokens: int


@dataclass(frozen=True)
class Measured:
    """A mode under so many clients."""

    mode: str
    concurrency: int
    seconds: float
    served: list[Served]

    @property
    def tokens_per_second(self) -> float:
        return sum(one.num_tokens for one in self.served) / self.seconds

    def latency(self, share: float) -> float:
        known = sorted(one.seconds for one in self.served)
        return known[min(len(known) - 1, int(share * len(known)))]


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concurrency", type=positive_int, nargs="*", default=[1, 2, 4, 8, 16], metavar="N")
    parser.add_argument("--modes", nargs="*", default=list(MODES), choices=MODES)
    parser.add_argument(
        "--requests", type=positive_int, default=16, help="by mode and concurrency, at least 2 a client"
    )
    parser.add_argument(
        "--edits", type=edit_name, nargs="*", default=list(EDITS), metavar="NAME", help="edits whose name contains one"
    )
    parser.add_argument("--max-tokens", type=positive_int, help="cut answers there, for a quick run")
    parser.add_argument("--model", help="the default model, a directory, a GGUF file or a hub id")
    parser.add_argument("--serve-options", default="", help='e.g. "--max-batch 4"')
    parser.add_argument("--url", help="a running server with routes off, on and auto, instead of one of our own")
    parser.add_argument("--output", type=Path, help="also write the JSON document to this file, indented")
    return parser.parse_args()


@contextmanager
def server(arguments: argparse.Namespace) -> Iterator[str]:
    """The address of a server that has loaded its model."""
    if arguments.url:
        yield arguments.url
        return
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "server.toml"
        config.write_text(f"[server]\nmax_queued_requests = 256\n{ROUTES}", encoding="utf-8")
        options = ["--config", str(config), *arguments.serve_options.split()]
        with server_process(arguments.model, options, Path(folder) / "server.log") as (address, _):
            yield address


def bodies(edits: Sequence[BenchEdit], max_tokens: int | None) -> list[dict[str, Any]]:
    """One for each edit; every fourth with a long prompt."""
    made = []
    for number, edit in enumerate(edits):
        other = edits[(number + 1) % len(edits)].before
        instruction = edit.instruction
        if number % LONG_EVERY == LONG_EVERY - 1:
            instruction = f"{instruction} Do not change anything else. For comparison, another file:\n{other}\n{other}"
        made.append({"input": edit.before, "instruction": instruction, "path": edit.path, "output": ["text"]})
        if max_tokens:
            made[-1]["max_tokens"] = max_tokens
    return made


async def measure(url: str, mode: str, concurrency: int, asked: Sequence[tuple[str, dict[str, Any]]]) -> Measured:
    """Sends every request once, by so many clients."""
    left = list(reversed(asked))
    served: list[Served] = []

    async def client(http: httpx.AsyncClient) -> None:
        while left:
            name, body = left.pop()
            began = time.perf_counter()
            response = await http.post("/v1/edits", json=body, headers={"x-lookahead-route": mode})
            seconds = time.perf_counter() - began
            response.raise_for_status()
            answer = response.json()
            served.append(
                Served(
                    name,
                    answer["choices"][0]["text"],
                    answer["usage"]["completion_tokens"],
                    seconds,
                    answer["metrics"]["queue_time_ms"] / 1000.0,
                    answer["usage"]["prompt_tokens_details"]["cached_tokens"],
                )
            )

    async with httpx.AsyncClient(base_url=url, timeout=NUM_REQUEST_SECONDS, trust_env=False) as http:
        began = time.perf_counter()
        await asyncio.gather(*(client(http) for _ in range(concurrency)))
        return Measured(mode, concurrency, time.perf_counter() - began, served)


def report(measured: Sequence[Measured], expected: dict[str, str]) -> dict[str, Any]:
    """Figures by mode and concurrency, and what `auto` is worth beside the other two."""
    rows = []
    for one in measured:
        rows.append(
            {
                "mode": one.mode,
                "concurrency": one.concurrency,
                "num_requests": len(one.served),
                "tokens_per_second": round(one.tokens_per_second, 2),
                "requests_per_second": round(len(one.served) / one.seconds, 4),
                "p50_seconds": round(one.latency(0.5), 3),
                "p95_seconds": round(one.latency(0.95), 3),
                "mean_queue_seconds": round(statistics.mean(each.queue_seconds for each in one.served), 3),
                "num_unequal": sum(each.text != expected[each.name] for each in one.served),
            }
        )
    by_key = {(one.mode, one.concurrency): one.tokens_per_second for one in measured}
    ratios = {}
    for concurrency in sorted({one.concurrency for one in measured}):
        speeds = {mode: by_key.get((mode, concurrency)) for mode in MODES}
        others = [speed for mode, speed in speeds.items() if mode != "auto" and speed]
        if speeds["auto"] and others:
            ratios[concurrency] = {
                "auto_to_better": round(speeds["auto"] / max(others), 3),
                "auto_to_off": None if not speeds["off"] else round(speeds["auto"] / speeds["off"], 3),
            }
    return {"rows": rows, "ratios": ratios, "num_unequal": sum(row["num_unequal"] for row in rows)}


def print_row(one: Measured) -> None:
    print(
        f"{one.mode:>5} {one.concurrency:>4} clients  {one.tokens_per_second:8.1f} tokens/s  "
        f"p50 {one.latency(0.5):7.2f} s  p95 {one.latency(0.95):7.2f} s",
        flush=True,
    )


async def run(
    arguments: argparse.Namespace, edits: Sequence[BenchEdit], url: str
) -> tuple[list[Measured], dict[str, str]]:
    """Warms up, serves each edit to a lone client, then measures."""
    named = [(edit.name, body) for edit, body in zip(edits, bodies(edits, arguments.max_tokens), strict=True)]
    alone = await measure(url, "auto", 1, named)
    expected = {one.name: one.text for one in alone.served}
    measured = []
    for turn, concurrency in enumerate(arguments.concurrency):
        number = max(arguments.requests, 2 * concurrency)
        for place in range(len(arguments.modes)):
            mode = arguments.modes[(place + turn) % len(arguments.modes)]
            # A session of its own for each request, or the next mode would find the prompts in the cache.
            asked = [
                (name, {**body, "session": f"{mode} {concurrency} {index}"})
                for index, (name, body) in enumerate(named[index % len(named)] for index in range(number))
            ]
            measured.append(await measure(url, mode, concurrency, asked))
            print_row(measured[-1])
    return measured, expected


def main() -> int:
    """Measures and prints; 1 where a text is not the one a lone client was served."""
    arguments = parse_arguments()
    edits = chosen_edits(arguments.edits)
    load_before = load_average()
    with server(arguments) as url:
        measured, expected = asyncio.run(run(arguments, edits, url))
        model = httpx.get(f"{url}/health", trust_env=False).json()["model"]
    document = {
        "benchmark": "server",
        "model": model,
        "edits": arguments.edits,
        "max_tokens": arguments.max_tokens,
        "serve_options": arguments.serve_options,
        **report(measured, expected),
        "environment": environment() | {"load_before": load_before, "load_after": load_average()},
    }
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(document))
    return 1 if document["num_unequal"] else 0


if __name__ == "__main__":
    sys.exit(main())
