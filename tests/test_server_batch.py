"""Over a real socket, several requests at a time: who gets a place, and that none hurts another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from scripted_editor import ScriptedEditor
from server_harness import counter, events, on_socket, raw_post, wait_until

from lookahead_edit.config import DEFAULT_ROUTES, RouteConfig

Send = Callable[..., "Future[httpx.Response]"]

ROUTES = (RouteConfig("urgent", priority=1), RouteConfig("night", priority=-1), *DEFAULT_ROUTES)


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[ScriptedEditor, httpx.Client]]:
    editor = ScriptedEditor()
    with on_socket(editor, max_batch_size=3, max_queued_requests=8, routes=ROUTES) as client:
        yield editor, client


@pytest.fixture
def editor(shared: tuple[ScriptedEditor, httpx.Client]) -> Iterator[ScriptedEditor]:
    editor, client = shared
    editor.reset()
    yield editor
    editor.release()
    wait_until(lambda: num_open(client) == 0)


@pytest.fixture
def client(shared: tuple[ScriptedEditor, httpx.Client], editor: ScriptedEditor) -> httpx.Client:
    return shared[1]


@pytest.fixture
def send(client: httpx.Client) -> Iterator[Send]:
    """Posts an edit in the background; `key` is who sends it."""
    with ThreadPoolExecutor(24) as pool:

        def send(instruction: str, key: str = "", route: str = "", **fields: Any) -> Future[httpx.Response]:
            headers = {"authorization": f"Bearer {key}"} if key else {}
            if route:
                headers["x-lookahead-route"] = route
            if "request_id" in fields:
                headers["x-request-id"] = fields.pop("request_id")
            body = {"input": "banana banana", "instruction": instruction, **fields}
            return pool.submit(client.post, "/v1/edits", json=body, headers=headers)

        yield send


def num_open(client: httpx.Client) -> float:
    return counter(client, "num_requests_running") + counter(client, "num_requests_waiting")


def wait_for_queue(client: httpx.Client, running: int, waiting: int) -> None:
    wait_until(
        lambda: (
            counter(client, "num_requests_running") == running and counter(client, "num_requests_waiting") == waiting
        )
    )


def fill(send: Send, client: httpx.Client, key: str = "") -> list[Future[httpx.Response]]:
    """Takes every place until `release`."""
    held = [send(f"hold {number}", key) for number in range(3)]
    wait_for_queue(client, 3, 0)
    return held


def code(response: httpx.Response) -> str:
    return str(response.json()["error"]["code"])


# Together.


def test_requests_run_together_and_a_short_one_overtakes(
    client: httpx.Client, editor: ScriptedEditor, send: Send
) -> None:
    held = [send("hold a"), send("hold b")]
    wait_for_queue(client, 2, 0)
    assert send("go").result().status_code == 200
    assert editor.log[-2:] == ["start go", "finish go"]
    editor.release()
    assert [request.result().json()["choices"][0]["text"] for request in held] == ["bbnbnb bbnbnb"] * 2


def test_more_requests_than_places_wait_and_more_than_that_are_refused(
    client: httpx.Client, editor: ScriptedEditor, send: Send
) -> None:
    held = fill(send, client)
    queued = [send("go") for _ in range(8)]
    wait_for_queue(client, 3, 8)
    refused = send("go").result()
    assert (refused.status_code, code(refused)) == (429, "queue_full")
    editor.release()
    assert {request.result().status_code for request in [*held, *queued]} == {200}
    assert send("go").result().status_code == 200


def test_time_in_the_queue_is_told(client: httpx.Client, editor: ScriptedEditor, send: Send) -> None:
    held = fill(send, client)
    queued = send("go")
    wait_for_queue(client, 3, 1)
    editor.release()
    times = [request.result().json()["metrics"]["queue_time_ms"] for request in (held[0], queued)]
    assert 0 <= times[0] < times[1]


# None hurts another.


@pytest.mark.parametrize("instruction", ["hold me", "pause me", "slow me"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_cancel_or_a_client_that_leaves_hurts_no_other(
    client: httpx.Client, editor: ScriptedEditor, send: Send, instruction: str, stream: bool
) -> None:
    others = [send("hold other"), send("pause other")]
    wait_for_queue(client, 2, 0)
    text = "banana" * 20
    connection = raw_post(client, {"input": text, "instruction": instruction, "stream": stream})
    editor.wait_for(f"start {instruction}")
    connection.close()
    editor.wait_for(f"cancelled {instruction}")
    wait_for_queue(client, 2, 0)
    cancelled = send(instruction, request_id="mine", input=text)
    wait_for_queue(client, 3, 0)
    assert client.post("/v1/requests/mine/cancel").json() == {"cancelled": True}
    assert code(cancelled.result()) == "request_cancelled"
    assert not [entry for entry in editor.log if "cancelled" in entry and "other" in entry]
    editor.release()
    assert {other.result().json()["choices"][0]["text"] for other in others} == {"bbnbnb bbnbnb"}


@pytest.mark.parametrize("instruction", ["fail", "empty", "crash"])
def test_a_request_that_fails_ends_alone(
    client: httpx.Client, editor: ScriptedEditor, send: Send, instruction: str, caplog: pytest.LogCaptureFixture
) -> None:
    others = [send("pause other"), send("slow other", input="banana" * 5)]
    wait_for_queue(client, 2, 0)
    failed = send(instruction, request_id="failing").result()
    assert (failed.status_code, code(failed)) == (500, "internal_error")
    editor.release()
    assert [other.result().json()["choices"][0]["text"] for other in others] == ["bbnbnb bbnbnb", "bbnbnb" * 5]
    assert "failing" in caplog.text
    assert "secret" not in caplog.text + failed.text


def test_a_deadline_ends_one_request_of_the_batch(client: httpx.Client, editor: ScriptedEditor, send: Send) -> None:
    other = send("hold other")
    late = send("hold", timeout_ms=60).result()
    assert (late.status_code, code(late)) == (504, "deadline_exceeded")
    wait_for_queue(client, 1, 0)
    editor.release()
    assert other.result().status_code == 200


def test_a_stream_goes_on_while_another_prompt_is_read(
    client: httpx.Client, editor: ScriptedEditor, send: Send
) -> None:
    held = send("hold")
    wait_for_queue(client, 1, 0)
    body = {"input": "banana" * 5, "instruction": "slow", "stream": True}
    *deltas, completed = events(client.post("/v1/edits", json=body).text)
    assert completed["type"] == "edit.completed"
    assert len(deltas) > 3
    editor.release()
    assert held.result().status_code == 200


# Who is next.


def test_one_client_can_not_keep_the_places_from_another(
    client: httpx.Client, editor: ScriptedEditor, send: Send
) -> None:
    held = fill(send, client, key="greedy")
    more = []
    for number in range(6):
        more.append(send(f"slow more {number}", key="greedy"))
        wait_for_queue(client, 3, number + 1)
    modest = send("modest", key="modest")
    wait_for_queue(client, 3, 7)
    editor.release()
    assert {request.result().status_code for request in [*held, *more, modest]} == {200}
    order = [entry.removeprefix("start ") for entry in editor.log if entry.startswith(("start slow", "start modest"))]
    # One was opened ahead before it came, and two more get the other free places in the time that opening it takes.
    assert order.index("modest") <= 3


def test_a_full_queue_still_has_room_for_a_client_who_has_nothing_waiting(
    client: httpx.Client, editor: ScriptedEditor, send: Send
) -> None:
    held = fill(send, client, key="greedy")
    queued = [send("go", key="greedy") for _ in range(8)]
    wait_for_queue(client, 3, 8)
    assert send("go", key="greedy").result().status_code == 429
    modest = [send("go", key="modest"), send("go", key="humble")]
    wait_for_queue(client, 3, 10)
    assert send("go", key="late").result().status_code == 429  # it is bounded all the same
    editor.release()
    assert {request.result().status_code for request in [*held, *queued, *modest]} == {200}


def test_routes_of_higher_priority_go_first_and_starve_nobody(
    client: httpx.Client, editor: ScriptedEditor, send: Send
) -> None:
    held = fill(send, client)
    waiting = [send("first")]  # opened ahead, as nobody else was there
    wait_for_queue(client, 3, 1)
    for number in range(3):
        waiting.append(send(f"night {number}", route="night"))
        wait_for_queue(client, 3, 2 + number)
    for number in range(4):
        waiting.append(send(f"urgent {number}", route="urgent"))
        wait_for_queue(client, 3, 5 + number)
    editor.release()
    assert {request.result().status_code for request in [*held, *waiting]} == {200}
    order = [entry.split()[1] for entry in editor.log if entry.startswith(("start night", "start urgent"))]
    assert order[:2].count("urgent") >= 1
    assert order.index("night") < 4  # every fourth turn takes no notice of priorities
    assert order.count("urgent") - order[:5].count("urgent") <= 1


# Clients are strangers to each other.


def test_a_session_belongs_to_its_client(client: httpx.Client, editor: ScriptedEditor, send: Send) -> None:
    first = send("hold first", key="a", session="tab")
    wait_for_queue(client, 1, 0)
    other = send("hold other", key="b", session="tab")
    wait_for_queue(client, 2, 0)
    newer = send("go", key="a", session="tab")
    assert code(first.result()) == "request_superseded"
    assert newer.result().status_code == 200
    editor.release()
    assert other.result().status_code == 200


def test_nobody_cancels_a_strangers_request_by_the_name_it_chose(
    client: httpx.Client, editor: ScriptedEditor, send: Send
) -> None:
    held = send("hold", key="a", request_id="1")
    wait_for_queue(client, 1, 0)
    as_b = {"authorization": "Bearer b"}
    assert client.post("/v1/requests/1/cancel", headers=as_b).json() == {"cancelled": False}
    assert client.post("/v1/requests/1/cancel", headers={"x-api-key": "a"}).json() == {"cancelled": True}
    assert code(held.result()) == "request_cancelled"


def test_prompts_are_shared_within_a_client_and_its_session_only(
    client: httpx.Client, editor: ScriptedEditor, send: Send
) -> None:
    for key, session in (("a", None), ("a", None), ("a", "x"), ("a", "x"), ("a", "y"), ("b", None), ("b", "x")):
        assert send("go", key=key, session=session).result().status_code == 200
    groups = editor.cache_groups
    assert None not in groups
    assert groups[0] == groups[1]
    assert groups[2] == groups[3]
    assert len(set(groups)) == 5


@pytest.mark.parametrize(("api_key", "shares"), [(None, False), ("secret", True)])
def test_on_an_open_address_requests_without_a_session_share_nothing(api_key: str | None, shares: bool) -> None:
    from server_harness import in_process

    editor = ScriptedEditor()
    body = {"input": "a", "instruction": "go"}
    with in_process(editor, host="0.0.0.0", api_key=api_key) as client:
        for session in (None, None, "x"):
            headers = {"authorization": "Bearer secret", "x-api-key": f"another {session}"}
            client.post("/v1/edits", json={**body, "session": session}, headers=headers)
    without, again, with_session = editor.cache_groups
    assert (without is not None) == shares
    assert without == again
    assert with_session not in (None, without)


def test_many_clients_with_many_wishes_each_get_their_own_answer() -> None:
    """Some leave at once, some are late, some fail, some ask for a session: the others' texts are whole and theirs."""
    editor = ScriptedEditor()
    with on_socket(editor, max_batch_size=4) as client:
        wrong: list[object] = []

        def ask(number: int) -> None:
            text = f"a{number}" * 10
            instruction = ["go", "slow", "fail", "go"][number % 4]
            answer = client.post(
                "/v1/edits",
                json={"input": text, "instruction": instruction, "session": f"s{number}"},
                headers={"x-api-key": str(number % 3)},
            )
            if instruction == "fail":
                wrong.extend([answer.text] * (answer.status_code != 500))
            elif answer.json()["choices"][0]["text"] != f"b{number}" * 10:
                wrong.append(answer.text)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(32)]
        for number, thread in enumerate(threads):
            thread.start()
            script = ["slow", "hold", "pause"][number % 3]
            raw_post(client, {"input": "banana" * 9, "instruction": script, "stream": number % 2 == 0}).close()
        for thread in threads:
            thread.join()
        assert wrong == []
        wait_until(lambda: num_open(client) == 0)


def test_a_request_that_takes_too_much_memory_runs_alone_and_all_are_answered(caplog: pytest.LogCaptureFixture) -> None:
    """On a server of its own, whose batch stays smaller for a while."""
    with on_socket(ScriptedEditor(), max_batch_size=3) as client, ThreadPoolExecutor(5) as pool:

        def ask(script: str) -> httpx.Response:
            return client.post("/v1/edits", json={"input": "banana" * 5, "instruction": script})

        answers = list(pool.map(ask, ("hungry slow", "slow a", "slow b", "go", "go")))
    assert {answer.json()["choices"][0]["text"] for answer in answers} == {"bbnbnb" * 5}
    assert "memory ran out in a batch of" in caplog.text
