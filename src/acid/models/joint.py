"""Two sequences that attend to one another, each with weights of its own: a multimodal diffusion transformer.

This is the body of CompACT's published decoder: one sequence is a frame's tokens, the other its picture's codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Stream(nn.Module):
    """One sequence's part of a layer. The last layer's `tokens` are only looked at: `closed`, without an output."""

    def __init__(self, width: int, heads: int, mlp_width: int, *, closed: bool = False) -> None:
        super().__init__()
        self.heads, self.closed = heads, closed
        self.norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.modulation = nn.Linear(width, (2 if closed else 6) * width)
        self.qkv = nn.Linear(width, 3 * width)
        if not closed:
            self.out = nn.Linear(width, width)
            self.mlp = nn.Sequential(
                nn.Linear(width, mlp_width), nn.GELU(approximate="tanh"), nn.Linear(mlp_width, width)
            )

    def project(self, x: Tensor, parts: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Queries, keys and values, each [M, heads, n, head width]."""
        found = self.qkv(torch.addcmul(parts[0], self.norm(x), 1 + parts[1])).chunk(3, -1)
        return tuple(part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in found)

    def parts(self, condition: Tensor) -> tuple[Tensor, ...]:
        """A condition [M, 1, width] to shift and scale, and (unless closed) gate, and the same for the MLP."""
        return self.modulation(condition).chunk(2 if self.closed else 6, -1)

    def finish(self, x: Tensor, seen: Tensor, parts: Sequence[Tensor]) -> Tensor:
        _, _, gate, shift, scale, gate_mlp = parts
        x = torch.addcmul(x, gate, self.out(seen))
        return torch.addcmul(x, gate_mlp, self.mlp(torch.addcmul(shift, self.norm(x), 1 + scale)))


class JointLayer(nn.Module):
    def __init__(self, width: int, heads: int, mlp_width: int, *, last: bool) -> None:
        super().__init__()
        self.codes = Stream(width, heads, mlp_width)
        self.tokens = Stream(width, heads, mlp_width, closed=last)

    def forward(self, codes: Tensor, tokens: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        for_codes, for_tokens = self.codes.parts(condition), self.tokens.parts(condition)
        pairs = zip(self.codes.project(codes, for_codes), self.tokens.project(tokens, for_tokens), strict=True)
        query, key, value = (torch.cat(pair, 2) for pair in pairs)
        seen = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        own, other = seen.split([codes.shape[1], tokens.shape[1]], 1)
        codes = self.codes.finish(codes, own, for_codes)
        return codes, tokens if self.tokens.closed else self.tokens.finish(tokens, other, for_tokens)


class JointTransformer(nn.Module):
    """Codes [M, n, width], given tokens [M, P, width] and as many learned registers, to features [M, n, width]."""

    layers: Sequence[JointLayer]

    def __init__(self, width: int, depth: int, heads: int, mlp_width: int, *, tokens: int) -> None:
        super().__init__()
        self.registers = nn.Parameter(0.02 * torch.randn(1, tokens, width))
        layers = nn.ModuleList(JointLayer(width, heads, mlp_width, last=i + 1 == depth) for i in range(depth))
        self.layers = cast("Sequence[JointLayer]", layers)
        self.norm = nn.LayerNorm(width)

    def forward(self, codes: Tensor, tokens: Tensor) -> Tensor:
        condition = F.silu(tokens.mean(1, keepdim=True))
        tokens = torch.cat([tokens, self.registers.expand(len(tokens), -1, -1)], 1)
        for layer in self.layers:
            codes, tokens = layer(codes, tokens, condition)
        return self.norm(codes)
