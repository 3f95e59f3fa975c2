"""Le-WM: a joint-embedding world model kept from collapsing by SIGReg alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch.nn.functional as F
from torch import Tensor, nn

from acid.models.action_head import ActionHead
from acid.models.contract import Batch, Kind
from acid.models.jepa import PRESETS, JepaConfig, JepaWorldModel, batch_samples, lite_with_shapes
from acid.models.sigreg import SIGReg


@dataclass(frozen=True)
class LeWMLossConfig:
    sigreg: float = 0.09  # weight of SIGReg
    projections: int = 1024  # random directions along which SIGReg looks
    pooled: bool = False  # the sample of SIGReg is every frame of the batch, not one frame of every window
    alignment: float = 0.0  # weight of keeping neighbours in time alike; the published model has no such term
    inverse: float = 0.0  # weight of an action head; 0, as published, trains without one


class LeWMLoss(nn.Module):
    """Mean squared error of the next embedding (no stop-gradient), SIGReg on all embeddings, and what else is asked.

    SIGReg tests a sample, and small ones pass easily: with a few dozen windows a batch, embeddings that fill a third of
    their dimensions look Gaussian enough, and what moves fast or is small is left out of them. Pooling helps there.
    """

    def __init__(self, config: LeWMLossConfig, model: JepaWorldModel) -> None:
        super().__init__()
        self.config = config
        self.sigreg = SIGReg(config.projections)
        self.inverse = ActionHead(model) if config.inverse else None

    def forward(self, model: JepaWorldModel, batch: Batch) -> dict[str, Tensor]:
        """Of windows of pixels; the entry "loss" is what to minimise."""
        embeddings = model.embed(batch.frames)
        prediction = model.prediction_error(embeddings, batch.actions)
        sigreg = self.sigreg(batch_samples(embeddings, pooled=self.config.pooled))
        weighed = {"sigreg": (self.config.sigreg, sigreg)}
        if self.config.alignment:
            weighed["alignment"] = (self.config.alignment, F.mse_loss(embeddings[:, :-1], embeddings[:, 1:]))
        if self.inverse is not None:
            weighed["inverse"] = (self.config.inverse, self.inverse(embeddings, batch.actions))
        loss = prediction + sum(weight * value for weight, value in weighed.values())
        return {"loss": loss, "prediction": prediction} | {name: value for name, (_, value) in weighed.items()}


KIND = Kind(PRESETS, JepaConfig, JepaWorldModel, LeWMLossConfig, LeWMLoss, whole_batch=True)
# Not of the paper: part of the embedding is kept for what is seen, whatever its place, such as how a thing lies.
SHAPES = replace(KIND, presets={"lite": lite_with_shapes})
