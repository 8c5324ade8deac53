"""The rules that other engines draft by, each as a `Drafter`, and the settings that a user of them would try.

They decide their lengths themselves, so they run under a `FixedPolicy` of `MAX_DRAFT_TOKENS`. Two know more than the
text: ``line_cursor`` wants `text_of_token`, and ``oracle_copy``, which is no peer but a bound, the `output`.

Example:
    >>> drafter = PEERS["vllm_ngram"](min_ngram_length=2, max_ngram_length=5, num_draft_tokens=16)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product

from benchmarks.peers.line_cursor import LineCursor
from benchmarks.peers.lookups import (
    ArcticSuffix,
    HfLookup,
    LlamaCppSimple,
    PromptLookup,
    SuffixAutomaton,
    VllmNgram,
)
from benchmarks.peers.oracle import OracleCopy
from lookahead_edit.drafters.scripted import NoDrafter
from lookahead_edit.types import Drafter

MAX_DRAFT_TOKENS = 256  # no setting drafts more

PEERS: dict[str, Callable[..., Drafter]] = {
    "plain": NoDrafter,
    "hf_lookup": HfLookup,
    "pld": PromptLookup,
    "vllm_ngram": VllmNgram,
    "llamacpp_simple": LlamaCppSimple,
    "arctic_suffix": ArcticSuffix,
    "sam": SuffixAutomaton,
    "line_cursor": LineCursor,
    "oracle_copy": OracleCopy,
}


def _grid(**values: Iterable[float]) -> tuple[dict[str, float], ...]:
    return tuple(dict(zip(values, setting, strict=True)) for setting in product(*values.values()))


# The best of a peer's settings is its result, for each ratio of costs anew. The defaults are among them.
TUNING: dict[str, tuple[dict[str, float], ...]] = {
    "plain": ({},),
    "hf_lookup": _grid(num_draft_tokens=(5, 10, 20, 40, 64, 128, 256), max_ngram_length=(2, 3, 10)),
    "pld": _grid(num_draft_tokens=(5, 10, 20, 40, 64, 128, 256), max_ngram_length=(3, 5)),
    "vllm_ngram": (  # which accepts no more than 128 tokens
        *_grid(min_ngram_length=(5,), max_ngram_length=(5,), num_draft_tokens=(5, 16, 32, 64, 128)),
        *_grid(min_ngram_length=(2,), max_ngram_length=(5, 20), num_draft_tokens=(5, 16, 32, 64, 128)),
        *_grid(min_ngram_length=(1,), max_ngram_length=(10,), num_draft_tokens=(5, 16, 32, 64, 128)),
    ),
    "llamacpp_simple": _grid(ngram_length=(2, 3, 4, 6, 12), num_draft_tokens=(16, 48, 128, 256)),
    "arctic_suffix": (
        *_grid(max_depth=(24, 64, 256), max_draft_factor=(1, 2, 4), min_probability=(0.1,)),
        *_grid(max_depth=(256, 512), max_draft_factor=(4, 8), min_probability=(0.1, 0.3))[1:],
        *_grid(max_depth=(64, 256), max_draft_factor=(2,), min_probability=(0.3,)),
    ),
    "sam": _grid(draft_tokens_per_match=(2, 4, 8, 16), max_draft_tokens=(16, 60, 128, 256)),
    "line_cursor": _grid(num_draft_tokens=(16, 32, 64, 128, 256)),
}
