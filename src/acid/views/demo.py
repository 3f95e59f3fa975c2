"""The demo: the same problems under several planners, as a table, a picture and a film.

With the goal cost alone, with ACID and, if the cell has a policy, with a smaller search that starts from its actions.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np

from acid.evaluation import (
    BASELINE,
    Bench,
    Cell,
    CellContender,
    Job,
    Local,
    Protocol,
    Row,
    SearchSpec,
    condition,
    summarise_rows,
    table,
)
from acid.evaluation.jobs import Progress
from acid.evaluation.kits import kit_of
from acid.evaluation.play import Film
from acid.evaluation.rows import read_rows
from acid.report import Clip, Ending, Look, Measured, error_over_steps, sheet, side_by_side, success_against_budget
from acid.report.style import INK
from acid.tasks import Task
from acid.views.episodes import BLUR, amount, imagined_frames, sheet_rows
from acid.views.names import called

MODEL = "lewm-shapes"  # if there is a choice: its imagination shows how the block lies
SMALL = {"samples": 30, "elites": 3}  # a tenth of the published search, for models that plan in one latent vector
PROPOSED = "proposal-acid"
IDLE = "noop"
GHOST = 0.35  # how strongly the goal is drawn over what happened


def run(
    cell: Cell,
    episodes: int | None,
    out: Path,
    *,
    data: Path | None = None,
    processes: int = 2,
    progress: Progress = lambda done, total: None,
    device: str = "cpu",
    precision: str = "float32",
) -> str:
    """Plan, execute, compare, draw; returns the text to print."""
    kit, setup = kit_of(cell.model), cell.task_class.setup
    quick = kit.batch > 2
    usual = {"candidates": kit.candidates[0], "repeats": kit.repeats}
    spec = SearchSpec.usual(setup, **(SMALL if quick else {}), **usual)
    specs = {BASELINE: spec, "acid": spec}
    if cell.has("policy"):
        specs[PROPOSED] = SearchSpec.usual(setup, **kit.proposed, **usual)
    protocol = Protocol.of(setup, episodes=(40 if quick else 5) if episodes is None else episodes)
    films, instances = out / ".films", cell.instances(protocol, data)  # of our own, to be removed at the end
    jobs = {}
    for name, search in {**specs, IDLE: spec}.items():
        lam = cell.chosen_lambda(condition(name))
        contender = CellContender(cell, name, lam, search, device, precision, shares=False)
        jobs[name] = Job(cell.task, (contender,), instances, protocol, out / "rows", kit.batch, True, films)
    Local(processes).run(list(jobs.values()), progress)
    rows = {name: {row.instance: row for row in read_rows(job.files)} for name, job in jobs.items()}
    bench = Bench(cell, spec, protocol, device=device, precision=precision)
    shown = _best({name: list(rows[name].values()) for name in specs if name != BASELINE})
    instance, why = clearest(condition(shown).look.label, *(list(rows[name].values()) for name in (BASELINE, shown)))
    drawn = {name: Film.load(films / name / f"{instance}.npz") for name in specs}
    pictures = _draw(bench, drawn, {name: rows[name][instance] for name in drawn}, why, out)
    shutil.rmtree(films)
    lam = cell.chosen_lambda(condition("acid"))
    told = "; ".join(f"{name}: {search.label}" for name, search in specs.items())
    return "\n".join(
        [
            table(summarise_rows([row for some in rows.values() for row in some.values()])),
            "",
            f"Held-out problems: {protocol.episodes}, the same for every row. λ = {lam:g}, chosen on other episodes.",
            f"Searches: {told}.",
            f"Shown is problem {instance}: {why}.",
            "Look at:",
            *(f"  {path}" for path in [*pictures, _draw_outcome(rows, bench, out)]),
        ]
    )


def _best(rows: Mapping[str, Sequence[Row]]) -> str:
    """The planner that reached most goals, or ended nearest to them where success does not count."""

    def worth(name: str) -> float:
        if rows[name][0].metric == "success":
            return fmean(row.success for row in rows[name])
        return -fmean(row.final_error for row in rows[name])

    return max(rows, key=worth)


def clearest(label: str, original: Sequence[Row], other: Sequence[Row]) -> tuple[str, str]:
    """The instance that is shown, and the rule by which it was chosen.

    The problem on which the other planner's final error is the smallest share of Original's: where success counts,
    among those that only it reached, if there are any.
    """
    base = {row.instance: row for row in original}
    only, worse = ([r for r in other if r.success > base[r.instance].success], [])
    if other[0].metric == "success":
        worse = [row for row in other if row.success < base[row.instance].success]
        rule = f"of the {len(only)} that only {label} reached ({len(worse)} only Original)"
        if not only:
            rule = f"of all, because {label} reached none that Original missed"
    else:
        better = sum(row.final_error < base[row.instance].final_error for row in other)
        only, rule = [], f"of all {len(other)} ({label} ends nearer to the goal on {better})"

    def share(row: Row) -> float:
        return row.final_error / max(base[row.instance].final_error, 1e-9)

    told = f"{rule}, it has the smallest final error of {label} as a share of Original's"
    return min(only or other, key=share).instance, told


def _draw(bench: Bench, films: Mapping[str, Film], rows: Mapping[str, Row], why: str, out: Path) -> list[Path]:
    """The whole episode under every planner, as a picture and as a film that may be looped."""
    verdicts = {name: judge(row, bench.task) for name, row in rows.items()}
    drawn, panels = [], []
    for name, film in films.items():
        *imagined, executed = sheet_rows(name, film, bench)
        expected, notes, marked = rows[name].imagined_errors[: len(executed.frames)], [], []
        if expected and len(expected) == len(rows[name].errors):  # else nothing reads errors from what is imagined
            notes = [f"expects error {amount(error, bench.task.error_unit)}" for error in expected]
            marked = [int(np.argmax(np.subtract(rows[name].errors, expected)))]
        imagined = [replace(row, kind="imagines", notes=notes, marked=marked) for row in imagined]
        errors = [f"error {note}" for note in executed.notes]
        happens = replace(executed, kind="happens", notes=errors, marked=marked, verdict=verdicts[name])
        drawn += [*imagined, replace(happens, frames=ghost(executed.frames, film.goal))]
        panels += _panels(name, film, verdicts[name], bench)
    first = films[BASELINE]
    columns = max(len(row.frames) for row in drawn)
    titles = [f"step {t * bench.task.frameskip}" for t in range(1, columns + 1)]  # of the task, as in the verdicts
    heading = f"{called(bench.cell.task)}: same start, goal and world model. ACID also checks what the model imagines."
    if PROPOSED in films:
        heading += " A proposal starts its smaller search where a learned policy would go."
    boxes = " Red boxes: where the error exceeds the expected one most." if any(row.marked for row in drawn) else ""
    blur = f" {BLUR}" if any(row.kind == "imagines" for row in drawn) else ""
    legend = f"The goal is drawn faintly over what happens.{blur}{boxes}\nWhy this problem: {why}."
    ends = {"start": first.frames[0], "goal": first.goal}
    scale = max(1, 160 // len(first.goal))
    sheet(out / "demo.png", drawn, **ends, titles=titles, heading=f"{heading}\n{legend}", scale=scale)
    panels.append(Clip(Look("goal", INK), first.goal[None]))
    paths = [out / "demo.png", out / "demo.gif", out / "demo.mp4"]
    for path in paths[1:]:
        side_by_side(path, panels, scale=scale, heading=heading, seconds=5, hold=2.5)
    return paths


def judge(row: Row, task: Task) -> Ending:
    """How an episode ended: reached or missed where success counts, else how far from the goal."""
    unit = task.error_unit
    if task.metric == "success":
        below = [] if task.tolerance is None else [f"must be below {task.tolerance:g}"]
        if row.success:
            return Ending("REACHED", True, [f"at step {row.steps}: {amount(row.final_error, unit)}", *below])
        nearest = f"nearest in {row.steps} steps: {amount(row.best_error or row.final_error, unit)}"
        return Ending("MISSED", False, [nearest, *below])
    near = row.final_error < 0.5 * row.initial_error
    left = f"{'less' if near else 'more'} than half of it is left"
    details = [f"{amount(row.initial_error, unit)} at the start", left]
    return Ending(f"{amount(row.final_error, unit)} OFF", near, details)


def ghost(frames: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Frames uint8 [T, S, S, 3] with the goal [S, S, 3] faintly over them."""
    return ((1 - GHOST) * frames + GHOST * goal).round().astype(np.uint8)


