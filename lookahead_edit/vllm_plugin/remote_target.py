"""A running vLLM server as a target: each row is a stream of `POST /v1/completions`, closed when nobody waits for it.

The streams live on an event loop in a thread of their own; `verify` takes what has come. A chunk is one step of the
engine, unless the two fall behind: then the engine puts several into one. How many tokens were drafted for a request
the server doesn't say before its end; its own /metrics counts them.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np

from lookahead_edit.types import NO_TOKENS, Draft, EngineUnavailable, IntArray, InvalidInput, Row, Verified
from lookahead_edit.vllm_plugin.engine_target import IGNORED_SAMPLING
from lookahead_edit.vllm_plugin.front import DRAFTED_BEHIND
from lookahead_edit.vllm_plugin.wishes import Wishes, to_extra_args

CONNECT_SECONDS = 5.0
HEALTH_SECONDS = 2.0  # shorter than a probe waits
MAX_SILENT_SECONDS = 300.0  # a long prompt in a full server's queue may take so long to its first token
ANY_VOCABULARY = 2**31 - 1  # the server refuses what its model doesn't have
WAIT_SECONDS = 0.1  # in `verify`, for anything to come; then cancelled rows are looked for
MAX_WAITS = 10  # then new rows may join


@dataclass(slots=True)
class _Stream:
    """One row's answer, as far as it has come."""

    chunks: deque[IntArray] = field(default_factory=deque)
    error: Exception | None = None
    task: asyncio.Task[None] | None = None
    is_closed: bool = False


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What the server says about its first model."""

    name: str
    root: str
    max_model_len: int


class RemoteVllmTarget:
    """One server of vLLM, or a router in front of several.

    Args:
        url: such as ``http://127.0.0.1:8000``, without ``/v1``.
        model: as `served_model` gives it.
        api_key: sent as a bearer token.

    Errors: EngineUnavailable where the server is down, goes away or falls silent; InvalidInput for what it refuses.
    """

    ignored_sampling = IGNORED_SAMPLING

    def __init__(self, url: str, model: ServedModel, *, api_key: str | None = None) -> None:
        self._url = url
        self._model = model
        self._headers = _headers(api_key)
        self._wishes: dict[int, Wishes] = {}
        self._streams: dict[int, _Stream] = {}
        self._has_news = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._client: httpx.AsyncClient | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="engine streams", daemon=True)
        self._thread.start()

    @property
    def max_context_tokens(self) -> int:
        return self._model.max_model_len

    @property
    def vocab_size(self) -> int:
        return ANY_VOCABULARY

    def expect(self, key: int, wishes: Wishes) -> None:
        self._wishes[key] = wishes

    def verify(self, rows: Sequence[Row]) -> Verified:
        started = time.perf_counter()
        for row in rows:
            if row.key not in self._streams and not row.is_cancelled():
                self._open(row)
        streams = [self._streams.get(row.key) for row in rows]
        with self._has_news:
            for _ in range(MAX_WAITS):
                if self._has_news.wait_for(lambda: _have_news(streams), WAIT_SECONDS):
                    break
                if any(row.is_cancelled() for row in rows):
                    break
            tokens = [stream.chunks.popleft() if stream and stream.chunks else NO_TOKENS for stream in streams]
            errors = [
                stream.error
                for stream, taken in zip(streams, tokens, strict=True)
                if stream is not None and stream.error is not None and not len(taken)
            ]
        if errors and not any(map(len, tokens)):
            raise errors[0]
        drafts = [Draft(reason=DRAFTED_BEHIND) for _ in rows]
        return Verified(tokens=tokens, forward_seconds=time.perf_counter() - started, drafts=drafts)

    def close(self, key: int) -> None:
        self._wishes.pop(key, None)
        stream = self._streams.pop(key, None)
        if stream is not None:
            self._loop.call_soon_threadsafe(_cancel, stream)

    def stop(self) -> None:
        """Closes all streams and the thread; the target can't be used after that."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(CONNECT_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CONNECT_SECONDS)
        self._loop.close()

    async def _end(self) -> None:
        tasks = [task for task in asyncio.all_tasks(self._loop) if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()

    def _open(self, row: Row) -> None:
        stream = self._streams[row.key] = _Stream()
        body = self._body(row)

        def start() -> None:
            if not stream.is_closed:
                stream.task = self._loop.create_task(self._follow(body, stream))

        self._loop.call_soon_threadsafe(start)

    def _body(self, row: Row) -> dict[str, Any]:
        sampling = row.sampling
        return {
            "model": self._model.name,
            "prompt": row.tokens.tolist(),
            "max_tokens": self._model.max_model_len - len(row.tokens),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "repetition_penalty": sampling.repetition_penalty,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "seed": None if sampling.is_greedy else sampling.seed % 2**63,
            "ignore_eos": True,  # where an answer ends is decided in front of it
            "stream": True,
            "return_token_ids": True,
            "vllm_xargs": to_extra_args(self._wishes.get(row.key, Wishes())),
        }

    async def _follow(self, body: dict[str, Any], stream: _Stream) -> None:
        try:
            await self._read(body, stream)
            error: Exception = EngineUnavailable("the engine ended the request early")
        except httpx.TimeoutException:
            error = EngineUnavailable(f"the engine at {self._url} has fallen silent")
        except (httpx.HTTPError, httpx.StreamError) as failure:
            error = EngineUnavailable(f"the engine at {self._url} can't be reached: {_reason(failure)}")
        except (EngineUnavailable, InvalidInput) as failure:
            error = failure
        with self._has_news:
            stream.error = error
            self._has_news.notify_all()

    async def _read(self, body: dict[str, Any], stream: _Stream) -> None:
        if self._client is None:
            timeout = httpx.Timeout(MAX_SILENT_SECONDS, connect=CONNECT_SECONDS)
            limits = httpx.Limits(max_connections=None)
            self._client = httpx.AsyncClient(headers=self._headers, timeout=timeout, limits=limits, trust_env=False)
        async with self._client.stream("POST", f"{self._url}/v1/completions", json=body) as response:
            if response.status_code != 200:
                await response.aread()
                await self._require_same_model(self._client, str(body["model"]))
                raise _refusal(response)
            async for line in response.aiter_lines():
                if not line.startswith("data:") or line.endswith("[DONE]"):
                    continue
                event = json.loads(line.removeprefix("data:"))
                if "error" in event:
                    raise EngineUnavailable(f"the engine failed: {_message(event)}")
                tokens = [token for choice in event.get("choices", ()) for token in choice.get("token_ids") or ()]
                if tokens:
                    with self._has_news:
                        stream.chunks.append(np.asarray(tokens, dtype=np.int32))
                        self._has_news.notify_all()

    async def _require_same_model(self, client: httpx.AsyncClient, name: str) -> None:
        """Whether the server is another one by now, where it refuses: then no client is to blame.

        A context of another length is gone by from then on; for another model, this process has the wrong tokenizer.
        """
        try:
            response = await client.get(f"{self._url}/v1/models", timeout=CONNECT_SECONDS)
            found = _model_of(response.json())
        except (httpx.HTTPError, ValueError, KeyError, IndexError, TypeError):
            return
        if (found.name, found.root) != (name, self._model.root):
            raise EngineUnavailable(f"the engine has another model now, {found.name}: start this server anew")
        if found != self._model:
            self._model = found
            raise EngineUnavailable(f"the engine was started anew, with a context of {found.max_model_len} tokens")

    def check_health(self) -> None:
        """Raises EngineUnavailable where the server doesn't answer, or says that it can't work."""
        try:
            response = httpx.get(f"{self._url}/health", headers=self._headers, timeout=HEALTH_SECONDS, trust_env=False)
        except httpx.HTTPError as failure:
            raise EngineUnavailable(f"the engine at {self._url} can't be reached: {_reason(failure)}") from failure
        if response.status_code >= 500:
            raise EngineUnavailable(f"the engine at {self._url} answered with status {response.status_code}")


def served_model(url: str, api_key: str | None = None) -> ServedModel:
    """Asks a server which model it has. Raises EngineUnavailable where it doesn't answer as vLLM does."""
    try:
        response = httpx.get(f"{url}/v1/models", headers=_headers(api_key), timeout=CONNECT_SECONDS, trust_env=False)
        response.raise_for_status()
        return _model_of(response.json())
    except httpx.HTTPStatusError as error:
        raise EngineUnavailable(f"the engine at {url} answered with status {error.response.status_code}") from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise EngineUnavailable(f"the engine at {url} can't be reached: {_reason(error)}") from error
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise EngineUnavailable(f"what answers at {url} is no vLLM: its /v1/models has no max_model_len") from error


def speculates(url: str, api_key: str | None = None) -> bool:
    """Whether the server counts drafts, as vLLM does where it verifies any; also where it doesn't tell."""
    try:
        response = httpx.get(f"{url}/metrics", headers=_headers(api_key), timeout=CONNECT_SECONDS, trust_env=False)
    except httpx.HTTPError:
        return True
    return response.status_code != 200 or "vllm:" not in response.text or "vllm:spec_decode" in response.text


def _model_of(document: Any) -> ServedModel:
    card = document["data"][0]
    return ServedModel(str(card["id"]), str(card.get("root") or card["id"]), int(card["max_model_len"]))


def _reason(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _headers(api_key: str | None) -> dict[str, str]:
    return {} if api_key is None else {"authorization": f"Bearer {api_key}"}


def _have_news(streams: Sequence[_Stream | None]) -> bool:
    return any(stream is None or stream.chunks or stream.error for stream in streams)


def _cancel(stream: _Stream) -> None:
    stream.is_closed = True
    if stream.task is not None:
        stream.task.cancel()


def _refusal(response: httpx.Response) -> Exception:
    try:
        message = _message(response.json())
    except ValueError:
        message = f"status {response.status_code}"
    if response.status_code in (400, 422):
        return InvalidInput(f"the engine refuses the request: {message}")
    return EngineUnavailable(f"the engine answered with status {response.status_code}: {message}")


def _message(document: Any) -> str:
    error = document.get("error", document) if isinstance(document, dict) else document
    message = error.get("message", error) if isinstance(error, dict) else error
    return str(message).partition("\n")[0][:200]
