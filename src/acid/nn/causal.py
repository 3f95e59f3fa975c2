"""A causal transformer over frames whose every token is conditioned on an action (AdaLN-zero).

`forward` predicts all positions at once (training). `unroll` feeds predictions back in (planning): while the window
grows it keeps keys and values, and computes only what the newest token needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acid.nn.attention import attend_few


@dataclass(frozen=True)
class CausalConfig:
    frames: int = 3  # positions, i.e. the longest history
    width: int = 192
    depth: int = 6
    heads: int = 16
    head_width: int = 64
    mlp_width: int = 2048
    dropout: float = 0.1


@dataclass
class _Memory:
    """What one attention keeps of the frames of a window.

    Weights of attention do not see what all keys have in common, and what all values have in common is passed on
    whatever the weights are. So keys and values are kept relative to those of the first frame, which then needs none:
    what it passes on takes one small matrix, `direct`, the product of those of the values and of the output.
    """

    direct: Tensor  # [width, width]
    first: Tensor | None = None  # the first frame, normalised [M, width]
    common: Tensor | None = None  # what the first frame passes on to every frame, itself too [M, width]
    keys: list[Tensor] = field(default_factory=list)  # of the frames after it, [M, heads, head_width] each
    values: list[Tensor] = field(default_factory=list)

    @property
    def frames(self) -> int:
        return len(self.keys) + (self.first is not None)


class Attention(nn.Module):
    """Attention after a layer norm; the widths of the heads need not add up to the width."""

    def __init__(self, config: CausalConfig) -> None:
        super().__init__()
        inner = config.heads * config.head_width
        self.heads = config.heads
        self.inner = inner
        self.dropout = config.dropout
        self.norm = nn.LayerNorm(config.width)
        self.qkv = nn.Linear(config.width, 3 * inner, bias=False)
        self.out = nn.Linear(inner, config.width)

    def forward(self, x: Tensor) -> Tensor:
        """Every token attends to itself and to earlier ones: [M, t, width] to [M, t, width]."""
        return self.mix(*self.project(x), is_causal=True)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens [M, t, width] to queries, keys and values, each [M, heads, t, head_width]."""
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        return q, k, v

    def mix(self, q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool = False, mask: Tensor | None = None) -> Tensor:
        """Queries over keys and values, all [M, heads, ·, head_width], to [M, t, width]; a mask is True where seen."""
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=is_causal, dropout_p=dropout)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def direct(self) -> Tensor:
        """The product [width, width] of the matrices of values and of the output."""
        return self.out.weight @ self.qkv.weight[2 * self.inner :]

    def extend(self, x: Tensor, memory: _Memory, *, wanted: int) -> Tensor:
        """Add new frames [t, M, width] to the memory; only the last `wanted` of them attend: [wanted, M, width]."""
        x = self.norm(x)
        if memory.first is None or memory.common is None:
            memory.first, x = x[0], x[1:]
            memory.common = F.linear(memory.first, memory.direct, self.out.bias)
        weight_q, weight_kv = self.qkv.weight.split([self.inner, 2 * self.inner])
        keys, values = F.linear(x - memory.first, weight_kv).unflatten(-1, (2, self.heads, -1)).unbind(2)
        memory.keys += keys.unbind()
        memory.values += values.unbind()
        alone = int(wanted == memory.frames)  # the first frame sees only itself
        queries = F.linear(x[len(x) - wanted + alone :], weight_q).unflatten(-1, (self.heads, -1)).unbind()
        attended = [memory.common] * alone
        for seen, query in enumerate(queries, memory.frames - len(queries)):
            mixed = attend_few(query, memory.keys[:seen], memory.values[:seen], zero=True)
            attended.append(torch.addmm(memory.common, mixed.flatten(1), self.out.weight.T))
        return torch.stack(attended)


