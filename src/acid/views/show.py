"""Plan one held-out problem and show the plan."""

from __future__ import annotations

from pathlib import Path

from acid.errors import AcidError
from acid.evaluation import BASELINE, Bench, Cell, Protocol, SearchSpec, condition
from acid.report import sheet
from acid.report.images import picture_format
from acid.views.episodes import BLUR, amount, record_episode, replay, residuals, sheet_rows
from acid.views.recording import Recording


def show_plan(
    cell: Cell,
    problem: int,
    spec: SearchSpec,
    *,
    lam: float | None = None,
    data: Path | None = None,
    seed: int = 0,
    out: Path | None = None,
    device: str = "cpu",
    precision: str = "float32",
    compile: bool = False,
    rerun: Path | None = None,
) -> str:
    """Plan for one instance with ACID, or with the goal cost alone if λ is 0; returns the text to print.

    rerun: record the search and the episode here, for the rerun viewer.
    """
    if problem < 0:
        raise AcidError(f"problems are counted from 0, got {problem}")
    if out is not None:
        picture_format(out)  # complains before anything is planned
    name = BASELINE if lam == 0 else "acid"
    lam = None if name == BASELINE else cell.chosen_lambda(condition(name)) if lam is None else lam
    setup = cell.task_class.setup
    protocol = Protocol(setup.goal_offset, spec.horizon * cell.task_class.frameskip, seed, problem + 1)
    scaler = cell.stored("model").scaler
    assert scaler is not None  # every world model has one
    recording = None if rerun is None else Recording(rerun, scaler)
    bench = Bench(cell, spec, protocol, device=device, precision=precision, compile=compile, observer=recording)
    drawn = cell.instances(Protocol.of(setup, episodes=problem + 1), data)
    episode = replay(bench, name, lam, drawn.unsolved[problem])
    film = episode.film
    assert film is not None
    unit, steps = bench.task.error_unit, residuals(film)
    lines = [
        f"{cell.task} with {cell.model}, problem {problem} ({episode.instance.id}): {condition(name).look.label}"
        + ("" if lam is None else f", λ {lam:g}"),
        f"step  residual  error after it (in {unit})",
    ]
    errors = film.errors[:: bench.task.frameskip][1:]
    for step, error in enumerate(errors):
        residual = f"{steps[step]:8.2f}" if step < len(steps) else "       -"
        lines.append(f"{step + 1:4d}  {residual}  {error:.3f}")
    outcome = f"; goal {'reached' if episode.success else 'not reached'} within this plan"
    lines.append(
        f"error {amount(film.errors[0], unit)} at the start, {amount(film.errors[-1], unit)} at the end"
        f"{outcome if bench.task.metric == 'success' else ''} ({episode.cpu_seconds:.2f} CPU s)"
    )
    if out is not None:
        rows = sheet_rows(name, film, bench)
        titles = [f"step {t + 1}" for t in range(len(rows[-1].frames))]
        heading = lines[0] + (f"\n{BLUR}" if len(rows) > 1 else "")
        sheet(out, rows, start=film.frames[0], goal=film.goal, titles=titles, heading=heading)
        lines.append(f"wrote {out}" + ("" if len(rows) > 1 else " (no decoder, so only what was executed)"))
    if recording is not None:
        record_episode(recording, film, bench)
        recording.close()
        lines.append(f"wrote {rerun}; look at it with: rerun {rerun}")
    return "\n".join(lines)
