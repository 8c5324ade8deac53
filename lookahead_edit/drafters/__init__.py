"""Drafters by name: plain factories, a fresh drafter for each sequence."""

from __future__ import annotations

from collections.abc import Callable

from lookahead_edit.config import SpeculationConfig
from lookahead_edit.drafters.ngram import NgramDrafter
from lookahead_edit.drafters.patience import PatientDrafter
from lookahead_edit.drafters.scripted import NoDrafter
from lookahead_edit.drafters.suffix import SuffixDrafter
from lookahead_edit.types import Drafter

DRAFTERS: dict[str, Callable[[SpeculationConfig], Drafter]] = {
    "none": lambda config: NoDrafter(),
    "ngram": NgramDrafter,
    "suffix": lambda config: PatientDrafter(SuffixDrafter(config)),
}
