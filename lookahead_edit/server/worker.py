"""The queue before the model: one thread runs one request at a time, the event loop decides which.

All state lives on the event loop; the model's thread only reads `Job.is_stopped` and posts what it made.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from time import monotonic
from typing import ParamSpec, TypeVar, cast

from lookahead_edit.config import ServerConfig
from lookahead_edit.editor import Editor, EditResult, Progress
from lookahead_edit.server.jobs import Job, Outcome, Run
from lookahead_edit.server.telemetry import Telemetry
from lookahead_edit.types import (
    DeadlineExceeded,
    LookaheadEditError,
    ModelLoading,
    QueueFull,
    RequestCancelled,
    RequestSuperseded,
    ShuttingDown,
)

logger = logging.getLogger(__name__)

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")

# For prompt checks, and as many for answers: enough that one long text doesn't hold up the rest.
NUM_TEXT_THREADS = 2


class Worker:
    """Loads the editor, then runs jobs in the order of their submission.

    Errors: ModelLoading, ShuttingDown, QueueFull where a job isn't taken; a job that was taken ends in a result or
    in the error that `Job.outcomes` raises.
    """

    def __init__(self, load_editor: Callable[[], Editor], config: ServerConfig, telemetry: Telemetry) -> None:
        self.load_error: Exception | None = None
        self.has_loaded = asyncio.Event()
        self.is_model_busy = False  # whether the model's thread is in a call; set by that thread
        self._load_editor = load_editor
        self._config = config
        self._telemetry = telemetry
        self._editor: Editor | None = None
        self._is_shutting_down = False
        self._jobs: dict[str, Job] = {}  # those that are not over, by id
        self._sessions: dict[str, Job] = {}  # the newest of each session, while it is not over
        self._waiting: deque[tuple[Job, Run]] = deque()
        self._num_in_preparation = 0
        self._running: Job | None = None  # stays set until the thread has let go of it
        self._has_work = asyncio.Event()
        self._model_thread = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._check_threads = ThreadPoolExecutor(NUM_TEXT_THREADS, thread_name_prefix="check")
        self._answer_threads = ThreadPoolExecutor(NUM_TEXT_THREADS, thread_name_prefix="answer")
        self._serving: asyncio.Task[None] | None = None
        telemetry.watch_queue(lambda: self.num_running, lambda: self.num_waiting)

    # 1) What others may ask

    @property
    def num_running(self) -> int:
        return int(self._running is not None)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether no job is open and the model's thread rests."""
        return not self._jobs and self._running is None

    def require_editor(self) -> Editor:
        """The editor, if new work is taken now. Raises ModelLoading or ShuttingDown."""
        if self._is_shutting_down:
            raise ShuttingDown("the server is shutting down and takes no new work")
        if self._editor is None:
            if self.load_error is not None:
                raise ModelLoading(f"the model could not be loaded: {_first_line(self.load_error)}")
            raise ModelLoading("the model is still loading")
        return self._editor

    # 2) The life of a job

    def open(self, job: Job) -> None:
        """From here on the job can be cancelled by name; being over closes it."""
        job.on_over = self._close_job
        self._jobs[job.id] = job

    async def prepare(
        self, function: Callable[Arguments, Answer], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Answer:
        """Runs what must not block the event loop before a job is submitted. Raises QueueFull."""
        if self._num_in_preparation >= max(1, self._config.max_queued_requests):
            raise self._queue_full()
        self._num_in_preparation += 1
        try:
            return await _in_thread(self._check_threads, function, *args, **kwargs)
        finally:
            self._num_in_preparation -= 1

    async def conclude(
        self, function: Callable[Arguments, Answer], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Answer:
        """Runs what must not block the event loop after a job has its result."""
        return await _in_thread(self._answer_threads, function, *args, **kwargs)

    def submit(self, job: Job, run: Run, *, session: str | None = None, timeout_seconds: float | None = None) -> None:
        """Queues the job, in place of an older one of its session. The time limit counts from its arrival.

        Raises QueueFull, ShuttingDown, RequestSuperseded (a newer one of the session is here already), or what the
        job was stopped with in the meantime.
        """
        job.raise_if_stopped()
        self.require_editor()
        other = self._sessions.get(session) if session is not None else None
        if other is not None and other.arrival > job.arrival:
            raise _superseded()
        num_waiting = sum(waiting is not other for waiting, _ in self._waiting)
        # An idle worker takes one out of the queue at once.
        if num_waiting >= self._config.max_queued_requests + (1 - self.num_running):
            raise self._queue_full()
        if other is not None:
            other.stop(_superseded())
        if session is not None:
            job.session = session
            self._sessions[session] = job
        if timeout_seconds is not None:
            late = DeadlineExceeded(f"expected an answer within {timeout_seconds * 1000:g} ms, got none")
            seconds_left = job.arrived + timeout_seconds - monotonic()
            job.timer = asyncio.get_running_loop().call_later(max(0.0, seconds_left), job.stop, late)
        self._waiting.append((job, run))
        self._has_work.set()

    def cancel(self, name: str) -> bool:
        """Cancels the open job with this id, or else the one with this `x-request-id`.

        Clients choose the latter, so two may have chosen the same: then neither is cancelled.
        """
        named = [job for job in self._jobs.values() if name in (job.id, job.request_id)]
        if len(named) != 1:
            return False
        return named[0].stop(RequestCancelled("the request was cancelled"))

    def _close_job(self, job: Job) -> None:
        self._jobs.pop(job.id, None)
        if job.session is not None and self._sessions.get(job.session) is job:
            del self._sessions[job.session]
        self._waiting = deque((waiting, run) for waiting, run in self._waiting if waiting is not job)

    def _queue_full(self) -> QueueFull:
        return QueueFull(f"expected at most {self._config.max_queued_requests} waiting requests, try again soon")

    # 3) The model's thread and the loop that feeds it

    def start(self) -> None:
        """Begins to load the model; call it on the event loop."""
        self._serving = asyncio.get_running_loop().create_task(self._serve())

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._editor = editor = await self._in_model_thread(self._load_editor)
        except Exception as error:
            self.load_error = error
            if not isinstance(error, LookaheadEditError):
                logger.exception("loading the model failed")
            return
        self.has_loaded.set()
        while True:
            self._has_work.clear()
            while self._waiting:
                job, run = self._waiting.popleft()
                self._running = job
                try:
                    await self._in_model_thread(self._run, loop, editor, job, run)
                finally:
                    self._running = None
            await self._has_work.wait()

    async def _in_model_thread(
        self, function: Callable[Arguments, Answer], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Answer:
        def call() -> Answer:
            self.is_model_busy = True
            try:
                return function(*args, **kwargs)
            finally:
                self.is_model_busy = False

        return await _in_thread(self._model_thread, call)

    def _run(self, loop: asyncio.AbstractEventLoop, editor: Editor, job: Job, run: Run) -> None:
        def post(function: Callable[..., object], argument: Outcome | Exception) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(function, argument)

        job.started = monotonic()
        ending: EditResult | Exception = RuntimeError("the editor ended without a result")
        try:
            try:
                # Closing the iterator is what frees the request in the engine.
                with closing(cast("Generator[Outcome]", run(editor, job.is_stopped))) as outcomes:
                    for outcome in outcomes:
                        if job.is_stopped():
                            break
                        if isinstance(outcome, Progress):
                            job.note_round(outcome)
                            post(job.deliver, outcome)
                        else:
                            ending = outcome
            finally:
                self._telemetry.count_rounds(job.route, job.rounds)
        except Exception as error:
            ending = error
        post(job.stop if isinstance(ending, Exception) else job.deliver, ending)

    # 4) The end

    def refuse_new_work(self) -> None:
        self._is_shutting_down = True

    def stop_all(self) -> None:
        """Ends every open job; the model's thread lets go at its next round."""
        for job in list(self._jobs.values()):
            job.stop(ShuttingDown("the server shut down before the request was answered"))

    async def close(self, patience_seconds: float = 2.0) -> None:
        """Ends everything; waits so long for the running job's round, and never for a model that loads."""
        self.refuse_new_work()
        self.stop_all()
        deadline = monotonic() + patience_seconds
        while self._running is not None and monotonic() < deadline:
            await asyncio.sleep(0.01)
        if self._serving is not None:
            self._serving.cancel()
        for threads in (self._model_thread, self._check_threads, self._answer_threads):
            threads.shutdown(wait=False, cancel_futures=True)


async def _in_thread(
    threads: ThreadPoolExecutor,
    function: Callable[Arguments, Answer],
    *args: Arguments.args,
    **kwargs: Arguments.kwargs,
) -> Answer:
    call = partial(function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(threads, call)


def _superseded() -> RequestSuperseded:
    return RequestSuperseded("a newer request of the same session took its place")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
