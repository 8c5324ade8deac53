"""Who is next in the queue."""

from __future__ import annotations

from lookahead_edit.editor import EditRequest
from lookahead_edit.server.fair_queue import TURNS_PER_EXCEPTION, FairQueue, Waiting
from lookahead_edit.server.jobs import Job


def job_of(client: str, priority: int = 0) -> Job:
    job = Job("edit", "request", client=client)
    job.priority = priority
    return job


def queue_of(*jobs: Job) -> FairQueue:
    queue = FairQueue()
    for job in jobs:
        queue.add(Waiting(job, EditRequest("a", "b")))
    return queue


def turns(queue: FairQueue, running: list[Job], count: int | None = None) -> list[Job]:
    """Takes so many, or all, and lets each run on."""
    taken = []
    while len(queue) and (count is None or len(taken) < count):
        taken.append(queue.take(running).job)
        running.append(taken[-1])
    return taken


def test_one_clients_requests_go_in_the_order_of_their_arrival() -> None:
    jobs = [job_of("a") for _ in range(20)]
    assert turns(queue_of(*reversed(jobs)), []) == jobs


def test_a_client_with_less_running_goes_first() -> None:
    greedy = [job_of("a") for _ in range(5)]
    modest = job_of("b")
    assert turns(queue_of(*greedy, modest), [job_of("a")]) == [modest, *greedy]
    assert turns(queue_of(*greedy, modest), [job_of("b")])[:2] == [greedy[0], modest]


def test_with_a_single_place_clients_take_turns() -> None:
    first, second = [job_of("a") for _ in range(4)], [job_of("b") for _ in range(2)]
    queue = queue_of(*first, *second)
    taken = []
    while len(queue):
        taken.append(queue.take([]).job)  # whoever had the place is done
    assert taken == [first[0], second[0], first[1], second[1], first[2], first[3]]


def test_a_client_who_comes_later_waits_for_one_turn_only() -> None:
    first = [job_of("a") for _ in range(6)]
    queue = queue_of(*first)
    assert [queue.take([]).job for _ in range(3)] == first[:3]
    late = job_of("b")
    queue.add(Waiting(late, EditRequest("a", "b")))
    assert queue.take([]).job is late


def test_higher_priorities_go_first_but_for_every_fourth_turn() -> None:
    low = [job_of("a", -1) for _ in range(3)]
    high = [job_of("a", 5) for _ in range(10)]
    taken = turns(queue_of(*low, *high), [])
    places = [place for place, job in enumerate(taken) if job in low]
    assert places == [TURNS_PER_EXCEPTION - 1, 2 * TURNS_PER_EXCEPTION - 1, 3 * TURNS_PER_EXCEPTION - 1]
    assert [job for job in taken if job in low] == low
    assert [job for job in taken if job in high] == high


def test_what_is_over_is_forgotten_and_nothing_is_kept_of_clients_who_left() -> None:
    jobs = [job_of("a"), job_of("b"), job_of("c")]
    queue = queue_of(*jobs)
    queue.remove(jobs[1])
    queue.remove(job_of("d"))
    assert (queue.has("a"), queue.has("b"), len(queue)) == (True, False, 2)
    assert turns(queue, []) == [jobs[0], jobs[2]]
    queue.add(Waiting(jobs[1], EditRequest("a", "b")))
    queue.take([])
    assert set(queue._last_turns) == {"b"}
