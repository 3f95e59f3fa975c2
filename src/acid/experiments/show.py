"""Let one problem be seen: what a planner imagined beside what then happened."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from acid import tasks
from acid.evaluation import Instance, load_instances
from acid.evaluation.runner import plan_seed
from acid.experiments.cell import Cell, planner
from acid.planning import Planner, Search
from acid.report import SheetRow, sheet
from acid.types import Plan


@dataclass(frozen=True)
class Shown:
    """Plans made one after the other, frame by frame at the model's own steps, and every executed environment step.

    T is the number of model steps of all plans together.
    """

    plans: tuple[Plan, ...]
    imagined: np.ndarray  # uint8 [T+1, S, S, 3], decoded; the first frame is the start as the decoder draws it
    executed: np.ndarray  # uint8 [T+1, S, S, 3], rendered
    errors: list[float]  # of the executed state, in the task's unit, [T+1]
    film: np.ndarray  # uint8 [T·block+1, S, S, 3]
    start: np.ndarray
    goal: np.ndarray
    success: bool

    @property
    def residuals(self) -> np.ndarray:
        """Of every imagined step, [T]."""
        found = [plan.consistency[0].numpy() for plan in self.plans if plan.consistency is not None]
        return np.concatenate(found) if found else np.zeros(0)


def execute_plans(
    task: tasks.Task, cell: Cell, planner: Planner, instance: Instance, seed: int, *, plans: int = 1
) -> Shown:
    """Plan for an instance and execute the whole plan, as often as asked."""
    decoder = cell.decoder()
    task.set_state(instance.goal_state)
    goal = task.render()
    task.set_state(instance.start_state)
    film, errors, made = [task.render()], [task.error(instance.start_state, instance.goal_state)], []
    success = False
    for number in range(plans):
        seeds = [plan_seed(seed, instance.id, number)]
        made.append(planner.plan(torch.from_numpy(film[-1])[None], torch.from_numpy(goal)[None], seed=seeds))
        assert made[-1].env_actions is not None
        for action in made[-1].env_actions[0].numpy():
            task.advance(action)
            film.append(task.render())
            errors.append(task.error(task.get_state(), instance.goal_state))
            success |= task.success(task.get_state(), instance.goal_state)
    block = (len(film) - 1) // sum(plan.actions.shape[1] for plan in made)
    latents = torch.cat([made[0].imagined[0, :1], *(plan.imagined[0, 1:] for plan in made)])
    return Shown(
        plans=tuple(made),
        imagined=decoder.pixels(latents).numpy(),
        executed=np.stack(film[::block]),
        errors=errors[::block],
        film=np.stack(film),
        start=film[0],
        goal=goal,
        success=success,
    )


def sheet_rows(condition: str, shown: Shown) -> list[SheetRow]:
    """Imagined above executed, with the residual of each imagined step and the error of each executed one."""
    return [
        SheetRow(condition, "imagined", shown.imagined[1:], [f"residual {r:.1f}" for r in shown.residuals]),
        SheetRow(condition, "executed", shown.executed[1:], [f"error {e:.2f}" for e in shown.errors[1:]]),
    ]


def plan_one(
    task_name: str,
    model: str,
    problem: int,
    *,
    lam: float | None,
    search: Search,
    seed: int = 0,
    folder: Path | None = None,
    out: Path | None = None,
) -> str:
    """Plan one held-out problem; returns what to print."""
    cell = Cell(task_name, model, folder)
    lam = cell.chosen_lambda() if lam is None else lam
    instance = load_instances(
        cell.instances_file("test"), cell.setup.protocol(episodes=problem + 1), task_name
    ).unsolved[problem]
    task = tasks.make(task_name, size=cell.world_model().observation_size)
    shown = execute_plans(task, cell, planner(cell, "acid", search, lam), instance, seed)
    task.close()
    if out is not None:
        heading = f"{task_name}, problem {problem} ({instance.id}), λ = {lam:g}"
        sheet(
            out, sheet_rows("acid" if lam else "original", shown), start=shown.start, goal=shown.goal, heading=heading
        )
    return _describe(shown, lam) + (f"\nwrote {out}" if out else "")


def _describe(shown: Shown, lam: float) -> str:
    (plan,) = shown.plans
    assert plan.env_actions is not None
    lines = [
        f"λ {lam:g}; goal cost of the plan {float(plan.costs['goal'][0]):.3f}",
        "block  residual  executed error  environment actions",
    ]
    blocks = plan.env_actions[0].reshape(plan.actions.shape[1], -1, plan.env_actions.shape[-1])
    for t, actions in enumerate(blocks):
        residual = float(plan.consistency[0, t]) if plan.consistency is not None else float("nan")
        means = " ".join(f"{value:+.2f}" for value in actions.mean(0).tolist())
        lines.append(f"{t + 1:5d}  {residual:8.2f}  {shown.errors[t + 1]:14.3f}  mean {means}")
    seconds = "  ".join(f"{name} {value:.2f} s" for name, value in plan.seconds.items())
    lines.append(f"reached the goal within this plan: {'yes' if shown.success else 'no'}   ({seconds})")
    return "\n".join(lines)
