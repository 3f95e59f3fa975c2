"""Summaries as an aligned table that is also valid Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from acid.evaluation.results import Summary

_TEXTS = ("task", "model", "search", "condition")
_HEADINGS = (*_TEXTS, "λ", "n", "result", "against Original", "p", "final error", "plan s")
_NUMBERS = range(len(_TEXTS), len(_HEADINGS))  # right-aligned columns


def table(summaries: Sequence[Summary]) -> str:
    """One line per condition. The split is a column only if there is more than one."""
    several = len({s.split for s in summaries}) > 1
    cells = [_HEADINGS, *map(_cells, summaries)]
    if several:
        cells = [(*row, split) for row, split in zip(cells, ["split", *(s.split for s in summaries)], strict=True)]
    widths = [max(3, *(len(row[c]) for row in cells)) for c in range(len(cells[0]))]
    rule = [f"{'-' * (width - 1)}{':' if c in _NUMBERS else '-'}" for c, width in enumerate(widths)]
    lines = [_line(cells[0], widths), f"| {' | '.join(rule)} |", *(_line(row, widths) for row in cells[1:])]
    return "\n".join(lines)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    aligned = [
        cell.rjust(width) if c in _NUMBERS else cell.ljust(width)
        for c, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return f"| {' | '.join(aligned)} |"


def _cells(s: Summary) -> tuple[str, ...]:
    result = f"{s.metric} {_value(s, s.mean)} [{_value(s, s.low)}, {_value(s, s.high)}]"
    difference = "-"
    if s.difference is not None and s.difference_low is not None and s.difference_high is not None:
        low, high = _value(s, s.difference_low, sign=True), _value(s, s.difference_high, sign=True)
        difference = f"{_value(s, s.difference, sign=True)} [{low}, {high}]"
    return (
        s.task,
        s.model,
        s.search,
        s.condition,
        "-" if s.lam is None else f"{s.lam:g}",
        str(s.n),
        result,
        difference,
        "-" if s.p is None else _p(s.p),
        "-" if s.final_error is None else f"{s.final_error:.3f}",
        "-" if s.plan_seconds is None else f"{s.plan_seconds:.2f}",
    )


def _value(s: Summary, value: float, *, sign: bool = False) -> str:
    """Shares in percent, everything else as it is."""
    plus = "+" if sign else ""
    return f"{100 * value:{plus}.1f}%" if s.metric == "success" else f"{value:{plus}.3f}"


def _p(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}"
