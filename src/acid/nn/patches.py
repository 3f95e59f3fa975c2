"""A transformer over frames of P patch tokens: a token sees its own frame and earlier frames (frame-causal).

`forward` predicts all frames at once (training). `unroll` feeds predictions back in (planning): while the window grows
it remembers the keys and values of earlier frames; with a window of one frame every step is a plain prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acid.nn.causal import Attention, Block, CausalConfig


class _KeysValues(NamedTuple):
    """Keys and values of the frames so far, both [M, heads, t·P, head_width]."""

    keys: Tensor
    values: Tensor


@dataclass
class _Memory:
    """What one block remembers of the frames so far."""

    cached: _KeysValues | None = None

    def extend(self, keys: Tensor, values: Tensor) -> _KeysValues:
        if self.cached is not None:
            keys, values = (torch.cat(pair, 2) for pair in zip(self.cached, (keys, values), strict=True))
        self.cached = _KeysValues(keys, values)
        return self.cached


class PatchTransformer(nn.Module):
    """Frames [M, t, P, size] to features [M, t, P, width].

    If `conditioned`, every token of a frame is modulated by the frame's condition [M, t, width] (AdaLN-zero).
    """

    blocks: Sequence[Block]

    def __init__(self, config: CausalConfig, *, tokens: int, size: int, conditioned: bool) -> None:
        super().__init__()
        self.config = config
        self.conditioned = conditioned
        self.input = nn.Linear(size, config.width) if size != config.width else nn.Identity()
        self.positions = nn.Parameter(torch.randn(config.frames, tokens, config.width))
        self.blocks = cast(
            "Sequence[Block]", nn.ModuleList(Block(config, conditioned=conditioned) for _ in range(config.depth))
        )
        self.norm = nn.LayerNorm(config.width)

    def forward(self, frames: Tensor, conditions: Tensor | None = None) -> Tensor:
        return self._advance(frames, self._modulations(conditions), self._no_memories())

    def unroll(
        self,
        start: Tensor,
        steps: int,
        conditions: Tensor | None,
        prepare: Callable[[Tensor, int], Tensor],
        finish: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor:
        """Feed predictions back: start latents [M, P, D] to imagined latents [M, steps, P, D].

        `prepare(latent, t)` makes the token inputs [M, P, size] of step t of latents [M, P, D];
        `finish(features, latent)` makes the next latent from the features [M, P, width] of the latest frame.
        Conditions are [M, steps, width], or None.
        """
        modulations = self._modulations(conditions)
        memories = self._no_memories()
        latents, inputs = [start], []
        for t in range(steps):
            inputs.append(prepare(latents[-1], t))
            new = 1
            if t >= self.config.frames:  # the window slides and every frame changes its position: start over
                new, memories = self.config.frames, self._no_memories()
            chosen = slice(t + 1 - new, t + 1)
            features = self._advance(torch.stack(inputs[chosen], 1), [_at(m, chosen) for m in modulations], memories)
            latents.append(finish(features[:, -1], latents[-1]))
        return torch.stack(latents[1:], 1)

    def _no_memories(self) -> list[_Memory]:
        return [_Memory() for _ in self.blocks]

    def _modulations(self, conditions: Tensor | None) -> list[Tensor | None]:
        """Conditions [M, t, width] to six AdaLN numbers per channel [M, t, 1, 6·width], for every block."""
        if conditions is None:
            return [None for _ in self.blocks]
        activated = F.silu(conditions).unsqueeze(2)
        return [block.modulation(activated) for block in self.blocks]

    def _advance(self, frames: Tensor, modulations: Sequence[Tensor | None], memories: Sequence[_Memory]) -> Tensor:
        """New frames [M, t, P, size] after those in memory, to their features [M, t, P, width]."""
        new, tokens = frames.shape[1:3]
        seen = memories[0].cached
        past = 0 if seen is None else seen.keys.shape[2] // tokens
        mask = _frame_causal(past, new, tokens, frames.device) if new > 1 else None
        x = self.input(frames) + self.positions[past : past + new]
        for block, modulation, memory in zip(self.blocks, modulations, memories, strict=True):
            x = block.update(x, modulation, _Attend(block.attention, memory, mask))
        return self.norm(x)


@dataclass(frozen=True)
class _Attend:
    """Attention of the new frames [M, t, P, width] to themselves and to what is remembered."""

    attention: Attention
    memory: _Memory
    mask: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        queries, keys, values = self.attention.project(x.flatten(1, 2))
        return self.attention.mix(queries, *self.memory.extend(keys, values), mask=self.mask).view_as(x)


def _frame_causal(past: int, new: int, tokens: int, device: torch.device) -> Tensor:
    """Which of (past + new)·P keys each of new·P queries may see, as booleans [new·P, (past + new)·P]."""
    frame = torch.arange(past + new, device=device).repeat_interleave(tokens)
    return frame[past * tokens :, None] >= frame


def _at(modulation: Tensor | None, steps: slice) -> Tensor | None:
    return None if modulation is None else modulation[:, steps]
