"""The queue before the model, and what happens on the event loop: who gets a place, who has to go.

All state lives on the event loop; `ModelThread` runs the jobs that have a place and posts what happened to them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from time import monotonic
from typing import ParamSpec, Protocol, TypeVar, runtime_checkable

from lookahead_edit.config import RouteConfig, ServerConfig
from lookahead_edit.editor import Editor, EditRequest, GenerateRequest, Progress
from lookahead_edit.scheduler import AnyLiveRequest
from lookahead_edit.server.fair_queue import RESERVED_SHARE, FairQueue, Waiting
from lookahead_edit.server.fair_threads import FairThreads
from lookahead_edit.server.jobs import Job
from lookahead_edit.server.middleware import is_loopback
from lookahead_edit.server.model_thread import ModelThread, News
from lookahead_edit.server.telemetry import Telemetry
from lookahead_edit.server.trace_log import TraceLog
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

# Jobs are opened before there is a place for them, so that no place waits for an index to be built.
NUM_OPENED_AHEAD = 1


@runtime_checkable
class KeepsPrompts(Protocol):
    """A target that keeps what it has read."""

    @property
    def num_kept_prompt_bytes(self) -> int:
        """Of finished rows, for others that begin alike."""


class Worker:
    """Loads the editor, then runs jobs: as many at once as the batch has places, the others wait in a `FairQueue`.

    Errors: ModelLoading, ShuttingDown, QueueFull where a job isn't taken; a job that was taken ends in a result or
    in the error that `Job.outcomes` raises.
    """

    def __init__(self, load_editor: Callable[[], Editor], config: ServerConfig, telemetry: Telemetry) -> None:
        self.load_error: Exception | None = None
        self.has_loaded = asyncio.Event()
        self._load_editor = load_editor
        self._config = config
        self._telemetry = telemetry
        self._editor: Editor | None = None
        self._is_shutting_down = False
        self._jobs: dict[str, Job] = {}  # those that are not over, by id
        self._sessions: dict[tuple[str, str], Job] = {}  # the newest of each client's session, while it is not over
        self._queue = FairQueue[EditRequest | GenerateRequest]()
        self._in_preparation = Counter[str]()  # jobs of each client
        self._handed_over: dict[Job, asyncio.Task[None]] = {}  # out of the queue, until the model lets go of it
        self._running: set[Job] = set()  # those of them that have a place in the batch
        self._conclusions: set[asyncio.Task[None]] = set()
        self._model = ModelThread(config.max_batch_size, self._hear)
        self._check_threads = FairThreads("check")
        self._open_threads = FairThreads("open")
        self._answer_threads = FairThreads("answer")
        self._serving: asyncio.Task[None] | None = None
        self._trace_log: TraceLog | None = None
        if config.trace_log is not None:
            self._trace_log = TraceLog(config.trace_log, config.max_trace_log_bytes)
        telemetry.watch_queue(lambda: self.num_running, lambda: self.num_waiting)
        telemetry.watch_kept_prompts(lambda: self.num_kept_prompt_bytes)

    # 1) What others may ask

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        opened = sum(not job.is_over and job not in self._running for job in self._handed_over)
        return len(self._queue) + opened

    @property
    def num_kept_prompt_bytes(self) -> int:
        """Of finished requests; 0 where the target keeps none, or doesn't tell."""
        target = None if self._editor is None else self._editor.target
        return target.num_kept_prompt_bytes if isinstance(target, KeepsPrompts) else 0

    @property
    def is_idle(self) -> bool:
        """Whether no job is open and the model's thread rests."""
        return not self._jobs and not self._handed_over

    @property
    def is_model_busy(self) -> bool:
        """Whether the model's thread is in a call."""
        return self._model.is_busy

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
        self, job: Job, function: Callable[Arguments, Answer], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Answer:
        """Runs what must not block the event loop before an open job is submitted.

        Raises QueueFull, or what the job was stopped with before it came to that.
        """
        limit = max(1, self._limit_for(job.client, is_there=bool(self._in_preparation[job.client])))
        if self._in_preparation.total() >= limit:
            raise self._queue_full()
        self._in_preparation[job.client] += 1
        try:
            return await self._check_threads.run(job, function, *args, **kwargs)
        finally:
            self._in_preparation[job.client] -= 1
            self._in_preparation += Counter()  # forgets those who have none

    async def conclude(
        self, job: Job, function: Callable[Arguments, Answer], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Answer:
        """Runs what must not block the event loop after a job has its result."""
        return await self._answer_threads.run(job, function, *args, **kwargs)

    def submit(
        self,
        job: Job,
        request: EditRequest | GenerateRequest,
        route: RouteConfig,
        *,
        session: str | None = None,
        timeout_seconds: float | None = None,
    ) -> None:
        """Queues the job, in place of an older one of its session. The time limit counts from its arrival.

        Raises QueueFull, ShuttingDown, RequestSuperseded (a newer one of the session is here already), or what the
        job was stopped with in the meantime.
        """
        job.raise_if_stopped()
        self.require_editor()
        key = None if session is None else (job.client, session)
        other = self._sessions.get(key) if key is not None else None
        if other is not None and other.arrival > job.arrival:
            raise _superseded()
        self._require_room(job.client, leaving=other)
        if other is not None:
            other.stop(_superseded())
        job.route, job.priority = route.name, route.priority
        job.cache_group = self._cache_group(job.client, session)
        if key is not None:
            job.session = session
            self._sessions[key] = job
        if timeout_seconds is not None:
            late = DeadlineExceeded(f"expected an answer within {timeout_seconds * 1000:g} ms, got none")
            seconds_left = job.arrived + timeout_seconds - monotonic()
            job.timer = asyncio.get_running_loop().call_later(max(0.0, seconds_left), job.stop, late)
        self._queue.add(Waiting(job, request))
        self._hand_over()

    def cancel(self, name: str, client: str) -> bool:
        """Cancels the open job with this id, or else the client's one with this `x-request-id`.

        Clients choose the latter, so two may have chosen the same: then neither is cancelled.
        """
        named = [
            job for job in self._jobs.values() if name == job.id or (name == job.request_id and client == job.client)
        ]
        if len(named) != 1:
            return False
        return named[0].stop(RequestCancelled("the request was cancelled"))

    def _close_job(self, job: Job) -> None:
        self._jobs.pop(job.id, None)
        if job.session is not None and self._sessions.get((job.client, job.session)) is job:
            del self._sessions[job.client, job.session]
        self._queue.remove(job)
        self._check_threads.drop(job)
        self._open_threads.drop(job)

    def _cache_group(self, client: str, session: str | None) -> str | None:
        """Whose prompts a request may be read from: its session's, or its client's where clients can be told apart.

        A server that is open to a network and has no key knows clients by their address only, and many may stand behind
        one: there, requests without a session share nothing.
        """
        if session is not None:
            return blake2b(f"{client}\0{session}".encode(), digest_size=16).hexdigest()
        is_closed = self._config.api_key is not None or is_loopback(self._config.host)
        return client if is_closed else None

    def _limit_for(self, client: str, *, is_there: bool) -> int:
        """How many may wait, for a client who `is_there` already; a few more for one who isn't."""
        limit = self._config.max_queued_requests
        return limit if is_there else limit + int(limit * RESERVED_SHARE)

    def _require_room(self, client: str, leaving: Job | None) -> None:
        limit = self._limit_for(client, is_there=self._queue.has(client))
        num_taken = self.num_waiting + self.num_running - (leaving is not None)
        # A free place in the batch is taken out of the queue at once.
        if num_taken >= limit + self._config.max_batch_size:
            raise self._queue_full()

    def _queue_full(self) -> QueueFull:
        return QueueFull(f"expected at most {self._config.max_queued_requests} waiting requests, try again soon")

    # 3) Between the queue and the model

    def start(self) -> None:
        """Begins to load the model; call it on the event loop."""
        self._serving = asyncio.get_running_loop().create_task(self._serve())

    async def _serve(self) -> None:
        try:
            self._editor = await self._model.load(self._load_editor)
        except Exception as error:
            self.load_error = error
            if not isinstance(error, LookaheadEditError):
                logger.exception("loading the model failed")
            return
        self.has_loaded.set()
        await self._model.run()

    def _hand_over(self) -> None:
        """Opens the next jobs, as long as there are places for them, or nearly."""
        while len(self._handed_over) < self._config.max_batch_size + NUM_OPENED_AHEAD:
            waiting = self._queue.take(self._handed_over)
            if waiting is None:
                return
            self._handed_over[waiting.job] = asyncio.get_running_loop().create_task(self._open(waiting))

    async def _open(self, waiting: Waiting[EditRequest | GenerateRequest]) -> None:
        job = waiting.job
        assert self._editor is not None
        try:
            live = await self._open_threads.run(
                job, self._editor.open, waiting.request, job.is_stopped, cache_group=job.cache_group
            )
        except Exception as error:
            job.stop(error)
        if job.is_over:
            self._let_go(job)
        else:
            self._model.add(job, live)

    def _hear(self, news: News) -> None:
        for job, event in news:
            if event is None:
                self._running.add(job)
            elif isinstance(event, Progress):
                self._telemetry.count_rounds(job.route, [event.round])
                job.deliver(event)
            else:
                if isinstance(event, Exception):
                    job.stop(event)
                else:
                    conclusion = asyncio.get_running_loop().create_task(self._conclude(job, event))
                    self._conclusions.add(conclusion)
                    conclusion.add_done_callback(self._conclusions.discard)
                if job.metrics is not None:
                    self._telemetry.count_request(job.route, job.metrics)
                self._let_go(job)

    async def _conclude(self, job: Job, live: AnyLiveRequest) -> None:
        try:
            job.deliver(await self.conclude(job, live.result))
        except Exception as error:
            job.stop(error)
        if self._trace_log is not None and self._editor is not None and not job.is_stopped():
            await asyncio.to_thread(self._trace_log.add, job.id, live, self._editor.tokenizer)

    def _let_go(self, job: Job) -> None:
        self._handed_over.pop(job, None)
        self._running.discard(job)
        self._hand_over()

    # 4) The end

    def refuse_new_work(self) -> None:
        self._is_shutting_down = True

    def stop_all(self) -> None:
        """Ends every open job; the model's thread lets go at its next round."""
        for job in list(self._jobs.values()):
            job.stop(ShuttingDown("the server shut down before the request was answered"))

    async def close(self, patience_seconds: float = 2.0) -> None:
        """Ends everything; waits so long for the present round, and never for a model that loads."""
        self.refuse_new_work()
        self.stop_all()
        deadline = monotonic() + patience_seconds
        while self._handed_over and monotonic() < deadline:
            await asyncio.sleep(0.01)
        if self._serving is not None:
            self._serving.cancel()
        self._model.close()
        for threads in (self._check_threads, self._open_threads, self._answer_threads):
            threads.close()


def _superseded() -> RequestSuperseded:
    return RequestSuperseded("a newer request of the same session took its place")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
