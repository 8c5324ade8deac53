"""Inside vLLM: our proposer against none, vLLM's own n-grams and, where installed, suffix decoding.

    .venv-vllm/bin/python -m benchmarks.bench_vllm               # what vLLM does with each, on a CPU or GPU
    .venv-vllm/bin/python -m benchmarks.bench_vllm --proposer    # the proposer alone: 16 rows of 8k tokens

Each engine runs in a process of its own, one at a time, and the methods take turns, so that a machine that gets slower
or faster meanwhile does so for all. Prints a card, a table and one line of JSON. Greedy text must be the same for all
methods, else the exit status is 1. Figures from a machine that does other work are rough: the card shows its load.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.edit_set import chosen_edits
from benchmarks.environment import environment, load_average

EDIT_PROPOSER = "lookahead_edit.vllm_plugin.EditProposer"
# Of vLLM's speculative_config; the tuned n-grams are those that did best for edits.
METHODS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "ngram": {"method": "ngram", "num_speculative_tokens": 5},
    "ngram tuned": {
        "method": "ngram",
        "num_speculative_tokens": 16,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 5,
    },
    "suffix": {"method": "suffix", "num_speculative_tokens": 32},
    "ours": {"method": "custom_class", "model": EDIT_PROPOSER, "num_speculative_tokens": 64},
}
PLAIN, OURS = "plain", "ours"


@dataclass(frozen=True)
class Measured:
    """One method at one concurrency, over all edits."""

    method: str
    concurrency: int
    num_tokens: int
    num_drafted_tokens: int
    num_accepted_tokens: int
    seconds: float
    propose_seconds: float
    outputs: list[list[int]]

    @property
    def tokens_per_second(self) -> float:
        return self.num_tokens / self.seconds

    @property
    def tokens_per_forward(self) -> float:
        """Each pass emits a row's accepted tokens and one more."""
        return self.num_tokens / (self.num_tokens - self.num_accepted_tokens)

    @property
    def propose_share(self) -> float:
        return self.propose_seconds / self.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="directory or hub id; the default model if left out")
    parser.add_argument("--edits", type=int, default=16, help="so many of the benchmark's")
    parser.add_argument("--max-tokens", type=int, default=384)
    parser.add_argument("--concurrency", default="1,4,16")
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--max-model-len", type=int, default=2048)
    parser.add_argument("--proposer", action="store_true", help="only the proposer, without an engine")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.proposer:
        bench_proposer()
    elif arguments.child is not None:
        run_child(arguments)
    else:
        sys.exit(compare(arguments))


def compare(arguments: argparse.Namespace) -> int:
    card = environment() | {"edits": arguments.edits, "max_tokens": arguments.max_tokens, "load_before": load_average()}
    print(json.dumps(card), file=sys.stderr)
    measured: list[Measured] = []
    for repetition in range(arguments.repetitions):
        for method in arguments.methods.split(","):
            print(f"repetition {repetition + 1}: {method}", file=sys.stderr)
            measured += _in_child(arguments, method)
    plain = {each.concurrency: each for each in measured if each.method == PLAIN}
    is_same = all(each.outputs == plain[each.concurrency].outputs for each in measured if each.concurrency in plain)
    rows = _table(measured)
    print(f"{'method':<12} {'rows':>4} {'tokens/forward':>15} {'tokens/s':>9} {'/ plain':>8} {'proposing':>10}")
    for row in rows:
        print(
            f"{row['method']:<12} {row['concurrency']:>4} {row['tokens_per_forward']:>15.2f} "
            f"{row['tokens_per_second']:>9.1f} {row['against_plain'] or 0.0:>8.2f} {row['propose_share']:>10.1%}"
        )
    print(f"same text: {'yes' if is_same else 'NO'}")
    print(json.dumps({"card": card | {"load_after": load_average()}, "same_text": is_same, "rows": rows}))
    return 0 if is_same else 1


