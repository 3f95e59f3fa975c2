"""Plan with ACID in a world model of your own: a point on a plane, seen through a random linear map."""

import torch
from torch import nn

from acid import CEM, ActionScaler, Planner, Verifier, acid_cost
from acid.verifier import FitConfig


class PointWorld(nn.Module):
    """All that a world model needs: `encode`, `rollout`, and how its actions are normalised."""

    scaler = ActionScaler(mean=(0.0, 0.0), std=(0.5, 0.5))

    def __init__(self):
        super().__init__()
        self.camera = nn.Linear(2, 16, bias=False)  # in place of your encoder

    def encode(self, positions):  # [B, 2] -> [B, 1, 16]
        return self.camera(positions)[:, None]

    def rollout(self, latent, actions):  # [B, 1, 16], [B, N, H, 2] -> [B, N, H, 1, 16]
        moves = self.scaler.denormalise(actions).cumsum(dim=2)
        return latent[:, None, None] + self.camera(moves)[..., None, :]


torch.manual_seed(0)
world = PointWorld()

# The data: 200 episodes of 10 frames, and the verifier that learns which move lies between two of them.
moves = 0.5 * torch.randn(200, 10, 2, generator=torch.Generator().manual_seed(1))
positions = moves.cumsum(dim=1) - moves  # where the point was before each move
episodes = torch.arange(200).repeat_interleave(10)
latents = world.encode(positions.flatten(0, 1))
quick = FitConfig(steps=800, batch_size=128, learning_rate=3e-3)
verifier = Verifier.fit(latents, moves.flatten(0, 1), episodes, training=quick, scaler=world.scaler)
print(verifier.report)

# The plan: from the origin to (1, −1) in four moves.
planner = Planner(world, acid_cost(verifier), CEM(samples=100, iterations=10, elites=10), horizon=4)
plan = planner.plan(torch.zeros(1, 2), torch.tensor([[1.0, -1.0]]), seed=0)
print("moves", plan.env_actions[0].tolist())
print({name: round(cost.item(), 4) for name, cost in plan.costs.items()})
