"""Which starts and goals an agent is tested on: drawn once per task and seed, and shared by every condition."""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from acid.errors import AcidError, DataError, did_you_mean

if TYPE_CHECKING:
    from acid.data import Episodes
    from acid.tasks import Setup, Task

Split = Literal["select", "test", "confirm"]


@dataclass(frozen=True)
class Protocol:
    """How an agent is tested: goals `goal_offset` environment steps ahead, `budget` steps to reach them.

    Without an offset the task draws goals of its own.
    """

    goal_offset: int | None = 25
    budget: int = 50
    seed: int = 0
    episodes: int = 200
    split: Split = (
        "test"  # λ is chosen on "select", reported on "test", and tried once more on newly collected "confirm"
    )

    def __post_init__(self) -> None:
        for name in ("goal_offset", "budget", "episodes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise AcidError(f"{name} must be at least 1, got {value}")
        if self.seed < 0:
            raise AcidError(f"seed must not be negative, got {self.seed}")
        if self.split not in get_args(Split):
            raise AcidError(f"unknown split {self.split!r}{did_you_mean(self.split, get_args(Split))}")

    def steps_left(self, left: int, frameskip: int) -> int:
        """Model steps until the goal is due when `left` environment steps are left; at least 1, also when overdue.

        A goal that the task drew is due at the end.
        """
        due = self.budget if self.goal_offset is None else self.goal_offset
        return max(1, math.ceil((due - (self.budget - left)) / frameskip))

    @classmethod
    def of(cls, setup: Setup, *, episodes: int = 200, split: Split = "test", seed: int = 0) -> Protocol:
        """A task's usual protocol."""
        return cls(setup.goal_offset, setup.budget, seed, episodes, split)


@dataclass(frozen=True, eq=False)
class Instance:
    """A start in a held-out episode and a goal, as states [S] of the task.

    The goal is the state `goal_offset` steps later, or one that the task drew.
    """

    id: str  # names the episode, the step and the states: rows are paired only if all of them agree
    episode: int
    start_step: int
    start_state: np.ndarray
    goal_state: np.ndarray
    draw: int  # its place in the sequence of draws
    solved: bool = False  # the start already passes the success test
    context: np.ndarray | None = None  # [C - 1, S] the states before the start, oldest first, if an agent is shown them
    path: np.ndarray | None = None  # [k, S] the states that followed, the goal last, if plans are compared with them

    @property
    def seen(self) -> np.ndarray:
        """The states [C, S] whose frames an agent is shown first; the last one is the start."""
        start = self.start_state[None]
        return start if self.context is None else np.concatenate([self.context, start])


@dataclass(frozen=True, eq=False)
class Instances(Sequence[Instance]):
    """The instances that serve n episodes under two protocols, in the order in which they were drawn.

    Strict: the first n draws whose start is not solved already. Paper: the first n draws, whatever their start.
    """

    items: tuple[Instance, ...]

    @classmethod
    def among(cls, drawn: Sequence[Instance], episodes: int) -> Instances:
        """Those of a longer draw that n = `episodes` need."""
        strict = [i for i in drawn if not i.solved][:episodes]
        solved = [i for i in drawn if i.solved and i.draw < episodes]
        return cls(tuple(sorted(strict + solved, key=lambda i: i.draw)))

    @property
    def unsolved(self) -> tuple[Instance, ...]:
        return tuple(i for i in self.items if not i.solved)

    @property
    def share_solved(self) -> float:
        """Of the first n draws."""
        draws = [i for i in self.items if i.draw < len(self.unsolved)]
        return sum(i.solved for i in draws) / max(1, len(draws))

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index):  # type: ignore[override]  # int or slice, as for the tuple inside
        return self.items[index]


