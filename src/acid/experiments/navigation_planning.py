"""Plan cases of visual navigation under every condition, replay the plans in the simulator, and write rows.

With one iteration all conditions of a case rank one pool of rollouts, so they differ by nothing but the cost. With more
iterations every condition searches for itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from acid import checkpoint, tasks
from acid.data.poses import STEP_SECONDS, WAYPOINT, denormalise, displacements, integrate, normalise
from acid.errors import CheckpointError, look_up
from acid.evaluation import Condition, Protocol, RowFile, rank_correlation, same_in_a_file, search_name
from acid.evaluation.path_cases import PathCase, load_cases
from acid.evaluation.rows import key
from acid.evaluation.runner import plan_seed
from acid.evaluation.trajectories import TrajectoryErrors, trajectory_errors
from acid.experiments.cell import Cell
from acid.experiments.evaluate import Progress
from acid.models import NavigationWorldModel
from acid.nn.lpips import LPIPS, load_lpips
from acid.planning import (
    CEM,
    ActionConsistency,
    Adaptive,
    Arc,
    Cost,
    Custom,
    DecodedDistance,
    Planner,
    Pool,
    StraightLine,
    draw_pool,
)
from acid.training.navigation import SCALER, verifier_path, verifier_units
from acid.types import Problem, Trajectory
from acid.verifier import Verifier

if TYPE_CHECKING:
    from acid.tasks.navigation import Navigation

TASK, MODEL = "navigation", "nwm"
REPEATS = 3  # rollouts of each candidate
SPEED_SPREAD, RATE_SPREAD = 0.12, 0.25  # m/s and rad/s, of constant-curvature candidates around the current speed
METRIC = {"metric": "ate", "higher_is_better": False}


@dataclass(frozen=True)
class Scheme:
    """A family of candidates, searched around going on straight ahead at the robot's current speed."""

    name: str
    parametrisation: Arc | StraightLine

    def around(self, forward: float) -> Tensor:
        """The variables [1, 1, d] of a displacement straight ahead (m) in every step."""
        chosen = self.parametrisation
        ahead = float(normalise(np.array([forward, 0.0, 0.0]))[0])
        middle = torch.zeros(1, 1, chosen.size)
        middle[..., 0] = (ahead - chosen.mean[0]) / chosen.std[0]
        return middle

    def search_name(self, search: CEM) -> str:
        return f"{search_name(search)}-{self.name}-r{REPEATS}"


# Standard deviations of a step, in normalised units. Those of straight lines are NWM's own.
_ARC = (SPEED_SPREAD * STEP_SECONDS / SCALER.std[0], RATE_SPREAD * STEP_SECONDS / SCALER.std[2])
SCHEMES = {"arc": Scheme("arc", Arc(SCALER, std=_ARC)), "line": Scheme("line", StraightLine())}


def turning(trajectory: Trajectory, goal: Tensor) -> Tensor:
    """How far the candidates depart from straight ahead: mean over the steps of sideways (m) and turn (rad) squared."""
    return trajectory.actions[..., 1:].square().sum(-1).mean(-1)


@dataclass(frozen=True)
class Parts:
    """What planning is made of."""

    model: NavigationWorldModel
    verifier: Verifier
    lpips: LPIPS
    horizon: int

    @classmethod
    def load(cls, cell: Cell) -> Parts:
        model, verifier = cell.world_model(), Verifier.load(cell.root / "verifier")
        if not isinstance(model, NavigationWorldModel):
            raise CheckpointError(f"{cell.root / 'model'} does not imagine frames of tokens: navigation needs an nwm")
        fitted_to = checkpoint.load(cell.root / "verifier").metadata.get("tokenizer")
        if fitted_to != model.tokenizer.fingerprint:
            raise CheckpointError(f"{cell.root}: the verifier was fitted to frames of another tokenizer; fit it again")
        return cls(model, verifier, load_lpips(), cell.setup.horizon)

    @property
    def goal(self) -> DecodedDistance:
        return DecodedDistance(self.model.decode, self.lpips)

    def consistency(self, lam: float = 1.0, *, of_path: bool = False) -> ActionConsistency:
        """ACID's term; of_path: between the places (m) where actions lead, instead of between actions."""
        scaler = self.verifier.scaler
        assert scaler is not None
        return ActionConsistency(
            self.verifier,
            Adaptive(lam),
            "path" if of_path else "consistency",
            features=self.model.tokenizer.features,
            units=verifier_units(self.model.scaler, scaler),
            path=verifier_path(scaler) if of_path else None,
        )

    def cost(self, name: str, lam: float | None = None) -> Cost:
        """What the search of a condition minimises."""
        weighted = {
            "original": [],
            "acid": [self.consistency(lam or 0.0)],
            "acid-path": [self.consistency(lam or 0.0, of_path=True)],
            "turn": [Custom(turning, "turn", Adaptive(lam or 0.0))],
        }
        return Cost([self.goal, *look_up(weighted, name, "cost of navigation")])

    def planner(self, cost: Cost, search: CEM, scheme: Scheme) -> Planner:
        return Planner(
            self.model,
            cost,
            search,
            horizon=self.horizon,
            parametrisation=scheme.parametrisation,
            repeats=REPEATS,
        )


