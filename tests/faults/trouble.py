"""Kills at any moment, full disks and read-only folders, each in a child process."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from acid.errors import AcidError
from faults.work import WORK, digest

FULL = 90  # exit codes of a child: the disk was full, and it said so in a sentence
RAW = 91  # it raised something else


def in_child(work: Callable[[], None]) -> int:
    """The child's process number."""
    child = os.fork()
    if child:
        return child
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    code = 0
    try:
        work()
    except AcidError:
        code = FULL
    except BaseException:
        traceback.print_exc()
        code = RAW
    os._exit(code)


def result_of(child: int) -> int:
    """Exit code, or minus the signal."""
    _, status = os.waitpid(child, 0)
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _whole(name: str) -> tuple[str, int]:
    """What comes out of undisturbed work, and how often it ticks."""
    ticks: list[None] = []
    with tempfile.TemporaryDirectory() as folder:
        return digest(WORK[name](Path(folder), lambda: ticks.append(None))), len(ticks)


def kill(kills: int, *, seed: int = 0, say: Callable[[str], None] = print) -> tuple[int, list[str]]:
    """Kill each kind of work, again and again until it comes through; the number of kills, and what went wrong."""
    wrong: list[str] = []
    wanted = {name: _whole(name) for name in WORK}
    dead = dict.fromkeys(WORK, 0)
    chance = random.Random(seed)
    while sum(dead.values()) < kills and not wrong:
        for name in WORK:
            with tempfile.TemporaryDirectory() as folder:
                dead[name] += _kill_until_done(name, Path(folder), chance, *wanted[name], wrong)
    say(f"kills: {dead}")
    return sum(dead.values()), wrong


def _kill_until_done(name: str, folder: Path, chance: random.Random, wanted: str, ticks: int, wrong: list[str]) -> int:
    for dead in range(3):
        at, later = chance.randint(1, ticks), chance.choice([0.0, 0.0002, 0.001, 0.004])
        reading, writing = os.pipe()

        def work(writing: int = writing) -> None:
            WORK[name](folder, lambda: (os.write(writing, b"."), None)[1])

        child = in_child(work)
        os.close(writing)
        with os.fdopen(reading, "rb", buffering=0) as told:
            seen = 0
            while seen < at and told.read(1):
                seen += 1
        time.sleep(later)
        os.kill(child, signal.SIGKILL)
        code = result_of(child)
        if code == RAW:
            wrong.append(f"{name} raised something raw after {dead} kills")
            return dead
        if code == 0:
            break
    else:
        dead = 3
    try:
        found = digest(WORK[name](folder, lambda: None))
    except Exception as error:
        wrong.append(f"{name} cannot be continued after {dead} kills: {type(error).__name__}: {error}")
        return dead
    if found != wanted:
        wrong.append(f"{name} ended differently after {dead} kills")
    if left := [path.name for path in folder.rglob("*.partial")]:
        wrong.append(f"{name} left {left}")
    return dead


@contextmanager
def small_disk(size: int) -> Iterator[Path | None]:
    """A disk of so many bytes; None where mounting is not allowed."""
    with tempfile.TemporaryDirectory() as folder:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True
        ).returncode
        try:
            yield None if mounted else Path(folder)
        finally:
            if not mounted:
                subprocess.run(["umount", "-l", folder], capture_output=True)


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def full_disks(sizes: list[int], *, mount: bool, say: Callable[[str], None] = print) -> tuple[int, list[str]]:
    """Every kind of work on disks of so many bytes (or with files of at most so many): tries, and what went wrong."""
    tried, wrong, told = 0, [], 0
    for size in sizes:
        for name, work in WORK.items():
            with small_disk(size) if mount else _folder() as folder:
                if folder is None:
                    say("mounting is not allowed here")
                    return tried, wrong

                def run(folder: Path = folder, work: Any = work, size: int = size) -> None:
                    if not mount:
                        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
                    work(folder, lambda: None)

                code = result_of(in_child(run))
                tried += 1
                told += code == FULL
                if code not in (0, FULL):
                    wrong.append(f"{name} on {size} bytes ended with {code}")
                if left := [path.name for path in folder.rglob("*.partial")]:
                    wrong.append(f"{name} on {size} bytes left {left}")
    say(f"full disks ({'tmpfs' if mount else 'file size limits'}): {tried} tried, {told} told, {len(wrong)} wrong")
    return tried, wrong


def read_only(*, say: Callable[[str], None] = print) -> tuple[int, list[str]]:
    """Every kind of work in a folder that may not be written, and below a file."""
    wrong: list[str] = []
    _whole("training")  # imports what another user may not read
    for name, work in WORK.items():
        for kind in ("folder", "file"):
            with _folder() as folder:
                folder.chmod(0o755)
                place = folder / "place"
                if kind == "file":
                    place.write_text("")
                    place /= "below"
                else:
                    place.mkdir(mode=0o555)

                def run(place: Path = place, work: Any = work, kind: str = kind) -> None:
                    if kind == "folder" and os.geteuid() == 0:
                        os.seteuid(65534)  # to the system administrator nothing is read-only
                    work(place, lambda: None)

                if (code := result_of(in_child(run))) != FULL:
                    wrong.append(f"{name} in a read-only {kind} ended with {code}")
    say(f"read-only: {2 * len(WORK)} tried, {len(wrong)} wrong")
    return 2 * len(WORK), wrong
