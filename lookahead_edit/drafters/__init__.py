"""Drafters by name: plain factories, a fresh drafter for each sequence."""

from __future__ import annotations

from collections.abc import Callable

from lookahead_edit.config import SpeculationConfig
from lookahead_edit.drafters.edit import EditDrafter
from lookahead_edit.drafters.ngram import NgramDrafter
from lookahead_edit.drafters.patience import PatientDrafter
from lookahead_edit.drafters.scripted import NoDrafter
from lookahead_edit.drafters.suffix import SuffixDrafter
from lookahead_edit.types import Drafter, Tokenizer

# The tokenizer is None where there is none: drafters that need texts do without them then.
DRAFTERS: dict[str, Callable[[SpeculationConfig, Tokenizer | None], Drafter]] = {
    "edit": EditDrafter,
    "none": lambda config, tokenizer: NoDrafter(),
    "ngram": lambda config, tokenizer: NgramDrafter(config),
    "suffix": lambda config, tokenizer: PatientDrafter(SuffixDrafter(config)),
}
