"""One way to fit an action flow, for the verifier and for the policy."""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor

from acid import distributed
from acid.errors import ShapeError
from acid.loop import LoopConfig
from acid.types import ActionScaler
from acid.verifier.flow import ActionFlow, flow_matching_loss
from acid.verifier.report import FlowReport, measure
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
        super().__post_init__()
        self.check("held_out", 0 < self.held_out < 1, "a share inside (0, 1)")


PAPER_FIT = FitConfig(steps=200_000, learning_rate=1e-4, warmup=0.005)  # the paper does not say how long it warms up
LITE_FIT = FitConfig()


@dataclass(frozen=True)
class FlowFit:
    """A flow and the transitions, with normalised actions, that it is fitted to and measured on."""

    flow: ActionFlow
    transitions: Transitions
    train: Tensor  # indices
    held_out: Tensor  # indices
    config: FitConfig

    def __post_init__(self) -> None:
        shown, counts = self.transitions.start[self.train].unique(return_counts=True)  # one frame starts many pairs
        self.flow.set_latent_statistics(self.transitions.latents[shown], counts)

    def loss(self, batch: tuple[Tensor, Tensor, Tensor, Tensor | None]) -> dict[str, Tensor]:
        return {"loss": flow_matching_loss(self.flow, *batch)}

    def read(self, step: int) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """This process's share of batch number `step`."""
        generator = torch.Generator().manual_seed(self.config.seed * 1_000_003 + step)
        rows = torch.randint(len(self.train), (self.config.batch_size,), generator=generator)
        return self.transitions.batch(self.train[distributed.share(rows)])

    def batches(self, start: int) -> Generator[tuple[Tensor, Tensor, Tensor, Tensor | None], None, None]:
        yield from map(self.read, count(start))

    def fingerprint(self) -> str:
        """Changes with any latent, action or pair."""
        found = hashlib.sha256()
        parts = self.transitions
        for values in (parts.latents, parts.actions, parts.start, parts.stop, self.train):
            found.update(f"{values.dtype} {list(values.shape)}".encode())
            found.update(values.detach().contiguous().view(torch.uint8).numpy(force=True).data)
        return found.hexdigest()[:16]

    def report(self) -> FlowReport:
        """How well the flow infers actions that it was not fitted to."""
        return measure(self.flow, self.transitions, self.train, self.held_out, seed=self.config.seed)


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
