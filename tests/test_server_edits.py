"""POST /v1/edits in process: every field, the answer's parts, and streams."""

from __future__ import annotations

import pytest
from logged_editor import BYTES, logged_editor, target_of
from scripted_editor import MODEL_NAME, ScriptedEditor
from server_harness import counter, events, in_process

from lookahead_edit.config import SpeculationConfig
from lookahead_edit.drafters import DRAFTERS

TEXT = "banana\r\ncab\r\n"
EDITED = "bbnbnb\r\ncbb\r\n"


@pytest.fixture
def editor():
    return ScriptedEditor()


@pytest.fixture
def client(editor):
    with in_process(editor) as client:
        yield client


def post(client, *, status=200, **fields):
    body = {"input": TEXT, "instruction": "go", **fields}
    response = client.post("/v1/edits", json=body)
    assert response.status_code == status, response.text
    return response.json()


def test_answer_has_every_part_of_the_contract(client):
    answer = post(client)
    assert list(answer)[:4] == ["id", "object", "created", "model"]
    assert answer["id"].startswith("edit-")
    assert answer["object"] == "edit"
    assert answer["model"] == MODEL_NAME
    (choice,) = answer["choices"]
    assert {key: choice[key] for key in ("index", "text", "finish_reason", "diff")} == {
        "index": 0,
        "text": EDITED,
        "finish_reason": "stop",
        "diff": None,
    }
    edit_range = {"start": {"line": 0, "character": 1}, "end": {"line": 1, "character": 2}}
    assert choice["edits"] == [{"range": edit_range, "newText": "bnbnb\r\ncb"}]
    assert answer["edit"] == {
        "changed": True,
        "truncated": False,
        "eol": "\n",
        "final_newline": True,
        "fence_stripped": False,
        "document_version": None,
        "session": None,
    }
    assert answer["warnings"] == []


def test_usage_timings_and_metrics_count_every_round(client):
    answer = post(client)
    assert answer["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 13,
        "total_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0},
    }
    assert answer["timings"]["predicted_n"] == 13
    assert answer["timings"]["draft_n"] == 13
    assert answer["timings"]["draft_n_accepted"] == 10
    speculative = answer["metrics"]["speculative_decoding"]
    assert speculative["num_spec_steps"] == 3
    assert speculative["acceptance_histogram"] == [0, 0, 1, 0, 2]
    assert sum(speculative["acceptance_histogram"]) == speculative["num_spec_steps"]
    assert speculative["mean_acceptance_length"] == pytest.approx(1 + 10 / 3)
    assert speculative["draft_acceptance_rate"] == pytest.approx(10 / 13)
    assert speculative["tokens_per_forward"] == pytest.approx(13 / 3)
    assert speculative["drafts_by_source"] == {"file": {"num_draft_tokens": 13, "num_accepted_draft_tokens": 10}}
    assert speculative["num_spec_tokens"] == SpeculationConfig().draft_limit == 512
    metrics = answer["metrics"]
    assert 0 <= metrics["queue_time_ms"] <= metrics["time_to_first_token_ms"]
    assert metrics["generation_time_ms"] == pytest.approx(metrics["mean_itl_ms"] * 12, abs=0.02)


def test_prediction_tokens_are_counted_only_where_a_prediction_was_given(client):
    details = post(client, prediction=EDITED)["usage"]["completion_tokens_details"]
    assert details == {"accepted_prediction_tokens": 10, "rejected_prediction_tokens": 3}


def test_all_fields_reach_the_editor(client, editor):
    post(
        client,
        model=MODEL_NAME,
        update="cab",
        range={"start": {"line": 0, "character": 0}, "end": {"line": 1, "character": 0}},
        path="a/b.py",
        language="python",
        context=[{"path": "c.py", "text": "x = 1\n"}],
        prediction={"type": "content", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]},
        speculation={"enabled": True, "max_draft": 17, "drafter": "ngram"},
        temperature=1,
        top_p=0.5,
        top_k=40,
        min_p=0.1,
        seed=2**64 - 1,
        stop=["\n\n", "", "END"],
        max_tokens=99,
        timeout_ms=60000,
        n=1,
        stream=False,
    )
    (request,) = editor.requests
    assert (request.text, request.instruction, request.update) == (TEXT, "go", "cab")
    assert request.region == (0, 8)
    assert (request.path, request.language) == ("a/b.py", "python")
    assert [(file.path, file.text) for file in request.context] == [("c.py", "x = 1\n")]
    assert request.prediction == "one two"
    assert (request.speculation.enabled, request.speculation.max_draft_tokens) == (True, 17)
    assert request.speculation.drafter == "ngram"
    assert (request.sampling.temperature, request.sampling.top_p, request.sampling.top_k) == (1.0, 0.5, 40)
    assert (request.sampling.min_p, request.sampling.seed) == (0.1, 2**64 - 1)
    assert request.stop == ("\n\n", "END")
    assert request.max_tokens == 99


def test_description_lists_the_drafters(client):
    schema = client.get("/openapi.json").json()["components"]["schemas"]["SpeculationBody"]
    assert schema["properties"]["drafter"]["anyOf"][0]["enum"] == sorted(DRAFTERS)


