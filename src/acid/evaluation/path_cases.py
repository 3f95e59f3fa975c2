"""Goal-directed cases of visual navigation: a stretch of a held-out trajectory, cut where the robot is now.

A case is the poses of the frames that were seen, and of those that were seen next; the last of these is the goal. The
simulator draws any pose, so a file of cases is all that an evaluation needs besides the weights.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from acid.errors import DataError
from acid.evaluation.instances import read_drawn
from acid.evaluation.protocol import Protocol, halves, stable_number, starts_in_passes

if TYPE_CHECKING:
    from acid.data import Episodes

_SAME = ("task", "goal_offset", "seed", "split")


@dataclass(frozen=True, eq=False)
class PathCase:
    """Poses are (x, y, yaw) in metres and radians of the simulator's world."""

    id: str  # names the episode, the step and the poses: rows pair up only if all of them agree
    episode: int
    step: int  # of the episode, now
    world: int
    past: np.ndarray  # float64 [C, 3], oldest first; the last one is now
    future: np.ndarray  # float64 [k, 3], as they were driven; the last one is the goal
    draw: int  # its place in the sequence of draws

    @property
    def driven(self) -> np.ndarray:
        """From now to the goal, [k + 1, 3]."""
        return np.concatenate([self.past[-1:], self.future])


def draw_cases(
    episodes: Episodes, held_out_ids: Sequence[int] | np.ndarray, task: str, protocol: Protocol, *, context: int
) -> list[PathCase]:
    """`protocol.episodes` cases of its split; every held-out episode is used once before any is used twice.

    A smaller number gives the first cases of a larger one.
    """
    ahead = protocol.goal_offset or 0
    ids = halves(np.asarray(held_out_ids).tolist(), task)[protocol.split]
    counts = {e: int(episodes.lengths[e]) - ahead - context + 1 for e in ids}
    counts = {episode: count for episode, count in counts.items() if count > 0}
    if sum(counts.values()) < protocol.episodes:
        raise DataError(
            f"{protocol.episodes} cases were asked for, but the {len(ids)} held-out {protocol.split!r} episodes of "
            f"{episodes.path} give {sum(counts.values())}: ask for fewer or collect more episodes"
        )
    rng = np.random.default_rng([protocol.seed, stable_number(task), stable_number(protocol.split)])
    starts = starts_in_passes(counts, rng)
    return [
        _cut(episodes, episode, first + context - 1, context, ahead, draw)
        for draw, (episode, first) in zip(range(protocol.episodes), starts, strict=False)
    ]


def _cut(episodes: Episodes, episode: int, step: int, context: int, ahead: int, draw: int) -> PathCase:
    rows = int(episodes.offsets[episode]) + np.arange(step - context + 1, step + ahead + 1)
    poses = episodes.read("pose", rows).astype(np.float64)
    world = int(episodes.read("world", rows[:1]).reshape(-1)[0])
    if world < 0:
        raise DataError(f"episode {episode} of {episodes.path} is not of the simulator, which must draw its frames")
    digest = hashlib.sha256(np.ascontiguousarray(poses, dtype="<f8").tobytes()).hexdigest()[:8]
    name = f"e{episode:05d}-t{step:04d}-g{ahead}-{digest}"
    return PathCase(name, episode, step, world, poses[:context], poses[context:], draw)


def save_cases(path: Path, cases: Sequence[PathCase], protocol: Protocol, task: str) -> None:
    """One JSON line about the draw, then one per case; poses as exact decimal floats."""
    lines = [{"task": task, **asdict(protocol)}]
    lines += [asdict(case) | {"past": case.past.tolist(), "future": case.future.tolist()} for case in cases]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def load_cases(path: Path, protocol: Protocol, task: str) -> list[PathCase]:
    """The first `protocol.episodes` cases of a file that was drawn by this protocol."""
    _, lines = read_drawn(path, "cases", protocol, task, _SAME)
    if len(lines) < protocol.episodes:
        raise DataError(f"{path} holds {len(lines)} cases, {protocol.episodes} were asked for; ask for fewer")
    chosen = lines[: protocol.episodes]
    return [PathCase(**(line | {n: np.asarray(line[n], np.float64) for n in ("past", "future")})) for line in chosen]
