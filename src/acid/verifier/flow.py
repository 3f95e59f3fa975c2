"""The flow that carries noise to the action between two latents: its network, its loss and its integration.

The path x_τ = τ ε + (1 − τ) a leads from noise ε at τ = 1 to the action a at τ = 0;
the network learns its velocity ε − a.
One Euler step from τ = 1 gives the *mean* action of the transition, many steps *sample* one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from acid.errors import ShapeError, is_number, look_up
from acid.nn.embeddings import TimeEmbedding
from acid.nn.prefix_suffix import Memory, PrefixSuffixTransformer, TransformerSize

# How the two frames and the noisy action become a velocity: `remember(prefix)` and `answer(suffix, memory)`, given a
# TransformerSize. To add a network, write its class and name it here; recipes and checkpoints choose it by name.
NETWORKS: Mapping[str, type[nn.Module]] = {"prefix-suffix": PrefixSuffixTransformer}
PAPER = TransformerSize(width=192, depth=4, heads=3)
LITE = TransformerSize(width=96, depth=2, heads=3)
SMALL = TransformerSize(width=32, depth=2, heads=2, mlp_ratio=2)  # benchmarks/verifier_size.py: one vector a frame

_FIXED_NOISE_SEED = 0
_TIME_POWER = 1.5  # times are Beta(1.5, 1): the noisy end, where inference starts, is seen most
_AT_ONCE = 4096  # latents in double precision
_CPU_PREFIX_TOKENS = 1536  # more tokens at once than this fall out of a CPU's cache and gain nothing


@dataclass(frozen=True)
class FlowConfig:
    """Sizes of latents (P tokens of D numbers), of actions (A) and of the network, and how it is asked."""

    latent_size: int
    tokens: int
    action_size: int
    size: TransformerSize = PAPER
    steps: int = 1  # Euler steps; one gives the mean action, many sample one
    noise: Literal["zero", "fixed"] = "zero"  # where the steps start: at 0, or at one draw shared by all transitions
    merge: bool = False  # read each frame as one prefix token instead of P: much faster where P is large
    channels: tuple[int, ...] = ()  # if any: look at both frames, as square maps, with convolutions that halve the side
    network: str = "prefix-suffix"  # of NETWORKS
    conditions: int = 0  # how many values the integer has that the network is told besides the two frames; 0: none

    def __post_init__(self) -> None:
        sizes = (self.latent_size, self.tokens, self.action_size, self.steps)
        if not all(is_number(size, whole=True) and size >= 1 for size in sizes):
            raise ShapeError(f"latent_size, tokens, action_size and steps must be whole and at least 1, got {self}")
        if not is_number(self.conditions, whole=True) or self.conditions < 0:
            raise ShapeError(f"conditions must be a whole number of at least 0, got {self.conditions!r}")
        if not isinstance(self.size, TransformerSize):
            raise ShapeError(f"the size of a flow must be a TransformerSize, got {self.size!r}")
        channels = self.channels if isinstance(self.channels, tuple) else (0,)
        if not all(is_number(width, whole=True) and width >= 1 for width in channels):
            raise ShapeError(f"channels must be a tuple of whole numbers of at least 1, got {self.channels!r}")
        if self.noise not in ("zero", "fixed"):
            raise ShapeError(f"noise must be 'zero' or 'fixed', got {self.noise!r}")
        if self.channels and (self.merge or math.isqrt(self.tokens) ** 2 != self.tokens):
            raise ShapeError(
                f"convolutions need frames of n × n tokens that are not merged, got {self.tokens}, merge {self.merge}"
            )

    @property
    def prefix_tokens(self) -> int:
        """How many tokens of the network a frame becomes, or the pair of frames if there are convolutions."""
        if self.channels:
            return math.ceil(math.isqrt(self.tokens) / 2 ** len(self.channels)) ** 2
        return 1 if self.merge else self.tokens


class ActionFlow(nn.Module):
    """Normalised actions from the latents of two frames and, if there are conditions, an integer below `conditions`.

    Latents are standardised inside, by statistics that `set_latent_statistics` fits and that live in the state dict.
    """

    latent_mean: Tensor
    latent_std: Tensor
    noise: Tensor

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        self.config = config
        width = config.size.width
        self.register_buffer("latent_mean", torch.zeros(config.latent_size))
        self.register_buffer("latent_std", torch.ones(config.latent_size))
        self.register_buffer("noise", _default_noise(config))
        self.convolve = _PairConvolutions(config) if config.channels else None
        self.embed_latent = nn.Linear(_prefix_size(config), width)
        self.embed_position = nn.Parameter(0.02 * torch.randn(config.prefix_tokens, width))
        if self.convolve is None:
            self.embed_frame = nn.Parameter(0.02 * torch.randn(2, 1, width))
        self.embed_condition = nn.Embedding(config.conditions, width) if config.conditions else None
        self.embed_action = nn.Linear(config.action_size, width)
        self.embed_time = TimeEmbedding(width)
        self.transformer: Any = look_up(NETWORKS, config.network, "network of a verifier")(config.size)
        self.to_velocity = nn.Linear(width, config.action_size)

    def set_latent_statistics(self, latents: Tensor, counts: Tensor | None = None) -> None:
        """Fit the standardisation on latents [M, P, D] of any precision, each of which stands for `counts` [M] of them.

        A dimension that never varies is only centred.
        """
        weights = torch.ones(len(latents)) if counts is None else counts.cpu()
        shares = (weights.double() / weights.sum()).split(_AT_ONCE)
        parts = list(zip(latents.split(_AT_ONCE), shares, strict=True))  # MPS has no double precision, so on the CPU
        mean = sum(share @ part.cpu().double().mean(1) for part, share in parts)
        variance = sum(share @ (part.cpu().double() - mean).square().mean(1) for part, share in parts)
        std = torch.as_tensor(variance).sqrt()
        self.latent_mean.copy_(torch.as_tensor(mean))
        self.latent_std.copy_(torch.where(std > 1e-6, std, torch.ones_like(std)))

    def remember(self, latent: Tensor, next_latent: Tensor, condition: Tensor | None = None) -> Memory:
        """Latents [B, P, D] of both frames (and conditions [B]) to what the suffix attends to."""
        frames = torch.stack([latent, next_latent], dim=1)  # [B, 2, P, D]
        frames = (frames - self.latent_mean) / self.latent_std
        if self.config.merge:
            frames = frames.flatten(2).unsqueeze(2)  # [B, 2, 1, P·D]
        if self.convolve is None:
            prefix = (self.embed_latent(frames) + (self.embed_position + self.embed_frame)).flatten(1, 2)
        else:
            prefix = self.embed_latent(self.convolve(frames)) + self.embed_position
        if self.embed_condition is not None:
            prefix = torch.cat([prefix, self.embed_condition(condition)[:, None]], dim=1)
        return self.transformer.remember(prefix)

    def velocity(self, memory: Memory, noisy: Tensor, time: Tensor) -> Tensor:
        """Noisy actions [B, A] at times [B] to velocities [B, A]; one row [1, A] serves every row of the memory."""
        suffix = self.embed_action(noisy) + self.embed_time(time)
        return self.to_velocity(self.transformer.answer(suffix[:, None], memory)[:, 0])

    def integrate(self, memory: Memory, noise: Tensor, steps: int) -> Tensor:
        """Euler steps from noise [B, A] (or [1, A]) at τ = 1 to actions [B, A] at τ = 0."""
        action = noise
        for step in range(steps):
            time = noise.new_full((1,), 1 - step / steps)
            action = action - self.velocity(memory, action, time) / steps
        return action

    def infer(
        self,
        latent: Tensor,
        next_latent: Tensor,
        condition: Tensor | None = None,
        *,
        steps: int | None = None,
        noise: Tensor | None = None,
    ) -> Tensor:
        """Latents [..., P, D] of both frames (and conditions [...]) to actions [..., A].

        `steps` and `noise` (ε, [A] or [..., A]) replace those of the configuration.
        """
        lead = self._check(latent, next_latent)
        latent, next_latent = latent.to(self.latent_mean.dtype), next_latent.to(self.latent_mean.dtype)
        noise = self.noise if noise is None else self._check_noise(noise, lead)
        steps = self.config.steps if steps is None else steps
        if steps < 1:
            raise ShapeError(f"Euler steps must be at least 1, got {steps}")
        first, second = (frame.reshape(-1, *frame.shape[-2:]) for frame in (latent, next_latent))
        condition = None if condition is None else condition.reshape(-1)
        noise = noise.reshape(-1, self.config.action_size)
        actions = [
            self.integrate(
                self.remember(first[rows], second[rows], None if condition is None else condition[rows]),
                noise if len(noise) == 1 else noise[rows],
                steps,
            )
            for rows in self._chunks(first)
        ]
        return torch.cat(actions).reshape(*lead, self.config.action_size)

    def _chunks(self, latents: Tensor) -> Iterator[slice]:
        rows = at_once = max(1, len(latents))
        if latents.device.type == "cpu":
            at_once = max(1, _CPU_PREFIX_TOKENS // (2 * self.config.prefix_tokens))
        return (slice(first, first + at_once) for first in range(0, rows, at_once))

    def _check(self, latent: Tensor, next_latent: Tensor) -> torch.Size:
        expected = (self.config.tokens, self.config.latent_size)
        if latent.shape != next_latent.shape or latent.shape[-2:] != expected:
            raise ShapeError(
                f"both latents must be [..., {expected[0]}, {expected[1]}] with equal shapes, got "
                f"{list(latent.shape)} and {list(next_latent.shape)}"
            )
        return latent.shape[:-2]

    def _check_noise(self, noise: Tensor, lead: torch.Size) -> Tensor:
        size = self.config.action_size
        if noise.shape not in ((size,), (*lead, size)):
            raise ShapeError(f"noise must be [{size}] or {[*lead, size]}, got {list(noise.shape)}")
        return noise


class _PairConvolutions(nn.Module):
    """Frames [B, 2, n·n, D], side by side in the channels, to [B, prefix tokens, C]: what moved is local."""

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        self.side = math.isqrt(config.tokens)
        self.around = nn.Conv2d(2 * config.latent_size, config.channels[0], 3, 1, 1)
        sizes = zip((config.channels[0], *config.channels), config.channels, strict=False)
        self.halve = nn.ModuleList(nn.Conv2d(first, second, 3, 2, 1) for first, second in sizes)

    def forward(self, frames: Tensor) -> Tensor:
        x = frames.transpose(2, 3).flatten(1, 2).unflatten(2, (self.side, self.side))
        x = F.gelu(self.around(x.contiguous(memory_format=torch.channels_last)))
        for conv in self.halve:
            x = F.gelu(conv(x))
        return x.flatten(2).transpose(1, 2)


def _prefix_size(config: FlowConfig) -> int:
    """Numbers that one prefix token is made of."""
    return config.channels[-1] if config.channels else config.latent_size * config.tokens // config.prefix_tokens


def flow_matching_loss(
    flow: ActionFlow,
    latent: Tensor,
    next_latent: Tensor,
    action: Tensor,
    condition: Tensor | None = None,
    *,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Mean squared velocity error for latents [B, P, D] of both frames and normalised actions [B, A]; a scalar."""
    noise = torch.randn(action.shape, generator=generator).to(action)
    time = torch.rand(len(action), generator=generator).pow(1 / _TIME_POWER).to(action)
    noisy = time[:, None] * noise + (1 - time[:, None]) * action
    velocity = flow.velocity(flow.remember(latent, next_latent, condition), noisy, time)
    return F.mse_loss(velocity, noise - action)


def _default_noise(config: FlowConfig) -> Tensor:
    if config.noise == "zero":
        return torch.zeros(config.action_size)
    return torch.randn(config.action_size, generator=torch.Generator().manual_seed(_FIXED_NOISE_SEED))
