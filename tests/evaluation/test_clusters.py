"""Engines beyond one machine: the rows of a local run, whatever is lost on the way."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from evaluation_fakes import PROTOCOL, Line, Walker, instance

from acid.errors import AcidError
from acid.evaluation import Job, Local, clusters, read_rows
from acid.evaluation.clusters import Cluster, Ray, Slurm
from acid.evaluation.evaluate import AgentContender

INSTANCES = [instance(10, 12 + number, number) for number in range(8)]


class HeldWalker(Walker):
    """Leaves a file for every batch that a Ray node begins; no batch ends before one began on a node that is to die.

    There it never ends.
    """

    def __init__(self, begun: Path, doomed: str) -> None:
        super().__init__()
        self.begun, self.doomed = begun, doomed

    def act(self, situation: Any) -> Any:
        import ray

        node = ray.get_runtime_context().get_node_id()
        (self.begun / f"{situation.goals[0, 0, 0, 0]}-{node}").touch()
        while node == self.doomed or not any(self.begun.glob(f"*-{self.doomed}")):
            time.sleep(0.1)
        return super().act(situation)


class Wrong(Walker):
    def act(self, situation: Any) -> Any:
        raise AcidError("it cannot be done")


class Inline(Cluster):
    """Plays everything here, last piece first, and can stop in the middle."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.stop_after, self.played = stop_after, 0

    def map(self, function: Any, items: Any) -> Iterator[tuple[int, Any]]:
        for number in reversed(range(len(items))):
            if self.played == self.stop_after:
                raise KeyboardInterrupt
            self.played += 1
            yield number, clusters._result(clusters._guarded(function, *items[number]))


def jobs(folder: Path, *agents: Any, task: Any = "evaluation_fakes:Line", batch: int = 2) -> list[Job]:
    contenders = [AgentContender(f"agent{k}", agent, "Walker") for k, agent in enumerate(agents)]
    return [Job(task, (one,), INSTANCES, PROTOCOL, folder, batch) for one in contenders]


def rows(work: list[Job]) -> list[Any]:
    """Without what may change while a test runs: times, and the revision of sources that somebody edits."""
    found = read_rows(path for job in work for path in job.files)
    lasting = (replace(row, plan_cpu_seconds=None, plan_wall_seconds=None, revision="") for row in found)
    return sorted(lasting, key=lambda row: str(row.key))


def test_pieces_give_the_rows_of_a_local_run_and_a_driver_that_dies_goes_on(tmp_path: Path):
    local, sent = (jobs(tmp_path / name, Walker(), Walker(speed=0.5)) for name in ("local", "sent"))
    Local(1).run(local, lambda done, total: None)
    told: list[tuple[int, int]] = []
    with pytest.raises(KeyboardInterrupt):
        Inline(stop_after=3).run(sent, lambda done, total: told.append((done, total)))
    assert told == [(0, 16), (2, 16), (4, 16), (6, 16)]
    second = Inline()
    second.run(sent, lambda done, total: told.append((done, total)))
    assert second.played == 5  # what was kept is not played again
    assert told[-1] == (16, 16)
    assert rows(sent) == rows(local)
    Inline(stop_after=0).run(sent, lambda done, total: None)  # nothing is left


def test_a_piece_that_is_half_there_is_completed_and_nothing_is_written_twice(tmp_path: Path):
    work = jobs(tmp_path, Walker(), batch=4)
    Local(1).run(jobs(tmp_path, Walker(), batch=3), lambda done, total: None)
    path = work[0].files[0]
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:5]))
    Inline().run(work, lambda done, total: None)
    assert Counter(row.instance for row in rows(work)) == Counter(one.id for one in INSTANCES)


def test_films_come_back(tmp_path: Path):
    work = [replace(job, films=tmp_path / "films") for job in jobs(tmp_path / "rows", Walker())]
    Inline().run(work, lambda done, total: None)
    assert len(list((tmp_path / "films" / "agent0").glob("*.npz"))) == len(INSTANCES)


def test_errors_come_back_as_they_are_and_environments_stay(tmp_path: Path):
    with pytest.raises(AcidError, match=r"^it cannot be done$"):
        Inline().run(jobs(tmp_path, Wrong()), lambda done, total: None)
    with pytest.raises(AcidError, match="the environment 'line' lives in this process alone"):
        Inline().run(jobs(tmp_path, Walker(), task=Line()), lambda done, total: None)


@pytest.mark.parametrize(("engine", "package", "extra"), [(Ray(), "ray", "ray"), (Slurm(), "submitit", "slurm")])
def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(AcidError, match=rf"needs the package '{package}'; run: pip install 'acid-planning\[{extra}\]'"):
        engine.run(jobs(tmp_path, Walker()), lambda done, total: None)


