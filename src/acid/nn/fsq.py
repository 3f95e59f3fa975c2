"""Finite scalar quantisation: a vector becomes a token by rounding each of its numbers to one of a few levels.

There is no codebook to learn or to collapse: every combination of levels is a code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from acid.errors import ShapeError

_MARGIN = 1e-3  # by which the published FSQ goes beyond the outermost levels


class FSQ(nn.Module):
    """Between vectors [..., d], codes [..., d] with values in −1..1, levels [..., d] and code numbers [...].

    Level l of L is the value 2 l / (L − 1) − 1. The bins are equally wide under tanh, so no level is hard to reach.
    centred: as in the published FSQ, level l is the value l / ⌊L/2⌋ − 1, so that 0 is a level, and the outer two bins
    are half as wide under tanh.
    """

    sizes: Tensor
    strides: Tensor
    spans: Tensor  # levels between the values −1 and 1; whole numbers, so that a model in half precision keeps them

    def __init__(self, levels: Sequence[int], *, centred: bool = False) -> None:
        super().__init__()
        if not levels or min(levels) < 2:
            raise ShapeError(f"quantisation needs at least two levels per dimension, got {tuple(levels)}")
        self.levels = tuple(levels)
        self.size = math.prod(levels)  # number of codes
        strides = [math.prod(levels[:place]) for place in range(len(levels))]
        self.register_buffer("sizes", torch.tensor(levels), persistent=False)
        self.register_buffer("strides", torch.tensor(strides), persistent=False)
        self.centred = centred
        spans = [2 * (size // 2) if centred else size - 1 for size in levels]
        self.register_buffer("spans", torch.tensor(spans), persistent=False)

    def forward(self, vectors: Tensor) -> Tensor:
        """Any vectors [..., d] to codes [..., d]; gradients pass as if nothing had been rounded."""
        sizes = self.sizes.to(vectors.dtype)
        place = self._centred_place(vectors) if self.centred else (vectors.tanh() + 1) * (sizes / 2) - 0.5
        nearest = place.detach().round().clamp(min=0).minimum(sizes - 1)
        return self._value(place + (nearest - place).detach())

    def to_levels(self, codes: Tensor) -> Tensor:
        """Codes [..., d] of any precision to integers [..., d], each below its number of levels."""
        self._check(codes)
        return ((codes.float() + 1) / 2 * self.spans).round().long()

    def from_levels(self, levels: Tensor) -> Tensor:
        """Integers [..., d] to codes [..., d]."""
        self._check(levels)
        return self._value(levels.float())

    def to_indices(self, codes: Tensor) -> Tensor:
        """Codes [..., d] to their numbers [...], from 0 to size − 1."""
        return (self.to_levels(codes) * self.strides).sum(-1)

    def from_indices(self, indices: Tensor) -> Tensor:
        """Numbers [...] to codes [..., d]."""
        return self.from_levels(indices.unsqueeze(-1) // self.strides % self.sizes)

    def _value(self, levels: Tensor) -> Tensor:
        return levels * (2 / self.spans).to(levels.dtype) - 1

    def _centred_place(self, vectors: Tensor) -> Tensor:
        """Vectors [..., d] to places between −½ and L − ½, 0 to ⌊L/2⌋."""
        half = (self.sizes - 1) * (1 + _MARGIN) / 2
        offset = (1 - self.sizes % 2) / 2  # an even number of levels has one more below 0 than above
        return (vectors + (offset / half).atanh()).tanh() * half - offset + self.sizes // 2

    def _check(self, values: Tensor) -> None:
        if values.shape[-1:] != self.sizes.shape:
            raise ShapeError(f"codes have {len(self.levels)} numbers each, got {list(values.shape)}")
