"""Jobs write rows as they come, go on where they stopped, and give the same rows in one process or in two."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from evaluation_fakes import PROTOCOL, Line, PathLine, Walker, instance, path_instance, provenance
from fake_rows import SPEC

from acid.errors import AcidError, DataError
from acid.evaluation import Cell, CellContender, Job, Local, Protocol, Provenance, Row, SearchSpec, read_rows
from acid.evaluation.evaluate import share_work
from acid.evaluation.jobs import Opened
from acid.evaluation.play import Film

INSTANCES = [instance(10, 12 + number, number) for number in range(5)]
MADE = provenance(model="aaa")
TINY = SearchSpec("cem", 6, 1, 2, horizon=2)
REACHER = Cell("reacher", "lewm")


@dataclass(frozen=True)
class Fake:
    """A contender that walks."""

    agent: Any
    condition: str = "original"
    model: str = "m"
    search: SearchSpec | None = SPEC
    lam: float | None = None
    size: int | None = None
    made: Provenance = MADE

    def open(self, protocol, others, benches):
        return Opened(self.agent, self.made, self.size)


def job(results: Path, *contenders: Fake, task: Any = None, **options: Any) -> Job:
    given = {"instances": INSTANCES, "protocol": PROTOCOL, **options}
    return Job(task or Line(), contenders, results=results, **given)


def without_time(rows: list[Row]) -> list[Row]:
    return [replace(row, plan_cpu_seconds=None, plan_wall_seconds=None) for row in rows]


def test_rows_say_what_is_needed_to_believe_them(tmp_path: Path):
    work, seen = job(tmp_path, Fake(Walker()), instances=[instance(10, 13)]), []
    work.run(lambda done, total: seen.append((done, total)))
    assert seen == [(0, 1), (1, 1)]
    assert read_rows(work.files) == [
        Row(
            task="line",
            model="m",
            condition="original",
            search=SPEC,
            lam=None,
            split="test",
            seed=0,
            instance="i0",
            episode=0,
            start_step=0,
            draw=0,
            solved_at_start=False,
            goal_offset_steps=5,
            budget_steps=10,
            metric="success",
            higher_is_better=True,
            error_unit="m",
            success=True,
            steps=3,
            initial_error=3.0,
            best_error=0.0,
            final_error=0.0,
            errors=(),  # it ended before the first model step was over
            missed_steps=0,
            plans=1,
            plan_cpu_seconds=1.0,
            plan_wall_seconds=2.0,
            checkpoints={"model": "aaa"},
            revision="abc",
            versions={"python": "3"},
        )
    ]


def test_a_path_is_kept_as_it_was_planned(tmp_path: Path):
    work = job(
        tmp_path,
        Fake(Walker(speed=0.123456789, block=3)),
        task=PathLine(),
        instances=[path_instance(10, 11, 12, 13)],
        protocol=Protocol.of(PathLine.setup),
    )
    work.run()
    (row,) = read_rows(work.files)
    assert row.plan == ((0.12346,),) * 3
    assert row.metrics.keys() == {"off_m", "beyond"}
    assert (row.metric, row.higher_is_better) == ("off_m", False)


@pytest.mark.parametrize("batch", [1, 2, 8])
def test_a_killed_run_goes_on_where_it_was(tmp_path: Path, batch: int):
    class Killed(Exception):
        pass

    class Mortal(Walker):
        def act(self, situation):
            if len(self.calls) == 3:
                raise Killed
            return super().act(situation)

    whole = job(tmp_path / "whole", Fake(Walker()), batch=batch)
    whole.run()
    if batch < 8:
        part = job(tmp_path / "parts", Fake(Mortal()), batch=batch)
        with pytest.raises(Killed):
            part.run()
        assert 0 < len(read_rows(part.files)) < 5
    rest, told = job(tmp_path / "parts", Fake(Walker()), batch=batch), []
    rest.run(lambda done, total: told.append((done, total)))
    assert read_rows(rest.files) == read_rows(whole.files)
    assert told[-1] == (5, 5)
    again = Walker()
    job(tmp_path / "parts", Fake(again), batch=batch).run()
    assert not again.calls


def test_only_what_is_missing_is_played(tmp_path: Path):
    job(tmp_path, Fake(Walker()), instances=INSTANCES[1:3]).run()
    agent = Walker()
    job(tmp_path, Fake(agent)).run()
    assert sorted({name for call in agent.calls for name in call.instances}) == ["i0", "i3", "i4"]


def test_a_fresh_run_forgets_what_was_there(tmp_path: Path):
    job(tmp_path, Fake(Walker())).run()
    agent = Walker()
    work = job(tmp_path, Fake(agent), instances=INSTANCES[:2], fresh=True)
    work.run()
    assert [row.instance for row in read_rows(work.files)] == ["i0", "i1"]
    assert agent.calls


def test_rows_of_other_weights_are_not_continued(tmp_path: Path):
    job(tmp_path, Fake(Walker())).run()
    with pytest.raises(DataError, match=r"checkpoints \{'model': 'aaa'\}, this run has \{'model': 'bbb'\}.*--fresh"):
        job(tmp_path, Fake(Walker(), made=provenance(model="bbb"))).run()


def test_a_task_that_was_given_is_left_open_and_one_that_was_named_is_closed(tmp_path: Path):
    task = Line()
    job(tmp_path / "given", Fake(Walker()), task=task).run()
    assert not task.closed
    closed = []

    class Closing(Line):
        def close(self):
            closed.append(self.size)

    globals()["Closing"] = Closing
    job(tmp_path / "named", Fake(Walker(), size=16), task=f"{__name__}:Closing").run()
    assert closed == [16]  # pixels, as the contender wants to see


def test_contenders_must_look_at_images_of_one_size(tmp_path: Path):
    work = job(tmp_path, Fake(Walker(), size=16), Fake(Walker(), "acid", size=32), task="evaluation_fakes:Line")
    with pytest.raises(AcidError, match=r"must look at images of one size, got \[16, 32\]"):
        work.run()


def test_files_keep_contenders_apart(tmp_path: Path):
    contenders = [
        Fake(Walker(), "acid", lam=0.07),
        Fake(Walker(), "acid", lam=0.2),
        Fake(Walker(), "original"),
        Fake(Walker(), "original", search=replace(SPEC, horizon=2)),
        Fake(Walker(), "original", search=replace(SPEC, options={"tolerance": 0.1})),
        Fake(Walker(), "noop", search=None),
    ]
    names = [path.relative_to(tmp_path) for path in job(tmp_path, *contenders).files]
    assert [str(name) for name in names] == [
        "line/m/test/acid_cem-n300-j30-k30_lambda0.07.jsonl",
        "line/m/test/acid_cem-n300-j30-k30_lambda0.2.jsonl",
        "line/m/test/original_cem-n300-j30-k30.jsonl",
        "line/m/test/original_cem-n300-j30-k30-h2.jsonl",  # another horizon than the task's own
        "line/m/test/original_cem-n300-j30-k30-tolerance0.1.jsonl",
        "line/m/test/noop.jsonl",
    ]
    other = job(tmp_path, contenders[0], protocol=replace(PROTOCOL, split="select"))
    assert other.files[0].parent.name == "select"


def test_films_are_kept_by_condition_and_instance(tmp_path: Path):
    job(tmp_path, Fake(Walker()), films=tmp_path / "films", instances=INSTANCES[:2]).run()
    film = Film.load(tmp_path / "films" / "original" / "i1.npz")
    assert len(film.frames) == 4  # three steps to the goal
    assert [path.name for path in sorted((tmp_path / "films" / "original").iterdir())] == ["i0.npz", "i1.npz"]


def test_batches_without_episodes_are_refused(tmp_path: Path):
    with pytest.raises(AcidError, match="a batch must have at least 1 episode, got 0"):
        job(tmp_path, Fake(Walker()), batch=0)


def contender(name: str, lam: float | None = None, spec: SearchSpec = TINY, **options: Any) -> CellContender:
    return CellContender(REACHER, name, lam, spec, **options)


def test_those_that_share_candidates_share_a_job():
    pooled = [
        contender("original"),
        contender("acid", 0.5),
        contender("noop"),
        contender("clipped"),
        contender("prior"),
        contender("proposal"),
        contender("proposal-acid", 0.5),
        contender("policy-open"),
    ]
    assert [[c.condition for c in group] for group in share_work(pooled)] == [  # type: ignore[attr-defined]
        ["original", "acid", "prior"],
        ["noop"],
        ["clipped"],
        ["proposal", "proposal-acid"],
        ["policy-open"],
    ]
    looking = replace(TINY, execute=1)
    assert len(share_work([contender("proposal", spec=looking), contender("proposal-acid", 0.5, looking)])) == 2
    several = replace(TINY, iterations=2)
    assert len(share_work([contender("original", spec=several), contender("acid", 0.5, several)])) == 2
    assert len(share_work([contender("original"), contender("acid", 0.5, shares=False)])) == 2
    assert len(share_work([contender("original"), contender("original", spec=replace(TINY, samples=7))])) == 2


def test_contenders_that_share_plan_as_those_that_do_not(tmp_path: Path):
    protocol = Protocol(episodes=2, budget=20)  # two plans, after the first of which they see different things
    instances = REACHER.instances(protocol)[:2]
    rows = {}
    for shares in (True, False):
        asked = (contender("original", shares=shares), contender("acid", 0.5, shares=shares))
        groups = share_work(asked)
        assert len(groups) == (1 if shares else 2)
        jobs = [Job("reacher", group, instances, protocol, tmp_path / str(shares)) for group in groups]
        Local().run(jobs, lambda done, total: None)
        rows[shares] = read_rows(path for work in jobs for path in work.files)
    assert [row.final_error for row in rows[True]] == [row.final_error for row in rows[False]]
    assert len({row.final_error for row in rows[True]}) == 4


def test_mistakes_are_told_before_the_work_begins():
    with pytest.raises(AcidError, match="does not apply to reacher with lewm"):
        contender("best").check(Protocol(episodes=1))
    with pytest.raises(AcidError, match="unknown condition 'bets'"):
        contender("bets").check(Protocol(episodes=1))


class Stuck(Line):
    """Restores nothing."""

    def set_state(self, state):
        pass


def test_a_task_that_does_not_restore_its_states_is_not_played(tmp_path: Path):
    with pytest.raises(AcidError, match="the task 'line' does not restore its states: get_state differs"):
        job(tmp_path, Fake(Walker()), task=Stuck()).run()
