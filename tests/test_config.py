"""Values that no configuration takes: refused where they are written down, not where they would do harm."""

from __future__ import annotations

import pytest
import torch

from lookahead_edit.config import MIN_TEMPERATURE, SamplingConfig, ServerConfig
from lookahead_edit.types import InvalidInput
from lookahead_edit.verify import warp


@pytest.mark.parametrize("temperature", [1e-45, 1e-31, 5e-324])
def test_a_temperature_that_no_logit_can_be_divided_by_is_refused(temperature: float) -> None:
    with pytest.raises(InvalidInput, match=r"^expected temperature to be 0 or at least 1e-30, got "):
        SamplingConfig(temperature=temperature)


@pytest.mark.parametrize("options", [{}, {"top_p": 0.5}, {"top_k": 2}, {"min_p": 0.1}])
def test_the_lowest_temperature_is_as_good_as_none(options: dict[str, float]) -> None:
    scores = warp(torch.tensor([-9e4, 3.0, 9e4, 8.9e4]), SamplingConfig(temperature=MIN_TEMPERATURE, **options))  # type: ignore[arg-type]
    assert scores.softmax(dim=-1).tolist() == [0.0, 0.0, 1.0, 0.0]


@pytest.mark.parametrize("origin", ["*", "null", "https://a.example", "http://localhost:3000", "vscode-webview://abc"])
def test_any_origin_may_be_allowed(origin: str) -> None:
    assert ServerConfig(cors_origins=(origin,)).cors_origins == (origin,)


@pytest.mark.parametrize("origin", ["", "a.example", "https://a.example/", "https://a b", "://a"])
def test_what_no_browser_sends_is_no_origin(origin: str) -> None:
    with pytest.raises(InvalidInput, match=r"expected cors_origins like"):
        ServerConfig(cors_origins=(origin,))
