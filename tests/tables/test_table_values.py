"""A table as a value: which rows it shows, what it says about them, what it runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from table_rows import cells, file_of, write_rows

from acid.errors import AcidError, DataError, UnknownNameError
from acid.evaluation import BASELINE, Cell, Job, Local, paired, read_rows, wilson
from acid.evaluation.cells import ASSETS
from acid.tables import Choice, Claim, Column, Findings, Options, Study, Table, choose, reproduce, write
from acid.tables.program import remember_lambdas

SIZES = {"samples": 6, "iterations": 2, "elites": 2, "horizon": 2}
CHOICE = Choice({"acid": (0.1, 0.4), "control": (0.4,)}, 2, {"samples": 5})
REACHER = Study("reacher", "lewm", ("original", "acid", "control", "noop"), SIZES, budget=10, choice=CHOICE)
CUBE = replace(REACHER, task="cube", episodes={"noop": 1})


def judge(findings: Findings) -> str | None:
    found = findings.compare(REACHER, "acid", BASELINE, "success")
    return None if found is None else f"{found.difference:+.2f} on {found.n}"


TABLE = Table(
    name="tiny",
    title="A tiny table",
    studies=(REACHER, CUBE),
    episodes=2,
    columns=(
        Column("task", lambda line: line.study.task),
        Column("condition", lambda line: line.condition),
        Column("n", lambda line: str(line.n)),
        Column("all", lambda line: str(len(line.every_start))),
    ),
    texts=2,
    legend=("n: episodes",),
    metrics=("success", "missed_steps"),
    claims=(Claim("It helps.", judge), Claim("Nobody knows.", lambda findings: None)),
    before=lambda findings: ["above", ""],
    after=lambda findings: ["below"],
    extra=lambda findings: {"more": len(findings.studies)},
)
WINS = {"original": 2, "acid": 5, "control": 3, "noop": 0}


class Recorder:
    """An engine that only remembers what it was asked to run."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def run(self, jobs: Sequence[Job], progress: Any) -> None:
        self.jobs += jobs

    @property
    def asked(self) -> list[tuple[str, str, float | None, int]]:
        return [
            (job.task, c.condition, c.lam, len(job.instances))  # type: ignore[misc]
            for job in self.jobs
            for c in job.contenders
        ]


@pytest.fixture
def findings(tmp_path: Path) -> Findings:
    made = Findings(TABLE, Options(tmp_path))
    for name, wins in WINS.items():
        episodes = [{"success": k < wins, "solved_at_start": k == 6} for k in range(8)]
        write_rows(made, REACHER, name, episodes)
    return made


def test_lines_are_what_was_run_in_the_order_of_the_table(findings: Findings):
    lines = list(findings.lines())
    assert [(line.study.task, line.condition) for line in lines] == [("reacher", name) for name in WINS]
    assert [line.lam for line in lines] == [None, 0.2, 0.2, None]
    assert {line.n for line in lines} == {7}  # a start that is solved does not count
    assert {len(line.every_start) for line in lines} == {7}  # of the first seven draws, one of them solved
    original, acid = lines[:2]
    assert acid.mean("success") == wilson(5, 7)
    assert original.difference("success") is None
    pairs = [{row.pair: float(row.success) for row in line.rows} for line in (acid, original)]
    assert acid.difference("success") == paired(*pairs)
    with pytest.raises(DataError, match="acid has no number called 'speed'"):
        acid.mean("speed")


def test_rows_of_another_lambda_are_not_shown(findings: Findings):
    before = findings.rows(REACHER, "acid")
    write_rows(findings, REACHER, "acid", [{"success": True}] * 3, lam=0.9)
    assert findings.rows(REACHER, "acid") == before
    findings.cell(REACHER).choose_lambdas({"acid": 0.9}, "because")
    assert [row.lam for row in findings.rows(REACHER, "acid")] == [0.9] * 3


