"""Rows of a batch get the very tokens they get alone, whatever the others do, and none waits long for another."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from batches import Request, random_requests, serve_together, served_alone
from tiny_models import SHAPE, VOCAB_SIZE

from lookahead_edit.config import SamplingConfig, TargetConfig
from lookahead_edit.engine import Engine
from lookahead_edit.metrics import SpeculationMetrics
from lookahead_edit.policy import FixedPolicy
from lookahead_edit.targets import reading
from lookahead_edit.targets.hf import HfTarget, RowCache
from lookahead_edit.targets.prompt_budget import share_budget
from lookahead_edit.targets.reading import Block, BlockReader
from lookahead_edit.types import Round

# Full attention with grouped heads and without, biases, learned positions: packed into one pass.
PACKED = ["llama", "qwen2", "gpt2", "mistral without window"]
# Sliding windows, convolutions, recurrent states, hybrids: one row after the other.
ONE_BY_ONE = ["mistral", "lfm2", "mamba2", "qwen3_next"]


@pytest.fixture(scope="module")
def requests_of(request: pytest.FixtureRequest) -> Any:
    """Random requests with what they get alone, made once for each model."""
    made: dict[tuple[int, int], list[Request]] = {}

    def get(model: Any, seed: int = 0, num_requests: int = 12) -> list[Request]:
        key = (id(model), seed)
        if key not in made:
            made[key] = random_requests(model, num_requests, seed)
        return made[key]

    return get


def texts(requests: list[Request]) -> list[list[int]]:
    return [[] if request.sequence is None else request.sequence.output.tolist() for request in requests]


def count_passes(model: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by the number of tokens of every forward pass."""
    passes: list[int] = []
    forward = model.forward

    def counted(*args: Any, **kwargs: Any) -> Any:
        passes.append(kwargs["input_ids"].shape[1])
        return forward(*args, **kwargs)

    monkeypatch.setattr(model, "forward", counted)
    return passes


# Exactness.


@pytest.mark.parametrize(
    ("name", "seed"), [(name, seed) for name in PACKED for seed in (0, 1)] + [(name, 0) for name in ONE_BY_ONE]
)
def test_rows_that_join_and_leave_at_random_are_equal_to_rows_alone(
    tiny_model: Any, requests_of: Any, name: str, seed: int
) -> None:
    """Greedy and sampled, with penalties, end tokens and limits, good, bad and no drafts, long and short prompts."""
    model = tiny_model(name)
    requests = requests_of(model, seed)
    target = HfTarget(model, TargetConfig(prefill_chunk_tokens=48, shared_prefill_chunk_tokens=16))
    steps = serve_together(target, requests, seed=seed)
    assert texts(requests) == [request.truth for request in requests]
    assert target.packs_rows == (name in PACKED)
    assert max(len(step) for step in steps) == 6
    assert any(0 < sum(len(finished.tokens) > 0 for finished in step) < len(step) for step in steps)
    assert not target._rows


@pytest.mark.parametrize("name", PACKED)
def test_a_round_of_all_rows_is_one_pass_without_padding(
    tiny_model: Any, monkeypatch: pytest.MonkeyPatch, requests_of: Any, name: str
) -> None:
    model = tiny_model(name)
    requests = requests_of(model)
    target = HfTarget(model)
    assert target.packs_rows
    passes = count_passes(model, monkeypatch)
    steps = serve_together(target, requests)
    assert len(passes) == len(steps)
    assert texts(requests) == [request.truth for request in requests]
    num_prompt_tokens = sum(len(request.prompt) for request in requests)
    num_verified_tokens = sum(
        finished.num_draft_tokens + 1 for step in steps for finished in step if len(finished.tokens)
    )
    assert sum(passes) == num_prompt_tokens + num_verified_tokens - len(requests)


