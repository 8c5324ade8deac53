"""A cache that grows in place holds what transformers' own does, after any updates and crops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from transformers.cache_utils import DynamicLayer

from lookahead_edit.targets.growing_cache import MIN_SPARE_TOKENS, GrowingLayer, open_cache
from lookahead_edit.targets.rollback import uncroppable_layers


def states(generator: np.random.Generator, num_tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    keys, values = generator.standard_normal((2, 1, 2, num_tokens, 4)).astype(np.float32)
    return torch.from_numpy(keys), torch.from_numpy(values)


@pytest.mark.parametrize("seed", range(5))
def test_it_holds_what_a_dynamic_layer_holds(seed: int) -> None:
    generator = np.random.default_rng(seed)
    growing, dynamic = GrowingLayer(), DynamicLayer()
    for _ in range(60):
        new = states(generator, int(generator.integers(1, 40)))
        for mine, other in zip(growing.update(*new), dynamic.update(*new), strict=True):
            assert torch.equal(mine, other)
        num_removed = int(generator.integers(0, dynamic.get_seq_length() + 1)) if generator.random() < 0.5 else 0
        growing.crop(-num_removed)
        dynamic.crop(-num_removed)
        assert growing.get_seq_length() == dynamic.get_seq_length()
        assert growing.get_mask_sizes(3) == dynamic.get_mask_sizes(3)


def test_tokens_are_written_in_place_and_the_room_is_bounded() -> None:
    generator = np.random.default_rng(0)
    layer = GrowingLayer()
    layer.update(*states(generator, 1000))
    places = set()
    for _ in range(100):
        layer.update(*states(generator, 3))
        layer.crop(-2)
        places.add(layer.keys.data_ptr())
    assert len(places) == 1
    capacity = layer.keys.untyped_storage().nbytes() / layer.keys.nbytes * layer.get_seq_length()
    assert capacity == pytest.approx(1000 + max(MIN_SPARE_TOKENS, 1000 // 8))


def test_tensors_that_somebody_replaced_are_taken_over() -> None:
    generator = np.random.default_rng(0)
    layer, expected = GrowingLayer(), DynamicLayer()
    for number in range(3):
        new = states(generator, 5)
        layer.update(*new)
        expected.update(*new)
        layer.reorder_cache(torch.tensor([0]))
        if number == 1:
            layer.reset()
            expected.reset()
    assert torch.equal(layer.keys, expected.keys)
    assert torch.equal(layer.values, expected.values)


def test_only_layers_of_full_attention_are_replaced(tiny_model: Any) -> None:
    for name in ("llama", "mistral", "lfm2", "qwen3_next"):
        model = tiny_model(name)
        mine, other = open_cache(model), hf.DynamicCache(config=model.config)
        for layer, own in zip(mine.layers, other.layers, strict=True):
            assert type(layer) is (GrowingLayer if type(own) is DynamicLayer else type(own))
        assert uncroppable_layers(mine) == uncroppable_layers(other)
        assert mine.is_sliding == other.is_sliding
