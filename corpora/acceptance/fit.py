"""Fit the acceptance model to traces. Run as `python -m corpora.acceptance.fit --help`.

The first token's trees are grown by LightGBM; the later tokens' log odds are a ridge-regularised logistic regression.
Which rounds there are depends on the model in use, so the fit is repeated, each time on the rounds of the last model.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import track

from corpora.acceptance.collect import Samples, collect
from lookahead_edit import acceptance
from lookahead_edit.kernels import acceptance as layout
from lookahead_edit.replay import TokenTrace, tokenize_trace
from lookahead_edit.targets.tokenizer_loading import load_tokenizer
from lookahead_edit.traces import read_traces

MODEL_FILE = Path(acceptance.__file__).parent / "data" / acceptance.FILE
NUM_TREES, NUM_LEAVES, MAX_DEPTH, MIN_LEAF_SAMPLES, TREE_RATE = 120, 48, 6, 60, 0.08
RIDGE = 2.0
NUM_EPOCHS, BATCH_SIZE, LEARNING_RATE, RATE_DECAY = 8, 2048, 0.05, 0.6
MAX_PROMPT_TOKENS = 16_000
NUM_FIRST_TRACES = 250


def empty_trees(num_trees: int) -> dict[str, NDArray[Any]]:
    """Trees that say nothing, as `kernels.acceptance` wants them."""
    num_inner = 2**MAX_DEPTH - 1
    return {
        "columns": np.zeros((num_trees, num_inner), np.uint8),
        "thresholds": np.full((num_trees, num_inner), np.inf, np.float32),
        "leaves": np.zeros((num_trees, num_inner + 1), np.float32),
    }


def first_model() -> dict[str, NDArray[Any]]:
    """Where there is no model yet: even odds, and later tokens by evidence alone."""
    tail = np.zeros(layout.NUM_TAIL_ENTRIES, np.float32)
    for kind in range(layout.NUM_TYPES):
        for evidence in range(layout.NUM_EVIDENCE_BINS):
            tail[layout.BY_TYPE + kind * layout.NUM_EVIDENCE_BINS + evidence] = 0.5 * evidence - 1.0
    return {
        **empty_trees(1),
        "tail_log_odds": tail,
    }


def grow_trees(samples: Samples, seed: int) -> dict[str, NDArray[Any]]:
    """Trees for the first token."""
    import lightgbm

    settings = {
        "objective": "binary",
        "learning_rate": TREE_RATE,
        "num_leaves": NUM_LEAVES,
        "max_depth": MAX_DEPTH,
        "min_data_in_leaf": MIN_LEAF_SAMPLES,
        "lambda_l2": 5.0,
        "feature_fraction": 0.8,
        "seed": seed,
        "deterministic": True,
        "num_threads": 1,
        "verbose": -1,
    }
    booster = lightgbm.train(settings, lightgbm.Dataset(samples.features, samples.is_accepted), NUM_TREES)
    trees = empty_trees(NUM_TREES)

    def enter(tree: int, node: dict[str, Any], place: int, depth: int) -> None:
        """A leaf above the lowest level keeps to the left, as nothing is greater than infinity."""
        if depth == MAX_DEPTH:
            trees["leaves"][tree, place - 2**MAX_DEPTH + 1] = node["leaf_value"]
            return
        if "split_feature" in node:
            trees["columns"][tree, place] = node["split_feature"]
            trees["thresholds"][tree, place] = node["threshold"]
            enter(tree, node["right_child"], 2 * place + 2, depth + 1)
        enter(tree, node.get("left_child", node), 2 * place + 1, depth + 1)

    for number, grown in enumerate(booster.dump_model()["tree_info"]):
        enter(number, grown["tree_structure"], 0, 0)
    return trees


def fit_tail(samples: Samples, seed: int) -> NDArray[np.float32]:
    """Log odds for the later tokens."""
    torch.manual_seed(seed)
    entries, outcomes = (
        torch.from_numpy(samples.tail_entries).long(),
        torch.from_numpy(samples.is_tail_accepted).float(),
    )
    log_odds = torch.from_numpy(first_model()["tail_log_odds"]).clone().requires_grad_()
    optimizer = torch.optim.Adam([log_odds], lr=LEARNING_RATE)
    for epoch in range(NUM_EPOCHS):
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * RATE_DECAY**epoch
        for rows in torch.randperm(len(entries)).split(BATCH_SIZE):
            predicted = log_odds[entries[rows]].sum(dim=1)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(predicted, outcomes[rows])
            loss = loss + RIDGE * (log_odds**2).sum() / len(entries)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    fitted: NDArray[np.float32] = log_odds.detach().numpy()
    return fitted


def read(files: list[Path], tokenizer: Any) -> Iterator[TokenTrace]:
    """The traces of some files, those of a bearable length."""
    for path in files:
        with path.open("rb") as file:
            for _, trace in read_traces(file):
                tokens = tokenize_trace(trace, tokenizer)
                if len(tokens.prompt) <= MAX_PROMPT_TOKENS:
                    yield tokens


def save(path: Path, model: dict[str, NDArray[Any]]) -> None:
    """Writes the model where the package finds it, and makes the package forget the one before."""
    np.savez_compressed(path, **model)
    acceptance.acceptance_model.cache_clear()


def main() -> None:
    """Fit and write the model."""
    parser = argparse.ArgumentParser(description="Fit the acceptance model to traces.")
    parser.add_argument("traces", type=Path, nargs="+", help="JSONL files")
    parser.add_argument("--tokenizer", help="as for `lookahead-edit replay`; by default the default model's")
    parser.add_argument("--output", type=Path, default=MODEL_FILE)
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--from-scratch", action="store_true", help="don't begin with the rounds of the present model")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = load_tokenizer(arguments.tokenizer)
    traces = list(read(arguments.traces, tokenizer))
    random.Random(arguments.seed).shuffle(traces)
    if arguments.from_scratch or not arguments.output.exists():
        save(arguments.output, first_model())
    for iteration in range(arguments.iterations):
        # A model from scratch drafts badly, so that its rounds are many, and of little use to the next one.
        seen = traces[:NUM_FIRST_TRACES] if arguments.from_scratch and iteration == 0 else traces
        samples = Samples.joined(track(collect(seen, tokenizer), f"round {iteration + 1}", total=len(seen)))
        print(f"{len(samples.is_accepted)} candidates, {len(samples.is_tail_accepted)} later tokens")
        trees = grow_trees(samples, arguments.seed)
        save(arguments.output, {**trees, "tail_log_odds": fit_tail(samples, arguments.seed)})


if __name__ == "__main__":
    main()
