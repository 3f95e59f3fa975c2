"""Columns that many tables have."""

from __future__ import annotations

from acid.evaluation.table import difference, interval, lam, p_value
from acid.tables.table import Column

MODEL = Column("model", lambda line: line.study.model)
TASK = Column("task", lambda line: line.study.task)
CONDITION = Column("condition", lambda line: line.condition)
LAMBDA = Column("λ", lambda line: lam(line.lam))
N = Column("n", lambda line: str(line.n))


def compared(metric: str, heading: str, *, share: bool = False, against: str = "Original") -> tuple[Column, ...]:
    """The mean of a metric, its difference from the baseline, and the p-value of that."""
    return (
        Column(heading, lambda line: interval(line.mean(metric), share=share)),
        Column(f"against {against}", lambda line: difference(line.difference(metric), share=share)),
        Column("p", lambda line: p_value(line.difference(metric))),
    )


SUCCESS = compared("success", "success", share=True)