def _table(measured: list[Measured]) -> list[dict[str, Any]]:
    """A row for each method and concurrency: medians over the repetitions."""
    rows = []
    for method, concurrency in sorted(
        {(each.method, each.concurrency) for each in measured}, key=lambda key: key[::-1]
    ):
        own = [each for each in measured if (each.method, each.concurrency) == (method, concurrency)]
        plain = [each for each in measured if (each.method, each.concurrency) == (PLAIN, concurrency)]
        speed = statistics.median(each.tokens_per_second for each in own)
        plain_speed = statistics.median(each.tokens_per_second for each in plain) if plain else None
        rows.append(
            {
                "method": method,
                "concurrency": concurrency,
                "tokens_per_forward": statistics.median(each.tokens_per_forward for each in own),
                "tokens_per_second": speed,
                "against_plain": None if plain_speed is None else speed / plain_speed,
                "propose_share": statistics.median(each.propose_share for each in own),
                "num_drafted_tokens": own[0].num_drafted_tokens,
                "num_accepted_tokens": own[0].num_accepted_tokens,
            }
        )
    return rows


def _in_child(arguments: argparse.Namespace, method: str) -> list[Measured]:
    options = ("model", "edits", "max_tokens", "concurrency", "max_model_len")
    given = [
        f"--{name.replace('_', '-')}={value}" for name in options if (value := getattr(arguments, name)) is not None
    ]
    command = [sys.executable, "-m", "benchmarks.bench_vllm", f"--child={method}", *given]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        last = (finished.stderr.strip().splitlines() or ["no reason given"])[-1]
        print(f"{method} doesn't run here: {last}", file=sys.stderr)
        return []
    return [Measured(**each) for each in json.loads(finished.stdout.splitlines()[-1])]


def run_child(arguments: argparse.Namespace) -> None:
    """One engine; prints a JSON list of what was measured."""
    import os

    os.environ.update({"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR"})
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    from vllm import LLM, SamplingParams
    from vllm.platforms import current_platform

    concurrencies = [int(number) for number in arguments.concurrency.split(",")]
    llm = LLM(
        model=arguments.model or _default_model(),
        dtype="float32" if current_platform.is_cpu() else "auto",
        enforce_eager=bool(current_platform.is_cpu()),
        max_model_len=arguments.max_model_len,
        max_num_seqs=max(concurrencies),
        enable_prefix_caching=False,  # the same prompts are read at each concurrency
        disable_log_stats=False,
        speculative_config=METHODS[arguments.child],
    )
    propose_seconds = _watch_proposer(llm)
    prompts = _prompts(llm.get_tokenizer(), arguments.edits, arguments.max_model_len)
    sampling = SamplingParams(temperature=0.0, max_tokens=arguments.max_tokens)
    llm.generate([{"prompt_token_ids": prompts[0]}], SamplingParams(temperature=0.0, max_tokens=48), use_tqdm=False)
    measured = []
    for concurrency in concurrencies:
        before, propose_seconds[0] = _counters(llm), 0.0
        outputs: list[list[int]] = []
        began = time.perf_counter()
        # All at once where there are places for all, else as many as the concurrency says, the next when one is done.
        for start in range(0, len(prompts), concurrency):
            batch = [{"prompt_token_ids": prompt} for prompt in prompts[start : start + concurrency]]
            answers = llm.generate(batch, sampling, use_tqdm=False)
            outputs += [list(answer.outputs[0].token_ids) for answer in answers]
        seconds = time.perf_counter() - began
        drafted, accepted = (after - past for after, past in zip(_counters(llm), before, strict=True))
        measured.append(
            Measured(
                arguments.child,
                concurrency,
                sum(map(len, outputs)),
                int(drafted),
                int(accepted),
                seconds,
                propose_seconds[0],
                outputs,
            )
        )
    print(json.dumps([asdict(each) for each in measured]))


def _default_model() -> str:
    from lookahead_edit.targets.default_model import default_model_directory

    return str(default_model_directory())


def _prompts(tokenizer: Any, num_edits: int, max_model_len: int) -> list[list[int]]:
    from lookahead_edit.config import EditConfig
    from lookahead_edit.prompts import PromptBuilder
    from lookahead_edit.tasks import EditRequest
    from lookahead_edit.tokenizer import HfTokenizer

    builder = PromptBuilder(
        HfTokenizer(tokenizer), max_context_tokens=max_model_len, vocab_size=len(tokenizer), config=EditConfig()
    )
    edits = chosen_edits()[:num_edits]
    requests = [EditRequest(edit.before, edit.instruction, path=edit.path) for edit in edits]
    return [builder.for_edit(request).tokens.tolist() for request in requests]


