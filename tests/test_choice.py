"""Which of the candidates is drafted, how far, and with which probabilities: against slow twins, and made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lookahead_edit.cost import CostCurve, run_costs
from lookahead_edit.kernels import acceptance, alignment, choice
from lookahead_edit.kernels import candidates as kernels
from lookahead_edit.kernels.candidates import IN_PREDICTED, IN_TEXT, IN_WORKSPACE
from tests import naive

NEWLINE = 0  # the token that ends a line here
EVEN_ODDS = (  # columns, thresholds and leaves of a tree that is a single leaf
    np.zeros((1, 0), dtype=np.uint8),
    np.zeros((1, 0), dtype=np.float32),
    np.zeros((1, 1), dtype=np.float32),
)


def array_of(tokens: Sequence[int]) -> NDArray[np.int32]:
    return np.array(tokens, dtype=np.int32)


def classes_of(tokens: Sequence[int]) -> NDArray[np.int8]:
    return np.array([0 if token == NEWLINE else 2 for token in tokens], dtype=np.int8)


def test_copies_end_at_the_border_of_their_source() -> None:
    tokens, classes = np.zeros(6, dtype=np.int32), np.zeros(6, dtype=np.int8)

    def copied(array: int, position: int) -> list[int]:
        candidates = np.array([[0, array, position, 0]], dtype=np.int64)
        text, predicted, workspace = array_of([1, 2, -1, 3, 4, 5]), array_of([6, 7, 8]), array_of([9, NEWLINE, -1, 9])
        count = choice.copy_candidate(
            candidates,
            0,
            text,
            len(text),
            classes_of(text.tolist()),
            predicted,
            classes_of(predicted.tolist()),
            len(predicted),
            workspace,
            classes_of(workspace.tolist()),
            tokens,
            classes,
        )
        assert classes[:count].tolist() == classes_of(tokens[:count].tolist()).tolist()
        return tokens[:count].tolist()

    assert copied(IN_PREDICTED, 1) == [7, 8]
    assert copied(IN_TEXT, 0) == [1, 2]
    assert copied(IN_TEXT, 4) == [4, 5, 4, 5, 4, 5]  # what repeats itself may go on doing so
    assert copied(IN_TEXT, 5) == [5] * 6
    assert copied(IN_WORKSPACE, 0) == [9, NEWLINE]
    assert copied(IN_WORKSPACE, 1) == [NEWLINE]
    assert copied(IN_WORKSPACE, 3) == [9]  # not past the end of the array


def tail_of(odds_by_type: dict[int, float]) -> NDArray[np.float64]:
    """Odds of the later tokens, by the candidate's type alone; given are their logarithms."""
    table = np.zeros(acceptance.NUM_TAIL_ENTRIES)
    by_type = table[: acceptance.NUM_TYPES * acceptance.NUM_EVIDENCE_BINS].reshape(acceptance.NUM_TYPES, -1)
    for kind, log_odds in odds_by_type.items():
        by_type[kind] = log_odds
    return np.exp(table)


def chosen(
    rows: list[tuple[int, int, int, int]],
    text: list[int],
    predicted: list[int],
    tail: dict[int, float],
    firsts: dict[int, float] | None = None,
    factors: list[float] | None = None,
    num_strange_tokens: int = 0,
    type_odds: dict[int, float] | None = None,
) -> tuple[int | None, list[int], list[float]]:
    """(type, tokens, probabilities) of what is drafted; `firsts` are log odds of the first token, by type.

    So many tokens were written that were not the file's.
    """
    candidates = np.zeros((kernels.MAX_CANDIDATES, 4), dtype=np.int64)
    features = np.zeros((kernels.MAX_CANDIDATES, kernels.NUM_FEATURES), dtype=np.float32)
    for index, row in enumerate(rows):
        candidates[index] = row
        features[index, 0] = row[0]
    trees: tuple[Any, ...] = EVEN_ODDS
    if firsts is not None:
        (low, low_odds), (_, high_odds) = sorted(firsts.items())
        trees = (
            np.zeros((1, 1), dtype=np.uint8),
            np.array([[low]], dtype=np.float32),
            np.array([[low_odds, high_odds]], dtype=np.float32),
        )
    state = np.zeros(alignment.NUM_FIELDS, dtype=np.int64)
    alignment.reset(state)
    state[alignment.NUM_LEAD_TOKENS] = 1
    state[alignment.NUM_EMITTED_TOKENS] = num_strange_tokens
    costs = CostCurve.linear(0.01).values(1, 128)
    tokens, classes = np.zeros(64, dtype=np.int32), np.zeros(64, dtype=np.int8)
    probabilities = np.zeros(64, dtype=np.float32)
    best, count, first = choice.choose(
        len(rows),
        candidates,
        features,
        array_of(text),
        len(text),
        classes_of(text),
        array_of(predicted),
        classes_of(predicted),
        np.ones(len(predicted), dtype=np.float32) if factors is None else np.array(factors, dtype=np.float32),
        len(predicted),
        array_of([]),
        classes_of([]),
        state,
        1.0,
        *trees,
        tail_of(tail),
        np.array([(type_odds or {}).get(kind, 1.0) for kind in range(kernels.NUM_CANDIDATE_TYPES)]),
        costs,
        run_costs(costs),
        tokens,
        classes,
        probabilities,
    )
    if best == alignment.NONE:
        assert count == 0
        assert 0.0 < first < 1.0
        return None, [], []
    assert first == pytest.approx(probabilities[0] / (1.0 if factors is None else factors[int(candidates[best, 2])]))
    return int(candidates[best, 0]), tokens[:count].tolist(), probabilities[:count].tolist()


