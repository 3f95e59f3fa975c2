"""Summaries as an aligned table that is also valid Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from acid.evaluation.results import Summary

_TEXTS = ("task", "model", "search", "condition")
_HEADINGS = (*_TEXTS, "λ", "n", "result", "against Original", "p", "final error", "plan s")


def table(summaries: Sequence[Summary]) -> str:
    """One line per condition. The split is a column only if there is more than one."""
    heading: list[str] = list(_HEADINGS)
    rows = [list(_cells(s)) for s in summaries]
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


def _cells(s: Summary) -> tuple[str, ...]:
    result = f"{s.metric} {value(s, s.mean)} [{value(s, s.low)}, {value(s, s.high)}]"
    difference = "-"
    if s.difference is not None and s.difference_low is not None and s.difference_high is not None:
        low, high = value(s, s.difference_low, sign=True), value(s, s.difference_high, sign=True)
        difference = f"{value(s, s.difference, sign=True)} [{low}, {high}]"
    return (
        s.task,
        s.model,
        s.search,
        s.condition,
        "-" if s.lam is None else f"{s.lam:g}",
        str(s.n),
        result,
        difference,
        "-" if s.p is None else p_value(s.p),
        "-" if s.final_error is None else f"{s.final_error:.3f}",
        "-" if s.plan_seconds is None else f"{s.plan_seconds:.2f}",
    )


def value(s: Summary, value: float, *, sign: bool = False) -> str:
    """Shares in percent, everything else as it is."""
    return percent(value, sign=sign) if s.metric == "success" else f"{value:{'+' if sign else ''}.3f}"


def p_value(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}"