def _counters(llm: Any) -> tuple[float, float]:
    values = {metric.name: getattr(metric, "value", 0.0) for metric in llm.get_metrics()}
    names = ("vllm:spec_decode_num_draft_tokens", "vllm:spec_decode_num_accepted_tokens")
    return tuple(float(values.get(name, 0.0)) for name in names)  # type: ignore[return-value]


def _watch_proposer(llm: Any) -> list[float]:
    """Seconds spent proposing, summed up in a list of one."""
    seconds = [0.0]
    drafter = getattr(
        llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner, "drafter", None
    )
    if drafter is not None:
        propose = drafter.propose

        def watched(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return propose(*args, **kwargs)
            finally:
                seconds[0] += time.perf_counter() - began

        drafter.propose = watched
    return seconds


def bench_proposer(num_rows: int = 16, num_prompt_tokens: int = 8192, num_output_tokens: int = 1024) -> None:
    """The proposer's time a step where no engine runs: rows in different places of their edits."""
    from lookahead_edit.cost import CostCurve
    from lookahead_edit.targets.tokenizer_loading import load_tokenizer
    from lookahead_edit.types import num_agreeing
    from lookahead_edit.vllm_plugin.batch import DraftingBatch
    from lookahead_edit.vllm_plugin.options import ProposerOptions

    tokenizer = load_tokenizer()
    source = "".join(edit.before for edit in {edit.path: edit for edit in chosen_edits()}.values())
    file = np.resize(tokenizer.encode(source, parse_special=False), num_prompt_tokens - 64).astype(np.int32)
    head, tail = tokenizer.encode("Rename it.\n```python\n"), tokenizer.encode("\n```\n")
    random = np.random.default_rng(0)
    length = len(head) + len(file) + len(tail) + num_output_tokens + 512
    token_ids = np.zeros((num_rows, length), dtype=np.int32)
    num_tokens = np.zeros(num_rows, dtype=np.int32)
    outputs = []
    for row in range(num_rows):
        own = np.roll(file, int(random.integers(len(file))))
        prompt = np.concatenate([head, own, tail])
        token_ids[row, : len(prompt)], num_tokens[row] = prompt, len(prompt)
        output = own[: num_output_tokens + 512].copy()
        output[random.integers(0, len(output), len(output) // 24)] = 17  # a change in 24 tokens
        outputs.append(output)
    options = ProposerOptions(cost_curve=CostCurve.linear(0.01))
    batch = DraftingBatch(
        options, max_draft_tokens=64, max_model_len=length, vocab_size=49152, tokenizer=tokenizer, max_rows=num_rows
    )
    begun = num_tokens.copy()
    seconds: list[float] = []  # of this thread's processor time, which other work on the machine doesn't lengthen much
    while batch.stats.num_indexed_prompts < num_rows:
        began = time.thread_time()
        batch.propose([[] for _ in range(num_rows)], num_tokens, token_ids)
        seconds.append(time.thread_time() - began)
    indexing = {"steps": len(seconds), "max_ms": 1e3 * max(seconds)}
    drafts: list[list[int]] = [[] for _ in range(num_rows)]
    seconds = []
    while (num_tokens - begun).min() < num_output_tokens:
        sampled = []
        for row in range(num_rows):
            rest = outputs[row][num_tokens[row] - begun[row] :]
            accepted = num_agreeing(np.asarray(drafts[row], dtype=np.int32), rest[:-1])
            emitted = (
                rest[: accepted + 1].tolist() if num_tokens[row] - begun[row] < num_output_tokens else rest[:1].tolist()
            )
            token_ids[row, num_tokens[row] : num_tokens[row] + len(emitted)] = emitted
            num_tokens[row] += len(emitted)
            sampled.append(emitted)
        began = time.thread_time()
        drafts = batch.propose(sampled, num_tokens, token_ids)
        seconds.append(time.thread_time() - began)
    figures = {
        "rows": num_rows,
        "prompt_tokens": num_prompt_tokens,
        "indexing": indexing,
        "steps": len(seconds),
        "median_ms": 1e3 * statistics.median(seconds),
        "p95_ms": 1e3 * float(np.quantile(seconds, 0.95)),
        "tokens_per_row_and_step": batch.stats.num_emitted_tokens / max(1, batch.stats.num_rows),
        "index_bytes": batch.num_index_bytes,
    }
    print(json.dumps(figures | {"card": environment() | {"load": load_average()}}))


if __name__ == "__main__":
    main()