def test_null_means_absent_for_every_optional_field(client, editor):
    schema = client.get("/openapi.json").json()["components"]["schemas"]["EditBody"]
    optional = set(schema["properties"]) - {"input", "instruction"}
    assert len(optional) > 20
    assert post(client, **dict.fromkeys(optional))["warnings"] == []
    post(client)
    assert editor.requests[0] == editor.requests[1]


@pytest.mark.parametrize(
    ("stop", "strings"), [(None, ()), ("", ()), ([], ()), ("x", ("x",)), (["x"] * 16, ("x",) * 16)]
)
def test_stop_is_null_a_string_or_up_to_sixteen(client, editor, stop, strings):
    post(client, stop=stop)
    assert editor.requests[0].stop == strings


@pytest.mark.parametrize("prediction", ["text", {"content": "text"}, [{"type": "text", "text": "te"}, {"text": "xt"}]])
def test_prediction_is_a_string_an_object_or_parts(client, editor, prediction):
    post(client, prediction=prediction)
    assert editor.requests[0].prediction == "text"


def test_sampling_without_a_seed_differs_from_call_to_call(client, editor):
    for _ in range(2):
        post(client, temperature=0.8)
    first, second = (request.sampling.seed for request in editor.requests)
    assert first != second


def test_whole_number_may_have_a_fraction_of_zero(client, editor):
    body = b'{"input": "a", "instruction": "go", "max_tokens": 5.0, "top_k": 1e1, "document_version": 7.0}'
    answer = client.post("/v1/edits", content=body, headers={"content-type": "application/json"})
    assert (editor.requests[0].max_tokens, editor.requests[0].sampling.top_k) == (5, 10)
    assert '"document_version":7,' in answer.text


def test_greedy_requests_are_all_alike(client, editor):
    post(client, temperature=0)
    post(client)
    assert editor.requests[0].sampling == editor.requests[1].sampling


def test_unknown_fields_are_named_once_in_one_warning(client):
    answer = post(
        client,
        user="me",
        logprobs=None,
        speculation={"depth": 3},
        context=[{"path": "a", "text": "", "uri": 1}, {"path": "b", "text": "", "uri": 2}],
    )
    assert answer["warnings"] == ["ignored unknown fields: user, logprobs, context[].uri, speculation.depth"]


def test_warning_about_very_many_fields_stays_short(client):
    (warning,) = post(client, **{f"field{number}" + "x" * 200: 1 for number in range(1000)})["warnings"]
    assert warning.endswith("and 980 more")
    assert len(warning) < 2000


def test_output_chooses_the_parts(client):
    assert post(client, output=["diff"])["choices"][0]["edits"] is None
    choice = post(client, output=["text", "edits", "diff"], path="a.py")["choices"][0]
    assert choice["diff"].startswith("diff --git a/a.py b/a.py\n")
    assert choice["text"] == EDITED
    assert choice["edits"]
    assert post(client, output=["edits"])["choices"][0]["text"] is None