def test_a_pass_is_split_where_it_would_be_too_wide(
    tiny_model: Any, monkeypatch: pytest.MonkeyPatch, requests_of: Any
) -> None:
    model = tiny_model("llama")
    requests = requests_of(model)
    target = HfTarget(model, TargetConfig(prefill_chunk_tokens=48, max_pass_tokens=20))
    assert target.packs_rows
    passes = count_passes(model, monkeypatch)
    serve_together(target, requests)
    assert texts(requests) == [request.truth for request in requests]
    assert sorted(passes)[len(passes) // 2] <= 20


def test_logits_of_a_packed_pass_are_those_of_the_rows_alone_to_the_last_digits(tiny_model: Any) -> None:
    """Measured rather than tolerated in a test of tokens: how far apart they are, and how near two tokens come."""
    reader = BlockReader(tiny_model("llama"), 4096)
    generator = np.random.default_rng(0)
    rows = [generator.integers(3, VOCAB_SIZE, length).astype(np.int32) for length in (1, 5, 30, 80)]
    with torch.no_grad():
        alone = [reader.read([Block(row, hf.DynamicCache(config=reader.model.config), 0, 1)])[0] for row in rows]
        packed = reader.read([Block(row, hf.DynamicCache(config=reader.model.config), 0, 1) for row in rows])
    assert max(float((one - other).abs().max()) for one, other in zip(alone, packed, strict=True)) < 1e-4
    best = [logits[0].topk(2).values for logits in alone]
    assert min(float(first - second) for first, second in best) > 1e-3


@pytest.mark.parametrize("cancelled_at", range(8))
def test_a_row_cancelled_at_any_round_changes_no_other(tiny_model: Any, requests_of: Any, cancelled_at: int) -> None:
    model = tiny_model("llama")
    requests = requests_of(model)[:5]
    target = HfTarget(model, TargetConfig(prefill_chunk_tokens=32, shared_prefill_chunk_tokens=8))
    engine = Engine(target, FixedPolicy(12))
    steps: list[list[Round]] = []
    everyone = [request.open(target.max_context_tokens) for request in requests]
    everyone[2].is_cancelled = lambda: len(steps) >= cancelled_at
    while live := [sequence for sequence in everyone if not sequence.is_finished]:
        steps.append(engine.step(live))
    if everyone[2].finish_reason == "cancelled":
        assert everyone[2].output.tolist() == requests[2].truth[: len(everyone[2].output)]
    del requests[2]
    assert texts(requests) == [request.truth for request in requests]


# Which models.


def model_of(config: Any) -> Any:
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(config).eval()
    torch.nn.init.normal_(model.get_output_embeddings().weight, std=1.0)
    return model


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: hf.LlamaConfig(**SHAPE, attn_implementation="eager"), "its attention is 'eager', not 'sdpa'"),
        (
            lambda: hf.LlamaConfig(**SHAPE, rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}),
            "its positions are rotated by the longest row (dynamic)",
        ),
        (
            lambda: hf.BloomConfig(vocab_size=VOCAB_SIZE, hidden_size=32, n_layer=2, n_head=4),
            "forward() takes no position_ids",
        ),
        (lambda: hf.MistralConfig(**SHAPE, sliding_window=16), "its cache is not one of full attention alone"),
    ],
)
def test_models_that_can_not_be_packed_are_named_and_verified_one_by_one(
    make: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = model_of(make())
    requests = random_requests(model, 6, seed=0)
    target = HfTarget(model)
    with caplog.at_level("INFO", logger=reading.__name__):
        serve_together(target, requests)
        assert not target.packs_rows
    assert texts(requests) == [request.truth for request in requests]
    (record,) = caplog.records
    assert record.getMessage() == (
        f"rows of a batch are verified one after the other with {type(model).__name__}: {reason}"
    )


def test_attention_that_is_more_than_causal_is_not_packed(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """Such as the sinks of GPT-OSS, which a function that ignores unknown keywords would leave out."""
    model = model_of(hf.LlamaConfig(**SHAPE))
    attention = model.model.layers[1].self_attn
    monkeypatch.setattr(attention, "forward", partial(attention.forward, s_aux=torch.zeros(4)))
    with caplog.at_level("INFO", logger=reading.__name__):
        assert not HfTarget(model).packs_rows
    assert "expected causal attention without more in a packed pass, got ['s_aux']" in caplog.text


def test_a_model_whose_packed_logits_are_other_ones_is_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a model does with the tokens of a pass as a whole shows in the two rows that are tried out."""
    model = model_of(hf.LlamaConfig(**SHAPE))
    forward = model.model.layers[0].forward

    def averaged(hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return forward(hidden_states + 0.1 * hidden_states.mean(dim=1, keepdim=True), *args, **kwargs)

    monkeypatch.setattr(model.model.layers[0], "forward", averaged)
    assert not HfTarget(model).packs_rows


def test_the_model_is_left_as_it_was_also_where_a_pass_fails(
    tiny_model: Any, monkeypatch: pytest.MonkeyPatch, requests_of: Any
) -> None:
    model = tiny_model("llama")
    requests = [Request(request.prompt, SamplingConfig(), max_tokens=20) for request in requests_of(model)[:2]]
    for request in requests:
        request.truth = served_alone(model, request)
    target = HfTarget(model)
    assert target.packs_rows
    forward = model.model.layers[1].forward
    calls = iter(range(100))

    def failing(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == 3:
            raise RuntimeError("out of memory")
        return forward(*args, **kwargs)

    monkeypatch.setattr(model.model.layers[1], "forward", failing)
    live = [request.open(target.max_context_tokens, cache_group="a") for request in requests]
    engine = Engine(target, FixedPolicy(12))
    for _ in range(3):
        engine.step(live)
    with pytest.raises(RuntimeError, match="out of memory"):
        engine.step(live)
    assert model.config._attn_implementation == "sdpa"
    for sequence in live:  # read anew, as nobody knows which layers have the tokens of the failed pass
        target.close(sequence.key)
    assert len(target.prefix_cache) == 0
    while live:
        live = [sequence for sequence in live if not sequence.is_finished and engine.step([sequence])]
    assert texts(requests) == [request.truth for request in requests]


def test_a_static_cache_among_packed_rows_keeps_its_own_pass(tiny_model: Any, requests_of: Any) -> None:
    model = tiny_model("llama")
    requests = requests_of(model)[:6]

    def open_cache(row: Any) -> RowCache:
        if row.num_prompt_tokens % 2:
            return RowCache(hf.StaticCache(config=model.config, max_cache_len=256))
        return RowCache(hf.DynamicCache(config=model.config))

    serve_together(HfTarget(model, open_cache=open_cache), requests)
    assert texts(requests) == [request.truth for request in requests]


# Reading prompts beside other rows.


def test_a_long_prompt_does_not_hold_up_the_others(tiny_model: Any) -> None:
    model = tiny_model("llama")
    generator = np.random.default_rng(3)
    prompts = [generator.integers(3, VOCAB_SIZE, length).astype(np.int32) for length in (8, 400)]
    short, long = (Request(prompt, SamplingConfig(), max_tokens=30) for prompt in prompts)
    target = HfTarget(model, TargetConfig(prefill_chunk_tokens=100, shared_prefill_chunk_tokens=40))
    engine = Engine(target, FixedPolicy(0))
    first, second = short.open(512), long.open(512)
    engine.step([first])
    rounds = [engine.step([first, second]) for _ in range(10)]
    assert [len(step[0].tokens) for step in rounds] == [1] * 10
    assert [len(step[1].tokens) for step in rounds] == [0] * 9 + [1]  # 399 tokens, 40 a round
    assert {step[1].draft.reason for step in rounds[:9]} == {"the prompt is still being read"}
    metrics = [SpeculationMetrics(), SpeculationMetrics()]
    for step in rounds:
        for counter, finished in zip(metrics, step, strict=True):
            counter.add(finished)
    assert [counter.num_rounds for counter in metrics] == [10, 1]
    assert metrics[0].prefill_seconds == 0.0
    assert metrics[1].tokens_per_round == 1.0
    waited = sum(step[1].draft_seconds + step[1].verify_seconds for step in rounds[:9])
    assert metrics[1].prefill_seconds == pytest.approx(waited + rounds[9][1].prefill_seconds)
    assert 0.0 < rounds[9][1].prefill_seconds < rounds[9][1].verify_seconds


def test_while_nobody_decodes_more_is_read_in_a_round(tiny_model: Any) -> None:
    target = HfTarget(tiny_model("llama"), TargetConfig(prefill_chunk_tokens=100, shared_prefill_chunk_tokens=40))
    sequence = Request(np.full(400, 5, np.int32), SamplingConfig(), max_tokens=2).open(512)
    rounds = list(Engine(target, FixedPolicy(0)).generate(sequence))
    assert [len(finished.tokens) for finished in rounds] == [0, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("num_unread_tokens", "budget", "expected"),
    [
        ([], 512, []),
        ([0, 0], 512, [0, 0]),
        ([300, 300], 512, [300, 212]),
        ([2000], 512, [512]),
        ([2000, 0, 300, 100], 512, [256, 0, 156, 100]),  # half for the oldest, then the shortest first
        ([2000, 2000], 512, [512, 0]),
        ([5, 2000, 3], 512, [5, 504, 3]),
        ([9, 9, 9], 1, [1, 0, 0]),
    ],
)
def test_what_may_be_read_goes_to_the_oldest_and_the_shortest(
    num_unread_tokens: list[int], budget: int, expected: list[int]
) -> None:
    assert share_budget(num_unread_tokens, budget) == expected


def test_shares_never_exceed_the_budget_nor_what_is_unread_and_waste_nothing() -> None:
    generator = np.random.default_rng(0)
    for _ in range(300):
        unread = generator.integers(0, 600, generator.integers(1, 9)).tolist()
        budget = int(generator.integers(1, 700))
        shares = share_budget(unread, budget)
        assert all(0 <= share <= num for share, num in zip(shares, unread, strict=True))
        assert sum(shares) == min(budget, sum(unread))
        oldest = next((index for index, num in enumerate(unread) if num), None)
        assert oldest is None or shares[oldest] >= min(unread[oldest], max(1, budget // 2))
