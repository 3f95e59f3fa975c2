"""Small deterministic models whose plans can be checked by hand."""

from __future__ import annotations

import torch
from torch import Tensor

from acid.planning import CEM, ICEM, MPPI, Gradient, Planner, Search, Shooting, acid_cost
from acid.types import Problem

TIME_STEP = 0.5
HORIZON = 4
ACTION = 2


class Integrator:
    """A point mass in the plane: tokens (position, velocity), P = 2, D = 2; the action is an acceleration, A = 2.

    The squashed velocity makes it nonlinear enough that a mistake in the order of operations shows.
    """

    def __init__(self, squash: float = 0.0) -> None:
        self.squash = squash
        self.encoded = 0
        self.widest = 0

    def encode(self, observation: Tensor) -> Tensor:
        self.encoded += 1
        return observation.reshape(len(observation), 2, 2)

    def rollout(self, latent: Tensor, actions: Tensor) -> Tensor:
        self.widest = max(self.widest, actions.shape[0] * actions.shape[1])
        position, velocity = (latent[:, None, token].expand(-1, actions.shape[1], -1) for token in (0, 1))
        imagined = []
        for step in range(actions.shape[2]):
            velocity = velocity + TIME_STEP * actions[:, :, step]
            velocity = velocity - self.squash * velocity.tanh()
            position = position + TIME_STEP * velocity
            imagined.append(torch.stack([position, velocity], dim=-2))
        return torch.stack(imagined, dim=2)


class Verifier:
    """Explains a transition by the change of velocity, ever worse away from the origin."""

    def __init__(self) -> None:
        self.calls = 0

    def infer(self, latent: Tensor, next_latent: Tensor) -> Tensor:
        self.calls += 1
        change = (next_latent[..., 1, :] - latent[..., 1, :]) / TIME_STEP
        return change * torch.exp(-0.2 * latent[..., 0, :].square().sum(-1, keepdim=True))


SEARCHES: dict[str, Search] = {
    "cem": CEM(samples=64, iterations=8, elites=8),
    "icem": ICEM(samples=64, iterations=8, elites=8),
    "mppi": MPPI(samples=64, iterations=8),
    "gradient": Gradient(samples=4, iterations=40),
    "shooting": Shooting(samples=512),
}


def problem(size: int = 3, *, seed: int = 0) -> Problem:
    generator = torch.Generator().manual_seed(seed)
    start, goal = (torch.randn(size, 2, 2, generator=generator, dtype=torch.float64) for _ in range(2))
    return Problem(start, goal)


def planner(search: Search, *, model=None, cost=None, **options) -> Planner:
    model = model or Integrator()
    if getattr(model, "scaler", None) is None and "scaler" not in options:
        options = {"action_size": ACTION, **options}
    return Planner(model, cost or acid_cost(Verifier(), 0.3), search, **{"horizon": HORIZON, **options})
