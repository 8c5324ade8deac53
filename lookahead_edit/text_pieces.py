"""Tells which part of an answer's text came from where, while it streams. Knows no tokens and no rounds.

An answer is cleaned on its way out: fences and stop strings go, line ends become ``\\n``, and text may be held back for
a while. What is given out is therefore found again in what was decoded, in order.
"""

from __future__ import annotations

from collections.abc import Iterable

from lookahead_edit.text_lines import to_lf

NUM_COMPARED = 16  # characters that must agree to go on behind something that was left out


class LabelledText:
    """Takes decoded pieces with their labels, and cuts the cleaned text into pieces of one label each.

    Args:
        label: of text that nothing was decoded for.

    Example:
        >>> text = LabelledText("own")
        >>> text.push([("x = ", "file"), ("2", "own"), ("\\r\\n", "file")])
        >>> text.take("x = 2"), text.take("\\n")
        ([('x = ', 'file'), ('2', 'own')], [('\\n', 'file')])
    """

    def __init__(self, label: str) -> None:
        self._decoded = ""  # not given out yet, with \n for every line end
        self._labels: list[str] = []  # of each of its characters
        self._ends_in_return = False
        self._last_label = label  # of what was given out

    def push(self, pieces: Iterable[tuple[str, str]]) -> None:
        """Takes what was decoded, in order, each piece with its label."""
        for text, label in pieces:
            if not text:
                continue
            lf_text = to_lf(text[1:] if self._ends_in_return and text[0] == "\n" else text)
            self._ends_in_return = text[-1] == "\r"
            self._decoded += lf_text
            self._labels += [label] * len(lf_text)

    def take(self, given: str) -> list[tuple[str, str]]:
        """The text that is given out now, in pieces with a label each; together they are `given`.

        Text that isn't found again has the label of what came before it.
        """
        labels: list[str] = []
        place = 0
        while len(labels) < len(given):
            start = len(labels)
            num_equal = _num_equal(given, start, self._decoded, place)
            labels += self._labels[place : place + num_equal]
            place += num_equal
            if len(labels) == len(given):
                break
            found = self._decoded.find(given[len(labels) : len(labels) + NUM_COMPARED], place)
            if found >= 0:
                place = found
            else:
                labels.append(labels[-1] if labels else self._last_label)
        self._decoded, self._labels = self._decoded[place:], self._labels[place:]
        pieces: list[tuple[str, str]] = []
        for character, label in zip(given, labels, strict=True):
            if pieces and pieces[-1][1] == label:
                pieces[-1] = (pieces[-1][0] + character, label)
            else:
                pieces.append((character, label))
        if labels:
            self._last_label = labels[-1]
        return pieces


def _num_equal(given: str, start: int, decoded: str, place: int) -> int:
    length = min(len(given) - start, len(decoded) - place)
    for offset in range(length):
        if given[start + offset] != decoded[place + offset]:
            return offset
    return length
