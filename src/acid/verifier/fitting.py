"""One way to fit an action flow, for the verifier and for the policy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from acid.errors import ShapeError
from acid.types import ActionScaler
from acid.verifier.flow import ActionFlow, flow_matching_loss
from acid.verifier.transitions import Transitions

Progress = Callable[[int, float], None]  # (steps done, loss of the last one)


@dataclass(frozen=True)
class FitConfig:
    """How a flow is fitted: AdamW, linear warm-up, cosine decay to zero."""

    steps: int = 5_000
    batch_size: int = 256
    lr: float = 1e-3
    warmup: int = 250
    weight_decay: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    clip: float = 1.0
    held_out: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch_size < 1:
            raise ShapeError(f"fitting needs at least one step and one row per batch, got {self}")
        if not 0 < self.held_out < 1:
            raise ShapeError(f"held_out is the share of the transitions to test on, in (0, 1), got {self.held_out}")

    def rate(self, step: int) -> float:
        """What the peak learning rate is multiplied by at this step."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        return 0.5 * (1 + math.cos(math.pi * (step - self.warmup) / max(1, self.steps - self.warmup)))


PAPER_FIT = FitConfig(steps=200_000, lr=1e-4, warmup=1_000)  # the paper does not say how long it warms up
LITE_FIT = FitConfig()  # minutes on one core


def fit_flow(
    flow: ActionFlow,
    transitions: Transitions,
    train: Tensor,
    config: FitConfig,
    progress: Progress | None = None,
) -> None:
    """Fit a flow in place to the `train` indices of transitions whose actions are normalised."""
    flow.set_latent_statistics(transitions.latents[transitions.start[train]])
    optimiser = torch.optim.AdamW(
        flow.parameters(), lr=config.lr, betas=config.betas, weight_decay=config.weight_decay, fused=True
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, config.rate)
    generator = torch.Generator().manual_seed(config.seed)
    flow.train()
    for step in range(1, config.steps + 1):
        index = train[torch.randint(len(train), (config.batch_size,), generator=generator)]
        loss = flow_matching_loss(flow, *transitions.batch(index), generator=generator)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(flow.parameters(), config.clip)
        optimiser.step()
        schedule.step()
        if progress is not None:
            progress(step, loss.item())


def fit_scaler(actions: Tensor) -> ActionScaler:
    """Mean and standard deviation of each dimension of actions [K, A]."""
    std, mean = torch.std_mean(actions.double(), dim=0, correction=0)
    return ActionScaler(mean=tuple(mean.tolist()), std=tuple(std.tolist()))


def normalise_rows(actions: Tensor, scaler: ActionScaler) -> Tensor:
    """Model actions [M, A] in environment units (blocks of steps side by side) to normalised [M, A]."""
    if actions.shape[-1] != scaler.size:
        raise ShapeError(
            f"the scaler describes blocks of {scaler.block} × {scaler.env_size} = {scaler.size} numbers, but actions "
            f"have {actions.shape[-1]}"
        )
    return scaler.normalise(actions.reshape(-1, scaler.env_size))
