"""Which starts and goals an agent is tested on: drawn once per (task, seed) and shared by every condition."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from acid.errors import AcidError, DataError, did_you_mean

if TYPE_CHECKING:
    from acid.data import Episodes
    from acid.tasks import Task

Split = Literal["select", "test"]


@dataclass(frozen=True)
class Protocol:
    """How an agent is tested: goals `goal_offset` environment steps ahead, `budget` steps to get there."""

    goal_offset: int = 25
    budget: int = 50
    seed: int = 0
    episodes: int = 200
    split: Split = "test"  # λ is chosen on "select" and reported on "test"

    def __post_init__(self) -> None:
        for name in ("goal_offset", "budget", "episodes"):
            if getattr(self, name) < 1:
                raise AcidError(f"protocol.{name} must be at least 1, got {getattr(self, name)}")
        if self.seed < 0:
            raise AcidError(f"protocol.seed must not be negative, got {self.seed}")
        if self.split not in get_args(Split):
            raise AcidError(f"unknown split {self.split!r}{did_you_mean(self.split, get_args(Split))}")


@dataclass(frozen=True, eq=False)
class Instance:
    """One start and one goal, `goal_offset` steps apart in a held-out episode."""

    id: str  # names the episode, the step and the two states: rows pair up only if all of them agree
    episode: int
    start_step: int
    start_state: np.ndarray  # [S]
    goal_state: np.ndarray  # [S]
    start_row: int  # where the two frames are in the episode file
    goal_row: int


@dataclass(frozen=True, eq=False)
class Instances(Sequence[Instance]):
    """The drawn instances and how many draws were dropped because the start already passed the success test."""

    items: tuple[Instance, ...]
    dropped_solved: int

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index):  # type: ignore[override]  # int or slice, as for the tuple inside
        return self.items[index]


def draw_instances(episodes: Episodes, held_out_ids: Sequence[int], task: Task, protocol: Protocol) -> Instances:
    """`protocol.episodes` unsolved instances; a smaller number gives a prefix of a larger one."""
    ids = [e for e in halves(held_out_ids, task.name)[protocol.split] if episodes.lengths[e] > protocol.goal_offset]
    rng = np.random.default_rng([protocol.seed, _number(task.name), _number(protocol.split)])
    items: list[Instance] = []
    dropped = 0
    for episode, step in _starts({e: int(episodes.lengths[e]) - protocol.goal_offset for e in ids}, rng):
        if len(items) == protocol.episodes:
            break
        instance = _instance(episodes, episode, step, protocol.goal_offset)
        if task.success(instance.start_state, instance.goal_state):
            dropped += 1
        else:
            items.append(instance)
    if len(items) < protocol.episodes:
        raise DataError(
            f"{protocol.episodes} instances were asked for, but the {len(ids)} held-out {protocol.split!r} episodes "
            f"longer than {protocol.goal_offset} steps give {len(items)} ({dropped} starts already solved): "
            "ask for fewer or collect more episodes"
        )
    return Instances(tuple(items), dropped)


def halves(held_out_ids: Sequence[int], task_name: str) -> dict[str, list[int]]:
    """Disjoint halves of the held-out episodes.

    They do not depend on the protocol's seed: λ chosen on "select" with one seed must not meet its own episodes in
    "test" with another.
    """
    shuffled = np.random.default_rng(_number(task_name)).permutation(np.sort(np.asarray(held_out_ids))).tolist()
    middle = len(shuffled) // 2
    return {"select": sorted(shuffled[:middle]), "test": sorted(shuffled[middle:])}


def _starts(counts: dict[int, int], rng: np.random.Generator) -> Iterator[tuple[int, int]]:
    """(episode, step) in passes over the episodes, each with a step not used before.

    Every episode is used once before any is used twice, which keeps the instances as independent as the data allow.
    """
    unused = {episode: rng.permutation(count).tolist() for episode, count in sorted(counts.items())}
    while unused:
        for episode in rng.permutation(sorted(unused)).tolist():
            yield episode, unused[episode].pop()
        unused = {episode: steps for episode, steps in unused.items() if steps}


def _instance(episodes: Episodes, episode: int, step: int, goal_offset: int) -> Instance:
    row = int(episodes.offsets[episode]) + step
    start, goal = episodes.read("state", np.array([row, row + goal_offset]))
    digest = hashlib.sha256(np.ascontiguousarray([start, goal], dtype="<f8").tobytes()).hexdigest()[:8]
    return Instance(
        id=f"e{episode:05d}-t{step:04d}-g{goal_offset}-{digest}",
        episode=episode,
        start_step=step,
        start_state=start,
        goal_state=goal,
        start_row=row,
        goal_row=row + goal_offset,
    )


def _number(text: str) -> int:
    """A stable number for a name (`hash` differs from process to process)."""
    return zlib.crc32(text.encode())
