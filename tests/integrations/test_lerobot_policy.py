"""The policy for LeRobot, beside a stand-in for the two classes of LeRobot that it builds on."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from acid.errors import AcidError
from acid.integrations.hub import PretrainedCell

PLUGIN = Path(__file__).resolve().parents[2] / "examples" / "lerobot_policy_acid" / "src"


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package, imported as LeRobot does it."""

    class PreTrainedConfig:
        known: dict[str, type] = {}  # noqa: RUF012

        @classmethod
        def register_subclass(cls, name: str) -> Any:
            return lambda made: cls.known.setdefault(name, made)

    class PreTrainedPolicy(nn.Module):
        def __init__(self, config: Any) -> None:
            super().__init__()

    modules = {name: ModuleType(name) for name in ("lerobot", "lerobot.configs", "lerobot.policies")}
    modules["lerobot.configs.policies"] = ModuleType("lerobot.configs.policies")
    modules["lerobot.policies.pretrained"] = ModuleType("lerobot.policies.pretrained")
    modules["lerobot.configs.policies"].PreTrainedConfig = PreTrainedConfig
    modules["lerobot.policies.pretrained"].PreTrainedPolicy = PreTrainedPolicy
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.syspath_prepend(str(PLUGIN))
    for name in [name for name in sys.modules if name.startswith("lerobot_policy_acid")]:
        monkeypatch.delitem(sys.modules, name)
    import lerobot_policy_acid

    assert PreTrainedConfig.known == {"acid": lerobot_policy_acid.AcidConfig}
    return lerobot_policy_acid


def config(plugin: Any, **options: Any) -> Any:
    cell = str(PretrainedCell.shipped("reacher", "lewm").folder)
    return plugin.AcidConfig(**{"cell": cell, "samples": 16, "iterations": 2, "elites": 4, "execute": 1} | options)


def batch(level: float = 0.5) -> dict[str, torch.Tensor]:
    return {"observation.images.top": torch.full((1, 3, 96, 128), level), "observation.state": torch.zeros(1, 6)}


def test_it_plans_again_when_the_plan_is_used_up(plugin: Any, tmp_path: Path) -> None:
    Image.fromarray(np.full((48, 48, 3), 90, np.uint8)).save(tmp_path / "goal.png")
    policy = plugin.AcidPolicy(config(plugin, goal_image=str(tmp_path / "goal.png")))
    actions = [policy.select_action(batch()) for _ in range(6)]  # one model step is five of the dataset's
    assert all(action.shape == (1, 2) for action in actions)
    assert policy.last_plan.consistency.shape == (1, 5)
    policy.reset()
    again = [policy.select_action(batch()) for _ in range(6)]
    assert all(torch.equal(one, other) for one, other in zip(actions, again, strict=True))
    assert not torch.equal(actions[0], actions[5])
    assert policy.get_optim_params() == {}
    assert policy.predict_action_chunk(batch()).shape == (1, 25, 2)


def test_mistakes_are_named(plugin: Any) -> None:
    policy = plugin.AcidPolicy(config(plugin))
    with pytest.raises(AcidError, match=r"no goal: give --policy.goal_image"):
        policy.select_action(batch())
    policy.set_goal(torch.zeros(3, 32, 32))
    with pytest.raises(AcidError, match=r"--policy.camera must be one of left, right, got None"):
        policy.select_action({f"observation.images.{name}": torch.zeros(1, 3, 8, 8) for name in ("left", "right")})
    with pytest.raises(NotImplementedError, match="trained with `acid train`"):
        policy.forward(batch())
    with pytest.raises(ValueError, match=r"--policy.cell names the folder"):
        plugin.AcidPolicy(config(plugin, cell=""))
