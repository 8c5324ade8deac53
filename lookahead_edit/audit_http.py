"""Audits a server over HTTP: the same requests with drafts and without, which must have the same texts.

Over HTTP there are no logits, so a difference can't be told from a tie; the model has to be audited where it runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from lookahead_edit.config import SamplingConfig
from lookahead_edit.tasks import EditRequest, GenerateRequest
from lookahead_edit.types import EngineUnavailable, InvalidInput

SECONDS = 600.0
NUM_SHOWN_CHARACTERS = 24

Post = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
"""(path, JSON body) -> JSON answer."""


@dataclass(frozen=True, slots=True)
class TextDifference:
    """Where two texts part."""

    prompt: str
    offset: int  # characters
    expected: str  # what follows there, in part
    got: str


@dataclass(slots=True)
class ServerReport:
    """What came of it."""

    url: str
    model: str = ""
    num_texts: int = 0
    num_tokens: int = 0  # of the texts without drafts
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_plain_draft_tokens: int = 0  # where none were wanted
    differences: list[TextDifference] = field(default_factory=list)

    @property
    def is_bug(self) -> bool:
        return bool(self.differences or self.num_plain_draft_tokens)

    @property
    def verdict(self) -> str:
        """In words."""
        if self.num_plain_draft_tokens:
            return "BUG: the server drafted although it was told not to, so there is nothing to compare to"
        if self.differences:
            first = self.differences[0]
            return (
                f"{len(self.differences)} of {self.num_texts} texts differ, first {first.prompt} at character "
                f"{first.offset}: {first.expected!r} without drafts, {first.got!r} with them. A server tells no "
                "logits: audit its model with --model to tell a tie from a bug"
            )
        if not self.num_draft_tokens:
            return "nothing was compared: the server drafted nothing"
        return "no bug, and not one character differs"

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "url": self.url,
            "model": self.model,
            "texts": self.num_texts,
            "tokens": self.num_tokens,
            "draft_tokens": self.num_draft_tokens,
            "accepted_tokens": self.num_accepted_tokens,
            "differences": [
                {name: getattr(difference, name) for name in TextDifference.__dataclass_fields__}
                for difference in self.differences
            ],
            "bug": self.is_bug,
            "verdict": self.verdict,
        }


def audit_server(
    post: Post,
    requests: Iterable[tuple[str, EditRequest | GenerateRequest]],
    *,
    url: str,
    drafter: str,
    max_tokens: int,
    sampling: SamplingConfig,
    on_progress: Callable[[ServerReport], None] = lambda report: None,
) -> ServerReport:
    """Asks for each named request twice, without drafts and with those of `drafter`."""
    report = ServerReport(url)
    for name, request in requests:
        path, body = _body(request, max_tokens, sampling)
        plain = _Answer(post(path, body | {"speculation": {"enabled": False}}))
        drafted = _Answer(post(path, body | {"speculation": {"enabled": True, "drafter": drafter}}))
        report.model = plain.model
        report.num_texts += 1
        report.num_tokens += plain.num_tokens
        report.num_plain_draft_tokens += plain.num_draft_tokens
        report.num_draft_tokens += drafted.num_draft_tokens
        report.num_accepted_tokens += drafted.num_accepted_tokens
        if plain.text != drafted.text:
            report.differences.append(_difference(name, plain.text, drafted.text))
        on_progress(report)
    return report


def poster(url: str, api_key: str | None = None) -> Post:
    """Posts to a server of ours.

    Raises:
        InvalidInput: not an address, or the server refuses the request.
        EngineUnavailable: nobody answers there, or something that is no server of ours.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InvalidInput(f"expected an address like http://localhost:8000, got {url!r}", param="url")
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {api_key}"} if api_key else {})

    def post(path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        address = url.rstrip("/").removesuffix("/v1") + path
        request = Request(address, json.dumps(body).encode(), headers)
        try:
            with urlopen(request, timeout=SECONDS) as answer:
                document = json.load(answer)
        except HTTPError as error:
            raise InvalidInput(f"{address} refused the request: {_message(error)}", param="url") from None
        except (URLError, HTTPException, OSError, ValueError) as error:
            raise EngineUnavailable(f"no usable answer from {address}: {error}") from None
        if not isinstance(document, dict) or not document.get("choices"):
            raise EngineUnavailable(f"no usable answer from {address}: expected an object with choices")
        return document

    return post


class _Answer:
    def __init__(self, document: Mapping[str, Any]) -> None:
        drafts = (document.get("metrics") or {}).get("speculative_decoding") or {}
        self.model = str(document.get("model", ""))
        self.text = str(document["choices"][0].get("text") or "")
        self.num_tokens = int((document.get("usage") or {}).get("completion_tokens") or 0)
        self.num_draft_tokens = int(drafts.get("num_draft_tokens") or 0)
        self.num_accepted_tokens = int(drafts.get("num_accepted_draft_tokens") or 0)


def _body(
    request: EditRequest | GenerateRequest, max_tokens: int, sampling: SamplingConfig
) -> tuple[str, dict[str, Any]]:
    body: dict[str, Any] = {"max_tokens": max_tokens, "temperature": sampling.temperature, "seed": sampling.seed}
    if isinstance(request, EditRequest):
        fields = {"input": request.text, "instruction": request.instruction, "path": request.path}
        return "/v1/edits", body | fields
    return "/v1/completions", body | {"prompt": request.prompt, "prediction": request.prediction}


def _difference(name: str, expected: str, got: str) -> TextDifference:
    length = min(len(expected), len(got))
    offset = next((index for index in range(length) if expected[index] != got[index]), length)
    shown = slice(offset, offset + NUM_SHOWN_CHARACTERS)
    return TextDifference(name, offset, expected[shown], got[shown])


def _message(error: HTTPError) -> str:
    try:
        return str(json.load(error)["error"]["message"])
    except (ValueError, KeyError, TypeError, OSError):
        return f"status {error.code}"
