"""Where a cell's gain comes from, or why there is none: what its latent, its model and its verifier know.

ACID can help where three things hold: the goal cost orders candidates by where they really end, imagination sometimes
goes wrong, and the consistency cost is higher where it does. Each is a number here, measured by executing candidates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor

from acid import checkpoint, tasks
from acid.evaluation import Instance, Interval, bootstrap_mean, load_instances, rank_correlation
from acid.evaluation.runner import plan_seed
from acid.evaluation.table import markdown
from acid.experiments.card import PROBE
from acid.experiments.cell import Cell, planner
from acid.planning import CEM, ActionConsistency, Evaluation, Planner, draw_pool
from acid.tasks import Task
from acid.types import Plan, Problem, WorldModel

Progress = Callable[[int, int], None]
CANDIDATES = 24  # executed per problem
_SPLIT = "select"  # the reported episodes are left alone


@dataclass(frozen=True)
class Looked:
    """One problem: a pool of random candidates and two plans, imagined and executed."""

    goal_cost: float  # rank correlation over the pool: goal cost and the error that was really reached
    consistency: float  # rank correlation over the pool: consistency cost and ‖z_H − ẑ_H‖²
    consistency_of_steps: float  # the same over single steps of all candidates
    gap: float  # of the pool: median ‖z_H − ẑ_H‖² / ‖z_0 − z_g‖²
    imagined: dict[str, float]  # by condition: the plan's goal cost / ‖z_0 − z_g‖²
    executed: dict[str, float]  # by condition: ‖z_H − ẑ_H‖² / ‖z_0 − z_g‖² after the whole plan
    ratios: tuple[float, float]  # σ_g / σ_a in ACID's first and last iteration


@dataclass(frozen=True)
class Diagnosis:
    """What was found about a cell."""

    task: str
    model: str
    lam: float
    probes: dict[str, float]  # linear, R²
    imagined_of_still: dict[str, float]  # with recorded actions, by model step
    verifier_error: float  # of the action variance, held out
    identified: float  # directions of an action that the verifier finds between executed frames, out of `action_size`
    action_size: int
    dimensions: float  # that the latents of starts and goals fill, out of `latent_size`
    latent_size: int
    problems: Sequence[Looked]

    def interval(self, value: Callable[[Looked], float]) -> Interval:
        return bootstrap_mean([value(looked) for looked in self.problems])

    def as_dict(self) -> dict:
        return asdict(self)

    def text(self) -> str:
        rows = [[f"linear probe of {name}, R²", f"{value:.3f}"] for name, value in self.probes.items()]
        rows += [
            [name.replace("_", " ") + ", recorded actions", f"{value:.3f}"]
            for name, value in self.imagined_of_still.items()
        ]
        rows.append([f"dimensions in use, of {self.latent_size}", f"{self.dimensions:.1f}"])
        rows.append(["verifier: error / action variance", f"{self.verifier_error:.3f}"])
        rows.append([f"directions of an action that two frames tell, of {self.action_size}", f"{self.identified:.1f}"])
        rows += [[title, _told(self.interval(value))] for title, value in self._measured()]
        first, last = (np.median([looked.ratios[i] for looked in self.problems]) for i in (0, 1))
        rows.append(["σ_g / σ_a, first and last iteration (medians)", f"{first:.3g}, {last:.3g}"])
        return markdown([f"{self.task} {self.model}, λ {self.lam:g}, {len(self.problems)} problems", ""], rows, texts=1)

    def _measured(self) -> list[tuple[str, Callable[[Looked], float]]]:
        gap = "‖z_H − ẑ_H‖² / ‖z_0 − z_g‖²"
        return [
            ("rank correlation: goal cost, true final error", lambda x: x.goal_cost),
            ("rank correlation: consistency, ‖z_H − ẑ_H‖²", lambda x: x.consistency),
            ("rank correlation: consistency, ‖z − ẑ‖² of single steps", lambda x: x.consistency_of_steps),
            (f"random candidates: {gap}", lambda x: x.gap),
            (f"Original's plan: {gap}", lambda x: x.executed["original"]),
            (f"ACID's plan: {gap}", lambda x: x.executed["acid"]),
            ("Original's plan: goal cost / ‖z_0 − z_g‖²", lambda x: x.imagined["original"]),
            ("ACID's plan: goal cost / ‖z_0 − z_g‖²", lambda x: x.imagined["acid"]),
        ]


def diagnose(
    cell: Cell, *, problems: int = 24, search: CEM | None = None, progress: Progress | None = None
) -> Diagnosis:
    """Measure a cell on problems that are not reported."""
    search = search or CEM(samples=100, iterations=30, elites=10)
    instances = _instances(cell, problems)
    lam = cell.chosen_lambda()
    planners = {name: planner(cell, name, search, lam) for name in ("original", "acid")}
    model = cell.world_model()
    task = tasks.make(cell.task, size=model.observation_size)
    looked, asked, found = [], [], []
    for instance in instances:
        seen, actions, inferred = _look(task, planners, instance)
        looked.append(seen)
        asked.append(actions)
        found.append(inferred)
        if progress is not None:
            progress(len(looked), len(instances))
    frames = _frames(task, instances)
    task.close()
    stored = checkpoint.load(cell.root / "model").metadata["validation"]
    report = checkpoint.load(cell.root / "verifier").metadata["report"]
    probe = cell.root / PROBE
    latents = model.encode(frames)
    return Diagnosis(
        task=cell.task,
        model=cell.model,
        lam=lam,
        probes=json.loads(probe.read_text()) if probe.exists() else {},
        imagined_of_still={name: value for name, value in stored.items() if name.startswith("imagined")},
        verifier_error=float(np.mean(report["one_step"])),
        identified=_identified(torch.cat(asked), torch.cat(found)),
        action_size=asked[0].shape[-1],
        dimensions=_dimensions(latents),
        latent_size=latents.shape[-1],
        problems=looked,
    )


def _instances(cell: Cell, count: int) -> list[Instance]:
    protocol = cell.setup.protocol(episodes=count, split=_SPLIT)
    return list(load_instances(cell.instances_file(_SPLIT), protocol, cell.task).unsolved)[:count]


@torch.no_grad()
def _look(task: Task, planners: dict[str, Planner], instance: Instance) -> tuple[Looked, Tensor, Tensor]:
    """What was found, and the actions of the executed candidates [M, A] beside those that the verifier infers."""
    model = planners["acid"].model
    task.set_state(instance.goal_state)
    goal = torch.from_numpy(task.render())[None]
    task.set_state(instance.start_state)
    start = torch.from_numpy(task.render())[None]
    seed = [plan_seed(0, instance.id, 0)]
    problem = Problem(model.encode(start), model.encode(goal))
    distance = float((problem.now - problem.goal).square().sum())
    plans = {name: made.plan(start, goal, seed=seed) for name, made in planners.items()}
    gaps = {name: float(_executed(task, model, instance, plan)[-1]) for name, plan in plans.items()}
    pool, actions, inferred = _look_at_pool(task, planners["acid"], instance, problem, seed)
    looked = Looked(
        **pool,
        imagined={name: float(plan.costs["goal"]) / distance for name, plan in plans.items()},
        executed={name: gap / distance for name, gap in gaps.items()},
        ratios=_ratios(plans["acid"]),
    )
    return looked, actions, inferred


def _look_at_pool(
    task: Task, planner: Planner, instance: Instance, problem: Problem, seed: list[int]
) -> tuple[dict[str, float], Tensor, Tensor]:
    """Execute the first candidates that a search draws, and compare what was thought of them with what came."""
    pool = draw_pool(planner, problem, seed=seed)
    judged: Evaluation = pool.evaluate(planner.cost)
    consistency = next(term for term in planner.cost.terms if term.name == "consistency")
    assert isinstance(consistency, ActionConsistency)
    thought = consistency.per_step(pool.trajectory)[0, :CANDIDATES].numpy()
    assert planner.scaler is not None
    count = len(thought)
    gaps, errors, inferred = np.zeros_like(thought), np.zeros(count), []
    for n in range(count):
        actions = planner.scaler.denormalise(pool.actions[:, n])[0].numpy()
        true, state = _execute(task, planner.model, instance, actions, planner.scaler.frameskip)
        gaps[n] = (true - pool.trajectory.latents[0, n, 1:]).square().flatten(1).sum(1).numpy()
        errors[n] = task.error(state, instance.goal_state)
        inferred.append(consistency.verifier.infer(torch.cat([problem.now, true[:-1]]), true))
    distance = float((problem.now - problem.goal).square().sum())
    found = {
        "goal_cost": rank_correlation(judged.terms["goal"][0, :count].numpy(), errors),
        "consistency": rank_correlation(thought.mean(1), gaps[:, -1]),
        "consistency_of_steps": rank_correlation(thought.ravel(), gaps.ravel()),
        "gap": float(np.median(gaps[:, -1])) / distance,
    }
    return found, pool.actions[0, :count].flatten(0, 1), torch.cat(inferred)


def _identified(actions: Tensor, inferred: Tensor) -> float:
    """How many directions of actions [M, A] are inferred, each counted by the share of its variance that is explained.

    Directions are those along which the error is uncorrelated, not single numbers: the verifier may know the sum of two
    and nothing of their difference.
    """
    error, total = (x.T.cov().double() for x in (actions - inferred, actions))
    shares = torch.linalg.eigvals(torch.linalg.pinv(total) @ error).real
    return float((1 - shares).clamp(0, 1).sum())


def _executed(task: Task, model: WorldModel, instance: Instance, plan: Plan) -> Tensor:
    """‖z − ẑ‖² after each model step of a plan, [H]."""
    assert plan.env_actions is not None
    block = plan.env_actions.shape[1] // plan.actions.shape[1]
    true, _ = _execute(task, model, instance, plan.env_actions[0].numpy(), block)
    return (true - plan.imagined[0, 1:]).square().flatten(1).sum(1)


def _execute(
    task: Task, model: WorldModel, instance: Instance, actions: np.ndarray, block: int
) -> tuple[Tensor, np.ndarray]:
    """Latents [H, P, D] after every block of environment actions, and the state at the end."""
    task.set_state(instance.start_state)
    frames = []
    for step, action in enumerate(actions, start=1):
        task.advance(action)
        if step % block == 0:
            frames.append(task.render())
    return model.encode(torch.from_numpy(np.stack(frames))), task.get_state()


def _ratios(plan: Plan) -> tuple[float, float]:
    spreads = plan.trace.spreads
    ratio = (spreads["goal"] / spreads["consistency"])[:, 0]
    return float(ratio[0]), float(ratio[-1])


def _frames(task: Task, instances: Sequence[Instance]) -> Tensor:
    frames = []
    for instance in instances:
        for state in (instance.start_state, instance.goal_state):
            task.set_state(state)
            frames.append(task.render())
    return torch.from_numpy(np.stack(frames))


def _dimensions(latents: Tensor) -> float:
    """Participation ratio of the variances along the principal axes: [M, P, D] to between 1 and D."""
    flat = latents.flatten(0, 1)
    variances = torch.linalg.svdvals(flat - flat.mean(0)).square()
    return float(variances.sum() ** 2 / variances.square().sum())


def _told(interval: Interval) -> str:
    return f"{interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}]"
