"""A server at saturation for a while: does its memory stay flat, and does every client get what it should?

`lookahead-edit serve` runs in a process of its own with a short queue, and more clients than it has places for send
whatever clients send (`soak_traffic`). Every few seconds its memory is read. At the end the clients stop, and what the
server still holds is read again. Run as `python -m benchmarks.soak --help`; the last line is one JSON document, and the
exit status is 1 where its verdict is bad. Linux only, since it reads /proc.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.arguments import positive_float, positive_int
from benchmarks.environment import environment, load_average
from benchmarks.server_process import server_process
from benchmarks.soak_traffic import Answer, Traffic

MIB = 2**20
NUM_REQUEST_SECONDS = 900.0
MAX_EXAMPLES = 20


@dataclass(frozen=True)
class SoakConfig:
    """How long, and how much."""

    seconds: float = 1200.0
    num_clients: int = 24
    sample_seconds: float = 10.0
    retry_seconds: float = 0.5  # that a client waits after a refusal, about
    limits: tuple[int | None, ...] = (16, 48, 96, None)  # of an answer's tokens, in turn at random
    drain_seconds: float = 300.0  # that running work may take after the clients have stopped
    warm_up_share: float = 0.25  # of the samples, which don't count: pools of memory fill up
    max_rise_share: float = 0.03  # of the median, over all the time after that; less is no growth
    seed: int = 0


@dataclass(frozen=True)
class Sample:
    """The server at one moment."""

    seconds: float  # since the clients began
    resident_mib: float
    num_threads: int
    num_files: int  # open ones, and connections
    num_running: int
    num_waiting: int
    kept_prompt_mib: float

    @property
    def other_mib(self) -> float:
        """Memory without kept prompts."""
        return self.resident_mib - self.kept_prompt_mib


def sample(http: httpx.Client, process_id: int, began: float) -> Sample:
    """Reads the process and its counters."""
    status = Path(f"/proc/{process_id}/status").read_text(encoding="utf-8")
    known = dict(re.findall(r"^(\w+):\s+(\d+)", status, re.MULTILINE))
    counters = dict(re.findall(r"^lookahead:(\w+) (\S+)$", http.get("/metrics").text, re.MULTILINE))
    return Sample(
        round(time.monotonic() - began, 1),
        round(int(known["VmRSS"]) / 1024, 1),
        int(known["Threads"]),
        len(os.listdir(f"/proc/{process_id}/fd")),
        int(float(counters["num_requests_running"])),
        int(float(counters["num_requests_waiting"])),
        round(float(counters["kept_prompt_bytes"]) / MIB, 1),
    )


async def soak(url: str, process_id: int, config: SoakConfig) -> dict[str, Any]:
    """Figures and verdict for a server that runs already."""
    began = time.monotonic()
    samples: list[Sample] = []
    # A server that can't answer this in time is one of the things to be found.
    with httpx.Client(base_url=url, timeout=60.0, trust_env=False) as watcher:
        before = sample(watcher, process_id, began)

        async def watch() -> None:
            while True:
                await asyncio.sleep(config.sample_seconds)
                samples.append(await asyncio.to_thread(sample, watcher, process_id, began))

        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, timeout=NUM_REQUEST_SECONDS, trust_env=False, limits=limits) as http:
            traffic = Traffic(http, config.seed, config.retry_seconds, config.limits)

            async def client() -> None:
                while time.monotonic() < began + config.seconds:
                    await traffic.visit()

            watching = asyncio.create_task(watch())
            await asyncio.gather(*(client() for _ in range(config.num_clients)))
            if watching.done():
                watching.result()  # raises what ended it
            watching.cancel()
        after = await _drained(watcher, process_id, began, config.drain_seconds)
    return report(before, samples, after, traffic, config)


async def _drained(http: httpx.Client, process_id: int, began: float, seconds: float) -> Sample:
    """The server once it has nothing to do any more, or after so long."""
    deadline = time.monotonic() + seconds
    while True:
        await asyncio.sleep(0.2)
        latest = await asyncio.to_thread(sample, http, process_id, began)
        if latest.num_running + latest.num_waiting == 0 or time.monotonic() > deadline:
            return latest


def slope_of(samples: Sequence[Sample]) -> float:
    """MiB a second without kept prompts: the median slope of all pairs (Theil, Sen), which few peaks don't move."""
    seconds = np.array([one.seconds for one in samples])
    other = np.array([one.other_mib for one in samples])
    first, second = np.triu_indices(len(samples), k=1)
    if not len(first):
        return 0.0
    return float(np.median((other[second] - other[first]) / (seconds[second] - seconds[first])))


