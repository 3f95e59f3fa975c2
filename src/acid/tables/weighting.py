"""The paper's fourth table: a constant weight of the consistency cost against the adaptive one."""

from __future__ import annotations

from collections.abc import Iterator

from acid.evaluation import BASELINE, Paired, condition, paired
from acid.evaluation.table import lam, markdown
from acid.report.chart import Chart, Level, Panel, Point, Series
from acid.report.style import Look
from acid.tables import columns
from acid.tables.names import called
from acid.tables.planning import TASKS
from acid.tables.table import Claim, Column, Findings, Line, Study, Table
from acid.tables.verdict import Verdict, on_gains, told

MODEL = "lewm"
WEIGHTS = (1.0, 3.0, 5.0, 7.0, 10.0)
PUBLISHED = {  # change of success in points, by task: each constant, then the adaptive weight
    "cube": (0.0, -2.0, 0.0, 0.0, 2.0, 4.0),
    "pusht": (0.0, 2.0, -2.0, 0.0, 2.0, 4.0),
    "reacher": (14.0, 6.0, -2.0, 4.0, 6.0, 12.0),
}
Weight = float | None  # None: adaptive


def _study(task: str, weight: Weight) -> Study:
    full = Study(task, MODEL, (BASELINE,))
    if weight is None:
        return Study(task, MODEL, ("acid",), against=full)
    return Study(task, MODEL, ("constant",), lam=weight, against=full)


def _studies() -> Iterator[Study]:
    for task in TASKS:
        yield Study(task, MODEL, (BASELINE,))
        yield from (_study(task, weight) for weight in (*WEIGHTS, None))


def _successes(findings: Findings, task: str, study: Study) -> dict[tuple[str, int, str], float]:
    return {(task, *row.pair): float(row.success) for row in findings.rows(study, study.conditions[0])}


def gain(findings: Findings, weight: Weight, tasks: tuple[str, ...], *, over: Weight | str = BASELINE) -> Paired | None:
    """Success with a weight less that of Original, or of another weight, over the episodes of some tasks together."""
    mine: dict = {}
    theirs: dict = {}
    for task in tasks:
        other = Study(task, MODEL, (BASELINE,)) if over == BASELINE else _study(task, over)  # type: ignore[arg-type]
        a, b = (_successes(findings, task, study) for study in (_study(task, weight), other))
        if not (a and b):
            return None
        mine, theirs = mine | a, theirs | b
    return paired(mine, theirs)


def _name(weight: Weight) -> str:
    return "adaptive" if weight is None else f"w {weight:g}"


def overview(findings: Findings) -> list[str]:
    """The paper's own form: a line per task, and their sum."""
    rows = []
    for tasks in (*((task,) for task in TASKS), TASKS):
        found = [gain(findings, weight, tasks) for weight in (*WEIGHTS, None)]
        papers = [sum(PUBLISHED[task][k] for task in tasks) for k in range(len(found))]
        name = tasks[0] if len(tasks) == 1 else "total Δ"
        cells = [
            f"{'-' if one is None else f'{100 * len(tasks) * one.difference:+.1f}'} ({paper:+.0f})"
            for one, paper in zip(found, papers, strict=True)
        ]
        rows.append([name, *cells])
    return [markdown(["Δ success, points (paper)", *map(_name, (*WEIGHTS, None))], rows, texts=1), ""]


def judge_constants(findings: Findings) -> Verdict | None:
    """Whether some constant improves all three tasks; one that does so for certain contradicts the paper."""
    better, certain = [], []
    for weight in WEIGHTS:
        gains = [gain(findings, weight, (task,)) for task in TASKS]
        found = [one for one in gains if one is not None]
        if len(found) < len(TASKS):
            return None
        better += [weight] if all(one.difference > 0 for one in found) else []
        certain += [weight] if all(one.low > 0 for one in found) else []
    kind = "contradicted" if certain else "not confirmed" if better else "confirmed"
    names = ", ".join(map(_name, better)) or "no constant"
    own = "The paper's own w 10 improves all three (+2, +2, +6)."
    return Verdict(kind, f"here {names} improves all three tasks, {len(certain)} of them for certain. {own}")


def judge_adaptive(findings: Findings) -> Verdict | None:
    """Whether the adaptive weight has the largest total."""
    gains = {f"over {_name(w)}": gain(findings, None, TASKS, over=w) for w in WEIGHTS}
    found = {name: one for name, one in gains.items() if one is not None}
    if len(found) < len(gains):
        return None
    return on_gains(found, reason=f"mean over the tasks of adaptive less constant: {told(found, share=True)}.")


def _published(line: Line) -> str:
    if line.condition == BASELINE:
        return "-"
    weights = (*WEIGHTS, None)
    place = weights.index(line.lam if line.condition == "constant" else None)
    return f"{PUBLISHED[line.study.task][place]:+.0f}"


def charts(findings: Findings) -> list[Chart]:
    """The change of success over the weight, a panel per task."""
    constant, adaptive = condition("constant").look, condition("acid").look
    panels = []
    for task in TASKS:
        found = [(w, g) for w in WEIGHTS if (g := gain(findings, w, (task,))) is not None]
        points = [Point(w, 100 * g.difference, 100 * g.low, 100 * g.high, f"{g.n} episodes") for w, g in found]
        paper = [Point(w, PUBLISHED[task][k]) for k, w in enumerate(WEIGHTS)]
        ours = gain(findings, None, (task,))
        levels = [Level(0.0, "Original"), *([] if ours is None else [Level(100 * ours.difference, adaptive)])]
        series = [Series(constant, points), Series(Look("constant, in the paper", constant.colour), paper, hollow=True)]
        panels.append(Panel(called(task), [s for s in series if s.points], levels))
    return [
        Chart("Constant against adaptive weight", "Change of success from Original under each constant weight; dashed "
              "lines: Original (0) and the adaptive weight.", panels, "constant weight w", "Δ success (points)",
              "points", {w: f"{w:g}" for w in WEIGHTS}),
    ]  # fmt: skip


WEIGHTING = Table(
    name="weighting",
    title="Table 4: constant weights against the adaptive one, Le-WM",
    studies=tuple(_studies()),
    episodes=200,
    before=overview,
    columns=(
        columns.TASK,
        columns.CONDITION,
        Column("w or λ", lambda line: lam(line.lam)),
        columns.N,
        *columns.SUCCESS,
        Column("published Δ", _published),
    ),
    texts=2,
    metrics=("success", "final_error"),
    claims=(
        Claim('"No single constant w improves all three tasks on Le-WM."', judge_constants),
        Claim('"Our scale-invariant adaptive weight yields the largest total improvement."', judge_adaptive),
    ),
    legend=(
        "CEM, N 300, J 30, K 30. constant: the consistency cost times w, the same always; acid: times λ σ_g/σ_a.",
        "A constant depends on the scale of the latents, so the paper's constants need not suit other world models.",
        "n paired held-out episodes; 95 % intervals, McNemar test; in brackets, and published: the paper's changes.",
    ),
    show=charts,
)
