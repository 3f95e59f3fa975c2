"""One way to fit an action flow, for the verifier and for the policy."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from acid.errors import ShapeError
from acid.loop import LoopConfig, Progress, train
from acid.types import ActionScaler
from acid.verifier.flow import ActionFlow, flow_matching_loss
from acid.verifier.transitions import Transitions


@dataclass(frozen=True)
class FitConfig(LoopConfig):
    """How a flow is fitted; the defaults take minutes on one core."""

    steps: int = 5_000
    batch_size: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    warmup: float = 0.05
    held_out: float = 0.1  # share of the episodes that the report is measured on

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch_size < 1:
            raise ShapeError(f"fitting needs at least one step and one row per batch, got {self}")
        if not 0 < self.held_out < 1:
            raise ShapeError(f"held_out is the share of the transitions to test on, in (0, 1), got {self.held_out}")


PAPER_FIT = FitConfig(steps=200_000, learning_rate=1e-4, warmup=0.005)  # the paper does not say how long it warms up
LITE_FIT = FitConfig()


def fit_flow(
    flow: ActionFlow,
    transitions: Transitions,
    chosen: Tensor,
    config: FitConfig,
    *,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> None:
    """Fit a flow in place to the `chosen` indices of transitions whose actions are normalised."""
    flow.set_latent_statistics(transitions.latents[transitions.start[chosen]].float())

    def loss(index: Tensor) -> dict[str, Tensor]:
        return {"loss": flow_matching_loss(flow, *transitions.batch(index))}

    def batches(start: int) -> Generator[Tensor, None, None]:
        step = start
        while True:
            generator = torch.Generator().manual_seed(config.seed * 1_000_003 + step)
            yield chosen[torch.randint(len(chosen), (config.batch_size,), generator=generator)]
            step += 1

    train(flow, loss, batches, config, folder, progress=progress)


def fit_scaler(actions: Tensor) -> ActionScaler:
    """Mean and standard deviation of each dimension of actions [K, A]."""
    std, mean = torch.std_mean(actions.double(), dim=0, correction=0)
    return ActionScaler(mean=tuple(mean.tolist()), std=tuple(std.tolist()))


def normalise_rows(actions: Tensor, scaler: ActionScaler) -> Tensor:
    """Model actions [M, A] in environment units (blocks of steps side by side) to normalised [M, A]."""
    if actions.shape[-1] != scaler.size:
        raise ShapeError(
            f"the scaler describes steps of {scaler.frameskip} × {scaler.env_size} = {scaler.size} numbers, but "
            f"actions have {actions.shape[-1]}"
        )
    return scaler.normalise(actions.reshape(-1, scaler.env_size))
