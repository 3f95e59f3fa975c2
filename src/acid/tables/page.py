"""The page of everything: each table of the paper as far as its rows are there, and the claims with their verdicts."""

from __future__ import annotations

from collections.abc import Iterable

from acid.evaluation.provenance import revision
from acid.report.page import Judged, Page, Section
from acid.tables.program import missing, numbers, provenance
from acid.tables.table import Findings, Options, Table, with_cells
from acid.tables.verdict import RULE

TITLE = "ACID, tried: planning that checks what a world model imagines"
LEAD = """\
A world model lets a robot plan by imagining what its actions would do. **ACID** checks the imagination while it
plans: an inverse dynamics model infers the action behind every imagined transition, and if that is not the action that
was asked for, the cost of the candidate rises.

This page judges every claim of the [paper](https://arxiv.org/abs/2607.02403) with an independent implementation: small
models (1 to 3 million parameters) on our own simulators and data, planned on CPU cores. Compare differences, not
absolute numbers. All problems are held out, all conditions share them, and every interval covers 95 %."""
HERO = "planning"  # whose first figure is beside the lead
FIRST = ("imagination",)  # what is seen first; the others follow in the order of the commands


def page_of(tables: Iterable[Table], options: Options) -> Page:
    """What the results folder holds of every table."""
    sections = [
        _section(findings)
        for findings in sorted(with_cells(tables, options), key=lambda one: one.table.name not in FIRST)
    ]
    return Page(
        title=TITLE,
        lead=LEAD,
        sections=sections,
        hero=next((section.shown[0] for section in sections if section.id == HERO and section.shown), None),
        rule=f"How a claim is judged. {RULE[0].upper()}{RULE[1:]}",
        made_by=f"Written by `acid report` of revision {revision()} from the rows of every episode.",
    )


def _section(findings: Findings) -> Section:
    table, lines, shown = findings.table, list(findings.lines()), list(findings.table.show(findings))
    after = table.after(findings)
    told = [numbers(findings, lines), *after] if lines and table.columns else after
    left_out = [f"{name} ({reason})" for reason, names in missing(findings).items() for name in names]
    empty = not lines and not after
    return Section(
        id=table.name,
        title=table.title,
        command=f"acid reproduce {table.name}",
        missing=left_out,
        shown=[] if empty else shown,
        overview="\n".join(table.before(findings)) if lines else "",
        table="\n\n".join(told),
        notes="\n\n".join("\n".join(part) for part in (table.legend, provenance(findings)) if part),
        judged=_judged(findings, empty),
        empty=empty,
    )


def _judged(findings: Findings, empty: bool) -> list[Judged]:
    table, found = findings.table, []
    for claim in table.claims:
        verdict = claim.judge(findings)
        if verdict is None:
            kind, numbers = "not run yet", ""
            reason = f"{'Nothing' if empty else 'Not all'} of it has been run yet: acid reproduce {table.name}."
        else:
            kind, reason, numbers = verdict.kind, verdict.reason, verdict.numbers
        found.append(Judged(claim.sentence, kind, reason, table.name, claim.published, claim.paper, numbers))
    return found
