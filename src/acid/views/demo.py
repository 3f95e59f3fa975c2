"""The demo: the same problems planned with the goal cost alone and with ACID, as a table, plots and films."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

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
from acid.report import (
    Look,
    Measured,
    Panel,
    consistency_per_step,
    error_over_steps,
    sheet,
    side_by_side,
    spreads,
    success_against_budget,
)
from acid.report.style import INK
from acid.views.episodes import imagined_frames, residuals, sheet_rows

SMALL = {"samples": 30, "elites": 3}  # a tenth of the published search, for models that plan in one latent vector
COMPARED = (BASELINE, "acid", "noop")
SHOWN = 3  # problems drawn as pictures


def run(
    cell: Cell,
    episodes: int | None,
    out: Path,
    *,
    processes: int = 2,
    progress: Progress = lambda done, total: None,
    device: str = "cpu",
    precision: str = "float32",
) -> str:
    """Plan, execute, compare, draw; returns the text to print."""
    kit, setup = kit_of(cell.model), cell.task_class.setup
    quick = kit.batch > 2
    spec = SearchSpec.usual(setup, **(SMALL if quick else {}), candidates=kit.candidates[0], repeats=kit.repeats)
    protocol = Protocol.of(setup, episodes=(40 if quick else 8) if episodes is None else episodes)
    films, instances = out / "films", cell.instances(protocol)
    jobs = []
    for name in COMPARED:
        lam = cell.chosen_lambda(condition(name))
        contender = CellContender(cell, name, lam, spec, device, precision, shares=False)
        jobs.append(Job(cell.task, (contender,), instances, protocol, out / "rows", kit.batch, True, films))
    Local(processes).run(jobs, progress)
    rows = {name: read_rows(job.files) for name, job in zip(COMPARED, jobs, strict=True)}
    bench = Bench(cell, spec, protocol, device=device, precision=precision)
    pictures = _draw(bench, rows, films, out)
    shutil.rmtree(films)
    lam = cell.chosen_lambda(condition("acid"))
    return "\n".join(
        [
            table(summarise_rows([row for some in rows.values() for row in some])),
            "",
            f"{protocol.episodes} held-out problems, the same for every row; {spec.label}, λ = {lam:g}, chosen on "
            "other episodes.",
            "Look at (problems on which the two differ come first):",
            *(f"  {path}" for path in pictures),
        ]
    )


def _draw(bench: Bench, rows: dict[str, list[Row]], films: Path, out: Path) -> list[Path]:
    paths = []
    planned = [name for name in COMPARED if condition(name).searches]
    loaded: dict[str, list[Film]] = {name: [] for name in planned}
    for number, instance in enumerate(_telling(rows[BASELINE], rows["acid"], SHOWN)):
        both = {name: Film.load(films / name / f"{instance}.npz") for name in planned}
        for name, film in both.items():
            loaded[name].append(film)
        path = out / f"problem-{number}.png"
        drawn = [row for name, film in both.items() for row in sheet_rows(name, film, bench)]
        first = both[BASELINE]
        titles = [f"step {t + 1}" for t in range(max(len(row.frames) for row in drawn))]
        heading = f"{bench.cell.task}, {instance}: {_outcome(rows, instance)}"
        sheet(path, drawn, start=first.frames[0], goal=first.goal, titles=titles, heading=heading)
        side_by_side(path.with_suffix(".mp4"), _panels(both, bench))
        paths += [path, path.with_suffix(".mp4")]
    return [*paths, _draw_outcome(rows, bench, out), *_draw_search(loaded, bench, out)]


def _outcome(rows: dict[str, list[Row]], instance: str) -> str:
    """What became of an instance under each planner."""
    found = {name: next(row for row in rows[name] if row.instance == instance) for name in (BASELINE, "acid")}

    def outcome(row: Row) -> str:
        return f"{'reached' if row.success else 'missed'} ({row.final_error:.2f} {row.error_unit})"

    return ", ".join(f"{condition(name).look.label} {outcome(row)}" for name, row in found.items())


def _draw_outcome(rows: dict[str, list[Row]], bench: Bench, out: Path) -> Path:
    """Success with intervals, or the error over the steps where success is not what counts."""
    found = {s.condition: s for s in summarise_rows([row for some in rows.values() for row in some])}
    if bench.task.metric == "success":
        bars = {condition(name).look: Measured(s.mean, s.low, s.high) for name, s in found.items()}
        planners = {condition(n).look: {bench.spec.samples: bars[condition(n).look]} for n in (BASELINE, "acid")}
        idle = condition("noop").look
        title = "success with 95 % intervals"
        success_against_budget(out / "success.png", planners, baselines={idle: bars[idle]}, title=title)
        return out / "success.png"
    curves = {condition(name).look: _curve(some) for name, some in rows.items()}
    unit = bench.task.error_unit
    error_over_steps(out / "error.png", {bench.cell.task: curves}, error=f"error ({unit})", step="model steps")
    return out / "error.png"


def _curve(rows: Sequence[Row]) -> list[Measured]:
    values = np.array([[row.initial_error, *row.errors] for row in rows])
    half = 1.96 * values.std(0, ddof=min(1, len(values) - 1)) / np.sqrt(len(values))
    return [Measured(m, m - h, m + h) for m, h in zip(values.mean(0).tolist(), half.tolist(), strict=True)]


def _draw_search(films: dict[str, list[Film]], bench: Bench, out: Path) -> list[Path]:
    """Residuals of the imagined steps, and how the spreads of the costs develop while ACID searches."""
    first = {name: [residuals(film)[: bench.spec.horizon] for film in some] for name, some in films.items()}
    shortest = min(len(one) for some in first.values() for one in some)
    paths = []
    if shortest:
        steps = {condition(name).look: np.stack([one[:shortest] for one in some]) for name, some in first.items()}
        paths.append(out / "consistency.png")
        consistency_per_step(paths[-1], steps, title="Residual per imagined step")
    plans = [plan for film in films["acid"] for plan in film.plans if "consistency" in plan.spreads]
    if plans:
        goal, consistency = (np.stack([p.spreads[n] for p in plans], 1) for n in ("goal", "consistency"))
        weight = np.stack([plan.weights["consistency"] for plan in plans], 1)
        paths.append(out / "spreads.png")
        curves = {condition("acid").look: (goal, consistency, weight)}
        spreads(paths[-1], curves, title="Spread of the costs while searching")
    return paths


def _panels(both: dict[str, Film], bench: Bench) -> list[Panel]:
    panels = []
    for name, film in both.items():
        look, frames = condition(name).look, np.stack(film.frames)
        imagined = imagined_frames(film, bench)
        if imagined is not None:
            shown = np.concatenate([frames[:1], imagined])
            held = np.minimum(np.arange(len(frames)) // bench.task.frameskip, len(shown) - 1)
            panels.append(Panel(look, shown[held], "imagined"))  # held until the next imagined frame
        panels.append(Panel(look, frames, "executed"))
    return [*panels, Panel(Look("goal", INK), both[BASELINE].goal[None])]


def _telling(original: Sequence[Row], acid: Sequence[Row], count: int) -> list[str]:
    """Instances on which the two differ, first those that only ACID solves, or where its error is much smaller."""
    other = {row.instance: row for row in original}
    scale = float(np.mean([row.initial_error for row in original]))

    def order(row: Row) -> tuple[float, float]:
        gain = int(row.success) - int(other[row.instance].success)
        return -abs(gain) * 2 - gain, (row.final_error - other[row.instance].final_error) / scale

    return [row.instance for row in sorted(acid, key=order)[:count]]
