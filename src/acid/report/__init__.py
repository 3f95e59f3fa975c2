"""Figures, image sheets and videos. Everything takes plain arrays and writes a file."""

from acid.report.figures import (
    Measured,
    consistency_per_step,
    error_over_steps,
    followed_steps,
    inferred_against_found,
    lambda_sweep,
    success_against_budget,
)
from acid.report.sheet import SheetRow, Verdict, sheet
from acid.report.style import Look
from acid.report.video import Panel, side_by_side

__all__ = [
    "Look",
    "Measured",
    "Panel",
    "SheetRow",
    "Verdict",
    "consistency_per_step",
    "error_over_steps",
    "followed_steps",
    "inferred_against_found",
    "lambda_sweep",
    "sheet",
    "side_by_side",
    "success_against_budget",
]