def test_a_study_may_be_compared_with_another(findings: Findings):
    few = Study(
        "reacher", "lewm", ("proposal",), {"samples": 40}, budget=10, options={"std_init": 0.3}, against=REACHER
    )
    both = Findings(replace(TABLE, studies=(REACHER, few)), findings.options)
    write_rows(both, few, "proposal", [{"success": k < 6} for k in range(8)])
    line = next(line for line in both.lines() if line.condition == "proposal")
    assert line.study.spec().options == {"std_init": 0.3}
    found = line.difference("success")
    assert found is not None
    assert (found.n, found.difference) == (7, pytest.approx(4 / 7))  # of those that Original counts


def test_what_is_missing_compares_with_nothing(findings: Findings):
    assert findings.compare(REACHER, "acid", BASELINE, "success") is not None
    assert findings.compare(CUBE, "acid", BASELINE, "success") is None
    file_of(findings, REACHER, BASELINE, None).unlink()
    assert findings.compare(REACHER, "acid", BASELINE, "success") is None
    assert all(line.difference("success") is None for line in findings.lines())


def test_a_table_is_written_as_text_and_as_numbers(findings: Findings, tmp_path: Path):
    text = write(findings)
    assert (tmp_path / "tiny.md").read_text() == text + "\n"
    above, table, below, missing, claim, legend = text.split("\n\n")
    assert (above, below, legend) == ("above", "below", "n: episodes")
    assert cells(table) == [["reacher", name, "7", "7"] for name in WINS]
    assert missing == "left out, not evaluated yet: lewm on cube (cem-n6-j2-k2-h2)"
    assert claim == "Claim: It helps. Here: +0.43 on 7"
    content = json.loads((tmp_path / "tiny.json").read_text())
    assert content["more"] == 2
    assert [line["condition"] for line in content["lines"]] == list(WINS)
    acid, noop = content["lines"][1], content["lines"][3]
    assert acid["search"]["samples"] == 6
    assert noop["search"] is None
    assert acid["success"]["mean"] == pytest.approx(5 / 7)
    assert acid["success_difference"]["difference"] == pytest.approx(3 / 7)
    assert "missed_steps" not in acid  # these rows do not have it


def test_rows_of_uncommitted_code_are_told(findings: Findings):
    assert "revision" not in write(findings)
    write_rows(findings, REACHER, "noop", [{"success": False}] * 3, revision="abc-dirty")
    text = write(findings)
    assert "Rows of several revisions or of uncommitted code:\n- reacher lewm noop, test: 3 of 3 rows" in text


def test_a_table_of_nothing_is_empty(tmp_path: Path):
    text = write(Findings(TABLE, Options(tmp_path / "new")))
    assert cells(text) == []
    assert "left out, not evaluated yet: lewm on reacher" in text
    assert "Claim" not in text


def test_tasks_and_models_can_be_chosen_and_mistakes_are_named(findings: Findings, tmp_path: Path):
    only = Findings(TABLE, Options(tmp_path, tasks=("cube",)))
    assert only.studies == [CUBE]
    with pytest.raises(UnknownNameError, match="unknown task of the table tiny 'recher'; did you mean 'reacher'"):
        Findings(TABLE, Options(tmp_path, tasks=("recher",)))
    with pytest.raises(UnknownNameError, match="unknown model of the table tiny 'pldm'; did you mean 'lewm'"):
        Findings(TABLE, Options(tmp_path, models=("pldm",)))
    with pytest.raises(AcidError, match="episodes must be at least 1, got 0"):
        Findings(TABLE, Options(tmp_path, episodes=0)).jobs()


def test_cells_of_the_users_own_are_found_by_task_and_model(tmp_path: Path):
    folder = tmp_path / "cells"
    (folder / "cube" / "lewm" / "model").mkdir(parents=True)
    found = Findings(TABLE, Options(tmp_path, folder))
    assert found.studies == [CUBE]
    assert found.cell(CUBE).root == folder / "cube" / "lewm"
    assert "left out, because there are no such weights: lewm on reacher (cem-n6-j2-k2-h2)" in write(found)


