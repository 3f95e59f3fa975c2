"""The episode with the median gain as a picture: what was imagined above what was executed and scored."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from acid.errors import DataError
from acid.evaluation import BASELINE, Episode, Instance, Row, condition
from acid.report import Look, SheetRow, sheet
from acid.report.reel import Reel
from acid.tables.table import Findings, Study
from acid.views.episodes import amount

GOAL = "goal"  # the label of the track that shows it
AWAY = " from the goal"  # in the notes of what was executed
SIDE = 128  # about so large is a frame, in pixels
LINE = 120  # letters of a heading


def replayed(episode: Episode, row: Row) -> str:
    """Empty if the film shows the episode as it was scored; else what came out this time.

    Rounding differs between processors, and contacts make much of it.
    """
    if np.isclose(episode.final_error, row.final_error, rtol=1e-3, atol=1e-6):
        return ""
    scored, again = (amount(error, row.error_unit) for error in (row.final_error, episode.final_error))
    if scored == again:
        return ""
    return f" ({condition(row.condition).look.label} when played again: {again} instead of {scored})"


def median_gain(findings: Findings, study: Study) -> dict[str, Row]:
    """The rows of Original and of ACID on the instance where ACID's gain is the median one; none while one is missing.

    The gain is the difference of the final errors.
    """
    rows: Mapping[str, dict[str, Row]] = {
        one: {row.instance: row for row in findings.rows(study, one)} for one in (BASELINE, "acid")
    }
    original, acid = rows[BASELINE], rows["acid"]
    shared = sorted(original.keys() & acid.keys(), key=lambda i: (acid[i].final_error - original[i].final_error, i))
    if not shared:
        return {}
    return {name: some[shared[len(shared) // 2]] for name, some in rows.items()}


def instance_of(findings: Findings, study: Study, row: Row) -> Instance:
    """The problem that a row is about."""
    every = findings.cell(study).instances(study.protocol(findings.size(study)))
    found = next((i for i in every if i.id == row.instance), None)
    if found is None:
        raise DataError(f"the instance {row.instance} of {study.task} is not among the first {findings.size(study)}")
    return found


def draw_film(reel: Reel, path: Path) -> Path:
    """A film as a sheet: what was imagined above what was executed after every model step, between start and goal.

    Under what was executed stands how far from the goal it is.
    """
    tracks = [track for track in reel.tracks if track.label != GOAL]
    goal = next((track.frames[0] for track in reel.tracks if track.label == GOAL), None)
    start = next(track.frames[0] for track in tracks if track.kind != "imagined")
    rows = []
    for track in tracks:
        last = len(track.index) - 1
        ticks = [
            min(tick, last) for tick in range(reel.ticks_per_step, last + reel.ticks_per_step, reel.ticks_per_step)
        ]
        notes = [track.notes[tick].removesuffix(AWAY) for tick in ticks] if track.notes else []
        frames = track.frames[[track.index[tick] for tick in ticks]]
        rows.append(SheetRow(Look(track.label, track.colour), track.kind, frames, notes))
    titles = [f"step {k + 1}" for k in range(max(len(row.frames) for row in rows))]
    heading = "\n".join([reel.title, *textwrap.wrap(reel.text, LINE)])
    scale = max(1, round(SIDE / start.shape[0]))
    sheet(path, rows, start=start, goal=goal, titles=titles, heading=heading, scale=scale)
    return path
