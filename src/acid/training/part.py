"""A part of a cell in training: its recipe, and how it is made ready for the training loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from acid import distributed, models
from acid.data import Episodes, Partition
from acid.errors import look_up
from acid.loop import LoopConfig, Losses, SettingError
from acid.models import Kind, LearnedWorldModel
from acid.nn.budget import building

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class Recipe:
    """How a part is trained, apart from the data; what only some parts have is in subclasses."""

    part: str
    model: str  # kind of world model
    scale: str  # name of the network's preset
    network: Any  # configuration of the network; a size that follows from the data is 0
    loss: Any  # configuration of the loss; None where there is nothing to set
    loop: LoopConfig
    half_precision: bool = False  # store the weights in 16 bits


@dataclass(frozen=True)
class SplittingRecipe(Recipe):
    """Of a part that is trained first, so that it decides how the dataset is split."""

    held_out: float = 0.1  # share of the episodes kept for evaluation
    frameskip: int = 1  # environment steps per model step


@dataclass(frozen=True)
class Job:
    """One part to train, and what it is trained from."""

    recipe: Any  # of the part's own class
    task: str
    cell: Path  # holds the parts that were trained before
    episodes: Episodes
    partition: Partition
    device: torch.device
    encoding: Callable[[int, int], None] | None  # is told (frames encoded, frames in all)
    micro_batch: int | None = None  # most examples of a batch at once

    @property
    def kind(self) -> Kind:
        return look_up(models.KINDS, self.recipe.model, "world model")

    def world_model(self) -> LearnedWorldModel:
        """The cell's own, frozen, on the device."""
        return models.load(self.cell / "model", device=self.device)

    def build(self, network: Callable[..., M], *arguments: Any, **options: Any) -> M:
        """A fresh network, the same for the same seed."""
        torch.manual_seed(self.recipe.loop.seed)
        with building(f"the network of this {self.recipe.part}", failure=SettingError):
            return network(*arguments, **options)

    def pixels(self, rows: np.ndarray) -> Tensor:
        """Frames of the dataset, uint8 [*rows.shape, S, S, 3]."""
        return torch.from_numpy(self.episodes.read("pixels", rows))

    def draw(self, size: int, step: int) -> np.ndarray:
        """The examples, numbers below `size`, of this process's share of batch `step`: [B]."""
        loop = self.recipe.loop
        return distributed.share(np.random.default_rng([loop.seed, step]).integers(size, size=loop.batch_size))


@dataclass(frozen=True)
class Trainable:
    """What the loop trains, and how it is measured and saved."""

    module: nn.Module  # whose parameters are trained
    loss: Callable[[Any], Losses]  # of a batch
    read: Callable[[int], Any]  # batch number to this process's share of the batch
    examples: int  # that make an epoch
    measure: Callable[[], dict[str, Any]]  # after training: entries of the metadata
    save: Callable[..., None]  # save(folder, metadata=..., half_precision=...)
    micro_batch: int | None = None  # most examples that the loss shall be given; None: it needs the whole batch


@dataclass(frozen=True)
class Part:
    """One value in the registry of parts."""

    recipe: Callable[[str, str], Recipe]  # of a kind of world model and a scale
    prepare: Callable[[Job], Trainable]
    needs: str | None = None  # the part of the cell that must be there; of a model, a tokenizer if its kind has one
    any_data: bool = False  # may be trained on other data of the task than the part that it needs


def sized(network: Any, **sizes: int) -> Any:
    """The network with the sizes that follow from the data; one that was set must agree."""
    for name, size in sizes.items():
        if getattr(network, name) not in (0, size):
            raise SettingError(
                f"network.{name} follows from the data, which say {size}, not {getattr(network, name)}; leave it out"
            )
    return replace(network, **sizes)


def spread(rows: np.ndarray, count: int) -> np.ndarray:
    """At most so many of the rows, evenly."""
    return rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(np.int64)]
