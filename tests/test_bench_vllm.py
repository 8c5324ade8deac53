"""What `bench_vllm` makes of engines: loads that keep so many requests in them, tables, goals, engines that fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.bench_vllm import EDITS, OPEN, OURS, PLAIN, Run, differing, goals_of, lines_of, table_of
from benchmarks.vllm_engines import EngineFailed, EngineProcess, EngineSettings, Load, Measured, run_load


class CountingEngine:
    """Says each prompt's tokens again, two a step; remembers how many requests it had."""

    def __init__(self) -> None:
        self._left: dict[str, list[int]] = {}
        self.num_running: list[int] = []

    def add_request(self, request_id: str, prompt: Any, params: Any) -> None:
        self._left[request_id] = list(prompt["prompt_token_ids"])

    def step(self) -> Sequence[Any]:
        self.num_running.append(len(self._left))
        outputs = []
        for name, tokens in list(self._left.items()):
            said, self._left[name] = tokens[:2], tokens[2:]
            outputs.append(
                SimpleNamespace(
                    request_id=name, outputs=[SimpleNamespace(token_ids=said)], finished=not self._left[name]
                )
            )
            if not self._left[name]:
                del self._left[name]
        return outputs


def test_a_load_keeps_its_concurrency_and_returns_outputs_in_order() -> None:
    engine = CountingEngine()
    prompts = ((1, 2, 3), (4,), (5, 6, 7, 8), (9,))
    ran = run_load(engine, Load(2, prompts, 8), None)
    assert ran.outputs == [list(prompt) for prompt in prompts]
    assert max(engine.num_running) == 2
    assert engine.num_running[:2] == [2, 2]  # the place of the short one is taken at once
    assert (ran.num_steps, ran.num_forwards) == (len(engine.num_running), 6)


def measured(seconds: float, outputs: Sequence[Sequence[int]], num_forwards: int = 4) -> Measured:
    return Measured(10, 5, num_forwards, num_forwards, seconds, 0.1, tuple(map(tuple, outputs)))


def runs(ours_seconds: float, part: str = EDITS) -> list[Run]:
    texts = [[1, 2, 3, 4], [5, 6, 7, 8]]
    return [
        Run(part, PLAIN, 4, 0, measured(2.0, texts, 8)),
        Run(part, PLAIN, 4, 1, measured(3.0, texts, 8)),
        Run(part, OURS, 4, 0, measured(ours_seconds / 2, texts)),
        Run(part, OURS, 4, 1, measured(ours_seconds / 2, texts)),
    ]


def test_rows_are_sums_over_loads_beside_those_of_no_speculation() -> None:
    plain, ours = table_of(runs(2.0))
    assert (plain["method"], plain["times_plain"], plain["tokens_per_forward"]) == (PLAIN, 1.0, 1.0)
    assert (ours["num_tokens"], ours["tokens_per_forward"], ours["tokens_per_second"]) == (16, 2.0, 8.0)
    assert (ours["times_plain"], ours["times_plain_range"]) == (2.5, [2.0, 3.0])


def test_goals_say_where_ours_is_behind() -> None:
    assert all(goals_of(table_of(runs(2.0))).values())
    slow = goals_of(table_of(runs(5.5)))
    assert [name for name, is_met in slow.items() if not is_met] == [
        "edits 4: ahead in tokens_per_second",
        "edits 4: at least 0.97 of plain",
    ]
    assert goals_of(table_of(runs(5.1, OPEN))) == {"open 4: at least 0.97 of plain": True}


def test_a_text_that_differs_is_named_with_its_first_other_token() -> None:
    other = [*runs(2.0), Run(EDITS, "ngram", 4, 1, measured(2.0, [[1, 2, 3, 4], [5, 6, 9, 8]]))]
    assert differing(other) == [
        {"part": EDITS, "concurrency": 4, "load": 1, "request": 1, "method": "ngram", "token": 2}
    ]


@pytest.mark.parametrize("as_markdown", [False, True])
def test_tables_have_a_line_for_each_row(as_markdown: bool) -> None:
    lines = list(lines_of(table_of(runs(2.0)), as_markdown=as_markdown))
    assert sum(OURS in line for line in lines) == 1
    assert len({line.count("|") for line in lines}) == 1


def _echo(connection: Connection, speculative_config: Mapping[str, Any] | None, settings: EngineSettings) -> None:
    connection.send(None)
    load = connection.recv()
    connection.send(Measured(0, 0, 1, 1, 1.0, 0.0, load.prompts))
    connection.recv()
    connection.send("ValueError: out of blocks")


def _refuse(connection: Connection, speculative_config: Mapping[str, Any] | None, settings: EngineSettings) -> None:
    connection.send("ImportError: no such method here")


def _die(connection: Connection, speculative_config: Mapping[str, Any] | None, settings: EngineSettings) -> None:
    raise SystemExit(3)


def test_an_engine_in_another_process_answers_and_its_errors_arrive() -> None:
    engine = EngineProcess(None, EngineSettings("model"), _echo)
    load = Load(1, ((1, 2),), 4)
    assert engine.measure(load).outputs == ((1, 2),)
    with pytest.raises(EngineFailed, match="out of blocks"):
        engine.measure(load)


@pytest.mark.parametrize(("serve", "message"), [(_refuse, "no such method here"), (_die, "status 3")])
def test_an_engine_that_cant_be_made_says_why(serve: Any, message: str) -> None:
    with pytest.raises(EngineFailed, match=message):
        EngineProcess(None, EngineSettings("model"), serve)
