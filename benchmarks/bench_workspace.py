"""How fast and how large is the index of a workspace's other files: to build, and for one search from Python?

"code" is the standard library in words and punctuation, hashed into a vocabulary of 49,152, every tenth module left
out; the tails searched for are those of the modules left out, so that matches are as long as another file's are. The
other texts are hostile, one file each: they repeat themselves at all lengths, or hold every pair, or nothing twice.
Their tails stand in them, with one token changed. A build is the fastest of several. "cached" is one call of
`WorkspaceCache.index` with sources that it has: it reads them all to know them. A search is the fastest of three with
the same tail; 1,000 tails.

    python -m benchmarks.bench_workspace [--tokens 1000000] [--repeats 5]

The very last line is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import re
import sysconfig
import zlib
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

import numpy as np

from benchmarks.arguments import positive_int
from benchmarks.bench_index import VOCAB_SIZE, fastest, fibonacci_word
from lookahead_edit.types import IntArray, Source, SourceKind
from lookahead_edit.workspace_index import MAX_LENGTH, WorkspaceCache, WorkspaceIndex, compile_kernels

NUM_TAILS = 1000


def modules() -> Iterator[IntArray]:
    """int32[num_tokens] for each module of the standard library."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        if "site-packages" not in path.parts:
            words = re.findall(r"\n[ \t]*| ?\w+|[^\w\s]", path.read_text(encoding="utf-8", errors="replace"))
            yield np.array([zlib.crc32(word.encode()) % VOCAB_SIZE for word in words], dtype=np.int32)


def code(num_tokens: int, generator: np.random.Generator) -> tuple[list[IntArray], list[IntArray]]:
    """Files of `num_tokens` tokens together, or of the whole library if it has fewer; and tails of other files."""
    files: list[IntArray] = []
    left_out: list[IntArray] = []
    for number, tokens in enumerate(modules()):
        num_missing = num_tokens - sum(map(len, files))
        if num_missing <= 0:
            break
        (left_out if number % 10 == 9 else files).append(tokens[:num_missing])
    other = np.concatenate(left_out)
    ends = generator.integers(MAX_LENGTH, len(other), NUM_TAILS)
    return files, [other[end - MAX_LENGTH : end] for end in ends]


def hostile_texts(num_tokens: int, generator: np.random.Generator) -> Iterator[tuple[str, IntArray]]:
    yield "one token", np.zeros(num_tokens, dtype=np.int32)
    yield "period 2", (np.arange(num_tokens) % 2).astype(np.int32)
    yield "Fibonacci word", fibonacci_word(num_tokens)
    run = np.zeros(num_tokens, dtype=np.int32)
    run[num_tokens // 2 :: 41] = 1
    yield "run with marks", run
    for num_values in (4, VOCAB_SIZE, 2**31 - 1):
        yield f"random of {num_values}", generator.integers(0, num_values, num_tokens).astype(np.int32)


def changed_tails(text: IntArray, generator: np.random.Generator) -> list[IntArray]:
    """Pieces of the text, each with one token changed to one that stands nowhere in it."""
    tails = [text[end - MAX_LENGTH : end].copy() for end in generator.integers(MAX_LENGTH, len(text), NUM_TAILS)]
    for tail in tails:
        tail[generator.integers(0, MAX_LENGTH)] = 2**31 - 1
    return tails


def measure(files: list[IntArray], tails: list[IntArray], num_repeats: int) -> dict[str, float]:
    sources = [Source(kind=SourceKind.CONTEXT, tokens=file) for file in files]
    build_seconds = fastest(lambda: WorkspaceIndex(sources), num_repeats)
    cache = WorkspaceCache()
    index = cache.index(sources)
    cached_seconds = fastest(lambda: cache.index(sources), num_repeats)
    search_seconds = [fastest(lambda: index.longest_match(tail), 3) for tail in tails]  # noqa: B023
    return {
        "num_tokens": index.num_tokens,
        "build_ms": 1e3 * build_seconds,
        "cached_ms": 1e3 * cached_seconds,
        "search_us": 1e6 * median(search_seconds),
        "search_us_p99": 1e6 * quantiles(search_seconds, n=100)[-1],
        "search_us_max": 1e6 * max(search_seconds),
        "bytes_per_token": index.num_bytes / index.num_tokens,
        "mean_match_length": sum(index.longest_match(tail).length for tail in tails) / len(tails),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=positive_int, default=1_000_000, help="of all files together")
    parser.add_argument("--repeats", type=positive_int, default=5, help="builds, of which the fastest counts")
    arguments = parser.parse_args()
    compile_kernels()
    generator = np.random.default_rng(0)
    files, tails = code(arguments.tokens, generator)
    texts = [("code", files, tails)]
    for name, text in hostile_texts(arguments.tokens, generator):
        texts.append((name, [text], changed_tails(text, generator)))
    print(f"{'text':20}  tokens  build ms  cached ms  search us  p99 us  max us  bytes/token  mean match")
    results = {}
    for name, files, tails in texts:
        results[name] = figures = measure(files, tails, arguments.repeats)
        print(
            f"{name:20} {figures['num_tokens']:7} {figures['build_ms']:9.0f} {figures['cached_ms']:10.1f}"
            f" {figures['search_us']:10.1f} {figures['search_us_p99']:7.1f} {figures['search_us_max']:7.1f}"
            f" {figures['bytes_per_token']:12.1f} {figures['mean_match_length']:11.1f}"
        )
    print(json.dumps({"benchmark": "workspace", "texts": results}))


if __name__ == "__main__":
    main()