def draw_instances(episodes: Episodes, unseen: Sequence[int], task: Task, protocol: Protocol) -> Instances:
    """Instances for `protocol.episodes`; a smaller number gives a subset of a larger one.

    unseen: episodes that nothing was trained on. One half of them is for "select", one for "test"; all for "confirm".
    Every episode is used once before any is used twice.
    """
    ahead, context = protocol.goal_offset or 0, task.setup.context
    ids = unseen if protocol.split == "confirm" else halves(unseen, task.name)[protocol.split]
    counts = {e: int(episodes.lengths[e]) - ahead - context + 1 for e in ids}
    starts = starts_in_passes(
        {episode: count for episode, count in counts.items() if count > 0},
        np.random.default_rng([protocol.seed, stable_number(task.name), stable_number(protocol.split)]),
    )
    drawn: list[Instance] = []
    missing = protocol.episodes
    for draw, (episode, first) in enumerate(starts):
        if missing == 0:
            break
        instance = _cut(episodes, episode, first + context - 1, task, protocol, draw)
        if not task.is_fair_start(instance.start_state):
            continue
        solved = not task.setup.judges_paths and bool(task.success(instance.start_state, instance.goal_state))
        drawn.append(replace(instance, solved=solved))
        missing -= not solved
    if missing:
        found = protocol.episodes - missing
        raise DataError(
            f"{protocol.episodes} instances were asked for, but the {len(ids)} unseen {protocol.split!r} episodes "
            f"give {found} ({len(drawn) - found} starts are already solved): ask for fewer or collect more episodes"
        )
    return Instances.among(drawn, protocol.episodes)


def recorded_states(episodes: Episodes, rows: np.ndarray, task: Task) -> np.ndarray:
    """The task's states [n, S] in rows of a dataset, which may be a published one that tells them otherwise."""
    for names in task.state_columns:
        if all(name in episodes.columns for name in names):
            return task.recorded_states({name: episodes.read(name, rows) for name in names})
    wanted = " nor ".join(" and ".join(names) for names in task.state_columns)
    raise DataError(f"{episodes.path} does not tell the states of {task.name}: it has no column {wanted}")


def halves(held_out_ids: Sequence[int], task_name: str) -> dict[str, list[int]]:
    """Disjoint halves of the held-out episodes.

    They do not depend on the protocol's seed: λ chosen on "select" with one seed must not meet its own episodes in
    "test" with another.
    """
    shuffled = np.random.default_rng(stable_number(task_name)).permutation(np.sort(np.asarray(held_out_ids))).tolist()
    middle = len(shuffled) // 2
    return {"select": sorted(shuffled[:middle]), "test": sorted(shuffled[middle:])}


def starts_in_passes(counts: dict[int, int], rng: np.random.Generator) -> Iterator[tuple[int, int]]:
    """(episode, step) in passes over the episodes, each with a step not used before."""
    unused = {episode: rng.permutation(count).tolist() for episode, count in sorted(counts.items())}
    while unused:
        for episode in rng.permutation(sorted(unused)).tolist():
            yield episode, unused[episode].pop()
        unused = {episode: steps for episode, steps in unused.items() if steps}


def plan_seed(seed: int, instance_id: str, plan: int) -> int:
    """A random stream per (seed, instance, plan), the same for every condition."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{instance_id}/{plan}".encode()).digest()[:4])


def digest(states: Sequence[np.ndarray]) -> str:
    """Eight hexadecimal digits that change with any of the states."""
    return hashlib.sha256(np.ascontiguousarray(states, dtype="<f8").tobytes()).hexdigest()[:8]


def stable_number(text: str) -> int:
    """A stable number for a name (`hash` differs from process to process)."""
    return zlib.crc32(text.encode())


def _cut(episodes: Episodes, episode: int, step: int, task: Task, protocol: Protocol, draw: int) -> Instance:
    """The instance that starts at a step of an episode."""
    setup, offset = task.setup, protocol.goal_offset
    now = int(episodes.offsets[episode]) + step
    before = recorded_states(episodes, np.arange(now - setup.context + 1, now + 1), task)
    start, context, path = before[-1], before[:-1] if setup.context > 1 else None, None
    if offset is None:
        task.set_state(start)
        goal = task.draw_goal(np.random.default_rng([protocol.seed, stable_number(task.name), episode, step]))
    elif setup.judges_paths:
        path = recorded_states(episodes, np.arange(now + 1, now + offset + 1), task)
        goal = path[-1]
    else:
        (goal,) = recorded_states(episodes, np.array([now + offset]), task)
    named = [start, goal] if path is None else [task.pose(state) for state in (*before, *path)]
    name = f"e{episode:05d}-t{step:04d}-g{'' if offset is None else offset}-{digest(named)}"
    return Instance(name, episode, step, start, goal, draw, context=context, path=path)
