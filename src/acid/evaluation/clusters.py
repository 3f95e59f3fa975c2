"""Engines beyond one machine: Ray, and Slurm through submitit. The driver alone writes rows; batches are the unit.

A worker plays a batch into a folder of its own and sends the rows back. If it is lost, the batch is played again; if
the driver is, the same command goes on from the rows that were written.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from acid.errors import AcidError, need_package
from acid.evaluation.jobs import Job, Progress
from acid.evaluation.rows import Row, read_rows
from acid.files import reason, replacing

RETRIES = 3  # of a piece of work whose worker is lost
POLL = 0.5  # s


class Cluster:
    """Runs jobs wherever `map` runs functions."""

    def map(self, function: Callable[..., Any], items: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """(number, function(*item)) of every item, as they come. Functions must be importable where they run."""
        raise NotImplementedError

    def run(self, jobs: Sequence[Job], progress: Progress) -> None:
        if here := [job.task for job in jobs if not isinstance(job.task, str)]:
            raise AcidError(f"the environment {here[0].name!r} lives in this process alone: evaluate it with Local(1)")
        total = sum(job.size for job in jobs)
        with contextlib.ExitStack() as stack:
            ledgers = [stack.enter_context(job.ledger()) for job in jobs]
            named = [(uuid4().hex, ledger) for ledger in ledgers]
            pieces = [(ledger, name, piece) for name, ledger in named for piece in ledger.pieces()]
            done = sum(ledger.done for ledger in ledgers)
            progress(done, total)
            work = self.map(_play, [(name, piece) for _, name, piece in pieces])
            for number, (rows, films) in work if pieces else ():
                ledger, before = pieces[number][0], pieces[number][0].done
                for path, content in films.items():
                    with replacing(Path(ledger.job.films or ".") / path) as partial:
                        partial.write_bytes(content)
                ledger.keep(rows)
                done += ledger.done - before
                progress(done, total)


@dataclass(frozen=True)
class Ray(Cluster):
    """A Ray cluster.

    address: as `ray.init` takes it: auto, HOST:PORT or ray://HOST:PORT. None: started here for as long as it is
        needed. processes: at once on this machine; a cluster that has an address uses all its processors.
    """

    address: str | None = None
    processes: int = 2

    def map(self, function: Callable[..., Any], items: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        ray = need_package("ray", "ray", "a Ray cluster")
        with self._connected(ray):
            remote = ray.remote(num_cpus=1, max_retries=RETRIES)(_guarded)
            waiting = {remote.remote(function, *item): number for number, item in enumerate(items)}
            try:
                while waiting:
                    (ready, *_), _ = ray.wait(list(waiting), num_returns=1)
                    number = waiting.pop(ready)
                    yield number, _result(self._get(ray, ready))
            finally:
                for reference in waiting:
                    ray.cancel(reference, force=True)

    def _get(self, ray: Any, reference: Any) -> Any:
        lost = (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.ObjectLostError)
        try:
            return ray.get(reference)
        except lost as error:
            raise AcidError(
                f"a worker was lost {RETRIES + 1} times on the same work; the same command goes on with what is missing"
            ) from error

    @contextlib.contextmanager
    def _connected(self, ray: Any) -> Iterator[None]:
        if ray.is_initialized():
            yield
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        here = {"num_cpus": self.processes, "include_dashboard": False} if self.address is None else {}
        try:
            ray.init(address=self.address, log_to_driver=False, logging_level="ERROR", **here)
        except Exception as error:  # Ray has no error of its own for this: some are bare
            tried = "Ray could not be started here" if here else f"no Ray cluster answers at {self.address!r}"
            raise AcidError(f"{tried} ({reason(error)})") from error
        try:
            yield
        finally:
            ray.shutdown()


@dataclass(frozen=True)
class Slurm(Cluster):
    """Slurm jobs of one processor each, through submitit.

    processes: jobs in the queue at once. folder: of submitit's files, which every node must see.
    settings: of submitit's executor, e.g. slurm_partition, timeout_min. cluster: "local" runs them on this machine.
    """

    processes: int = 2
    folder: Path = Path("slurm")
    settings: Mapping[str, Any] = field(default_factory=dict)
    cluster: str = "slurm"

    def map(self, function: Callable[..., Any], items: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        submitit = need_package("submitit", "slurm", "Slurm")
        try:
            executor = submitit.AutoExecutor(self.folder / "%j", cluster=self.cluster)
            executor.update_parameters(**{"cpus_per_task": 1, "timeout_min": 60, "name": "acid"} | dict(self.settings))
        except (RuntimeError, TypeError, ValueError, NameError) as error:
            raise AcidError(f"Slurm cannot be used with these settings: {error}") from error
        ahead, running = list(enumerate(items))[::-1], {}
        lives = dict.fromkeys(range(len(items)), RETRIES)
        try:
            while ahead or running:
                while ahead and len(running) < self.processes:
                    number, item = ahead.pop()
                    running[executor.submit(_guarded, function, *item)] = (number, item)
                for job in [job for job in running if job.done()]:
                    number, item = running.pop(job)
                    try:
                        result = job.result()
                    except submitit.core.utils.UncompletedJobError as error:
                        if not lives[number]:
                            raise AcidError(
                                f"Slurm job {job.job_id} was lost {RETRIES + 1} times; its log is {job.paths.stderr}; "
                                "the same command continues with what is missing"
                            ) from error
                        lives[number] -= 1
                        ahead.append((number, item))
                        continue
                    yield number, _result(result)
                time.sleep(POLL)
        finally:
            for job in running:
                job.cancel()


_loaded: dict[str, dict[Any, Any]] = {}  # what this worker has loaded for the job that it played last


def _play(name: str, piece: Job) -> tuple[list[Row], dict[str, bytes]]:
    """The rows of a piece of a job, and its films by their paths. Runs in a worker."""
    import torch

    torch.set_num_threads(1)
    if name not in _loaded:
        _loaded.clear()
    with tempfile.TemporaryDirectory() as folder:
        films = Path(folder) / "films"
        own = replace(piece, results=Path(folder) / "rows", films=None if piece.films is None else films)
        own.run(benches=_loaded.setdefault(name, {}))
        shown = {str(path.relative_to(films)): path.read_bytes() for path in films.rglob("*.npz")}
        return read_rows(own.files), shown


def _guarded(function: Callable[..., Any], *arguments: Any) -> Any:
    """An error that the user can mend comes back as a value: engines wrap others in traces of their own."""
    try:
        return function(*arguments)
    except AcidError as error:
        return error


def _result(value: Any) -> Any:
    if isinstance(value, AcidError):
        raise value
    return value
