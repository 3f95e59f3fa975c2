"""What people call the tasks and world models."""

from __future__ import annotations

_NAMES = {
    **{"lewm": "Le-WM", "lewm-shapes": "Le-WM with shapes", "pldm": "PLDM", "pldm-shapes": "PLDM with shapes"},
    **{"dinowm": "DINO-WM", "dinowm-symmetric": "DINO-WM with symmetries", "nwm": "NWM"},
    "nwm-diffusion": "NWM with diffusion",
    **{"cube": "Cube", "reacher": "Reacher", "pusht": "Push-T", "rope": "Rope", "granular": "Granular"},
    "navigation": "Navigation",
}


def called(name: str) -> str:
    """A task or model by the name that people know; others as they are."""
    return _NAMES.get(name, name)
