"""The thread that runs the model: it loads the editor, then steps the scheduler as long as there is work.

Everything that reaches it comes through `add`, everything that leaves it through `post`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from lookahead_edit.config import SpeculationConfig
from lookahead_edit.editor import Editor, Progress
from lookahead_edit.engine import Engine
from lookahead_edit.failures import describe_failure
from lookahead_edit.scheduler import AnyLiveRequest, Event, Scheduler
from lookahead_edit.server.jobs import Job
from lookahead_edit.speculation import cost_curve_of, make_policy

logger = logging.getLogger(__name__)

# What happened in a round, in order: None where a job got its place in the batch.
News = list[tuple[Job, "Event | None"]]


class ModelThread:
    """Runs many jobs at once.

    Args:
        max_batch_size: jobs that are stepped together.
        post: is given the news of every round, on the event loop.
    """

    def __init__(self, max_batch_size: int, post: Callable[[News], None]) -> None:
        self.is_busy = False  # whether the thread is in a call to the model
        self._max_batch_size = max_batch_size
        self._post = post
        self._added: deque[tuple[Job, AnyLiveRequest]] = deque()
        self._has_changed = threading.Condition()
        self._is_closing = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._make_scheduler: Callable[[], Scheduler[Job]] | None = None

    async def load(self, load_editor: Callable[[], Editor]) -> Editor:
        """Loads the editor in the thread that will run it. Raises what `load_editor` does."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._load, load_editor)

    async def run(self) -> None:
        """Steps what is added until `close`; the editor must have been loaded."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._run, loop)

    def add(self, job: Job, live: AnyLiveRequest) -> None:
        """Hands a job over; callable from any thread."""
        with self._has_changed:
            self._added.append((job, live))
            self._has_changed.notify()

    def close(self) -> None:
        """Ends the thread after its present round; never waits for it."""
        with self._has_changed:
            self._is_closing = True
            self._has_changed.notify()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _load(self, load_editor: Callable[[], Editor]) -> Editor:
        self.is_busy = True
        try:
            editor = load_editor()
            editor.tokenizer.prepare_for_threads()  # prompts are read while the model's thread decodes
            policy = make_policy(SpeculationConfig(), cost_curve_of(editor.target))
        finally:
            self.is_busy = False
        self._make_scheduler = lambda: Scheduler[Job](Engine(editor.target, policy), self._max_batch_size)
        return editor

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        assert self._make_scheduler is not None
        scheduler = self._make_scheduler()
        while self._take_added(scheduler):
            self.is_busy = True
            try:
                news = self._step(scheduler)
            except Exception as error:
                logger.error("the batch failed, its requests are ended: %s", describe_failure(error))
                news = [*scheduler.end_all(error)]
                scheduler = self._make_scheduler()
            self.is_busy = False
            with suppress(RuntimeError):  # the loop has closed, so nobody waits for it any more
                loop.call_soon_threadsafe(self._post, news)
            del news  # or a finished request would be kept until the next one comes
        scheduler.end_all(RuntimeError("the server is closing"))

    def _take_added(self, scheduler: Scheduler[Job]) -> bool:
        """Waits until there is something to step; False where the thread is to end."""
        with self._has_changed:
            while scheduler.is_idle and not self._added and not self._is_closing:
                self._has_changed.wait()
            while self._added:
                scheduler.add(*self._added.popleft())
            return not self._is_closing

    def _step(self, scheduler: Scheduler[Job]) -> News:
        news: News = []
        for job in scheduler.join():
            job.note_start()
            news.append((job, None))
        for job, event in scheduler.step():
            if isinstance(event, Progress):
                job.note_round(event)
            news.append((job, event))
        return news
