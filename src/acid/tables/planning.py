"""The paper's first table: Le-WM and PLDM on Cube, Reacher and Push-T, the goal cost alone against ACID."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from acid.evaluation.statistics import Paired, paired
from acid.evaluation.table import difference, markdown, p_value, percent
from acid.report.chart import Bar, Forest
from acid.tables import columns, deformable, navigation
from acid.tables.figures import draw_budgets
from acid.tables.names import called, called_cell
from acid.tables.table import Choice, Claim, Column, Findings, Line, Study, Table
from acid.tables.verdict import Verdict, complete, judge_gains, on_gains

TASKS = ("cube", "reacher", "pusht")
MODELS = ("lewm", "pldm")
CHOICE = Choice(  # with a third of the candidates
    {"acid": (0.07, 0.2, 0.5), "control": (0.02, 0.07, 0.2, 0.5)}, 80, {"samples": 100, "elites": 10}
)
PUBLISHED = {  # success in %, Original and ACID
    ("lewm", "cube"): (70.0, 74.0),
    ("lewm", "reacher"): (76.0, 88.0),
    ("lewm", "pusht"): (96.0, 100.0),
    ("pldm", "cube"): (58.0, 68.0),
    ("pldm", "reacher"): (76.0, 90.0),
    ("pldm", "pusht"): (72.0, 76.0),
}


def successes(findings: Findings, model: str, name: str, tasks: Sequence[str]) -> dict[Any, float] | None:
    """Of a condition on some tasks together; None while one of them is missing."""
    studies = [study for study in findings.studies if study.model == model and study.task in tasks]
    return findings.pooled((study, name) for study in studies) if len(studies) == len(tasks) else None


def pooled_gain(findings: Findings, model: str, name: str, other: str, tasks: Sequence[str]) -> Paired | None:
    mine, theirs = (successes(findings, model, one, tasks) for one in (name, other))
    return paired(mine, theirs) if mine and theirs else None


def overview(findings: Findings) -> list[str]:
    """The paper's own form: a line per cell, and one per world model on all tasks together."""
    heading = ["model", "task", "n", "Original", "ACID", "ACID − Original", "p", "control − Original"]
    heading += ["ACID − control", "published"]
    tasks = [task for task in TASKS if task in {study.task for study in findings.wanted}]
    groups = [(task,) for task in tasks] + ([tuple(tasks)] if len(tasks) > 1 else [])
    rows = []
    for model in MODELS:
        for group in groups:
            gain = pooled_gain(findings, model, "acid", "original", group)
            if gain is not None:
                shares = [successes(findings, model, name, group) for name in ("original", "acid")]
                pairs = (("control", "original"), ("acid", "control"))
                others = [pooled_gain(findings, model, *pair, group) for pair in pairs]
                rows.append(
                    [model, group[0] if len(group) == 1 else "all", str(gain.n)]
                    + [percent(fmean(values.values())) for values in shares if values]
                    + [difference(gain, share=True), p_value(gain)]
                    + [difference(other, share=True) for other in others]
                    + [_published_gain(model, group)]
                )
    return [markdown(heading, rows, texts=2), ""]


def _published_gain(model: str, tasks: Sequence[str]) -> str:
    before, after = (fmean(numbers) for numbers in zip(*(PUBLISHED[model, task] for task in tasks), strict=True))
    return f"{before:.1f}% → {after:.1f}%"


def _published(line: Line) -> str:
    numbers = dict(zip(("original", "acid"), PUBLISHED[line.study.model, line.study.task], strict=True))
    return f"{numbers[line.condition]:.1f}%" if line.condition in numbers else "-"


def judge_everywhere(findings: Findings) -> Verdict | None:
    """Whether every cell gains."""
    papers = {
        called_cell(s): after - before for s in findings.studies for before, after in [PUBLISHED[s.model, s.task]]
    }
    return judge_gains(findings.gains("acid", "original"), published=papers)


def judge_all_tasks(findings: Findings) -> Verdict | None:
    """Whether ACID gains for every world model and task of the paper, those of Table 2 included."""
    gains = complete(findings.gains("acid", "original"))
    if gains is None:
        return None
    others = deformable.gains(findings, deformable.DEFORMABLE.studies)
    others |= navigation.gains(findings, navigation.NAVIGATION.studies)
    if len(others) < len(deformable.TASKS) + navigation.NEEDED:
        return None
    unit = "success in points, less Chamfer distance (10 cm) and less ATE (waypoints of 0.25 m)"
    points = {name: _scaled(gain, 100) for name, gain in gains.items()}
    return on_gains({**points, **{name: _scaled(gain, -1) for name, gain in others.items()}}, unit=unit)


def _scaled(gain: Paired, by: float) -> Paired:
    low, high = sorted((by * gain.low, by * gain.high))
    return replace(gain, difference=by * gain.difference, low=low, high=high)


def show(findings: Findings) -> list[Forest]:
    """The gain of every cell beside the published one."""
    bars = []
    for study in findings.studies:
        gain = findings.compare(study, "acid", "original", "success")
        if gain is not None:
            before, after = PUBLISHED[study.model, study.task]
            mean, low, high = (100 * value for value in (gain.difference, gain.low, gain.high))
            name, told = f"{called(study.task)}, {called(study.model)}", f"{gain.n} episodes"
            bars.append(Bar(name, mean, low, high, after - before, told))
    text = "Difference of success on the same held-out episodes, ours and the paper's."
    return [Forest("ACID against Original", text, bars, "points of success")] if bars else []


PLANNING = Table(
    name="planning",
    title="Table 1: Le-WM and PLDM on Cube, Reacher and Push-T",
    studies=tuple(
        Study(task, model, ("original", "acid", "control", "policy", "random", "noop"), choice=CHOICE)
        for model in MODELS
        for task in TASKS
    ),
    episodes=200,
    before=overview,
    columns=(
        columns.MODEL,
        columns.TASK,
        columns.CONDITION,
        columns.N,
        *columns.SUCCESS,
        Column("all starts kept", lambda line: percent(fmean(float(row.success) for row in line.every_start))),
        Column("published", _published),
    ),
    texts=3,
    metrics=("success", "final_error"),
    claims=(
        Claim(
            '"Across four action-conditioned world models and six tasks [...], ACID consistently improves planning."',
            judge_all_tasks,
            paper="all nine cells of Tables 1 and 2 gain; 50 episodes a cell (10 on Rope and Granular), no intervals.",
        ),
        Claim(
            '"Success rate improves on all of Cube, Reacher, and PushT" for both world models.',
            judge_everywhere,
            paper="Cube, Reacher and Push-T +4, +12, +4 points with Le-WM; +10, +14, +4 with PLDM (50 episodes).",
        ),
    ),
    legend=(
        "CEM, N 300, J 30, K 30; n paired held-out episodes a cell; 95 % intervals, McNemar test.",
        "success: starts that already pass the test are dropped. all starts kept: the published protocol, same runs.",
        "published: the paper's numbers, models of full size, its own data, 50 episodes.",
    ),
    draw=draw_budgets,
    show=show,
)
