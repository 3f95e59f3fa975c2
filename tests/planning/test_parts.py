"""Latents of several sources: joined, split, measured source by source, and planned with by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from acid import CEM, ActionScaler, Controller, Cost, Planner, goal_cost
from acid.errors import PlanningError, ShapeError
from acid.planning import PartDistances, Parts
from acid.types import Problem, Trajectory

PARTS = Parts({"visual": 3, "proprio": 2})


def test_joining_and_splitting_are_inverse() -> None:
    visual, proprio = torch.randn(4, 5, 3), torch.randn(4, 2)
    latent = PARTS.join({"proprio": proprio, "visual": visual})  # the order is that of the sizes
    assert latent.shape == (4, 5, 5)
    found = PARTS.split(latent)
    assert torch.equal(found["visual"], visual)
    assert torch.equal(found["proprio"], proprio[:, None].expand(-1, 5, -1))
    assert torch.equal(PARTS.join(found), latent)


def test_other_sources_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"of \{'visual': 3, 'proprio': 2\} numbers cannot be made of"):
        PARTS.join({"visual": torch.zeros(1, 5, 3)})
    with pytest.raises(ShapeError, match=r"cannot have the shape \[1, 5, 6\]"):
        PARTS.split(torch.zeros(1, 5, 6))
    with pytest.raises(ShapeError, match="no source touch; they have visual, proprio"):
        PartDistances(PARTS, {"touch": 1.0})


def test_each_source_is_measured_by_itself() -> None:
    latents, goal = torch.randn(2, 3, 4, 5, 5), torch.randn(2, 5, 5)
    trajectory = Trajectory(latents, torch.zeros(2, 3, 3, 1))
    squared = (latents[:, :, -1] - goal[:, None]).square()
    expected = 2 * squared[..., :3].mean((-1, -2)) + squared[..., 3:].mean((-1, -2))
    torch.testing.assert_close(PartDistances(PARTS, {"visual": 2.0})(trajectory, goal), expected)


class Robot:
    """Sees two cameras and its joint; an action moves the joint."""

    scaler = ActionScaler((0.0,), (0.5,))
    parts = Parts({"visual": 2, "proprio": 1})

    def encode(self, observation: dict[str, Tensor]) -> Tensor:
        visual = torch.stack([observation["left"], observation["right"]], 1)
        return self.parts.join({"visual": visual, "proprio": observation["joint"]})

    def rollout(self, latent: Tensor, actions: Tensor) -> Tensor:
        sources = self.parts.split(latent[:, None, None].expand(-1, *actions.shape[1:3], -1, -1))
        moved = self.scaler.denormalise(actions).cumsum(2).unsqueeze(-2)
        return self.parts.join(sources | {"proprio": sources["proprio"] + moved})


def seen(joint: float) -> dict[str, Tensor]:
    return {"left": torch.zeros(2), "right": torch.ones(2), "joint": torch.tensor([joint])}


def test_observations_by_name_are_planned_with() -> None:
    model, search = Robot(), CEM(samples=64, iterations=6, elites=8)
    planner = Planner(model, Cost([PartDistances(model.parts)]), search, horizon=2)
    now, goal = ({name: value[None] for name, value in seen(joint).items()} for joint in (0.0, 0.6))
    plan = planner.plan(now, goal, seed=0)
    assert plan.env_actions is not None
    assert plan.env_actions.sum() == pytest.approx(0.6, abs=0.05)


def test_a_controller_keeps_observations_by_name() -> None:
    class Env:
        joint = 0.0

        def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
            return self.look(), {}

        def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            self.joint += float(action[0])
            return self.look(), 0.0, False, False, {}

        def look(self) -> dict[str, np.ndarray]:
            return {name: value.numpy() for name, value in seen(self.joint).items()}

    planner = Planner(Robot(), goal_cost(), CEM(samples=32, iterations=4, elites=4), horizon=2)
    done = Controller(planner, execute=2).run(Env(), seen(0.4), budget=2)
    assert done.observations["joint"].shape == (3, 1)
    assert done.observations["left"].shape == (3, 2)
    assert done.observations["joint"][-1] == pytest.approx(0.4, abs=0.1)


def test_past_actions_are_refused_by_a_model_without_them() -> None:
    problem = Problem(torch.zeros(1, 2, 2, 3), torch.zeros(1, 2, 3), torch.zeros(1, 1, 1))
    planner = Planner(Robot(), goal_cost(), CEM(samples=4, iterations=1, elites=2), horizon=2)
    with pytest.raises(PlanningError, match="the rollout of Robot takes no `past_actions`: leave them out"):
        planner.solve(problem)


def test_sources_with_tokens_of_their_own() -> None:
    parts = Parts({"visual": 4, "proprio": 1}, along="tokens")
    visual, proprio = torch.randn(2, 4, 3), torch.randn(2, 1, 3)
    latent = parts.join({"visual": visual, "proprio": proprio})
    assert latent.shape == (2, 5, 3)
    assert torch.equal(parts.split(latent)["proprio"], proprio)
    with pytest.raises(ShapeError, match=r"of \{'visual': 4, 'proprio': 1\} tokens cannot have the shape \[2, 4, 3\]"):
        parts.split(visual)
