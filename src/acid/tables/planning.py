"""The paper's first table: Le-WM and PLDM on Cube, Reacher and Push-T, the goal cost alone against ACID."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from statistics import fmean

from acid.evaluation.results import Starts
from acid.evaluation.statistics import Paired, paired
from acid.evaluation.table import difference, markdown, p_value, percent
from acid.report.chart import Bar, Forest
from acid.tables import columns
from acid.tables.figures import draw_budgets
from acid.tables.names import called
from acid.tables.table import Choice, Claim, Column, Findings, Line, Study, Table
from acid.tables.verdict import Verdict, on_gains

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


def successes(
    findings: Findings, model: str, name: str, tasks: Sequence[str], starts: Starts = "strict"
) -> dict[Hashable, float] | None:
    """Of a condition on some tasks together, by task, seed and instance; None while one of them is missing."""
    values: dict[Hashable, float] = {}
    for task in tasks:
        study = next((s for s in findings.studies if (s.model, s.task) == (model, task)), None)
        rows = findings.rows(study, name, starts=starts) if study else []
        if not rows:
            return None
        values |= {(task, *row.pair): float(row.success) for row in rows}
    return values


def compared(findings: Findings, model: str, name: str, other: str, tasks: Sequence[str]) -> Paired | None:
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
            gain = compared(findings, model, "acid", "original", group)
            if gain is not None:
                shares = [successes(findings, model, name, group) for name in ("original", "acid")]
                pairs = (("control", "original"), ("acid", "control"))
                others = [compared(findings, model, *pair, group) for pair in pairs]
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
    """How many cells gain, and in how many the interval lies above zero."""
    found = {
        f"{study.model} {study.task}": findings.compare(study, "acid", "original", "success")
        for study in findings.studies
    }
    gains = {name: gain for name, gain in found.items() if gain is not None}
    if len(gains) < len(PUBLISHED):
        return None
    better = [name for name, gain in gains.items() if gain.difference > 0]
    certain = [name for name, gain in gains.items() if gain.low > 0]
    reason = f"{len(better)} of {len(gains)} cells gain, {len(certain)} with an interval above zero"
    return on_gains(gains, reason=f"{reason} ({', '.join(certain) or 'none'}).")


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
        Claim('"Success rate improves on all of Cube, Reacher, and PushT" for both world models.', judge_everywhere),
    ),
    legend=(
        "CEM, N 300, J 30, K 30; n paired held-out episodes a cell; 95 % intervals, McNemar test.",
        "success: starts that already pass the test are dropped. all starts kept: the published protocol, same runs.",
        "published: the paper's numbers, models of full size, its own data, 50 episodes.",
    ),
    draw=draw_budgets,
    show=show,
)
