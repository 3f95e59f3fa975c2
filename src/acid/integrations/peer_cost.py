"""Our costs in the solvers of stable-worldmodel: CEM, iCEM, MPPI, of release 0.1.1 and of its main branch.

    solver = CEMSolver(PeerCost(model, acid_cost(verifier)), num_samples=300, ...)               # either
    solver = CEMSolver(ShootingCostEvaluator(model, AcidObjective(acid_cost(verifier))), ...)    # main branch

The weight adapts to the solver's own candidates in each of its iterations, as in our planner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from acid.errors import PlanningError
from acid.integrations.peer_model import PIXELS, PeerModel
from acid.planning import Cost, Parts
from acid.types import Trajectory

CANDIDATES = "action_candidates"


class AcidObjective(nn.Module):
    """An `Objective`: what a cost of ours says about a rollout that lies in stable-worldmodel's info dict.

    sources: what a latent is made of, for a PreJEPA, e.g. ("pixels", "proprio"); the action that it keeps beside them
        is left out, or a verifier would read the answer. Default: one vector per frame, as in LeWM and PLDM.
    """

    def __init__(self, cost: Cost, sources: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.cost = cost
        self.sources = sources

    def forward(self, info: Mapping[str, Any]) -> Tensor:
        """Costs [B, S] of a dict with `predicted_emb`, `goal_emb` (or those of each source) and `action_candidates`."""
        if CANDIDATES not in info:
            raise PlanningError(f"the info dict has no {CANDIDATES!r}; use PeerCost, or its ShootingCostEvaluator")
        with torch.no_grad():
            return self.cost.evaluate(self._trajectory(info), self._goal(info)).total

    def _trajectory(self, info: Mapping[str, Any]) -> Trajectory:
        """From the last observed frame on. 0.1.1 counts the actions of the context among the candidates."""
        latents = self._latents({name: info[f"predicted_{name}_emb"] for name in self.sources}, info, "predicted_emb")
        latents = latents[:, :, info[PIXELS].shape[2] - 1 :]
        return Trajectory(latents, info[CANDIDATES][:, :, 1 - latents.shape[2] :])

    def _goal(self, info: Mapping[str, Any]) -> Tensor:
        """The last goal frame [B, P, D]."""
        return self._latents({name: info[f"{name}_goal_emb"] for name in self.sources}, info, "goal_emb")[:, -1]

    def _latents(self, sources: Mapping[str, Tensor], info: Mapping[str, Any], flat: str) -> Tensor:
        if not sources:
            return info[flat].unsqueeze(-2)
        return Parts({name: value.shape[-1] for name, value in sources.items()}).join(sources)


class PeerCost(nn.Module):
    """One of its world models with a cost of ours: what its solvers call a Costable, in both APIs.

    For a PreJEPA, begin the cost with `PartDistances(PeerModel(model).parts)`: that is its own criterion.
    """

    def __init__(self, model: nn.Module, cost: Cost) -> None:
        super().__init__()
        self.view = PeerModel(model, preprocess=None)
        self.objective = AcidObjective(cost, () if self.view.parts is None else self.view.sources)

    def get_cost(self, info_dict: dict[str, Any], action_candidates: Tensor) -> Tensor:
        """Costs [B, S] of candidates [B, S, T, A]; the rollout is the model's own."""
        info_dict.update({} if self._goal_names.keys() <= info_dict.keys() else self._encoded_goal(info_dict))
        return self.criterion(self.view.network.rollout(info_dict, action_candidates), action_candidates)

    def criterion(self, info_dict: dict[str, Any], action_candidates: Tensor) -> Tensor:
        """Costs [B, S] of candidates that were rolled out."""
        info_dict[CANDIDATES] = action_candidates
        return self.objective(info_dict)

    @property
    def _goal_names(self) -> dict[str, str]:
        """Where the info dict keeps the goal: by key the source."""
        return {f"{name}_goal_emb": name for name in self.objective.sources} or {"goal_emb": PIXELS}

    def _encoded_goal(self, info: Mapping[str, Any]) -> dict[str, Tensor]:
        given = {name: info["goal" if name == PIXELS else f"goal_{name}"][:, 0] for name in self.view.sources}
        latent, parts = self.view.encode(given), self.view.parts
        sources = {PIXELS: latent[..., 0, :]} if parts is None else parts.split(latent)
        return {key: sources[name] for key, name in self._goal_names.items()}
