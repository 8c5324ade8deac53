"""How fast is the suffix index: to build, to append to, and for one whole ``drafter.draft`` call from Python?

Real and adversarial token streams of one length. "code" is Python source of the standard library in words and
punctuation, hashed into a vocabulary of 49,152; "one token", "period 2" and the Fibonacci word repeat themselves in
the worst ways; "run after a mark" has short runs after a long one, so that every place nearly matches; the random ones
have no long matches but very many short ones. The last 2,000 tokens are the output: appended in rounds of 1 to 16
tokens, with a draft after each. Build and append are the fastest of several, drafts the fastest of three each.

    python benchmarks/bench_index.py [--tokens 32768] [--repeats 20]

The very last line is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import re
import sysconfig
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median, quantiles

import numpy as np

from benchmarks.arguments import positive_int
from lookahead_edit.config import SpeculationConfig
from lookahead_edit.drafters.suffix import SuffixDrafter
from lookahead_edit.suffix_index import SuffixIndex, compile_kernels
from lookahead_edit.types import Draft, IntArray, Source, SourceKind

VOCAB_SIZE = 49152
NUM_OUTPUT_TOKENS = 2000
MAX_DRAFT_TOKENS = 64
NOT_VERIFIED = Draft(reason="not verified")


def code(num_tokens: int) -> IntArray:
    """int32[num_tokens]: indentation, words and punctuation of library modules, in order of their names."""
    tokens: list[int] = []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        words = re.findall(r"\n[ \t]*| ?\w+|[^\w\s]", path.read_text(encoding="utf-8", errors="replace"))
        tokens += [zlib.crc32(word.encode()) % VOCAB_SIZE for word in words]
        if len(tokens) >= num_tokens:
            break
    return np.array(tokens[:num_tokens], dtype=np.int32)


def fibonacci_word(num_tokens: int) -> IntArray:
    before, word = [0], [0, 1]
    while len(word) < num_tokens:
        before, word = word, word + before
    return np.array(word[:num_tokens], dtype=np.int32)


def streams(num_tokens: int) -> Iterator[tuple[str, IntArray]]:
    generator = np.random.default_rng(0)
    yield "code", code(num_tokens)
    yield "one token", np.zeros(num_tokens, dtype=np.int32)
    yield "period 2", (np.arange(num_tokens) % 2).astype(np.int32)
    yield "Fibonacci word", fibonacci_word(num_tokens)
    run = np.zeros(num_tokens, dtype=np.int32)
    run[num_tokens - NUM_OUTPUT_TOKENS :: 41] = 1
    yield "run after a mark", run
    for num_values in (4, 100, VOCAB_SIZE):
        yield f"random of {num_values}", generator.integers(0, num_values, num_tokens).astype(np.int32)


def fastest(work: Callable[[], object], num_repeats: int) -> float:
    """Seconds."""
    seconds = []
    for _ in range(num_repeats):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def measure(stream: IntArray, num_repeats: int) -> dict[str, float]:
    prompt, output = stream[:-NUM_OUTPUT_TOKENS], stream[-NUM_OUTPUT_TOKENS:]
    file = Source(kind=SourceKind.FILE, tokens=prompt[100:-100], prompt_start=100)
    drafter = SuffixDrafter(SpeculationConfig(min_match_length=1))
    build_seconds = fastest(lambda: drafter.start(prompt, [file]), num_repeats)
    indices = iter([SuffixIndex(prompt, [file]) for _ in range(3)])
    append_seconds = fastest(lambda: next(indices).append(output), 3)

    draft_seconds, commit_seconds = [], []
    generator = np.random.default_rng(1)
    position = 0
    while position < len(output):
        tokens = output[position : position + int(generator.integers(1, 17))]
        commit_seconds.append(fastest(lambda: drafter.commit(tokens, NOT_VERIFIED, 0), 1))  # noqa: B023
        draft_seconds.append(fastest(lambda: drafter.draft(MAX_DRAFT_TOKENS), 3))
        position += len(tokens)
    return {
        "build_ms": 1e3 * build_seconds,
        "append_ns_per_token": 1e9 * append_seconds / len(output),
        "commit_us": 1e6 * median(commit_seconds),
        "draft_us": 1e6 * median(draft_seconds),
        "draft_us_p99": 1e6 * quantiles(draft_seconds, n=100)[-1],
        "bytes_per_token": drafter.num_index_bytes / len(stream),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=positive_int, default=32768, help="context length")
    parser.add_argument("--repeats", type=positive_int, default=20, help="builds, of which the fastest counts")
    arguments = parser.parse_args()
    compile_kernels()
    print(f"{'stream':18} build ms  append ns/token  commit us  draft us  p99 us  bytes/token")
    results = {}
    for name, stream in streams(arguments.tokens):
        results[name] = figures = measure(stream, arguments.repeats)
        print(
            f"{name:18} {figures['build_ms']:8.2f} {figures['append_ns_per_token']:16.0f} {figures['commit_us']:10.1f}"
            f" {figures['draft_us']:9.1f} {figures['draft_us_p99']:7.1f} {figures['bytes_per_token']:12.0f}"
        )
    print(json.dumps({"benchmark": "index", "num_tokens": arguments.tokens, "streams": results}))


if __name__ == "__main__":
    main()