@dataclass(frozen=True)
class Seen:
    """A case as pictures."""

    context: Tensor  # uint8 [1, C, S, S, 3]
    future: Tensor  # uint8 [1, k, S, S, 3]

    @classmethod
    def of(cls, case: PathCase, task: Navigation) -> Seen:
        past, future = (
            torch.from_numpy(np.stack([task.render_pose(case.world, pose) for pose in poses]))[None]
            for poses in (case.past, case.future)
        )
        return cls(past, future)

    def problem(self, model: NavigationWorldModel) -> Problem:
        return Problem(model.encode(self.context), model.encode(self.future[:, -1]))


@dataclass(frozen=True)
class Asked:
    """A condition and its λ, if it has one."""

    name: str
    lam: float | None = None


@dataclass(frozen=True)
class Costs:
    """What is known of a pool's candidates, each [N]."""

    terms: Mapping[str, Tensor]  # [1, N]
    ate: np.ndarray  # m
    seconds: Mapping[str, float]

    @property
    def correlations(self) -> dict[str, float]:
        """Rank correlations inside the pool: of each term with the true error, and of consistency with turning."""
        values = {name: value[0].numpy() for name, value in self.terms.items()}
        found = {f"rank_{name}": rank_correlation(value, self.ate) for name, value in values.items()}
        return found | {"rank_consistency_turn": rank_correlation(values["consistency"], values["turn"])}


def judge(parts: Parts, pool: Pool, case: PathCase) -> Costs:
    """Every term of every candidate, once, and how far its path is from the true one."""
    turn = Custom(turning, "turn", Adaptive(1.0))
    terms = pool.evaluate(Cost([parts.goal, parts.consistency(), parts.consistency(of_path=True), turn])).terms
    errors = path_errors(path_of(pool.actions[0], case), case)
    return Costs(terms, errors.ate, dict(pool.objective.stopwatch.seconds))


def total(asked: Asked, parts: Parts, costs: Costs, seed: int) -> Tensor:
    """What a condition ranks the candidates by, [1, N]; the seed is for the one that decides by lot."""
    if asked.name == "chance":
        return torch.rand(costs.terms["goal"].shape, generator=torch.Generator().manual_seed(seed))
    if asked.name == "best":
        return torch.from_numpy(costs.ate)[None].to(costs.terms["goal"])
    return parts.cost(asked.name, asked.lam).weigh(costs.terms).total


def path_of(actions: Tensor, case: PathCase) -> np.ndarray:
    """Normalised actions [..., H, 3] to the poses [..., H + 1, 3] that they lead to from where the robot is now."""
    return integrate(denormalise(actions.double().numpy()), case.past[-1])


def path_errors(paths: np.ndarray, case: PathCase) -> TrajectoryErrors:
    """Errors (m) of paths [B, H + 1, 3] from the present pose on, as published numbers are computed.

    Places alone count, not headings, and the present one, which all paths share, does not.
    """
    places, true = (poses[..., 1:, :] * [1, 1, 0] for poses in (paths, case.driven))
    return trajectory_errors(places, np.broadcast_to(true, places.shape))


def outcome(actions: Tensor, case: PathCase, task: Navigation) -> dict[str, Any]:
    """Columns of a plan [H, 3]: how far its path is from the true one, and what happens when it is driven."""
    steps = denormalise(actions.double().numpy())
    errors = path_errors(path_of(actions, case)[None], case)
    task.set_state(np.array([case.world, *case.past[-1]]))
    collided = False
    for step in steps:
        task.advance(task.command_for(step))
        collided |= task.collided
    goal = np.array([case.world, *case.future[-1]])
    ate, rpe = float(errors.ate[0]), float(errors.rpe[0])
    return {
        "ate": ate / WAYPOINT,
        "rpe": rpe / WAYPOINT,
        "ate_metres": ate,
        "rpe_metres": rpe,
        "final_error": task.error(task.get_state(), goal),
        "collided": collided,
        "success": task.success(task.get_state(), goal),
        "plan": [[round(number, 5) for number in step] for step in steps.tolist()],
    }


