"""The kernel of a whole round: what its parts do has tests of their own; here is what it adds."""

from __future__ import annotations

import itertools

import numpy as np

from lookahead_edit.kernels import drafting
from lookahead_edit.types import SourceKind
from tests import naive


def test_each_drafted_token_tells_where_its_twin_stands() -> None:
    generator = np.random.default_rng(3)
    kinds = generator.integers(0, 4, 40).astype(np.int8)
    for array, position, num_copied, file_kind in itertools.product(range(3), (0, 7, 30, 39), (0, 1, 9, 25), (0, 1)):
        for num_tokens, num_file_tokens in ((40, 20), (31, 0), (40, 64)):
            found = np.full(num_copied, -1, dtype=np.int8)
            drafting.fill_sources(array, position, kinds, num_tokens, file_kind, num_file_tokens, found)
            known = kinds[:num_tokens].tolist()
            assert found.tolist() == naive.sources_of(array, position, num_copied, known, file_kind, num_file_tokens)


def test_kinds_are_numbered_as_elsewhere() -> None:
    numbered = (drafting.PROMPT, drafting.OUTPUT, drafting.CONTEXT)
    assert numbered == (SourceKind.PROMPT, SourceKind.OUTPUT, SourceKind.CONTEXT)
