"""Clients that come and go at random, against a real model: nothing goes on for them, and nothing is kept of them."""

from __future__ import annotations

import gc
import random
import socket
import threading
import time
from typing import Any

import httpx
import torch
from server_harness import counter, on_socket, raw_post, wait_until
from tiny_models import SHAPE
from tiny_tokenizers import byte_level_tokenizer

from lookahead_edit.config import TargetConfig
from lookahead_edit.editor import Editor, EditRequest
from lookahead_edit.sequence import Sequence
from lookahead_edit.server.jobs import Job
from lookahead_edit.targets.hf import HfTarget
from lookahead_edit.tokenizer import HfTokenizer

NUM_CLIENTS = 120
TEXT = "".join(f"line_{number} = {number * 7}\n" for number in range(40))
PATHS = ("/v1/edits", "/v1/chat/completions", "/v1/completions")


def tiny_editor() -> Editor:
    import transformers as hf

    torch.manual_seed(0)
    config = hf.LlamaConfig(**(SHAPE | {"vocab_size": 300, "pad_token_id": None}), max_position_embeddings=4096)
    model = hf.LlamaForCausalLM(config)
    torch.nn.init.normal_(model.get_output_embeddings().weight, std=1.0)
    model.generation_config = hf.GenerationConfig(bos_token_id=1, pad_token_id=0)
    target = HfTarget(model.eval(), TargetConfig(prefill_chunk_tokens=64, max_prefix_cache_bytes=2**20))
    return Editor(target, HfTokenizer(byte_level_tokenizer()))


def num_alive(kind: type) -> int:
    gc.collect()
    return sum(type(thing) is kind for thing in gc.get_objects())


def body_of(generator: random.Random, path: str) -> dict[str, Any]:
    text = TEXT * generator.choice([1, 1, 3])
    body: dict[str, Any] = {"max_tokens": 400, "stream": generator.random() < 0.5}
    if generator.random() < 0.3:
        body["session"] = generator.choice(["tab", "other"])
    if generator.random() < 0.2:
        body["timeout_ms"] = generator.choice([1, 30, 200])
    if path == "/v1/edits":
        return {**body, "input": text, "instruction": "Do it."}
    if path == "/v1/completions":
        return {**body, "prompt": text}
    return {**body, "messages": [{"role": "user", "content": text}]}


def test_clients_that_come_and_go_leave_nothing_behind_and_hurt_nobody() -> None:
    """Disconnects, cancels, superseded sessions and deadlines, in the queue, while prompts are read and later."""
    editor = tiny_editor()
    assert isinstance(editor.target, HfTarget)
    request = EditRequest(TEXT, "Do it.", max_tokens=100)
    expected = editor.edit(request).text
    num_jobs, num_sequences = num_alive(Job), num_alive(Sequence)
    generator = random.Random(7)
    wrong: list[str] = []

    def stay(client: httpx.Client) -> None:
        body = {"input": TEXT, "instruction": "Do it.", "max_tokens": 100}
        for _ in range(4):
            answer = client.post("/v1/edits", json=body, headers={"x-api-key": "patient"})
            if answer.status_code != 200 or answer.json()["choices"][0]["text"] != expected:
                wrong.append(answer.text[:300])

    with on_socket(editor, max_batch_size=4, max_queued_requests=200) as client:
        client.timeout = 120.0
        patient = [threading.Thread(target=stay, args=(client,)) for _ in range(2)]
        for thread in patient:
            thread.start()
        open_connections: list[socket.socket] = []
        for number in range(NUM_CLIENTS):
            path = PATHS[number % 3]
            headers = {"x_request_id": f"r{number}", "x_api_key": str(number % 5)}
            open_connections.append(raw_post(client, body_of(generator, path), path, **headers))
            if generator.random() < 0.3:
                name = f"r{generator.randrange(number + 1)}"
                client.post(f"/v1/requests/{name}/cancel", headers={"x-api-key": str(generator.randrange(5))})
            while len(open_connections) > generator.randrange(12):
                open_connections.pop(generator.randrange(len(open_connections))).close()
            time.sleep(generator.choice([0.0, 0.0, 0.02]))
        for connection in open_connections:
            connection.close()
        for thread in patient:
            thread.join()
        assert wrong == []
        wait_until(lambda: counter(client, "num_requests_running") == 0, seconds=60)
        wait_until(lambda: counter(client, "num_requests_waiting") == 0, seconds=60)
        assert not editor.target._rows
        assert editor.target.prefix_cache.num_bytes <= 2**20
        answer = client.post("/v1/edits", json={"input": TEXT, "instruction": "Do it.", "max_tokens": 100})
        assert answer.json()["choices"][0]["text"] == expected
        wait_until(lambda: num_alive(Job) <= num_jobs, seconds=30)
        wait_until(lambda: num_alive(Sequence) <= num_sequences, seconds=30)
