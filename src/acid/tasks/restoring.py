"""Whether a task restores its states, which everything that compares two plans of one problem relies on."""

from __future__ import annotations

import numpy as np

from acid.errors import AcidError
from acid.tasks.base import Task


def check_restores(task: Task, state: np.ndarray) -> None:
    """An AcidError unless restoring a state and repeating an action gives the same state and frame, bit for bit."""
    low, high = (np.nan_to_num(bound, posinf=1.0, neginf=-1.0) for bound in task.action_bounds)
    action = (low + 3 * high) / 4  # not in the middle, where nothing may happen
    task.set_state(state)
    before = _told(task)
    task.advance(action)
    after = _told(task)
    task.set_state(before["get_state"])
    _compare(task, before, "after set_state(get_state())")
    task.advance(action)
    _compare(task, after, "after set_state(get_state()) and the same action")


def _told(task: Task) -> dict[str, np.ndarray]:
    return {"get_state": np.array(task.get_state()), "render": np.array(task.render())}


def _compare(task: Task, expected: dict[str, np.ndarray], when: str) -> None:
    for method, found in _told(task).items():
        if found.tobytes() != expected[method].tobytes():
            raise AcidError(
                f"the task {task.name!r} does not restore its states: {method} differs {when}; keep everything that "
                "the future depends on in the state"
            )
