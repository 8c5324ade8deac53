"""A smaller model as a drafter: its law, its rollback, what it refuses, and its place in the editor and the hook."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from tiny_models import SHAPE, VOCAB_SIZE, make_tiny_model

from lookahead_edit.config import SamplingConfig, SpeculationConfig
from lookahead_edit.drafters.scripted import ScriptedDrafter
from lookahead_edit.editor import Editor, EditRequest
from lookahead_edit.engine import Engine
from lookahead_edit.hook import LookaheadEdit
from lookahead_edit.policy import FixedPolicy
from lookahead_edit.sequence import Sequence
from lookahead_edit.targets.draft_model import (
    DraftModel,
    DraftModelConfig,
    ModelDrafter,
    model_drafter_factory,
    require_same_vocabulary,
)
from lookahead_edit.targets.hf import HfTarget
from lookahead_edit.tokenizer import ByteTokenizer
from lookahead_edit.types import Draft, IntArray, InvalidInput, SourceKind, UnsupportedModel
from lookahead_edit.verify import make_sampler, score_processor

# 1 - chi2.cdf(46.0, df=9) = 6e-7: with fixed seeds a pass stays a pass.
CHI_SQUARE_LIMIT = 46.0


def small_vocabulary_model(seed: int) -> Any:
    """Ten tokens, so that laws can be counted; another seed is another model."""
    torch.manual_seed(seed)
    model = hf.LlamaForCausalLM(hf.LlamaConfig(**SHAPE | {"vocab_size": 10, "num_hidden_layers": 1}))
    torch.nn.init.normal_(model.get_output_embeddings().weight, std=0.25)
    return model.eval()


def noisy_copy(model: Any, noise: float = 0.02) -> Any:
    """A model that mostly, and not always, says what the given one does."""
    other = copy.deepcopy(model)
    torch.manual_seed(9)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(torch.randn_like(parameter) * noise)
    return other


def decode(
    model: Any, drafter: Any, prompt: IntArray, sampling: SamplingConfig, num_new_tokens: int = 40
) -> tuple[list[int], list[Draft], list[int]]:
    """The text, the drafts, and how many tokens of each were accepted."""
    sequence = Sequence(
        prompt, drafter=drafter, sampling=sampling, max_tokens=num_new_tokens, max_context_tokens=10_000
    )
    rounds = list(Engine(HfTarget(model), FixedPolicy(8)).generate(sequence))
    return (
        sequence.output.tolist(),
        [finished.draft for finished in rounds],
        [finished.num_accepted_tokens for finished in rounds],
    )


class RereadingDrafter(ModelDrafter):
    """The slow twin: forgets its cache before every token, so there is nothing to roll back."""

    def _scores(self, drafted: IntArray) -> torch.Tensor:
        self._state, self._seen = self.model.open(), self._seen[:0]
        return super()._scores(drafted)


SAMPLINGS = [
    SamplingConfig(),
    SamplingConfig(temperature=0.8, seed=3),
    SamplingConfig(temperature=1.0, top_k=20, top_p=0.9, repetition_penalty=1.2, seed=4),
]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "sampled", "warped and penalised"])
@pytest.mark.parametrize("name", ["llama", "mistral", "gpt2"])
def test_drafts_after_rollbacks_are_those_of_a_model_that_reads_everything_again(
    tiny_model: Any, random_prompt: IntArray, name: str, sampling: SamplingConfig
) -> None:
    target = tiny_model(name)
    draft_model = DraftModel(noisy_copy(target), VOCAB_SIZE)
    text, drafts, accepted = decode(target, ModelDrafter(draft_model, sampling), random_prompt, sampling)
    slow_text, slow_drafts, _ = decode(target, RereadingDrafter(draft_model, sampling), random_prompt, sampling)
    assert text == slow_text
    assert [draft.tokens.tolist() for draft in drafts] == [draft.tokens.tolist() for draft in slow_drafts]
    assert 0 < sum(accepted) < sum(map(len, drafts)), "expected rollbacks of all lengths"
    for draft, slow in zip(drafts, slow_drafts, strict=True):
        if len(draft):
            assert draft.probabilities == pytest.approx(slow.probabilities, rel=1e-3)
            assert (draft.distributions is None) == sampling.is_greedy
        if draft.distributions is not None and slow.distributions is not None:
            np.testing.assert_allclose(draft.distributions, slow.distributions, atol=1e-4)


def test_a_sequence_that_begins_anew_drafts_the_same(tiny_model: Any, random_prompt: IntArray) -> None:
    target, sampling = tiny_model("llama"), SamplingConfig(temperature=0.9, seed=8)
    drafter = ModelDrafter(DraftModel(noisy_copy(target), VOCAB_SIZE), sampling)
    first = decode(target, drafter, random_prompt, sampling)
    second = decode(target, drafter, random_prompt, sampling)
    assert first[0] == second[0]
    assert [draft.tokens.tolist() for draft in first[1]] == [draft.tokens.tolist() for draft in second[1]]


def test_a_model_that_drafts_for_itself_is_always_right_when_greedy(tiny_model: Any, random_prompt: IntArray) -> None:
    target = tiny_model("llama")
    _text, drafts, accepted = decode(
        target, ModelDrafter(DraftModel(target, VOCAB_SIZE)), random_prompt, SamplingConfig(), 45
    )
    assert [len(draft) for draft in drafts] == [8] * 5
    assert accepted == [8] * 5
    for draft in drafts:
        assert set(draft.sources.tolist()) == {SourceKind.MODEL}
        assert draft.probabilities is not None
        assert (np.diff(draft.probabilities) <= 0.0).all()


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingConfig(temperature=1.0),
        SamplingConfig(temperature=0.7, top_k=6),
        SamplingConfig(temperature=1.2, top_p=0.9),
    ],
    ids=str,
)
def test_drafted_tokens_have_the_draft_models_law_and_emitted_ones_the_targets(sampling: SamplingConfig) -> None:
    """Also the acceptance: sum min(p, q) at the first place (Leviathan et al. 2023, theorem 3.5)."""
    target, other = small_vocabulary_model(1), small_vocabulary_model(2)
    prompt = np.array([3, 1, 4, 1, 5], dtype=np.int32)
    num_draws = 1000
    model, verifier = DraftModel(other, 10), HfTarget(target)
    laws = [_law(each, prompt, sampling) for each in (other, target)]
    drafted, emitted, num_accepted = np.zeros(10), np.zeros((2, 10)), 0
    with torch.no_grad():
        second_laws = [_law(target, np.append(prompt, np.int32(token)), sampling) for token in range(10)]
    expected_second = np.zeros(10)
    for seed in range(num_draws):
        seeded = replace(sampling, seed=seed)
        drafter = ModelDrafter(model, seeded, DraftModelConfig(max_draft_tokens=1))
        sequence = Sequence(prompt, drafter=drafter, sampling=seeded, max_tokens=3, max_context_tokens=100)
        [finished, *_] = Engine(verifier, FixedPolicy(8)).step([sequence])
        verifier.close(sequence.key)
        drafted[finished.draft.tokens[0]] += 1
        emitted[0, finished.tokens[0]] += 1
        if finished.num_accepted_tokens:
            num_accepted += 1
            emitted[1, finished.tokens[1]] += 1
            expected_second += second_laws[finished.tokens[0]]
    assert _chi_square(drafted, laws[0] * num_draws) < CHI_SQUARE_LIMIT
    assert _chi_square(emitted[0], laws[1] * num_draws) < CHI_SQUARE_LIMIT
    assert _chi_square(emitted[1], expected_second) < CHI_SQUARE_LIMIT
    overlap = float(np.minimum(*laws).sum())
    assert 0.2 < overlap < 0.98
    assert abs(num_accepted / num_draws - overlap) < 4 * np.sqrt(overlap * (1 - overlap) / num_draws)


def test_texts_of_several_drafted_rounds_have_the_targets_law() -> None:
    """Five tokens in whatever rounds come of it, drafts cut by confidence: the law of the fifth, by all ways there."""
    target, other = small_vocabulary_model(1), small_vocabulary_model(2)
    prompt, sampling = np.array([3, 1, 4], dtype=np.int32), SamplingConfig(temperature=1.0)
    model, verifier = DraftModel(other, 10), HfTarget(target)
    counts, plain_counts = np.zeros(100), np.zeros(100)
    num_draws = 500
    config = DraftModelConfig(max_draft_tokens=4, min_confidence=0.15)
    for seed in range(num_draws):
        for is_plain, found in ((False, counts), (True, plain_counts)):
            seeded = replace(sampling, seed=seed + num_draws * is_plain)
            drafter = ScriptedDrafter(lambda tokens: ()) if is_plain else ModelDrafter(model, seeded, config)
            sequence = Sequence(prompt, drafter=drafter, sampling=seeded, max_tokens=3, max_context_tokens=100)
            list(Engine(verifier, FixedPolicy(8)).generate(sequence))
            found[sequence.output[1] * 10 + sequence.output[2]] += 1
    # Two samples of one law (Press et al. 2007, section 14.3.3); cells too small to tell anything are put together.
    both = counts + plain_counts
    large = both >= 10
    rest = [counts[~large].sum(), plain_counts[~large].sum()]
    pairs = [*zip(counts[large], plain_counts[large], strict=True), rest]
    statistic = sum((one - two) ** 2 / (one + two) for one, two in pairs if one + two)
    num_cells = len(pairs)
    assert statistic < num_cells + 5 * np.sqrt(2 * num_cells)


@pytest.mark.parametrize(
    "sampling", [SamplingConfig(temperature=0.9, seed=5), SamplingConfig(temperature=1.0, top_k=4)]
)
def test_likeliest_drafts_leave_a_sampled_text_as_it_is_without_drafts(
    tiny_model: Any, random_prompt: IntArray, sampling: SamplingConfig
) -> None:
    target = tiny_model("llama")
    plain, _, _ = decode(target, ScriptedDrafter(lambda tokens: ()), random_prompt, sampling)
    model = DraftModel(noisy_copy(target), VOCAB_SIZE)
    text, drafts, accepted = decode(
        target, ModelDrafter(model, sampling, DraftModelConfig(samples=False)), random_prompt, sampling
    )
    assert text == plain
    assert sum(accepted) > 0
    assert all(draft.distributions is None for draft in drafts)


def test_what_a_policy_cuts_drawn_drafts_by_does_not_depend_on_their_tokens(
    tiny_model: Any, random_prompt: IntArray
) -> None:
    model = DraftModel(tiny_model("llama"), VOCAB_SIZE)
    drafts = []
    for seed in range(8):
        drafter = ModelDrafter(model, SamplingConfig(temperature=1.0, seed=seed))
        drafter.start(random_prompt, ())
        drafts.append(drafter.draft(8))
    assert len({draft.tokens.tobytes() for draft in drafts}) > 1
    assert len({draft.probabilities.tobytes() for draft in drafts if draft.probabilities is not None}) == 1
    assert len({draft.match_length for draft in drafts}) == 1


def test_drafts_end_by_confidence_and_by_what_is_still_likely(tiny_model: Any, random_prompt: IntArray) -> None:
    model = DraftModel(tiny_model("llama"), VOCAB_SIZE)

    def drafted(config: DraftModelConfig) -> Draft:
        drafter = ModelDrafter(model, None, config)
        drafter.start(random_prompt, ())
        return drafter.draft(8)

    whole = drafted(DraftModelConfig())
    assert whole.probabilities is not None
    confidences = whole.probabilities / np.append(np.float32(1.0), whole.probabilities[:-1])
    place = int(confidences.argmin())
    by_confidence = drafted(DraftModelConfig(min_confidence=float(confidences[place]) + 1e-4))
    assert by_confidence.tokens.tolist() == whole.tokens[: place + 1].tolist()
    threshold = float(whole.probabilities[3] + whole.probabilities[2]) / 2
    assert len(drafted(DraftModelConfig(min_probability=threshold))) == 3
    unsure = drafted(DraftModelConfig(min_probability=1.0))
    assert (len(unsure), unsure.reason is not None) == (0, True)


def test_drafts_that_do_not_pay_for_the_draft_models_time_stop_and_are_tried_again(
    tiny_model: Any, random_prompt: IntArray
) -> None:
    target = tiny_model("llama")
    stranger = DraftModel(make_tiny_model("gpt2"), VOCAB_SIZE, cost_ratio=0.5)
    config = DraftModelConfig(max_draft_tokens=4, min_probability=0.0)
    drafter = ModelDrafter(stranger, None, config, weighs_costs=True)
    _, drafts, _ = decode(target, drafter, random_prompt, SamplingConfig(), 300)
    lengths = [len(draft) for draft in drafts]
    assert lengths[0] == 4
    assert sum(length > 0 for length in lengths[20:]) <= 3
    assert any(lengths[100:]), "expected another try"
    assert "not paid" in str(next(draft.reason for draft in drafts if not len(draft)))


def test_a_draft_model_that_is_never_sure_is_soon_not_asked_any_more(tiny_model: Any, random_prompt: IntArray) -> None:
    target = tiny_model("llama")
    model, config = DraftModel(target, VOCAB_SIZE, cost_ratio=0.5), DraftModelConfig(min_probability=1.0)
    _, drafts, _ = decode(target, ModelDrafter(model, None, config, weighs_costs=True), random_prompt, SamplingConfig())
    reasons = [str(draft.reason) for draft in drafts]
    assert sum("not sure enough" in reason for reason in reasons) == 9  # of half a pass each: four passes and a bit
    assert "not paid" in reasons[9]


def test_padded_embeddings_of_either_model_are_no_other_vocabulary(tiny_model: Any, random_prompt: IntArray) -> None:
    target = tiny_model("llama")
    for num_tokens in (VOCAB_SIZE - 2, VOCAB_SIZE + 7):
        other = copy.deepcopy(target)
        torch.manual_seed(0)
        other.resize_token_embeddings(num_tokens, mean_resizing=False)
        vocabulary = {str(token): token for token in range(90)}
        makers = model_drafter_factory(other, target, (vocabulary, dict(vocabulary)))
        for sampling in SAMPLINGS:
            drafter = makers["model"](SpeculationConfig(policy="fixed"), None, sampling)
            _, drafts, accepted = decode(target, drafter, random_prompt, sampling)
            assert sum(accepted) > 0
            for draft in drafts:
                assert draft.distributions is None or draft.distributions.shape == (len(draft), VOCAB_SIZE)


def test_a_token_that_only_the_target_knows_ends_drafting(tiny_model: Any) -> None:
    other = copy.deepcopy(tiny_model("llama"))
    other.resize_token_embeddings(50, mean_resizing=False)
    drafter = ModelDrafter(DraftModel(other, VOCAB_SIZE))
    drafter.start(np.array([3, 60, 4], dtype=np.int32), ())
    assert "doesn't know" in str(drafter.draft(4).reason)


def test_another_vocabulary_is_refused_in_one_line(tiny_model: Any) -> None:
    expected = "vocabulary of 3 tokens, got one of 2: 2 of them are missing or have another id, 0 are others"
    with pytest.raises(InvalidInput, match=expected) as caught:
        require_same_vocabulary({"a": 0, "b": 2}, {"a": 0, "b": 1, "c": 2})
    assert caught.value.param == "draft_model"
    with pytest.raises(InvalidInput, match=f"vocabulary of {VOCAB_SIZE} tokens, got one of 10"):
        model_drafter_factory(small_vocabulary_model(1), tiny_model("llama"))


@pytest.mark.parametrize("name", ["mamba2", "qwen3_next", "lfm2"])
def test_a_draft_model_whose_cache_can_not_be_rolled_back_is_refused_by_name(tiny_model: Any, name: str) -> None:
    model = tiny_model(name)
    with pytest.raises(UnsupportedModel, match=type(model).__name__):
        DraftModel(model, VOCAB_SIZE)


@pytest.mark.parametrize(
    "wrong", [{"max_draft_tokens": 0}, {"min_confidence": 1.5}, {"min_probability": -0.1}], ids=str
)
def test_wrong_options_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=f"expected {next(iter(wrong))} .*, got "):
        DraftModelConfig(**wrong)


def test_rows_of_one_batch_have_caches_of_their_own_and_share_the_weights(
    tiny_model: Any, random_prompt: IntArray
) -> None:
    target = tiny_model("llama")
    model, engine = DraftModel(noisy_copy(target), VOCAB_SIZE), Engine(HfTarget(target), FixedPolicy(5))
    prompts = [random_prompt[:length] for length in (2, 9, 40)]
    rows = [
        Sequence(
            prompt,
            drafter=ModelDrafter(model),
            sampling=SamplingConfig(),
            max_tokens=20 + 5 * index,
            max_context_tokens=1000,
        )
        for index, prompt in enumerate(prompts)
    ]
    while live := [row for row in rows if not row.is_finished]:
        engine.step(live)
    for index, (row, prompt) in enumerate(zip(rows, prompts, strict=True)):
        alone, _, _ = decode(target, ModelDrafter(model), prompt, SamplingConfig(), 20 + 5 * index)
        assert row.output.tolist() == alone
        assert 0 < row.drafter.num_index_bytes < 2**20


@pytest.mark.parametrize("drafter", ["model", "combined"])
@pytest.mark.parametrize("policy", ["fixed", "cost"])
def test_an_editor_drafts_with_a_model_by_name(drafter: str, policy: str) -> None:
    torch.manual_seed(0)
    target = hf.LlamaForCausalLM(hf.LlamaConfig(**SHAPE | {"vocab_size": 260})).eval()  # all bytes of a prompt
    torch.nn.init.normal_(target.get_output_embeddings().weight, std=1.0)
    # A draft model as large as its target never pays, so costs must not be what ends its drafts.
    makers = model_drafter_factory(noisy_copy(target, 0.001), target, asking=DraftModelConfig(min_probability=0.0))
    editor = Editor(HfTarget(target), ByteTokenizer(), drafters=makers)
    request = EditRequest("SUM = 0\nPUT(SUM)\n" * 3, "RENAME SUM.", max_tokens=40)
    speculation = SpeculationConfig(drafter=drafter, policy=policy, max_draft_tokens=4)  # type: ignore[arg-type]
    plain = editor.edit(replace(request, speculation=SpeculationConfig(enabled=False)))
    result = editor.edit(replace(request, speculation=speculation))
    assert result.text == plain.text
    assert result.metrics.num_draft_tokens > 0
    with pytest.raises(InvalidInput, match=f"expected drafter to be one of .*, got '{drafter}'"):
        Editor(HfTarget(target), ByteTokenizer()).edit(replace(request, speculation=speculation))


def test_the_hook_drafts_with_a_model_by_name(tiny_model: Any, random_prompt: IntArray) -> None:
    target = tiny_model("llama")
    ids = torch.from_numpy(random_prompt.astype(np.int64))[None].repeat(2, 1)
    plain = target.generate(ids, max_new_tokens=30, do_sample=False)
    makers = model_drafter_factory(noisy_copy(target), target)
    decoder = LookaheadEdit(speculation=SpeculationConfig(drafter="model", policy="fixed"), drafters=makers, seed=1)
    assert torch.equal(target.generate(ids, max_new_tokens=30, do_sample=False, custom_generate=decoder), plain)
    assert decoder.metrics.num_accepted_tokens > 0
    sampled = [
        target.generate(ids, max_new_tokens=30, do_sample=True, top_k=5, custom_generate=decoder) for _ in range(2)
    ]
    assert torch.equal(*sampled)


def _law(model: Any, tokens: IntArray, sampling: SamplingConfig) -> Any:
    with torch.no_grad():
        logits = model(input_ids=torch.from_numpy(tokens.astype(np.int64))[None]).logits[0, -1]
    return score_processor(sampling, len(tokens))(logits, tokens).double().softmax(-1).numpy()


def _chi_square(observed: Any, expected: Any) -> float:
    assert observed[expected == 0.0].sum() == 0
    kept = expected > 0.0
    return float((((observed - expected)[kept]) ** 2 / expected[kept]).sum())


def test_the_samplers_process_is_that_of_the_drafter() -> None:
    """What a draft is drawn under is what it is judged under: for the target as its own draft, all are accepted."""
    model, prompt = small_vocabulary_model(1), np.array([3, 1, 4], dtype=np.int32)
    sampling = SamplingConfig(temperature=0.7, top_k=5, presence_penalty=0.5, logit_bias={2: 1.0}, seed=11)
    _, drafts, accepted = decode(model, ModelDrafter(DraftModel(model, 10), sampling), prompt, sampling, 30)
    assert accepted == [len(draft) for draft in drafts]
    assert make_sampler(sampling, 3) is not None
