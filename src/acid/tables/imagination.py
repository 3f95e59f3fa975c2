"""The paper's pictures of rollouts: what was imagined beside what happened, of the episode that was scored."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from acid import tasks
from acid.evaluation import BASELINE, Bench, Episode, Row, condition
from acid.evaluation.jobs import Progress
from acid.report.reel import Curve, Reel, Track
from acid.report.style import IMAGINED, INK, TRUE
from acid.tables import deformable, navigation, rollouts
from acid.tables.names import EVERY_CELL, called
from acid.tables.sheets import AWAY, GOAL, draw_film, instance_of, median_gain, replayed
from acid.tables.table import Findings, Study, Table
from acid.views.episodes import amount, imagined_frames, replay, residuals

COMPARED = (BASELINE, "acid")
FILE, TRUE_ACTIONS = "imagination.npz", "imagination-true-actions.npz"
QUANTILE = 0.7  # of the mean residual: which case of navigation is shown under its true actions
RESIDUAL = "residual ‖a − â‖² of each imagined step, in standard deviations of the actions squared"
RULE = "the episode with the median gain (difference of the final errors)"


def file_of(findings: Findings, study: Study, name: str = FILE) -> Path:
    return findings.options.results / study.task / study.model / name


def record(findings: Findings, progress: Progress) -> list[str]:
    """Play the chosen episode of every cell again with a film, unless that was done with these weights and rows."""
    told = []
    for done, study in enumerate(findings.studies):
        progress(done, len(findings.studies))
        rows = median_gain(findings, study)
        if not rows:
            continue
        bench = findings.bench(study)
        if bench.decoder is None:
            told.append(f"only what happened is shown: {_no_decoder(study)}")
        made_of = _made_of(findings, study, rows)
        if not _is_made_of(file_of(findings, study), made_of):
            reel(bench, study, rows, findings).save(file_of(findings, study), **made_of)
        if study.model == navigation.MODEL and not _is_made_of(file_of(findings, study, TRUE_ACTIONS), made_of):
            true_actions(bench, findings).save(file_of(findings, study, TRUE_ACTIONS), **made_of)
    progress(len(findings.studies), len(findings.studies))
    return told


def _made_of(findings: Findings, study: Study, rows: dict[str, Row]) -> dict[str, Any]:
    cell = findings.cell(study)
    parts = [part for part in ("model", "verifier", "decoder") if cell.has(part)]
    return {"instance": rows["acid"].instance, "lambda": findings.lam(study, "acid"),
            "checkpoints": cell.fingerprints(parts)}  # fmt: skip


def _is_made_of(path: Path, wanted: dict[str, Any]) -> bool:
    return path.is_file() and Reel.load(path)[1] == wanted


def reel(bench: Bench, study: Study, rows: dict[str, Row], findings: Findings) -> Reel:
    """Original's and ACID's films of one instance, in step."""
    instance, tracks, curves, differs = instance_of(findings, study, rows[BASELINE]), [], [], ""
    for name in COMPARED:
        episode = replay(bench, name, findings.lam(study, name), instance)
        differs += replayed(episode, rows[name])
        tracks += _tracks(name, episode, bench)
        look, found = condition(name).look, residuals(_film(episode))
        curves.append(Curve(look.label, look.colour, [round(float(v), 4) for v in found]))
    goal = _film(episode).goal
    ticks = max(len(track.index) for track in tracks)
    tracks.append(Track(GOAL, "", INK, goal[None], [0] * ticks))
    outcome = "; ".join(f"{condition(n).look.label} {_outcome(rows[n])}" for n in COMPARED)
    text = f"{RULE[0].upper()}{RULE[1:]}: {outcome}{differs}."
    text += "" if bench.decoder else f" What was imagined is not drawn: {_no_decoder(study)}."
    text += f" Problem {instance.id}."
    return Reel(f"{called(study.task)}, {called(study.model)}", text, tracks, curves, RESIDUAL, bench.task.frameskip)


def _film(episode: Episode) -> Any:
    assert episode.film is not None  # replayed with one
    return episode.film


def _outcome(row: Row) -> str:
    reached = f"{'reached' if row.success else 'missed'}, " if row.metric == "success" else ""
    return f"{reached}{amount(row.final_error, row.error_unit)}{AWAY} at the end"


def _no_decoder(study: Study) -> str:
    train = f"`acid train decoder {study.model} --task {study.task}` trains one"
    return f"{study.task} with {study.model} has no decoder, and {train}"


def _tracks(name: str, episode: Episode, bench: Bench) -> list[Track]:
    """What was executed, and before it what was imagined if it can be drawn."""
    film, look, unit, skip = _film(episode), condition(name).look, bench.task.error_unit, bench.task.frameskip
    frames, imagined = np.stack(film.frames), imagined_frames(film, bench)
    notes = [f"{amount(error, unit)}{AWAY}" for error in film.errors]
    tracks = [Track(look.label, "executed", look.colour, frames, list(range(len(frames))), notes)]
    if imagined is None:
        return tracks
    shown = np.concatenate([frames[:1], imagined])
    steps = [min(-(-tick // skip), len(shown) - 1) for tick in range(len(frames))]  # the step that is under way
    values = residuals(film)
    told = ["seen", *(f"residual {value:.2f}" for value in values)]
    notes = [told[min(step, len(told) - 1)] for step in steps]
    return [Track(look.label, "imagined", look.colour, shown, steps, notes), *tracks]


def true_actions(bench: Bench, findings: Findings) -> Reel:
    """Navigation under the actions that were really taken: recorded beside imagined."""
    kept = rollouts.Rollouts.load(rollouts.rollouts_file(bench.cell, findings.options.results))
    case = int(np.argsort(kept.score.mean(1))[round(QUANTILE * (len(kept.score) - 1))])
    instance = next(i for i in bench.cell.instances(bench.protocol) if i.id == kept.instances[case])
    kit: Any = bench.kit
    with closing(tasks.make(bench.cell.task, size=kit.model.observation_size)) as task:
        found = rollouts.imagine(kit, instance, bench.protocol, task)  # type: ignore[arg-type]
    ticks = list(range(len(found.true)))
    tracks = [
        Track("recorded", "", TRUE, found.true.numpy(), ticks),
        Track("NWM", "imagined", IMAGINED, rollouts.pixels(kit.model.decode(found.latents)), ticks),
    ]
    curves = [
        Curve(name, colour, [round(float(v), 4) for v in values[case]])
        for name, colour, values in (("true frames", TRUE, kept.score_true), ("imagined frames", IMAGINED, kept.score))
    ]
    text = (
        f"The case at the {QUANTILE:.0%} quantile of the mean residual, {instance.id}. A step counts as not followed "
        f"above {kept.threshold:.2f}."
    )
    return Reel("Navigation, NWM under the true actions", text, tracks, curves, RESIDUAL)


def recorded(findings: Findings) -> dict[Path, Reel]:
    """The films by their files, as far as they are of these weights and rows."""
    found = {}
    for study in findings.studies:
        rows = median_gain(findings, study)
        made_of = _made_of(findings, study, rows) if rows else {}
        paths = [file_of(findings, study, name) for name in (FILE, TRUE_ACTIONS)]
        found |= {path: Reel.load(path)[0] for path in paths if _is_made_of(path, made_of)}
    return found


def show(findings: Findings) -> list[Reel]:
    """What was recorded, first what has drawings of the imagination."""
    return sorted(recorded(findings).values(), key=lambda reel: not any(t.kind == "imagined" for t in reel.tracks))


def draw(findings: Findings, folder: Path) -> list[Path]:
    """A sheet of every film, called after its cell."""
    return [
        draw_film(reel, folder / f"{'-'.join([*path.parts[-3:-1], path.stem])}.png")
        for path, reel in recorded(findings).items()
    ]


def _listed(findings: Findings) -> list[str]:
    return [f"- {reel.title}: {reel.text}" for reel in show(findings)]


IMAGINATION = Table(
    name="imagination",
    title="What was imagined beside what happened (figures qual_rollout, qual_rope_granular, qual_nwm)",
    studies=tuple(
        Study(task, model, COMPARED, episodes=dict.fromkeys(COMPARED, 100) if model == deformable.MODEL else {})
        for task, model in EVERY_CELL
    ),
    episodes=200,
    record=record,
    ran=lambda findings, study: file_of(findings, study).is_file(),
    after=_listed,
    show=show,
    draw=draw,
    legend=(
        f"Shown is {RULE}, planned and executed again with the seeds of the scored run.",
        "imagined: what the world model predicts for the plan, drawn by a decoder that has no part in planning;",
        "executed: what the plan then did. The page shows them as films that run in step.",
    ),
)