def memory_report(before: Sample, samples: Sequence[Sample], after: Sample, config: SoakConfig) -> dict[str, float]:
    """MiB, and how they rise; kept prompts are left out, since they have a limit of their own and fill up slowly."""
    counted = samples[int(len(samples) * config.warm_up_share) :] or [after]
    slope = slope_of(counted)
    rise = slope * (counted[-1].seconds - counted[0].seconds)
    others = [one.other_mib for one in counted]
    median = float(np.median(others))
    return {
        "slope_mib_per_hour": round(slope * 3600, 1),
        "rise_mib": round(rise, 1),
        "rise_share": round(rise / median, 4),
        "median_mib": round(median, 1),
        "least_mib": round(min(others), 1),
        "greatest_mib": round(max(others), 1),
        "greatest_kept_prompt_mib": max(one.kept_prompt_mib for one in counted),
        "resident_before_mib": before.resident_mib,
        "greatest_resident_mib": max(one.resident_mib for one in counted),
        "resident_idle_afterwards_mib": after.resident_mib,
    }


def report(
    before: Sample, samples: Sequence[Sample], after: Sample, traffic: Traffic, config: SoakConfig
) -> dict[str, Any]:
    """One JSON document: figures, examples of what went wrong, and the verdict."""
    memory = memory_report(before, samples, after, config)
    wrong = [answer for answer in traffic.answers if not answer.is_expected]
    verdict = {
        "memory_is_flat": memory["rise_share"] <= config.max_rise_share,
        "answers_are_expected": not wrong,
        "texts_are_equal": not traffic.unequal,
        "nothing_runs_on": after.num_running + after.num_waiting == 0,
    }
    return {
        "benchmark": "soak",
        "verdict": verdict | {"passes": all(verdict.values())},
        "settings": asdict(config),
        "memory": memory,
        "num_answers": len(traffic.answers),
        "answers": _by_kind(traffic.answers),
        "unexpected": [asdict(answer) for answer in wrong[:MAX_EXAMPLES]],
        "num_unexpected": len(wrong),
        "num_unequal": len(traffic.unequal),
        "before": asdict(before),
        "afterwards": asdict(after),
        "samples": [asdict(one) for one in samples],
    }


def _by_kind(answers: Sequence[Answer]) -> dict[str, dict[str, int]]:
    """How often each kind of visit ended in which status, or in which error within a stream."""
    shown = Counter(
        (answer.kind, f"{answer.status} {answer.code}" if answer.code else answer.status) for answer in answers
    )
    kinds = sorted({kind for kind, _ in shown})
    return {kind: {end: shown[kind, end] for k, end in sorted(shown) if k == kind} for kind in kinds}


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=positive_float, default=SoakConfig.seconds / 60)
    parser.add_argument("--clients", type=positive_int, default=SoakConfig.num_clients)
    parser.add_argument("--seed", type=int, default=SoakConfig.seed)
    parser.add_argument("--model", help="the default model, a directory, a GGUF file or a hub id")
    parser.add_argument("--serve-options", default="--max-queue 8", help='e.g. "--max-queue 8 --max-batch 4"')
    parser.add_argument("--out", type=Path, help="also write the JSON document to this file, indented")
    return parser.parse_args()


def main() -> int:
    """Soaks and prints; 1 where the verdict is bad."""
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # or the server would be left behind
    config = SoakConfig(seconds=arguments.minutes * 60, num_clients=arguments.clients, seed=arguments.seed)
    load_before = load_average()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        with server_process(arguments.model, arguments.serve_options.split(), log) as (url, process_id):
            document = asyncio.run(soak(url, process_id, config))
            model = httpx.get(f"{url}/health", trust_env=False).json()["model"]
        document["log"] = log.read_text(encoding="utf-8").splitlines()[:MAX_EXAMPLES]
    document |= {
        "model": model,
        "serve_options": arguments.serve_options,
        "environment": environment() | {"load_before": load_before, "load_after": load_average()},
    }
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(document))
    return 0 if document["verdict"]["passes"] else 1


if __name__ == "__main__":
    sys.exit(main())
