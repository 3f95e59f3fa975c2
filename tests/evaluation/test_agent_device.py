"""An evaluation agent does all of its work on the device of its model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fake_cuda import CUDA, as_cuda, fake_cuda
from torch import Tensor, nn

from acid.evaluation import PlanningAgent, Situation
from acid.planning import CEM, Controller, Planner, acid_cost
from acid.planning.finite import FiniteCheck
from acid.planning.timing import Stopwatch
from acid.types import ActionScaler, Plan, Problem
from acid.verifier import FlowConfig, TransformerSize, Verifier

SCALER = ActionScaler((0.0,), (1.0,))


class World(nn.Module):
    """One linear map sees, another moves on."""

    scaler = SCALER

    def __init__(self) -> None:
        super().__init__()
        self.look = nn.Linear(8 * 8 * 3, 4)
        self.move = nn.Linear(5, 4)
        self.seen_on: list[torch.device] = []

    def encode(self, observation: Tensor) -> Tensor:
        self.seen_on.append(observation.device)
        return self.look(observation.flatten(1).float())[:, None]

    def rollout(self, latent: Tensor, actions: Tensor) -> Tensor:
        state = latent[:, 0, None].expand(-1, actions.shape[1], -1)
        states = []
        for action in actions.unbind(2):
            state = self.move(torch.cat([state, action], -1))
            states.append(state)
        return torch.stack(states, 2).unsqueeze(-2)


def test_an_agent_works_on_the_device_of_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of `act` but what reads numbers back: the checks around a search, and the actions at the end."""
    plans: list[Plan] = []
    monkeypatch.setattr(Problem, "check", lambda self, action_size: None)
    monkeypatch.setattr(FiniteCheck, "finish", lambda self: None)
    monkeypatch.setattr(Stopwatch, "wait", lambda self, device: None)
    monkeypatch.setattr(Controller, "actions", lambda self, plan: plans.append(plan) or np.zeros((2, 3, 1)))
    torch.manual_seed(0)
    world = World().requires_grad_(False)
    verifier = Verifier(FlowConfig(4, 1, 1, TransformerSize(12, 1, 2)), SCALER).ready()
    situation = Situation(np.zeros((2, 1, 8, 8, 3), np.uint8), np.zeros((2, 8, 8, 3), np.uint8), 10, ["a", "b"])
    with fake_cuda() as mode:
        moved = as_cuda(world, mode)
        planner = Planner(moved, acid_cost(as_cuda(verifier, mode)), CEM(6, 2, 2), horizon=3)
        decision = PlanningAgent(planner).act(situation)
        assert decision.gap is not None
        found = [plans[0].actions, plans[0].imagined, decision.goal_cost, decision.gap(situation.goals)]
    assert {tensor.device for tensor in found if tensor is not None} == {CUDA}
    assert len(moved.seen_on) == 4
    assert set(moved.seen_on) == {CUDA}
