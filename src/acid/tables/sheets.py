"""The episode with the median gain as a picture: what was imagined above what was executed and scored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from acid.errors import DataError
from acid.evaluation import BASELINE, Episode, Instance, Row
from acid.report import SheetRow, sheet
from acid.tables.table import Findings, Study
from acid.views.episodes import replay, sheet_rows


def replayed(episode: Episode, row: Row) -> str:
    """Empty if the film shows the episode as it was scored; else what came out this time.

    Rounding differs between processors, and contacts make much of it.
    """
    if np.isclose(episode.final_error, row.final_error, rtol=1e-3, atol=1e-6):
        return ""
    return f" ({row.condition} scored {row.final_error:.2f}, {episode.final_error:.2f} when played again)"


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


def draw_median_gain(findings: Findings, study: Study, folder: Path, name: str) -> Path:
    """The instance on which ACID's gain is the median one, under Original and under ACID."""
    rows = median_gain(findings, study)
    instance, bench = instance_of(findings, study, rows[BASELINE]), findings.bench(study)
    drawn: list[SheetRow] = []
    differs = ""
    for one in rows:
        episode = replay(bench, one, findings.lam(study, one), instance)
        differs += replayed(episode, rows[one])
        assert episode.film is not None
        film = episode.film
        drawn += sheet_rows(one, film, bench)
    path = folder / f"{name}.png"
    titles = [f"push {k + 1}" for k in range(len(drawn[-1].frames))]
    heading = f"{study.task}, {instance.id}: the median of ACID's gains{differs}"
    sheet(path, drawn, start=film.frames[0], goal=film.goal, titles=titles, heading=heading, scale=1)
    return path
