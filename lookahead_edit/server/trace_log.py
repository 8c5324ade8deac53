"""What was asked and answered, as traces that `lookahead-edit replay` reads. Off unless the operator names a file."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

from lookahead_edit.drafters.vocabulary import Vocabulary
from lookahead_edit.scheduler import AnyLiveRequest
from lookahead_edit.tokenizer import special_token_names
from lookahead_edit.traces import Trace, format_trace
from lookahead_edit.types import ContextFile, IntArray, InvalidInput, SourceKind, Tokenizer

logger = logging.getLogger(__name__)

MODE = 0o600  # prompts are nobody else's business


class TraceLog:
    """Appends a line for each answered request; threads may share it.

    A line that can't be written ends the log with one line on the server's own, and no request: traces are for later.

    Args:
        path: made if it isn't there, readable by its owner alone.
        max_bytes: of the file; where it would grow beyond that, nothing more is written.

    Raises:
        InvalidInput: the file can't be opened.
    """

    def __init__(self, path: str, max_bytes: int) -> None:
        self._path = Path(path)
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._is_open = True
        self._texts: TokenTexts | None = None  # of the tokenizer, once it is known
        try:
            os.close(self._open())
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "not a file name"
            raise InvalidInput(f"can't write {path}: {reason}", param="trace_log", code="unwritable_file") from None

    def add(self, name: str, live: AnyLiveRequest, tokenizer: Tokenizer) -> None:
        """The trace of a request that is finished, under this name."""
        if not self._is_open or not len(live.sequence.output):
            return
        if self._texts is None:
            self._texts = TokenTexts(tokenizer)
        try:
            line = format_trace(trace_of(name, live, self._texts, tokenizer.eos_token_ids))
        except InvalidInput as error:  # an answer without text, or a text that a trace can't hold
            logger.debug("no trace of %s: %s", name, error)
            return
        with self._lock:
            if self._is_open:
                self._write(line)

    def _write(self, line: bytes) -> None:
        try:
            descriptor = self._open()
            try:
                if os.fstat(descriptor).st_size + len(line) > self._max_bytes:
                    self._is_open = False
                    logger.warning("%s has reached %d bytes: no more traces", self._path, self._max_bytes)
                    return
                while line:  # opened anew for each, so that it may be moved away meanwhile
                    line = line[os.write(descriptor, line) :]
            finally:
                os.close(descriptor)
        except OSError as error:
            self._is_open = False
            logger.warning("can't write %s, no more traces: %s", self._path, error.strerror)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), MODE)


def trace_of(name: str, live: AnyLiveRequest, texts: TokenTexts, end_token_ids: frozenset[int]) -> Trace:
    """The prompt as the model read it, markers included, and the answer as it was written, without its end token."""
    sequence = live.sequence
    output = sequence.output
    if int(output[-1]) in end_token_ids:
        output = output[:-1]
    file = next((source for source in live.sources if source.prompt_start is not None), None)
    prediction = next((source for source in live.sources if source.kind == SourceKind.PREDICTION), None)
    others = [source for source in live.sources if source is not file and source is not prediction]
    return Trace(
        name,
        texts.of(sequence.tokens[: sequence.num_prompt_tokens]),
        texts.of(output),
        None if file is None else texts.of(file.tokens),
        tuple(ContextFile(source.path or source.kind.label, texts.of(source.tokens)) for source in others),
        None if prediction is None else texts.of(prediction.tokens),
    )


class TokenTexts:
    """Texts of tokens with special ones spelled out, as `Tokenizer.encode` reads them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._vocabulary = Vocabulary(tokenizer)
        self._special = {token: text.encode() for token, text in special_token_names(tokenizer).items()}

    def of(self, tokens: IntArray) -> str:
        """Of int32[num_tokens]; what has no text is left out."""
        parts = (self._special.get(token) or self._vocabulary.token_bytes(token) or b"" for token in tokens.tolist())
        return b"".join(parts).decode("utf-8", "replace")
