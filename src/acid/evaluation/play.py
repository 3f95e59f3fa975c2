"""The one loop that plays an episode: decide, execute, test after every environment step, decide again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from acid.errors import AcidError, DataError
from acid.evaluation.agents import Agent, Decision, Situation
from acid.evaluation.protocol import Instance, Protocol
from acid.files import load_arrays, replacing

if TYPE_CHECKING:
    from acid.tasks import Task


@dataclass(frozen=True)
class PlanFilm:
    """What a plan imagined, for its executed model steps, and how its search went."""

    imagined: Tensor  # [k + 1, P, D], the first one observed
    residuals: np.ndarray  # [k], empty if no term has them
    spreads: dict[str, np.ndarray]  # [J] by cost term: over the candidates of each iteration
    weights: dict[str, np.ndarray]  # [J] by cost term


@dataclass
class Film:
    """Everything that was seen and imagined in an episode."""

    goal: np.ndarray  # uint8 [S, S, 3]
    frames: list[np.ndarray]  # uint8 [S, S, 3], before the first environment step and after each
    errors: list[float]  # of the state in each frame
    plans: list[PlanFilm] = field(default_factory=list)

    def save(self, path: Path) -> None:
        arrays: dict[str, np.ndarray] = {"goal": self.goal, "frames": np.stack(self.frames)}
        arrays["errors"] = np.array(self.errors)
        for number, plan in enumerate(self.plans):
            arrays |= {f"{number}/imagined": plan.imagined.numpy(), f"{number}/residuals": plan.residuals}
            arrays |= {f"{number}/spreads/{name}": values for name, values in plan.spreads.items()}
            arrays |= {f"{number}/weights/{name}": values for name, values in plan.weights.items()}
        with replacing(path) as partial, partial.open("wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: Path) -> Film:
        remedy = "play the episode again"
        arrays = load_arrays(path, remedy=remedy)

        def named(start: str) -> dict[str, np.ndarray]:
            return {name.removeprefix(start): values for name, values in arrays.items() if name.startswith(start)}

        try:
            film = cls(arrays["goal"], list(arrays["frames"]), arrays["errors"].tolist())
            for k in range(sum(name.endswith("/imagined") for name in arrays)):
                imagined = torch.from_numpy(arrays[f"{k}/imagined"])
                spreads, weights = named(f"{k}/spreads/"), named(f"{k}/weights/")
                film.plans.append(PlanFilm(imagined, arrays[f"{k}/residuals"], spreads, weights))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path} is not a film of ours ({error}); {remedy}") from error
        return film


@dataclass
class Episode:
    """One instance being played. All errors are in the task's own unit."""

    instance: Instance
    budget: int
    state: np.ndarray  # [S]
    frames: list[np.ndarray]  # uint8 [S, S, 3], the last C model steps; the last one is seen now
    goal: np.ndarray  # uint8 [S, S, 3]
    initial_error: float
    best_error: float = field(init=False)
    final_error: float = field(init=False)
    ends_by_success: bool = True
    steps: int = 0
    success: bool = False
    missed_steps: int = 0  # environment steps that changed nothing
    errors: list[float] = field(default_factory=list)  # after each model step
    imagined_errors: list[float] = field(default_factory=list)  # what the plans imagined these to be
    metrics: dict[str, float] = field(default_factory=dict)  # what else the task measures
    decisions: int = 0
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    goal_cost: float | None = None  # of the last plan: ‖ẑ_H − z_g‖²
    gap: float | None = None  # of the last plan: ‖z − ẑ‖² after its last executed action
    consistency: float | None = None  # of the last plan: mean over its steps
    plan: np.ndarray | None = None  # [k, a] the last one, in environment units
    pool: dict[str, float] = field(default_factory=dict)
    film: Film | None = None

    def __post_init__(self) -> None:
        self.best_error = self.final_error = self.initial_error

    @property
    def finished(self) -> bool:
        return (self.success and self.ends_by_success) or self.steps >= self.budget


def play(
    task: Task, agent: Agent, instances: Sequence[Instance], *, protocol: Protocol, film: bool = False
) -> list[Episode]:
    """A batch of instances to their ends. Those still running share every call of the agent.

    film: keep every frame and what every plan imagined.
    """
    episodes = [_begin(task, instance, protocol.budget, film) for instance in instances]
    while running := [episode for episode in episodes if not episode.finished]:
        decision = agent.act(_situation(task, running, protocol))
        _check(decision, agent, len(running))
        for b, episode in enumerate(running):
            _note(task, episode, decision, b, share=1 / len(running))
            _execute(task, episode, decision.env_actions[b], to_the_end=decision.gap is not None)
        _compare(decision, running)
    for episode in episodes:
        if task.metric != "success":
            episode.metrics.setdefault(task.metric, episode.final_error)
    return episodes


def _check(decision: Decision, agent: Agent, episodes: int) -> None:
    if not isinstance(decision, Decision):
        raise AcidError(f"{type(agent).__name__} must answer with a Decision, got a {type(decision).__name__}")
    shape = decision.env_actions.shape
    if len(shape) != 3 or shape[0] != episodes or shape[1] < 1:
        raise AcidError(
            f"{type(agent).__name__} decided on actions of shape {list(shape)} for {episodes} episodes, which must be "
            "[B, k, a] with at least one step"
        )


