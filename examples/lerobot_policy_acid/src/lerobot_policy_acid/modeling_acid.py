"""The policy: look, plan towards the goal image, execute some of the plan, look again."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import torch
from lerobot.policies.pretrained import PreTrainedPolicy
from torch import Tensor

from acid import CEM
from acid.errors import AcidError
from acid.integrations.hub import PretrainedCell
from acid.planning import derive_seed
from acid.types import Plan
from lerobot_policy_acid.configuration_acid import AcidConfig

IMAGES = "observation.images."


class AcidPolicy(PreTrainedPolicy):
    config_class = AcidConfig
    name = "acid"

    def __init__(self, config: AcidConfig, **_: Any) -> None:
        super().__init__(config)
        config.validate_features()
        self.config = config
        device = str(getattr(config, "device", None) or "cpu")
        self.cell = PretrainedCell.from_pretrained(config.cell, revision=config.revision, device=device)
        search = CEM(config.samples, config.iterations, config.elites)
        self.planner = self.cell.planner(search, horizon=config.horizon)
        self.world_model = self.planner.model  # registered, so that LeRobot finds its parameters
        self.last_plan: Plan | None = None
        self._goal: Tensor | None = None
        if config.goal_image is not None:
            self.set_goal(_load(config.goal_image))
        self.reset()

    def set_goal(self, image: Tensor) -> None:
        """What shall be seen in the end: [C, H, W] from 0 to 1, as LeRobot has images."""
        self._goal = self._pixels(image[None])

    def reset(self) -> None:
        """Forget the plan; called when an episode begins."""
        self._queue: deque[Tensor] = deque()
        self._plans = 0

    @torch.no_grad()
    def select_action(self, batch: dict[str, Tensor], **_: Any) -> Tensor:
        """The next action [B, a] in the units of the dataset."""
        if not self._queue:
            steps = self.config.execute * self.planner.scaler.frameskip
            self._queue.extend(self.predict_action_chunk(batch)[:, :steps].unbind(1))
        return self._queue.popleft()

    @torch.no_grad()
    def predict_action_chunk(self, batch: dict[str, Tensor], **_: Any) -> Tensor:
        """A whole plan [B, H · frameskip, a]."""
        if self._goal is None:
            raise AcidError("the policy has no goal: give --policy.goal_image, or call set_goal")
        now = self._pixels(batch[self._camera(batch)])
        goal = self._goal.expand(len(now), *self._goal.shape[1:])
        self.last_plan = self.planner.plan(now, goal, seed=derive_seed(self.config.seed, self._plans))
        self._plans += 1
        return self.last_plan.env_actions

    def forward(self, batch: dict[str, Tensor], **_: Any) -> Any:
        raise NotImplementedError("a cell is trained with `acid train`, not by LeRobot")

    def get_optim_params(self) -> dict[str, Any]:
        return {}

    def _camera(self, batch: dict[str, Tensor]) -> str:
        cameras = [name for name in batch if name.startswith(IMAGES)]
        wanted = cameras if self.config.camera is None else [f"{IMAGES}{self.config.camera}"]
        if len(wanted) != 1 or wanted[0] not in cameras:
            told = ", ".join(name.removeprefix(IMAGES) for name in cameras)
            raise AcidError(f"--policy.camera must be one of {told or 'no camera at all'}, got {self.config.camera!r}")
        return wanted[0]

    def _pixels(self, images: Tensor) -> Tensor:
        """[B, C, H, W] from 0 to 1 to uint8 [B, S, S, 3] of the size that the world model sees."""
        size = self.planner.model.observation_size
        small = torch.nn.functional.interpolate(images.float(), (size, size), mode="area")
        return (small.clamp(0, 1) * 255).round().to(torch.uint8).movedim(1, -1)


def _load(path: str) -> Tensor:
    from PIL import Image

    with Image.open(path) as image:
        return torch.from_numpy(np.array(image.convert("RGB"))).movedim(-1, 0) / 255
