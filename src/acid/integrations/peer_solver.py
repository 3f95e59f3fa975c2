"""Our planner as a solver of stable-worldmodel, under its `WorldModelPolicy`, in both of its APIs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from acid.errors import PlanningError
from acid.integrations.peer_model import PIXELS
from acid.planning import Planner, derive_seed


class PlannerSolver:
    """`WorldModelPolicy(PlannerSolver(planner), PlanConfig(horizon=5, receding_horizon=5, action_block=5), ...)`.

    Its policy prepares the observations: with a `transform` they come as its models take them (`PeerModel(model,
    preprocess=None)`), without one as uint8 pixels, which our own models take.

    env_units: whether to answer in environment units, for a policy without a scaler of actions in its `process`. By
        default the policy's own scaler does that, which must have the statistics of the planner's model.
    """

    def __init__(self, planner: Planner, *, seed: int = 0, env_units: bool = False) -> None:
        if env_units and planner.scaler is None:
            raise PlanningError("answers in environment units need a planner whose model has an action scaler")
        self.planner = planner
        self.env_units = env_units
        self._seed = seed
        self._calls = 0
        self._n_envs: int | None = None

    def configure(self, *, action_space: Any, n_envs: int, config: Any) -> None:
        """Called by the policy with its environments; a PlanningError if the planner is for others."""
        size = math.prod(action_space.shape[1:]) * config.action_block
        for name, asked, own in (
            ("horizon", config.horizon, self.horizon),
            ("action_block × action size", size, self.action_dim),
        ):
            if asked != own:
                raise PlanningError(f"the policy plans with {name} = {asked}, the planner with {own}: make them equal")
        self._n_envs = n_envs
        self._calls = 0

    @property
    def action_dim(self) -> int:
        return self.planner.action_size

    @property
    def n_envs(self) -> int:
        if self._n_envs is None:
            raise PlanningError("the solver is not configured: attach its WorldModelPolicy to environments first")
        return self._n_envs

    @property
    def horizon(self) -> int:
        return self.planner.horizon

    def __call__(self, info_dict: Mapping[str, Any], init_action: Tensor | None = None) -> dict[str, Any]:
        return self.solve(info_dict, init_action)

    def solve(self, info_dict: Mapping[str, Any], init_action: Tensor | None = None) -> dict[str, Any]:
        """Plans for the observations of B environments: `actions` [B, H, A] on the CPU, and the whole `plan`."""
        plan = self.planner.plan(
            self._observation(info_dict, "{}", PIXELS),
            self._observation(info_dict, "goal_{}", "goal"),
            seed=derive_seed(self._seed, self._calls),
            initial=self._padded(init_action),
            past_actions=info_dict.get("action_history"),
        )
        self._calls += 1
        actions = plan.actions if plan.env_actions is None or not self.env_units else plan.env_actions
        actions = actions.reshape(plan.actions.shape).cpu()
        costs = torch.stack(list(plan.costs.values())).sum(0)
        return {"actions": actions, "costs": costs.tolist(), "plan": plan}

    def _observation(self, info: Mapping[str, Any], names: str, pixels: str) -> Tensor | dict[str, Tensor]:
        sources = getattr(self.planner.model, "sources", (PIXELS,))
        keys = {name: pixels if name == PIXELS else names.format(name) for name in sources}
        if missing := [key for key in keys.values() if key not in info]:
            raise PlanningError(f"the policy's info has no {missing[0]!r}; it has {', '.join(map(str, info))}")
        seen = {name: torch.as_tensor(info[key]) for name, key in keys.items()}
        if seen[PIXELS].shape[1] == 1:
            seen = {name: value[:, 0] for name, value in seen.items()}
        return seen[PIXELS] if len(seen) == 1 else seen

    def _padded(self, initial: Tensor | None) -> Tensor | None:
        """The rest of its previous plan, then zeros."""
        if initial is None:
            return None
        if self.env_units and self.planner.scaler is not None:
            scaler = self.planner.scaler
            initial = scaler.normalise(initial.reshape(len(initial), -1, scaler.env_size))
        rest = initial.new_zeros(len(initial), self.horizon - initial.shape[1], initial.shape[2])
        return torch.cat([initial, rest], dim=1)
