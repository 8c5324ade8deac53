import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable


class RateLimitExceeded(Exception):
    def __init__(self, key, retry_after):
        super().__init__(f"rate limit exceeded for {key}")
        self.key = key
        self.retry_after = retry_after


class SlidingWindow:
    def __init__(self, limit, seconds, clock=time.monotonic):
        self.limit = limit
        self.seconds = seconds
        self.clock = clock
        self.hits = {}

    def hit(self, key):
        now = self.clock()
        window = self.hits.setdefault(key, deque())
        while window and window[0] <= now - self.seconds:
            window.popleft()
        if len(window) >= self.limit:
            raise RateLimitExceeded(key, window[0] + self.seconds - now)
        window.append(now)

    def remaining(self, key):
        now = self.clock()
        window = self.hits.get(key, deque())
        alive = [stamp for stamp in window if stamp > now - self.seconds]
        return self.limit - len(alive)

    def reset(self, key):
        self.hits.pop(key, None)


async def call_with_limit(
    limiter: SlidingWindow,
    key: str,
    call: Callable[[], Awaitable[object]],
    attempts: int = 3,
):
    for attempt in range(attempts):
        try:
            limiter.hit(key)
        except RateLimitExceeded as error:
            if attempt == attempts - 1:
                raise
            await asyncio.sleep(error.retry_after)
            continue
        return await call()
