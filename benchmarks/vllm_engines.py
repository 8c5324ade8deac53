"""Engines of vLLM for benchmarks, each in a process of its own and all alive at once, so that methods can take turns.

An engine that isn't asked for anything takes memory and no time. Errors of a process arrive as text, for what an engine
raises is often no object that another process could read.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol

from lookahead_edit.failures import describe_failure

SECONDS_TO_END = 30.0


class EngineFailed(Exception):
    """An engine can't be made, or died; the text is what it said last."""


@dataclass(frozen=True)
class EngineSettings:
    """What all engines of a comparison have in common."""

    model: str
    max_model_len: int = 2048
    max_rows: int = 16
    enable_prefix_caching: bool = (
        False  # prompts that were read before must not be free for the method that comes later
    )
    kv_cache_gb: int = 1


@dataclass(frozen=True)
class Load:
    """Requests of which always `concurrency` are in the engine, until too few are left."""

    concurrency: int
    prompts: tuple[tuple[int, ...], ...]
    max_tokens: int


@dataclass(frozen=True)
class Measured:
    """One load with one method. Seconds are wall-clock time, from the first request to the last token."""

    num_drafted_tokens: int
    num_accepted_tokens: int  # as vLLM counts them: also what is cut off behind the last token asked for
    num_steps: int
    num_forwards: int  # of each row, as far as they emitted something, summed up
    seconds: float
    propose_seconds: float
    outputs: tuple[tuple[int, ...], ...]  # in the order of the prompts

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.outputs))


class Engine(Protocol):
    """What is used of vLLM's `LLMEngine`."""

    def add_request(self, request_id: str, prompt: Any, params: Any) -> Any: ...

    def step(self) -> Sequence[Any]: ...


@dataclass
class Ran:
    """What came out of a load."""

    outputs: list[list[int]]
    num_steps: int = 0
    num_forwards: int = 0


def run_load(engine: Engine, load: Load, params: Any) -> Ran:
    """Each prompt's output. The next request joins in the step after one has finished."""
    ran = Ran([[] for _ in load.prompts])
    waiting = list(enumerate(load.prompts))[::-1]
    num_running = 0
    while waiting or num_running:
        while waiting and num_running < load.concurrency:
            index, prompt = waiting.pop()
            engine.add_request(str(index), {"prompt_token_ids": list(prompt)}, params)
            num_running += 1
        ran.num_steps += 1
        for output in engine.step():
            tokens = output.outputs[0].token_ids
            ran.outputs[int(output.request_id)] += tokens
            ran.num_forwards += bool(tokens)
            num_running -= output.finished
    return ran


class EngineProcess:
    """One engine in a new process.

    Args:
        speculative_config: vLLM's; None for no speculation.
        settings: as for the others.
        serve: what runs in the process; for tests.

    Raises:
        EngineFailed: it can't be made here.
    """

    def __init__(
        self,
        speculative_config: Mapping[str, Any] | None,
        settings: EngineSettings,
        serve: Callable[..., None] | None = None,
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=serve or serve_engine, args=(theirs, speculative_config, settings), daemon=True
        )
        self._process.start()
        theirs.close()
        self._answer()  # that it is ready

    def measure(self, load: Load) -> Measured:
        """Raises EngineFailed where the engine fails meanwhile."""
        self._connection.send(load)
        measured: Measured = self._answer()
        return measured

    def end(self) -> None:
        """Ends the process, also one that hangs."""
        self._connection.close()
        self._process.join(SECONDS_TO_END)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _answer(self) -> Any:
        try:
            answer = self._connection.recv()
        except EOFError as error:
            self.end()
            raise EngineFailed(f"its process ended with status {self._process.exitcode}") from error
        if isinstance(answer, str):
            self.end()
            raise EngineFailed(answer)
        return answer


def serve_engine(
    connection: Connection, speculative_config: Mapping[str, Any] | None, settings: EngineSettings
) -> None:
    """Makes the engine, says None, and answers each load with what was measured, or with a line that says why not."""
    os.dup2(2, 1)  # what vLLM prints is no result
    try:
        measure = _make_engine(speculative_config, settings)
        answer: Measured | None = None
        while True:
            connection.send(answer)
            answer = measure(connection.recv())
    except EOFError:
        return
    except BaseException as error:
        while isinstance(error.__cause__, Exception):
            error = error.__cause__
        connection.send(describe_failure(error))


def _make_engine(speculative_config: Mapping[str, Any] | None, settings: EngineSettings) -> Callable[[Load], Measured]:
    os.environ.update({"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR"})
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = str(settings.kv_cache_gb)
    from vllm import LLM, SamplingParams
    from vllm.platforms import current_platform
    from vllm.sampling_params import RequestOutputKind

    from lookahead_edit.vllm_plugin.loading import hidden_from_scans

    is_cpu = bool(current_platform.is_cpu())
    with hidden_from_scans():
        llm = LLM(
            model=settings.model,
            dtype="float32" if is_cpu else "auto",
            enforce_eager=is_cpu,
            max_model_len=settings.max_model_len,
            max_num_seqs=settings.max_rows,
            enable_prefix_caching=settings.enable_prefix_caching,
            disable_log_stats=False,
            speculative_config=None if speculative_config is None else dict(speculative_config),
        )
    propose_seconds = _watch_proposer(llm)

    def measure(load: Load) -> Measured:
        params = SamplingParams(
            temperature=0.0, max_tokens=load.max_tokens, detokenize=False, output_kind=RequestOutputKind.DELTA
        )
        before, propose_seconds[0] = _counters(llm), 0.0
        began = time.perf_counter()
        ran = run_load(llm.llm_engine, load, params)
        seconds = time.perf_counter() - began
        drafted, accepted = (int(after - past) for after, past in zip(_counters(llm), before, strict=True))
        outputs = tuple(tuple(tokens) for tokens in ran.outputs)
        return Measured(drafted, accepted, ran.num_steps, ran.num_forwards, seconds, propose_seconds[0], outputs)

    return measure


def _counters(llm: Any) -> tuple[float, float]:
    values = {metric.name: getattr(metric, "value", 0.0) for metric in llm.get_metrics()}
    drafted, accepted = (
        float(values.get(f"vllm:spec_decode_num_{what}_tokens", 0.0)) for what in ("draft", "accepted")
    )
    return drafted, accepted


def _watch_proposer(llm: Any) -> list[float]:
    """Seconds spent proposing, summed up in a list of one."""
    seconds = [0.0]
    worker = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker
    drafter = getattr(worker.model_runner, "drafter", None)
    if drafter is not None:
        propose = drafter.propose

        def watched(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return propose(*args, **kwargs)
            finally:
                seconds[0] += time.perf_counter() - began

        drafter.propose = watched
    return seconds
