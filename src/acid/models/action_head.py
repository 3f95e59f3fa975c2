"""The action between neighbouring embeddings, as a term that a loss may have.

It keeps in the embeddings what the actions move. It is thrown away after training; the verifier is trained apart, on
the finished embeddings.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acid.models.jepa import JepaWorldModel

HIDDEN = 512


class ActionHead(nn.Module):
    """From two neighbouring embeddings, side by side, to the action between them."""

    def __init__(self, model: JepaWorldModel) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2 * model.config.latent_size, HIDDEN),
            nn.GELU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.GELU(),
            nn.Linear(HIDDEN, model.config.action_size),
        )

    def forward(self, embeddings: Tensor, actions: Tensor) -> Tensor:
        """Mean squared error over all neighbours: embeddings [B, T+1, D], normalised actions [B, T, A] to a number."""
        return F.mse_loss(self.layers(torch.cat([embeddings[:, :-1], embeddings[:, 1:]], -1)), actions)
