"""Chat and text completions of a real, tiny model: whatever is drafted, the text is that of plain decoding."""

from __future__ import annotations

import pytest
from server_harness import events, in_process
from tiny_models import SHAPE

from lookahead_edit.editor import Editor
from lookahead_edit.tokenizer import ByteTokenizer

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
# A random model of bytes would write no text that could be sent back as a prediction.
LETTERS = {str(ord(letter)): 30 for letter in "abcdefgh \n"}


@pytest.fixture(scope="module")
def client():
    import torch
    import transformers as hf

    from lookahead_edit.targets.hf import HfTarget

    torch.manual_seed(0)
    model = hf.LlamaForCausalLM(hf.LlamaConfig(**{**SHAPE, "vocab_size": ByteTokenizer.vocab_size})).eval()
    torch.nn.init.normal_(model.get_output_embeddings().weight, std=1.0)
    with in_process(Editor(HfTarget(model), ByteTokenizer(), model_name="tiny")) as client:
        yield client


def body(path, **fields):
    asked = {"messages": [{"role": "user", "content": "Go on."}]} if path == CHAT else {"prompt": "Go on."}
    return {**asked, "max_tokens": 60, "logit_bias": LETTERS, **fields}


def text_of(answer):
    choice = answer["choices"][0]
    return choice["text"] if "text" in choice else choice["message"]["content"]


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"temperature": 0.9, "seed": 3},
        {"temperature": 1.3, "seed": -7, "top_p": 0.9, "top_k": 6, "min_p": 0.02},
        {"frequency_penalty": 0.7, "presence_penalty": -0.3},
        {"temperature": 0.8, "seed": 1, "repetition_penalty": 1.2, "frequency_penalty": 0.4},
        {"stop": ["a\n", "dd"]},
    ],
    ids=str,
)
def test_predictions_right_and_wrong_change_no_text(client, path, fields):
    plain = client.post(path, json=body(path, **fields, speculation={"enabled": False})).json()
    text = text_of(plain)
    wrong = text[::-1] + "x" * 40
    mixed = "".join(letter if index % 9 else "x" for index, letter in enumerate(text)) + "x" * 40
    for prediction in (text + "x" * 40, mixed, wrong, "x" * 100):
        answer = client.post(path, json=body(path, **fields, prediction=prediction)).json()
        assert text_of(answer) == text
        assert answer["choices"][0]["finish_reason"] == plain["choices"][0]["finish_reason"]
        assert answer["usage"]["completion_tokens"] == plain["usage"]["completion_tokens"]
    streamed = events(client.post(path, json=body(path, **fields, prediction=mixed, stream=True)).text)
    deltas = [chunk["choices"][0] for chunk in streamed]
    assert "".join(delta.get("text") or delta.get("delta", {}).get("content") or "" for delta in deltas) == text


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_right_prediction_is_accepted_where_it_was_sampled(client, path):
    fields = {"temperature": 0.9, "seed": 3}
    text = text_of(client.post(path, json=body(path, **fields)).json())
    answer = client.post(path, json=body(path, **fields, prediction=text)).json()
    assert answer["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] > 20
    assert answer["metrics"]["speculative_decoding"]["tokens_per_forward"] > 2


def test_prompt_of_token_ids_is_the_prompt_of_its_text(client):
    tokens = ByteTokenizer().encode("Go on.").tolist()
    by_text = client.post(TEXT, json=body(TEXT)).json()
    assert text_of(client.post(TEXT, json=body(TEXT, prompt=tokens)).json()) == text_of(by_text)
    chat = ByteTokenizer().render_chat([{"role": "user", "content": "Go on."}], "")
    assert text_of(client.post(TEXT, json=body(TEXT, prompt=chat)).json()) == text_of(
        client.post(CHAT, json=body(CHAT)).json()
    )


def test_turn_that_was_begun_goes_on_as_if_it_had_never_stopped(client):
    whole = text_of(client.post(CHAT, json=body(CHAT)).json())
    messages = [{"role": "user", "content": "Go on."}, {"role": "assistant", "content": whole[:20]}]
    rest = client.post(CHAT, json=body(CHAT, messages=messages, max_tokens=40)).json()
    assert text_of(rest) == whole[20:60]


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_sampling_without_a_seed_differs_and_with_one_does_not(client, path):
    unseeded = [text_of(client.post(path, json=body(path, temperature=1.5)).json()) for _ in range(8)]
    seeded = [text_of(client.post(path, json=body(path, temperature=1.5, seed=4)).json()) for _ in range(2)]
    assert len(set(unseeded)) > 1
    assert seeded[0] == seeded[1]
