"""An episode as pictures: what a planner imagined above what then happened."""

from __future__ import annotations

from contextlib import closing

import numpy as np

from acid import tasks
from acid.evaluation import Bench, Episode, Instance, condition, play
from acid.evaluation.play import Film
from acid.report import SheetRow
from acid.views.recording import Recording

BLUR = "A decoder draws what is imagined from latents; it blurs what they do not tell."


def replay(bench: Bench, name: str, lam: float | None, instance: Instance) -> Episode:
    """Play one instance with a film, through the same loop and with the same seeds as an evaluation."""
    agent = condition(name).build(bench, lam)
    with closing(tasks.make(bench.cell.task, size=bench.model.observation_size)) as task:
        (episode,) = play(task, agent, [instance], protocol=bench.protocol, film=True)
    return episode


def imagined_frames(film: Film, bench: Bench) -> np.ndarray | None:
    """Pictures uint8 [T, S, S, 3] of every imagined model step that was executed; None if nothing can draw them."""
    if bench.decoder is None or not film.plans:
        return None
    steps = len(step_ends(film, bench))
    images = np.concatenate([bench.decoder(plan.imagined[1:]).numpy(force=True) for plan in film.plans])[:steps]
    factor = film.frames[0].shape[0] // images.shape[1]  # some decoders draw smaller pictures
    return images.repeat(factor, 1).repeat(factor, 2) if factor > 1 else images


def step_ends(film: Film, bench: Bench) -> list[int]:
    """The frames at which a model step was over; the last may have ended early, with the episode."""
    last = len(film.frames) - 1
    return [*range(bench.task.frameskip, last, bench.task.frameskip), last]


def executed_frames(film: Film, bench: Bench) -> np.ndarray:
    """Pictures uint8 [T, S, S, 3] after every model step."""
    return np.stack([film.frames[k] for k in step_ends(film, bench)])


def residuals(film: Film) -> np.ndarray:
    """Of every imagined model step."""
    return np.concatenate([plan.residuals for plan in film.plans]) if film.plans else np.zeros(0)


def amount(error: float, unit: str) -> str:
    """An error with its unit; a unit such as "10 cm" is multiplied out."""
    size, _, name = unit.partition(" ")
    return f"{int(size) * error:.1f} {name}" if size.isdigit() else f"{error:.2f} {unit}"


def sheet_rows(name: str, film: Film, bench: Bench) -> list[SheetRow]:
    """Imagined above executed at every model step, with residuals and errors; without a decoder only executed."""
    frames, imagined = executed_frames(film, bench), imagined_frames(film, bench)
    errors = [film.errors[k] for k in step_ends(film, bench)]
    look = condition(name).look
    rows = [SheetRow(look, "executed", frames, [amount(error, bench.task.error_unit) for error in errors])]
    if imagined is None:
        return rows
    notes = [f"residual {value:.1f}" for value in residuals(film)[: len(imagined)]]
    return [SheetRow(look, "imagined", imagined, notes), *rows]


def record_episode(recording: Recording, film: Film, bench: Bench) -> None:
    """What was imagined and what then happened, step by step."""
    imagined = imagined_frames(film, bench)
    recording.show("goal", film.goal[None])
    recording.show("executed", np.concatenate([film.frames[0][None], executed_frames(film, bench)]))
    if imagined is not None:
        recording.show("imagined", imagined, first=1)
    recording.plot("residual", residuals(film), first=1)
    recording.plot("error", np.array([film.errors[k] for k in (0, *step_ends(film, bench))]))
