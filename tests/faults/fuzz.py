"""Runs damaged inputs in child processes, so that a crash, a hang or a flood of memory is counted and not suffered.

An input is fine if it is read or refused with an AcidError. Inputs follow from the batch's number alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import struct
import tempfile
import time
import traceback
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from acid.errors import AcidError
from faults import calls
from faults.calls import CALLS
from faults.readers import READERS

HANG = 30  # s of CPU time of one input; ten times as much of the clock, because a waiting process uses none
GROWTH = 1024**3  # bytes
_CODE = re.compile(r"/acid/|/faults/calls")
_CALLERS = ("encode", "rollout", "infer", "<lambda>")  # in `calls`: what the caller's own model raises is the caller's
SUBJECTS = [f"read {name}" for name in READERS] + [f"call {name}" for name in CALLS]


@dataclass
class Tally:
    """What became of the inputs of one or many batches."""

    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)  # raw exceptions, hangs, crashes, floods

    def add(self, other: Tally) -> None:
        self.inputs += other.inputs
        self.accepted += other.accepted
        self.refused += other.refused
        self.wrong += other.wrong

    def __str__(self) -> str:
        return f"{self.inputs} inputs: {self.refused} refused, {self.accepted} accepted, {len(self.wrong)} wrong"


def run_batch(subject: str, number: int, size: int) -> Tally:
    """One batch in a child process, which is watched."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child(subject, number, size, writing)
    os.close(writing)
    return _watch(child, reading, f"{subject} #{number}")


def _child(subject: str, number: int, size: int, channel: int) -> None:
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    try:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _run(subject, number, size, Path(folder), lambda kind, text="": _tell(channel, kind, text))
    except BaseException:
        _tell(channel, "w", f"harness: {traceback.format_exc(limit=3)}")
    os._exit(0)


def _run(subject: str, number: int, size: int, folder: Path, tell: Callable[..., None]) -> None:
    kind, name = subject.split(" ", 1)
    reader = READERS[name](folder) if kind == "read" else None
    first = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    @seed(zlib.crc32(f"{subject} {number}".encode()))
    @settings(max_examples=size, database=None, deadline=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(st.data())
    def one(data: Any) -> None:
        shown: list[str] = []

        def draw(strategy: Any) -> Any:
            value = data.draw(strategy)
            shown.append(repr(value)[:120])
            tell("d", " ".join(shown))
            return value

        content = None if reader is None else draw(reader.damage)
        tell("s", " ".join(shown))  # started: what is at work if the child dies now
        began = time.process_time()
        try:
            if reader is None:
                CALLS[name](draw, folder)
            else:
                reader.file.unlink(missing_ok=True)
                reader.file.write_bytes(content)
                reader.read()
            tell("a")
        except AcidError:
            tell("r")
        except Exception as error:
            frames = [f for f in traceback.extract_tb(error.__traceback__) if _CODE.search(f.filename)]
            last = frames[-1] if frames else traceback.extract_tb(error.__traceback__)[-1]
            told = f"{type(error).__name__}: {str(error)[:120]} ({Path(last.filename).name}:{last.lineno}) from {shown}"
            own = last.filename == calls.__file__ and last.name in _CALLERS
            tell("r" if own else "w", told)
        except BaseException:  # hypothesis gives an input up while it is drawn
            tell("g")
            raise
        if time.process_time() - began > HANG:
            tell("w", f"hang: {time.process_time() - began:.0f} s from {shown}")
        if (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - first) * 1024 > GROWTH:
            tell("w", f"memory: grew by over 1 GiB from {shown}")
            os._exit(0)

    with contextlib.suppress(KeyboardInterrupt):
        one()


def _tell(channel: int, kind: str, text: str) -> None:
    data = text.encode("utf-8", "replace")[:2000]
    os.write(channel, kind.encode() + struct.pack("<H", len(data)) + data)


def _watch(child: int, channel: int, name: str) -> Tally:
    import select

    found, working = Tally(), ""
    with os.fdopen(channel, "rb") as stream:
        while True:
            ready, _, _ = select.select([stream], [], [], 10 * HANG)
            if not ready:
                os.kill(child, signal.SIGKILL)
                found.wrong.append(f"{name}: hang on {working}")
                break
            head = stream.read1(1)
            if not head:
                break
            (length,) = struct.unpack("<H", stream.read(2))
            text, kind = stream.read(length).decode(), head.decode()
            if kind == "s":
                working, found.inputs = text, found.inputs + 1
            elif kind == "d":
                working = text
            elif kind == "w":
                found.wrong.append(f"{name}: {text}")
            found.inputs -= kind == "g"
            found.accepted += kind == "a"
            found.refused += kind == "r"
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and not any("hang" in wrong for wrong in found.wrong):
        found.wrong.append(f"{name}: crash by signal {os.WTERMSIG(status)} on {working}")
    return found


def run(inputs: int, state: Path | None, *, batch: int = 100, say: Callable[[str], None] = print) -> Tally:
    """Batches of all subjects in turn until so many inputs were tried; `state` remembers finished batches."""
    done: dict[str, Any] = json.loads(state.read_text()) if state and state.exists() else {}
    total = Tally()
    for known in done.values():
        total.add(Tally(**known))
    number = 0
    while total.inputs < inputs:
        for subject in SUBJECTS:
            key = f"{subject} #{number} of {batch}"
            if key in done or total.inputs >= inputs:
                continue
            found = run_batch(subject, number, min(batch, inputs - total.inputs))
            total.add(found)
            done[key] = vars(found)
            for wrong in found.wrong[:3]:
                say(f"  WRONG {wrong}")
            if state:
                state.parent.mkdir(parents=True, exist_ok=True)
                state.write_text(json.dumps(done))
            if not found.inputs:
                raise RuntimeError(f"{key} tried nothing: {found.wrong}")
        number += 1
        say(f"{total} after round {number}")
    return total
