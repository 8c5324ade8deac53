"""POST /v1/completions in process: prompts in all forms, answers, streams."""

from __future__ import annotations

import pytest
from logged_editor import BYTES, LoggedTarget, logged_editor
from scripted_editor import MODEL_NAME, ScriptedEditor
from server_harness import events, in_process
from tiny_tokenizers import byte_level_tokenizer

from lookahead_edit.editor import Editor
from lookahead_edit.tokenizer import HfTokenizer

PATH = "/v1/completions"
LONG = "".join(f"line {number}\n" for number in range(20))


@pytest.fixture
def editor():
    return ScriptedEditor()


@pytest.fixture
def client(editor):
    with in_process(editor) as client:
        yield client


def post(client, prompt="banana", *, status=200, path=PATH, **fields):
    response = client.post(path, json={"prompt": prompt, **fields})
    assert response.status_code == status, response.text
    return response.json()


def stream(client, prompt="banana", **fields):
    response = client.post(PATH, json={"prompt": prompt, "stream": True, **fields})
    assert response.status_code == 200
    return events(response.text)


def test_answer_has_every_part_that_strict_clients_need(client):
    answer = post(client)
    assert list(answer)[:4] == ["id", "object", "created", "model"]
    assert answer["id"].startswith("cmpl-")
    assert (answer["object"], answer["model"]) == ("text_completion", MODEL_NAME)
    assert isinstance(answer["created"], int)
    assert answer["choices"] == [{"text": "bbnbnb", "index": 0, "logprobs": None, "finish_reason": "stop"}]
    usage = answer["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (7, 6, 13)
    assert answer["warnings"] == []


@pytest.mark.parametrize("path", ["/completions", "/v1/completions/", "/completions/"])
def test_path_may_lack_the_version_and_end_in_a_slash(client, path):
    assert post(client, path=path)["object"] == "text_completion"


@pytest.mark.parametrize("prompt", ["a b", ["a b"], [97, 32, 98], [[97, 32, 98]], [97.0, 32, 98.0]])
def test_prompt_is_a_string_a_list_of_one_or_token_ids(prompt):
    editor = logged_editor("c")
    with in_process(editor) as client:
        answer = post(client, prompt)
    assert answer["choices"][0]["text"] == "c"
    assert editor.target.prompts[0].tolist() == [97, 32, 98]
    assert answer["usage"]["prompt_tokens"] == 3


def test_special_texts_of_a_rendered_chat_are_special_tokens():
    editor = logged_editor("x")
    rendered = BYTES.render_chat([{"role": "user", "content": "Hello."}], "")
    with in_process(editor) as client:
        post(client, rendered)
    tokens = editor.target.prompts[0].tolist()
    assert (tokens.count(256), tokens.count(257)) == (2, 1)


def test_special_text_as_stop_string_stops_at_its_token():
    tokenizer = HfTokenizer(byte_level_tokenizer())
    target = LoggedTarget("", tokenizer)
    target._output_of = lambda prompt: tokenizer.encode("one<|endoftext|>two")
    with in_process(Editor(target, tokenizer)) as client:
        answer = post(client, "a", stop=["<|endoftext|>", "<|im_end|>"])
    assert answer["choices"][0]["text"] == "one"
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_text_is_neither_trimmed_nor_freed_of_fences():
    text = "  \n```python\nx = 1\n```\n\n "
    with in_process(logged_editor(text)) as client:
        assert post(client, "a")["choices"][0]["text"] == text
        assert "".join(chunk["choices"][0]["text"] for chunk in stream(client, "a")) == text


def test_every_field_reaches_the_editor(client, editor):
    answer = post(
        client,
        model=MODEL_NAME,
        temperature=0.5,
        seed=5,
        presence_penalty=1,
        logit_bias={"7": 2},
        stop="x",
        max_tokens=9,
        prediction=LONG,
        speculation={"drafter": "suffix"},
        suffix="",
        echo=False,
        best_of=1,
        n=1,
        logprobs=False,
    )
    assert answer["warnings"] == []
    (request,) = editor.requests
    assert (request.prompt, request.messages) == ("banana", ())
    assert (request.sampling.temperature, request.sampling.seed) == (0.5, 5)
    assert (request.sampling.presence_penalty, request.sampling.logit_bias) == (1.0, {7: 2.0})
    assert (request.stop, request.max_tokens, request.prediction) == (("x",), 9, LONG)
    assert request.speculation.drafter == "suffix"


def test_null_means_absent_for_every_optional_field(client, editor):
    schema = client.get("/openapi.json").json()["components"]["schemas"]["CompletionBody"]
    optional = set(schema["properties"]) - {"prompt"}
    assert len(optional) > 20
    assert post(client, **dict.fromkeys(optional))["warnings"] == []
    post(client)
    assert editor.requests[0] == editor.requests[1]


def test_without_a_limit_the_rest_of_the_context_may_be_written():
    with in_process(logged_editor("x" * 900, max_context_tokens=200)) as client:
        answer = post(client, "a")
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] == 200


@pytest.mark.parametrize("max_tokens", [1, 2, 19, 20, 21])
def test_no_block_goes_past_the_limit(max_tokens):
    with in_process(logged_editor(LONG)) as client:
        answer = post(client, "a", prediction=LONG, max_tokens=max_tokens)
    assert answer["choices"][0]["text"] == LONG[:max_tokens]
    assert answer["usage"]["completion_tokens"] == max_tokens


@pytest.mark.parametrize(
    "fields", [{"prediction": LONG}, {"prediction": {"content": LONG}}, {"speculation": LONG}], ids=repr
)
def test_prediction_is_drafted_from(fields):
    with in_process(logged_editor(LONG)) as client:
        answer = post(client, "a", **fields)
        off = post(client, "a", **{**fields, "speculation": {"enabled": False}})
    assert answer["choices"] == off["choices"]
    assert answer["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] > 100
    assert answer["metrics"]["speculative_decoding"]["tokens_per_forward"] > 2
    assert off["metrics"]["speculative_decoding"]["tokens_per_forward"] == 1
    assert off["metrics"]["speculative_decoding"]["disabled_reason"]


def test_stream_has_text_and_figures_on_the_last_chunk_only(client):
    *deltas, last = stream(client)
    assert [chunk["choices"][0]["text"] for chunk in deltas] == ["bbnbn", "b"]
    for chunk in deltas:
        assert list(chunk) == ["id", "object", "created", "model", "choices"]
    assert last["choices"] == [{"text": "", "index": 0, "logprobs": None, "finish_reason": "stop"}]
    plain = post(client)
    assert set(last) == set(plain)
    assert last["usage"] == plain["usage"]
    *_, last_choice, usage = stream(client, stream_options={"include_usage": True})
    assert "usage" not in last_choice
    assert (usage["choices"], usage["usage"]) == ([], plain["usage"])


def test_stop_split_over_rounds_is_never_shown():
    with in_process(logged_editor("one EN two END three")) as client:
        chunks = stream(client, "a", stop="END", speculation={"enabled": False})
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "one EN two "