FILE = list(range(10, 40))


def test_of_candidates_with_one_first_token_the_one_that_goes_further_is_drafted() -> None:
    text = [*FILE[:5], 99, 98, 97]
    cursor, recent = (kernels.AT_CURSOR, IN_PREDICTED, 0, 9), (kernels.MOST_RECENT, IN_TEXT, 0, 3)
    tail = {kernels.AT_CURSOR: 3.0, kernels.MOST_RECENT: 1.0}
    for rows in ([cursor, recent], [recent, cursor]):
        kind, tokens, probabilities = chosen(rows, text, FILE, tail)
        assert (kind, tokens) == (kernels.AT_CURSOR, FILE)
        assert probabilities == sorted(probabilities, reverse=True)


def test_one_first_token_has_one_probability_the_highest() -> None:
    text = [*FILE[:5], 99]
    rows = [(kernels.AT_CURSOR, IN_PREDICTED, 0, 9), (kernels.MOST_RECENT, IN_TEXT, 0, 3)]
    tail = {kernels.AT_CURSOR: 3.0, kernels.MOST_RECENT: 1.0}
    kind, _, probabilities = chosen(rows, text, FILE, tail, {kernels.AT_CURSOR: -1.0, kernels.MOST_RECENT: 2.0})
    assert kind == kernels.AT_CURSOR  # for how far it goes, not for its own first token
    assert probabilities[0] == pytest.approx(1 / (1 + np.exp(-2.0)))


def saved(probabilities: list[float]) -> float:
    """What the best length of such a draft saves, by the slow twin of the cost rule."""
    costs = CostCurve.linear(0.01).values(1, 128)
    nodes = [2.0**octave * (1 + step / 8) for octave in range(13) for step in range(8)] + [2.0**13]
    table = run_costs(costs)
    if not probabilities:
        return 0.0
    found = naive.draft_costs(probabilities, costs.tolist(), lambda mean: float(np.interp(1 + mean, nodes, table)))
    return found[0] - min(found)


def test_of_different_first_tokens_the_one_that_saves_more_is_drafted() -> None:
    generator = np.random.default_rng(3)
    rows = [(kernels.AT_CURSOR, IN_PREDICTED, 0, 9), (kernels.MOST_RECENT, IN_TEXT, 0, 3)]
    kinds, likelier_ones = set(), set()
    for _ in range(30):
        firsts, tail = ({row[0]: float(generator.normal(1.5, 1.5)) for row in rows} for _ in range(2))
        alone = [chosen([row], [50, 51, 52, 53], FILE, tail, firsts) for row in rows]
        gains = [saved(probabilities) for _, _, probabilities in alone]
        if abs(gains[0] - gains[1]) < 1e-3:
            continue
        kind, tokens, probabilities = chosen(rows, [50, 51, 52, 53], FILE, tail, firsts)
        assert (kind, tokens, probabilities) == alone[gains.index(max(gains))]
        kinds.add(kind)
        likelier_ones.add(probabilities[:1] == max(part[:1] for _, _, part in alone))
    assert (kinds, likelier_ones) == ({kernels.AT_CURSOR, kernels.MOST_RECENT}, {False, True})


def test_what_saves_nothing_is_not_drafted() -> None:
    rows = [(kernels.AT_CURSOR, IN_PREDICTED, 0, 0)]
    hopeless = {kernels.AT_CURSOR: -9.0, kernels.MOST_RECENT: -9.0}
    assert chosen(rows, [50], FILE, {}, hopeless)[0] is None


def test_equal_candidates_are_one() -> None:
    rows = [(kernels.MOST_RECENT, IN_TEXT, 0, 3)] * 3
    assert chosen(rows, [50, 51], [], {})[1][:3] == [50, 51, 50]


