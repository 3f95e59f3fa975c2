"""Beyond the paper: which part of the residual helps. What two frames tell is a check, the rest a prior on actions."""

from __future__ import annotations

from acid.evaluation import BASELINE, condition
from acid.evaluation.table import difference, p_value
from acid.report.chart import Bar, Forest
from acid.tables import columns
from acid.tables.names import called
from acid.tables.planning import CHOICE as USUAL
from acid.tables.planning import MODELS, TASKS
from acid.tables.studies import gain_of
from acid.tables.table import Choice, Claim, Findings, Study, Table

PARTS = ("told", "untold")
COMPARED = ("acid", *PARTS, "control")
CHOICE = Choice(dict.fromkeys(PARTS, (0.07, 0.2, 0.5)), 40, USUAL.sizes)


def over_all(findings: Findings) -> list[str]:
    """Each part against Original over all cells that have both; one line a part."""
    lines = []
    for name in COMPARED:
        cells = [study for study in findings.studies if findings.rows(study, name) and findings.rows(study, BASELINE)]
        if cells:
            gain = findings.gain_over(((cell, name), (cell, BASELINE)) for cell in cells)
            assert gain is not None
            told = f"{difference(gain, share=True)}, p {p_value(gain)}"
            lines.append(f"{name}, {len(cells)} cells, {gain.n} problems: {told}")
    return lines


def forests(findings: Findings) -> list[Forest]:
    """Each part's gain on Original, a forest per cell."""
    drawn = []
    for study in findings.studies:
        gains = {name: findings.compare(study, name, BASELINE, "success") for name in COMPARED}
        bars = [
            Bar(condition(name).look.label, 100 * g.difference, 100 * g.low, 100 * g.high, note=f"{g.n} episodes")
            for name, g in gains.items()
            if g is not None
        ]
        title = f"{called(study.task)}, {called(study.model)}"
        text = "Change of success from Original with each part of the residual, in points."
        drawn += [Forest(title, text, bars, "points")] if bars else []
    return drawn


PARTS_TABLE = Table(
    name="parts",
    title="Which part of the residual helps: what two frames tell, and what they do not",
    studies=tuple(
        Study(task, model, (BASELINE, *COMPARED), choice=CHOICE, episodes={"untold": 100})
        for model in MODELS
        for task in TASKS
    ),
    episodes=200,
    columns=(
        columns.MODEL,
        columns.TASK,
        columns.CONDITION,
        columns.LAMBDA,
        columns.N,
        *columns.SUCCESS,
    ),
    texts=3,
    metrics=("success", "final_error"),
    claims=(
        Claim(
            "The part of the residual that two frames tell, checked alone, gains on Original.",
            gain_of("told", BASELINE),
            published=False,
        ),
        Claim(
            "The part that they do not tell, a prior on actions, gains alone.",
            gain_of("untold", BASELINE),
            published=False,
        ),
    ),
    legend=(
        "told: the residual along directions of an action of which the verifier explains more than half of the",
        "variance; untold: along the others; acid: the paper's residual, all of it.",
        "control: a penalty on large actions. CEM, N 300, J 30, K 30, in open loop. One λ per world model and",
        "condition, chosen of 0.07, 0.2 and 0.5 on 40 other episodes of each task with N 100.",
        "n paired held-out episodes; 95 % intervals, McNemar test.",
    ),
    after=over_all,
    show=forests,
)
