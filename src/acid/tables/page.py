"""The page of everything: each table of the paper as far as its rows are there, and the claims with their verdicts."""

from __future__ import annotations

from collections.abc import Iterable

from acid.evaluation.provenance import revision
from acid.report.page import Judged, Page, Section
from acid.tables.program import missing, numbers, provenance
from acid.tables.table import Findings, Options, Table
from acid.tables.verdict import RULE

TITLE = "ACID, tried: planning that checks what a world model imagines"
LEAD = """\
A world model lets a robot plan by imagining what its actions would do. **ACID** checks the imagination while it
plans: an inverse dynamics model looks at every imagined transition and infers the action behind it. If that is not the
action that was asked for, the candidate pays. This page holds every table and figure of the
[paper](https://arxiv.org/abs/2607.02403) as an independent implementation has run it, beside the published numbers.

Ours are small models (1 to 3 million parameters, images of 64 to 192 px) on our own simulators and data, trained and
planned on CPU cores. The paper’s are larger, so compare the differences between conditions rather than the absolute
numbers. All problems are held out, all conditions share them, and every interval covers 95 %."""
LINKS = (("Paper", "https://arxiv.org/abs/2607.02403"),)


FIRST = ("imagination",)  # what is seen first; the others follow in the order of the commands


def page_of(tables: Iterable[Table], options: Options) -> Page:
    """What the results folder holds of every table."""
    return Page(
        title=TITLE,
        lead=LEAD,
        sections=[
            _section(Findings(table, options)) for table in sorted(tables, key=lambda table: table.name not in FIRST)
        ],
        rule=f"How a claim is judged. {RULE[0].upper()}{RULE[1:]}",
        made_by=f"Written by `acid report` of revision {revision()} from the rows of every episode.",
        links=LINKS,
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
            part = "nothing of" if empty else "not all of"
            reason = f"{part} it has been run yet: acid reproduce {table.name}."
            found.append(Judged(claim.sentence, "not run yet", reason.capitalize(), table.name, claim.published))
        else:
            reason = verdict.reason[0].upper() + verdict.reason[1:]
            found.append(Judged(claim.sentence, verdict.kind, reason, table.name, claim.published))
    return found
