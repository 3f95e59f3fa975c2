"""A conditional diffusion transformer (CDiT): tokens of the next frame attend to one another and to the context's.

What they are told of, such as an action and the time that passes, modulates every layer (AdaLN-zero). Tokens are
vectors here; what they stand for, codes or latents, is the business of the networks that are made of these parts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acid.errors import ShapeError
from acid.nn.embeddings import sinusoidal

# Of the waves that describe a normalised action: displacements differ by hundredths, angles by up to a turn.
SHORTEST_WAVE, LONGEST_WAVE = 0.1, 8.0
PUBLISHED_TIME = 128  # frames that count as time 1 in the published networks
PUBLISHED_PERIODS = 10_000  # longest of their waves, of which the shortest is 2π


@dataclass(frozen=True)
class CDiTConfig:
    """CDiT-B by default."""

    width: int = 768
    depth: int = 12
    heads: int = 12
    mlp_width: int = 3072

    def __post_init__(self) -> None:
        if self.heads < 1 or self.width % self.heads:
            raise ShapeError(f"the width {self.width} must be a multiple of the {self.heads} heads")


class Memory(NamedTuple):
    """What one block keeps of some frames: keys and values, both [M, t, P, width], without their age."""

    keys: Tensor
    values: Tensor


class CrossAttention(nn.Module):
    """Tokens of the next frame attend to those of the context.

    frames: in a context whose keys and values are remembered; 0: it is modulated and read anew, see `read`.
    """

    age: Tensor  # [2, frames, 1, width], added to keys, to values
    extra: Tensor  # [2, 1, width], a key and a value beside those that are read

    def __init__(self, config: CDiTConfig, frames: int) -> None:
        super().__init__()
        width = config.width
        self.heads = config.heads
        self.norm = nn.LayerNorm(width) if frames else nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        if frames:
            self.age = nn.Parameter(0.02 * torch.randn(2, frames, 1, width))
        else:
            self.extra = nn.Parameter(0.02 * torch.randn(2, 1, width))
        self.out = nn.Linear(width, width)

    def read(self, context: Tensor, shift: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """An embedded context [M, n, width], modulated by [M, 1, width] each, to keys and values of all heads."""
        parts = self.key_value(torch.addcmul(shift, self.norm(context), 1 + scale)).chunk(2, -1)
        keys, values = (
            torch.cat([part, extra.expand(len(part), -1, -1)], 1) for part, extra in zip(parts, self.extra, strict=True)
        )
        return _heads(keys, self.heads), _heads(values, self.heads)

    def remember(self, frames: Tensor) -> Memory:
        """Embedded frames [M, t, P, width] to their keys and values."""
        return Memory(*self.key_value(self.norm(frames)).chunk(2, -1))

    def aged(self, memory: Memory) -> tuple[Tensor, Tensor]:
        """Keys and values of a whole context, oldest first, with their age: both [M, heads, T·P, head width]."""
        keys, values = ((part + age).flatten(1, 2) for part, age in zip(memory, self.age, strict=True))
        return _heads(keys, self.heads), _heads(values, self.heads)

    def aged_frames(self, frames: Sequence[Memory], candidates: int) -> tuple[Tensor, Tensor]:
        """The same for frames [B, N, P, width] each, or [B, 1, P, width] where all N candidates share one.

        Every number is written once. Repeating the shared frames and joining the others first takes three times that.
        """
        found = []
        for place, ages in enumerate(self.age):
            parts = [frame[place] for frame in frames]
            problems, _, tokens, width = parts[0].shape
            kind = torch.result_type(parts[0], ages)
            whole = parts[0].new_empty(problems, candidates, len(parts), tokens, width, dtype=kind)
            for number, (part, age) in enumerate(zip(parts, ages, strict=True)):
                torch.add(part.expand(-1, candidates, -1, -1), age, out=whole[:, :, number])
            found.append(_heads(whole.flatten(0, 1).flatten(1, 2), self.heads))
        return found[0], found[1]

    def forward(self, x: Tensor, context: tuple[Tensor, Tensor]) -> Tensor:
        return self.out(_joined(F.scaled_dot_product_attention(_heads(self.query(x), self.heads), *context)))


class CDiTBlock(nn.Module):
    """Self-attention, cross-attention to the context and MLP, each residual and modulated (AdaLN-zero)."""

    def __init__(self, config: CDiTConfig, frames: int) -> None:
        super().__init__()
        width = config.width
        self.parts = 9 if frames else 11  # shift, scale and gate of each of the three; shift and scale of the context
        self.heads = config.heads
        self.norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.cross = CrossAttention(config, frames)
        self.mlp = nn.Sequential(
            nn.Linear(width, config.mlp_width), nn.GELU(approximate="tanh"), nn.Linear(config.mlp_width, width)
        )
        self.modulation = nn.Linear(width, self.parts * width)
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)

    def forward(self, x: Tensor, modulation: Tensor, context: tuple[Tensor, Tensor]) -> Tensor:
        """Tokens [M, P, width] and modulations [M, 1, parts·width] to tokens [M, P, width]."""
        shift_s, scale_s, gate_s, shift_c, scale_c, gate_c, shift_m, scale_m, gate_m, *_ = modulation.chunk(
            self.parts, -1
        )
        x = torch.addcmul(x, gate_s, self._attend(torch.addcmul(shift_s, self.norm(x), 1 + scale_s)))
        x = torch.addcmul(x, gate_c, self.cross(torch.addcmul(shift_c, self.norm(x), 1 + scale_c), context))
        return torch.addcmul(x, gate_m, self.mlp(torch.addcmul(shift_m, self.norm(x), 1 + scale_m)))

    def read(self, context: Tensor, modulation: Tensor) -> tuple[Tensor, Tensor]:
        """An embedded context [M, n, width] to its keys and values, where it is modulated."""
        return self.cross.read(context, *modulation.chunk(self.parts, -1)[-2:])

    def _attend(self, x: Tensor) -> Tensor:
        query, key, value = (_heads(part, self.heads) for part in self.qkv(x).chunk(3, -1))
        return self.out(_joined(F.scaled_dot_product_attention(query, key, value)))


class ActionEmbedding(nn.Module):
    """Actions [..., A] to [..., width]: each number's sines and cosines through an MLP of its own, side by side.

    What is left when the width is shared goes to the first numbers, or (published) all of it to the last.
    """

    def __init__(self, size: int, waves: int, width: int, *, published: bool = False) -> None:
        super().__init__()
        self.waves = waves
        self.shortest, self.longest = SHORTEST_WAVE, LONGEST_WAVE
        shares = [width // size + (place < width % size) for place in range(size)]
        if published:
            half = waves // 2
            self.shortest, self.longest = 2 * math.pi, 2 * math.pi * PUBLISHED_PERIODS ** ((half - 1) / half)
            shares = [width // size] * (size - 1) + [width - width // size * (size - 1)]
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(waves, share), nn.SiLU(), nn.Linear(share, share)) for share in shares
        )

    def forward(self, actions: Tensor) -> Tensor:
        waves = sinusoidal(actions, self.waves, shortest=self.shortest, longest=self.longest)
        parts = waves.to(self.dtype).unbind(-2)
        return torch.cat([mlp(wave) for mlp, wave in zip(self.mlps, parts, strict=True)], -1)

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype


def _heads(x: Tensor, heads: int) -> Tensor:
    """[M, n, width] to [M, heads, n, head width]."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _joined(x: Tensor) -> Tensor:
    """[M, heads, n, head width] to [M, n, width]."""
    return x.transpose(1, 2).flatten(2)
