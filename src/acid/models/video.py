"""World models that imagine pictures, at random: what the kinds of NWM have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from acid.errors import MissingMethodError, ShapeError
from acid.models.contract import FrozenEncoderModel


class VideoModel(FrozenEncoderModel):
    """`encode`, `rollout` and `decode` for planning, `dynamics` for training on latents.

    The latent of a frame is [P, D]; an observation of T frames has the latent [B, T, P, D]. A rollout looks at the last
    `config.context` frames and repeats the oldest where there are fewer.
    """

    cpu_candidates: ClassVar[int] = 96  # imagined at once; more take memory and gain nothing

    @property
    def context(self) -> int:
        return self.config.context

    @property
    def latent_shape(self) -> tuple[int, int]:
        """P, D."""
        raise MissingMethodError(type(self), "latent_shape")

    def decode(self, latents: Tensor) -> Tensor:
        """Latents [..., P, D] to images [..., S, S, 3] with values in 0..1."""
        raise MissingMethodError(type(self), "decode")

    def imagine(self, context: Tensor, actions: Tensor, seeds: Sequence[int]) -> Tensor:
        """Latents of whole contexts [B, T, P, D] and actions [B, N, H, A] to imagined latents [B, N, H, P, D]."""
        raise MissingMethodError(type(self), "imagine")

    @torch.no_grad()
    def rollout(self, latent: Tensor, actions: Tensor, *, seeds: Sequence[int] | None = None) -> Tensor:
        """Latents [B, P, D] or [B, T, P, D] and actions [B, N, H, A] to imagined latents [B, N, H, P, D].

        One seed per problem, 0 by default: the same seed and latents imagine the same, whatever else is in the batch.
        """
        if actions.dim() != 4 or actions.shape[-1] != self.config.action_size:
            raise ShapeError(f"the model takes actions of size {self.config.action_size}, got {list(actions.shape)}")
        seeds = [0] * len(actions) if seeds is None else seeds
        if len(seeds) != len(actions):
            raise ShapeError(f"need one seed per problem: {len(actions)} problems, {len(seeds)} seeds")
        context = self._context(latent, len(actions))
        at_once = actions.shape[1]
        if actions.device.type == "cpu":
            at_once = max(1, self.cpu_candidates // len(actions))
        positions = self.get_parameter("dynamics.positions")
        parts = actions.to(positions.dtype).split(at_once, 1)
        return torch.cat([self.imagine(context, part, seeds) for part in parts], 1)

    def _context(self, latent: Tensor, problems: int) -> Tensor:
        """The last frames [B, T, P, D], the oldest repeated where there are too few."""
        frames = latent.unsqueeze(1) if latent.dim() == 3 else latent
        if frames.dim() != 4 or len(frames) != problems or frames.shape[2:] != self.latent_shape:
            raise ShapeError(
                f"latents must be [{problems}, P, D] or [{problems}, T, P, D] with P, D = {self.latent_shape}, "
                f"got {list(latent.shape)}"
            )
        frames = frames[:, -self.config.context :]
        missing = self.config.context - frames.shape[1]
        return torch.cat([frames[:, :1].expand(-1, missing, -1, -1), frames], 1)
