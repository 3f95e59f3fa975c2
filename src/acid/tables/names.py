"""The cells of the paper, and what people call them."""

from __future__ import annotations

from typing import Any

from acid.views.names import called

EVERY_CELL = (
    *((task, model) for model in ("lewm", "pldm") for task in ("cube", "reacher", "pusht")),
    *(("rope", "dinowm"), ("granular", "dinowm"), ("navigation", "nwm")),
)


def called_cell(study: Any) -> str:
    """A task with a world model, of anything that has both."""
    return f"{called(study.model)} {called(study.task)}"


__all__ = ["EVERY_CELL", "called", "called_cell"]
