"""What a request that ran into its deadline still costs the next one: the pass it is in, and no more."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from server_harness import on_socket, wait_until
from tiny_models import SHAPE

from lookahead_edit.config import TargetConfig
from lookahead_edit.editor import Editor
from lookahead_edit.tokenizer import ByteTokenizer

LONG = "one line of many\n" * 100
SHORT = "short"


class HeldPasses:
    """Notes how many tokens each pass of a model reads, and holds one of them until `release`."""

    def __init__(self, held: int) -> None:
        self.num_tokens: list[int] = []
        self.released = threading.Event()
        self._held = held

    @property
    def is_held(self) -> bool:
        return len(self.num_tokens) > self._held

    def before(self, module: Any, arguments: Any, keywords: dict[str, Any]) -> None:
        self.num_tokens.append(keywords["input_ids"].shape[1])
        if len(self.num_tokens) == self._held + 1:
            assert self.released.wait(60.0)


@pytest.fixture(scope="module")
def model() -> Any:
    import torch
    import transformers

    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**(SHAPE | {"vocab_size": ByteTokenizer.vocab_size}))
    ).eval()


@pytest.mark.parametrize("held", [0, 1, 2])
def test_the_next_request_waits_for_one_pass_of_a_late_one(model: Any, held: int) -> None:
    from lookahead_edit.targets.hf import HfTarget

    passes = HeldPasses(held)
    chunk = TargetConfig.prefill_chunk_tokens
    assert len(LONG) > 3 * chunk
    editor = Editor(HfTarget(model), ByteTokenizer(), model_name="tiny")
    with on_socket(editor, max_batch_size=1) as client, ThreadPoolExecutor(2) as pool:
        assert (
            client.post("/v1/completions", json={"prompt": "first", "max_tokens": 1}).status_code == 200
        )  # whatever has to be compiled
        hook = model.register_forward_pre_hook(passes.before, with_kwargs=True)
        try:
            late = pool.submit(client.post, "/v1/completions", json={"prompt": LONG, "timeout_ms": 3000})
            wait_until(lambda: passes.is_held)
            next_one = pool.submit(client.post, "/v1/completions", json={"prompt": SHORT, "max_tokens": 1})
            # Answered while its pass is still under way.
            assert late.result().json()["error"]["code"] == "deadline_exceeded"
            assert not next_one.done()
            passes.released.set()
            assert next_one.result().status_code == 200
        finally:
            passes.released.set()
            hook.remove()
    assert passes.num_tokens == [chunk] * (held + 1) + [len(SHORT)]