def test_at_the_limit_half_a_file_is_no_success(client):
    answer = post(client, instruction="length", output=["text", "edits", "diff"])
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["text"] == EDITED[: len(EDITED) // 2]
    assert (choice["edits"], choice["diff"]) == (None, None)
    assert answer["edit"]["truncated"] is True


@pytest.mark.parametrize(("encoding", "character"), [(None, 2), ("utf-16", 2), ("utf-8", 4), ("utf-32", 1)])
def test_position_encoding_holds_for_range_and_edits(client, editor, encoding, character):
    text = "\U0001f600a"
    place = {"line": 0, "character": character}
    answer = post(client, input=text, position_encoding=encoding, range={"start": place, "end": place})
    assert editor.requests[0].region == (1, 1)
    assert answer["choices"][0]["edits"][0]["range"]["start"] == place


@pytest.mark.parametrize("version", [7, "v7", 10**30])
def test_document_version_and_session_are_echoed(client, version):
    edit = post(client, document_version=version, session="tab-1")["edit"]
    assert (edit["document_version"], edit["session"]) == (version, "tab-1")


def test_text_of_every_plane_comes_back(client):
    text = "é\u2028\x85\x00\U0001f600\x7f"
    assert post(client, input=text)["choices"][0]["text"] == text


def test_empty_document_is_a_document(client):
    assert post(client, input="")["choices"][0]["text"] == ""


def test_speculation_switched_off_says_so(client):
    speculative = post(client, speculation={"enabled": False})["metrics"]["speculative_decoding"]
    assert speculative["disabled_reason"]
    assert speculative["num_spec_tokens"] == 0


def test_body_with_a_byte_order_mark_is_read(client):
    body = b'\xef\xbb\xbf{"input": "a", "instruction": "go"}'
    response = client.post("/v1/edits", content=body, headers={"content-type": "application/json"})
    assert response.json()["choices"][0]["text"] == "b"


def test_the_last_of_two_equal_keys_counts(client, editor):
    body = b'{"input": "a", "input": "aa", "instruction": "go"}'
    client.post("/v1/edits", content=body, headers={"content-type": "application/json; charset=utf-8"})
    assert editor.requests[0].text == "aa"


def stream(client, **fields):
    response = client.post("/v1/edits", json={"input": TEXT, "instruction": "go", "stream": True, **fields})
    assert response.status_code == 200
    return response, events(response.text)


def test_stream_has_created_deltas_and_the_whole_answer(client):
    response, (created, *deltas, completed) = stream(client, document_version=3, session="s")
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"
    assert created["type"] == "edit.created"
    assert (created["document_version"], created["session"]) == (3, "s")
    assert all(set(delta) == {"type", "text", "offset"} for delta in deltas)
    assert all(delta["type"] == "edit.delta" for delta in deltas)
    assert "".join(delta["text"] for delta in deltas) == EDITED
    assert [delta["offset"] for delta in deltas] == [0, 5, 10]
    assert completed.pop("type") == "edit.completed"
    assert completed["id"] == created["id"]
    plain = post(client)
    assert set(completed) == set(plain)
    assert completed["choices"] == plain["choices"]


def test_stream_leaves_out_empty_deltas(client):
    _, sent = stream(client, input="")
    assert [event["type"] for event in sent] == ["edit.created", "edit.completed"]


def test_stream_lines_are_ascii_so_that_no_reader_splits_them(client):
    text = "\u2028\x85é"
    response, sent = stream(client, input=text)
    assert response.text.isascii()
    assert sent[-1]["choices"][0]["text"] == text


def test_error_in_a_stream_is_one_event_and_the_end(client):
    _, (created, error) = stream(client, instruction="fail")
    assert created["type"] == "edit.created"
    assert set(error["error"]) == {"message", "type", "param", "code"}
    assert error["error"]["code"] == "internal_error"
    assert "secret" not in error["error"]["message"]


def test_bad_stream_request_is_refused_before_the_stream(client):
    body = {"input": "x" * 5000, "instruction": "go", "stream": True}
    response = client.post("/v1/edits", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"


def test_counters_tell_what_was_served(client):
    post(client)
    post(client, instruction="length")
    stream(client)
    post(client, n=2, status=400)
    assert counter(client, "request_success_total", finished_reason="stop") == 2
    assert counter(client, "request_success_total", finished_reason="length") == 1
    assert counter(client, "prompt_tokens_total") == 21
    assert counter(client, "generation_tokens_total") == 13 + 6 + 13
    assert counter(client, "requests_rejected_total", code="unsupported_parameter") == 1
    assert counter(client, "time_to_first_token_seconds_count") == 3
    assert counter(client, "e2e_request_latency_seconds_count") == 3
    spec = {"route": "edits", "source": "file"}
    assert counter(client, "spec_decode_num_drafts_total", **spec) == 3 + 1 + 3  # the limit leaves no room
    assert counter(client, "spec_decode_num_draft_tokens_total", **spec) == 31
    assert counter(client, "spec_decode_num_accepted_tokens_total", **spec) == 24
    assert counter(client, "spec_decode_num_accepted_tokens_per_pos_total", **spec, position="0") == 7
    assert counter(client, "num_requests_running") == 0
    assert counter(client, "num_requests_waiting") == 0


def test_an_instruction_and_an_update_are_both_told_to_the_model():
    editor = logged_editor("x = 2\n```")
    with in_process(editor) as client:
        both = {"input": "x = 1\n", "instruction": "Keep the comments.", "update": "x = 2\n"}
        answer = client.post("/v1/edits", json=both).json()
        prompt = BYTES.decode(target_of(editor).prompts[-1])
        assert "Keep the comments.\nApply this update:\n```\nx = 2\n```\n```\nx = 1\n```" in prompt
        assert answer["warnings"] == []


@pytest.mark.parametrize(
    ("fields", "warning"),
    [
        ({"instruction": "Do it.", "update": ""}, "ignored an empty update: the instruction alone says what to change"),
        (
            {"instruction": "Do it.", "update": " \n"},
            "ignored an empty update: the instruction alone says what to change",
        ),
        ({"instruction": " \n", "update": "b"}, "ignored an empty instruction: the update alone says what to change"),
        ({"instruction": "", "update": "b"}, "ignored an empty instruction: the update alone says what to change"),
        ({"instruction": "Do it.", "update": None}, None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_an_empty_one_of_the_two_is_ignored_with_a_warning(fields, warning, stream):
    with in_process(logged_editor("x = 2\n```")) as client:
        response = client.post("/v1/edits", json={"input": "x = 1\n", "stream": stream, **fields})
    answer = events(response.text)[-1] if stream else response.json()
    assert answer["warnings"] == ([] if warning is None else [warning])


@pytest.mark.parametrize("fields", [{"update": " "}, {"update": "\n", "instruction": " "}, {"instruction": " "}])
def test_blanks_say_nothing_to_do(fields):
    with in_process(logged_editor("x = 2\n```")) as client:
        response = client.post("/v1/edits", json={"input": "x = 1\n", **fields})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "missing_field")
