"""Rows for a study of a table, in the file where the table looks for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fake_rows import keep, row

from acid.evaluation import CellContender, Job, Row, condition
from acid.tables import Findings, Study


def file_of(findings: Findings, study: Study, name: str, lam: float | None, split: Any = "test") -> Path:
    spec = study.spec(**study.choice.sizes) if split == "select" and study.choice else study.spec()
    contender = CellContender(findings.cell(study), name, lam, spec)
    (path,) = Job(study.task, (contender,), (), study.protocol(1, split), findings.options.results).files
    return path


def write_rows(
    findings: Findings,
    study: Study,
    name: str,
    episodes: Sequence[dict[str, Any]],
    *,
    lam: float | None = None,
    split: Any = "test",
    **shared: Any,
) -> list[Row]:
    """An episode for each entry, which holds what differs; λ is the chosen one unless it is given."""
    if lam is None:
        lam = findings.lam(study, name)
    task = study.spec(**study.choice.sizes) if split == "select" and study.choice else study.spec()
    known = {
        **{"task": study.task, "model": study.model, "condition": name, "lam": lam, "split": split},
        **{"search": task if condition(name).searches else None, "checkpoints": {}},
        **{"goal_offset_steps": study.protocol(1).goal_offset, "budget_steps": study.protocol(1).budget},
    }
    rows = [row(number, **{**known, **shared, **episode}) for number, episode in enumerate(episodes)]
    keep(file_of(findings, study, name, lam, split), rows)
    return rows


def cells(text: str) -> list[list[str]]:
    """The cells of every Markdown table, without headings and rules."""
    found, below = [], False
    for line in text.splitlines():
        if not line.startswith("|"):
            below = False
        elif line.startswith("| ---"):
            below = True
        elif below:
            found.append([cell.strip() for cell in line.split("|")[1:-1]])
    return found
