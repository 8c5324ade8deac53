"""Text to tokens and back: a wrapper for transformers' tokenizers, a streaming decoder, a byte-level fake for tests.

Knows no model. The wrapped tokenizer comes in as an object, so this module imports nothing heavy.
"""

from __future__ import annotations

import copy
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lookahead_edit.types import IntArray, InvalidInput, Tokenizer


class HfTokenizer:
    """Any tokenizer of transformers. Thread-safe: how special tokens are split is state of the tokenizer below, so that
    two threads would change it under each other. They wait for each other, until `prepare_for_threads` was called.

    Text with a lone surrogate raises InvalidInput.

    Args:
        tokenizer: a `PreTrainedTokenizer` or `PreTrainedTokenizerFast`.
        end_token_ids: tokens that end an answer; by default the tokenizer's own end-of-sequence token.
    """

    def __init__(self, tokenizer: Any, end_token_ids: frozenset[int] | None = None) -> None:
        self._tokenizer = tokenizer
        self._plain_tokenizer = tokenizer  # takes special texts for plain ones
        self._lock: AbstractContextManager[object] = threading.Lock()
        own = () if tokenizer.eos_token_id is None else (int(tokenizer.eos_token_id),)
        self._end_token_ids = frozenset(own) if end_token_ids is None else end_token_ids

    @property
    def wrapped(self) -> Any:
        """The tokenizer of transformers."""
        return self._tokenizer

    def encode(self, text: str, *, parse_special: bool = True) -> IntArray:
        if not text:
            return np.zeros(0, dtype=np.int32)
        _require_unicode(text)
        with self._lock:
            tokenizer = self._tokenizer if parse_special else self._plain_tokenizer
            encoded = tokenizer(text, add_special_tokens=False, split_special_tokens=not parse_special)
        return np.asarray(encoded["input_ids"], dtype=np.int32)

    def encode_with_offsets(self, text: str, *, parse_special: bool = True) -> tuple[IntArray, NDArray[np.int64]]:
        if not getattr(self._tokenizer, "is_fast", False):
            tokens = self.encode(text, parse_special=parse_special)
            return tokens, np.full((len(tokens), 2), -1, dtype=np.int64)
        _require_unicode(text)
        with self._lock:
            tokenizer = self._tokenizer if parse_special else self._plain_tokenizer
            encoded = tokenizer(
                text, add_special_tokens=False, return_offsets_mapping=True, split_special_tokens=not parse_special
            )
        offsets = np.asarray(encoded["offset_mapping"], dtype=np.int64).reshape(-1, 2)
        return np.asarray(encoded["input_ids"], dtype=np.int32), offsets

    def decode(self, tokens: IntArray) -> str:
        with self._lock:
            text: str = self._tokenizer.decode(
                tokens.tolist(), skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        return text

    def token_bytes(self, token: int) -> bytes | None:
        piece = self._piece(token)
        if isinstance(piece, bytes) or piece is None:  # bytes: tokenizers made after tiktoken
            return piece
        if self._bytes_of_piece is not None:
            return self._bytes_of_piece(piece)
        anchor = self.encode("a")[-1:]
        known, text = self.decode(anchor), self.decode(np.append(anchor, np.int32(token)))
        is_whole = text.startswith(known) and "\ufffd" not in text
        return text[len(known) :].encode("utf-8", "surrogatepass") if is_whole else None

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], prefill: str, tools: Sequence[Mapping[str, Any]] = ()
    ) -> str:
        if not self._tokenizer.chat_template:
            return _render_without_template(messages) + prefill
        try:
            rendered: str = self._tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tools=[dict(tool) for tool in tools] or None,
                add_generation_prompt=True,
                tokenize=False,
            )
        except RecursionError:
            raise
        except Exception as error:  # a template is a program, which refuses roles and orders in ways of its own
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise InvalidInput(
                f"expected messages that the model's chat template takes, got its refusal: {reason}", param="messages"
            ) from error
        return rendered + prefill

    @cached_property
    def start_token_ids(self) -> tuple[int, ...]:
        with self._lock:
            added = self._tokenizer("")["input_ids"]
        return tuple(added[:1]) if added and added[0] == self._tokenizer.bos_token_id else ()

    def prepare_for_threads(self) -> None:
        if not getattr(self._tokenizer, "is_fast", False):
            return
        # One for each way of splitting: none of them has its state changed any more, which is all the lock is for.
        self._plain_tokenizer = copy.deepcopy(self._tokenizer)
        for parse_special in (True, False):
            self.encode("a", parse_special=parse_special)
        self._lock = nullcontext()

    @property
    def special_texts(self) -> tuple[str, ...]:
        return tuple(added.content for added in self._tokenizer.added_tokens_decoder.values() if added.special)

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return self._end_token_ids

    def _piece(self, token: int) -> str | bytes | None:
        """How the vocabulary spells a token; None for special and unknown ones."""
        if not 0 <= token < len(self._tokenizer) or token in self._special_ids:
            return None
        piece: str | bytes | None = self._tokenizer.convert_ids_to_tokens(token)
        return piece

    @cached_property
    def _special_ids(self) -> frozenset[int]:
        added = self._tokenizer.added_tokens_decoder
        special = {token for token, content in added.items() if content.special}
        return frozenset(special | set(self._tokenizer.all_special_ids))

    @cached_property
    def _bytes_of_piece(self) -> Callable[[str], bytes] | None:
        """The vocabulary's spelling, found by trying: classes and settings that lead to one are too many to list."""
        probe = "a b\né"
        pieces = [self._piece(int(token)) for token in self.encode(probe, parse_special=False)]
        for bytes_of_piece in (_bytes_of_byte_level_piece, _bytes_of_sentencepiece_piece):
            found = b"".join(bytes_of_piece(piece) for piece in pieces if isinstance(piece, str))
            if found.removeprefix(b" ") == probe.encode():
                return bytes_of_piece
        return None


