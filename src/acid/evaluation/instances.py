"""Instances on disk, so that everyone can evaluate on the same ones without the dataset they were drawn from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from acid.errors import DataError
from acid.evaluation.protocol import Instance, Instances, Protocol


def save_instances(path: Path, instances: Instances, protocol: Protocol, task_name: str) -> None:
    """One JSON line about the draw, then one per instance; states as exact decimal floats."""
    head = {"task": task_name, **asdict(protocol), "share_solved": round(instances.share_solved, 4)}
    lines = [head] + [
        {
            "id": i.id,
            "episode": i.episode,
            "start_step": i.start_step,
            "start_row": i.start_row,
            "goal_row": i.goal_row,
            "draw": i.draw,
            "solved": i.solved,
            "start_state": i.start_state.tolist(),
            "goal_state": i.goal_state.tolist(),
        }
        for i in instances
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def read_drawn(path: Path, what: str, protocol: Protocol, task_name: str, same: Sequence[str]) -> tuple[Any, list[Any]]:
    """The first line of a file of problems, which must agree with the protocol in what is the `same`, and the rest."""
    if not path.is_file():
        raise DataError(f"there are no {what} at {path}; pass the dataset to draw them from")
    try:
        head, *lines = [json.loads(line) for line in path.read_text().splitlines()]
    except ValueError as error:
        raise DataError(f"{path} is not a file of {what} ({error}); fetch it again") from error
    wanted = {"task": task_name, **asdict(protocol)}
    wrong = [name for name in same if head.get(name) != wanted[name]]
    if wrong:
        raise DataError(f"{path} was drawn with {wrong[0]} {head.get(wrong[0])!r}, not {wanted[wrong[0]]!r}")
    return head, lines


def load_instances(path: Path, protocol: Protocol, task_name: str) -> Instances:
    """What `protocol.episodes` ask for among the instances of a file; how long an agent is given does not matter."""
    head, lines = read_drawn(path, "instances", protocol, task_name, ("task", "goal_offset", "seed", "split"))
    if head["episodes"] < protocol.episodes:
        raise DataError(f"{path} holds {head['episodes']} instances, {protocol.episodes} were asked for; ask for fewer")
    states = ("start_state", "goal_state")
    drawn = [Instance(**(line | {n: np.asarray(line[n], np.float64) for n in states})) for line in lines]
    return Instances.among(drawn, protocol.episodes)
