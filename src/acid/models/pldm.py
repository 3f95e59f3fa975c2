"""PLDM: the same network as Le-WM, kept from collapsing by the VICReg family of penalties."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch.nn.functional as F
from torch import Tensor, nn

from acid import distributed
from acid.models.action_head import ActionHead
from acid.models.contract import Batch, Kind
from acid.models.jepa import PRESETS, JepaConfig, JepaWorldModel, batch_samples, lite_with_shapes

EPSILON = 1e-4  # keeps the gradient of a standard deviation finite


@dataclass(frozen=True)
class PLDMLossConfig:
    """Weights of the penalties beside the prediction error; the published ones by default."""

    variance: float = 18.0  # over the batch
    variance_in_time: float = 0.7
    covariance: float = 12.0
    covariance_in_time: float = 0.0
    alignment: float = 0.2  # of keeping neighbours in time alike
    inverse: float = 0.0  # of an action head; 0 trains without one
    pooled: bool = False  # "over the batch" takes every frame of it as the sample, not one frame of every window


class PLDMLoss(nn.Module):
    """Prediction error, hinge on the spread of every channel, covariance between channels, temporal alignment.

    `_in_time` penalties are the same statistics over the frames of a window instead of over the batch. Pooling makes
    the others less noisy: between independent channels n samples show covariances of 1/n in the mean square.
    """

    def __init__(self, config: PLDMLossConfig, model: JepaWorldModel) -> None:
        super().__init__()
        self.config = config
        self.inverse = ActionHead(model) if config.inverse else None

    def forward(self, model: JepaWorldModel, batch: Batch) -> dict[str, Tensor]:
        """Of windows of pixels; the entry "loss" is what to minimise."""
        embeddings = model.embed(batch.frames)
        samples = batch_samples(embeddings, pooled=self.config.pooled)
        across = samples - distributed.mean(samples.mean(1, keepdim=True))  # over the batch, of all processes
        along = embeddings - distributed.mean(embeddings.mean(0))  # over time
        weighed = {
            "variance": (self.config.variance, missing_spread(across, parted=True)),
            "variance_in_time": (self.config.variance_in_time, missing_spread(along)),
            "covariance": (self.config.covariance, shared_variance(across, parted=True)),
            "covariance_in_time": (self.config.covariance_in_time, shared_variance(along)),
            "alignment": (self.config.alignment, F.mse_loss(embeddings[:, :-1], embeddings[:, 1:])),
        }
        if self.inverse is not None:
            weighed["inverse"] = (self.config.inverse, self.inverse(embeddings, batch.actions))
        prediction = model.prediction_error(embeddings, batch.actions)
        loss = prediction + sum(weight * value for weight, value in weighed.values() if weight)
        return {"loss": loss, "prediction": prediction} | {name: value for name, (_, value) in weighed.items()}


def missing_spread(samples: Tensor, *, parted: bool = False) -> Tensor:
    """How far each channel's standard deviation falls short of 1: centred samples [G, n, D] to their mean.

    parted: every process that trains has a part of the n samples.
    """
    variance = distributed.variance(samples, 1) if parted else samples.var(1)
    return F.relu(1 - (variance + EPSILON).sqrt()).mean()


def shared_variance(samples: Tensor, *, parted: bool = False) -> Tensor:
    """Mean square of the covariances between different channels: centred samples [G, n, D] to a number."""
    _, count, channels = samples.shape
    products = samples.transpose(1, 2) @ samples
    if parted:
        products, count = distributed.mean(products) * distributed.processes(), count * distributed.processes()
    covariance = products / (count - 1)
    total = covariance.square().sum((1, 2)) - covariance.diagonal(dim1=1, dim2=2).square().sum(1)
    return (total / (channels**2 - channels)).mean()


KIND = Kind(PRESETS, JepaConfig, JepaWorldModel, PLDMLossConfig, PLDMLoss, whole_batch=True)
SHAPES = replace(KIND, presets={"lite": lite_with_shapes})  # as with Le-WM