def _require_unicode(text: str) -> None:
    """Half a surrogate pair is no character: tokenizers refuse it, each in a way of its own."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"expected text that can be written as UTF-8, got the lone surrogate U+{ord(text[error.start]):04X} at "
            f"character {error.start}"
        ) from None


def _byte_level_alphabet() -> Mapping[str, int]:
    """GPT-2's: printable characters of Latin-1 stand for themselves, other bytes for those from U+0100 on, in order."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + index): byte for index, byte in enumerate(others)}


_BYTE_LEVEL_ALPHABET = _byte_level_alphabet()
_SENTENCEPIECE_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def _bytes_of_byte_level_piece(piece: str) -> bytes:
    try:
        return bytes(map(_BYTE_LEVEL_ALPHABET.__getitem__, piece))
    except KeyError:  # added to the vocabulary later, as it reads
        return piece.encode("utf-8", "surrogatepass")


def _bytes_of_sentencepiece_piece(piece: str) -> bytes:
    byte = _SENTENCEPIECE_BYTE.fullmatch(piece)
    return bytes.fromhex(byte[1]) if byte else piece.replace("▁", " ").encode("utf-8", "surrogatepass")


def _render_without_template(messages: Sequence[Mapping[str, Any]]) -> str:
    """Base models know no roles: the contents one after the other read best to them."""
    return "".join(f"{message['content']}\n\n" for message in messages)


# Text that is still incomplete then is broken; decoding it again and again would take ever longer.
MAX_WAITING_TOKENS = 64
MAX_KNOWN_PAIRS = 1 << 16  # some 10 MB


