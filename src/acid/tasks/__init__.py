"""The tasks by name. A task's simulator is imported only when it is made."""

from __future__ import annotations

import importlib

from acid.errors import AcidError, look_up
from acid.tasks.base import Behaviour, Task

TASKS = {
    "reacher": ("acid.tasks.reacher", "Reacher"),
    "pusht": ("acid.tasks.pusht", "PushT"),
    "cube": ("acid.tasks.cube", "Cube"),
    "rope": ("acid.tasks.deformable", "Rope"),
    "granular": ("acid.tasks.deformable", "Granular"),
    "navigation": ("acid.tasks.navigation", "Navigation"),
}


def make(name: str, *, size: int = 64) -> Task:
    """A task by name with square images of `size` pixels."""
    module, cls = look_up(TASKS, name, "task")
    try:
        return getattr(importlib.import_module(module), cls)(size=size)
    except ModuleNotFoundError as error:
        raise AcidError(
            f"task {name!r} needs the package {error.name!r}; run: pip install 'acid-planning[{name}]'"
        ) from error


__all__ = ["TASKS", "Behaviour", "Task", "make"]
