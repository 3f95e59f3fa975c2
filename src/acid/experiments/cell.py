"""A cell of the results table: one task with one world model, its verifier and what else was trained for it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from acid import checkpoint, models, tasks
from acid.errors import AcidError, CheckpointError, did_you_mean
from acid.evaluation import (
    Agent,
    Condition,
    NoOpAgent,
    PlanningAgent,
    PolicyAgent,
    Protocol,
    Provenance,
    RandomAgent,
    fingerprint,
    search_name,
)
from acid.experiments.setups import Setup, setup
from acid.models import AnyWorldModel
from acid.models.decoder import Decoder
from acid.models.readout import Readout
from acid.models.token_decoder import TokenDecoder
from acid.planning import (
    ActionConsistency,
    ActionNorm,
    Adaptive,
    Constant,
    Controller,
    Cost,
    Custom,
    GoalDistance,
    Planner,
    Search,
    acid_cost,
)
from acid.types import Trajectory
from acid.verifier import Policy, Verifier

ASSETS = Path(__file__).resolve().parent.parent / "assets"


@dataclass(frozen=True)
class Cell:
    """Where a cell's checkpoints are: subfolders model, verifier, policy, decoder and readout. The default is what we
    ship."""

    task: str = "reacher"
    model: str = "lewm"
    folder: Path | None = None
    horizon: int | None = None  # model steps that a plan looks ahead, if not as many as the task's setup has

    def __post_init__(self) -> None:
        name = f"{self.task}/{self.model}"
        if self.folder is None and name not in shipped():
            raise AcidError(f"no weights are shipped for {name!r}; pass a folder{did_you_mean(name, shipped())}")

    @property
    def root(self) -> Path:
        return ASSETS / self.task / self.model if self.folder is None else Path(self.folder)

    def instances_file(self, split: str) -> Path:
        if self.cases_file(split).exists():
            raise AcidError(f"a plan for {self.task} is a path, not a way to a state: use `acid reproduce {self.task}`")
        return ASSETS / self.task / f"instances-{split}.jsonl"

    def cases_file(self, split: str) -> Path:
        """Cases of navigation, which are paths rather than a start and a goal."""
        return ASSETS / self.task / f"cases-{split}.jsonl"

    def world_model(self) -> AnyWorldModel:
        return models.load(self.root / "model")

    def verifier(self, model: AnyWorldModel) -> Verifier:
        verifier = Verifier.load(self.root / "verifier")
        if verifier.scaler != model.scaler:
            raise CheckpointError(f"{self.root}: the verifier was fitted with other action statistics than the model")
        return verifier

    def policy(self) -> Policy:
        return Policy.load(self.root / "policy")

    def decoder(self) -> Decoder | TokenDecoder:
        folder = self.root / "decoder"
        return (TokenDecoder if checkpoint.load(folder).kind == TokenDecoder.kind else Decoder).load(folder)

    def readout(self) -> Readout | None:
        """What tells the pose that a latent shows, if the cell has one."""
        folder = self.root / "readout"
        return Readout.load(folder) if folder.is_dir() else None

    @property
    def setup(self) -> Setup:
        return setup(self.task) if self.horizon is None else setup(self.task).looking_ahead(self.horizon)

    def search_name(self, search: Search) -> str:
        """How rows name a search, and how far it looks if that is not the task's setup."""
        return search_name(search) + ("" if self.horizon is None else f"-h{self.horizon}")

    @property
    def choice_file(self) -> Path:
        """Where the chosen λ is kept: one for a world model on all tasks, or one in the cell's own folder.

        It is chosen with plans as long as the task's setup has, and used with longer ones too.
        """
        if self.folder is None and not self.setup.own_lambda:
            return ASSETS / f"lambda-{self.model}.json"
        return self.root / "lambda.json"

    def choose_lambdas(self, lambdas: Mapping[str, float], reason: str) -> Path:
        """Remember which λ to plan with under each condition, and why."""
        content = {**lambdas, "reason": reason}
        self.choice_file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        return self.choice_file

    @property
    def lambdas(self) -> Mapping[str, Any]:
        """What was chosen so far, by condition."""
        return json.loads(self.choice_file.read_text()) if self.choice_file.exists() else {}

    def chosen_lambda(self, condition: str = "acid") -> float:
        """The λ that was chosen for a condition, on episodes that are not reported."""
        found = self.lambdas
        if condition not in found:
            raise AcidError(
                f"no λ of {condition} was chosen for {self.root}: pass one, or run `acid eval --split select` first"
            )
        return float(found[condition])

    def provenance(self, parts: Sequence[str]) -> Provenance:
        return Provenance(checkpoints={part: fingerprint(self.root / part) for part in parts})


def shipped() -> list[str]:
    """The cells that weights are shipped for, as task/model."""
    return sorted(f"{p.parent.name}/{p.name}" for p in ASSETS.glob("*/*") if (p / "model").is_dir())


def cost(name: str, verifier: Verifier, lam: float | None) -> Cost:
    """What a planner minimises. All measure consistency; only ACID's search sees it.

    control: a penalty on large actions, change: a reward for imagined change, each weighted as ACID weights its term.
    """
    if name in ("acid", "acid-clipped"):
        return acid_cost(verifier, lam or 0.0)
    measured = ActionConsistency(verifier, weight=Constant(0.0))
    weight = Adaptive(lam or 0.0)
    others = {"control": [ActionNorm(weight)], "change": [Custom(_stillness, "change", weight)]}
    return Cost([GoalDistance(), *others.get(name, []), measured])


def _stillness(trajectory: Trajectory, goal: Tensor) -> Tensor:
    """How little is imagined to change in a step: minus the mean squared change, [B, N]."""
    return -trajectory.latents.diff(dim=2).square().mean((2, 3, 4))


def planner(cell: Cell, name: str, search: Search, lam: float | None) -> Planner:
    model = cell.world_model()
    bounds = tasks.make(cell.task).action_bounds if name.endswith("clipped") else None
    limits = None if bounds is None else (torch.from_numpy(bounds[0]), torch.from_numpy(bounds[1]))
    return Planner(model, cost(name, cell.verifier(model), lam), search, horizon=cell.setup.horizon, bounds=limits)


def agent(cell: Cell, condition: Condition, search: Search, protocol: Protocol) -> tuple[Agent, Provenance]:
    """Who acts under a condition, and which weights that involves."""
    if condition.name in ("noop", "random"):
        task = tasks.make(cell.task)
        who = NoOpAgent(task.idle_action) if condition.name == "noop" else RandomAgent(*task.action_bounds)
        return who, Provenance()
    model = cell.world_model()
    _check_action_size(cell, model)
    if condition.name == "policy":
        if protocol.goal_offset is None:
            raise AcidError(f"the policy is told how far away its goal is, which is not known in {cell.task!r}")
        who = PolicyAgent(model, cell.policy(), model.scaler, goal_offset=protocol.goal_offset, budget=protocol.budget)
        return who, cell.provenance(["model", "policy"])
    plans = planner(cell, condition.name, search, condition.lam)
    controller = Controller(plans, execute=cell.setup.horizon)
    return PlanningAgent(controller, readout=cell.readout()), cell.provenance(["model", "verifier"])


def _check_action_size(cell: Cell, model: AnyWorldModel) -> None:
    size = tasks.make(cell.task).action_size
    if model.scaler.env_size != size:
        raise CheckpointError(
            f"{cell.root / 'model'} was trained on actions of size {model.scaler.env_size}, "
            f"but the task {cell.task!r} takes {size}"
        )
