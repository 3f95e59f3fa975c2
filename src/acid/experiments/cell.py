"""A cell of the results table: one task with one world model, its verifier and what else was trained for it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from acid import models, tasks
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
)
from acid.models import AnyWorldModel
from acid.models.decoder import Decoder
from acid.planning import (
    ActionConsistency,
    ActionNorm,
    Adaptive,
    Constant,
    Controller,
    Cost,
    GoalDistance,
    Planner,
    Search,
    acid_cost,
)
from acid.verifier import Policy, Verifier

ASSETS = Path(__file__).resolve().parent.parent / "assets"
HORIZON = 5  # blocks, all executed before replanning


@dataclass(frozen=True)
class Cell:
    """Where a cell's checkpoints are: subfolders model, verifier, policy and decoder. The default is what we ship."""

    task: str = "reacher"
    model: str = "lewm"
    folder: Path | None = None

    def __post_init__(self) -> None:
        name = f"{self.task}/{self.model}"
        shipped = sorted(f"{p.parent.name}/{p.name}" for p in ASSETS.glob("*/*") if (p / "model").is_dir())
        if self.folder is None and name not in shipped:
            raise AcidError(f"no weights are shipped for {name!r}; pass a folder{did_you_mean(name, shipped)}")

    @property
    def root(self) -> Path:
        return ASSETS / self.task / self.model if self.folder is None else Path(self.folder)

    def instances_file(self, split: str) -> Path:
        return ASSETS / self.task / f"instances-{split}.jsonl"

    def world_model(self) -> AnyWorldModel:
        return models.load(self.root / "model")

    def verifier(self, model: AnyWorldModel) -> Verifier:
        verifier = Verifier.load(self.root / "verifier")
        if verifier.scaler != model.scaler:
            raise CheckpointError(f"{self.root}: the verifier was fitted with other action statistics than the model")
        return verifier

    def policy(self) -> Policy:
        return Policy.load(self.root / "policy")

    def decoder(self) -> Decoder:
        return Decoder.load(self.root / "decoder")

    @property
    def choice_file(self) -> Path:
        """Where the chosen λ is kept: one for a world model on all tasks, or one in a folder of your own."""
        return ASSETS / f"lambda-{self.model}.json" if self.folder is None else self.root / "lambda.json"

    def choose_lambdas(self, lambdas: Mapping[str, float], reason: str) -> Path:
        """Remember which λ to plan with under each condition, and why."""
        content = {**lambdas, "reason": reason}
        self.choice_file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        return self.choice_file

    def chosen_lambda(self, condition: str = "acid") -> float:
        """The λ that was chosen for a condition, on episodes that are not reported."""
        found = json.loads(self.choice_file.read_text()) if self.choice_file.exists() else {}
        if condition not in found:
            raise AcidError(
                f"no λ of {condition} was chosen for {self.root}: pass one, or run `acid eval --split select` first"
            )
        return float(found[condition])

    def provenance(self, parts: Sequence[str]) -> Provenance:
        return Provenance(checkpoints={part: fingerprint(self.root / part) for part in parts})


def cost(name: str, verifier: Verifier, lam: float | None) -> Cost:
    """Original, ACID or the control. All measure consistency; only ACID's search sees it."""
    if name == "control":
        measured = ActionConsistency(verifier, weight=Constant(0.0))
        return Cost([GoalDistance(), ActionNorm(weight=Adaptive(lam or 0.0)), measured])
    return acid_cost(verifier, lam or 0.0)


def planner(cell: Cell, name: str, search: Search, lam: float | None) -> Planner:
    model = cell.world_model()
    return Planner(model, cost(name, cell.verifier(model), lam), search, horizon=HORIZON)


def agent(cell: Cell, condition: Condition, search: Search, protocol: Protocol) -> tuple[Agent, Provenance]:
    """Who acts under a condition, and which weights that involves."""
    if condition.name in ("noop", "random"):
        task = tasks.make(cell.task)
        who = NoOpAgent(task.action_size) if condition.name == "noop" else RandomAgent(*task.action_bounds)
        return who, Provenance()
    model = cell.world_model()
    _check_action_size(cell, model)
    if condition.name == "policy":
        who = PolicyAgent(model, cell.policy(), model.scaler, goal_offset=protocol.goal_offset, budget=protocol.budget)
        return who, cell.provenance(["model", "policy"])
    plans = planner(cell, condition.name, search, condition.lam)
    return PlanningAgent(Controller(plans, execute=HORIZON)), cell.provenance(["model", "verifier"])


def _check_action_size(cell: Cell, model: AnyWorldModel) -> None:
    size = tasks.make(cell.task).action_size
    if model.scaler.env_size != size:
        raise CheckpointError(
            f"{cell.root / 'model'} was trained on actions of size {model.scaler.env_size}, "
            f"but the task {cell.task!r} takes {size}"
        )