def execute(task: Task, state: np.ndarray, actions: np.ndarray, *, every: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Carry out environment actions [k, a] from a state: frames [k / every, S, S, 3] and the state at the end."""
    task.set_state(state)
    frames = []
    for step, action in enumerate(actions, start=1):
        task.advance(task.command(action))
        if step % every == 0:
            frames.append(task.render())
    return np.stack(frames), task.get_state()


def render_states(task: Task, states: np.ndarray) -> np.ndarray:
    """Frames uint8 [n, S, S, 3] of states [n, S]."""
    frames = []
    for state in states:
        task.set_state(state)
        frames.append(task.render())
    return np.stack(frames)


def _begin(task: Task, instance: Instance, budget: int, film: bool) -> Episode:
    goal, *seen = render_states(task, np.concatenate([instance.goal_state[None], instance.seen]))
    error = float(task.error(instance.start_state, instance.goal_state))
    return Episode(
        instance=instance,
        budget=budget,
        state=instance.start_state,
        frames=seen,
        goal=goal,
        initial_error=error,
        ends_by_success=task.metric == "success",
        film=Film(goal, [seen[-1]], [error]) if film else None,
    )


def _situation(task: Task, running: Sequence[Episode], protocol: Protocol) -> Situation:
    last = [task.last_action(e.instance.seen) if e.decisions == 0 else None for e in running]

    def judge(b: int, actions: np.ndarray) -> np.ndarray | None:
        return _path_metrics(task, running[b], actions).get(task.metric)

    return Situation(
        frames=np.stack([np.stack(e.frames) for e in running]),
        goals=np.stack([e.goal for e in running]),
        left=protocol.budget - running[0].steps,  # the same for all: an episode stops by success or by budget
        instances=[e.instance.id for e in running],
        seed=protocol.seed,
        plan=running[0].decisions,
        last_actions=None if any(action is None for action in last) else np.stack(last),  # type: ignore[arg-type]
        judge=judge,
    )


def _path_metrics(task: Task, episode: Episode, actions: np.ndarray) -> dict[str, np.ndarray]:
    """Errors of plans [..., k, a] against the path that was really taken, [...] each; none if there is no path."""
    path = episode.instance.path
    if path is None:
        return {}
    if actions.shape[-2] != len(path):
        raise AcidError(
            f"plans of {actions.shape[-2]} steps cannot be compared with the paths of {task.name}, which have "
            f"{len(path)}: plan as far ahead"
        )
    return task.plan_metrics(episode.state, actions, path)


def _note(task: Task, episode: Episode, decision: Decision, b: int, *, share: float) -> None:
    if decision.imagined_pose is not None:
        left = (episode.budget - episode.steps) // task.frameskip
        goal = episode.instance.goal_state
        episode.imagined_errors += [task.pose_error(pose, goal) for pose in decision.imagined_pose[b][:left]]
    if episode.decisions == 0:
        found = _path_metrics(task, episode, decision.env_actions[b])
        episode.metrics |= {name: float(value) for name, value in found.items()}
    episode.decisions += 1
    episode.cpu_seconds += decision.cpu_seconds * share
    episode.wall_seconds += decision.wall_seconds * share
    episode.goal_cost = None if decision.goal_cost is None else float(decision.goal_cost[b])
    residuals = decision.plan.consistency if decision.plan else None
    episode.consistency = None if residuals is None else float(residuals[b].mean())
    episode.plan = decision.env_actions[b]
    episode.pool = dict(decision.pool[b]) if decision.pool else {}
    if episode.film is not None and decision.plan is not None:
        steps = len(decision.env_actions[b]) // task.frameskip
        trace = decision.plan.trace
        episode.film.plans.append(
            PlanFilm(
                imagined=decision.plan.imagined[b, : steps + 1].cpu(),
                residuals=np.zeros(0) if residuals is None else residuals[b, :steps].numpy(force=True),
                spreads={name: values[:, b].numpy(force=True) for name, values in trace.spreads.items()},
                weights={name: values[:, b].numpy(force=True) for name, values in trace.weights.items()},
            )
        )


def _execute(task: Task, episode: Episode, actions: np.ndarray, *, to_the_end: bool) -> None:
    """Environment actions [k, a] until the first success or the budget.

    A plan that was to be compared with what it imagined is then carried to its end, without counting: comparing only
    the plans that failed would make the model look worse than it is.
    """
    task.set_state(episode.state)
    context = len(episode.frames)
    for step, action in enumerate(actions, start=1):
        if episode.finished and not to_the_end:
            break
        before = task.get_state()
        task.advance(task.command(action))
        if not episode.finished:
            _count(task, episode, before)
        if context > 1 and step % task.frameskip == 0:
            episode.frames.append(task.render())
    if context == 1 and (to_the_end or not episode.finished):
        episode.frames = [task.render()]
    episode.frames = episode.frames[-context:]


def _count(task: Task, episode: Episode, before: np.ndarray) -> None:
    """One environment step that belongs to the episode."""
    goal = episode.instance.goal_state
    episode.state = task.get_state()
    episode.missed_steps += not task.moved(before, episode.state)
    episode.steps += 1
    episode.final_error = float(task.error(episode.state, goal))
    episode.best_error = min(episode.best_error, episode.final_error)
    reached = bool(task.success(episode.state, goal))
    # A plan that is judged as a path has to end at its goal; elsewhere it is enough to have been there.
    episode.success = reached or (episode.success and not task.setup.judges_paths)
    for name, happened in task.events().items():
        episode.metrics[name] = max(episode.metrics.get(name, 0.0), float(happened))
    if episode.steps % task.frameskip == 0:
        episode.errors.append(episode.final_error)
    if episode.film is not None:
        episode.film.frames.append(task.render())
        episode.film.errors.append(episode.final_error)


def _compare(decision: Decision, episodes: Sequence[Episode]) -> None:
    """How far reality ended from what the plan imagined there."""
    if decision.gap is None:
        return
    gaps = decision.gap(np.stack([e.frames[-1] for e in episodes])).tolist()
    for episode, gap in zip(episodes, gaps, strict=True):
        episode.gap = gap
