"""Instances on disk, so that everyone can evaluate on the same ones without the dataset they were drawn from."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from acid.errors import DataError, plain
from acid.evaluation.protocol import Instance, Instances, Protocol
from acid.files import check_name, clipped, parse_json, read_bytes, write_text

REMEDY = "fetch or draw it again"
_SAME = ("task", "goal_offset", "seed", "split")  # what a file and the protocol must agree on
_STATES = ("start_state", "goal_state", "context", "path")
_FIELDS = {"id": str, "episode": int, "start_step": int, "draw": int, "solved": bool}


def save_instances(path: Path, instances: Instances, protocol: Protocol, task_name: str) -> None:
    """One JSON line about the draw, then one per instance; states as exact decimal floats."""
    head = {"task": task_name, **asdict(protocol), "share_solved": round(instances.share_solved, 4)}
    write_text(path, "".join(json.dumps(line) + "\n" for line in [head, *map(_line, instances)]))


def load_instances(path: Path, protocol: Protocol, task_name: str) -> Instances:
    """Those that serve `protocol.episodes` among the instances of a file."""
    text = read_bytes(path, missing="there are no instances; pass the dataset to draw them from")
    if not text.endswith(b"\n"):
        raise DataError(f"{path} is not a file of instances, or was cut off; {REMEDY}")
    numbered = enumerate(text[:-1].split(b"\n"), start=1)
    head, *lines = [parse_json(line, f"line {number} of {path}", remedy=REMEDY) for number, line in numbered]
    wanted = {"task": task_name, **asdict(protocol)}
    for name in _SAME:
        if not isinstance(head, dict) or head.get(name) != wanted[name]:
            found = head.get(name) if isinstance(head, dict) else head
            raise DataError(f"{path} was drawn with {name} {clipped(found)}, not {wanted[name]!r}")
    drawn = [_instance(line, path, number) for number, line in enumerate(lines, start=2)]
    if len({instance.id for instance in drawn}) < len(drawn):
        raise DataError(f"{path} holds an instance twice; draw it again")
    if len({tuple(np.shape(getattr(instance, name)) for name in _STATES) for instance in drawn}) > 1:
        raise DataError(f"{path} holds instances of different shapes; draw it again")
    if sum(not instance.solved for instance in drawn) < protocol.episodes:
        raise DataError(f"{path} holds fewer than the {protocol.episodes} instances asked for; ask for fewer")
    return Instances.among(drawn, protocol.episodes)


def _line(instance: Instance) -> dict[str, Any]:
    states = {name: getattr(instance, name) for name in _STATES}
    return {name: getattr(instance, name) for name in _FIELDS} | {
        name: state.tolist() for name, state in states.items() if state is not None
    }


def _instance(line: Any, path: Path, number: int) -> Instance:
    def fail(reason: str) -> DataError:
        return DataError(f"line {number} of {path} is not an instance: {reason}; draw the file again")

    if not isinstance(line, dict):
        raise fail("it is not an object")
    for name, kind in _FIELDS.items():
        if type(line.get(name)) is not kind:
            raise fail(f"{name} must be {kind.__name__}, got {clipped(line.get(name))}")
        if kind is int and not 0 <= line[name] < 2**53:
            raise fail(f"{name} must not be negative or absurdly large, got {clipped(line[name])}")
    check_name(line["id"], f"id in line {number} of {path},")
    if unknown := line.keys() - _FIELDS.keys() - set(_STATES):
        raise fail(f"unknown entry {plain(min(unknown))!r}")
    states: dict[str, Any] = {}
    for name in _STATES:
        if name in line or name in _STATES[:2]:
            try:
                states[name] = np.asarray(line.get(name), np.float64)
            except (TypeError, ValueError, OverflowError):
                raise fail(f"{name} does not hold numbers") from None
            if states[name].ndim != 1 + (name in _STATES[2:]) or not np.isfinite(states[name]).all():
                raise fail(f"{name} must be finite numbers, got shape {list(states[name].shape)}")
    if len({state.shape[-1] for state in states.values()}) > 1:
        raise fail("its states have different sizes")
    return Instance(**{name: line[name] for name in _FIELDS}, **states)
