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
NUM_TREES, NUM_LEAVES, MIN_LEAF_SAMPLES, TREE_RATE = 80, 24, 60, 0.12
RIDGE = 2.0
NUM_EPOCHS, BATCH_SIZE, LEARNING_RATE, RATE_DECAY = 8, 2048, 0.05, 0.6
MAX_PROMPT_TOKENS = 16_000


def first_model() -> dict[str, NDArray[Any]]:
    """Where there is no model yet: even odds, and later tokens by evidence alone."""
    tail = np.zeros(layout.NUM_TAIL_ENTRIES, np.float32)
    for kind in range(layout.NUM_TYPES):
        for evidence in range(layout.NUM_EVIDENCE_BINS):
            tail[layout.BY_TYPE + kind * layout.NUM_EVIDENCE_BINS + evidence] = 0.5 * evidence - 1.0
    return {
        "roots": np.zeros(1, np.int32),
        "splits": np.array([layout.NONE], np.int32),
        "thresholds": np.zeros(1, np.float32),
        "children": np.zeros((1, 2), np.int32),
        "tail_log_odds": tail,
    }


def grow_trees(samples: Samples, seed: int) -> dict[str, NDArray[Any]]:
    """Trees for the first token."""
    import lightgbm

    settings = {
        "objective": "binary",
        "learning_rate": TREE_RATE,
        "num_leaves": NUM_LEAVES,
        "min_data_in_leaf": MIN_LEAF_SAMPLES,
        "lambda_l2": 5.0,
        "feature_fraction": 0.8,
        "seed": seed,
        "deterministic": True,
        "num_threads": 1,
        "verbose": -1,
    }
    booster = lightgbm.train(settings, lightgbm.Dataset(samples.features, samples.is_accepted), NUM_TREES)
    roots: list[int] = []
    splits: list[int] = []
    thresholds: list[float] = []
    children: list[tuple[int, int]] = []

    def enter(node: dict[str, Any]) -> int:
        number = len(splits)
        splits.append(node.get("split_feature", layout.NONE))
        thresholds.append(node.get("threshold", node.get("leaf_value")))
        children.append((number, number))
        if "split_feature" in node:
            children[number] = enter(node["left_child"]), enter(node["right_child"])
        return number

    for tree in booster.dump_model()["tree_info"]:
        roots.append(enter(tree["tree_structure"]))
    return {
        "roots": np.array(roots, np.int32),
        "splits": np.array(splits, np.int32),
        "thresholds": np.array(thresholds, np.float32),
        "children": np.array(children, np.int32),
    }


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
        samples = Samples.joined(track(collect(traces, tokenizer), f"round {iteration + 1}", total=len(traces)))
        print(f"{len(samples.is_accepted)} candidates, {len(samples.is_tail_accepted)} later tokens")
        trees = grow_trees(samples, arguments.seed)
        save(arguments.output, {**trees, "tail_log_odds": fit_tail(samples, arguments.seed)})


if __name__ == "__main__":
    main()
