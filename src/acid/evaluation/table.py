"""Numbers as text, and summaries as an aligned table that is also valid Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from acid.evaluation.results import Summary
from acid.evaluation.statistics import Interval, Paired

_TEXTS = ("task", "model", "search", "condition")
_HEADINGS = (*_TEXTS, "λ", "n", "result", "against baseline", "p", "final error", "plan s")


def table(summaries: Sequence[Summary]) -> str:
    """One line per condition. The split is a column only if there is more than one."""
    heading: list[str] = list(_HEADINGS)
    rows = [_cells(s) for s in summaries]
    if len({s.split for s in summaries}) > 1:
        heading.append("split")
        rows = [[*row, s.split] for row, s in zip(rows, summaries, strict=True)]
    return markdown(heading, rows, texts=len(_TEXTS))


def markdown(heading: Sequence[str], rows: Sequence[Sequence[str]], *, texts: int) -> str:
    """An aligned table: the first `texts` columns to the left, the others, numbers, to the right."""
    widths = [max(3, *(len(row[c]) for row in [heading, *rows])) for c in range(len(heading))]
    rule = [f"{'-' * (width - 1)}{'-' if c < texts else ':'}" for c, width in enumerate(widths)]

    def line(row: Sequence[str]) -> str:
        pairs = enumerate(zip(row, widths, strict=True))
        return f"| {' | '.join(cell.ljust(width) if c < texts else cell.rjust(width) for c, (cell, width) in pairs)} |"

    return "\n".join([line(heading), f"| {' | '.join(rule)} |", *map(line, rows)])


def percent(share: float, *, sign: bool = False) -> str:
    return f"{100 * share:{'+' if sign else ''}.1f}%"


def number(value: float, *, share: bool = False, sign: bool = False) -> str:
    """Shares in percent, everything else with three decimals."""
    return percent(value, sign=sign) if share else f"{value:{'+' if sign else ''}.3f}"


def interval(found: Interval | Summary, *, share: bool = False) -> str:
    mean, low, high = (number(v, share=share) for v in (found.mean, found.low, found.high))
    return f"{mean} [{low}, {high}]"


def difference(found: Paired | None, *, share: bool = False) -> str:
    if found is None:
        return "-"
    mean, low, high = (number(v, share=share, sign=True) for v in (found.difference, found.low, found.high))
    return f"{mean} [{low}, {high}]"


def p_value(found: Paired | None) -> str:
    return "-" if found is None else "<0.001" if found.p < 0.001 else f"{found.p:.3f}"


def lam(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _cells(s: Summary) -> list[str]:
    share = s.metric == "success"
    return [
        s.task,
        s.model,
        s.searched,
        s.condition,
        lam(s.lam),
        str(s.n),
        f"{s.metric} {interval(s, share=share)}",
        difference(s.comparison, share=share),
        p_value(s.comparison),
        f"{s.final_error:.3f}",
        "-" if s.plan_seconds is None else f"{s.plan_seconds:.2f}",
    ]
