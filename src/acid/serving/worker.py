"""The thread that plans, so that the server can answer others meanwhile."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

from acid.errors import AcidError

Request = TypeVar("Request")
Answer = TypeVar("Answer")


class Worker(Generic[Request, Answer]):
    """Answers requests one batch after another. What waits meanwhile is answered together, which costs less.

    solve: requests to answers, in order. If it raises an AcidError for several, each is tried by itself.
    begin: called once in the thread.
    """

    def __init__(
        self,
        solve: Callable[[Sequence[Request]], Sequence[Answer]],
        batch: int,
        *,
        begin: Callable[[], None] = lambda: None,
    ) -> None:
        self._solve = solve
        self._begin = begin
        self._batch = batch
        self._waiting: queue.SimpleQueue[tuple[Request, Future[Answer]] | None] = queue.SimpleQueue()
        # A daemon, so that a plan that never ends cannot keep the process alive.
        self._thread = threading.Thread(target=self._run, name="acid-planning", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        return self._waiting.qsize()

    def submit(self, request: Request) -> Future[Answer]:
        """The answer to come. A request that is cancelled while it waits is never planned for."""
        future: Future[Answer] = Future()
        self._waiting.put((request, future))
        return future

    def stop(self) -> None:
        """End the thread after what it is doing and what waits."""
        self._waiting.put(None)

    def _run(self) -> None:
        self._begin()
        while (first := self._waiting.get()) is not None:
            jobs, more = [first], True
            while more and len(jobs) < self._batch:
                try:
                    job = self._waiting.get_nowait()
                except queue.Empty:
                    break
                more = job is not None
                if job is None:
                    self._waiting.put(None)
                else:
                    jobs.append(job)
            self._answer([job for job in jobs if job[1].set_running_or_notify_cancel()])

    def _answer(self, jobs: Sequence[tuple[Request, Future[Answer]]]) -> None:
        if not jobs:
            return
        try:
            answers = self._solve([request for request, _ in jobs])
        except AcidError as error:
            if len(jobs) > 1:
                for job in jobs:
                    self._answer([job])
            else:
                jobs[0][1].set_exception(error)
        except BaseException as error:
            for _, future in jobs:
                future.set_exception(error)
        else:
            for (_, future), answer in zip(jobs, answers, strict=True):
                future.set_result(answer)
