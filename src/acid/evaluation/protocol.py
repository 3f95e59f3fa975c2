"""Which starts and goals an agent is tested on: drawn once per (task, seed) and shared by every condition."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from acid.errors import AcidError, DataError, did_you_mean

if TYPE_CHECKING:
    from acid.data import Episodes
    from acid.tasks import Task

Split = Literal["select", "test"]


@dataclass(frozen=True)
class Protocol:
    """How an agent is tested: goals `goal_offset` environment steps ahead, `budget` steps to get there.

    Without an offset the task draws goals of its own.
    """

    goal_offset: int | None = 25
    budget: int = 50
    seed: int = 0
    episodes: int = 200
    split: Split = "test"  # λ is chosen on "select" and reported on "test"

    def __post_init__(self) -> None:
        for name in ("goal_offset", "budget", "episodes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise AcidError(f"protocol.{name} must be at least 1, got {value}")
        if self.seed < 0:
            raise AcidError(f"protocol.seed must not be negative, got {self.seed}")
        if self.split not in get_args(Split):
            raise AcidError(f"unknown split {self.split!r}{did_you_mean(self.split, get_args(Split))}")


@dataclass(frozen=True, eq=False)
class Instance:
    """A start in a held-out episode and a goal: the state `goal_offset` steps later, or one that the task drew."""

    id: str  # names the episode, the step and the two states: rows pair up only if all of them agree
    episode: int
    start_step: int
    start_state: np.ndarray  # [S]
    goal_state: np.ndarray  # [S]
    start_row: int  # where the two frames are in the episode file
    goal_row: int | None
    draw: int  # its place in the sequence of draws
    solved: bool = False  # the start already passes the success test


@dataclass(frozen=True, eq=False)
class Instances(Sequence[Instance]):
    """What n episodes ask for, in the order of the draws, so that one run answers to two protocols.

    Strict: the first n draws whose start is not solved already. Paper: the first n draws, whatever their start.
    """

    items: tuple[Instance, ...]

    @classmethod
    def among(cls, drawn: Sequence[Instance], episodes: int) -> Instances:
        """The instances that `episodes` ask for among a longer draw."""
        strict = [i for i in drawn if not i.solved][:episodes]
        solved = [i for i in drawn if i.solved and i.draw < episodes]
        return cls(tuple(sorted(strict + solved, key=lambda i: i.draw)))

    @property
    def unsolved(self) -> tuple[Instance, ...]:
        return tuple(i for i in self.items if not i.solved)

    @property
    def share_solved(self) -> float:
        """Of the draws up to the last strict instance, as far as the paper's protocol looks."""
        draws = [i for i in self.items if i.draw < len(self.unsolved)]
        return sum(i.solved for i in draws) / max(1, len(draws))

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index):  # type: ignore[override]  # int or slice, as for the tuple inside
        return self.items[index]


def draw_instances(episodes: Episodes, held_out_ids: Sequence[int], task: Task, protocol: Protocol) -> Instances:
    """`protocol.episodes` instances by either protocol; a smaller number gives a subset of a larger one."""
    offset = protocol.goal_offset or 0
    ids = [e for e in halves(held_out_ids, task.name)[protocol.split] if episodes.lengths[e] > offset]
    rng = np.random.default_rng([protocol.seed, stable_number(task.name), stable_number(protocol.split)])
    drawn: list[Instance] = []
    missing = protocol.episodes
    starts = starts_in_passes({e: int(episodes.lengths[e]) - offset for e in ids}, rng)
    for draw, (episode, step) in enumerate(starts):
        if missing == 0:
            break
        instance = _instance(episodes, episode, step, task, protocol, draw)
        if not task.is_fair_start(instance.start_state):
            continue
        solved = bool(task.success(instance.start_state, instance.goal_state))
        drawn.append(replace(instance, solved=solved))
        missing -= not solved
    if missing:
        found = protocol.episodes - missing
        raise DataError(
            f"{protocol.episodes} instances were asked for, but the {len(ids)} held-out {protocol.split!r} episodes "
            f"longer than {offset} steps give {found} ({len(drawn) - found} starts already solved): "
            "ask for fewer or collect more episodes"
        )
    return Instances.among(drawn, protocol.episodes)


def halves(held_out_ids: Sequence[int], task_name: str) -> dict[str, list[int]]:
    """Disjoint halves of the held-out episodes.

    They do not depend on the protocol's seed: λ chosen on "select" with one seed must not meet its own episodes in
    "test" with another.
    """
    shuffled = np.random.default_rng(stable_number(task_name)).permutation(np.sort(np.asarray(held_out_ids))).tolist()
    middle = len(shuffled) // 2
    return {"select": sorted(shuffled[:middle]), "test": sorted(shuffled[middle:])}


def starts_in_passes(counts: dict[int, int], rng: np.random.Generator) -> Iterator[tuple[int, int]]:
    """(episode, step) in passes over the episodes, each with a step not used before.

    Every episode is used once before any is used twice, which keeps the instances as independent as the data allow.
    """
    unused = {episode: rng.permutation(count).tolist() for episode, count in sorted(counts.items())}
    while unused:
        for episode in rng.permutation(sorted(unused)).tolist():
            yield episode, unused[episode].pop()
        unused = {episode: steps for episode, steps in unused.items() if steps}


def _instance(episodes: Episodes, episode: int, step: int, task: Task, protocol: Protocol, draw: int) -> Instance:
    row = int(episodes.offsets[episode]) + step
    offset = protocol.goal_offset
    if offset is None:
        (start,) = episodes.read("state", np.array([row]))
        task.set_state(start)
        goal = task.draw_goal(np.random.default_rng([protocol.seed, stable_number(task.name), episode, step]))
    else:
        start, goal = episodes.read("state", np.array([row, row + offset]))
    digest = hashlib.sha256(np.ascontiguousarray([start, goal], dtype="<f8").tobytes()).hexdigest()[:8]
    return Instance(
        id=f"e{episode:05d}-t{step:04d}-g{'' if offset is None else offset}-{digest}",
        episode=episode,
        start_step=step,
        start_state=start,
        goal_state=goal,
        start_row=row,
        goal_row=None if offset is None else row + offset,
        draw=draw,
    )


def stable_number(text: str) -> int:
    """A stable number for a name (`hash` differs from process to process)."""
    return zlib.crc32(text.encode())
