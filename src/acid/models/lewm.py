"""Le-WM: a joint-embedding world model kept from collapsing by SIGReg alone."""

from __future__ import annotations

from torch import Tensor, nn

from acid.models.jepa import JepaWorldModel
from acid.models.sigreg import SIGReg


class LeWMObjective(nn.Module):
    """Mean squared error of the next embedding (no stop-gradient) plus SIGReg on all embeddings."""

    def __init__(self, *, sigreg_weight: float = 0.09, projections: int = 1024) -> None:
        super().__init__()
        self.sigreg_weight = sigreg_weight
        self.sigreg = SIGReg(projections)

    def forward(self, model: JepaWorldModel, pixels: Tensor, actions: Tensor) -> dict[str, Tensor]:
        """Pixels uint8 [B, T+1, S, S, 3], normalised actions [B, T, A]. The entry "loss" is what to minimise."""
        embeddings = model.embed(pixels)
        predicted = model.predict(embeddings[:, :-1], actions)
        prediction = (predicted - embeddings[:, 1:]).square().mean()
        sigreg = self.sigreg(embeddings.transpose(0, 1))
        return {"loss": prediction + self.sigreg_weight * sigreg, "prediction": prediction, "sigreg": sigreg}
