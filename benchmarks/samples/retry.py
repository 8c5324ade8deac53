from __future__ import annotations

import random
import time
import urllib.request

ATTEMPTS = 3
TIMEOUT_SECONDS = 10


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
        return response.read()


def wait_before(attempt: int) -> float:
    base = 2**attempt
    return base + random.random()


def fetch_with_retry(url: str) -> bytes | None:
    for attempt in range(ATTEMPTS):
        try:
            return fetch(url)
        except OSError as error:
            print("attempt failed", attempt, error)
            time.sleep(wait_before(attempt))
    return None


def fetch_all(urls: list[str]) -> dict[str, bytes | None]:
    results = {}
    for url in urls:
        results[url] = fetch_with_retry(url)
    return results
