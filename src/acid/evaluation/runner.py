"""Runs an agent on instances: plan, execute, test after every environment step, replan, write rows."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from acid.evaluation.agents import Agent, Decision
from acid.evaluation.conditions import Condition
from acid.evaluation.protocol import Instance, Protocol
from acid.evaluation.provenance import Provenance
from acid.evaluation.rows import Row, RowFile, key

if TYPE_CHECKING:
    from acid.tasks import Task

Progress = Callable[[int, int], None]  # rows done, rows in all


@dataclass
class Episode:
    """One instance being played. All errors are in the task's own unit."""

    instance: Instance
    budget: int
    state: np.ndarray  # [S]
    pixels: np.ndarray  # uint8 [H, W, 3]
    goal_pixels: np.ndarray  # uint8 [H, W, 3]
    initial_error: float
    best_error: float = field(init=False)
    final_error: float = field(init=False)
    ends_by_success: bool = True
    steps: int = 0
    success: bool = False
    misses: int = 0  # environment steps that changed nothing
    errors: list[float] = field(default_factory=list)  # after each model step
    imagined_errors: list[float] = field(default_factory=list)  # what the plans thought these would be
    plans: int = 0
    plan_seconds: float = 0.0
    imagined_error: float | None = None  # of the last plan: ‖ẑ_H − z_g‖²
    executed_error: float | None = None  # of the last plan: ‖z − ẑ‖² after its last executed action
    consistency: float | None = None  # of the last plan: mean over its steps

    def __post_init__(self) -> None:
        self.best_error = self.final_error = self.initial_error

    @property
    def finished(self) -> bool:
        return (self.success and self.ends_by_success) or self.steps >= self.budget


def run(
    task_factory: Callable[[], Task],
    agent: Agent,
    instances: Sequence[Instance],
    *,
    protocol: Protocol,
    condition: Condition,
    provenance: Provenance,
    writer: RowFile,
    batch: int = 8,
    progress: Progress | None = None,
) -> None:
    """Every instance that the writer does not have yet, `batch` at a time on one task object."""

    def columns(instance: Instance) -> dict[str, Any]:
        return {
            **condition.columns(),
            "split": protocol.split,
            "seed": protocol.seed,
            "instance": instance.id,
        }

    todo = [instance for instance in instances if key(columns(instance)) not in writer]
    done = len(instances) - len(todo)
    report = progress or (lambda done, total: None)
    report(done, len(instances))
    if not todo:
        return
    with contextlib.closing(task_factory()) as task:
        for first in range(0, len(todo), batch):
            episodes = play(task, agent, todo[first : first + batch], protocol=protocol)
            shared = _shared_columns(task, protocol, provenance)
            writer.append([{**columns(e.instance), **_outcome(e), **shared} for e in episodes])
            done += len(episodes)
            report(done, len(instances))


def play(task: Task, agent: Agent, instances: Sequence[Instance], *, protocol: Protocol) -> list[Episode]:
    """A batch of instances to their ends. Those still running share every call of the agent."""
    episodes = [_begin(task, instance, protocol.budget) for instance in instances]
    while running := [episode for episode in episodes if not episode.finished]:
        decision = agent.act(
            np.stack([e.pixels for e in running]),
            np.stack([e.goal_pixels for e in running]),
            left=protocol.budget - running[0].steps,  # the same for all: an episode stops by success or by budget
            seeds=[plan_seed(protocol.seed, e.instance.id, e.plans) for e in running],
        )
        for b, episode in enumerate(running):
            _note(task, episode, decision, b, share=decision.seconds / len(running))
            _execute(task, episode, decision.env_actions[b], to_the_end=decision.gap is not None)
        _compare(decision, running)
    return episodes


def plan_seed(seed: int, instance_id: str, plan: int) -> int:
    """A random stream per (seed, instance, plan), the same for every condition."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{instance_id}/{plan}".encode()).digest()[:4])


def same_in_a_file(protocol: Protocol, provenance: Provenance) -> dict[str, Any]:
    """What a `RowFile` must be opened with for this run."""
    return {
        "checkpoints": dict(provenance.checkpoints),
        "goal_offset": protocol.goal_offset,
        "budget": protocol.budget,
    }


def _begin(task: Task, instance: Instance, budget: int) -> Episode:
    task.set_state(instance.goal_state)
    goal_pixels = task.render()
    task.set_state(instance.start_state)
    return Episode(
        instance=instance,
        budget=budget,
        state=instance.start_state,
        pixels=task.render(),
        goal_pixels=goal_pixels,
        initial_error=float(task.error(instance.start_state, instance.goal_state)),
        ends_by_success=task.metric == "success",
    )


def _note(task: Task, episode: Episode, decision: Decision, b: int, *, share: float) -> None:
    if decision.imagined_pose is not None:
        left = (episode.budget - episode.steps) // task.frameskip
        goal = episode.instance.goal_state
        episode.imagined_errors += [task.pose_error(pose, goal) for pose in decision.imagined_pose[b][:left]]
    episode.plans += 1
    episode.plan_seconds += share
    episode.imagined_error = None if decision.imagined_error is None else float(decision.imagined_error[b])
    residuals = decision.plan.consistency if decision.plan else None
    episode.consistency = None if residuals is None else float(residuals[b].mean())


def _execute(task: Task, episode: Episode, actions: np.ndarray, *, to_the_end: bool) -> None:
    """Environment actions [k, a] until the first success or the budget.

    A plan that was to be compared with what it imagined is then carried to its end, without counting: comparing only
    the plans that failed would make the model look worse than it is.
    """
    task.set_state(episode.state)
    goal = episode.instance.goal_state
    for action in actions:
        if episode.finished and not to_the_end:
            break
        before = task.get_state()
        task.advance(action)
        if not episode.finished:
            episode.state = task.get_state()
            episode.misses += not task.moved(before, episode.state)
            episode.steps += 1
            episode.final_error = float(task.error(episode.state, goal))
            episode.best_error = min(episode.best_error, episode.final_error)
            episode.success |= bool(task.success(episode.state, goal))
            if episode.steps % task.frameskip == 0:
                episode.errors.append(episode.final_error)
    if to_the_end or not episode.finished:
        episode.pixels = task.render()


def _compare(decision: Decision, episodes: Sequence[Episode]) -> None:
    """How far reality ended from what the plan imagined there."""
    if decision.gap is None:
        return
    gaps = decision.gap(np.stack([e.pixels for e in episodes])).tolist()
    for episode, gap in zip(episodes, gaps, strict=True):
        episode.executed_error = gap


def _outcome(episode: Episode) -> dict[str, Any]:
    return {
        "episode": episode.instance.episode,
        "start_step": episode.instance.start_step,
        "draw": episode.instance.draw,
        "solved_at_start": episode.instance.solved,
        "success": episode.success,
        "steps": episode.steps,
        "initial_error": episode.initial_error,
        "best_error": episode.best_error,
        "final_error": episode.final_error,
        "errors": episode.errors,
        "imagined_errors": episode.imagined_errors,
        "misses": episode.misses,
        "imagined_error": episode.imagined_error,
        "executed_error": episode.executed_error,
        "consistency": episode.consistency,
        "plans": episode.plans,
        "plan_seconds": round(episode.plan_seconds, 6),
    }


def _shared_columns(task: Task, protocol: Protocol, provenance: Provenance) -> Row:
    return {
        "metric": task.metric,
        "higher_is_better": task.higher_is_better,
        **same_in_a_file(protocol, provenance),
        "revision": provenance.revision,
        "versions": dict(provenance.versions),
    }
