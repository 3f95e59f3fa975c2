"""The tasks by name. A task's simulator is imported only when it is made."""

from __future__ import annotations

import importlib
import inspect
import re

from acid.errors import AcidError, look_up
from acid.tasks.base import Behaviour, Setup, Task

TASKS = {
    "reacher": ("acid.tasks.reacher", "Reacher"),
    "pusht": ("acid.tasks.pusht", "PushT"),
    "cube": ("acid.tasks.cube", "Cube"),
    "rope": ("acid.tasks.deformable", "Rope"),
    "granular": ("acid.tasks.deformable", "Granular"),
    "navigation": ("acid.tasks.navigation", "Navigation"),
    # The same as published datasets and world models know them: their frames, and the length of their steps.
    "reacher-published": ("acid.tasks.reacher", "PublishedReacher"),
    "pusht-published": ("acid.tasks.pusht", "PublishedPushT"),
    "cube-published": ("acid.tasks.cube", "PublishedCube"),
}


def task_class(name: str) -> type[Task]:
    """A registered task by name, or a class of your own as `package.module:Class`."""
    module, cls = name.split(":", 1) if ":" in name else look_up(TASKS, name, "task")
    try:
        found = getattr(importlib.import_module(module), cls, None)
    except ModuleNotFoundError as error:
        extra = (
            f"run: pip install 'acid-planning[{name.removesuffix('-published')}]'"
            if name in TASKS
            else "check the name or install it"
        )
        raise AcidError(f"task {name!r} needs the package {error.name!r}; {extra}") from error
    if not (isinstance(found, type) and issubclass(found, Task)):
        raise AcidError(f"{name!r} does not name a class derived from acid.tasks.Task")
    called = getattr(found, "name", None)
    if not (isinstance(called, str) and re.fullmatch(r"[A-Za-z0-9][\w.-]*", called)):
        raise AcidError(f"the task {name!r} calls itself {called!r}, which cannot be the name of a folder")
    try:
        inspect.signature(found).bind(size=64)
    except TypeError as error:
        raise AcidError(f"the task {called!r} must be made by `{found.__name__}(size=64)`, but {error}") from None
    found.check_has("advance", "render", "get_state", "set_state", "pose", "error", "success")
    return found


def make(name: str, *, size: int = 64) -> Task:
    """A task by name with square images of `size` pixels."""
    return task_class(name)(size=size)  # type: ignore[call-arg]  # every task takes it


__all__ = ["TASKS", "Behaviour", "Setup", "Task", "make", "task_class"]
