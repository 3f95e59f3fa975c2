"""Which errors of a world model ACID sees, and which it does not: two rooms, a wall with a door, three models."""

import torch

from acid import CEM, ActionScaler, Planner, Verifier, acid_cost, goal_cost
from acid.verifier import FitConfig, TransformerSize

STEP, DOOR, NEAR, HORIZON = 0.25, 0.2, 0.2, 6
SCALER = ActionScaler(mean=(0.0, 0.0), std=(STEP, STEP))


def world(position, move):
    """Where a move really ends: the wall at x = 0 stops it, unless it crosses inside the door."""
    end = position + move
    share = (position[..., 0] / (position[..., 0] - end[..., 0])).nan_to_num()
    height = position[..., 1] + share * move[..., 1]
    blocked = (position[..., 0] * end[..., 0] < 0) & (height.abs() > DOOR)
    return torch.where(blocked[..., None], position, end)


def ignores_the_wall(position, move):
    return position + move


def exaggerates(position, move):
    """Knows the wall, but imagines that large moves lead twice as far."""
    return world(position, torch.where(move.norm(dim=-1, keepdim=True) > 1.5 * STEP, 2 * move, move))


class Model:
    """A latent is the position itself."""

    scaler = SCALER

    def __init__(self, law):
        self.law = law

    def encode(self, position):  # [B, 2] -> [B, 1, 2]
        return position[:, None]

    def rollout(self, latent, actions):  # [B, 1, 2], [B, N, H, 2] -> [B, N, H, 1, 2]
        position, imagined = latent.expand(-1, actions.shape[1], -1), []
        for move in SCALER.denormalise(actions).unbind(2):
            position = self.law(position, move)
            imagined.append(position)
        return torch.stack(imagined, 2)[..., None, :]


def record(random):
    """400 episodes of 12 moves in the real world: what the verifier learns from."""
    moves = STEP * torch.randn(400, 12, 2, generator=random)
    seen = [2 * torch.rand(400, 2, generator=random) - 1]
    for move in moves.unbind(1):
        seen.append(world(seen[-1], move))
    return torch.stack(seen[:-1], 1).flatten(0, 1)[:, None], moves.flatten(0, 1)


random = torch.Generator().manual_seed(0)
latents, moves = record(random)
size, training = TransformerSize(width=32, depth=2, heads=2), FitConfig(steps=1500, batch_size=256, learning_rate=3e-3)
episodes = torch.arange(400).repeat_interleave(12)
verifier = Verifier.fit(latents, moves, episodes, size=size, training=training, scaler=SCALER)
start, goal = (
    torch.rand(20, 2, generator=random) * torch.tensor([0.6, 1.6]) + torch.tensor(c)
    for c in [(-0.8, -0.8), (0.2, -0.8)]
)

print("                  residual of steps that are                reached, of 20, by")
print("model             right   wrong   share of wrong steps   goal cost   ACID")
for law in (world, exaggerates, ignores_the_wall):
    model = Model(law)
    reached = []
    for cost in (goal_cost(), acid_cost(verifier, 0.5)):
        plan = Planner(model, cost, CEM(samples=200, iterations=10, elites=20), horizon=HORIZON).plan(
            start, goal, seed=0
        )
        position = start
        for move in plan.env_actions.unbind(1):
            position = world(position, move)
        reached.append(int(((position - goal).norm(dim=1) < NEAR).sum()))
    actions = torch.randn(20, 100, HORIZON, 2, generator=random)
    imagined = torch.cat(
        [start[:, None, None, None].expand(-1, 100, 1, 1, -1), model.rollout(start[:, None], actions)], 2
    )
    residual = (actions - verifier.infer(imagined[:, :, :-1], imagined[:, :, 1:])).square().sum(-1)
    truth = world(imagined[:, :, :-1, 0], SCALER.denormalise(actions))
    wrong = (truth - imagined[:, :, 1:, 0]).norm(dim=-1) > 0.01
    mean = [f"{residual[steps].mean():7.2f}" if steps.any() else "      -" for steps in (~wrong, wrong)]
    name = law.__name__.replace("_", " ")
    print(f"{name:16}{mean[0]} {mean[1]}   {wrong.float().mean():20.0%}   {reached[0]:9}   {reached[1]:4}")
