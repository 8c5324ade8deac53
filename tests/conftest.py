"""Models: tiny random ones, and the default model where a test is marked slow.

Test modules import nothing from here: directories below have a conftest of their own.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from tiny_models import VOCAB_SIZE, make_tiny_model

os.environ.setdefault("HF_HUB_OFFLINE", "1")

_tiny_models: dict[str, Any] = {}


@pytest.fixture
def tiny_model() -> Any:
    """``tiny_model("llama")``: made once a session."""

    def get(name: str) -> Any:
        if name not in _tiny_models:
            _tiny_models[name] = make_tiny_model(name)
        return _tiny_models[name]

    return get


@pytest.fixture(scope="session")
def random_prompt() -> np.ndarray[Any, np.dtype[np.int32]]:
    """int32[40], ids 3 to 96."""
    return np.random.default_rng(0).integers(3, VOCAB_SIZE, 40).astype(np.int32)


@pytest.fixture(autouse=True)
def torch_threads(request: pytest.FixtureRequest) -> None:
    """Tiny models gain nothing from a second thread, and lose much where the cores are busy."""
    import torch

    torch.set_num_threads(2 if request.node.get_closest_marker("slow") else 1)


@pytest.fixture(scope="session")
def default_model() -> tuple[Any, Any]:
    """The default model and its tokenizer, converted on first use."""
    from lookahead_edit.targets.loading import load_model

    return load_model(None)
