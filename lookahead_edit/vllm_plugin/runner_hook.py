"""Shows the proposer which request each row belongs to, by wrapping one method of vLLM's model runner.

vLLM offers no seam for this. The method is looked at first; where it isn't what we know, nothing is touched. It is
installed by the proposer, in the process that runs it, so engines without our proposer stay as they are.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any

from lookahead_edit.failures import describe_failure
from lookahead_edit.types import Tokenizer
from lookahead_edit.vllm_plugin.batch import RequestFacts, StepFacts
from lookahead_edit.vllm_plugin.wishes import Wishes, read_wishes

logger = logging.getLogger("vllm.lookahead_edit")

METHOD = "propose_draft_token_ids"
_PARAMETERS = ["self", "scheduler_output", "sampled_token_ids"]
_MARK = "_shows_requests_to_lookahead_edit"


def install_runner_hook() -> bool:
    """Wraps the method once; False where the installed release has none that we know."""
    try:
        from vllm.v1.worker.gpu_model_runner import GPUModelRunner
    except ImportError:
        return False
    return wrap(GPUModelRunner)


def wrap(runner_class: type) -> bool:
    """Wraps the runner's method, unless it is wrapped; False where it isn't the one we know."""
    original: Any = getattr(runner_class, METHOD, None)
    if original is None:
        return False
    if getattr(original, _MARK, False):
        return True
    if list(inspect.signature(original).parameters)[: len(_PARAMETERS)] != _PARAMETERS:
        return False

    @functools.wraps(original)
    def propose_draft_token_ids(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        drafter: Any = getattr(self, "drafter", None)
        if hasattr(drafter, "facts"):
            drafter.facts = _facts_or_none(self, scheduler_output, drafter.tokenizer)
        return original(self, scheduler_output, *args, **kwargs)

    setattr(propose_draft_token_ids, _MARK, True)
    setattr(runner_class, METHOD, propose_draft_token_ids)
    return True


def step_facts(runner: Any, scheduler_output: Any, tokenizer: Tokenizer | None) -> StepFacts:
    """Of all rows, in the batch's order."""
    verified = scheduler_output.scheduled_spec_decode_tokens
    scheduled = scheduler_output.num_scheduled_tokens
    rows = []
    for name in runner.input_batch.req_ids:
        state = runner.requests[name]
        rows.append(
            RequestFacts(
                name=name,
                num_prompt_tokens=state.num_prompt_tokens,
                max_output_tokens=getattr(state.sampling_params, "max_tokens", None),
                num_verified_tokens=len(verified.get(name, ())),
                num_scheduled_tokens=scheduled.get(name, 0),
                read_wishes=_wishes_reader(state.sampling_params, tokenizer),
            )
        )
    return StepFacts(rows=rows, names=list(runner.requests))


def _wishes_reader(sampling_params: Any, tokenizer: Tokenizer | None) -> Callable[[], Wishes]:
    extra_args: Mapping[str, Any] | None = getattr(sampling_params, "extra_args", None)

    def read() -> Wishes:
        wishes, problems = read_wishes(extra_args, tokenizer)
        for problem in problems:
            logger.warning("lookahead_edit: a request's option is ignored: %s", problem)
        return wishes

    return read


_has_complained = False


def _facts_or_none(runner: Any, scheduler_output: Any, tokenizer: Tokenizer | None) -> StepFacts | None:
    global _has_complained
    try:
        return step_facts(runner, scheduler_output, tokenizer)
    except Exception as error:  # other internals than those we know
        if not _has_complained:
            _has_complained = True
            logger.warning("lookahead_edit: requests can't be told apart by name: %s", describe_failure(error))
        return None
