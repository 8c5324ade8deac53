"""Engines of vLLM on the CPU. Skipped where vLLM isn't installed: `make test-vllm` sets up its own environment."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

PROPOSER = "lookahead_edit.vllm_plugin.EditProposer"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "on_vllm/" in item.nodeid:
            item.add_marker(pytest.mark.vllm)
            item.add_marker(pytest.mark.filterwarnings("ignore"))  # vLLM's own
            item.add_marker(pytest.mark.timeout(3600))


@pytest.fixture(scope="session")
def model_path() -> str:
    from lookahead_edit.targets.default_model import default_model_directory

    return str(default_model_directory())


@pytest.fixture(scope="module")
def make_llm(model_path: str) -> Iterator[Callable[..., Any]]:
    """``make_llm(num_draft_tokens, **engine_arguments)``; one engine at a time, the one before is ended."""
    pytest.importorskip("vllm", reason="needs vLLM in its own environment: make test-vllm")
    from vllm import LLM
    from vllm.distributed import cleanup_dist_env_and_memory

    from lookahead_edit.vllm_plugin.loading import hidden_from_scans

    engines: list[Any] = []

    def end() -> None:
        while engines:
            engine = engines.pop()
            engine.llm_engine.engine_core.shutdown()
            del engine
        gc.collect()
        cleanup_dist_env_and_memory()

    def make(num_draft_tokens: int = 0, **arguments: Any) -> Any:
        end()
        options: dict[str, Any] = {
            "model": model_path,
            "dtype": "float32",
            "enforce_eager": True,
            "max_model_len": 1024,
            "max_num_seqs": 8,
            "disable_log_stats": False,
            "seed": 0,
        }
        if num_draft_tokens:
            options["speculative_config"] = {
                "method": "custom_class",
                "model": PROPOSER,
                "num_speculative_tokens": num_draft_tokens,
            }
        with hidden_from_scans():
            engines.append(LLM(**(options | arguments)))
        return engines[-1]

    yield make
    end()
