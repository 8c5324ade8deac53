"""`serve --engine vllm`: the same addresses and answers, and counters that agree with vLLM's own."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lookahead_edit.types import InvalidInput, ModelUnavailable

pytest.importorskip("vllm", reason="needs vLLM in its own environment: make test-vllm")

NUM_DRAFT_TOKENS = 48
FILE = (
    "def read_words(path):\n    return open(path).read().split()\n\n\nprint(read_words('a'))\nprint(read_words('b'))\n"
)
OPTIONS = {
    "max_model_len": 1024,
    "max_num_seqs": 8,
    "enforce_eager": True,
    "speculative_config": {"num_speculative_tokens": NUM_DRAFT_TOKENS},
}


@pytest.fixture(scope="module")
def editor() -> Iterator[Any]:
    from vllm.distributed import cleanup_dist_env_and_memory

    from lookahead_edit.vllm_plugin.loading import load_engine_editor

    loaded = load_engine_editor(None, OPTIONS)
    yield loaded
    loaded.target._engine.engine_core.shutdown()
    gc.collect()
    cleanup_dist_env_and_memory()


@pytest.fixture(scope="module")
def client(editor: Any) -> Iterator[Any]:
    from server_harness import on_socket

    with on_socket(editor, max_batch_size=8) as opened:
        opened.timeout = 600.0
        yield opened


def edit(client: Any, name: str, **fields: Any) -> Any:
    instruction = f"Rename the function read_words to {name}."
    answer = client.post("/v1/edits", json={"input": FILE, "instruction": instruction, "path": "a.py", **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def engine_counters() -> tuple[float, float]:
    from prometheus_client import REGISTRY

    totals = {"vllm:spec_decode_num_draft_tokens": 0.0, "vllm:spec_decode_num_accepted_tokens": 0.0}
    for family in REGISTRY.collect():
        if family.name in totals:
            totals[family.name] = sum(sample.value for sample in family.samples if sample.name.endswith("_total"))
    return tuple(totals.values())  # type: ignore[return-value]


def own_counters(client: Any) -> tuple[float, float]:
    lines = client.get("/metrics").text.splitlines()
    return tuple(  # type: ignore[return-value]
        sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"lookahead:{name}_total"))
        for name in ("spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens")
    )


def test_edits_that_run_together_are_those_of_plain_decoding_and_counted_as_vllm_counts(client: Any) -> None:
    names = ["load_words", "words_of", "read", "get_all_words", "parse", "x"]
    engine_before, own_before = engine_counters(), own_counters(client)
    with ThreadPoolExecutor(len(names)) as threads:
        answers = list(threads.map(lambda name: edit(client, name), names))
    (engine_drafted, engine_accepted), (own_drafted, own_accepted) = (
        [after - past for after, past in zip(new, old, strict=True)]
        for new, old in ((engine_counters(), engine_before), (own_counters(client), own_before))
    )
    assert own_drafted == engine_drafted > 0
    # The answer may end inside an accepted block: behind its end vLLM still counts, and we don't.
    assert 0 <= engine_accepted - own_accepted <= NUM_DRAFT_TOKENS * len(names)
    plain = [edit(client, name, speculation={"enabled": False}) for name in names]
    assert [each["choices"][0]["text"] for each in answers] == [each["choices"][0]["text"] for each in plain]
    assert [each["metrics"]["speculative_decoding"]["num_draft_tokens"] for each in plain] == [0] * len(names)
    assert answers[0]["choices"][0]["text"] == FILE.replace("read_words", "load_words")
    assert answers[0]["metrics"]["speculative_decoding"]["drafts_by_source"]["file"]["num_accepted_draft_tokens"] > 20
    assert answers[0]["timings"]["prompt_ms"] > 0.0


def test_a_prediction_is_drafted_from(client: Any) -> None:
    body = {"prompt": "Once upon a time, a fox", "max_tokens": 60, "temperature": 0}
    told = client.post("/v1/completions", json=body).json()
    again = client.post("/v1/completions", json={**body, "prediction": told["choices"][0]["text"]}).json()
    assert again["choices"][0]["text"] == told["choices"][0]["text"]
    assert again["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] > 30
    per_forward = [each["metrics"]["speculative_decoding"]["tokens_per_forward"] for each in (told, again)]
    assert per_forward[1] > 3 * per_forward[0]


def test_a_client_that_goes_away_leaves_nothing_in_the_engine(client: Any, editor: Any) -> None:
    from server_harness import wait_until

    body = {"prompt": "Once upon a time", "max_tokens": 900, "temperature": 0, "stream": True}
    with client.stream("POST", "/v1/completions", json=body) as response:
        next(response.iter_lines())
    wait_until(lambda: editor.target._engine.get_num_unfinished_requests() == 0, seconds=120.0)


def test_what_vllm_would_leave_out_silently_is_a_400(client: Any) -> None:
    answer = client.post("/v1/completions", json={"prompt": "a", "max_tokens": 1, "min_p": 0.2})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unsupported_parameter")


def test_a_prompt_without_room_is_a_400(client: Any) -> None:
    answer = client.post("/v1/edits", json={"input": FILE * 40, "instruction": "Rename x."})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"speculative_config": {"num_speculative_tokens": 200}}, InvalidInput),
        ({"max_model_len": 32}, InvalidInput),
        ({"additional_config": {"lookahead_edit": {"typo": 1}}}, InvalidInput),
        ({"no_such_argument": 1}, InvalidInput),
    ],
)
def test_options_that_cant_work_end_in_one_line(options: dict[str, Any], error: type[Exception]) -> None:
    from lookahead_edit.vllm_plugin.loading import load_engine_editor

    with pytest.raises(error) as raised:
        load_engine_editor(None, options)
    assert "\n" not in str(raised.value)


def test_a_model_that_isnt_there_is_one_line() -> None:
    from lookahead_edit.vllm_plugin.loading import load_engine_editor

    with pytest.raises(ModelUnavailable) as raised:
        load_engine_editor("/nowhere/model", {})
    assert "\n" not in str(raised.value)