def _panels(name: str, film: Film, verdict: Ending, bench: Bench) -> list[Clip]:
    """What was imagined, if it can be drawn, beside what happened."""
    look, frames = condition(name).look, np.stack(film.frames)
    notes = [f"step {step}: error {amount(error, bench.task.error_unit)}" for step, error in enumerate(film.errors)]
    happened = Clip(look, ghost(frames, film.goal), "happens", notes, verdict)
    imagined = imagined_frames(film, bench)
    if imagined is None:
        return [happened]
    shown = np.concatenate([frames[:1], imagined])
    held = np.minimum(-(-np.arange(len(frames)) // bench.task.frameskip), len(shown) - 1)
    return [Clip(look, shown[held], "imagines"), happened]  # each imagined frame until its step is done


def _draw_outcome(rows: Mapping[str, Mapping[str, Row]], bench: Bench, out: Path) -> Path:
    """Success with intervals, or the error over the steps where success is not what counts."""
    found = {s.condition: s for s in summarise_rows([row for some in rows.values() for row in some.values()])}
    if bench.task.metric == "success":
        bars = {condition(name).look: Measured(s.mean, s.low, s.high) for name, s in found.items()}
        spec = {name: next(iter(some.values())).search for name, some in rows.items()}
        planners = {condition(n).look: {s.samples: bars[condition(n).look]} for n, s in spec.items() if s is not None}
        idle = condition(IDLE).look
        title = "success with 95 % intervals"
        success_against_budget(out / "success.png", planners, baselines={idle: bars[idle]}, title=title)
        return out / "success.png"
    curves = {condition(name).look: _curve(list(some.values())) for name, some in rows.items()}
    unit = bench.task.error_unit
    error_over_steps(out / "error.png", {called(bench.cell.task): curves}, error=f"error ({unit})", step="model steps")
    return out / "error.png"


def _curve(rows: Sequence[Row]) -> list[Measured]:
    values = np.array([[row.initial_error, *row.errors] for row in rows])
    half = 1.96 * values.std(0, ddof=min(1, len(values) - 1)) / np.sqrt(len(values))
    return [Measured(m, m - h, m + h) for m, h in zip(values.mean(0).tolist(), half.tolist(), strict=True)]
