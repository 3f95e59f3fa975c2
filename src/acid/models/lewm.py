"""Le-WM: a joint-embedding world model kept from collapsing by SIGReg alone."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from acid.models.action_head import ActionHead
from acid.models.jepa import JepaWorldModel, batch_samples
from acid.models.sigreg import SIGReg


@dataclass(frozen=True)
class LeWMConfig:
    sigreg: float = 0.09  # weight
    projections: int = 1024
    pooled: bool = False  # the sample of SIGReg is every frame of the batch, not one frame of every window
    inverse: float = 0.0  # weight of an action head, which the published model has not; 0 trains without one


class LeWMObjective(nn.Module):
    """Mean squared error of the next embedding (no stop-gradient) plus SIGReg on all embeddings.

    SIGReg tests a sample, and small ones pass easily: with a few dozen windows a batch, embeddings that fill a third of
    their dimensions look Gaussian enough, and what moves fast or is small is left out of them. Pooling helps there.
    """

    def __init__(self, config: LeWMConfig, model: JepaWorldModel) -> None:
        super().__init__()
        self.config = config
        self.sigreg = SIGReg(config.projections)
        self.inverse = ActionHead(model) if config.inverse else None

    def forward(self, model: JepaWorldModel, pixels: Tensor, actions: Tensor) -> dict[str, Tensor]:
        """Pixels uint8 [B, T+1, S, S, 3], normalised actions [B, T, A]. The entry "loss" is what to minimise."""
        embeddings = model.embed(pixels)
        prediction = model.prediction_error(embeddings, actions)
        sigreg = self.sigreg(batch_samples(embeddings, pooled=self.config.pooled))
        losses = {"prediction": prediction, "sigreg": sigreg}
        loss = prediction + self.config.sigreg * sigreg
        if self.inverse is not None:
            losses["inverse"] = self.inverse(embeddings, actions)
            loss = loss + self.config.inverse * losses["inverse"]
        return {"loss": loss} | losses
