"""Commands that write for long, killed by every signal: `kill_commands` counts kills, orphans and what ended otherwise.

Each runs in a child of this process, so that nothing is imported anew; its workers are real ones.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import acid.cli.data  # what commands need is imported here once, and not by every child
import acid.cli.evaluate
import acid.cli.train
import acid.models.lewm
import acid.tasks.reacher  # noqa: F401
from acid import cli
from acid.data import Episodes
from acid.evaluation import read_rows
from acid.tasks import Setup, Task
from faults.work import digest

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
PATIENCE = 300.0  # s of the clock until a process must have ended, on a machine that may be busy with other things
MARK = "ACID_FAULTS"  # in the environment of all workers


class Dot(Task):
    """A bright dot that an action moves, drawn slowly enough to be killed meanwhile."""

    name = "dot"
    frameskip = 5
    episode_steps = 32
    setup = Setup(goal_offset=5, budget=10)

    def __init__(self, *, size: int = 64) -> None:
        self.size = size
        self.action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.position = np.zeros(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.position = np.random.default_rng(seed).uniform(0.2, 0.8, 2)
        return self.render(), {}

    def behaviour(self, generator: np.random.Generator) -> Any:
        return Wandering(generator)

    def set_state(self, state: np.ndarray) -> None:
        self.position = np.array(state)

    def get_state(self) -> np.ndarray:
        return self.position.copy()

    def advance(self, action: np.ndarray) -> None:
        self.position = np.clip(self.position + 0.1 * np.asarray(action, np.float64), 0, 0.99)

    def render(self) -> np.ndarray:  # type: ignore[override]
        time.sleep(0.001)
        image = np.zeros((self.size, self.size, 3), np.uint8)
        row, column = (self.position * (self.size - 4)).astype(int)
        image[row : row + 4, column : column + 4] = 255
        return image

    def pose(self, state: np.ndarray) -> np.ndarray:
        return state

    def error(self, state: np.ndarray, goal_state: np.ndarray) -> float:
        return float(np.linalg.norm(state - goal_state))

    def success(self, state: np.ndarray, goal_state: np.ndarray) -> bool:
        return self.error(state, goal_state) < 0.05


class Wandering:
    def __init__(self, generator: np.random.Generator) -> None:
        self.generator = generator

    def act(self, task: Task) -> np.ndarray:
        return self.generator.uniform(-1, 1, 2)


@dataclass(frozen=True)
class Command:
    """A command line, of which FOLDER is filled in; how far it has come; and what came out."""

    line: str
    progress: Callable[[Path], int]
    most: int  # the progress at which it has ended, or nearly
    result: Callable[[Path], bytes]


def _lines(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.rglob("*.jsonl"))


def _rows(folder: Path) -> bytes:
    found = read_rows(sorted(folder.rglob("*.jsonl")))
    return repr([replace(row, plan_cpu_seconds=None, plan_wall_seconds=None) for row in found]).encode()


def _episodes(folder: Path) -> bytes:
    with Episodes(folder / "dots.h5") as found:
        return b"".join(found.read(name, np.arange(found.rows)).tobytes() for name in sorted(found.columns))


_EVAL = "eval reacher --episodes 6 --batch 1 --results FOLDER --conditions "
_TRAIN = "--data DATA --out FOLDER --device cpu --loop.log-every 1 --loop.save-every 5 --batch-size 2 --steps 20"
COMMANDS = {
    "eval": Command(f"{_EVAL} original acid --samples 4 --iterations 1 --elites 2", _lines, 12, _rows),
    "eval by workers": Command(f"{_EVAL} noop random --processes 2", _lines, 12, _rows),
    "collect": Command(
        "collect faults.commands:Dot --episodes 70 --out FOLDER/dots.h5 --processes 1",
        lambda folder: len(list(folder.glob("*.parts/*.h5"))),
        4,
        _episodes,
    ),
    "train": Command(
        f"train model lewm --task faults.commands:Dot {_TRAIN}",
        _lines,
        20,
        lambda folder: (folder / "model" / "model.safetensors").read_bytes(),
    ),
}


def kill_commands(
    rounds: int, names: tuple[str, ...] = tuple(COMMANDS), *, seed: int = 0, say: Callable[[str], None] = print
) -> tuple[int, list[str]]:
    """Kill each command by every signal in turn, then let it come to its end; kills, and what went wrong."""
    chance, wrong, dead = random.Random(seed), list[str](), dict.fromkeys(names, 0)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        data.mkdir()
        _expect_end(_start(COMMANDS["collect"].line, data, data), "collect", data, wrong)
        for name in names:
            whole = Path(folder) / f"{name} undisturbed"
            whole.mkdir()
            _expect_end(_start(COMMANDS[name].line, whole, data), name, whole, wrong)
            if wrong:
                return 0, wrong
            wanted = digest(COMMANDS[name].result(whole))
            for number in range(rounds):
                place = Path(folder) / f"{name} {number}"
                place.mkdir()
                dead[name] += _kill_in_turn(name, place, data, chance, wanted, wrong)
    say(f"kills of commands: {dead}, {len(wrong)} wrong")
    return sum(dead.values()), wrong


def _kill_in_turn(name: str, folder: Path, data: Path, chance: random.Random, wanted: str, wrong: list[str]) -> int:
    command, dead = COMMANDS[name], 0
    moments = sorted(chance.randrange(command.most) for _ in SIGNALS)
    for kind, moment in zip(chance.sample(SIGNALS, len(SIGNALS)), moments, strict=True):
        child = _start(command.line, folder, data)
        while command.progress(folder) < moment and not os.waitid(
            os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT
        ):
            time.sleep(0.005)
        time.sleep(chance.choice([0.0, 0.01, 0.1, 0.5]))
        if kind == signal.SIGINT:
            os.killpg(child, kind)  # as a terminal does: to all of them
        else:
            os.kill(child, kind)
        code, said = _end_of(child, folder)
        if code == 0:
            break  # it was faster
        dead += 1
        told = code == 130 and "the same command continues" in said
        if not told if kind == signal.SIGINT else code != -kind:
            wrong.append(f"{name} ended with {code} after {kind.name}: {said[-300:]!r}")
        if "Traceback" in said:
            wrong.append(f"{name} showed a traceback after {kind.name}: {said[-300:]!r}")
        if left := _workers_left():
            wrong.append(f"{name} left the processes {left} behind after {kind.name}")
    _expect_end(_start(command.line, folder, data), name, folder, wrong)
    if not wrong and digest(command.result(folder)) != wanted:
        wrong.append(f"{name} ended differently after {dead} kills")
    if left := [path.name for path in folder.rglob("*.partial")]:
        wrong.append(f"{name} left {left}")
    return dead


def _start(line: str, folder: Path, data: Path) -> int:
    """The command in a process group of its own; what it says goes to a file beside the folder.

    Signals wait until the command has begun: before that, there is nobody to heed them.
    """
    said = os.open(_said(folder), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    reading, writing = os.pipe()
    waiting = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    child = os.fork()
    if child:
        signal.pthread_sigmask(signal.SIG_SETMASK, waiting)
        os.close(said)
        os.close(writing)
        with os.fdopen(reading, "rb") as ready:
            ready.read(1)
        return child
    os.setsid()
    for number, action in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        signal.signal(number, action)  # whatever started the tests may have them ignored
    os.environ[MARK] = str(os.getppid())
    os.dup2(said, 1)
    os.dup2(said, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)  # pytest has its own
    begin = cli._run

    def run(name: str, arguments: list[str]) -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        begin(name, arguments)

    cli._run = run
    os.close(writing)
    code = 1
    try:
        filled = line.replace("DATA", str(data / "dots.h5")).split()
        cli.main([part.replace("FOLDER", str(folder)) for part in filled])
        code = 0
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _said(folder: Path) -> Path:
    return folder.with_name(folder.name + ".said")


def _end_of(child: int, folder: Path) -> tuple[int, str]:
    """Exit code, or minus the signal, and what was said."""
    end = time.monotonic() + PATIENCE
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            break
        if time.monotonic() > end:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return 999, "it did not end"
        time.sleep(0.01)
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    return code, _said(folder).read_text()


def _expect_end(child: int, name: str, folder: Path, wrong: list[str]) -> None:
    code, said = _end_of(child, folder)
    if code:
        wrong.append(f"{name} could not come to its end, {code}: {said[-500:]!r}")


def _workers_left() -> list[str]:
    """Processes that carry our mark and have not ended after a while."""
    end = time.monotonic() + PATIENCE
    while left := [path.name for path in Path("/proc").glob("[0-9]*") if _is_marked(path)]:
        if time.monotonic() > end:
            break
        time.sleep(0.02)
    return left


def _is_marked(process: Path) -> bool:
    try:
        return f"{MARK}={os.getpid()}".encode() in (process / "environ").read_bytes().split(b"\0")
    except OSError:  # it ended meanwhile, or is another user's
        return False
