"""Counters by route on /metrics, figures on /v1/stats, and the drift alarm."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scripted_editor import ScriptedEditor
from server_harness import counter, in_process, on_socket, wait_until
from test_metrics import ROUNDS, round_of

from lookahead_edit.config import DriftConfig
from lookahead_edit.metrics import SpeculationMetrics
from lookahead_edit.server.telemetry import MAX_POSITION_LABELS, Telemetry
from lookahead_edit.types import Draft, Round, SourceKind

BODY = {"input": "banana banana", "instruction": "go"}  # 13 characters, in rounds of 5, 5 and 3
FILE = SourceKind.FILE


@pytest.fixture
def editor():
    return ScriptedEditor()


@pytest.fixture
def client(editor):
    with in_process(editor, drift=DriftConfig(num_reference_requests=20, min_draft_tokens=1)) as client:
        yield client


def post(client, **fields):
    response = client.post("/v1/edits", json=BODY | fields)
    assert response.status_code == 200, response.text
    return response.json()


def stats(client, route="edits"):
    return next(each for each in client.get("/v1/stats").json()["routes"] if each["route"] == route)


def series(telemetry):
    """Every series but those of the histograms, by its name and labels."""
    lines = telemetry.render().decode().splitlines()
    values = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name.removeprefix("lookahead:"): float(value) for name, _, value in values if "_seconds_" not in name}


def test_everything_that_a_ratio_needs_is_counted_by_route():
    telemetry = Telemetry(["edits", "chat"])
    telemetry.count_rounds("edits", ROUNDS)
    values = series(telemetry)
    expected = {
        'rounds_total{route="edits"}': 6,
        'emitted_tokens_total{route="edits"}': 11,
        'spec_decode_num_drafts_total{route="edits",source="file"}': 3,
        'spec_decode_num_drafts_total{route="edits",source="output"}': 1,
        'spec_decode_num_draft_tokens_total{route="edits",source="file"}': 8,
        'spec_decode_num_draft_tokens_total{route="edits",source="output"}': 3,
        'spec_decode_num_accepted_tokens_total{route="edits",source="file"}': 5,
        'spec_decode_num_accepted_tokens_total{route="edits",source="output"}': 1,
        'spec_decode_num_draft_tokens_per_pos_total{position="0",route="edits",source="file"}': 3,
        'spec_decode_num_draft_tokens_per_pos_total{position="3",route="edits",source="output"}': 1,
        'spec_decode_num_accepted_tokens_per_pos_total{position="0",route="edits",source="file"}': 3,
        'spec_decode_num_accepted_tokens_per_pos_total{position="2",route="edits",source="output"}': 1,
        'rounds_total{route="chat"}': 0,
        'acceptance_drift{route="edits"}': 0,
        'acceptance_drift{route="chat"}': 0,
    }
    assert {name: values.get(name) for name in expected} == expected
    seconds = telemetry.render().decode()
    assert 'lookahead:decode_seconds_total{route="edits"} 2.0' in seconds  # as in test_metrics: prefill is left out
    assert 'lookahead:draft_seconds_total{route="edits"} 0.25' in seconds


def test_steps_that_only_read_a_prompt_are_no_rounds():
    telemetry = Telemetry(["edits"])
    telemetry.count_rounds("edits", [round_of(0, [], 0, seconds=(0.0, 1.0, 0.0, 1.0))])
    assert series(telemetry)['rounds_total{route="edits"}'] == 0


def test_series_are_bounded_however_long_the_drafts():
    telemetry = Telemetry(["edits"])
    kinds = np.resize(np.array([int(kind) for kind in SourceKind], dtype=np.int8), 4096)
    draft = Draft(tokens=np.zeros(4096, dtype=np.int32), sources=kinds)
    telemetry.count_rounds("edits", [Round(np.zeros(4097, dtype=np.int32), draft, 4096)] * 2)
    values = series(telemetry)
    by_position = [name for name in values if "accepted_tokens_per_pos_total" in name]
    assert len(by_position) <= MAX_POSITION_LABELS + len(SourceKind)
    assert sum(values[name] for name in by_position) == 2 * 4096
    assert (
        values[
            f'spec_decode_num_accepted_tokens_per_pos_total{{position="{MAX_POSITION_LABELS}+",route="edits",source="file"}}'
        ]
        > 0
    )


def test_the_counters_of_served_requests_belong_to_their_route(client):
    post(client)
    client.post("/v1/completions", json={"prompt": "banana", "max_tokens": 50})
    assert counter(client, "requests_total", route="edits") == 1
    assert counter(client, "requests_total", route="completions") == 1
    assert counter(client, "rounds_total", route="edits") == 3
    assert counter(client, "emitted_tokens_total", route="edits") == 13
    assert counter(client, "decode_seconds_total", route="edits") > 0
    assert counter(client, "acceptance_drift", route="edits") == 0


def test_stats_have_ratios_the_last_requests_and_the_queue(client):
    post(client)
    post(client, speculation={"enabled": False})
    answer = client.get("/v1/stats")
    assert answer.status_code == 200
    assert [route["route"] for route in answer.json()["routes"]] == ["edits", "chat", "completions"]
    assert (answer.json()["num_requests_running"], answer.json()["num_requests_waiting"]) == (0, 0)
    route = stats(client)
    assert (route["num_requests"], route["num_tokens"], route["num_rounds"]) == (2, 26, 6)
    assert (route["num_draft_tokens"], route["num_accepted_draft_tokens"]) == (13, 10)
    assert route["num_wasted_draft_tokens"] == 3
    assert route["acceptance_rate"] == pytest.approx(10 / 13)
    assert route["tokens_per_round"] == pytest.approx(26 / 6)
    assert route["drafts_by_source"] == {"file": {"num_draft_tokens": 13, "num_accepted_draft_tokens": 10}}
    first, second = route["recent"]
    assert (first["num_tokens"], first["acceptance_rate"]) == (13, pytest.approx(10 / 13))
    assert second["acceptance_rate"] is None
    assert route["drift"] == {
        "direction": None,
        "reference_rate": None,
        "acceptance_rate": None,
        "num_reference_requests": 1,
        "num_reference_requests_needed": 20,
    }


def test_before_the_first_request_stats_have_no_figures(client):
    route = stats(client)
    assert (route["num_requests"], route["acceptance_rate"], route["recent"]) == (0, None, [])


def test_stats_need_the_key_where_there_is_one():
    with in_process(ScriptedEditor(), api_key="secret") as client:
        assert client.get("/v1/stats").status_code == 401
        assert client.get("/stats/", headers={"x-api-key": "secret"}).status_code == 200


def test_a_request_that_was_cancelled_counts_what_it_did():
    editor = ScriptedEditor()
    with on_socket(editor) as client, ThreadPoolExecutor(1) as background:
        headers = {"x-request-id": "mine"}
        answer = background.submit(client.post, "/v1/edits", json=BODY | {"instruction": "pause"}, headers=headers)
        wait_until(lambda: counter(client, "rounds_total", route="edits") == 1)
        assert client.post("/v1/requests/mine/cancel").json() == {"cancelled": True}
        assert answer.result().status_code == 499
        wait_until(lambda: stats(client)["num_requests"] == 1)
        assert (stats(client)["num_rounds"], stats(client)["num_tokens"]) == (1, 5)


def test_a_drop_raises_the_gauge_one_line_in_the_log_and_goes_away_by_itself(client, editor, caplog):
    caplog.set_level(logging.INFO, logger="lookahead_edit.server.telemetry")
    secret = {"input": "banana banana secret", "instruction": "go"}

    def ask(characters_a_round, num_requests):
        editor.rounds_of = characters_a_round
        for _ in range(num_requests):
            assert client.post("/v1/edits", json=secret).status_code == 200

    ask(10, 20)
    assert caplog.records == []
    ask(2, 40)
    assert counter(client, "acceptance_drift", route="edits") == -1
    assert counter(client, "acceptance_drift", route="chat") == 0
    assert counter(client, "acceptance_drifts_total", route="edits", direction="drop") == 1
    drift = stats(client)["drift"]
    assert (drift["direction"], drift["reference_rate"]) == ("drop", pytest.approx(0.9))
    assert drift["acceptance_rate"] == pytest.approx(0.5)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("acceptance on route edits has fallen: 0.50 in the last ")
    ask(10, 60)
    assert counter(client, "acceptance_drift", route="edits") == 0
    assert [record.getMessage()[:32] for record in caplog.records][1:] == ["acceptance on route edits is bac"]
    assert not any(word in caplog.text for word in ("banana", "secret"))


def test_a_rise_has_the_other_sign():
    telemetry = Telemetry(["edits"], DriftConfig(num_reference_requests=20, min_draft_tokens=1))
    for accepted in [2] * 20 + [9] * 40:
        telemetry.count_request("edits", SpeculationMetrics(num_draft_tokens=10, num_accepted_tokens=accepted))
    assert series(telemetry)['acceptance_drift{route="edits"}'] == 1
    assert series(telemetry)['acceptance_drifts_total{direction="rise",route="edits"}'] == 1
