"""Engines run jobs until their rows are complete, whatever the number of processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from evaluation_fakes import PROTOCOL, Line, Walker, instance

from acid.errors import AcidError
from acid.evaluation import Job, Local, read_rows
from acid.evaluation.evaluate import AgentContender

INSTANCES = [instance(10, 12 + number, number) for number in range(4)]


class Doomed(Walker):
    """Ends its process, as the system does when memory runs out."""

    def act(self, situation):
        import os

        os._exit(3)


class Wrong(Walker):
    def act(self, situation):
        raise AcidError("it cannot be done")


def jobs(folder: Path, *agents: Walker, task="evaluation_fakes:Line") -> list[Job]:
    contenders = [AgentContender(f"agent{k}", agent, "Walker") for k, agent in enumerate(agents)]
    return [Job(task, (one,), INSTANCES, PROTOCOL, folder) for one in contenders]


def rows(work: list[Job]):
    found = read_rows(path for job in work for path in job.files)
    return [replace(row, plan_cpu_seconds=None, plan_wall_seconds=None) for row in found]


def test_two_processes_give_the_rows_of_one(tmp_path: Path):
    alone, together = (jobs(tmp_path / name, Walker(), Walker(speed=0.5)) for name in ("alone", "together"))
    told: list[tuple[int, int]] = []
    Local(1).run(alone, lambda done, total: told.append((done, total)))
    assert told[0] == (0, 8)
    assert told[-1] == (8, 8)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    told.clear()
    Local(2).run(together, lambda done, total: told.append((done, total)))
    assert told[-1] == (8, 8)
    assert rows(alone) == rows(together)
    kept = [path.read_bytes() for job in together for path in job.files]
    Local(1).run(together, lambda done, total: None)
    assert [path.read_bytes() for job in together for path in job.files] == kept  # nothing was played again


def test_a_worker_that_dies_is_told_and_what_is_there_is_kept(tmp_path: Path):
    with pytest.raises(AcidError, match=r"a worker process was killed, .* The same command continues"):
        Local(2).run(jobs(tmp_path, Doomed(), Doomed()), lambda done, total: None)
    Local(1).run(jobs(tmp_path, Walker(), Walker()), lambda done, total: None)
    assert len(rows(jobs(tmp_path, Walker(), Walker()))) == 8


@pytest.mark.parametrize("processes", [1, 2])
def test_errors_of_a_job_come_back_as_they_are(tmp_path: Path, processes: int):
    with pytest.raises(AcidError, match="it cannot be done"):
        Local(processes).run(jobs(tmp_path, Wrong(), Wrong()), lambda done, total: None)


def test_environments_of_this_process_stay_in_it(tmp_path: Path):
    work = jobs(tmp_path, Walker(), Walker(), task=Line())
    with pytest.raises(AcidError, match=r"the environment 'line' lives in this process alone.*Local\(1\)"):
        Local(2).run(work, lambda done, total: None)
    Local(2).run(work[:1], lambda done, total: None)  # a single job is run here
    assert len(rows(work[:1])) == 4


def test_no_processes_are_refused():
    with pytest.raises(AcidError, match="processes must be at least 1, got 0"):
        Local(0)
