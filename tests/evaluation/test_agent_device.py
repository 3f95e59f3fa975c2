"""An evaluation agent hands its pixels to the device of its model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fake_cuda import CUDA, as_cuda, fake_cuda
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException

from acid.evaluation import PlanningAgent, Situation
from acid.planning import CEM, Planner, acid_cost
from acid.types import ActionScaler
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


def test_pixels_go_to_the_device_of_the_model() -> None:
    torch.manual_seed(0)
    world = World().requires_grad_(False)
    verifier = Verifier(FlowConfig(4, 1, 1, TransformerSize(12, 1, 2)), SCALER).ready()
    situation = Situation(np.zeros((2, 1, 8, 8, 3), np.uint8), np.zeros((2, 8, 8, 3), np.uint8), 10, ["a", "b"])
    with fake_cuda() as mode:
        moved = as_cuda(world, mode)
        planner = Planner(moved, acid_cost(as_cuda(verifier, mode)), CEM(6, 2, 2), horizon=3)
        with pytest.raises(DataDependentOutputException):  # there are no numbers to check or to read back here
            PlanningAgent(planner).act(situation)
    assert moved.seen_on
    assert set(moved.seen_on) == {CUDA}