def test_a_folder_that_is_one_cell_serves_one(tmp_path: Path):
    (tmp_path / "cell" / "model").mkdir(parents=True)
    both = Findings(TABLE, Options(tmp_path, tmp_path / "cell"))
    with pytest.raises(AcidError, match="cell is one cell, but the table has several: choose one with --tasks"):
        _ = both.studies
    one = Findings(TABLE, Options(tmp_path, tmp_path / "cell", tasks=("reacher",)))
    assert one.cell(REACHER).root == tmp_path / "cell"


def test_a_folder_without_any_cell_is_refused(tmp_path: Path):
    empty = Findings(TABLE, Options(tmp_path, tmp_path / "nowhere"))
    for run in (lambda: write(empty), lambda: reproduce(empty, Recorder(), print)):
        with pytest.raises(AcidError, match=r"there are no cells of this table below .*nowhere"):
            run()
    assert not (tmp_path / "tiny.md").exists()


def test_everything_that_is_reported_is_a_job(findings: Findings):
    engine = Recorder()
    reproduce(findings, engine, print)
    first = [("reacher", name, lam) for name, lam in (("original", None), ("acid", 0.2), ("control", 0.2))]
    assert [entry[:3] for entry in engine.asked][:3] == first
    sizes = {entry[:2]: entry[3] for entry in engine.asked}
    assert sizes["reacher", "noop"] == len(Cell("reacher", "lewm").instances(REACHER.protocol(2)))
    assert sizes["cube", "noop"] == len(Cell("cube", "lewm").instances(CUBE.protocol(1)))  # fewer are enough there
    assert {job.protocol.budget for job in engine.jobs} == {10}
    few = Recorder()
    reproduce(Findings(TABLE, replace(findings.options, episodes=1)), few, print)
    assert {job.protocol.episodes for job in few.jobs} == {1}


def test_every_lambda_may_be_run(findings: Findings):
    every = replace(TABLE, studies=(replace(REACHER, every_lambda=True),))
    engine = Recorder()
    reproduce(Findings(every, findings.options), engine, print)
    assert [entry[1:3] for entry in engine.asked] == [
        ("original", None),
        ("acid", 0.1),
        ("acid", 0.4),
        ("control", 0.4),
        ("noop", None),
    ]


def test_what_else_a_table_measures_comes_first(findings: Findings):
    done: list[str] = []
    measuring = replace(TABLE, measure=lambda findings, progress: done.append("measured"))

    class Engine(Recorder):
        def run(self, jobs, progress):
            done.append("run")

    reproduce(Findings(measuring, findings.options), Engine(), print)
    assert done == ["measured", "run"]


class Choosing(Recorder):
    """An engine whose episodes of choosing λ succeed as often as it is told."""

    def __init__(self, findings: Findings, wins: dict[tuple[str, str, float], int]) -> None:
        super().__init__()
        self.findings, self.wins = findings, wins

    def run(self, jobs, progress):
        super().run(jobs, progress)
        for study in self.findings.studies:
            for (task, name, lam), wins in self.wins.items():
                if task == study.task:
                    episodes = [{"success": k < wins, "instance": f"s{k}"} for k in range(10)]
                    write_rows(self.findings, study, name, episodes, lam=lam, split="select")


def test_one_lambda_is_chosen_for_all_tasks_and_other_searches_do_not_count(tmp_path: Path):
    findings = Findings(TABLE, Options(tmp_path))
    wins = {
        ("reacher", "acid", 0.1): 9,
        ("reacher", "acid", 0.4): 7,
        ("cube", "acid", 0.1): 1,
        ("cube", "acid", 0.4): 8,
    }
    wins |= {("reacher", "control", 0.4): 5, ("cube", "control", 0.4): 5}
    other = replace(REACHER, choice=replace(CHOICE, sizes={"samples": 4}))
    for lam in (0.1, 0.4):
        episodes = [{"success": lam == 0.1, "instance": f"s{k}"} for k in range(10)]
        write_rows(findings, other, "acid", episodes, lam=lam, split="select")
    engine = Choosing(findings, wins)
    told = choose(findings, engine, print)
    assert told == f"chose λ = 0.4 for acid, λ = 0.4 for control; wrote {tmp_path / 'lambda-lewm.json'}"
    assert {(job.protocol.split, job.protocol.episodes) for job in engine.jobs} == {("select", 2)}
    assert {c.search.samples for job in engine.jobs for c in job.contenders if c.search} == {5}
    stored = json.loads((tmp_path / "lambda-lewm.json").read_text())
    assert (stored["acid"], stored["control"]) == (0.4, 0.4)
    assert "reacher cem-n5-j2-k2 acid λ 0.1: 90.0% of 10" in stored["reason"]
    assert "cem-n4" not in stored["reason"]
    assert findings.lam(REACHER, "acid") == findings.lam(CUBE, "acid") == 0.4


