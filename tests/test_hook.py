"""`generate(custom_generate=LookaheadEdit())`: same answers as `generate`, also where its own prompt lookup fails."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

from lookahead_edit.config import SpeculationConfig
from lookahead_edit.hook import LookaheadEdit
from lookahead_edit.types import InvalidInput, UnsupportedModel

MODELS = ["llama", "mistral", "qwen3_next"]
OFF = SpeculationConfig(enabled=False)
# The keyword is `cache` from transformers 5.24 on, `past_key_values` before.
CACHE = "cache" if "cache" in inspect.signature(hf.LlamaForCausalLM.forward).parameters else "past_key_values"


def prompt(num_tokens: int, seed: int = 0) -> torch.Tensor:
    """Half random, half a repetition of it, so that there is something to copy. int64[1, num_tokens]."""
    half = torch.randint(3, 97, ((num_tokens + 1) // 2,), generator=torch.Generator().manual_seed(seed))
    return torch.cat([half, half])[None, :num_tokens]


def both(model: Any, ids: torch.Tensor, **options: Any) -> tuple[Any, Any, LookaheadEdit]:
    """`generate` without and with the hook."""
    hook = options.pop("hook", None) or LookaheadEdit()
    plain = model.generate(ids, **options)
    return plain, model.generate(ids, **options, custom_generate=hook), hook


# What transformers' own prompt lookup gets wrong, one test each.


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_drafts_never_overrun_a_static_cache(tiny_model: Any, name: str) -> None:
    for seed in range(8):
        ids = prompt(24, seed)
        plain, ours, hook = both(
            tiny_model(name), ids, max_new_tokens=25, do_sample=False, cache_implementation="static"
        )
        assert torch.equal(plain, ours)
        assert hook.metrics.num_draft_tokens > 0


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("num_cached", [1, 20, 29])
def test_a_prefilled_cache_gives_the_same_text(tiny_model: Any, name: str, num_cached: int) -> None:
    model, ids = tiny_model(name), prompt(30)
    expected = model.generate(ids, max_new_tokens=30, do_sample=False)
    cache = hf.DynamicCache(config=model.config)
    with torch.no_grad():
        model(ids[:, :num_cached], **{CACHE: cache}, use_cache=True)
    hook = LookaheadEdit()
    ours = model.generate(ids, **{CACHE: cache}, max_new_tokens=30, do_sample=False, custom_generate=hook)
    assert torch.equal(expected, ours)


@pytest.mark.parametrize("name", MODELS)
def test_the_cache_left_behind_can_be_gone_on_with(tiny_model: Any, name: str) -> None:
    model, ids = tiny_model(name), prompt(30)
    expected = model.generate(ids, max_new_tokens=40, do_sample=False)
    cache = hf.DynamicCache(config=model.config)
    first = model.generate(ids, **{CACHE: cache}, max_new_tokens=17, do_sample=False, custom_generate=LookaheadEdit())
    assert int(cache.get_seq_length()) == first.shape[1] - 1
    for custom_generate in (None, LookaheadEdit()):
        again = model.generate(
            first, **{CACHE: cache}, max_new_tokens=23, do_sample=False, custom_generate=custom_generate
        )
        assert torch.equal(expected, again)
        cache = hf.DynamicCache(config=model.config)


def test_only_the_new_tokens_may_be_given_beside_a_cache(tiny_model: Any) -> None:
    model, ids = tiny_model("llama"), prompt(30)
    expected = model.generate(ids, max_new_tokens=20, do_sample=False)
    cache = hf.DynamicCache(config=model.config)
    with torch.no_grad():
        model(ids[:, :18], **{CACHE: cache}, use_cache=True)
    ours = model.generate(
        ids[:, 18:],
        attention_mask=torch.ones_like(ids),
        **{CACHE: cache},
        max_new_tokens=20,
        do_sample=False,
        custom_generate=LookaheadEdit(),
    )
    assert torch.equal(expected[:, 30:], ours[:, 12:])


def test_custom_criteria_inside_a_block_are_heard_for_every_token(tiny_model: Any) -> None:
    class SixTokens(hf.StoppingCriteria):
        def __init__(self) -> None:
            self.lengths: list[int] = []

        def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
            self.lengths.append(input_ids.shape[1])
            return torch.full((len(input_ids),), input_ids.shape[1] >= 36)

    criteria = SixTokens()
    ids = prompt(30)
    truth = tiny_model("llama").generate(ids, max_new_tokens=40, do_sample=False)
    ours = tiny_model("llama").generate(
        ids,
        max_new_tokens=40,
        do_sample=False,
        stopping_criteria=[criteria],
        custom_generate=LookaheadEdit(prediction=truth[0, 30:]),
    )
    assert torch.equal(ours, truth[:, :36])
    assert criteria.lengths == [31, 32, 33, 34, 35, 36]


def test_an_end_token_inside_a_block_ends_the_text(tiny_model: Any) -> None:
    model, ids = tiny_model("llama"), prompt(30)
    truth = model.generate(ids, max_new_tokens=40, do_sample=False)
    end = int(truth[0, 41])
    hook = LookaheadEdit(prediction=truth[0, 30:])
    plain, ours, _ = both(model, ids, max_new_tokens=40, do_sample=False, eos_token_id=[end, 96], hook=hook)
    assert torch.equal(plain, ours)


@pytest.mark.parametrize("do_sample", [False, True])
def test_processors_are_called_once_a_committed_token(tiny_model: Any, do_sample: bool) -> None:
    calls: list[int] = []

    def process(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        calls.append(input_ids.shape[1])
        return scores

    hook = LookaheadEdit()
    tiny_model("llama").generate(
        prompt(30), max_new_tokens=40, do_sample=do_sample, logits_processor=[process], custom_generate=hook
    )
    assert calls == list(range(30, 70))
    assert hook.metrics.num_draft_tokens > 0


def test_top_p_does_not_keep_tokens_from_being_drafted(tiny_model: Any) -> None:
    """With a distribution this sharp, sampling is greedy, and a true prediction must be accepted to the last token."""
    model, ids = tiny_model("llama"), prompt(30)
    truth = model.generate(ids, max_new_tokens=60, do_sample=False)
    hook = LookaheadEdit(prediction=truth[0, 30:], speculation=SpeculationConfig(drafter="suffix", policy="fixed"))
    ours = model.generate(
        ids, max_new_tokens=60, do_sample=True, temperature=1e-6, top_p=0.9, top_k=0, custom_generate=hook
    )
    assert torch.equal(ours, truth)
    assert hook.metrics.acceptance_rate == 1.0


def test_no_more_is_drafted_than_is_left(tiny_model: Any) -> None:
    model, ids = tiny_model("llama"), prompt(30)
    for num_new_tokens in (1, 2, 3, 7):
        _, ours, hook = both(model, ids, max_new_tokens=num_new_tokens, do_sample=False)
        assert ours.shape[1] == 30 + num_new_tokens
        assert len(hook.metrics.num_drafted_by_position) <= num_new_tokens - 1


@pytest.mark.parametrize("name", MODELS)
def test_padded_batches_equal_generate(tiny_model: Any, name: str) -> None:
    model = tiny_model(name)
    lengths = [30, 7, 22]
    ids = torch.zeros(3, 30, dtype=torch.long)
    mask = torch.zeros(3, 30, dtype=torch.long)
    for row, length in enumerate(lengths):
        ids[row, 30 - length :] = prompt(length, row)
        mask[row, 30 - length :] = 1
    hook = LookaheadEdit()
    ours = model.generate(ids, attention_mask=mask, max_new_tokens=25, do_sample=False, custom_generate=hook)
    for row, length in enumerate(lengths):
        alone = model.generate(prompt(length, row), max_new_tokens=25, do_sample=False)
        assert torch.equal(ours[row, 30:], alone[0, length:])
    assert torch.equal(ours[:, :30], ids)
    assert len(hook.row_metrics) == 3


def test_rows_of_a_batch_that_end_early_are_padded(tiny_model: Any) -> None:
    model = tiny_model("llama")
    ids = torch.cat([prompt(20, 0), prompt(20, 1)])
    truth = model.generate(ids, max_new_tokens=20, do_sample=False)
    end = int(truth[0, 25])
    plain, ours, _ = both(model, ids, max_new_tokens=20, do_sample=False, eos_token_id=end)
    assert torch.equal(plain, ours)


def test_no_end_token_is_no_error(tiny_model: Any) -> None:
    assert tiny_model("llama").generation_config.eos_token_id is None
    plain, ours, _ = both(tiny_model("llama"), prompt(30), max_new_tokens=20, do_sample=False)
    assert torch.equal(plain, ours)


# The rest of what `generate` offers.


@pytest.mark.parametrize("name", MODELS)
def test_sampling_with_a_seed_is_the_same_with_speculation_on_and_off(tiny_model: Any, name: str) -> None:
    options: dict[str, Any] = {"max_new_tokens": 40, "do_sample": True, "temperature": 0.8, "top_p": 0.9, "top_k": 30}
    for seed in (0, 1):
        hooks = [LookaheadEdit(seed=seed), LookaheadEdit(seed=seed, speculation=OFF)]
        on, off = (tiny_model(name).generate(prompt(30), **options, custom_generate=hook) for hook in hooks)
        assert torch.equal(on, off)
        assert hooks[1].metrics.num_draft_tokens == 0


def test_without_a_seed_torchs_own_generator_decides(tiny_model: Any) -> None:
    texts = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        texts.append(
            tiny_model("llama").generate(prompt(30), max_new_tokens=30, do_sample=True, custom_generate=LookaheadEdit())
        )
    assert torch.equal(texts[0], texts[1])
    assert not torch.equal(texts[0], texts[2])


def test_several_returned_sequences_differ(tiny_model: Any) -> None:
    ours = tiny_model("llama").generate(
        prompt(30), max_new_tokens=30, do_sample=True, num_return_sequences=3, custom_generate=LookaheadEdit(seed=1)
    )
    assert ours.shape == (3, 60)
    assert len({tuple(row.tolist()) for row in ours}) == 3


@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 1.3},
        {"no_repeat_ngram_size": 3},
        {"bad_words_ids": [[5], [7, 9]]},
        {"min_new_tokens": 15, "eos_token_id": list(range(3, 60))},
        {"suppress_tokens": [1, 2, 3]},
        {"sequence_bias": [[[5], 4.0]]},
        {"prefix_allowed_tokens_fn": lambda batch, ids: [int(ids[-1]) % 90 + 3, 11]},
        {"forced_eos_token_id": 5},
    ],
    ids=lambda options: next(iter(options)),
)
def test_processors_of_generate_give_the_same_text(tiny_model: Any, options: dict[str, Any]) -> None:
    plain, ours, _ = both(tiny_model("llama"), prompt(30), max_new_tokens=30, do_sample=False, **options)
    assert torch.equal(plain, ours)


def test_scores_logits_and_cache_are_returned_as_from_generate(tiny_model: Any) -> None:
    plain, ours, _ = both(
        tiny_model("llama"),
        prompt(30),
        max_new_tokens=20,
        do_sample=False,
        repetition_penalty=1.2,
        return_dict_in_generate=True,
        output_scores=True,
        output_logits=True,
    )
    assert torch.equal(plain.sequences, ours.sequences)
    assert len(ours.scores) == len(plain.scores) == 20
    torch.testing.assert_close(torch.cat(ours.scores), torch.cat(plain.scores), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(torch.cat(ours.logits), torch.cat(plain.logits), atol=1e-4, rtol=1e-4)
    assert int(ours[CACHE].get_seq_length()) == int(plain[CACHE].get_seq_length()) == 49


def test_a_streamer_gets_the_prompt_every_token_and_the_end(tiny_model: Any) -> None:
    class Kept:
        def __init__(self) -> None:
            self.values: list[torch.Tensor] = []
            self.is_ended = False

        def put(self, value: torch.Tensor) -> None:
            self.values.append(value)

        def end(self) -> None:
            self.is_ended = True

    streamer, ids = Kept(), prompt(30)
    ours = tiny_model("llama").generate(
        ids, max_new_tokens=20, do_sample=False, custom_generate=LookaheadEdit(streamer=streamer)
    )
    assert torch.equal(streamer.values[0], ids)
    assert torch.equal(torch.cat(streamer.values[1:]), ours[0, 30:])
    assert streamer.is_ended


@pytest.mark.parametrize("drafter", ["edit", "suffix"])
def test_a_prediction_is_drafted_from(tiny_model: Any, drafter: str) -> None:
    model, ids = tiny_model("llama"), prompt(30)
    truth = model.generate(ids, max_new_tokens=60, do_sample=False)
    speculation = SpeculationConfig(drafter=drafter, policy="match_length")
    hook = LookaheadEdit(prediction=truth[0, 30:], speculation=speculation)
    assert torch.equal(model.generate(ids, max_new_tokens=60, do_sample=False, custom_generate=hook), truth)
    assert hook.metrics.num_accepted_by_source["prediction"] > 40
    assert hook.metrics.num_rounds < 8


def test_metrics_count_every_round(tiny_model: Any) -> None:
    hook = LookaheadEdit(speculation=OFF)
    tiny_model("llama").generate(prompt(30), max_new_tokens=20, do_sample=False, custom_generate=hook)
    assert (hook.metrics.num_rounds, hook.metrics.num_emitted_tokens) == (20, 20)
    assert hook.metrics.tokens_per_round == 1.0
    assert hook.metrics.acceptance_rate is None
    assert sum(hook.metrics.num_rounds_by_reason.values()) == 20


def test_bfloat16_runs(tiny_model: Any) -> None:
    from tiny_models import make_tiny_model

    model = make_tiny_model("llama").to(torch.bfloat16)
    ours = model.generate(prompt(30), max_new_tokens=20, do_sample=False, custom_generate=LookaheadEdit())
    assert ours.shape == (1, 50)


# Refused by name.


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"num_beams": 2}, "num_beams"),
        ({"return_dict_in_generate": True, "output_attentions": True}, "output_attentions"),
        ({"return_dict_in_generate": True, "output_hidden_states": True}, "output_hidden_states"),
    ],
)
def test_what_cant_be_verified_is_refused_by_name(tiny_model: Any, options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        tiny_model("llama").generate(
            prompt(30), max_new_tokens=5, do_sample=False, **options, custom_generate=LookaheadEdit()
        )


def test_embeddings_as_input_are_refused_by_name(tiny_model: Any) -> None:
    model = tiny_model("llama")
    with pytest.raises(InvalidInput, match="inputs_embeds"):
        model.generate(
            inputs_embeds=model.get_input_embeddings()(prompt(30)),
            max_new_tokens=5,
            do_sample=False,
            custom_generate=LookaheadEdit(),
        )


def test_padding_on_the_right_is_refused(tiny_model: Any) -> None:
    mask = torch.ones(1, 30, dtype=torch.long)
    mask[0, 28:] = 0
    with pytest.raises(InvalidInput, match="left"):
        tiny_model("llama").generate(
            prompt(30), attention_mask=mask, max_new_tokens=5, do_sample=False, custom_generate=LookaheadEdit()
        )


def test_a_small_static_cache_is_refused_with_the_numbers(tiny_model: Any) -> None:
    model = tiny_model("llama")
    cache = hf.StaticCache(config=model.config, max_cache_len=40)
    with pytest.raises(InvalidInput, match="at least 49 tokens, got 40"):
        model.generate(
            prompt(30), **{CACHE: cache}, max_new_tokens=20, do_sample=False, custom_generate=LookaheadEdit()
        )


def test_an_encoder_decoder_is_refused_by_name() -> None:
    config = hf.T5Config(
        vocab_size=97, d_model=16, d_kv=4, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0
    )
    with pytest.raises(UnsupportedModel, match="T5ForConditionalGeneration"):
        hf.T5ForConditionalGeneration(config).generate(
            prompt(8), max_new_tokens=4, do_sample=False, custom_generate=LookaheadEdit()
        )


def test_a_text_prediction_without_a_tokenizer_is_refused() -> None:
    with pytest.raises(InvalidInput, match="tokenizer"):
        LookaheadEdit(prediction="some text")


def test_a_batch_of_no_rows_is_refused(tiny_model: Any) -> None:
    with pytest.raises(InvalidInput, match="expected a row or more, got a batch of none"):
        tiny_model("llama").generate(prompt(8)[:0], max_new_tokens=4, custom_generate=LookaheadEdit())


def test_a_streamer_takes_one_row(tiny_model: Any) -> None:
    with pytest.raises(InvalidInput, match="one row"):
        tiny_model("llama").generate(
            torch.cat([prompt(8), prompt(8)]),
            max_new_tokens=4,
            do_sample=False,
            custom_generate=LookaheadEdit(streamer=object()),
        )


def test_unknown_speculation_options_raise() -> None:
    with pytest.raises(InvalidInput, match="drafter"):
        LookaheadEdit(speculation=SpeculationConfig(drafter="sufix"))
    assert np.isfinite(SpeculationConfig().draft_tokens_per_match)
