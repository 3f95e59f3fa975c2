"""SIGReg: pull a batch of embeddings towards an isotropic Gaussian, one random direction at a time."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from acid import distributed

KNOTS = 17
REACH = 3.0  # the characteristic functions are compared on [0, REACH]


class SIGReg(nn.Module):
    """Epps–Pulley statistic against N(0, 1) along random unit projections; its mean over projections and time."""

    frequencies: Tensor
    target: Tensor
    weights: Tensor

    def __init__(self, projections: int = 1024) -> None:
        super().__init__()
        self.projections = projections
        frequencies = torch.linspace(0, REACH, KNOTS)
        target = torch.exp(-frequencies.square() / 2)  # the characteristic function of N(0, 1), and the window
        spacing = REACH / (KNOTS - 1)
        trapezoid = torch.full((KNOTS,), 2 * spacing)  # doubled: the integrand is even
        trapezoid[[0, -1]] = spacing
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.register_buffer("target", target, persistent=False)
        self.register_buffer("weights", trapezoid * target, persistent=False)

    def forward(self, embeddings: Tensor) -> Tensor:
        """Embeddings [T, B, D]; the sample is the batch, of all processes, time by time."""
        directions = torch.randn(embeddings.shape[-1], self.projections, device=embeddings.device)
        directions = distributed.of_first(directions / directions.norm(dim=0))
        angles = (embeddings @ directions).unsqueeze(-1) * self.frequencies  # [T, B, projections, KNOTS]
        real, imaginary = distributed.mean(angles.cos().mean(1)), distributed.mean(angles.sin().mean(1))
        gap = (real - self.target).square() + imaginary.square()
        return (gap @ self.weights).mean() * embeddings.shape[1] * distributed.processes()
