"""Streams plain text up to the first stop string; nothing of a stop string is ever given out."""

from __future__ import annotations

from collections.abc import Sequence

from lookahead_edit.text_answer import find_stop, held_back_length


class PlainStream:
    """Takes text piece by piece and gives out what is certain.

    Example:
        >>> stream = PlainStream(["END"])
        >>> stream.push("one E"), stream.push("ND two"), stream.text
        ('one ', '', 'one ')
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self._given: list[str] = []
        self.is_finished = False

    @property
    def text(self) -> str:
        """What was given out so far."""
        return "".join(self._given)

    def push(self, text: str) -> str:
        """Takes the next piece and returns what can be given out, possibly nothing."""
        if self.is_finished:
            return ""
        self._held += text
        stop = find_stop(self._held, self._stops)
        if stop is not None:
            self._held = self._held[:stop]
            return self.finish()
        num_ready = len(self._held) - held_back_length(self._held, self._stops)
        ready, self._held = self._held[:num_ready], self._held[num_ready:]
        self._given.append(ready)
        return ready

    def finish(self) -> str:
        """The text is over: returns what was held back."""
        rest, self._held = self._held, ""
        self.is_finished = True
        self._given.append(rest)
        return rest
