"""`serve` in a process of its own: signals, grace, exit codes, the lines it prints."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from scripted_editor import ScriptedEditor
from server_harness import raw_post, wait_until

from lookahead_edit.config import ServerConfig
from lookahead_edit.server import serve
from lookahead_edit.types import InvalidInput

SCRIPT = """
import signal, sys, time
from lookahead_edit import cli, cli_serve
from lookahead_edit.types import ModelUnavailable
from scripted_editor import ScriptedEditor

editor = ScriptedEditor()
signal.signal(signal.SIGUSR1, lambda *_: editor.release())

def scripted():
    return editor

def broken():
    raise ModelUnavailable("can't load here: no usable tokenizer")

def failing():
    raise ZeroDivisionError

def endless():
    time.sleep(60)

def deaf():
    editor.holds = lambda script: time.sleep(60)
    return editor

load = globals()[sys.argv[1]]
cli_serve.open_editor = lambda *_: load()
cli_serve.calibrate_for_serving = lambda editor: None  # which imports torch: seconds on a busy machine
cli.main(["serve", "--port", sys.argv[2], "--grace", sys.argv[3], *sys.argv[4:]])
"""


@pytest.fixture(autouse=True)
def hangups_that_are_not_ignored():
    """Under nohup, whose children ignore them too, as without it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def start(load="scripted", port=0, grace_seconds=20.0, options=()):
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", SCRIPT, load, str(port), str(grace_seconds), *options],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
    )


@contextmanager
def running(**options):
    """The process and a client, as soon as it listens."""
    process = start(**options)
    try:
        line = process.stderr.readline()
        match = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert match, line + process.stderr.read()
        with httpx.Client(base_url=match[0], timeout=10.0, trust_env=False) as client:
            yield process, client
        process.wait(15)
    finally:
        process.kill()
        process.communicate()


def printed_until_it_ended(process):
    """Standard error of a process that ends by itself; on a busy machine it takes a minute to begin."""
    try:
        return process.communicate(timeout=120)[1]
    finally:
        process.kill()


def refusal_of(config, text):
    """The one line that a server ends with for this configuration."""
    config.write_text(text)
    process = start(options=["--config", str(config)])
    printed = printed_until_it_ended(process)
    assert process.returncode == 2
    assert printed.count("\n") == 1
    return printed


def is_ready(client):
    return client.get("/health").status_code == 200


def num_open(client):
    text = client.get("/metrics").text
    return sum(map(float, re.findall(r"^lookahead:num_requests_(?:running|waiting) (\S+)", text, re.MULTILINE)))


def read_all(connection):
    with connection:
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_refuses_new_work_and_finishes_what_runs(number):
    with running() as (process, client):
        wait_until(lambda: is_ready(client))
        plain, stream = (raw_post(client, {"input": "a", "instruction": "hold", "stream": s}) for s in (False, True))
        wait_until(lambda: num_open(client) == 2)
        process.send_signal(number)
        wait_until(lambda: not is_ready(client))
        for response in (client.get("/health"), client.post("/v1/edits", json={"input": "a", "instruction": "go"})):
            assert response.status_code == 503
            assert response.json()["error"]["code"] == "shutting_down"
            assert int(response.headers["retry-after"]) > 0
        assert process.poll() is None
        process.send_signal(signal.SIGUSR1)
        assert '"text":"b"' in read_all(plain)
        assert '"type":"edit.completed"' in read_all(stream)
        assert process.wait(10) == 0
        assert process.stderr.read() == f"ready: {str(client.base_url).rstrip('/')} serves scripted\n"


def test_a_route_that_nothing_takes_is_warned_of_at_the_start(tmp_path):
    config = tmp_path / "server.toml"
    config.write_text('[routes.all]\npaths = ["/v1"]\n[routes.lost]\nallows_header = false\n')
    with running(options=["--config", str(config)]) as (process, client):
        wait_until(lambda: is_ready(client))
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        warning, ready = process.stderr.read().splitlines()
        assert warning.startswith("warning: no request can take the route lost: ")
        assert ready.startswith("ready: ")


def test_a_path_that_nothing_has_is_one_line_and_no_server(tmp_path):
    printed = refusal_of(tmp_path / "server.toml", '[routes.fast]\npaths = ["/v1/edit"]\n')
    assert "route fast: expected paths among /v1/chat/completions, /v1/completions, /v1/edits, or" in printed


