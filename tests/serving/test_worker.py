"""The planning thread: batches of what waits, one failure does not spoil the others."""

from __future__ import annotations

import threading

import pytest

from acid.errors import PlanningError
from acid.serving.worker import Worker


class Solver:
    """Doubles numbers; waits at the gate; a PlanningError for 13, a bug for 0."""

    def __init__(self) -> None:
        self.gate, self.begun, self.batches = threading.Event(), threading.Event(), []

    def __call__(self, requests):
        self.begun.set()
        self.gate.wait()
        self.batches.append(list(requests))
        if 13 in requests:
            raise PlanningError("13 is unlucky")
        return [2 * request * (request // request) for request in requests]


def held(batch: int = 4) -> tuple[Worker, Solver]:
    """A worker that is busy with the request 1 until the gate opens."""
    solver = Solver()
    worker = Worker(solver, batch)
    worker.submit(1)
    solver.begun.wait()
    return worker, solver


def test_what_waits_is_answered_together_in_order():
    worker, solver = held()
    futures = [worker.submit(number) for number in (2, 3, 4, 5, 6)]
    assert worker.waiting == 5
    solver.gate.set()
    assert [future.result() for future in futures] == [4, 6, 8, 10, 12]
    assert solver.batches == [[1], [2, 3, 4, 5], [6]]


def test_one_that_cannot_be_planned_for_does_not_spoil_the_others():
    worker, solver = held()
    futures = [worker.submit(number) for number in (2, 13, 4)]
    solver.gate.set()
    assert [futures[0].result(), futures[2].result()] == [4, 8]
    with pytest.raises(PlanningError, match="13 is unlucky"):
        futures[1].result()


def test_a_bug_reaches_everyone_and_the_thread_goes_on():
    worker, solver = held()
    futures = [worker.submit(number) for number in (0, 2)]
    solver.gate.set()
    for future in futures:
        with pytest.raises(ZeroDivisionError):
            future.result()
    assert worker.submit(5).result() == 10


def test_a_request_that_was_cancelled_while_it_waited_is_not_planned_for():
    worker, solver = held()
    gone, other = worker.submit(2), worker.submit(3)
    assert gone.cancel()
    solver.gate.set()
    assert other.result() == 6
    assert solver.batches == [[1], [3]]


def test_stopping_answers_what_waits_first():
    worker, solver = held()
    future = worker.submit(2)
    worker.stop()
    solver.gate.set()
    assert future.result() == 4
    worker._thread.join()