def test_a_cluster_that_does_not_answer_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ray = SimpleNamespace(is_initialized=lambda: False, init=_give_up)
    monkeypatch.setitem(sys.modules, "ray", ray)
    for engine, told in ((Ray(), "Ray could not be started here"), (Ray("auto"), "no Ray cluster answers at 'auto'")):
        with pytest.raises(AcidError, match=rf"{told} \(the node timed out\)"):
            engine.run(jobs(tmp_path, Walker()), lambda done, total: None)


def _give_up(**_: Any) -> None:
    raise Exception("the node timed out")


def test_a_machine_without_slurm_says_so(tmp_path: Path):
    pytest.importorskip("submitit", reason="submitit, of the extra slurm, is not installed")
    with pytest.raises(AcidError, match="Slurm cannot be used with these settings"):
        Slurm(folder=tmp_path / "slurm").run(jobs(tmp_path, Walker()), lambda done, total: None)


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers find this file and the fakes beside it."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))


def added_node(cluster: Any, **settings: Any) -> Any:
    """Ray gives a node 30 seconds to start, which beside much other work is not always enough."""
    import psutil

    others = set(psutil.Process().children())
    for left in reversed(range(5)):
        try:
            return cluster.add_node(wait=False, num_cpus=1, object_store_memory=80_000_000, **settings)
        except Exception:
            for process in set(psutil.Process().children()) - others:
                process.kill()
                process.wait()
            if not left:
                raise
    raise AssertionError


@pytest.mark.slow
def test_a_lost_node_of_a_ray_cluster_changes_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, importable: None):
    pytest.importorskip("ray", reason="ray, of the extra ray, is not installed")
    from ray.cluster_utils import Cluster as RayCluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    begun = tmp_path / "begun"
    begun.mkdir()
    local = jobs(tmp_path / "local", Walker(), batch=1)
    Local(1).run(local, lambda done, total: None)
    cluster = RayCluster()
    try:
        added_node(cluster, include_dashboard=False)  # the first one is the head
        nodes = [added_node(cluster)]
        cluster.wait_for_nodes(timeout=600)
        doomed = nodes[0].node_id
        sent = jobs(tmp_path / "sent", HeldWalker(begun, doomed), batch=1)
        told: list[int] = []

        def kill(done: int, total: int) -> None:
            told.append(done)
            if done >= 3 and nodes:
                cluster.remove_node(nodes.pop(), allow_graceful=False)

        Ray(cluster.address).run(sent, kill)
    finally:
        cluster.shutdown()
    assert not nodes
    assert told[-1] == len(INSTANCES)
    places = [path.name.split("-") for path in begun.iterdir()]
    assert sum(node == doomed for _, node in places) == 1
    assert sum(node != doomed for _, node in places) == len(INSTANCES)  # what the lost node had begun was begun again
    assert Counter(row.instance for row in rows(sent)) == Counter(one.id for one in INSTANCES)
    assert rows(sent) == rows(local)


@pytest.mark.slow
def test_slurm_jobs_give_the_rows_of_a_local_run(tmp_path: Path, importable: None):
    pytest.importorskip("submitit", reason="submitit, of the extra slurm, is not installed")
    local, sent = (jobs(tmp_path / name, Walker(), batch=8) for name in ("local", "sent"))
    Local(1).run(local, lambda done, total: None)
    Slurm(1, tmp_path / "files", cluster="local").run(sent, lambda done, total: None)
    assert rows(sent) == rows(local)


class _Lost:
    """A submitit that loses some jobs; the others run here."""

    def __init__(self, losses: int) -> None:
        class Uncompleted(Exception):
            pass

        self.losses, self.cancelled = losses, 0
        self.core = SimpleNamespace(utils=SimpleNamespace(UncompletedJobError=Uncompleted))

    def AutoExecutor(self, folder: Path, cluster: str) -> Any:
        return SimpleNamespace(update_parameters=lambda **_: None, submit=self._submit)

    def _submit(self, function: Any, *arguments: Any) -> Any:
        def result() -> Any:
            self.losses -= 1
            if self.losses >= 0:
                raise self.core.utils.UncompletedJobError
            return function(*arguments)

        # A namespace cannot be a key; an instance of a class of its own can.
        job = type("Job", (), {"job_id": "7", "paths": SimpleNamespace(stderr="7.err")})()
        job.done, job.result, job.cancel = (lambda: True), result, (lambda: None)
        return job


@pytest.mark.parametrize(("losses", "complete"), [(3, True), (99, False)])
def test_a_lost_slurm_job_is_sent_again_but_not_for_ever(tmp_path: Path, monkeypatch, losses: int, complete: bool):
    monkeypatch.setitem(sys.modules, "submitit", _Lost(losses))
    monkeypatch.setattr(clusters, "POLL", 0)
    work = jobs(tmp_path, Walker(), batch=8)
    if complete:
        Slurm().run(work, lambda done, total: None)
        assert len(rows(work)) == len(INSTANCES)
    else:
        with pytest.raises(AcidError, match=r"Slurm job 7 was lost 4 times; its log is 7\.err; the same command"):
            Slurm().run(work, lambda done, total: None)