def test_work_that_outlasts_the_grace_is_told_so():
    with running(grace_seconds=0.3) as (process, client):
        wait_until(lambda: is_ready(client))
        plain, stream = (raw_post(client, {"input": "a", "instruction": "hold", "stream": s}) for s in (False, True))
        wait_until(lambda: num_open(client) == 2)
        process.send_signal(signal.SIGTERM)
        assert read_all(plain).startswith("HTTP/1.1 503")
        *_, error, done = re.findall(r"data: (.*)", read_all(stream))
        assert json.loads(error)["error"]["code"] == "shutting_down"
        assert done.strip() == "[DONE]"
        assert process.wait(10) == 0


def test_second_signal_ends_the_grace():
    with running() as (process, client):
        wait_until(lambda: is_ready(client))
        plain = raw_post(client, {"input": "a", "instruction": "hold"})
        wait_until(lambda: num_open(client) == 1)
        process.send_signal(signal.SIGINT)
        wait_until(lambda: not is_ready(client))
        process.send_signal(signal.SIGINT)
        assert read_all(plain).startswith("HTTP/1.1 503")
        assert process.wait(10) == 0


@pytest.mark.parametrize("load", ["deaf", "endless"])
def test_thread_that_is_deep_in_the_model_does_not_keep_the_process(load):
    with running(load=load, grace_seconds=0.1) as (process, client):
        if load == "deaf":
            wait_until(lambda: is_ready(client))
            connection = raw_post(client, {"input": "a", "instruction": "hold"})
            wait_until(lambda: num_open(client) == 1)
            connection.close()
        else:
            assert client.get("/health").json()["error"]["code"] == "model_loading"
            assert "requests_rejected_total{" not in client.get("/metrics").text  # who asks that is no user
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert time.monotonic() - started < 8


def test_port_in_use_is_one_line_and_exit_code_two():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start(port=port)
        printed = printed_until_it_ended(process)
    assert process.returncode == 2
    assert printed == f"error: can't listen on 127.0.0.1 port {port}: Address already in use\n"


@pytest.mark.parametrize("host", ["no-such-host.invalid", "x" * 100])
def test_host_that_is_none_is_refused(host):
    with pytest.raises(InvalidInput, match=f"^can't listen on {host} port 0: ."):
        serve(ScriptedEditor, ServerConfig(host=host, port=0))


def test_it_says_when_requests_are_taken():
    with running() as (process, client):
        line = process.stderr.readline()
        assert line == f"ready: {str(client.base_url).rstrip('/')} serves scripted\n"
        assert is_ready(client)
        process.send_signal(signal.SIGTERM)


def test_model_that_cannot_be_loaded_is_one_line_more_and_exit_code_two():
    process = start(load="broken")
    printed = printed_until_it_ended(process)
    assert process.returncode == 2
    assert printed.splitlines()[1:] == ["error: can't load here: no usable tokenizer"]


def test_unforeseen_failure_to_load_ends_in_one_line_too():
    process = start(load="failing")
    printed = printed_until_it_ended(process)
    assert process.returncode == 2
    assert printed.splitlines()[-1] == "error: can't load the model: ZeroDivisionError"


def test_a_bad_configuration_is_one_line_and_exit_code_two(tmp_path):
    path = tmp_path / "server.toml"
    printed = refusal_of(path, "[server]\nprot = 1\n")
    assert printed.startswith(f"error: {path}: expected [server] to have the keys api_key, ")
    assert printed.endswith(", got prot\n")


def test_a_configuration_is_served_and_options_go_before_it(tmp_path):
    path = tmp_path / "server.toml"
    path.write_text("[server]\nport = 1\nmax_queued_requests = 0\n[routes.fast]\nmodels = ['fast-edit']\n")
    with running(options=["--config", str(path)]) as (process, client):
        wait_until(lambda: is_ready(client))
        assert client.base_url.port != 1  # --port 0
        body = {"input": "a", "instruction": "go", "model": "fast-edit"}
        assert client.post("/v1/edits", json=body).status_code == 200
        assert [card["id"] for card in client.get("/v1/models").json()["data"]] == ["scripted", "fast-edit"]
        process.send_signal(signal.SIGTERM)
