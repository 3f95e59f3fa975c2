"""Scalars (times, step counts) as vectors."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def sinusoidal(values: Tensor, size: int, *, shortest: float = 4e-3, longest: float = 4.0) -> Tensor:
    """Values [...] to sines and cosines [..., size] with periods spaced geometrically from shortest to longest.

    The default periods suit values in [0, 1]; pass e.g. `shortest=1, longest=10_000` for integer positions.
    """
    exponents = torch.linspace(0.0, 1.0, size // 2, device=values.device, dtype=torch.float32)
    periods = shortest * (longest / shortest) ** exponents
    angles = values.to(torch.float32)[..., None] * (2 * math.pi / periods)
    waves = F.pad(torch.cat([angles.sin(), angles.cos()], dim=-1), (0, size % 2))
    return waves.to(values.dtype) if values.is_floating_point() else waves


class TimeEmbedding(nn.Module):
    """A time in [0, 1] as a vector: sines and cosines through a small MLP."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.width = width

    def forward(self, time: Tensor) -> Tensor:
        """[...] to [..., width]."""
        return self.mlp(sinusoidal(time, self.width))
