"""What our proposer adds to a step of vLLM with 16 rows of 8k tokens: alone, and inside an engine.

Alone, its processor time is what counts, for a step on a GPU would be as long as the GPU makes it. Inside an engine on
the machine at hand its share of the whole time is told, prompts being read from the prefix cache.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from benchmarks.edit_set import chosen_edits
from benchmarks.vllm_engines import EngineProcess, EngineSettings, Load
from lookahead_edit.cost import CostCurve
from lookahead_edit.types import IntArray, Tokenizer, num_agreeing
from lookahead_edit.vllm_plugin.batch import DraftingBatch
from lookahead_edit.vllm_plugin.options import ProposerOptions

NUM_ROWS = 16
NUM_PROMPT_TOKENS = 8192
ENGINE_CONTEXT = 8192  # the default model's; prompt and output have to fit
ENGINE_OUTPUT_TOKENS = 48
TOKENS_BETWEEN_CHANGES = 24


def samples_text() -> str:
    """All sample files, one after the other."""
    return "".join(edit.before for edit in {edit.path: edit for edit in chosen_edits()}.values())


def time_alone(tokenizer: Tokenizer, num_output_tokens: int = 1024) -> dict[str, Any]:
    """Milliseconds of a step where no engine runs: rows in different places of their edits, a change in 24 tokens."""
    text = tokenizer.encode(samples_text(), parse_special=False)
    head, tail = tokenizer.encode("Rename it.\n```python\n"), tokenizer.encode("\n```\n")
    file = np.resize(text, NUM_PROMPT_TOKENS - len(head) - len(tail)).astype(np.int32)
    random = np.random.default_rng(0)
    length = NUM_PROMPT_TOKENS + num_output_tokens + 512
    token_ids = np.zeros((NUM_ROWS, length), dtype=np.int32)
    num_tokens = np.full(NUM_ROWS, NUM_PROMPT_TOKENS, dtype=np.int32)
    outputs = []
    for row in range(NUM_ROWS):
        own = np.roll(file, int(random.integers(len(file))))
        token_ids[row, :NUM_PROMPT_TOKENS] = np.concatenate([head, own, tail])
        output = own[: num_output_tokens + 512].copy()
        output[random.integers(0, len(output), len(output) // TOKENS_BETWEEN_CHANGES)] = 17
        outputs.append(output)
    batch = DraftingBatch(
        ProposerOptions(cost_curve=CostCurve.linear(0.01)),
        max_draft_tokens=64,
        max_model_len=length,
        vocab_size=49152,
        tokenizer=tokenizer,
        max_rows=NUM_ROWS,
    )
    indexing: list[float] = []
    while batch.stats.num_indexed_prompts < NUM_ROWS:
        began = time.thread_time()
        batch.propose([[] for _ in range(NUM_ROWS)], num_tokens, token_ids)
        indexing.append(time.thread_time() - began)
    drafting = _draft_through(batch, outputs, num_tokens, token_ids, num_output_tokens)
    return {
        "rows": NUM_ROWS,
        "prompt_tokens": NUM_PROMPT_TOKENS,
        "steps": len(drafting),
        "median_ms": 1e3 * statistics.median(drafting),
        "p95_ms": 1e3 * float(np.quantile(drafting, 0.95)),
        "indexing_steps": len(indexing),
        "indexing_median_ms": 1e3 * statistics.median(indexing),
        "indexing_max_ms": 1e3 * max(indexing),
        "tokens_per_row_and_step": batch.stats.num_emitted_tokens / max(1, batch.stats.num_rows),
        "index_bytes": batch.num_index_bytes,
    }


def _draft_through(
    batch: DraftingBatch, outputs: list[IntArray], num_tokens: IntArray, token_ids: IntArray, num_output_tokens: int
) -> list[float]:
    """Seconds of each step until the slowest row has its output; the others go on, so that the batch stays full."""
    drafts: list[list[int]] = [[] for _ in outputs]
    seconds: list[float] = []
    begun = num_tokens.copy()
    while (num_tokens - begun).min() < num_output_tokens:
        sampled = []
        for row, output in enumerate(outputs):
            rest = output[num_tokens[row] - begun[row] :]
            is_through = num_tokens[row] - begun[row] >= num_output_tokens
            accepted = 0 if is_through else num_agreeing(np.asarray(drafts[row], dtype=np.int32), rest[:-1])
            emitted = rest[: accepted + 1].tolist() or [17]
            token_ids[row, num_tokens[row] : num_tokens[row] + len(emitted)] = emitted
            num_tokens[row] += len(emitted)
            sampled.append(emitted)
        began = time.thread_time()
        drafts = batch.propose(sampled, num_tokens, token_ids)
        seconds.append(time.thread_time() - began)
    return seconds


def time_in_engine(tokenizer: Tokenizer, speculative_config: dict[str, Any], model: str) -> dict[str, Any]:
    """Seconds of a step and the proposer's share, with 16 rows whose prompts have nearly 8k tokens each.

    The prompts differ only in their last line: the rest is read once and then taken from vLLM's prefix cache, or
    reading would take longer than everything else. Each row is indexed all the same.
    """
    tails = [tokenizer.encode(f"\n```\nRename number {row}.\n```python\n", parse_special=False) for row in range(17)]
    num_file_tokens = ENGINE_CONTEXT - ENGINE_OUTPUT_TOKENS - max(map(len, tails)) - 8
    text = tokenizer.encode("```python\n" + samples_text(), parse_special=False)
    file = np.resize(text, num_file_tokens).astype(np.int32)
    prompts = [tuple(np.concatenate([file, tail]).tolist()) for tail in tails]
    settings = EngineSettings(
        model, max_model_len=ENGINE_CONTEXT, max_rows=NUM_ROWS, enable_prefix_caching=True, kv_cache_gb=2
    )
    engine = EngineProcess(speculative_config, settings)
    try:
        engine.measure(Load(1, (prompts[-1],), 2))  # reads the file
        one = engine.measure(Load(NUM_ROWS, tuple(prompts[:NUM_ROWS]), ENGINE_OUTPUT_TOKENS))
    finally:
        engine.end()
    return {
        "rows": NUM_ROWS,
        "prompt_tokens": len(prompts[0]),
        "steps": one.num_steps,
        "step_ms": 1e3 * one.seconds / one.num_steps,
        "propose_ms": 1e3 * one.propose_seconds / one.num_steps,
        "propose_share": one.propose_seconds / one.seconds,
        "tokens_per_second": one.num_tokens / one.seconds,
    }
