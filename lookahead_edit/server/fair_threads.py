"""A few threads for what takes too long for the event loop, shared out fairly. Knows no HTTP and no model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ParamSpec, TypeVar

from lookahead_edit.server.fair_queue import FairQueue, Waiting
from lookahead_edit.server.jobs import Job

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")

# One of them is never given to a long body, so that a short one finds it free, whatever came before.
NUM_THREADS = 3
# Preparing and answering so much takes some tenths of a second.
LONG_BODY_BYTES = 128 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    function: Callable[[], Any]
    result: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class FairThreads:
    """Runs calls for jobs, each client's in turn, as `FairQueue` says. Lives on the event loop.

    A job that is over leaves the queue at once; its calls that run are expected to ask `Job.is_stopped` themselves.

    Args:
        name: of the threads.
    """

    def __init__(self, name: str) -> None:
        self._threads = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix=name)
        self._queue = FairQueue[_Call]()
        self._running: list[Job] = []
        self._is_closed = False

    async def run(
        self, job: Job, function: Callable[Arguments, Answer], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Answer:
        """The call's answer, or what it raised. Raises what the job was stopped with where it was stopped before."""
        job.raise_if_stopped()
        call = _Call(partial(function, *args, **kwargs))
        self._queue.add(Waiting(job, call))
        self._start()
        answer: Answer = await call.result
        return answer

    def drop(self, job: Job) -> None:
        """Ends the calls of a stopped job that have not begun."""
        for waiting in self._queue.remove(job):
            try:
                job.raise_if_stopped()
            except Exception as error:
                if not waiting.request.result.done():
                    waiting.request.result.set_exception(error)

    def close(self) -> None:
        """Begins nothing more, and waits for nothing."""
        self._is_closed = True
        while (waiting := self._queue.take(())) is not None:
            waiting.request.result.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> None:
        while len(self._running) < NUM_THREADS and not self._is_closed:
            waiting = self._queue.take(self._running, self._may_start)
            if waiting is None:
                return
            self._running.append(waiting.job)
            running = asyncio.get_running_loop().run_in_executor(self._threads, waiting.request.function)
            running.add_done_callback(partial(self._end, waiting))

    def _may_start(self, waiting: Waiting[_Call]) -> bool:
        return not _is_long(waiting.job) or sum(map(_is_long, self._running)) < NUM_THREADS - 1

    def _end(self, waiting: Waiting[_Call], done: asyncio.Future[Any]) -> None:
        self._running.remove(waiting.job)
        result = waiting.request.result
        if done.cancelled():
            result.cancel()
        elif result.done():
            done.exception()  # nobody waits for it any more, so nobody else would look at it
        elif (error := done.exception()) is not None:
            result.set_exception(error)
        else:
            result.set_result(done.result())
        self._start()


def _is_long(job: Job) -> bool:
    return job.num_body_bytes > LONG_BODY_BYTES
