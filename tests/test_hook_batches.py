"""Batches through the hook: every processor and criterion works on a row as `generate` lets it work on all of them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import transformers as hf
from test_hook import both, prompt
from tiny_tokenizers import byte_level_tokenizer

from lookahead_edit.hook import LookaheadEdit
from lookahead_edit.hook_rows import SharedEnd
from lookahead_edit.types import InvalidInput


def padded(*lengths: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of so many tokens, padded on the left; ids and mask, int64[num_rows, max(lengths)]."""
    width = max(lengths)
    ids, mask = torch.zeros(len(lengths), width, dtype=torch.long), torch.zeros(len(lengths), width, dtype=torch.long)
    for row, length in enumerate(lengths):
        ids[row, width - length :] = prompt(length, row)[0]
        mask[row, width - length :] = 1
    return ids, mask


@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 1.4},
        {"repetition_penalty": 0.8},
        {"encoder_repetition_penalty": 1.5},
        {"encoder_no_repeat_ngram_size": 2},
        {"no_repeat_ngram_size": 2},
        {"repetition_penalty": 1.3, "encoder_no_repeat_ngram_size": 3, "no_repeat_ngram_size": 3},
        {"bad_words_ids": [[5], [6, 7]], "min_new_tokens": 9, "sequence_bias": [[[9], -4.0]]},
    ],
    ids=lambda options: ", ".join(options),
)
@pytest.mark.parametrize("lengths", [(20, 20), (24, 9, 17), (12,)])
def test_processors_that_look_at_the_rows_of_a_prompt_give_the_same_text(
    tiny_model: Any, options: dict[str, Any], lengths: tuple[int, ...]
) -> None:
    ids, mask = padded(*lengths)
    settings = {"attention_mask": mask, "max_new_tokens": 24, "do_sample": False, **options}
    plain, ours, hook = both(tiny_model("llama"), ids, **settings)
    assert torch.equal(plain, ours)
    assert hook.metrics.num_rounds > 0


def test_the_processors_that_were_given_are_left_as_they_were(tiny_model: Any) -> None:
    ids, mask = padded(20, 11)
    penalty = hf.RepetitionPenaltyLogitsProcessor(1.4, prompt_ignore_length=torch.tensor([0, 9]))
    settings = {"attention_mask": mask, "max_new_tokens": 16, "do_sample": False, "logits_processor": [penalty]}
    before = copy.copy(vars(penalty))
    plain, ours, _ = both(tiny_model("llama"), ids, **settings)
    assert torch.equal(plain, ours)
    assert vars(penalty).keys() == before.keys()
    assert torch.equal(penalty.prompt_ignore_length, before["prompt_ignore_length"])  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"encoder_repetition_penalty": 1.5}, {"encoder_no_repeat_ngram_size": 2}])
def test_sequences_of_one_prompt_share_what_is_known_of_it(tiny_model: Any, options: dict[str, Any]) -> None:
    ids, mask = padded(20, 13)
    settings = {"attention_mask": mask, "max_new_tokens": 12, "do_sample": True, "num_return_sequences": 2}
    hooks = LookaheadEdit(seed=3), LookaheadEdit(seed=3)
    first, again = (tiny_model("llama").generate(ids, **settings, **options, custom_generate=hook) for hook in hooks)
    assert first.shape == (4, 32)
    assert torch.equal(first, again)


# Ends