def test_a_lambda_that_is_missing_is_chosen_before_anything_runs(tmp_path: Path):
    own = tmp_path / "own"
    own.mkdir()
    for part in ("model", "verifier"):
        (own / part).symlink_to(ASSETS / "reacher" / "lewm" / part, target_is_directory=True)
    findings = Findings(TABLE, Options(tmp_path, own, tasks=("reacher",)))
    assert findings.missing_lambdas() == ["acid of lewm on reacher", "control of lewm on reacher"]
    with pytest.raises(AcidError, match="no λ of acid was chosen for lewm on reacher"):
        findings.jobs()
    engine = Choosing(findings, {("reacher", "acid", 0.1): 3, ("reacher", "control", 0.4): 3})
    told: list[str] = []
    reproduce(findings, engine, print, say=told.append)
    assert told == [f"chose λ = 0.1 for acid, λ = 0.4 for control; wrote {own / 'lambda.json'}"]
    assert [job.protocol.split for job in engine.jobs] == ["select"] * 3 + ["test"] * 4
    again = Recorder()
    reproduce(findings, again, print, say=told.append)
    assert len(told) == 1  # it is chosen once


def test_without_select_rows_there_is_nothing_to_choose_from(tmp_path: Path):
    with pytest.raises(DataError, match='no "select" results of lewm'):
        remember_lambdas(Cell("reacher", "lewm", user=tmp_path))


def test_a_condition_that_uses_the_lambda_of_another_chooses_none(tmp_path: Path):
    findings = Findings(TABLE, Options(tmp_path))
    write_rows(findings, REACHER, "acid-clipped", [{"success": True, "instance": "s0"}], lam=0.1, split="select")
    told = remember_lambdas(Cell("reacher", "lewm", user=tmp_path))
    assert told == "no λ was chosen: acid-clipped use that of another condition"
    assert not (tmp_path / "lambda-lewm.json").exists()  # what was chosen before is not lost


def test_it_runs_what_is_missing_and_resumes(tmp_path: Path):
    table = replace(TABLE, studies=(REACHER,))
    findings = Findings(table, Options(tmp_path, episodes=1))
    reproduce(findings, Local(), lambda done, total: None)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")}
    assert len(before) == 4
    assert {row.checkpoints.get("model") for row in read_rows(before)} == {
        None,
        findings.cell(REACHER).fingerprints(["model"])["model"],
    }
    reproduce(findings, Local(), lambda done, total: None)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")} == before
    assert [row[:3] for row in cells(write(findings))] == [["reacher", name, "1"] for name in WINS]


def test_a_metric_that_no_row_has_is_named(findings: Findings):
    wrong = Findings(replace(TABLE, metrics=("success", "missed_step")), findings.options)
    with pytest.raises(DataError, match="table 'tiny' has a number called 'missed_step'; did you mean 'missed_steps'"):
        write(wrong)


@pytest.mark.parametrize(
    ("study", "complaint"),
    [
        (replace(REACHER, sizes={"sample": 6}), "the search 'cem' has no sample; did you mean 'samples'"),
        (replace(REACHER, options={"tolerence": 0.1}), "the search 'cem' has no tolerence; did you mean 'tolerance'"),
    ],
)
def test_an_unknown_size_or_option_of_a_study_is_named(study: Study, complaint: str):
    with pytest.raises(AcidError, match=complaint):
        study.spec()


def test_any_option_of_the_search_can_be_set():
    assert replace(REACHER, options={"tolerance": 0.1}).spec().options == {"tolerance": 0.1}
