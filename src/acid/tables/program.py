"""The one program behind every table: choose λ, run what is missing, write the table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from acid.errors import DataError, did_you_mean
from acid.evaluation import Cell, Engine, SearchSpec, Summary, choose_lambda, condition, summarise
from acid.evaluation.jobs import Progress
from acid.evaluation.results import mixed_revisions
from acid.evaluation.table import markdown, number
from acid.files import write_text
from acid.tables.table import Findings, Line, Study, Table


def choose(findings: Findings, engine: Engine, progress: Progress) -> str:
    """Choose the λ of every study on episodes that are not reported; returns what was found."""
    engine.run(findings.choosing_jobs(), progress)
    told = {}
    for study in findings.studies:
        if study.choice is not None and not study.choice.shared:
            cell = findings.cell(study)
            spec = study.spec(**study.choice.sizes)
            every_family = [s.spec(**s.choice.sizes) for s in findings.studies
                            if s.choice is not None and (s.task, s.model) == (study.task, study.model)]  # fmt: skip
            scope = (study.model, study.task if study.setup.own_lambda else None)
            told[scope] = remember_lambdas(cell, every_family if study.setup.own_lambda else [spec])
        elif study.choice is not None:
            chosen = {name: findings.lam(study, name) for name in study.choice.lambdas}
            told[study.model, "all"] = f"one λ for all tasks of {study.model}: " + ", ".join(
                f"{lam:g} for {name}" for name, lam in chosen.items() if lam is not None
            )
    return "\n".join(told.values())


def remember_lambdas(cell: Cell, searches: Iterable[SearchSpec] | None = None) -> str:
    """Choose λ from the "select" rows, of all tasks or of the cell's alone, and keep it in the user's folder.

    Every search that was tried counts, or only those given.
    """
    wanted = None if searches is None else list(searches)
    setup = cell.task_class.setup
    tried = [s for s in summarise(cell.user, split="select") if s.model == cell.model and s.lam is not None]
    tried = [s for s in tried if wanted is None or s.search in wanted]
    tried = [s for s in tried if not setup.own_lambda or s.task == cell.task_class.name]
    if not tried:
        raise DataError(f'no "select" results of {cell.model} in {cell.user}: run those first to choose λ')
    names = sorted({s.condition for s in tried if condition(s.condition).chosen_as == s.condition})
    if not names:
        return f"no λ was chosen: {', '.join(sorted({s.condition for s in tried}))} use that of another condition"
    lambdas = {name: choose_lambda(tried, cell.model, name) for name in names}
    path = cell.choose_lambdas(lambdas, f"{tried[0].metric} on episodes that are not reported: {_tell(tried)}")
    return f"chose {', '.join(f'λ = {lam:g} for {name}' for name, lam in lambdas.items())}; wrote {path}"


def _tell(tried: Iterable[Summary]) -> str:
    return "; ".join(
        f"{s.task} {s.searched} {s.condition} λ {s.lam:g}: {number(s.mean, share=s.metric == 'success')} of {s.n}"
        for s in tried
    )


def reproduce(
    findings: Findings, engine: Engine, progress: Progress, *, say: Callable[[str], None] = lambda text: None
) -> None:
    """Run every condition of every study; what is in the results already is not run again.

    A λ that was not chosen yet is chosen first.
    """
    if findings.missing_lambdas():
        say(choose(findings, engine, progress))
    if findings.table.measure is not None:
        findings.table.measure(findings, progress)
    engine.run(findings.jobs(), progress)
    if findings.table.record is not None:
        for told in findings.table.record(findings, progress):
            say(told)


def write(findings: Findings) -> str:
    """The table as Markdown, also written to `findings.file`, with the numbers behind it as JSON."""
    table, lines = findings.table, list(findings.lines())
    left_out = [f"left out, {reason}: {', '.join(names)}" for reason, names in missing(findings).items()]
    parts = [
        *table.before(findings),
        *([numbers(findings, lines), ""] if table.columns else []),
        *_with_gap(table.after(findings)),
        *_with_gap(left_out),
        *_with_gap(_verdicts(findings)),
        *_with_gap(provenance(findings)),
        *table.legend,
    ]
    text = "\n".join(parts)
    _check_metrics(table, lines)
    content: dict[str, Any] = {"lines": [_as_dict(line, table.metrics) for line in lines], **table.extra(findings)}
    write_text(findings.file.with_suffix(".md"), text + "\n")
    write_text(findings.file.with_suffix(".json"), json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return text


def numbers(findings: Findings, lines: Sequence[Line]) -> str:
    """The lines of a table as Markdown."""
    columns = findings.table.columns
    rows = [[column.cell(line) for column in columns] for line in lines]
    return markdown([column.heading for column in columns], rows, texts=findings.table.texts)


def _with_gap(lines: list[str]) -> list[str]:
    return [*lines, ""] if lines else []


def missing(findings: Findings) -> dict[str, list[str]]:
    """Studies that were asked for and are not in the table, by reason."""
    absent = [study for study in findings.wanted if study not in findings.studies]
    idle = [study for study in findings.studies if not findings.table.ran(findings, study)]
    reasons = {"because there are no such weights": absent, "not evaluated yet": idle}
    return {reason: list(dict.fromkeys(map(_name, studies))) for reason, studies in reasons.items() if studies}


def _name(study: Study) -> str:
    own = "" if study.lam is None else f", λ {study.lam:g}"
    return f"{study.model} on {study.task} ({study.spec().name}{own})"


def _verdicts(findings: Findings) -> list[str]:
    judged = [(claim, claim.judge(findings)) for claim in findings.table.claims]
    return [
        f"Claim: {claim.sentence} {f'In the paper: {claim.paper} ' if claim.paper else ''}Here: {verdict}"
        for claim, verdict in judged
        if verdict is not None
    ]


def provenance(findings: Findings) -> list[str]:
    rows = [row for line in findings.lines() for row in line.rows]
    found = mixed_revisions(rows)
    return ["Rows of several revisions or of uncommitted code:", *(f"- {line}" for line in found)] if found else []


def _check_metrics(table: Table, lines: Sequence[Line]) -> None:
    """A metric may be missing in some of the rows, but one of them must know its name."""
    known = {name for line in lines for row in line.rows for name in row.numbers}
    for metric in table.metrics if known else ():
        if metric not in known:
            close = did_you_mean(metric, known)
            raise DataError(f"no row of the table {table.name!r} has a number called {metric!r}{close}")


def _as_dict(line: Line, metrics: Iterable[str]) -> dict[str, Any]:
    study = line.study
    known: dict[str, Any] = {
        "task": study.task,
        "model": study.model,
        "condition": line.condition,
        "search": study.spec().as_dict() if condition(line.condition).searches else None,
        "lambda": line.lam,
        "n": line.n,
    }
    for metric in metrics:
        if all(row.value(metric) is not None for row in line.rows):
            found = line.difference(metric)
            known[metric] = asdict(line.mean(metric))
            known[f"{metric}_difference"] = None if found is None else asdict(found)
    return known
