"""Beyond the paper: what a search finds against how many candidates it looks at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from acid.evaluation import condition
from acid.report.chart import Chart, Level, Panel, Point, Series
from acid.report.figures import draw_chart
from acid.report.style import Look
from acid.tables import columns
from acid.tables.names import called
from acid.tables.planning import MODELS, TASKS
from acid.tables.proposals import FEEDBACK, SEARCHED, SIZES, STD, TINY, candidates_of
from acid.tables.table import Claim, Findings, Line, Study, Table
from acid.tables.verdict import Verdict, judge_gains

NARROW = {"samples": 30, "iterations": 30, "elites": 3}
MIDDLE = {"samples": 90, "iterations": 10, "elites": 9}
OPEN = (TINY, SIZES, NARROW, {})  # 30, 150, 900 and 9 000 candidates a plan
CLOSED = (TINY, SIZES, MIDDLE)  # 30, 150 and 900 candidates a plan, but more plans
SEARCHES = ("original", "acid")
PROPOSED = ("proposal", "proposal-acid")


def _curves(task: str, model: str) -> dict[str, tuple[Study, ...]]:
    """The searches of a cell, those with the fewest candidates first."""
    full = Study(task, model, ("original",))
    return {
        "open": tuple(Study(task, model, SEARCHES, sizes, against=full) for sizes in OPEN),
        "closed": tuple(Study(task, model, SEARCHES, sizes | FEEDBACK, against=full) for sizes in CLOSED),
        "proposed": tuple(Study(task, model, PROPOSED, s | FEEDBACK, options=STD, against=full) for s in CLOSED),
    }


def _studies() -> Iterator[Study]:
    for model in MODELS:
        for task in TASKS:
            yield from (study for curve in _curves(task, model).values() for study in curve)
            yield Study(task, model, ("policy",), against=Study(task, model, ("original",)))


def judge_few(findings: Findings) -> Verdict | None:
    """Whether the smallest closed-loop search from a proposal beats Original with all its candidates."""
    smallest = [_curves(task, model)["proposed"][0] for model in MODELS for task in TASKS]
    return judge_gains(findings.gains("proposal-acid", "original", where=lambda study: study in smallest))


def judge_closed(findings: Findings, kind: str, name: str, other: str) -> Verdict | None:
    """Whether a condition gains on another in closed loop, both with the most candidates."""
    largest = [_curves(task, model)[kind][-1] for model in MODELS for task in TASKS]
    return judge_gains(findings.gains(name, other, where=lambda study: study in largest), than="the goal cost alone")


def _points(findings: Findings, studies: tuple[Study, ...], name: str) -> list[Point]:
    found = []
    for study in studies:
        if rows := findings.rows(study, name):
            line = Line(study, name, None, rows, [])
            mean = line.mean("success")
            note = f"{mean.n} episodes"
            found.append(Point(candidates_of(line), 100 * mean.mean, 100 * mean.low, 100 * mean.high, note))
    return found


def charts(findings: Findings) -> list[Chart]:
    """Success over the candidates of an episode, a panel per cell."""
    drawn = (
        ("open", "original", condition("original").look),
        ("open", "acid", condition("acid").look),
        ("closed", "original", Look("Original, closed loop", "#b0b0b0", "s")),
        ("closed", "acid", Look("ACID, closed loop", "#56b4e9", "o")),
        ("proposed", "proposal", Look("Proposal, closed loop", "#117733", "s")),
        ("proposed", "proposal-acid", Look("Proposal + ACID, closed loop", "#d55e00", "o")),
    )
    panels = []
    for model in MODELS:
        for task in TASKS:
            curves = _curves(task, model)
            series = [Series(look, _points(findings, curves[kind], name)) for kind, name, look in drawn]
            policy = findings.rows(Study(task, model, ("policy",)), "policy")
            levels = [Level(100 * Line(curves["open"][0], "policy", None, policy, []).mean("success").mean,
                            condition("policy").look)] if policy else []  # fmt: skip
            panels.append(Panel(f"{called(task)}, {called(model)}", [s for s in series if s.points], levels))
    text = "Success over the candidates that a planner looks at in an episode; the dashed line is the policy alone."
    ticks = {float(10**k): f"{10**k:,}".replace(",", " ") for k in range(2, 5)}
    return [
        Chart(
            "Quality against compute", text, panels, "candidates in an episode", "success (%)", "%", ticks, log_x=True
        )
    ]


def draw(findings: Findings, folder: Path) -> list[Path]:
    return [draw_chart(folder / "compute.png", chart, columns=len(TASKS)) for chart in charts(findings)]


COMPUTE = Table(
    name="compute",
    title="Quality against compute: success over the candidates of an episode",
    studies=tuple(_studies()),
    episodes=200,
    columns=(
        columns.MODEL,
        columns.TASK,
        *SEARCHED,
        *columns.compared("success", "success", share=True, against="Original N 300"),
    ),
    texts=3,
    metrics=("success", "final_error"),
    claims=(
        Claim("A search from a proposal in closed loop beats Original with 30 candidates a plan instead of 9 000.",
              judge_few, published=False),
        Claim("In closed loop ACID gains on Original, 900 candidates a plan.",
              lambda findings: judge_closed(findings, "closed", "acid", "original"), published=False),
        Claim("From a proposal in closed loop ACID gains on the goal cost alone, 900 candidates a plan.",
              lambda findings: judge_closed(findings, "proposed", "proposal-acid", "proposal"), published=False),
    ),
    legend=(
        "looks after: model steps that are executed before the next decision; 5 is open loop, as published, 1 is",
        "closed loop, with plans that become shorter as the goal comes nearer. candidates: in an episode, on average.",
        "A plan takes N × J candidates: 10 × 3, 30 × 5, 30 × 30 (open loop) or 90 × 10 (closed loop), 300 × 30.",
        "proposal: the search starts where the policy would go, with a standard deviation of 0.3. acid, proposal-acid:",
        "with the λ that was chosen for ACID at N 300 in open loop.",
        "n paired held-out episodes; 95 % intervals, McNemar test.",
    ),
    draw=draw,
    show=charts,
)  # fmt: skip
