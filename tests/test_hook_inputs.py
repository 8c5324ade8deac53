"""What the hook is given: odd values that work, wrong ones refused by name, and nothing left behind by a failure."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from test_hook import OFF, both, prompt

from lookahead_edit.config import SpeculationConfig
from lookahead_edit.hook import LookaheadEdit
from lookahead_edit.types import InvalidInput
from tests.tiny_tokenizers import byte_level_tokenizer


def two_rows() -> torch.Tensor:
    return torch.cat([prompt(20, 0), prompt(20, 1)])


def generate(model: Any, ids: torch.Tensor, **options: Any) -> Any:
    return model.generate(
        ids, **{"max_new_tokens": 10, "do_sample": False, "custom_generate": LookaheadEdit()} | options
    )


@pytest.mark.parametrize(
    "options",
    [
        {"prefix_allowed_tokens_fn": lambda batch, ids: [10 + batch, 20 + batch, int(ids[-1])]},
        {"guidance_scale": 1.5},
        {"watermarking_config": hf.SynthIDTextWatermarkingConfig(keys=[1, 2, 3], ngram_len=3)},
    ],
    ids=lambda options: next(iter(options)),
)
def test_processors_that_need_the_whole_batch_take_one_row(tiny_model: Any, options: dict[str, Any]) -> None:
    model = tiny_model("llama")
    with pytest.raises(InvalidInput, match=f"expected one row with {next(iter(options))}, got 2"):
        generate(model, two_rows(), **options)
    plain, ours, _ = both(model, prompt(20), max_new_tokens=10, do_sample=False, **options)
    assert torch.equal(plain, ours)


@pytest.mark.parametrize("name", ["constraints", "force_words_ids"])
def test_constraints_are_refused_rather_than_forgotten(tiny_model: Any, name: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        generate(tiny_model("llama"), prompt(20), **{name: [[5]]})


@pytest.mark.parametrize("name", ["output_attentions", "output_hidden_states"])
def test_outputs_that_are_not_returned_are_no_error(tiny_model: Any, name: str) -> None:
    plain, ours, _ = both(tiny_model("llama"), prompt(30), max_new_tokens=10, do_sample=False, **{name: True})
    assert torch.equal(plain, ours)


def test_positions_that_skip_are_refused(tiny_model: Any) -> None:
    model, ids = tiny_model("gpt2"), prompt(20)
    counted = torch.arange(20)[None]
    plain, ours, _ = both(model, ids, position_ids=counted, max_new_tokens=10, do_sample=False)
    assert torch.equal(plain, ours)
    for positions in (counted + 7, 2 * counted):
        with pytest.raises(InvalidInput, match="position_ids"):
            generate(model, ids, position_ids=positions)


def test_a_row_of_padding_alone_is_refused(tiny_model: Any) -> None:
    mask = torch.ones(2, 20, dtype=torch.long)
    mask[1] = 0
    with pytest.raises(InvalidInput, match="attention_mask row 1 of zeros alone"):
        generate(tiny_model("llama"), two_rows(), attention_mask=mask)


def test_a_prompt_without_tokens_is_refused(tiny_model: Any) -> None:
    with pytest.raises(InvalidInput, match="expected a prompt"):
        generate(tiny_model("llama"), torch.zeros(1, 0, dtype=torch.long))


@pytest.mark.parametrize("seed", [0, 2**64 - 1, np.int64(5), np.uint64(2**64 - 1), torch.tensor(4)])
def test_any_whole_number_is_a_seed(tiny_model: Any, seed: Any) -> None:
    hooks = [LookaheadEdit(seed=seed), LookaheadEdit(seed=seed, speculation=OFF)]
    on, off = (generate(tiny_model("llama"), two_rows(), do_sample=True, custom_generate=hook) for hook in hooks)
    assert torch.equal(on, off)


def test_half_a_number_is_no_seed() -> None:
    with pytest.raises(TypeError):
        LookaheadEdit(seed=5.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("prediction", [[], [5, 6], torch.tensor([[5, 6]]), np.array([5, 500]), [96] * 5000])
def test_any_token_ids_are_a_prediction(tiny_model: Any, prediction: Any) -> None:
    hook = LookaheadEdit(prediction=prediction, context=[[7, 8]])
    plain, ours, _ = both(tiny_model("llama"), prompt(30), max_new_tokens=20, do_sample=False, hook=hook)
    assert torch.equal(plain, ours)


@pytest.mark.parametrize("prediction", [[-1, 5], [2**40], [1.5, 2.0], torch.tensor([3.0])], ids=str)
def test_what_is_no_token_id_is_refused_at_once(prediction: Any) -> None:
    with pytest.raises(InvalidInput, match="expected prediction as text or as token ids, got") as caught:
        LookaheadEdit(prediction=prediction)
    assert caught.value.param == "prediction"


def test_a_single_text_is_no_sequence_of_texts() -> None:
    with pytest.raises(InvalidInput, match="context"):
        LookaheadEdit(context="some text")


@pytest.mark.parametrize(
    "wrong",
    [
        {"draft_tokens_per_match": float("inf")},
        {"draft_tokens_per_match": float("nan")},
        {"max_draft_tokens": 8.5},
        {"max_draft_tokens": "8"},
        {"min_match_length": 1.5},
    ],
    ids=str,
)
def test_wrong_speculation_options_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=f"expected {next(iter(wrong))} .*, got "):
        SpeculationConfig(**wrong)


@pytest.mark.parametrize(
    "options",
    [
        {"max_draft_tokens": 0},
        {"max_draft_tokens": 1},
        {"max_draft_tokens": 4096, "policy": "fixed"},
        {"min_match_length": 100},
        {"draft_tokens_per_match": 1e-9},
        {"draft_tokens_per_match": 1e308},
        {"drafter": "ngram", "min_match_length": 100},
    ],
    ids=str,
)
def test_extreme_speculation_options_do_not_change_the_text(tiny_model: Any, options: dict[str, Any]) -> None:
    hook = LookaheadEdit(prediction=prompt(60)[0], speculation=SpeculationConfig(**options))
    plain, ours, _ = both(tiny_model("llama"), prompt(30), max_new_tokens=30, do_sample=False, hook=hook)
    assert torch.equal(plain, ours)


@pytest.mark.parametrize("score", [float("nan"), -float("inf"), float("inf")])
def test_scores_that_allow_no_sample_raise_instead_of_giving_a_token(tiny_model: Any, score: float) -> None:
    with pytest.raises(InvalidInput, match="expected scores by which a token can be sampled"):
        generate(
            tiny_model("llama"),
            prompt(20),
            max_new_tokens=1,
            do_sample=True,
            logits_processor=[lambda ids, scores: torch.full_like(scores, score)],
        )


def test_after_an_interrupt_the_same_hook_starts_afresh_and_keeps_nothing(tiny_model: Any) -> None:
    model, ids = tiny_model("llama"), prompt(30)
    kept: list[Any] = []

    def interrupt(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        kept.append(weakref.ref(scores))
        if len(kept) == 7:
            raise KeyboardInterrupt
        return scores

    hook = LookaheadEdit()
    options = {"return_dict_in_generate": True, "output_scores": True, "eos_token_id": 96}
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(KeyboardInterrupt):
            generate(model, ids, **options, logits_processor=[interrupt], custom_generate=hook)
        assert all(scores() is None for scores in kept)
    finally:
        gc.enable()
    plain, ours, _ = both(model, ids, max_new_tokens=10, do_sample=False, hook=hook)
    assert torch.equal(plain, ours)
    assert hook.metrics.num_emitted_tokens == 10


def test_with_a_tokenizer_the_file_in_the_prompt_is_found() -> None:
    tokenizer = byte_level_tokenizer()
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=len(tokenizer), **shape)).eval()
    file = "".join(f"value_{number} = add({number}, {number + 1})\n" for number in range(9))
    ids = tokenizer(f"Fix it:\n```python\n{file}```\nHere:\n```python\n", return_tensors="pt").input_ids
    for hook, is_found in ((LookaheadEdit(tokenizer), True), (LookaheadEdit(), False)):
        plain, ours, _ = both(model, ids, hook=hook, max_new_tokens=12, do_sample=False)
        assert torch.equal(plain, ours)
        assert ("file" in hook.metrics.num_drafted_by_source) == is_found
