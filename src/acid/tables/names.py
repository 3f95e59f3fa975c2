"""The tasks and world models of the paper: which belong together, and what people call them."""

from __future__ import annotations

from typing import Any

_NAMES = {
    **{"lewm": "Le-WM", "lewm-shapes": "Le-WM with shapes", "pldm": "PLDM", "dinowm": "DINO-WM", "nwm": "NWM"},
    **{"cube": "Cube", "reacher": "Reacher", "pusht": "Push-T", "rope": "Rope", "granular": "Granular"},
    "navigation": "Navigation",
}

EVERY_CELL = (
    *((task, model) for model in ("lewm", "pldm") for task in ("cube", "reacher", "pusht")),
    *(("rope", "dinowm"), ("granular", "dinowm"), ("navigation", "nwm")),
)


def called(name: str) -> str:
    """A task or model by the name that people know; others as they are."""
    return _NAMES.get(name, name)


def called_cell(study: Any) -> str:
    """A task with a world model, of anything that has both."""
    return f"{called(study.model)} {called(study.task)}"
