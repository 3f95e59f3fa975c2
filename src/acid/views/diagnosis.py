"""Where a cell's gain comes from, or why there is none: what its latent, its model and its verifier know.

ACID can help where three things hold: the goal cost orders candidates by where they really end, imagination sometimes
goes wrong, and the consistency cost is higher where it does. Each is a number here, measured by executing candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acid import tasks
from acid.evaluation import (
    BASELINE,
    Bench,
    Cell,
    Instance,
    Protocol,
    SearchSpec,
    Situation,
    bootstrap_mean,
    condition,
    plan_seed,
    rank_correlation,
)
from acid.evaluation.agents import observed
from acid.evaluation.jobs import Progress
from acid.evaluation.kits import kit_of
from acid.evaluation.play import execute, render_states
from acid.evaluation.table import interval, markdown
from acid.planning import Adaptive, Planner, Proposal, draw_pool
from acid.tasks import Task
from acid.types import Plan, Problem, Trajectory
from acid.verifier import Directions
from acid.views.card import PROBE, read_probes

CANDIDATES = 24  # executed per problem
SMALL = {"samples": 100, "elites": 10}  # for models that plan in one latent vector
COMPARED = (BASELINE, "acid")


@dataclass(frozen=True)
class Case:
    """One problem: a pool of random candidates and two plans, imagined and executed.

    Gaps ‖z_H − ẑ_H‖² are given as shares of ‖z_0 − z_g‖².
    """

    goal_cost: float  # rank correlation over the pool: goal cost and the error that was really reached
    consistency: float  # rank correlation over the pool: consistency cost and the gap at the end
    consistency_of_steps: float  # the same over single steps of all candidates
    gap: float  # median over the pool
    imagined: dict[str, float]  # by condition: the plan's goal cost as a share of that of staying
    executed: dict[str, float]  # by condition: the gap after the whole plan
    ratios: tuple[float, float]  # σ_g / σ_a in ACID's first and last iteration


@dataclass(frozen=True)
class Diagnosis:
    """What was found about a cell."""

    task: str
    model: str
    lam: float
    probes: dict[str, float]  # linear, R²
    imagined_of_still: dict[str, float]  # with recorded actions, by model step
    verifier_error: float  # as a share of the action variance, held out
    identified: float  # directions of an action that the verifier finds between executed frames, out of `action_size`
    action_size: int
    dimensions: float  # that the latents of starts and goals fill, out of `latent_size`
    latent_size: int
    problems: Sequence[Case]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def text(self) -> str:
        rows = [[f"linear probe of {name}, R²", f"{value:.3f}"] for name, value in self.probes.items()]
        for step, share in enumerate(self.imagined_of_still.values(), 1):
            rows.append([f"error of imagining {step} ahead / of no change, recorded actions", f"{share:.3f}"])
        rows.append([f"dimensions of the latent in use, of {self.latent_size}", f"{self.dimensions:.1f}"])
        rows.append(["verifier: error / action variance", f"{self.verifier_error:.3f}"])
        rows.append([f"directions of an action that two frames tell, of {self.action_size}", f"{self.identified:.1f}"])
        rows += [[title, interval(bootstrap_mean([value(m) for m in self.problems]))] for title, value in _MEASURED]
        first, last = (np.median([measured.ratios[i] for measured in self.problems]) for i in (0, 1))
        rows.append(["σ_g / σ_a, first and last iteration (medians)", f"{first:.3g}, {last:.3g}"])
        title = f"{self.task} {self.model}, λ {self.lam:g}, problems: {len(self.problems)}"
        return markdown([title, ""], rows, texts=1)


_GAP = "‖z_H − ẑ_H‖² / ‖z_0 − z_g‖²"
_MEASURED: list[tuple[str, Callable[[Case], float]]] = [
    ("rank correlation: goal cost, true final error", lambda m: m.goal_cost),
    ("rank correlation: consistency, ‖z_H − ẑ_H‖²", lambda m: m.consistency),
    ("rank correlation: consistency, ‖z − ẑ‖² of single steps", lambda m: m.consistency_of_steps),
    (f"random candidates: {_GAP}", lambda m: m.gap),
    (f"Original's plan: {_GAP}", lambda m: m.executed[BASELINE]),
    (f"ACID's plan: {_GAP}", lambda m: m.executed["acid"]),
    ("Original's plan: goal cost / goal cost of staying", lambda m: m.imagined[BASELINE]),
    ("ACID's plan: goal cost / goal cost of staying", lambda m: m.imagined["acid"]),
]


def diagnose(
    cell: Cell,
    *,
    problems: int = 24,
    spec: SearchSpec | None = None,
    lam: float | None = None,
    data: Path | None = None,
    progress: Progress = lambda done, total: None,
    device: str = "cpu",
    precision: str = "float32",
) -> Diagnosis:
    """Measure a cell on problems that are not reported, by default with the λ that was chosen."""
    kit, setup = kit_of(cell.model), cell.task_class.setup
    sizes = SMALL if kit.batch > 2 else {}
    spec = spec or SearchSpec.usual(setup, **sizes, candidates=kit.candidates[0], repeats=kit.repeats)
    bench = Bench(cell, spec, Protocol.of(setup, episodes=problems, split="select"), device=device, precision=precision)
    instances = list(cell.instances(bench.protocol, data))[:problems]
    lam = cell.chosen_lambda(condition("acid")) if lam is None else lam
    assert lam is not None  # ACID has a weight
    planners = {name: bench.planner(condition(name), lam if name == "acid" else None) for name in COMPARED}
    measured, actions, inferred = [], [], []
    with closing(tasks.make(cell.task, size=bench.model.observation_size)) as task:
        for instance in instances:
            found, wanted, seen = _measure(task, bench, planners, instance)
            measured.append(found)
            actions.append(wanted)
            inferred.append(seen)
            progress(len(measured), len(instances))
        ends = np.concatenate([np.stack([i.start_state, i.goal_state]) for i in instances])
        latents = bench.model.encode(observed(bench.model, render_states(task, ends)))
    stored, asked = cell.stored("model").metadata.get("validation", {}), torch.cat(actions)
    report, probe = cell.stored("verifier").metadata["report"], cell.root / PROBE
    return Diagnosis(
        task=cell.task,
        model=cell.model,
        lam=lam,
        probes=read_probes(probe) if probe.exists() else {},
        imagined_of_still={name: value for name, value in stored.items() if name.startswith("imagined_")},
        verifier_error=float(np.mean(report["one_step"])),
        identified=Directions.measure(asked, asked - torch.cat(inferred)).known,
        action_size=asked.shape[-1],
        dimensions=_dimensions(latents.float()),
        latent_size=latents.shape[-1],
        problems=measured,
    )


@torch.no_grad()
def _measure(task: Task, bench: Bench, planners: dict[str, Planner], instance: Instance) -> tuple[Case, Tensor, Tensor]:
    """What was found, and the actions of the executed candidates [M, A] beside those that the verifier infers."""
    model, seed = bench.model, [plan_seed(0, instance.id, 0)]
    frames, goal = render_states(task, instance.seen), render_states(task, instance.goal_state[None])
    last = task.last_action(instance.seen)
    situation = Situation(frames[None], goal, 0, [instance.id], last_actions=None if last is None else last[None])
    start = model.encode(observed(model, situation.observation))
    problem = Problem(start, model.encode(observed(model, goal)))
    distance = float((problem.now - problem.goal).square().sum())
    initial = bench.initial(condition(BASELINE), situation)
    plans = {name: made.solve(problem, seed=seed, initial=initial) for name, made in planners.items()}
    still = Trajectory(problem.now[:, None, None].expand(-1, 1, 2, -1, -1), plans["acid"].actions[:, None, :1])
    staying = float(bench.kit.goal()(still, problem.goal))
    pool, actions, inferred = _measure_pool(task, bench, planners["acid"], instance, problem, initial)
    measured = Case(
        **pool,
        imagined={name: float(plan.costs["goal"]) / staying for name, plan in plans.items()},
        executed={name: _gap(task, bench, instance, plan) / distance for name, plan in plans.items()},
        ratios=_ratios(plans["acid"]),
    )
    return measured, actions, inferred


def _measure_pool(
    task: Task, bench: Bench, planner: Planner, instance: Instance, problem: Problem, initial: Tensor | Proposal | None
) -> tuple[dict[str, float], Tensor, Tensor]:
    """Execute the first candidates that a search draws, and compare what was imagined of them with what happened."""
    pool = draw_pool(planner, problem, seed=[plan_seed(0, instance.id, 0)], initial=initial)
    consistency, count = bench.kit.consistency(Adaptive(1.0)), min(CANDIDATES, pool.actions.shape[1])
    goal_costs = pool.evaluate(planner.cost).terms["goal"][0, :count]
    imagined = Trajectory(pool.trajectory.latents[:, :count], pool.actions[:, :count])
    residuals = consistency.per_step(imagined)[0].numpy(force=True)
    gaps, errors, true_latents = np.zeros_like(residuals), np.zeros(count), []
    for n in range(count):
        true, state = _execute(task, bench, instance, pool.actions[:, n])
        gaps[n] = (true - imagined.latents[0, n, 1:]).square().flatten(1).sum(1).numpy(force=True)
        errors[n] = task.error(state, instance.goal_state)
        true_latents.append(torch.cat([problem.now, true]))
    executed = Trajectory(torch.stack(true_latents)[None], imagined.actions)
    distance = float((problem.now - problem.goal).square().sum())
    found = {
        "goal_cost": rank_correlation(goal_costs.numpy(force=True), errors),
        "consistency": rank_correlation(residuals.mean(1), gaps[:, -1]),
        "consistency_of_steps": rank_correlation(residuals.ravel(), gaps.ravel()),
        "gap": float(np.median(gaps[:, -1])) / distance,
    }
    view = consistency.view
    return found, view.asked(executed).flatten(0, 2).cpu(), view.inferred(executed).flatten(0, 2).cpu()


def _execute(task: Task, bench: Bench, instance: Instance, actions: Tensor) -> tuple[Tensor, np.ndarray]:
    """Latents [H, P, D] after every model step of normalised actions [1, H, A], and the state at the end."""
    scaler = bench.model.scaler
    steps = scaler.denormalise(actions)[0].numpy(force=True)
    frames, state = execute(task, instance.start_state, steps, every=scaler.frameskip)
    return bench.model.encode(observed(bench.model, frames)), state


def _gap(task: Task, bench: Bench, instance: Instance, plan: Plan) -> float:
    """‖z_H − ẑ_H‖² after the whole plan."""
    true, _ = _execute(task, bench, instance, plan.actions)
    return float((true[-1] - plan.imagined[0, -1]).square().sum())


def _ratios(plan: Plan) -> tuple[float, float]:
    ratio = (plan.trace.spreads["goal"] / plan.trace.spreads["consistency"])[:, 0]
    return float(ratio[0]), float(ratio[-1])


def _dimensions(latents: Tensor) -> float:
    """Participation ratio of the variances along the principal axes: [M, P, D] to between 1 and D."""
    flat = latents.flatten(0, 1)
    variances = torch.linalg.svdvals(flat - flat.mean(0)).square()
    return float(variances.sum() ** 2 / variances.square().sum())