class EndsAt(hf.StoppingCriteria):  # type: ignore[misc]
    """Stops a row at any of the tokens."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        return torch.tensor([int(row[-1]) in self.tokens for row in input_ids])


@pytest.mark.parametrize("lengths", [(20, 20), (24, 9, 17)])
@pytest.mark.parametrize("places", [(3, 14), (14, 3), (5, 5)])
def test_without_an_end_token_rows_go_on_until_all_were_stopped(
    tiny_model: Any, lengths: tuple[int, ...], places: tuple[int, int]
) -> None:
    model = tiny_model("llama")
    ids, mask = padded(*lengths)
    truth = model.generate(ids, attention_mask=mask, max_new_tokens=30, do_sample=False)
    tokens = [int(row[ids.shape[1] + place]) for row, place in zip(truth, (*places, 9), strict=False)]
    criteria = [EndsAt(tokens)]
    settings: dict[str, Any] = {"attention_mask": mask, "max_new_tokens": 30, "do_sample": False}
    hook = LookaheadEdit(prediction=truth[0, ids.shape[1] :])
    plain, ours, _ = both(model, ids, **settings, stopping_criteria=criteria, hook=hook)
    assert plain.shape[1] < ids.shape[1] + 30
    assert torch.equal(plain, ours)


def test_with_an_end_token_rows_that_were_stopped_are_padded(tiny_model: Any) -> None:
    model = tiny_model("llama")
    ids, mask = padded(24, 9, 17)
    truth = model.generate(ids, attention_mask=mask, max_new_tokens=30, do_sample=False)
    criteria = [EndsAt([int(truth[0, 30]), int(truth[1, 35])])]
    settings: dict[str, Any] = {"attention_mask": mask, "max_new_tokens": 30, "do_sample": False}
    plain, ours, _ = both(model, ids, **settings, stopping_criteria=criteria, eos_token_id=int(truth[2, 40]))
    assert torch.equal(plain, ours)


def test_a_row_that_is_never_stopped_makes_all_as_long_as_the_limit() -> None:
    end = SharedEnd(2)
    assert not end.is_reached(0, 3, is_stopped=True)
    assert not end.is_reached(0, 9, is_stopped=True)  # stopped again: the first time counts
    assert end.num_output_tokens is None
    assert end.is_reached(1, 4, is_stopped=True)
    assert end.num_output_tokens == 4


# Inputs of its own


def test_texts_that_no_tokenizer_can_read_are_refused_by_name() -> None:
    tokenizer = byte_level_tokenizer()
    for options in ({"prediction": "a\ud800"}, {"context": ["good", "a\udfff"]}):
        with pytest.raises(InvalidInput, match=r"lone surrogate U\+D[8F][0F][0F] at character 1"):
            LookaheadEdit(tokenizer, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("prediction", [5, 5.0, True, b"abc", object(), ["a", "b"], [None], [[1], [2, 3]], {"a": 1}])
def test_what_is_no_prediction_is_refused_as_such(prediction: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^expected prediction as text or as token ids, got ") as caught:
        LookaheadEdit(prediction=prediction)
    assert caught.value.param == "prediction"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("context", [None, 5, {"a.py": "x"}, b"abc"])
def test_what_is_no_sequence_of_texts_is_refused_as_such(context: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^expected context to be a sequence of texts, got a "):
        LookaheadEdit(context=context)


def test_any_texts_and_token_ids_are_a_context(tiny_model: Any) -> None:
    hook = LookaheadEdit(byte_level_tokenizer(), context=iter(["def f():", [5, 6, 7], torch.tensor([8, 9])]))
    plain, ours, _ = both(tiny_model("llama"), prompt(20), max_new_tokens=8, do_sample=False, hook=hook)
    assert torch.equal(plain, ours)


def test_stop_strings_go_into_the_criteria() -> None:
    """As the hook's documentation says: `generate` keeps the tokenizer to itself."""
    tokenizer = byte_level_tokenizer()
    torch.manual_seed(0)
    config = hf.LlamaConfig(
        vocab_size=300, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4
    )
    model = hf.LlamaForCausalLM(config).eval()
    model.generation_config = hf.GenerationConfig(pad_token_id=0)
    inputs = tokenizer("def add(", return_tensors="pt")
    settings: dict[str, Any] = {"max_new_tokens": 24, "do_sample": False}
    truth = model.generate(**inputs, **settings)
    new_texts = [tokenizer.decode(token) for token in truth[0, inputs["input_ids"].shape[1] :]]
    stop = next(text for text in new_texts[3:18] if text.isascii() and text.strip())
    criteria = [hf.StopStringCriteria(tokenizer, [stop])]
    plain = model.generate(**inputs, **settings, tokenizer=tokenizer, stop_strings=[stop])
    ours = model.generate(
        **inputs, **settings, stopping_criteria=criteria, custom_generate=LookaheadEdit(prediction=truth[0])
    )
    assert torch.equal(plain, ours)
    assert plain.shape[1] < truth.shape[1]
