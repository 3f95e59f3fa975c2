"""Models with `encode(dict)` and `unroll(z, actions)`: a stand-in with the signatures of jepa-wms in our planner."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from acid import CEM, ActionScaler, Cost, Planner, goal_cost
from acid.errors import PlanningError, ShapeError
from acid.integrations.unroll_model import UnrollModel
from acid.planning import PartDistances

SIDE, SIZE = 4, 2
SCALER = ActionScaler((0.0, 0.0), (0.5, 0.5))


class StandIn(nn.Module):
    """Tokens are the mean colours of quarters of the image; an action is added to all of them, and to the joints.

    Like the models of jepa-wms it takes a window of two frames, and its time comes first in what it unrolls.
    """

    window = 2

    def __init__(self, proprio: bool) -> None:
        super().__init__()
        self.proprio = proprio
        self.given: list[Any] = []

    def encode(self, obs: dict[str, Tensor]) -> Any:
        assert obs["visual"].dtype == torch.float32
        assert obs["visual"].shape[2] == 3
        quarters = obs["visual"].flatten(0, 1).unfold(2, 2, 2).unfold(3, 2, 2).mean((-1, -2)) / 255  # [BT, 3, 2, 2]
        visual = quarters.movedim(1, -1)[..., :SIZE].unflatten(0, obs["visual"].shape[:2]).unsqueeze(2)
        return {"visual": visual, "proprio": obs["proprio"].unsqueeze(2)} if self.proprio else visual

    def unroll(self, z: Any, act: Tensor) -> Any:
        self.given.append(z)
        steps = act.shape[0]
        frames = {name: list(value.unbind(1)) for name, value in (z if self.proprio else {"visual": z}).items()}
        for name, own in frames.items():
            for step in range(steps):
                window = torch.stack(own[-self.window :], 1)
                moved = act[step].reshape(len(act[step]), *[1] * (window.dim() - 3), SIZE)
                own.append(window[:, -1] + moved)
            frames[name] = torch.stack(own)
        return frames if self.proprio else frames["visual"]


@pytest.fixture(params=[False, True], ids=["visual", "proprio"])
def proprio(request: pytest.FixtureRequest) -> bool:
    return request.param


def observed(proprio: bool, level: int, joint: float = 0.0, frames: int | None = None) -> Any:
    lead = (1,) if frames is None else (1, frames)
    pixels = torch.full((*lead, SIDE, SIDE, 3), level, dtype=torch.uint8)
    return {"visual": pixels, "proprio": torch.full((*lead, SIZE), joint)} if proprio else pixels


def test_latents_keep_the_tokens_of_every_source(proprio: bool) -> None:
    model = UnrollModel(StandIn(proprio), SCALER)
    with pytest.raises(PlanningError, match="call `encode` first"):
        _ = model.parts
    latent = model.encode(observed(proprio, 51, 0.5, frames=3))
    assert latent.shape == (1, 3, 5 if proprio else 4, SIZE)
    assert model.parts.sizes == ({"visual": 4, "proprio": 1} if proprio else {"visual": 4})
    torch.testing.assert_close(model.parts.split(latent)["visual"], torch.full((1, 3, 4, SIZE), 0.2))


def test_a_rollout_is_what_the_model_unrolls(proprio: bool) -> None:
    network = StandIn(proprio)
    model = UnrollModel(network, SCALER)
    latent = model.encode(torch.cat([observed(False, level) for level in (0, 51)]) if not proprio else {
        name: torch.cat([observed(True, level, joint)[name] for level, joint in ((0, 0.0), (51, 0.5))])
        for name in ("visual", "proprio")
    })  # fmt: skip
    actions = torch.randn(2, 3, 4, SIZE)
    imagined = model.rollout(latent, actions)
    assert imagined.shape == (2, 3, 4, 5 if proprio else 4, SIZE)
    expected = latent[:, :1, None] + actions.cumsum(2)[..., None, :]
    torch.testing.assert_close(imagined, expected)
    given = network.given[0]["visual"] if proprio else network.given[0]
    assert given.shape == (6, 1, 1, 2, 2, SIZE)  # as its encoder gave them


def test_a_plan_reaches_the_goal(proprio: bool) -> None:
    model = UnrollModel(StandIn(proprio), SCALER)
    goal = observed(proprio, 102, 0.4)
    model.encode(goal)
    cost = Cost([PartDistances(model.parts)])
    planner = Planner(model, cost, CEM(samples=64, iterations=8, elites=8), horizon=2)
    plan = planner.plan(observed(proprio, 0), goal, seed=0)
    torch.testing.assert_close(plan.actions.sum(1), torch.full((1, SIZE), 0.4), rtol=0, atol=0.05)
    without = Planner(UnrollModel(StandIn(proprio)), goal_cost(), planner.search, horizon=2, action_size=SIZE)
    assert without.plan(observed(proprio, 0), goal, seed=0).env_actions is None


def test_several_cameras_by_a_function_of_your_own() -> None:
    def side_by_side(observation: dict[str, Tensor]) -> dict[str, Tensor]:
        both = torch.cat([observation["left"], observation["right"]], dim=2)
        return {"visual": both[:, None].movedim(-1, -3).float()}

    model = UnrollModel(StandIn(False), SCALER, preprocess=side_by_side)
    half = torch.zeros(1, SIDE, SIDE // 2, 3, dtype=torch.uint8)
    assert model.encode({"left": half, "right": half}).shape == (1, 1, 4, SIZE)


def test_mistakes_are_named() -> None:
    with pytest.raises(PlanningError, match="a Linear has no encode, unroll"):
        UnrollModel(nn.Linear(2, 2))
    model = UnrollModel(StandIn(False), SCALER)
    with pytest.raises(ShapeError, match="needs uint8 pixels"):
        model.encode(torch.zeros(1, 3, 4, 4))
    latent = model.encode(observed(False, 0))
    model.network.unroll = lambda z, act: z.transpose(0, 1)
    with pytest.raises(ShapeError, match=r"unroll must return \[T \+ H, B, \.\.\.\] = \[3, 1, \.\.\.\], got \[1, 1\]"):
        model.rollout(latent, torch.zeros(1, 1, 2, SIZE))
