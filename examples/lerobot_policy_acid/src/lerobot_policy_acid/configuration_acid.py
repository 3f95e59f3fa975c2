"""The options of the policy, as LeRobot's command line shows them."""

from __future__ import annotations

from dataclasses import dataclass

from lerobot.configs.policies import PreTrainedConfig


@PreTrainedConfig.register_subclass("acid")
@dataclass
class AcidConfig(PreTrainedConfig):
    cell: str = ""  # folder of a cell, or OWNER/NAME on the hub
    revision: str | None = None  # the commit, for a cell on the hub
    goal_image: str | None = None  # file; or call `set_goal`
    camera: str | None = None  # default: the only one
    horizon: int = 5  # model steps of a plan
    execute: int = 5  # of them, executed before the next plan
    samples: int = 300
    iterations: int = 10
    elites: int = 30
    seed: int = 0

    @property
    def observation_delta_indices(self) -> None:
        return None

    @property
    def action_delta_indices(self) -> None:
        return None

    @property
    def reward_delta_indices(self) -> None:
        return None

    def validate_features(self) -> None:
        if not self.cell:
            raise ValueError("--policy.cell names the folder of a cell, e.g. runs/so101/lewm")

    def get_optimizer_preset(self) -> None:
        raise NotImplementedError("a cell is trained with `acid train`, not by LeRobot")

    def get_scheduler_preset(self) -> None:
        return None
