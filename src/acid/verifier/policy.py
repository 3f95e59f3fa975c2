"""A baseline without a world model: from the current latent and the goal's straight to the next action."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from acid.errors import ShapeError
from acid.loop import Progress
from acid.nn.prefix_suffix import TransformerSize
from acid.types import ActionScaler
from acid.verifier.fitting import LITE_FIT, FitConfig
from acid.verifier.model import FlowModel
from acid.verifier.transitions import Table, goal_pairs


class Policy(FlowModel):
    """The verifier's network, asked for the first of the `left` actions that lead from one latent to another."""

    kind = "policy"

    @property
    def horizon(self) -> int:
        """H: the most actions that may be left."""
        return self.config.conditions

    def act(
        self,
        latent: Tensor,
        goal: Tensor,
        left: int | Tensor,
        *,
        steps: int | None = None,
        noise: Tensor | None = None,
    ) -> Tensor:
        """Latents and goals [B, P, D] and actions left (1..H, one for all or [B]) to normalised actions [B, A].

        By default the mean action. Several `steps` from standard normal `noise` [B, A] sample one.
        """
        left = torch.as_tensor(left, device=latent.device).expand(len(latent))
        if left.numel() and not 1 <= left.min() <= left.max() <= self.horizon:
            raise ShapeError(f"actions left must lie in 1..{self.horizon}, got {int(left.min())}..{int(left.max())}")
        return self.flow.infer(latent, goal, left - 1, steps=steps, noise=noise)

    @classmethod
    def fit(
        cls,
        latents: Table,
        actions: Table,
        episodes: Table,
        *,
        horizon: int,
        frameskip: int = 1,
        size: TransformerSize | None = None,
        training: FitConfig = LITE_FIT,
        merge: bool = False,
        channels: tuple[int, ...] = (),
        scaler: ActionScaler | None = None,
        folder: Path | None = None,
        device: torch.device | None = None,
        progress: Progress | None = None,
    ) -> Policy:
        """A policy that learns from every pair of frames 1..horizon actions apart; tables as in `Verifier.fit`."""
        transitions = goal_pairs(latents, actions, episodes, horizon=horizon, frameskip=frameskip)
        return cls.fit_transitions(
            transitions,
            size=size,
            training=training,
            merge=merge,
            channels=channels,
            scaler=scaler,
            folder=folder,
            device=device,
            progress=progress,
        )