def test_trust_in_replaced_words_lowers_what_follows_them() -> None:
    rows = [(kernels.AT_CURSOR, IN_PREDICTED, 0, 9)]
    tail = {kernels.AT_CURSOR: 4.0}
    factors = [1.0] * len(FILE)
    _, _, plain = chosen(rows, [50], FILE, tail)
    factors[3] = 0.5
    _, _, lowered = chosen(rows, [50], FILE, tail, factors=factors)
    assert lowered[:3] == plain[:3]
    assert lowered[3:] == pytest.approx([0.5 * probability for probability in plain[3:]])


def test_what_is_hopeless_after_many_replaced_words_is_cut() -> None:
    rows = [(kernels.AT_CURSOR, IN_PREDICTED, 0, 9)]
    _, tokens, probabilities = chosen(rows, [50], FILE, {kernels.AT_CURSOR: 4.0}, factors=[0.5] * len(FILE))
    assert 1 <= len(tokens) < len(FILE)
    assert probabilities[-1] >= acceptance.MIN_PROBABILITY


@pytest.mark.parametrize("num_file_tokens", [1, 31, 32, 33, 60])
@pytest.mark.parametrize("log_odds", [2.0, 4.0])
def test_what_was_weighed_is_what_is_drafted_whatever_its_length(num_file_tokens: int, log_odds: float) -> None:
    """Candidates are weighed by their first tokens alone; the rest of the winner has to go on from there."""
    assert choice.NUM_WEIGHED_TOKENS == 32
    file = list(range(10, 10 + num_file_tokens))
    _, tokens, probabilities = chosen(
        [(kernels.AT_CURSOR, IN_PREDICTED, 0, 9)], [5], file, {kernels.AT_CURSOR: log_odds}
    )
    entries, found = np.zeros(8, dtype=np.int32), np.zeros(num_file_tokens, dtype=np.float32)
    count = acceptance.fill_probabilities(
        kernels.AT_CURSOR,
        True,
        9,
        0.5,
        classes_of(file),
        acceptance.rate_bin(0, 0),
        1.0,
        tail_of({kernels.AT_CURSOR: log_odds}),
        entries,
        0,
        found,
    )
    assert tokens == file[:count]
    assert probabilities == pytest.approx(found[:count].tolist(), rel=1e-6)  # both are float32
    assert (count < num_file_tokens) == (log_odds == 2.0 and num_file_tokens == 60)


def test_a_loser_that_is_copied_for_longer_leaves_nothing_of_it_in_the_draft() -> None:
    text = [50, 51, 52, NEWLINE, 53, 54]
    short, long = (kernels.AT_CURSOR, IN_PREDICTED, 27, 9), (kernels.MOST_RECENT, IN_TEXT, 0, 3)
    tail, firsts = (
        {kernels.AT_CURSOR: 4.0, kernels.MOST_RECENT: 4.0},
        {kernels.AT_CURSOR: 3.0, kernels.MOST_RECENT: -3.0},
    )
    alone = chosen([short], text, FILE, tail, firsts)
    assert alone[:2] == (kernels.AT_CURSOR, FILE[27:])
    for rows in ([short, long], [long, short]):
        assert chosen(rows, text, FILE, tail, firsts) == alone


def test_where_the_output_follows_no_file_what_is_elsewhere_has_rows_of_its_own() -> None:
    elsewhere, followed = (kernels.MOST_RECENT, IN_TEXT, 0, 3), (kernels.AT_CURSOR, IN_PREDICTED, 0, 9)
    tail = {
        kernels.MOST_RECENT: 1.0,
        kernels.MOST_RECENT + acceptance.NUM_CURSOR_LESS_TYPES: 3.0,
        kernels.AT_CURSOR: 2.0,
    }
    text = list(range(50, 90))

    def second(row: tuple[int, int, int, int], predicted: list[int], num_strange_tokens: int) -> float:
        return chosen([row], text, predicted, tail, num_strange_tokens=num_strange_tokens)[2][1]

    likelier, less_likely = (0.5 / (1 + np.exp(-log_odds)) for log_odds in (3.0, 1.0))
    assert second(elsewhere, FILE, 0) == pytest.approx(less_likely)
    assert second(elsewhere, FILE, 48) == pytest.approx(less_likely)
    assert second(elsewhere, FILE, 49) == pytest.approx(likelier)
    assert second(elsewhere, [], 0) == pytest.approx(likelier)
    assert second(followed, FILE, 0) == second(followed, FILE, 1000) == pytest.approx(0.5 / (1 + np.exp(-2.0)))