def forward_step(case: PathCase) -> float:
    """How far the robot went ahead in the last step (m), which its wheels tell."""
    return float(displacements(case.past[-2:])[0, 0])


@dataclass(frozen=True)
class NavigationJob:
    """Some conditions on the cases of a protocol; one file of rows, written case by case."""

    cell: Cell
    scheme: str
    search: CEM
    asked: tuple[Asked, ...]
    protocol: Protocol
    results: Path

    @property
    def file(self) -> Path:
        """Conditions that share a pool share a file, one that searches for itself has its own."""
        if self.search.iterations == 1:
            return self.results / TASK / MODEL / self.protocol.split / f"pool_{self._search_name}.jsonl"
        return self.condition(self.asked[0]).file(self.results, self.protocol.split)

    @property
    def size(self) -> int:
        return self.protocol.episodes * len(self.asked)

    @property
    def cases(self) -> list[PathCase]:
        return load_cases(self.cell.cases_file(self.protocol.split), self.protocol, TASK)

    @property
    def _search_name(self) -> str:
        return SCHEMES[self.scheme].search_name(self.search)

    def condition(self, asked: Asked) -> Condition:
        return Condition(TASK, MODEL, asked.name, self._search_name, asked.lam)

    def run(self, progress: Progress | None = None) -> None:
        parts, provenance = Parts.load(self.cell), self.cell.provenance(["model", "verifier"])
        report = progress or (lambda done, total: None)
        same = same_in_a_file(self.protocol, provenance)
        shared = METRIC | same | {"revision": provenance.revision, "versions": dict(provenance.versions)}
        with (
            RowFile(self.file, same) as writer,
            closing(tasks.make(TASK, size=parts.model.observation_size)) as task,
        ):
            for done, case in enumerate(self.cases):
                report(done * len(self.asked), self.size)
                missing = [asked for asked in self.asked if key(self._columns(asked, case)) not in writer]
                if missing:
                    found = self._plan(parts, case, missing, task)  # type: ignore[arg-type]
                    writer.append(
                        [self._columns(a, case) | row | shared for a, row in zip(missing, found, strict=True)]
                    )
        report(self.size, self.size)

    def _columns(self, asked: Asked, case: PathCase) -> dict[str, Any]:
        return {
            **self.condition(asked).columns(),
            "split": self.protocol.split,
            "seed": self.protocol.seed,
            "instance": case.id,
            "episode": case.episode,
            "start_step": case.step,
            "draw": case.draw,
            "solved_at_start": False,
        }

    def _plan(self, parts: Parts, case: PathCase, asked: Sequence[Asked], task: Navigation) -> list[dict[str, Any]]:
        """One row of results for each condition."""
        scheme = SCHEMES[self.scheme]
        problem, middle = Seen.of(case, task).problem(parts.model), scheme.around(forward_step(case))
        seed = plan_seed(self.protocol.seed, case.id, 0)
        if self.search.iterations > 1:
            return [self._search(parts, one, problem, middle, seed, case, task) for one in asked]
        planner = parts.planner(parts.cost("original"), self.search, scheme)
        pool = draw_pool(planner, problem, seed=[seed], initial=middle)
        costs = judge(parts, pool, case)
        rows = []
        for one in asked:
            if one.name == "prior":
                chosen = pool.objective.actions(middle)
            else:
                lot = plan_seed(self.protocol.seed, case.id, 1)
                chosen = pool.choose(total(one, parts, costs, lot), self.search.elites)
            seconds = sum(costs.seconds[name] for name in _USES.get(one.name, ()))
            rows.append(outcome(chosen[0], case, task) | costs.correlations | {"plan_seconds": round(seconds, 4)})
        return rows

    def _search(
        self, parts: Parts, asked: Asked, problem: Problem, middle: Tensor, seed: int, case: PathCase, task: Navigation
    ) -> dict[str, Any]:
        planner = parts.planner(parts.cost(asked.name, asked.lam), self.search, SCHEMES[self.scheme])
        plan = planner.solve(problem, seed=[seed], initial=middle)
        return outcome(plan.actions[0], case, task) | {"plan_seconds": round(plan.seconds["total"], 4)}


_USES = {  # what a condition spends time on; the others look at nothing that is imagined
    "original": ("rollout", "goal"),
    "acid": ("rollout", "goal", "consistency"),
    "acid-path": ("rollout", "goal", "path"),
    "turn": ("rollout", "goal"),
}