class TextDecoder:
    """Turns tokens into text as they come; what ends inside a UTF-8 sequence waits for the rest.

    A token is decoded together with the ones before it, as some tokenizers drop the blank in front of a first token.

    Args:
        decode: tokens to text.
        last_token: the prompt's, where the text goes on from there: else a first blank, as of indentation, is lost.
        known_pairs: what a token adds behind another one, filled here. Decoders of one tokenizer, in any threads, may
            share it: decoding a token takes 7 µs, and most of a rewritten file has been decoded before.
    """

    def __init__(
        self,
        decode: Callable[[IntArray], str],
        last_token: int | None = None,
        known_pairs: dict[tuple[int, int], str] | None = None,
    ) -> None:
        self._decode = decode
        self._known_pairs = {} if known_pairs is None else known_pairs
        self._texts_alone: dict[int, str] = {}  # of single tokens: decoding takes longer than anything else here
        self._window: list[int] = [] if last_token is None else [last_token]
        self._num_read = len(self._window)  # tokens of the window whose text was given out
        known, _ = self._texts()
        if not known or known.endswith("\ufffd"):  # a special token, or a part of a character
            self._window, self._num_read = [], 0

    def push(self, token: int) -> str:
        """The text that this token completes, possibly none."""
        pair = (self._window[0], token) if len(self._window) == self._num_read == 1 else None
        if pair is not None and (known_text := self._known_pairs.get(pair)) is not None:
            self._window = [token]
            return known_text
        self._window.append(token)
        known, text = self._texts()
        num_waiting = len(self._window) - self._num_read
        if (text.endswith("\ufffd") or len(text) < len(known)) and num_waiting < MAX_WAITING_TOKENS:
            return ""
        self._window = self._window[self._num_read :]
        self._num_read = len(self._window)
        if pair is not None:
            if len(self._known_pairs) >= MAX_KNOWN_PAIRS:
                self._known_pairs.clear()
            self._known_pairs[pair] = text[len(known) :]
        return text[len(known) :]

    def finish(self) -> str:
        """What still waits, with U+FFFD for what never came."""
        known, text = self._texts()
        self._num_read = len(self._window)
        return text[len(known) :]

    def _texts(self) -> tuple[str, str]:
        tokens = np.asarray(self._window, dtype=np.int32)
        if self._num_read != 1:
            return self._decode(tokens[: self._num_read]), self._decode(tokens)
        known = self._texts_alone.get(self._window[0])
        if known is None:
            known = self._texts_alone[self._window[0]] = self._decode(tokens[:1])
        return known, self._decode(tokens)


class ByteTokenizer:
    """One token a byte, and ChatML's two markers; the fake beside `HfTokenizer`.

    Example:
        >>> ByteTokenizer().encode("é<|im_end|>").tolist()
        [195, 169, 257]
    """

    SPECIAL_TOKENS: ClassVar[Mapping[str, int]] = {"<|im_start|>": 256, "<|im_end|>": 257}
    vocab_size = 258

    def encode(self, text: str, *, parse_special: bool = True) -> IntArray:
        return self._encode(text, parse_special)[0]

    def encode_with_offsets(self, text: str, *, parse_special: bool = True) -> tuple[IntArray, NDArray[np.int64]]:
        return self._encode(text, parse_special)

    def decode(self, tokens: IntArray) -> str:
        return bytes(int(token) for token in tokens if token < 256).decode("utf-8", errors="replace")

    def token_bytes(self, token: int) -> bytes | None:
        return bytes((token,)) if 0 <= token < 256 else None

    def render_chat(
        self, messages: Sequence[Mapping[str, Any]], prefill: str, tools: Sequence[Mapping[str, Any]] = ()
    ) -> str:
        turns = "".join(f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in messages)
        return turns + "<|im_start|>assistant\n" + prefill

    @property
    def start_token_ids(self) -> tuple[int, ...]:
        return ()

    def prepare_for_threads(self) -> None:
        pass

    @property
    def special_texts(self) -> tuple[str, ...]:
        return tuple(self.SPECIAL_TOKENS)

    @property
    def eos_token_ids(self) -> frozenset[int]:
        return frozenset({self.SPECIAL_TOKENS["<|im_end|>"]})

    def _encode(self, text: str, parse_special: bool) -> tuple[IntArray, NDArray[np.int64]]:
        pattern = "|".join(map(re.escape, self.SPECIAL_TOKENS)) + "|" if parse_special else ""
        tokens: list[int] = []
        offsets: list[tuple[int, int]] = []
        for match in re.finditer(f"{pattern}.", text, re.DOTALL):
            special = self.SPECIAL_TOKENS.get(match.group())
            values = [special] if special is not None else list(match.group().encode("utf-8", "surrogatepass"))
            tokens.extend(values)
            offsets.extend([match.span()] * len(values))
        return np.asarray(tokens, dtype=np.int32), np.asarray(offsets, dtype=np.int64).reshape(-1, 2)


def special_token_names(tokenizer: Tokenizer) -> dict[int, str]:
    """Token id -> the text that stands for it, of the special tokens that have one."""
    names = {}
    for text in tokenizer.special_texts:
        special = [token for token in map(int, tokenizer.encode(text)) if tokenizer.token_bytes(token) is None]
        if len(special) == 1:
            names[special[0]] = text
    return names