class Block(nn.Module):
    """Attention and MLP, both residual and, unless `conditioned` is off, modulated by a condition (AdaLN-zero)."""

    modulation: nn.Linear

    def __init__(self, config: CausalConfig, *, conditioned: bool = True) -> None:
        super().__init__()
        width = config.width
        self.norm_attention = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.attention = Attention(config)
        self.drop = nn.Dropout(config.dropout)
        self.norm_mlp = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, config.mlp_width),
            nn.GELU(),
            nn.Dropout(config.dropout),
            nn.Linear(config.mlp_width, width),
            nn.Dropout(config.dropout),
        )
        if conditioned:
            self.modulation = nn.Linear(width, 6 * width)
            nn.init.zeros_(self.modulation.weight)
            nn.init.zeros_(self.modulation.bias)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Let torch compile `update`, which is all that a layer does."""
        self.update = torch.compile(self.update, *args, **kwargs)

    def forward(self, x: Tensor, modulation: Tensor) -> Tensor:
        """Tokens [M, t, width] and six AdaLN numbers per channel [M, t, 6·width] to tokens [M, t, width]."""
        return self.update(x, modulation, self.attention)

    def extend(self, x: Tensor, modulation: Tensor, memory: _Memory, *, wanted: int) -> Tensor:
        """New frames [t, M, width], modulations [t, M, 6·width], to the last `wanted` frames [wanted, M, width]."""
        return self.update(x, modulation, lambda y: self.attention.extend(y, memory, wanted=wanted), wanted)

    def update(
        self, x: Tensor, modulation: Tensor | None, attend: Callable[[Tensor], Tensor], wanted: int | None = None
    ) -> Tensor:
        """Tokens after attention and MLP; `attend` may return only the last `wanted` of the modulated ones."""
        if modulation is None:
            x = x + self.drop(attend(x))
            return x + self.mlp(x)
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = modulation.chunk(6, -1)
        attended = attend(torch.addcmul(shift_a, self.norm_attention(x), 1 + scale_a))
        if wanted is not None:
            x, gate_a, shift_m, scale_m, gate_m = (part[-wanted:] for part in (x, gate_a, shift_m, scale_m, gate_m))
        x = torch.addcmul(x, gate_a, self.drop(attended))
        return torch.addcmul(x, gate_m, self.mlp(torch.addcmul(shift_m, self.norm_mlp(x), 1 + scale_m)))


class CausalTransformer(nn.Module):
    """Latents [M, t, size] and conditions [M, t, width] to next-latent features [M, t, width]."""

    blocks: Sequence[Block]

    def __init__(self, config: CausalConfig, size: int) -> None:
        super().__init__()
        self.config = config
        self.input = nn.Linear(size, config.width) if size != config.width else nn.Identity()
        self.positions = nn.Parameter(torch.randn(1, config.frames, config.width))
        self.blocks = cast("Sequence[Block]", nn.ModuleList(Block(config) for _ in range(config.depth)))
        self.norm = nn.LayerNorm(config.width)

    def forward(self, latents: Tensor, conditions: Tensor) -> Tensor:
        x = self.input(latents) + self.positions[:, : latents.shape[1]]
        for block, modulation in zip(self.blocks, self._modulations(conditions), strict=True):
            x = block(x, modulation)
        return self.norm(x)

    def unroll(self, start: Tensor, conditions: Tensor, finish: Callable[[Tensor], Tensor]) -> Tensor:
        """Feed predictions back: start [M, size], conditions [M, H, width] to imagined latents [M, H, size].

        `finish` maps the last token's features [M, width] to the next latent [M, size].
        Frames come first in here ([t, M, width]), so that every frame is one block of memory.
        """
        modulations = self._modulations(conditions.transpose(0, 1).contiguous())
        direct = [block.attention.direct() for block in self.blocks]
        memories = [_Memory(matrix) for matrix in direct]
        latents = [start]
        for t in range(conditions.shape[1]):
            new = 1
            if t >= self.config.frames:  # the window slides and every token changes its position: start over
                new, memories = self.config.frames, [_Memory(matrix) for matrix in direct]
            feature = self._newest(torch.stack(latents[-new:]), [m[t + 1 - new : t + 1] for m in modulations], memories)
            latents.append(finish(feature))
        return torch.stack(latents[1:], 1)

    def _modulations(self, conditions: Tensor) -> list[Tensor]:
        """Conditions [..., width] to six AdaLN numbers per channel [..., 6·width], for every block."""
        activated = F.silu(conditions)
        return [block.modulation(activated) for block in self.blocks]

    def _newest(self, latents: Tensor, modulations: Sequence[Tensor], memories: Sequence[_Memory]) -> Tensor:
        """The feature [M, width] of the last of the new frames [t, M, size]."""
        new, past = len(latents), memories[0].frames
        x = self.input(latents) + self.positions[0, past : past + new].unsqueeze(1)
        *inner, last = zip(self.blocks, modulations, memories, strict=True)
        for block, modulation, memory in inner:
            x = block.extend(x, modulation, memory, wanted=new)
        block, modulation, memory = last
        return self.norm(block.extend(x, modulation, memory, wanted=1)[0])
