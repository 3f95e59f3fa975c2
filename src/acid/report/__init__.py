"""Figures, image sheets and videos. Everything takes plain arrays and writes a file."""

from acid.report.figures import (
    Measured,
    consistency_per_step,
    error_over_steps,
    followed_steps,
    inferred_against_found,
    success_against_budget,
)
from acid.report.sheet import Ending, SheetRow, sheet
from acid.report.style import Look
from acid.report.video import Clip, side_by_side

__all__ = [
    "Clip",
    "Ending",
    "Look",
    "Measured",
    "SheetRow",
    "consistency_per_step",
    "error_over_steps",
    "followed_steps",
    "inferred_against_found",
    "sheet",
    "side_by_side",
    "success_against_budget",
]
